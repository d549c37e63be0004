// Style sheets of pages stay loaded when another page is shown. So a class belongs to one file.
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

test("a class begins selectors of one style sheet only", () => {
  const owners = new Map<string, Set<string>>();
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".css"));
  expect(files.length).toBeGreaterThan(20);
  for (const file of files) {
    const css = readFileSync(`src/${file}`, "utf8").replace(/\/\*[\s\S]*?\*\//g, "");
    for (const [, selectors] of css.matchAll(/([^{};]+)\{/g)) {
      for (const selector of selectors?.split(",") ?? []) {
        const name = /^\s*\.([\w-]+)/.exec(selector)?.[1];
        if (name) owners.set(name, (owners.get(name) ?? new Set()).add(file));
      }
    }
  }
  expect([...owners].filter(([, by]) => by.size > 1)).toEqual([]);
});
