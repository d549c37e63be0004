// Files that people attach, as parts of a message.
import type { Part } from "./wire";

export interface Attachment {
  key: string;
  name: string;
  media: string;
  size: number;
  base64: string;
}

let keys = 0;

/** attach reads files into memory. */
export async function attach(list: Iterable<File>): Promise<Attachment[]> {
  return Promise.all(
    [...list].map(async (f) => {
      keys += 1;
      return {
        key: `f${keys}`,
        name: f.name,
        media: f.type || "application/octet-stream",
        size: f.size,
        base64: base64(new Uint8Array(await f.arrayBuffer())),
      };
    }),
  );
}

/** base64 encodes bytes in pieces, because a call has a bounded number of arguments. */
export function base64(bytes: Uint8Array): string {
  let binary = "";
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(binary);
}

export function partOf(a: Attachment): Part {
  return { kind: "file", base64: a.base64, name: a.name, media: a.media };
}
