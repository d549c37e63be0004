// The project that `holdfast init typescript` writes runs by the commands that it prints, on the package as it is packed.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { version } from "holdfast-agent";

// The compiled test lies in build/test.
const folder = join(import.meta.dirname, "../..");
const binary = process.env.HOLDFAST_BINARY ?? "";
const parent = await mkdtemp(join(tmpdir(), "holdfast-init-"));
const dir = join(parent, "greeter");

after(() => rm(parent, { recursive: true, force: true, maxRetries: 10 }));

// Packages of others come from the SDK's own folder: the test has no network.
async function install(): Promise<void> {
  execFileSync("npm", ["pack", "--silent", "--pack-destination", parent], { cwd: folder });
  const manifest = JSON.parse(await readFile(join(dir, "package.json"), "utf8"));
  const own = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  assert.equal(manifest.dependencies["holdfast-agent"], `^${version}`);
  for (const [name, wanted] of Object.entries<string>(manifest.devDependencies)) {
    assert.equal(wanted.split(".")[0], `^${own.devDependencies[name].split(".")[0]}`, name);
  }
  await writeFile(join(dir, "package.json"), JSON.stringify({ ...manifest, devDependencies: {} }));
  const packed = join(parent, `holdfast-agent-${version}.tgz`);
  execFileSync("npm", ["install", "--silent", "--offline", "--no-audit", "--no-fund", packed], { cwd: dir });
  const modules = join(folder, "node_modules");
  for (const name of ["typescript", "@types", "@typescript", "undici-types"]) {
    await symlink(join(modules, name), join(dir, "node_modules", name));
  }
  await mkdir(join(dir, "node_modules/.bin"), { recursive: true });
  await symlink(join(modules, ".bin/tsc"), join(dir, "node_modules/.bin/tsc"));
}

test("the project of holdfast init answers under holdfast dev, and passes its test", async () => {
  await chmod(parent, 0o755); // root's PostgreSQL runs as another user
  const { next } = JSON.parse(execFileSync(binary, ["init", "typescript", dir, "-o", "json"], { encoding: "utf8" }));
  assert.deepEqual(next.slice(0, 2), [`cd ${dir}`, "npm install"]);
  await install();

  const [program, verb, ...rest] = next[2].split(" ");
  assert.deepEqual([program, verb], ["holdfast", "dev"]);
  const own = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--grpc-listen", "off"];
  const dev = spawn(binary, [verb, ...own, ...rest], { cwd: dir, stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(dev, "exit");
  try {
    let url: string | undefined;
    const said: string[] = [];
    for await (const line of createInterface({ input: dev.stdout })) {
      said.push(line);
      url = /server ready at (\S+);/.exec(line)?.[1];
      if (url) break;
    }
    assert.ok(url, said.join("\n"));
    dev.stdout.resume();
    const send = (...args: string[]) => spawnSync(binary, ["send", "--no-input", "--url", url, ...args], { encoding: "utf8" });
    const asked = send("Hi");
    assert.match(asked.stdout, /What is your name\?/, asked.stderr);
    const answered = send("--task", /^task +(\S+)/m.exec(asked.stdout)?.[1] ?? "", "Ada");
    assert.match(answered.stdout, /Hello, Ada!/, answered.stderr);
  } finally {
    dev.kill("SIGTERM");
    await ended;
  }
  assert.equal(dev.exitCode, 0);

  assert.equal(next[3], "npm test");
  const { NODE_TEST_CONTEXT: _, ...env } = process.env; // with it, a runner in a runner runs nothing
  const tested = spawnSync("npm", ["test"], { cwd: dir, env, encoding: "utf8" });
  assert.match(tested.stdout, /^(#|ℹ) pass 1$/m, tested.stderr);
  assert.equal(tested.status, 0, tested.stdout);
});
