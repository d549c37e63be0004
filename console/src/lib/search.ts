// The query of a page's address: plain names and values, so that people can read and write it.

export type Search = Record<string, string | string[] | undefined>;

/** parseSearch reads a query. A repeated name becomes an array. */
export function parseSearch(text: string): Search {
  const out: Search = {};
  for (const [name, value] of new URLSearchParams(text)) {
    const old = out[name];
    out[name] = old === undefined ? value : Array.isArray(old) ? [...old, value] : [old, value];
  }
  return out;
}

/** stringifySearch writes a query, with the question mark. */
export function stringifySearch(search: object): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined && one !== null) q.append(name, String(one));
  }
  const text = q.toString().replaceAll("%3A", ":").replaceAll("%2F", "/");
  return text ? `?${text}` : "";
}

/** one returns the first value of a name. */
export function one(search: Search, name: string): string | undefined {
  const value = search[name];
  return Array.isArray(value) ? value[0] : value;
}

/** many returns all values of a name. */
export function many(search: Search, name: string): string[] {
  const value = search[name];
  return value === undefined ? [] : Array.isArray(value) ? value : [value];
}
