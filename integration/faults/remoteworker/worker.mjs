// What main.go does, in TypeScript's SDK.
import { setTimeout as sleep } from "node:timers/promises";
import { agent, serve } from "holdfast-agent";

const far = agent(
  async (run) => {
    const asked = /^chunks=(\d+) size=(\d+) delay=(\d+)ms/.exec(run.message.text);
    if (!asked) {
      // "hold"
      await new Promise((_, stop) => run.signal.addEventListener("abort", () => stop(run.signal.reason)));
    }
    const [count, size, delay] = asked.slice(1).map(Number);
    for (let n = run.earlier.reduce((sum, a) => sum + a.chunks, 0); n < count; n++) {
      const text = `${String(n).padStart(8, "0")} `.padEnd(size, ".");
      await run.text(text, { artifactId: "chunks", append: n > 0, last: n === count - 1 });
      await sleep(delay, undefined, { signal: run.signal });
    }
  },
  { concurrency: 20 },
);

serve(far, { drainTimeout: 2 });
