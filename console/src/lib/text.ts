// Text of agents and clients, so that it shows what it is.

/** Characters that are not seen or that turn others around: controls, bidi marks, zero-width ones, tags. */
const hidden =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

/** visible writes characters that cannot be seen as their code, such as ⟨U+202E⟩. */
export function visible(text: string): string {
  return text.replace(hidden, (c) => `⟨U+${(c.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** seen is visible for what a component shows: texts as they are, elements have seen to it themselves. */
export function seen<T>(node: T): T | string {
  return typeof node === "string" ? visible(node) : node;
}

/** start returns the first characters of a text, without half of one. */
export function start(text: string, most: number): string {
  if (text.length <= most) return text;
  const code = text.charCodeAt(most - 1);
  return text.slice(0, code >= 0xd800 && code < 0xdc00 ? most - 1 : most);
}

/** line returns the beginning of a text as one line. */
export function line(text: string, most = 160): string {
  const flat = visible(
    start(text, most * 2)
      .replace(/\s+/g, " ")
      .trim(),
  );
  return flat.length > most ? `${start(flat, most)}…` : text.length > most * 2 ? `${flat}…` : flat;
}

/** shortId returns the end of an id. Ids of one minute begin with the same digits. */
export function shortId(id: string): string {
  return visible(id.length > 12 ? `…${id.slice(-8)}` : id);
}

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** size writes a number of bytes for people, in the units of the configuration. */
export function size(bytes: number): string {
  let n = bytes;
  let unit = 0;
  while (Math.abs(n) >= 1023.5 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${unit === 0 ? n : Math.abs(n) < 9.95 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** hostOf returns the host of an address that a browser may open, or undefined for every other text. */
export function hostOf(address: string | undefined): string | undefined {
  if (!address) return undefined;
  try {
    const url = new URL(address);
    if (url.protocol === "mailto:") return "mail";
    return url.protocol === "http:" || url.protocol === "https:" ? url.host : undefined;
  } catch {
    return undefined;
  }
}

/** csv reads comma-separated values (RFC 4180), at most so many rows. It returns undefined for other text. */
export function csv(text: string, mostRows: number, separator = ","): string[][] | undefined {
  const rows: string[][] = [];
  let row: string[] = [];
  let field = "";
  let quoted = false;
  for (let i = 0; i < text.length && rows.length < mostRows; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') field += c;
      else if (text[i + 1] === '"') {
        field += '"';
        i++;
      } else quoted = false;
    } else if (c === '"' && field === "") quoted = true;
    else if (c === separator) {
      row.push(field);
      field = "";
    } else if (c === "\n" || c === "\r") {
      if (c === "\r" && text[i + 1] === "\n") i++;
      row.push(field);
      rows.push(row);
      row = [];
      field = "";
    } else field += c;
  }
  if (rows.length < mostRows && (field !== "" || row.length > 0)) rows.push([...row, field]);
  return rows.length > 0 && rows.some((r) => r.length > 1) ? rows : undefined;
}
