// The agent under test of sdk/conformance: its README says what it must do.
import { setTimeout as sleep } from "node:timers/promises";
import { agent, Reject, Retry, serve, stringify } from "holdfast-agent";

const piece = (i, size) => String(i).padStart(8, "0").padEnd(size, ".");

/** Says on stdout when the run is stopped, and why. */
function tell(run) {
  const why = run.canceled?.metadata.why ?? "";
  console.log(`stopped ${run.taskId} ${run.canceled ? "canceled" : "stopped"} ${why}`.trimEnd());
}

async function sleepOn(run) {
  console.log(`begun ${run.taskId}`);
  await new Promise((done) => run.signal.addEventListener("abort", done));
}

const commands = {
  hello: (run) => run.text("Hello, world!"),
  echo: (run, rest) => run.text(rest),
  who: (run) => run.text(run.taskId),
  async stream(run, rest) {
    const [count, size] = rest.split(" ").map(Number);
    for (let i = 0; i < count; i++) await run.text(piece(i, size));
  },
  async slow(run, rest) {
    const [count, ms] = rest.split(" ").map(Number);
    for (let i = 0; i < count; i++) {
      await run.text(piece(i, 8));
      await sleep(ms, undefined, { signal: run.signal });
    }
  },
  progress: (run) => run.status("Half way."),
  data: (run) => run.artifact({ parts: [{ data: run.message.data }] }),
  file: (run) => run.artifact({ parts: [{ raw: Buffer.from("Hello"), filename: "f.txt", mediaType: "text/plain" }] }),
  history: (run) => run.text(run.history.map((said) => `${said.role} ${said.text}`).join("\n")),
  reads: async (run) => run.text(`${(await run.readHistory({ scope: "context" })).history.length} entries`),
  async state(run) {
    const { data, version } = await run.getState();
    const n = (data?.n ?? 0) + 1;
    await run.setState({ n }, { version });
    await run.text(`n=${n}`);
  },
  async checkpoint(run) {
    if (run.lastCheckpoint) return run.text(`at ${run.lastCheckpoint.n}`);
    await run.checkpoint({ n: 1 });
    await run.text("begun");
  },
  ask: (run) => run.ask("Name?"),
  auth: (run) => run.auth("Sign in.", { resume: { for: 60 } }),
  link: (run) => run.text(run.resumeUrl),
  wait: (run, rest) => run.wait({ for: Number(rest) }),
  call: (run, rest) => run.call({ id: "c", agent: rest, message: "hi" }),
  complete: (run) => run.complete("Bye."),
  fail: (run) => run.fail("Out of paper."),
  crash: () => {
    throw new Error("secret 42");
  },
  retry: (_, rest) => {
    throw new Retry("busy", { after: Number(rest) });
  },
  reject: () => {
    throw new Reject("Not me.");
  },
  reply: (run) => run.reply("Hi."),
  async sleep(run) {
    await sleepOn(run);
    throw run.signal.reason;
  },
  async goodbye(run) {
    await sleepOn(run);
    await run.text("bye");
    throw run.signal.reason;
  },
};

function answer(run) {
  run.signal.addEventListener("abort", () => tell(run));
  switch (run.input?.source) {
    case "timer":
      if (!run.input.interrupted) return run.text("timer");
      break;
    case "calls":
      return run.text(run.results.map((r) => `${r.id} ${r.state} ${r.text}`).join("\n"));
    case "resume":
      return run.text(`resume ${run.input.text ?? stringify(run.input.data)}`);
  }
  const [command, ...rest] = run.message.text.split(" ");
  return commands[command](run, rest.join(" "));
}

serve(agent(answer), {
  concurrency: Number(process.env.CONFORMANCE_SLOTS ?? 10),
  version: process.env.CONFORMANCE_VERSION,
  name: process.env.CONFORMANCE_NAME,
  drainTimeout: process.env.CONFORMANCE_DRAIN ? Number(process.env.CONFORMANCE_DRAIN) : undefined,
});
