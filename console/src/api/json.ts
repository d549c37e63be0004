import { LosslessNumber, parse, stringify } from "lossless-json";

// JavaScript sorts keys that look like integers, and "__proto__" is no ordinary key. In parsed JSON these keys begin
// with this mark, so that every object has its members in the order of the text.
const mark = "\u2063";
const strings = /"((?:[^"\\]|\\.)*)"(\s*:)?/gs;

/** keyOf returns a key of a parsed object as it is in the text. */
export function keyOf(key: string): string {
  return key.startsWith(mark) ? key.slice(1) : key;
}

function markKeys(text: string): string {
  if (!/"(?:\d+|__proto__|\u2063)/.test(text)) return text;
  return text.replace(strings, (all, content: string, colon: string | undefined) =>
    colon && /^(?:\d+$|__proto__$|\u2063)/.test(content) ? `"${mark}${content}"${colon}` : all,
  );
}

/** parseJson parses JSON. A number that JavaScript would not print as it is in the text becomes a LosslessNumber. */
export function parseJson(text: string): unknown {
  return parse(markKeys(text), undefined, {
    parseNumber: (digits) => {
      const n = Number(digits);
      return String(n) === digits ? n : new LosslessNumber(digits);
    },
    // The newest one, as everywhere else.
    onDuplicateKey: ({ newValue }) => newValue,
  });
}

/** formatJson writes what parseJson has parsed, with the same digits and the same order. */
export function formatJson(value: unknown, indent = 2): string {
  const text = stringify(value, undefined, indent) ?? "null";
  return text.includes(mark) ? text.replaceAll(`"${mark}`, '"') : text;
}

export { LosslessNumber };
