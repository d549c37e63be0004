// Builds the console into a temporary directory and compares it with the files in the repository.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

const have = new URL("../../internal/admin/console/dist", import.meta.url).pathname;
const want = mkdtempSync(join(tmpdir(), "console-"));
try {
  execFileSync("npx", ["--no-install", "vite", "build", "--outDir", want, "--logLevel", "warn"], { stdio: "inherit" });
  const names = new Set([...list(have), ...list(want)]);
  const differ = [...names].filter((name) => read(have, name) !== read(want, name)).sort();
  if (differ.length > 0) {
    console.error(
      `internal/admin/console/dist is not what console/ builds: run make console and commit it.\n${differ.join("\n")}`,
    );
    process.exitCode = 1;
  } else {
    execFileSync("node", ["scripts/size.js"], { stdio: "inherit" });
  }
} finally {
  rmSync(want, { recursive: true });
}

/** @param {string} folder */
function list(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1));
}

/** @param {string} folder @param {string} name */
function read(folder, name) {
  try {
    const content = readFileSync(join(folder, name));
    // Versions of Node compress differently.
    return (name.endsWith(".gz") ? gunzipSync(content) : content).toString("base64");
  } catch {
    return "";
  }
}
