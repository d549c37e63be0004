import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Agent,
  agent,
  CodeChanged,
  type DurableRun,
  durable,
  Fail,
  type Message,
  type RecordDocument,
  Retry,
  type Returned,
  StepFailed,
  Stopped,
  stringify,
} from "holdfast-agent";
import { replay, TestTask } from "holdfast-agent/testing";

const quiet = { debug() {}, info() {}, warn() {}, error() {} };
const make = (f: (run: DurableRun) => Promise<Returned>) => agent("test", durable(f));
const types = (events: { type: string; kind?: unknown; name?: unknown }[]) =>
  events.map((e) => (e.type === "record" ? `${e.kind} ${e.name}` : e.type));
const names = (records: RecordDocument[]) => records.map((r) => `${r.kind} ${r.name} ${r.nth}`);

// The refund of the guide, with what its steps have done.
function refund(): { agent: Agent; did: string[]; keys: string[] } {
  const did: string[] = [];
  const keys: string[] = [];
  const approval = {
    parse(value: unknown) {
      const { approved } = value as { approved?: boolean };
      if (typeof approved !== "boolean") throw new Error("approved is not a boolean");
      return { approved };
    },
  };
  const program = make(async (run) => {
    await run.text("Looking. ");
    const order = await run.step("look up", () => {
      did.push("look up");
      return { id: run.message.text, total: 5, at: new Date(0) };
    });
    assert.equal(order.at as unknown, "1970-01-01T00:00:00.000Z", "as JSON, at first, too");
    await run.text(`Order ${order.id}. `);
    const { approved } = await run.ask(`Refund ${order.total}?`, { schema: approval });
    if (!approved) return "Nothing was refunded.";
    await run.status("Paying.");
    let tries = 0;
    const receipt = await run.step(
      "refund",
      async () => {
        keys.push(run.idempotencyKey);
        await run.text("Paying... ");
        if (++tries < 3) throw new Error("busy");
        did.push("refund");
        return { id: "r-7" };
      },
      { retries: 5, backoff: 0 },
    );
    await run.sleep({ days: 3 });
    const [feedback, survey] = await run.call(["feedback", order.id], { agent: "survey", message: order.id });
    return `Refunded ${receipt.id}. ${feedback?.text} ${survey?.text}`;
  });
  return { agent: program, did, keys };
}

async function conversation(task: TestTask): Promise<string> {
  const asked = await task.say("o-1");
  assert.equal(asked.question, "Refund 5?");
  const paid = await task.say([{ data: { approved: true } }]);
  assert.match(paid.wait?.until ?? "", /^2/);
  const called = await task.wake();
  assert.deepEqual(
    called.calls.map((c) => [c.id, c.message]),
    [
      ["feedback#1", "o-1"],
      ["survey#1", "o-1"],
    ],
  );
  const end = await task.deliver({ text: "Good." }, { text: "5 of 5" });
  assert.equal(end.state, "completed");
  return task.turns.map((t) => t.artifacts.map((a) => `${a.artifactId}: ${a.parts[0]?.text}`).join()).join("\n");
}

const whole = "text-1: Looking. Order o-1. \ntext-2: Paying... Paying... Paying... \n\ntext-4: Refunded r-7. Good. 5 of 5";

test("a refund goes over its turns", async () => {
  const { agent, did, keys } = refund();
  const task = new TestTask(agent);
  assert.equal(await conversation(task), whole);
  assert.deepEqual(did, ["look up", "refund"]);
  assert.deepEqual([...new Set(keys)], [`${task.id}/refund/1`]);
  assert.deepEqual(
    task.turns.map((t) => types(t.events)),
    [
      ["record message", "text", "record look up", "text", "record wait", "ask"],
      ["record ask", "status", "text", "text", "text", "record refund", "record wait", "wait"],
      ["record sleep", "record wait", "call"],
      ["record feedback", "record survey", "text", "complete"],
    ].map((of) =>
      of.map((e) =>
        e
          .replace(/^record (message|ask|sleep|wait)$/, "$1 $1")
          .replace(/^record (feedback|survey)/, "call $1")
          .replace("record ", "step "),
      ),
    ),
  );
  assert.deepEqual(names(task.records).slice(0, 4), ["message message 1", "step look up 1", "wait wait 1", "ask ask 1"]);
  const paid = task.records.find((r) => r.name === "refund");
  assert.deepEqual([paid?.data, paid?.tries, paid?.emitted], [{ id: "r-7" }, 3, { "text-1": 2, status: 1 }]);
  await replay(agent, task.records);
  await replay(agent, task.records.slice(0, 5));
  const log = task.records.map((r) => stringify({ kind: "run", payload: { outcome: "record", checkpoint: r } }));
  await replay(agent, ['{"seq":1,"kind":"status"}', ...log, ""].join("\n"));
});

test("a refund survives a crash after each event", async () => {
  const events = 24;
  let crashes = 0;
  for (let n = 1; n <= events; n++) {
    const { agent, did } = refund();
    const task = new TestTask(agent, { crashAfter: n });
    assert.equal(await conversation(task), whole, `after event ${n}`);
    const tries = task.turns.reduce((sum, t) => sum + t.tries, 0);
    crashes += tries - 4;
    assert.equal(did.filter((d) => d === "look up").length, 1, `after event ${n}`);
    assert.ok(did.filter((d) => d === "refund").length <= 2, "its record may be lost");
    assert.equal(new Set(names(task.records)).size, task.records.length, `each record once, after event ${n}`);
  }
  assert.ok(crashes >= 15, `${crashes} crashes`);
});

test("questions that wait together are one form", async () => {
  const task = new TestTask(
    make(async (run) => {
      const [seat, bags, name] = await run.gather(
        run.ask("Which seat?", { name: "seat", schema: { enum: ["window", "aisle"] } }),
        run.ask("How many bags?", { name: "bags", schema: { type: "integer" } }),
        run.ask("Your name?", { name: "name" }),
      );
      return `${seat} ${bags} ${name.text}`;
    }),
  );
  const asked = await task.say("go");
  assert.equal(asked.question, "Which seat?\nHow many bags?\nYour name?\n");
  const form = {
    type: "object",
    required: ["seat", "bags", "name"],
    properties: {
      seat: { title: "Which seat?", enum: ["window", "aisle"] },
      bags: { title: "How many bags?", type: "integer" },
      name: { title: "Your name?", type: "string" },
    },
  };
  assert.deepEqual(asked.message?.parts.at(-1)?.data, { requestedSchema: form });
  const again = await task.say([{ data: { seat: "roof", bags: 2, name: "Ada" } }]);
  assert.equal(again.question, "Please answer again: the answer is not window or aisle\nWhich seat?\n");
  assert.equal((await task.say("aisle")).text, "aisle 2 Ada");
  const lines = new TestTask(task.agent);
  await lines.say("go");
  assert.equal((await lines.say("window\n3\nEve")).text, "window 3 Eve");
  const single = new TestTask(task.agent);
  await single.say("go");
  assert.match((await single.say("window")).question, /How many bags\?/, "another text answers the first question");
  assert.equal((await single.say("1\nMia")).text, "window 1 Mia");
});

test("an answer is a message, or what the schema accepts", async () => {
  const answers: unknown[] = [];
  const task = new TestTask(
    make(async (run) => {
      const plain: Message = await run.ask("Where to?");
      answers.push(plain.text);
      answers.push(await run.ask("Really?", { schema: { type: "object", properties: { approved: { type: "boolean" } } } }));
      answers.push((await run.auth("Please sign in.", { resume: { for: 60 } })).data);
    }),
  );
  await task.say("go");
  const asked = await task.say("Oslo");
  assert.equal(asked.message?.parts.length, 2);
  const auth = await task.say("yes");
  assert.deepEqual([auth.state, auth.question, auth.resumable], ["auth-required", "Please sign in.", true]);
  await task.resume({ data: { code: 1 } });
  assert.deepEqual(answers.slice(-3), ["Oslo", { approved: true }, { code: 1 }]);
});

test("parallel steps stream into artifacts of their own", async () => {
  for (const crashAfter of [undefined, 3, 4, 5, 6, 7, 8]) {
    let let1: () => void = () => {};
    const task = new TestTask(
      make(async (run) => {
        await run.text("Begin. ");
        const first = new Promise<void>((done) => {
          let1 = done;
        });
        await Promise.all([
          run.step("one", async () => {
            await run.text("1a ");
            await first;
            await run.text("1b ");
          }),
          run
            .step("two", async () => {
              await run.text("2a ");
              await run.text("2b ");
            })
            .then(() => let1()),
        ]);
        await run.text("End.");
      }),
      { crashAfter },
    );
    const turn = await task.say("go");
    const texts = Object.fromEntries(turn.artifacts.map((a) => [a.artifactId, a.parts[0]?.text]));
    assert.deepEqual(texts, { "text-1": "Begin. 1a 1b End.", "text-1-two-1": "2a 2b " }, `after ${crashAfter}`);
    const two = task.records.find((r) => r.name === "two");
    assert.deepEqual(two?.open, ["text-1"]);
    assert.equal(two?.emitted, undefined, "the first step has not ended");
    assert.deepEqual(task.records.at(-1)?.emitted, { "text-1": 1 });
  }
});

test("a replay throws what was thrown", async () => {
  let tried = 0;
  const seen: string[] = [];
  class Declined extends Error {
    override name = "Declined";
  }
  const task = new TestTask(
    make(async (run) => {
      try {
        await run.step(
          "pay",
          () => {
            tried++;
            throw new Declined("no cover");
          },
          { retries: 3, final: [Declined] },
        );
      } catch (error) {
        assert.ok(error instanceof StepFailed);
        seen.push(`${error.type}: ${error.message} ${/durable\.test/.test(error.stack ?? "")}`);
      }
      const unsaid = await run.step("log", () => {}).catch(() => "never");
      assert.equal(unsaid, null);
      await assert.rejects(
        run.step("large", () => "x".repeat(300_000)),
        /limits\.max_state/,
      );
      await assert.rejects(
        run.step("none", () => Number.NaN),
        { type: "TypeError" },
      );
      await run.ask("Another card?");
      await run.step("again", () => {
        throw new Fail("No card works.");
      });
    }),
    { log: quiet },
  );
  await task.say("go");
  const end = await task.say("no");
  assert.deepEqual([end.state, end.message?.parts[0]?.text], ["failed", "No card works."]);
  assert.equal(tried, 1);
  assert.deepEqual(seen, Array(2).fill("Declined: no cover true"));
  await replay(task.agent, task.records);
});

test("a step is tried again, in process, by a wait or by a retry of the run", async () => {
  let tries = 0;
  const late = new TestTask(
    make(async (run) => {
      await run.step(
        "slow",
        async (signal) => {
          tries++;
          if (tries === 1) throw new Error("busy");
          await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        },
        { retries: 1, backoff: 50, timeout: 0.001 },
      );
    }),
    { log: quiet },
  );
  const waits = await late.say("go");
  assert.ok(waits.wait?.until);
  assert.deepEqual(types(waits.events), ["message message", "wait wait", "wait"]);
  const woken = await late.wake();
  assert.deepEqual([tries, woken.state, late.records.at(-1)?.error?.type], [2, "failed", "TimeoutError"]);
  let runs = 0;
  const again = new TestTask(
    make(async (run) => {
      await run.step("busy", () => {
        if (++runs < 3) throw new Retry("busy", { after: 60 });
      });
      return "done";
    }),
    { log: quiet },
  );
  const turn = await again.say("go");
  assert.deepEqual([turn.tries, turn.text], [3, "done"]);
});

test("code that changed fails the task with both names", async () => {
  let after = false;
  const lines: string[] = [];
  const task = new TestTask(
    make(async (run) => {
      await run.step(after ? "charge" : "pay", () => 1);
      await run.ask("Go on?");
    }),
    { log: { ...quiet, error: (_: string, f?: object) => lines.push(JSON.stringify(f)) } },
  );
  await task.say("go");
  after = true;
  await assert.rejects(replay(task.agent, task.records), (error: Error) => {
    assert.ok(error instanceof CodeChanged);
    assert.match(error.message, /it recorded step "pay", and now asks for step "charge" at durable\.test\.js:\d+$/);
    return true;
  });
  assert.equal((await task.say("yes")).state, "failed");
  assert.match(lines.join(), /pay.*charge/);
  const kind = make(async (run) => void (await run.ask("Pay?", { name: "pay" })));
  await assert.rejects(replay(kind, task.records), /it recorded step "pay", and now asks for ask "pay"/);
  const ends = make(async () => "early");
  await assert.rejects(replay(ends, task.records), /it recorded step "pay", and now returns without it/);
});

test("a version guards new code", async () => {
  let changed = false;
  const program = make(async (run) => {
    await run.step("old", () => 1);
    if (changed && run.version("check")) await run.step("check", () => 1);
    await run.ask("Go on?");
    return changed && run.version("check") ? "checked" : "unchecked";
  });
  const open = new TestTask(program);
  await open.say("go");
  changed = true;
  assert.equal((await open.say("yes")).text, "unchecked");
  const fresh = new TestTask(program);
  await fresh.say("go");
  assert.equal((await fresh.say("yes")).text, "checked");
});

test("values are the same in each run", async () => {
  const seen: unknown[][] = [];
  const task = new TestTask(
    make(async (run) => {
      const values = [run.now().getTime(), run.random(), run.uuid(), run.uuid()];
      assert.notEqual(values[2], values[3]);
      await run.setState({ n: 1 });
      values.push((await run.getState()).version);
      seen.push(values);
      await run.ask("Go on?");
    }),
  );
  await task.say("go");
  await task.say("yes");
  assert.equal(seen.length, 2);
  assert.deepEqual(seen[0], seen[1]);
});

test("a cancel runs compensations", async () => {
  const did: string[] = [];
  const task = new TestTask(
    make(async (run) => {
      await run.step("book", () => did.push("book"));
      try {
        await run.step(
          "pay",
          (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
        );
      } catch (error) {
        assert.ok(error instanceof Stopped);
        await run.step("unbook", () => did.push("unbook"));
        await assert.rejects(run.ask("Why?"), Stopped);
        throw error;
      } finally {
        did.push("finally");
      }
    }),
  );
  const turn = task.say("go");
  await turn.event("record"); // the message
  while (!task.records.some((r) => r.name === "book")) await new Promise(setImmediate);
  task.cancel();
  assert.equal((await turn).state, "canceled");
  assert.deepEqual(did, ["book", "unbook", "finally"]);
});

test("a shield finishes a step, and a drain as well", async () => {
  let release: () => void = () => {};
  const shielded = (shield: boolean) => {
    const begun: string[] = [];
    const task = new TestTask(
      make(async (run) => {
        const pay = () =>
          run.step("pay", async () => {
            begun.push("pay");
            await new Promise<void>((done) => {
              release = done;
            });
            return 7;
          });
        const paid = await (shield ? run.shield(pay) : pay());
        begun.push(`paid ${paid}`);
        await run.step("next", () => begun.push("next"));
      }),
    );
    return { task, begun };
  };
  const canceled = shielded(true);
  const turn = canceled.task.say("go");
  while (canceled.begun.length === 0) await new Promise(setImmediate);
  canceled.task.cancel();
  release();
  assert.equal((await turn).state, "canceled");
  assert.deepEqual(canceled.begun, ["pay", "paid 7"]);

  const drained = shielded(false);
  const second = drained.task.say("go");
  while (drained.begun.length === 0) await new Promise(setImmediate);
  drained.task.drain();
  release();
  assert.deepEqual([(await second).tries, second && (await second).state], [2, "completed"]);
  assert.deepEqual(drained.begun, ["pay", "paid 7", "next"]);
});

test("emissions are not doubled", async () => {
  const task = new TestTask(
    make(async (run) => {
      await run.text("a ");
      await run.text("b ", { name: "other" });
      await run.artifact({ parts: [{ text: "first" }] });
      await run.status("Working.");
      const answer = await run.ask("1?");
      await run.text(answer.text);
      await run.artifact({ parts: [{ text: "second" }] });
      await run.status("Still working.");
      await run.step("s", async () => void (await run.artifact({ parts: [{ text: "of the step" }] })));
      await run.ask("2?");
      await run.text("c");
    }),
  );
  const turns = [await task.say("go"), await task.say("x"), await task.say("y")];
  assert.deepEqual(
    turns.map((t) => t.artifacts.map((a) => `${a.artifactId} ${a.parts[0]?.text}`)),
    [
      ["text-1 a ", "other-1 b ", "artifact-1-1 first"],
      ["text-2 x", "artifact-2-1 second", "artifact-2-s-1-1 of the step"],
      ["text-3 c"],
    ],
  );
  assert.deepEqual(
    turns.map((t) => t.events.filter((e) => e.type === "status").length),
    [1, 1, 0],
  );
});

test("a question goes before a time, and both branches go on, whenever the process dies", async () => {
  for (let crashAfter = 0; crashAfter <= 20; crashAfter++) {
    const task = new TestTask(
      make(async (run) => {
        const reminded = (async () => {
          await run.text("Later. ", { name: "reminder" });
          await run.sleep({ hours: 1 });
          const texts = ["Soon. ", "Now. "];
          for (const text of texts) await run.text(await run.step("remind", () => text), { name: "reminder" });
          await run.sleep({ until: "2030-01-01T00:00:00Z" });
          return "slept";
        })();
        const [name, count] = await run.gather(
          run.ask("Name?", { name: "name" }),
          run.ask("How many?", { name: "count", schema: { type: "integer" } }),
        );
        await run.text(`${count} `);
        await run.gather(
          run.step("one", () => 1),
          run.step("two", () => 2),
        );
        return `${name.text} ${await reminded}`;
      }),
      { crashAfter },
    );
    assert.equal((await task.say("go")).question, "Name?\nHow many?\n");
    const answered = await task.say([{ data: { name: "Ada", count: 2 } }]);
    assert.match(answered.wait?.until ?? "", /^20[^3]/);
    assert.equal((await task.wake()).wait?.until, "2030-01-01T00:00:00.000Z");
    await task.wake();
    assert.deepEqual(
      task.turns.map((t) => t.artifacts.map((a) => `${a.artifactId} ${a.parts[0]?.text}`)),
      [["reminder-1 Later. "], ["text-2 2 "], ["reminder-3 Soon. Now. "], ["text-4 Ada slept"]],
      `after event ${crashAfter}`,
    );
    assert.equal(new Set(names(task.records)).size, task.records.length);
    await replay(task.agent, task.records);
  }
});

test("a loop of 1,000 steps", async () => {
  let ran = 0;
  const task = new TestTask(
    make(async (run) => {
      let sum = 0;
      for (let i = 0; i < 1000; i++) sum += await run.step("add", () => ++ran && i);
      await run.ask("Go on?");
      return String(sum);
    }),
  );
  await task.say("go");
  assert.equal((await task.say("yes")).text, "499500");
  assert.equal(ran, 1000);
});

test("code that goes on after the end of its run is warned of", async () => {
  const warned: string[] = [];
  let go: () => void = () => {};
  const task = new TestTask(
    make(async (run) => {
      const foreign = new Promise<void>((done) => {
        go = done;
      }).then(() => run.text("late"));
      await run.gather(run.ask("Go on?"), foreign);
    }),
    { log: { ...quiet, warn: (m: string) => warned.push(m) } },
  );
  assert.equal((await task.say("go")).question, "Go on?");
  go();
  await new Promise(setImmediate);
  assert.match(warned.join(), /put what takes time into a step/);
});
