// Prints the size of the built console, and fails above the budget: what a browser loads before any route.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const budget = 300_000;
const dist = new URL("../../internal/admin/console/dist/", import.meta.url).pathname;

/** @param {string} folder @returns {string[]} */
function files(folder) {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? files(path) : [path];
  });
}

const html = readFileSync(join(dist, "index.html"), "utf8");
let first = 0;
let all = 0;
for (const path of files(dist).sort()) {
  if (!/\.(js|css|html|svg)$/.test(path)) continue;
  const size = gzipSync(readFileSync(path), { level: 9 }).length;
  const name = path.slice(dist.length);
  const early = name === "index.html" || html.includes(`/console/${name}"`);
  all += size;
  if (early) first += size;
  console.log(`${String(size).padStart(8)} ${early ? "first" : "     "} ${name}`);
}
console.log(`console: ${first} bytes of gzip before any route (budget ${budget}), ${all} in all`);
if (first > budget) {
  console.error("The console is over its budget: split a route, or drop a library.");
  process.exit(1);
}
