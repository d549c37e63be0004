import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, stringify } from "holdfast-agent";

test("integers beyond 2^53 stay what they are", () => {
  const text = '{"a":12345678901234567890,"b":[-9007199254740993,9007199254740991],"c":"12345678901234567890","d":1.5}';
  assert.equal(stringify(parse(text)), text);
  assert.deepEqual(parse(text), {
    a: 12345678901234567890n,
    b: [-9007199254740993n, 9007199254740991],
    c: "12345678901234567890",
    d: 1.5,
  });
});

test("strings that look like numbers, quotes and escapes are strings", () => {
  for (const said of [
    '\\"12345678901234567890',
    "\\\\",
    '12345678901234567890\\"',
    "\u0000 12345678901234567890",
    '{"x":12345678901234567890}',
  ]) {
    const text = JSON.stringify({ said, n: 0, [said]: [said] }).replace('"n":0', '"n":12345678901234567890');
    assert.deepEqual(parse(text), { said, n: 12345678901234567890n, [said]: [said] });
    assert.equal(stringify(parse(text)), text);
  }
});

test("numbers with a fraction or an exponent are numbers", () => {
  assert.deepEqual(parse("[1234567890123456.5, 1e20]"), [1234567890123456.5, 1e20]);
});

test("what JSON cannot say is an error", () => {
  assert.throws(() => parse("{"), SyntaxError);
  for (const value of [undefined, Number.NaN, { a: Infinity }, () => 1, Symbol("s"), { f() {} }])
    assert.throws(() => stringify(value), TypeError);
  assert.equal(stringify({ a: undefined, b: null, c: 5n }), '{"b":null,"c":5}');
});

test("a large document with many escapes is read", () => {
  const text = JSON.stringify({ s: '"\\\n'.repeat(1_000_000), n: 0 }).replace('"n":0', '"n":12345678901234567890');
  assert.equal(stringify(parse(text)), text);
});
