// Style sheets of pages stay loaded when another page is shown. So a class belongs to one file.
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

const read = (file: string) => readFileSync(`src/${file}`, "utf8").replace(/\/\*[\s\S]*?\*\//g, "");
const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".css"));

test("radii and sizes of text are of the scale in tokens.css", () => {
  const used = new Set<string>();
  for (const file of files) {
    for (const [, value] of read(file).matchAll(/(?:border[\w-]*radius|font-size|\sfont):([^;]+);/g)) {
      for (const word of value?.match(/var\(--(?:text|radius|round)[\w-]*\)|\d\S*(?:px|r?em|%)/g) ?? []) used.add(word);
    }
  }
  expect([...used].sort()).toEqual(
    ["radius", "radius-lg", "radius-sm", "round", "text-lg", "text-md", "text-sm", "text-touch", "text-xl", "text-xs"].map(
      (name) => `var(--${name})`,
    ),
  );
});

test("a class begins selectors of one style sheet only", () => {
  const owners = new Map<string, Set<string>>();
  expect(files.length).toBeGreaterThan(20);
  for (const file of files) {
    for (const [, selectors] of read(file).matchAll(/([^{};]+)\{/g)) {
      for (const selector of selectors?.split(",") ?? []) {
        const name = /^\s*\.([\w-]+)/.exec(selector)?.[1];
        if (name) owners.set(name, (owners.get(name) ?? new Set()).add(file));
      }
    }
  }
  expect([...owners].filter(([, by]) => by.size > 1)).toEqual([]);
});
