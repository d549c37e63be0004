import { expect, test } from "vitest";
import { formatJson, keyOf, LosslessNumber, parseJson } from "./json";

test("numbers keep their digits", () => {
  const text = '{"a":9007199254740993,"b":1.0,"c":1e400,"d":0.1,"e":-7}';
  const value = parseJson(text) as Record<string, unknown>;
  expect(value.a).toEqual(new LosslessNumber("9007199254740993"));
  expect(value.d).toBe(0.1);
  expect(value.e).toBe(-7);
  expect(formatJson(value, 0)).toBe(text);
});

test("members keep their order, and are no prototypes", () => {
  const text = '{"b":1,"10":2,"2":{"__proto__":{"x":3},"1":"\\"3\\": 4"},"a":5}';
  const value = parseJson(text) as object;
  expect(Object.keys(value).map(keyOf)).toEqual(["b", "10", "2", "a"]);
  expect((value as { x?: number }).x).toBeUndefined();
  expect(formatJson(value, 0)).toBe(text);
});

test("the newest of two members with one name counts", () => {
  expect(parseJson('{"a":1,"a":2}')).toEqual({ a: 2 });
});
