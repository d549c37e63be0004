import assert from "node:assert/strict";
import { test } from "node:test";
import { agent, type ErrorDocument, Fail, Retry, type Returned, type Run, StateChanged, type Stopped } from "holdfast-agent";
import { TestTask } from "holdfast-agent/testing";
import { until } from "./server.js";

const stopped = (run: Run) => new Promise<void>((done) => run.signal.addEventListener("abort", () => done()));

test("a conversation has turns", async () => {
  const task = new TestTask(
    agent("greeter", async (run) => {
      if (run.turn === 1) return await run.ask("What is your name?");
      const [hello] = run.history;
      await run.text(`${hello?.text}, ${run.message.text}!`);
    }),
  );
  const first = await task.say("Hi");
  assert.equal(first.question, "What is your name?");
  assert.equal(task.state, "input-required");
  const second = await task.say("Ada");
  assert.equal(second.text, "Hi, Ada!");
  assert.deepEqual(
    second.events.map((e) => e.type),
    ["text", "complete"],
  );
  assert.equal(task.state, "completed");
  assert.throws(() => task.say("more"), /the task is completed/);
});

test("a retry goes on at the checkpoint", async () => {
  const task = new TestTask(
    agent("pages", async (run) => {
      const { page = 0 } = (run.lastCheckpoint as { page: number } | undefined) ?? {};
      await run.text(`page ${page} `);
      await run.artifact({ parts: [{ text: `page ${page}` }] });
      await run.checkpoint({ page: page + 1 });
      if (page < 2) {
        await run.text("half of ");
        await run.artifact({ parts: [{ text: "half" }] });
        throw new Retry("busy", { after: 3600 });
      }
    }),
  );
  const turn = await task.say("go");
  assert.equal(turn.tries, 3);
  assert.deepEqual(
    turn.artifacts.map((a) => a.parts[0]?.text),
    ["page 0 page 1 page 2 ", "page 0", "page 1", "page 2"],
  );
  assert.equal(turn.state, "completed");
});

test("tries are limited, and errors are hidden", async () => {
  const busy = await new TestTask(
    agent(() => {
      throw new Retry();
    }),
    { maxAttempts: 2 },
  ).say("x");
  assert.deepEqual([busy.tries, busy.state], [2, "failed"]);
  const lines: string[] = [];
  const quiet = { debug() {}, info() {}, warn() {}, error: (_: string, f?: object) => lines.push(JSON.stringify(f)) };
  const failed = await new TestTask(
    agent(() => {
      throw new Error("secret");
    }),
    { log: quiet },
  ).say("x");
  assert.deepEqual(
    failed.events.map(({ type, message }) => ({ type, message })),
    [{ type: "fail", message: "The agent failed." }],
  );
  assert.match(lines.join(), /secret/);
  const said = await new TestTask(
    agent(() => {
      throw new Fail("No paper.");
    }),
    { log: quiet },
  ).say("x");
  assert.equal(said.message?.parts[0]?.text, "No paper.");
});

test("waits, calls and resume URLs begin turns", async () => {
  const task = new TestTask(
    agent(async (run) => {
      switch (run.input?.source) {
        case "timer":
          return await run.call({ id: "f", agent: "flights", message: "Oslo" }, { agent: "hotels", message: "Oslo" });
        case "calls":
          await run.text(run.results.map((r) => `${r.id} ${r.agent} ${r.state} ${r.text}`).join("; "));
          return await run.ask("Approve:", { resume: { show: true } });
        case "resume":
          return await run.complete(`approved by ${(run.input.data as { by: string }).by}`);
        default:
          assert.match(run.resumeUrl, /^http/);
          return await run.wait({ for: 3600 });
      }
    }),
  );
  assert.equal((await task.say("go")).wait?.for, 3600);
  assert.equal(task.state, "working");
  const called = await task.wake();
  assert.deepEqual(
    called.calls.map((c) => c.message),
    ["Oslo", "Oslo"],
  );
  const asked = await task.deliver({ text: "DY 1303" }, { state: "rejected", error: "no such agent" });
  assert.equal(asked.text, "f flights completed DY 1303; 2 hotels rejected ");
  assert.equal(asked.resumable, true);
  const approved = await task.resume({ data: { by: "Eve" } });
  assert.equal(approved.message?.parts[0]?.text, "approved by Eve");
});

test("a cancel, a lost lease and a drain stop the code", async () => {
  const reasons: string[] = [];
  const patient = agent(async (run) => {
    await run.status(`try ${run.try}`);
    if (run.try === 4) return;
    await stopped(run);
    reasons.push((run.signal.reason as Stopped).reason, String(run.canceled?.metadata.why));
    throw run.signal.reason;
  });
  const task = new TestTask(patient);
  const turn = task.say("go");
  await turn.event("status");
  task.lose();
  await until("the next try begins", () => task.turns[0]?.events.length === 2);
  task.drain();
  await until("the next try begins", () => task.turns[0]?.events.length === 3);
  task.cancel({ why: "closed" });
  assert.equal((await turn).state, "canceled");
  assert.deepEqual(reasons, ["lost", "undefined", "released", "undefined", "canceled", "closed"]);
  await assert.rejects(new TestTask(agent(() => {})).say("x").event("ask"), /ended without the event; it has complete/);
});

test("states belong to the task and to its context", async () => {
  const task = new TestTask(
    agent(async (run) => {
      const { data, version } = await run.getState();
      const n = ((data as { n: number } | null)?.n ?? 0) + 1;
      await run.setState({ n }, { version });
      await assert.rejects(run.setState({ n }, { version }), StateChanged);
      assert.equal(await run.setState(null, { scope: "context" }), 0);
      await run.ask(String(n));
    }),
  );
  assert.equal((await task.say("x")).question, "1");
  assert.equal((await task.say("x")).question, "2");
});

test("an artifact grows, and can be read", async () => {
  const task = new TestTask(
    agent(async (run) => {
      await run.artifact({ artifactId: "a", name: "log", parts: [{ text: "1" }] });
      await run.artifact(
        { artifactId: "a", parts: [{ text: "2" }, { data: { big: 2n ** 70n } }] },
        { append: true, last: true },
      );
      await run.flush();
      assert.deepEqual((await run.readArtifact("a"))?.parts, [{ text: "12" }, { data: { big: 2n ** 70n } }]);
      const ids = [];
      for await (const a of run.readArtifacts()) ids.push(a.artifactId);
      assert.deepEqual(ids, ["a"]);
      await run.text("t");
      await run.artifact({ parts: [{ text: "u" }] });
    }),
  );
  const turn = await task.say([{ text: "x" }, { data: [1] }]);
  assert.deepEqual(
    turn.artifacts.map((a) => [a.artifactId, a.name]),
    [
      ["a", "log"],
      ["text-1", undefined],
      ["artifact-1-1", undefined],
    ],
  );
  assert.equal(turn.state, "completed");
});

test("what a function returns is the answer", async () => {
  const answers: { [text: string]: Returned } = {
    text: "Hello",
    part: { data: { n: 1 } },
    parts: [{ text: "a" }, { data: 2 }],
  };
  const echo = agent("echo", (run) => answers[run.message.text] as Returned);
  assert.equal((await new TestTask(echo).say("text")).text, "Hello");
  const turn = await new TestTask(echo).say("part");
  assert.deepEqual([turn.state, turn.artifacts[0]?.parts[0]?.data], ["completed", { n: 1 }]);
  assert.equal((await new TestTask(echo).say("parts")).artifacts[0]?.parts.length, 2);
});

test("operators read what was thrown", async () => {
  const failing = agent("failing", (run) => {
    const cause = new RangeError("order o-7");
    throw run.message.text === "known" ? new Fail("There is no such order.", { cause }) : cause;
  });
  const turn = await new TestTask(failing).say("hi");
  const { error } = turn.events.at(-1) as unknown as { error: ErrorDocument };
  assert.deepEqual([error.type, error.message], ["RangeError", "order o-7"]);
  assert.match(error.place ?? "", /^testing\.test\.js:\d+$/);
  assert.match(error.trace ?? "", /testing\.test\.js/);
  const known = await new TestTask(failing).say("known");
  assert.deepEqual(known.message?.parts, [{ text: "There is no such order." }]);
  assert.equal((known.events.at(-1) as unknown as { error: ErrorDocument }).error.message, "order o-7");
});
