import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFile, copyFile, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { problem, ScriptedServer, until } from "./server.js";

// The compiled test lies in build/test.
const folder = join(import.meta.dirname, "../../test");
const program = join(folder, "conformance-agent.js");

let server: ScriptedServer;
let child: ChildProcess;
let stderr: string;

beforeEach(async () => {
  server = await ScriptedServer.start();
});

afterEach(async () => {
  if (child.exitCode === null && child.signalCode === null) {
    // With what it has started: node --watch has a child.
    process.kill(-(child.pid ?? 0), "SIGKILL");
    await once(child, "exit");
  }
  await server.stop();
});

function start(env: { [name: string]: string } = {}, ...args: string[]): void {
  child = spawn(process.execPath, args.length > 0 ? args : [program], {
    env: { PATH: process.env.PATH, HOLDFAST_URL: server.url, HOLDFAST_AGENT: "test", ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  stderr = "";
  child.stderr?.setEncoding("utf8").on("data", (text) => {
    stderr += text;
  });
  child.stdout?.resume();
}

async function exit(): Promise<number | null> {
  if (child.exitCode === null) await once(child, "exit");
  return child.exitCode;
}

test("SIGTERM lets runs finish, and ends the process", async () => {
  start();
  const task = server.give("slow 3 200");
  await until("the run emits", () => task.events.length > 0);
  child.kill("SIGTERM");
  assert.equal(await exit(), 0);
  assert.deepEqual(task.types, ["text", "text", "text", "complete"]);
  assert.match(stderr, /msg="the worker drains"/);
});

test("SIGINT releases what does not finish in time", async () => {
  start({ CONFORMANCE_DRAIN: "0.2" });
  const task = server.give("slow 1 3600000");
  await until("the run emits", () => task.events.length > 0);
  child.kill("SIGINT");
  assert.equal(await exit(), 0);
  assert.ok(task.released);
});

test("a second signal releases at once", async () => {
  start({ CONFORMANCE_DRAIN: "3600" });
  const task = server.give("slow 1 3600000");
  await until("the run emits", () => task.events.length > 0);
  child.kill("SIGTERM");
  await until("the drain begins", () => stderr.includes("the worker drains"));
  child.kill("SIGTERM");
  assert.equal(await exit(), 0);
  assert.ok(task.released);
});

test("a signal after the drain ends a process that code keeps, with its status", async () => {
  const stubborn = `import { agent, serve } from "holdfast-agent";
    const endless = async (run) => { await run.text("on"); await new Promise(() => setInterval(() => {}, 1000)); };
    await serve(agent(endless, { name: "test" }), { drainTimeout: 0.1 });
    console.error("serve has returned");`;
  start({}, "--input-type=module", "--eval", stubborn);
  const task = server.give("hi");
  await until("the run emits", () => task.events.length > 0);
  child.kill("SIGTERM");
  await until("the worker stops", () => stderr.includes("serve has returned"));
  child.kill("SIGTERM");
  assert.equal(await exit(), 0);
  assert.ok(task.released);
});

test("a second signal reaches all that serve in a process", async () => {
  const two = `import { agent, serve } from "holdfast-agent";
    const endless = async (run) => { await run.text("on"); await new Promise(() => {}); };
    serve(agent(endless, { name: "idle" }), { url: "http://127.0.0.1:1" }).then(() => console.error("one has returned"));
    await serve(agent(endless, { name: "test" }), { drainTimeout: 3600 });`;
  start({}, "--input-type=module", "--eval", two);
  const task = server.give("hi");
  await until("the run emits", () => task.events.length > 0);
  child.kill("SIGTERM");
  await until("the idle one stops", () => stderr.includes("one has returned"));
  child.kill("SIGTERM");
  assert.equal(await exit(), 0);
  assert.ok(task.released);
});

test("a server of another version ends the process with an error", async () => {
  server.fault = () => ({ status: 404, body: problem(404, "version", { versions: ["2"] })[1] });
  start();
  assert.equal(await exit(), 1);
  assert.match(stderr, /level=ERROR msg="worker cannot work" error=".*other versions of the worker API than 1: 2/);
});

test("wrong settings end the process with an error", async () => {
  start({ HOLDFAST_URL: "localhost" });
  assert.equal(await exit(), 1);
  assert.match(stderr, /\\"localhost\\" is no address; write http:\/\/HOST:PORT or https:\/\/HOST/);
});

test("node --watch loads the agent again, and its runs are released at once", async () => {
  const dir = await mkdtemp(join(folder, "watched-")); // inside of the package, so that its name is found
  try {
    const file = join(dir, "agent.js");
    await copyFile(program, file);
    start({}, "--watch", file);
    const task = server.give("slow 1 3600000");
    await until("the run emits", () => task.events.length > 0);
    const { id } = server.of("/worker/v1/claims")[0]?.body.worker ?? {};
    // Node sees no change that comes before it has begun to watch the file.
    const changes = setInterval(() => void appendFile(file, "// changed\n"), 1000);
    await until("the run is released", () => task.released).finally(() => clearInterval(changes));
    await until("the new code claims", () => server.of("/worker/v1/claims").some((r) => r.body.worker.id !== id));
    assert.equal(server.of("/worker/v1/claims").at(-1)?.body.agents[0].name, "test");
  } finally {
    await rm(dir, { recursive: true });
  }
});
