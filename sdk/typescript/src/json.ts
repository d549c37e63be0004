/**
 * A JSON value. An integer that a number cannot hold exactly, beyond 2^53, is a bigint: it is read and written without a change.
 * Of other numbers, JavaScript keeps 15 to 17 digits.
 */
export type Json = null | boolean | number | bigint | string | Json[] | { [member: string]: Json };

/** A JSON object. */
export type JsonObject = { [member: string]: Json };

// Strings that stand for big integers between two passes begin with it. No text from outside can contain it.
const mark = `bigint-${crypto.randomUUID()}-`;
const marked = new RegExp(`"${mark}(-?\\d+)"`, "g");
const digits = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/** Parse reads JSON. Integers beyond 2^53 become bigints. It throws a SyntaxError for what is no JSON. */
export function parse(text: string): Json {
  const value = JSON.parse(text) as Json; // also: from here on, text is valid
  if (!/\d{16}/.test(text)) return value;
  let out = "";
  let copied = 0;
  let at = 0;
  while (at < text.length) {
    const c = text.charCodeAt(at);
    if (c === 0x22) {
      at = endOfString(text, at);
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) {
      digits.lastIndex = at;
      const number = digits.exec(text)?.[0] ?? "";
      if (/^-?\d{16,}$/.test(number) && !Number.isSafeInteger(Number(number))) {
        out += `${text.slice(copied, at)}"${mark}${number}"`;
        copied = at + number.length;
      }
      at += number.length;
    } else {
      at++;
    }
  }
  if (copied === 0) return value;
  return JSON.parse(out + text.slice(copied), (_, member) =>
    typeof member === "string" && member.startsWith(mark) ? BigInt(member.slice(mark.length)) : member,
  ) as Json;
}

function endOfString(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); ; quote = text.indexOf('"', quote + 1)) {
    let before = quote - 1;
    while (text.charCodeAt(before) === 0x5c) before--;
    if ((quote - before) % 2 === 1) return quote + 1;
  }
}

/**
 * Stringify writes JSON, bigints as numbers. It throws a TypeError for what JSON cannot say: NaN, infinite numbers, functions,
 * cycles. Members that are undefined are left out.
 */
export function stringify(value: unknown): string {
  let big = false;
  const text = JSON.stringify(value, (key, member) => {
    switch (typeof member) {
      case "bigint":
        big = true;
        return `${mark}${member}`;
      case "number":
        if (!Number.isFinite(member)) throw new TypeError(`${key || "the value"} is ${member}, which JSON cannot say`);
        return member;
      case "function":
      case "symbol":
        throw new TypeError(`${key || "the value"} is a ${typeof member}, which JSON cannot say`);
      default:
        return member;
    }
  });
  if (text === undefined) throw new TypeError("undefined is not JSON; write null");
  return big ? text.replaceAll(marked, "$1") : text;
}
