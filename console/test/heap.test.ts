// A console that is left open keeps no more in memory than one that has been open for a minute. An agent that writes 200 events a
// second and clients that send as many tasks as the machine takes make some minutes of a day or more.
// make console-heap runs it; it is not among the tests of make console-test.
import type { CDPSession, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sizes } from "../src/lib/taskList";
import { mostStory } from "../src/task/feed";
import { blockSize, mostBlocks } from "../src/task/log";
import { type Harness, start } from "./harness";

const MiB = 1 << 20;
/** Pages hold their most when so many events and tasks have come. */
const full = {
  events: Math.max(mostBlocks * blockSize, 2 * mostStory) + 500,
  tasks: Math.max(sizes.kept * sizes.page, sizes.gathered) + 500,
};
/** After that, so many more come between the two times that are compared. */
const more = { events: 30_000, tasks: 10_000 };
/**
 * Growth of less is noise. A conversation has 200 to 400 messages with their elements, which are about 3 MiB more or less, and a log
 * that is followed has 5,000 to 10,000 rows; 30,000 events that leave 150 bytes each are more.
 */
const allowed = (name: string) => ({ task: 4, log: 2 })[name] ?? 1;
const samples = 4;

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
    const grows = await h.send("steps=1000000 delay=5ms", { now: true });
    const paths = {
      list: "/tasks",
      looked: "/tasks",
      task: `/tasks/${grows.id}`,
      log: `/tasks/${grows.id}?tab=log`,
      system: "/system",
    };
    const pages: Record<string, Awaited<ReturnType<typeof heapOf>>> = {};
    for (const [name, path] of Object.entries(paths)) pages[name] = await heapOf(await h.open(path, { keep: true }));
    for (const name of ["list", "looked"]) await pages[name]?.page.getByRole("row").nth(1).waitFor();
    // The pointer on a list holds its rows: the new ones are gathered.
    await pages.looked?.page.getByRole("row").nth(1).hover();

    let tasks = 0;
    const senders = Promise.all(
      Array.from({ length: 4 }, async () => {
        for (; !stop; tasks++) await h.send("echo:hello");
      }),
    );
    const shown = async () => {
      const text = (await pages.log?.page.locator(".log-count").textContent({ timeout: 45_000 })) ?? "";
      return Number(text.replace(/\D/g, ""));
    };
    // Each page counts the events that it has shown: a page that lags holds fewer than the server.
    const until = async (events: number, count: number) => {
      while ((await shown()) < events || tasks < count) await new Promise((resolve) => setTimeout(resolve, 1000));
    };
    // The lowest of several samples: one may come in the middle of a page that is read.
    const lowest = async (when: string) => {
      const least: Record<string, number> = {};
      for (let i = 0; i < samples; i++) {
        for (const [name, one] of Object.entries(pages))
          least[name] = Math.min(least[name] ?? Number.POSITIVE_INFINITY, await one.used());
        await new Promise((resolve) => setTimeout(resolve, 1000));
      }
      const all = Object.entries(least).map(([name, used]) => `${name} ${(used / MiB).toFixed(1)}`);
      console.log(`${when}: ${await shown()} events shown, ${tasks} tasks, MiB: ${all.join(", ")}`);
      return least;
    };
    await lowest("at first");
    await until(full.events, full.tasks);
    const before = await lowest("full");
    const from = { events: await shown(), tasks };
    await until(from.events + more.events, from.tasks + more.tasks);
    const after = await lowest("later");
    stop = true;
    await senders;
    for (const name of Object.keys(pages)) {
      expect
        .soft((after[name] ?? 0) - (before[name] ?? 0), `the heap of ${name} grows, in bytes`)
        .toBeLessThan(allowed(name) * MiB);
    }
  }, 1_200_000);
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
