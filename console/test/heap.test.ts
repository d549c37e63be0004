// A console that is left open keeps no more in memory than one that was just opened: an hour of changes in a minute or two.
// make console-heap runs it; it is not among the tests of make console-test.
import type { CDPSession, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Harness, start } from "./harness";

const MiB = 1 << 20;
/** rounds of changes: the list and the log have their most rows after about half of them. */
const rounds = 10;
const tasksOfRound = 1_200;

describe("a console that is left open", () => {
  let h: Harness;
  let stop = false;
  beforeAll(async () => {
    h = await start({
      config: "agents:\n  - {name: demo, default: true, executor: {kind: demo}, limits: {concurrency: 200}}\n",
    });
  });
  afterAll(async () => {
    stop = true;
    await h.close();
  });

  test("has a flat heap", async () => {
    const grows = await h.send("steps=1000000 delay=2ms", { now: true });
    const pages = {
      list: await heapOf(await h.open("/tasks")),
      looked: await heapOf(await h.open("/tasks")),
      task: await heapOf(await h.open(`/tasks/${grows.id}`)),
      system: await heapOf(await h.open("/system")),
    };
    for (const name of ["list", "looked"] as const) await pages[name].page.getByRole("row").nth(1).waitFor();
    // The pointer on a list holds its rows: the new ones are gathered.
    await pages.looked.page.getByRole("row").nth(1).hover();

    const seen: Record<string, number[]> = { list: [], looked: [], task: [], system: [] };
    for (let round = 0; round < rounds && !stop; round++) {
      let left = tasksOfRound;
      await Promise.all(
        Array.from({ length: 32 }, async () => {
          while (left-- > 0) await h.send("echo:hello");
        }),
      );
      for (const [name, one] of Object.entries(pages)) seen[name]?.push(await one.used());
      const log = (await h.api(`/tasks/${grows.id}`)) as { last_seq: number };
      console.log(
        `${(round + 1) * tasksOfRound} tasks, ${log.last_seq} events, MiB:`,
        Object.entries(seen)
          .map(([name, used]) => `${name} ${((used.at(-1) ?? 0) / MiB).toFixed(1)}`)
          .join(", "),
      );
    }
    for (const [name, used] of Object.entries(seen)) {
      // The lowest of several samples: one may come in the middle of a page that is read.
      const middle = Math.min(...used.slice(rounds - 6, rounds - 3));
      const end = Math.min(...used.slice(rounds - 3));
      expect.soft(end - middle, `the heap of ${name} grows, in bytes`).toBeLessThan(1.5 * MiB);
    }
  }, 900_000);
});

async function heapOf(page: Page): Promise<{ page: Page; used: () => Promise<number> }> {
  const session: CDPSession = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.enable");
  return {
    page,
    used: async () => {
      await session.send("HeapProfiler.collectGarbage");
      return (await session.send("Runtime.getHeapUsage")).usedSize;
    },
  };
}
