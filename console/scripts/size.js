// Prints the size of the built console, and fails above the budget: what a browser loads for its first page, the home or the list.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const budget = 220_000;
const dist = new URL("../../internal/admin/console/dist/", import.meta.url).pathname;

/** @param {string} folder @returns {string[]} */
function files(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}

/** @param {string} name @returns {string} */
const text = (name) => readFileSync(join(dist, name), "utf8");
const html = text("index.html");
const sizes = new Map();
for (const path of files(dist).sort()) {
  if (/\.(js|css|html|svg)$/.test(path)) sizes.set(path.slice(dist.length), gzipSync(readFileSync(path), { level: 9 }).length);
}
const names = [...sizes.keys()];
const shell = names.filter((name) => name === "index.html" || html.includes(`/console/${name}"`));
const main = shell.find((name) => /assets\/index-.*\.js$/.test(name)) ?? "";

/** Vite lists in the main file what a page preloads. @param {string} page @returns {string[]} */
function withPage(page) {
  const listed = JSON.parse(/m\.f=(\[[^\]]*\])/.exec(text(main))?.[1] ?? "[]");
  const at = new RegExp(`import\\(.\\./${page}-.*?__vite__mapDeps\\(\\[([\\d,]*)\\]`).exec(text(main))?.[1];
  if (at === undefined) throw new Error(`the main file does not load the page ${page}`);
  return [...new Set([...shell, ...at.split(",").map((i) => listed[Number(i)])])];
}

/** @param {string[]} some */
const sum = (some) => some.reduce((total, name) => total + (sizes.get(name) ?? 0), 0);

for (const name of names)
  console.log(`${String(sizes.get(name)).padStart(8)} ${shell.includes(name) ? "first" : "     "} ${name}`);
console.log(`console: ${sum(shell)} bytes of gzip before any page, ${sum(names)} in all`);
for (const page of ["home", "tasks"]) {
  const first = sum(withPage(page));
  console.log(`${page}: ${first} bytes of gzip (budget ${budget})`);
  if (first > budget) {
    console.error("The page is over its budget: split it, or drop a library.");
    process.exitCode = 1;
  }
}
