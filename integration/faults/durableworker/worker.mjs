// The programs of main.go in TypeScript. EFFECTS is the file to which each step appends a line when it has its effect.
import { appendFileSync } from "node:fs";
import { agent, durable, StepFailed, serve } from "holdfast-agent";

/** Calls a function in a step, after its line. */
function step(run, name, f, options) {
  return run.step(
    name,
    async (signal) => {
      const at = run.idempotencyKey.split("/").slice(-2).join("#");
      appendFileSync(process.env.EFFECTS, `${run.taskId} ${run.base.attempt} ${at}\n`); // at once
      return f(signal);
    },
    options,
  );
}

const said = (result) => result.text || `${result.state} ${result.error}`;

const programs = {
  async refund(run) {
    const order = await step(run, "look up", async () => {
      await run.text("Looking ");
      await run.text("it up. ");
      return "order";
    });
    const answer = await run.ask("Refund?", { name: "approve" });
    await run.text(`${answer.text}. `);
    let tries = 0;
    const pay = () => {
      tries++;
      if (tries === 1) throw new Error("busy");
      return "receipt";
    };
    const receipt = await step(run, "refund", pay, { retries: 5, backoff: 0.001 });
    await run.sleep({ seconds: 0.1 });
    const [feedback, survey] = await run.call(["below-0", "loop 3"], ["below-1", "loop 4"]);
    return `${order} ${receipt} ${said(feedback)} ${said(survey)}`;
  },
  async loop(run, n) {
    let sum = 0;
    for (let i = 1; i <= n; i++) sum += await step(run, "add", () => i);
    return `${sum}`;
  },
  async nest(run, n) {
    if (n === 0) return "0";
    const below = await run.call([`below-${n - 1}`, `nest ${n - 1}`]);
    return await step(run, "above", () => said(below) + n);
  },
  async asks(run) {
    const ask = async (name) => {
      const answer = await run.ask(`${name}?`, { name });
      return await step(run, `hear ${name}`, () => name + answer.text);
    };
    const heard = await run.gather(ask("a"), ask("b"), ask("c"));
    const last = await run.ask("Sure?", { name: "a" });
    return `${heard.join(" ")} ${last.text}`;
  },
  async streams(run, n) {
    const stream = (name) =>
      step(run, name, async () => {
        for (let i = 0; i < n; i++) await run.text(`${name}${i} `);
        return null;
      });
    await stream("first");
    await run.text("between ");
    await run.gather(stream("left"), stream("right"));
    await stream("last");
    return "streamed";
  },
  async undo(run) {
    try {
      await step(run, "pay", () => {
        throw new Error("no money");
      });
    } catch (e) {
      if (!(e instanceof StepFailed)) throw e;
      return (await step(run, "undo", () => "undone after ")) + e.message;
    }
    throw new Error("paid");
  },
  async sleep(run, n) {
    for (let i = 0; i < n; i++) {
      await run.sleep({ seconds: 0.05 });
      await step(run, "wake", () => i);
    }
    return "awake";
  },
  async large(run, n) {
    let size = 0;
    for (let i = 0; i < n; i++) size += (await step(run, "read", () => "x".repeat(250_000))).length;
    return `${size}`;
  },
};

const program = durable(async (run) => {
  const [name, n] = run.message.text.split(" ");
  await run.text(await programs[name](run, Number(n ?? 0)), { name: "end" });
});

serve(["programs", "below-0", "below-1", "below-2"].map((name) => agent(name, program, { concurrency: 20 })));
