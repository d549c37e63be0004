// Server-sent events over fetch: an EventSource can neither POST nor send headers.

export interface SseEvent {
  id?: string;
  name?: string;
  data: string;
}

/** sseReader returns a function that takes pieces of a stream, cut anywhere, and returns the events that they complete. */
export function sseReader(): (piece: string) => SseEvent[] {
  let rest = "";
  let id: string | undefined;
  let name: string | undefined;
  let data: string[] = [];
  return (piece) => {
    const out: SseEvent[] = [];
    rest += piece;
    for (;;) {
      const end = rest.search(/[\r\n]/);
      // A CR at the end may be the first half of a CRLF.
      if (end < 0 || (rest[end] === "\r" && end === rest.length - 1)) return out;
      const line = rest.slice(0, end);
      rest = rest.slice(end + (rest[end] === "\r" && rest[end + 1] === "\n" ? 2 : 1));
      if (line === "") {
        if (data.length > 0) {
          out.push({ ...(id === undefined ? {} : { id }), ...(name === undefined ? {} : { name }), data: data.join("\n") });
        }
        id = undefined;
        name = undefined;
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue; // a comment keeps the connection alive
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "data") data.push(value);
      else if (field === "id") id = value;
      else if (field === "event") name = value;
    }
  };
}
