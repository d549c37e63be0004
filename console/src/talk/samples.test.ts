import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { demoScripts, samples, survivor } from "./samples";

const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");

test("each sample is one of a document", () => {
  for (const s of samples) expect(`\n${read(s.page)}`, s.name).toContain(`\n${s.code}\n`);
});

test("the demo agent knows the messages", () => {
  const demo = read("internal/worker/executor/demo/demo.go");
  for (const [script] of [...demoScripts, [survivor]]) {
    const word = /^\w+[:=]?/.exec(script)?.[0] ?? "";
    expect(demo, script).toContain(`"${word.replace(/:$/, "")}`);
  }
});
