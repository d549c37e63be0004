import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { address, type Guide, guides } from "./guides";

/** anchorOf returns the anchor that GitHub and the site give a heading. */
const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, "")
    .trim()
    .replaceAll(" ", "-");

test("each guide is a page of the documents, at a heading that it has", () => {
  for (const [guide, [page]] of Object.entries(guides)) {
    const [path, anchor] = page.split("#");
    const text = readFileSync(new URL(`../../../docs/${path}`, import.meta.url), "utf8");
    const anchors = [...text.matchAll(/^#+ (.+)$/gm)].map((m) => anchorOf(m[1] ?? ""));
    if (anchor !== undefined) expect(anchors, page).toContain(anchor);
    expect(address(guide as Guide)).toMatch(/^\/docs\/[a-z/-]+\.html(#[a-z-]+)?$/);
  }
});
