// The package as it is packed and installed, and the examples of the guide with it.
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { version } from "holdfast-agent";
import { ScriptedServer, until } from "./server.js";

// The compiled test lies in build/test.
const folder = join(import.meta.dirname, "../..");
const root = join(folder, "../..");
const examples = join(root, "examples/node/worker");
let dir: string;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "holdfast-agent-"));
  const packed: Buffer[] = [];
  for (const name of ["one", "two"]) {
    await mkdir(join(dir, name));
    execFileSync("npm", ["pack", "--silent", "--pack-destination", join(dir, name)], { cwd: folder });
    packed.push(await readFile(join(dir, name, `holdfast-agent-${version}.tgz`)));
  }
  assert.deepEqual(packed[0], packed[1], "npm pack is reproducible");
  await writeFile(join(dir, "package.json"), '{"private": true, "type": "module"}');
  execFileSync(
    "npm",
    ["install", "--silent", "--offline", "--no-audit", "--no-fund", join(dir, "one", `holdfast-agent-${version}.tgz`)],
    {
      cwd: dir,
    },
  );
  await symlink(join(folder, "node_modules/@a2a-js"), join(dir, "node_modules/@a2a-js"));
});

after(() => rm(dir, { recursive: true }));

async function withExample(name: string, check: (server: ScriptedServer) => Promise<void>): Promise<void> {
  const server = await ScriptedServer.start();
  await copyFile(join(examples, name), join(dir, name));
  const child: ChildProcess = spawn(process.execPath, [name], {
    cwd: dir,
    env: { PATH: process.env.PATH, HOLDFAST_URL: server.url },
    stdio: ["ignore", "ignore", "inherit"],
  });
  try {
    await check(server);
    child.kill("SIGTERM");
    await once(child, "exit");
    assert.equal(child.exitCode, 0);
  } finally {
    child.kill("SIGKILL");
    await server.stop();
  }
}

test("the version is that of the manifest", async () => {
  const manifest = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  assert.equal(version, manifest.version);
  assert.deepEqual(manifest.dependencies ?? {}, {});
});

test("the example asks, streams and goes on at its checkpoint", async () => {
  await withExample("trip.mjs", async (server) => {
    const asks = server.give("Plan a trip", { agent: "trip" });
    const plans = server.give("Oslo", { agent: "trip", turn: 2 });
    const again = server.give("Oslo", { agent: "trip", turn: 2, try: 2, checkpoint: { day: 3 } });
    await until("all tasks end", () => server.tasks.every((t) => t.ended));
    assert.deepEqual(asks.events, [{ type: "ask", message: "Where to?" }]);
    assert.equal(plans.texts, "Day 1 in Oslo. Day 2 in Oslo. Day 3 in Oslo. ");
    assert.deepEqual(plans.events.at(-1), { type: "complete", message: "Enjoy Oslo!" });
    assert.deepEqual(again.events[0], { type: "text", name: "plan", text: "Day 3 in Oslo. ", last: true });
  });
});

test("the durable example asks, and pays once", async () => {
  await withExample("refund.mjs", async (server) => {
    const asks = server.give("o-1", { agent: "refund" });
    await until("the first run ends", () => asks.ended);
    assert.deepEqual(asks.types, ["record", "record", "record", "ask"]);
    const records = { records: asks.events.slice(0, 3).map(({ type, ...record }) => record) };
    const message = { role: "user" as const, parts: [{ text: "yes" }] };
    const pays = server.give("o-1", { agent: "refund", turn: 2, message, records });
    await until("the second run ends", () => pays.ended);
    assert.deepEqual(pays.types, ["record", "record", "record", "wait"]);
    const { data } = pays.events[1];
    assert.deepEqual(data, { id: "r-o-1", key: `${pays.run.task.key}/pay/1` });
  });
});

test("the example with an executor of the library echoes", async () => {
  await withExample("sdk_executor.mjs", async (server) => {
    const task = server.give("hi", { agent: "echo" });
    await until("the task ends", () => task.ended);
    assert.deepEqual(task.types, ["artifact", "complete"]);
    assert.deepEqual(task.events[0].artifact.parts, [{ text: "hi" }]);
  });
});

test("the guide has the example", async () => {
  const guide = await readFile(join(root, "docs/agents/typescript.md"), "utf8");
  const [, ...program] = (await readFile(join(examples, "refund.mjs"), "utf8")).split("\n");
  assert.ok(guide.includes(`\`\`\`js\n${program.join("\n")}\`\`\``));
});
