import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import {
  agent,
  type ConnectOptions,
  connect,
  type ErrorDocument,
  EventRefused,
  Fail,
  type Handler,
  Reject,
  Retry,
  type Run,
  RunApiError,
  StateChanged,
  Stopped,
  textLogger,
  type Worker,
} from "holdfast-agent";
import { problem, ScriptedServer, type Task, until } from "./server.js";

let server: ScriptedServer;
let workers: Worker[] = [];
let logged = "";

beforeEach(async () => {
  server = await ScriptedServer.start();
  workers = [];
  logged = "";
});

afterEach(async () => {
  server.fault = () => undefined;
  await Promise.all(workers.map((w) => w.stop().catch(() => {})));
  await server.stop();
});

const log = textLogger("debug", (line) => {
  logged += line;
});

function work(handler: Handler, options: ConnectOptions = {}): Worker {
  const worker = connect(agent("test", handler), { url: server.url, log, ...options });
  workers.push(worker);
  return worker;
}

/** Resolves when the run is told to stop. */
const stopped = (run: Run) =>
  new Promise<void>((done) => (run.signal.aborted ? done() : run.signal.addEventListener("abort", () => done())));

const answered = (status: number, reason: string, headers?: Record<string, string>, more?: object) => ({
  status,
  headers,
  body: problem(status, reason, more)[1],
});

test("answers a message", async () => {
  const task = server.give("Ada");
  work((run) => run.text(`Hello, ${run.message.text}!`), { name: "box", version: "v1", apiKey: "secret" });
  await until("the task ends", () => task.ended);
  assert.deepEqual(task.events, [{ type: "text", text: "Hello, Ada!" }, { type: "complete" }]);
  const claim = server.of("/worker/v1/claims")[0];
  assert.equal(claim?.headers.authorization, "Bearer secret");
  assert.equal(claim?.body.worker.name, "box");
  assert.equal(claim?.body.worker.version, "v1");
  assert.match(claim?.body.worker.sdk, /^holdfast-agent\/\d.* node\/\d/);
  assert.match(claim?.body.worker.id, /^[0-9a-f-]{36}$/);
  assert.deepEqual(claim?.body.agents, [{ name: "test", slots: 10 }]);
  await until("the log has the end", () => logged.includes("run ended"));
  const line = logged.split("\n").find((l) => l.includes("run ended")) ?? "";
  assert.match(line, /task_id=task-1 run=run-1 trace_id=4bf92f3577b34da6a3ce929d0e0e4736 outcome=completed took=\d+\.\d{3}s$/);
});

test("emits every word", async () => {
  const words: { [name: string]: (run: Run) => Promise<void> } = {
    text: (run) => run.text("a", { name: "n", artifactId: "i", append: true, last: true }),
    artifact: (run) =>
      run.artifact(
        { artifactId: "a", parts: [{ raw: new Uint8Array([72, 105]) }, { data: { big: 2n ** 64n } }] },
        { last: true },
      ),
    status: (run) => run.status("Half way.", { metadata: { percent: 50 } }),
    checkpoint: (run) => run.checkpoint({ page: 1 }),
    ask: (run) => run.ask({ parts: [{ text: "Which?" }] }, { resume: { for: 60, show: true } }),
    auth: (run) => run.auth(),
    complete: (run) => run.complete("Bye."),
    fail: (run) => run.fail("No."),
    reject: (run) => run.reject("Never."),
    reply: (run) => run.reply("Hi."),
    retry: (run) => run.retry("busy", { after: 5 }),
    wait: (run) => run.wait({ until: new Date("2026-03-01T08:00:00Z"), interruptible: true }),
    call: (run) =>
      run.call({ agent: "flights", message: "Oslo", relay: true }, { task: "t", message: { parts: [{ text: "x" }] } }),
  };
  work((run) => words[run.message.text]?.(run), { concurrency: 20 });
  const tasks = Object.fromEntries(Object.keys(words).map((word) => [word, server.give(word)]));
  await until("all tasks end", () => server.tasks.every((t) => t.ended));
  const first = Object.fromEntries(Object.entries(tasks).map(([word, t]) => [word, t.events[0]]));
  assert.deepEqual(first, {
    text: { type: "text", text: "a", name: "n", artifactId: "i", append: true, last: true },
    artifact: {
      type: "artifact",
      artifact: { artifactId: "a", parts: [{ raw: "SGk=" }, { data: { big: 2n ** 64n } }] },
      last: true,
    },
    status: { type: "status", message: "Half way.", metadata: { percent: 50 } },
    checkpoint: { type: "checkpoint", data: { page: 1 } },
    ask: { type: "ask", message: { parts: [{ text: "Which?" }] }, resume: { for: 60, show: true } },
    auth: { type: "auth" },
    complete: { type: "complete", message: "Bye." },
    fail: { type: "fail", message: "No." },
    reject: { type: "reject", message: "Never." },
    reply: { type: "reply", message: "Hi." },
    retry: { type: "retry", reason: "busy", after: 5 },
    wait: { type: "wait", until: "2026-03-01T08:00:00.000Z", interruptible: true },
    call: {
      type: "call",
      calls: [
        { agent: "flights", message: "Oslo", relay: true },
        { task: "t", message: { parts: [{ text: "x" }] } },
      ],
    },
  });
});

test("what a function throws ends the run", async () => {
  const errors: { [name: string]: Error } = {
    fail: new Fail("Out of paper.", { cause: new Error("tray 2") }),
    reject: new Reject("Not me."),
    retry: new Retry("busy", { after: 7 }),
    crash: new Error("secret 42"),
  };
  work((run) => {
    throw errors[run.message.text];
  });
  const tasks = Object.keys(errors).map((name) => server.give(name));
  await until("all tasks end", () => tasks.every((t) => t.ended));
  assert.deepEqual(
    tasks.map((t) => t.events.map(({ error, ...event }) => [event, (error as ErrorDocument | undefined)?.message])),
    [
      [[{ type: "fail", message: "Out of paper." }, "tray 2"]],
      [[{ type: "reject", message: "Not me." }, undefined]],
      [[{ type: "retry", reason: "busy", after: 7 }, undefined]],
      [[{ type: "fail", message: "The agent failed." }, "secret 42"]],
    ],
  );
  assert.match(logged, /secret 42/);
  assert.match(logged, /tray 2/);
});

test("an invalid event throws at once, also if nobody awaits", async () => {
  work((run) => {
    const invalid: { [name: string]: () => unknown } = {
      text: () => run.text(5 as unknown as string),
      parts: () => run.artifact({ parts: [] }),
      kinds: () => run.ask({ parts: [{ text: "a", url: "b" }] }),
      piece: () => run.artifact({ parts: [{ text: "a" }] }, { append: true }),
      nothing: () => run.checkpoint(undefined),
      infinite: () => run.checkpoint({ n: Infinity }),
    };
    invalid[run.message.text]?.();
  });
  const tasks = ["text", "parts", "kinds", "piece", "nothing", "infinite"].map((word) => server.give(word));
  await until("all tasks end", () => tasks.every((t) => t.ended));
  for (const t of tasks) assert.deepEqual(t.types, ["fail"]);
  assert.match(logged, /a part has exactly one of text, raw, url and data, not text and url/);
});

test("nothing doubles when connections break", async () => {
  let n = 0;
  // Every other upload breaks, before or after its commit, and so do some claims and heartbeats.
  server.fault = () => (["cut", undefined, "cutAnswer", undefined] as const)[n++ % 4];
  work(async (run) => {
    for (let i = 0; i < 20; i++) {
      await run.text(`${i} `);
      if (i % 5 === 0) await run.flush();
    }
  });
  const tasks = [server.give("a"), server.give("b")];
  await until("all tasks end", () => tasks.every((t) => t.ended));
  const all = Array.from({ length: 20 }, (_, i) => `${i} `).join("");
  assert.deepEqual(
    tasks.map((t) => t.texts),
    [all, all],
  );
});

test("a run whose answer was lost comes again, and runs once", async () => {
  let cuts = 2;
  server.fault = (r) => (r.path.endsWith("/claims") && cuts-- > 0 ? "cutAnswer" : undefined);
  let runs = 0;
  work(() => {
    runs++;
  });
  const task = server.give("a");
  await until("the task ends", () => task.ended);
  assert.ok(task.given >= 2, `given ${task.given} times`);
  assert.equal(runs, 1);
});

test("a run that comes twice runs once", async () => {
  let runs = 0;
  work(async (run) => {
    runs++;
    await stopped(run);
  });
  const task = server.give("a");
  await until("the run begins", () => runs === 1);
  const twin = { runs: [{ id: task.id, run: task.run, lease: 30 }] };
  let twice = false;
  server.fault = (r) => {
    if (!r.path.endsWith("/claims") || twice) return undefined;
    twice = true;
    return { status: 200, body: twin };
  };
  server.give("b", { agent: "other" });
  const claims = server.of("/worker/v1/claims").length;
  server.drain = "replica"; // ends the claim that waits
  server.wake();
  await until("the worker claims twice more", () => server.of("/worker/v1/claims").length >= claims + 2);
  assert.ok(twice);
  assert.equal(runs, 1);
});

test("goes on at the ordinal that the server names", async () => {
  let once = true;
  server.fault = (r) => {
    if (!r.path.endsWith("/events") || !once) return undefined;
    once = false;
    // The server has stored the first event already, by an upload whose answer is lost.
    server.tasks[0]?.events.push(r.body[0]);
    return answered(409, "ordinal", undefined, { next: 1 });
  };
  const task = server.give("a");
  work(async (run) => {
    await run.text("1");
    await run.text("2");
  });
  await until("the task ends", () => task.ended);
  assert.deepEqual(task.types, ["text", "text", "complete"]);
});

test("releases a run of which the server lacks events", async () => {
  let asked = 0;
  server.fault = (r) =>
    r.path.endsWith("/events") && asked++ > 0 ? answered(409, "ordinal", undefined, { next: 0 }) : undefined;
  const task = server.give("a");
  let reason: unknown;
  work(async (run) => {
    await run.text("1");
    await run.flush();
    await run.text("2");
    await stopped(run);
    reason = run.signal.reason;
  });
  await until("the run is released", () => task.released);
  assert.ok(reason instanceof Stopped && reason.reason === "lost");
  assert.equal(asked, 2);
});

test("stops when the run is over", async () => {
  const task = server.give("a");
  let late: unknown;
  work(async (run) => {
    await run.text("1");
    await run.flush();
    task.over = true;
    run.text("2");
    await stopped(run);
    late = await run.text("3").catch((error) => error);
  });
  await until("the function has ended", () => late !== undefined);
  assert.ok(late instanceof Stopped && late.reason === "over");
  const posts = server.of("/run/v1/events").length;
  await until("the run is forgotten", () => logged.includes("outcome=over"));
  assert.equal(server.of("/run/v1/events").length, posts);
  assert.equal(server.of("/worker/v1/release").length, 0);
  assert.equal(task.texts, "1");
});

test("a refused event reaches the code, which may go on", async () => {
  server.fault = (r) =>
    r.path.endsWith("/events") && r.body.some((e: { text?: string }) => e.text === "bad")
      ? answered(400, "invalid", undefined, {
          field: "text",
          next: server.tasks.find((t) => r.headers.authorization?.endsWith(t.token))?.events.length,
        })
      : undefined;
  let seen: unknown;
  work(async (run) => {
    run.text("bad");
    if (run.message.text === "blind") return;
    try {
      await run.flush();
    } catch (error) {
      seen = error;
      if (run.message.text === "passes on") throw error;
      await run.text("good");
    }
  });
  const tasks = ["catches", "passes on", "blind"].map((word) => server.give(word));
  await until("all tasks end", () => tasks.every((t) => t.ended));
  assert.ok(seen instanceof EventRefused && seen.field === "text" && seen.status === 400);
  assert.deepEqual(
    tasks.map((t) => t.types),
    [["text", "complete"], ["fail"], ["fail"]],
  );
});

test("what is too large is refused by its own call, and a huge end fails the run", async () => {
  const seen: unknown[] = [];
  work(async (run) => {
    const attempts = [() => run.artifact({ parts: [{ raw: new Uint8Array(3000) }] }), () => run.setState("x".repeat(10))];
    for (const attempt of attempts) await (async () => attempt())().catch((error) => seen.push(error));
    throw new Fail("x".repeat(4000));
  });
  const task = server.give("a", { limits: { event: 4000, state: 10 } });
  await until("the task ends", () => task.ended);
  assert.ok(seen[0] instanceof EventRefused && seen[1] instanceof RunApiError);
  assert.match(seen[0].message, /^the event artifact has 40\d\d bytes; the limit is 4000 \(limits.max_event\)$/);
  assert.equal(seen[1].message, "the state has 12 bytes; the limit is 10 (limits.max_state)");
  assert.match(task.events[0].error.message, /^the event fail has 4\d\d\d bytes/);
});

test("tries again after 429 and 503, not before Retry-After", async () => {
  const refused = new Map<string, number>();
  let early = 0;
  server.fault = (r) => {
    const before = refused.get(r.path);
    if (before === undefined) {
      refused.set(r.path, performance.now());
      return answered(r.path.endsWith("/events") ? 429 : 503, "busy", { "Retry-After": "1" });
    }
    if (performance.now() - before < 950) early++;
    return undefined;
  };
  const task = server.give("a");
  work(async (run) => {
    assert.equal((await run.readHistory()).next, "older");
    await run.text("a");
    await until("a heartbeat was refused", () => refused.has("/worker/v1/heartbeat"));
  });
  await until("the task ends", () => task.ended);
  assert.deepEqual([...refused.keys()].sort(), [
    "/run/v1/events",
    "/run/v1/history",
    "/worker/v1/claims",
    "/worker/v1/heartbeat",
  ]);
  assert.equal(early, 0);
});

test("emissions wait when the server is slow", async () => {
  let hold = true;
  server.fault = (r) => (r.path.endsWith("/events") && hold ? answered(503, "busy") : undefined);
  let emitted = 0;
  work(async (run) => {
    for (; emitted < 100; emitted++) await run.text("x".repeat(100_000));
  });
  const task = server.give("a");
  await until("the server was asked three times", () => server.of("/run/v1/events").length >= 3);
  assert.ok(emitted <= 11, `${emitted} events of 100 kB were accepted`);
  hold = false;
  await until("the task ends", () => task.ended);
  assert.equal(task.texts.length, 100 * 100_000);
});

test("a cancel reaches the code with its metadata, and the run is released", async () => {
  const canceled: unknown[] = [];
  const task = server.give("throws");
  const second = server.give("says bye");
  const third = server.give("completes");
  work(async (run) => {
    await stopped(run);
    canceled.push([(run.signal.reason as Stopped).reason, run.canceled?.metadata]);
    if (run.message.text === "throws") throw run.signal.reason;
    await run.text("bye");
    if (run.message.text === "completes") await run.complete("Done already.");
  });
  await until("the runs are known", () => server.of("/worker/v1/heartbeat").some((r) => r.body.runs.length === 3));
  for (const t of server.tasks) server.tell(t, "canceled", { why: "closed" });
  await until("two runs are released", () => task.released && second.released);
  await until("one has completed", () => third.ended);
  assert.deepEqual(canceled, Array(3).fill(["canceled", { why: "closed" }]));
  assert.deepEqual([task.types, second.types, third.types], [[], ["text"], ["text", "complete"]]);
  assert.equal(third.released, false);
});

test("names canceled runs as stopping until they have ended", async () => {
  const task = server.give("a", { lease: 3 });
  work(async (run) => {
    await stopped(run);
    await until("a heartbeat says so", () => server.of("/worker/v1/heartbeat").some((r) => r.body.stopping.includes(task.id)));
  });
  await until("the run is known", () => server.of("/worker/v1/heartbeat").length > 0);
  server.tell(task, "canceled");
  await until("the run is released", () => task.released);
});

for (const stop of ["lost", "over"]) {
  test(`posts nothing after the stop ${stop}`, async () => {
    const task = server.give("a");
    let late: unknown;
    work(async (run) => {
      await run.text("1");
      await run.flush();
      await stopped(run);
      late = await run.text("2").catch((error) => error);
    });
    await until("an event is stored", () => task.events.length === 1);
    await until("the run is known", () => server.of("/worker/v1/heartbeat").length > 0);
    const posts = server.of("/run/v1/events").length;
    server.tell(task, stop);
    await until("the function has ended", () => late !== undefined);
    assert.ok(late instanceof Stopped && late.reason === stop);
    await until("the run is forgotten", () => logged.includes(`outcome=${stop}`));
    assert.equal(server.of("/run/v1/events").length, posts);
    assert.equal(server.of("/worker/v1/release").length, 0);
  });
}

test("heartbeats name a new run soon", async () => {
  work((run) => stopped(run));
  const first = server.give("a");
  await until("the first is named", () => server.of("/worker/v1/heartbeat").some((r) => r.body.runs.includes(first.id)));
  const second = server.give("b");
  // The heartbeat that waits may wait for 10 s; a test with a limit on time would show nothing more on a busy machine.
  await until("both are named", () => server.of("/worker/v1/heartbeat").some((r) => r.body.runs.length === 2));
  assert.ok(server.of("/worker/v1/heartbeat").every((r) => r.body.wait <= 10));
  server.tell(second, "canceled");
  await until("the second is released", () => second.released);
});

test("claims no more than the free slots, of each agent", async () => {
  let peak = 0;
  let now = 0;
  const open: (() => void)[] = [];
  const slow: Handler = async () => {
    peak = Math.max(peak, ++now);
    await new Promise<void>((done) => open.push(done));
    now--;
  };
  const worker = connect([agent("one", slow, { concurrency: 1 }), agent("many", slow, { concurrency: 3 })], {
    url: server.url,
    log,
  });
  workers.push(worker);
  for (let i = 0; i < 3; i++) server.give("x", { agent: "one" });
  for (let i = 0; i < 5; i++) server.give("x", { agent: "many" });
  await until("four run", () => now === 4);
  while (server.tasks.some((t) => !t.ended)) {
    open.shift()?.();
    await until("the slot is used again", () => open.length > 0 || server.tasks.every((t) => t.ended));
  }
  assert.equal(peak, 4);
  for (const r of server.of("/worker/v1/claims")) {
    assert.ok(r.body.agents.some((a: { slots: number }) => a.slots > 0));
    for (const a of r.body.agents) assert.ok(a.slots >= 0 && a.slots <= 3);
  }
});

for (const why of ["unknown agent", "no task", "odd message"]) {
  test(`keeps a run that it cannot do until the drain: ${why}`, async () => {
    const odd = strange(why);
    const worker = work((run) => run.text("a"), { concurrency: 1 });
    await until("a heartbeat names it", () => server.of("/worker/v1/heartbeat").some((r) => r.body.runs.includes(odd.id)));
    const task = server.give("a");
    await until("another task ends", () => task.ended);
    await until("a claim names it", () => server.of("/worker/v1/claims").at(-1)?.body.running.includes(odd.id));
    await worker.drain();
    assert.equal(odd.given, 1);
    assert.ok(odd.released);
  });
}

test("releases a run that it cannot do after a while", async () => {
  const odd = [strange("no task"), strange("odd message"), strange("odd message")];
  const began = performance.now();
  work((run) => run.text("a"), { concurrency: 1 });
  await until("they are released", () => odd.every((t) => t.released));
  assert.ok(performance.now() - began > 9500);
  // While there are more of them than slots, the worker does not claim.
  const kept = server.of("/worker/v1/claims").filter((r) => r.body.running.length > 0);
  assert.deepEqual(kept, []);
  const task = server.give("a");
  await until("another task ends", () => task.ended);
});

test("forgets a run that it cannot do when it is lost", async () => {
  const odd = strange("no task");
  const worker = work((run) => run.text("a"));
  await until("a heartbeat names it", () => server.of("/worker/v1/heartbeat").some((r) => r.body.runs.includes(odd.id)));
  server.tell(odd, "lost");
  do {
    const task = server.give("a");
    await until("another task ends", () => task.ended);
  } while (server.of("/worker/v1/claims").at(-1)?.body.running.includes(odd.id)); // a claim that waits was sent before the stop
  await worker.drain();
  assert.equal(odd.released, false);
});

/** Makes a run that the worker cannot do. The next claim gets it. */
function strange(why: string): Task {
  const task = server.give("a");
  if (why === "unknown agent") task.run.task.agent = "other";
  if (why === "no task") Reflect.deleteProperty(task.run, "task");
  if (why === "odd message") Reflect.set(task.run, "message", "hi");
  server.deliver(task);
  return task;
}

test("errors show no password", () => {
  for (const [url, shown] of [
    ["ann:word@box:8080", "box:8080"],
    ["https://ann:pa/ss@box:8080", "https://box:8080"],
  ]) {
    assert.throws(
      () => work(() => {}, { url }),
      (e) => e instanceof Error && e.message.startsWith(`url: "${shown}" is no address`),
    );
  }
});

test("drain: replica leads to a claim over a new connection, and runs go on", async () => {
  const task = server.give("a");
  let finish = () => {};
  work(async () => {
    await new Promise<void>((done) => {
      finish = done;
    });
  });
  await until("the run begins", () => task.given > 0);
  await until("the worker claims again", () => server.of("/worker/v1/claims").length >= 2);
  const before = new Set(server.of("/worker/v1/claims").map((r) => r.port));
  const claims = server.of("/worker/v1/claims").length;
  server.drain = "replica";
  server.wake();
  await until("the worker claims", () => server.of("/worker/v1/claims").length > claims);
  assert.ok(!before.has(server.of("/worker/v1/claims").at(-1)?.port ?? 0));
  finish();
  await until("the task ends", () => task.ended);
});

test("drain: worker lets runs finish, and claims no more", async () => {
  const task = server.give("a");
  let finish = () => {};
  const worker = work(async () => {
    await new Promise<void>((done) => {
      finish = done;
    });
  });
  await until("the run begins", () => task.given > 0);
  server.drain = "worker";
  server.wake();
  await until("the worker knows", () => logged.includes("retired"));
  const other = server.give("b");
  finish();
  await worker.closed;
  assert.ok(task.ended);
  assert.equal(other.given, 0);
});

test("drain lets runs finish", async () => {
  const task = server.give("a");
  let begun = false;
  const worker = work(
    async () => {
      begun = true;
      await until("the drain has begun", () => logged.includes("the worker drains"));
    },
    { drainTimeout: 3600 },
  );
  await until("the run begins", () => begun);
  await worker.drain();
  assert.deepEqual(task.types, ["complete"]);
});

test("drain releases what has not finished within the time", async () => {
  const endless = server.give("endless");
  const polite = server.give("polite");
  let begun = 0;
  const worker = work(
    async (run) => {
      begun++;
      if (run.message.text === "endless") return await new Promise<void>(() => {});
      await stopped(run);
      await run.checkpoint({ page: 7 });
      throw run.signal.reason;
    },
    { drainTimeout: 0.5 },
  );
  await until("the runs begin", () => begun === 2);
  await worker.drain();
  assert.ok(endless.released && polite.released);
  assert.deepEqual(polite.events, [{ type: "checkpoint", data: { page: 7 } }]);
});

test("stop releases at once", async () => {
  const task = server.give("a");
  const worker = work(() => new Promise<void>(() => {}), { drainTimeout: 3600 });
  await until("the run begins", () => task.given > 0);
  void worker.drain();
  await worker.stop();
  assert.ok(task.released);
});

test("a drain returns runs whose answer was cut", async () => {
  server.fault = (r) => (r.path.endsWith("/claims") && r.body.wait > 0 && server.tasks[0]?.given ? "hang" : undefined);
  let began = 0;
  const worker = work(() => {
    began++;
  });
  await until("the worker claims", () => server.of("/worker/v1/claims").length > 0);
  // The server gives the run to a worker that does not read the answer any more.
  server.fault = (r) => (r.path.endsWith("/claims") && r.body.wait > 0 ? "cutAnswer" : undefined);
  server.drain = "replica";
  server.wake();
  await until("the worker claims again", () => server.of("/worker/v1/claims").length > 1);
  const task = server.give("a");
  await until("the run is given", () => task.given > 0);
  server.fault = (r) => (r.path.endsWith("/claims") && r.body.wait > 0 ? "hang" : undefined);
  await until(
    "the next claim waits",
    () => (server.of("/worker/v1/claims").at(-1)?.body.running.length ?? 1) === 0 && server.of("/worker/v1/claims").length > 2,
  );
  await worker.drain();
  assert.ok(task.released);
  assert.equal(began, 0);
});

test("reads the credential for each request", async () => {
  const file = join(tmpdir(), `holdfast-credential-${process.pid}-${Date.now()}`);
  await writeFile(file, "first\n");
  try {
    server.fault = (r) =>
      r.path.startsWith("/worker/") && r.headers.authorization !== "Bearer second"
        ? answered(401, "unauthenticated")
        : undefined;
    work(() => {}, { tokenFile: file });
    const task = server.give("a");
    await until("the first credential is refused", () =>
      server.requests.some((r) => r.headers.authorization === "Bearer first"),
    );
    await writeFile(file, "second\n");
    await until("the task ends", () => task.ended);
    assert.match(logged, /status=401 reason=unauthenticated/);
  } finally {
    await rm(file);
  }
});

test("another version of the protocol ends the worker with an error", async () => {
  server.fault = () => answered(404, "version", undefined, { versions: ["2", "3"] });
  const worker = work(() => {});
  await assert.rejects(worker.closed, /other versions of the worker API than 1: 2, 3/);
});

test("reads and writes by the run API", async () => {
  let failed: unknown;
  const task = server.give("a", { state: { context: { data: { n: 1 }, version: 3 } } });
  task.state.context = { data: { n: 2 }, version: 4 };
  work(async (run) => {
    try {
      assert.deepEqual(run.state("context"), { data: { n: 1 }, version: 3 });
      assert.deepEqual(run.state(), { data: null, version: 0 });
      assert.deepEqual(await run.getState(), { data: null, version: 0 });
      await assert.rejects(run.setState({ n: 9 }, { scope: "context", version: 3 }), StateChanged);
      assert.deepEqual(await run.getState("context"), { data: { n: 2 }, version: 4 });
      assert.equal(await run.setState({ n: 2n ** 60n }, { scope: "context", version: 4 }), 5);
      assert.deepEqual(run.state("context"), { data: { n: 2n ** 60n }, version: 5 });
      assert.equal(await run.setState(1, { version: 0 }), 1);
      const page = await run.readHistory({ scope: "context", count: 5, bytes: 100, progress: true, before: "x" });
      assert.equal(page.history[0]?.text, "scope=context&count=5&bytes=100&progress=true&before=x");
      const ids = [];
      for await (const a of run.readArtifacts()) ids.push(a.artifactId);
      assert.deepEqual(ids, ["a", "b"]);
      assert.deepEqual(await run.readArtifact("a/b c"), { artifactId: "a/b c", parts: [{ text: "a" }] });
      assert.equal(await run.readArtifact("none"), undefined);
      for await (const t of run.readTasks()) assert.equal(t.id, "t-1");
      assert.equal((await run.readTask("t-1"))?.history[0]?.text, "said");
      assert.equal((await run.read()).task.id, run.taskId);
    } catch (error) {
      failed = error;
    }
  });
  await until("the task ends", () => task.ended);
  assert.equal(failed, undefined);
});

test("a write whose answer was lost is no conflict", async () => {
  let cuts = 1;
  server.fault = (r) => (r.method === "PUT" && cuts-- > 0 ? "cutAnswer" : undefined);
  const task = server.give("a");
  let version: unknown;
  work(async (run) => {
    version = await run.setState({ n: 1 }, { version: 0 }).catch((error) => error);
  });
  await until("the task ends", () => task.ended);
  assert.equal(version, 1);
});

test("uses the next replica when one does not answer", async () => {
  const gone = await ScriptedServer.start();
  const { url } = gone;
  await gone.stop();
  work((run) => run.text("a"), { url: [url, server.url] });
  const tasks = [server.give("a"), server.give("b")];
  await until("all tasks end", () => tasks.every((t) => t.ended));
});
