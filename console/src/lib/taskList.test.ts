import { describe, expect, test } from "vitest";
import type { Task } from "../api/schema";
import { type Fetch, TaskList } from "./taskList";

const id = (n: number) => `0199${String(n).padStart(8, "0")}`;
const task = (n: number, state: Task["state"] = "working") => ({ id: id(n), state }) as Task;

/** server has tasks 1 to n, and counts the requests. */
function server(n: number, gaps = false) {
  const tasks = new Map<string, Task>();
  for (let i = 1; i <= n; i++) tasks.set(id(i), task(i));
  const requests: (string | undefined)[] = [];
  const fetch: Fetch = async (before, limit) => {
    requests.push(before);
    if (gaps && requests.length % 2 === 1) return { tasks: [], next: before ?? id(n + 1) };
    const rows = [...tasks.values()]
      .filter((t) => before === undefined || t.id < before)
      .sort((a, b) => (a.id < b.id ? 1 : -1));
    const page = rows.slice(0, limit);
    return { tasks: page, next: rows.length > limit ? page.at(-1)?.id : undefined };
  };
  return { tasks, requests, fetch };
}

const settled = () => new Promise((resolve) => setTimeout(resolve, 5));
const shown = (list: TaskList) => Array.from({ length: list.count }, (_, i) => Number(list.at(i)?.id.slice(4)));

describe("a list of tasks", () => {
  test("knows its rows also after it was left, and reads the next ones", async () => {
    for (const [s, kept] of [
      [server(25, true), 20],
      [server(25), 1],
    ] as const) {
      const list = new TaskList(s.fetch, { page: 10, kept });
      await list.restart();
      await settled();
      list.stop();
      expect(list.indexOf(id(25))).toBe(0);
      expect(list.indexOf(id(1))).toBe(-1);
      expect((await list.reach(15))?.id).toBe(id(10));
      expect((await list.reach(24))?.id).toBe(id(1));
      expect(await list.reach(25)).toBeUndefined();
      expect((await list.reach(3))?.id).toBe(id(22));
    }
  });

  test("reads pages as they are shown, and keeps a bounded number of rows", async () => {
    const s = server(1000);
    const list = new TaskList(s.fetch, { page: 10, kept: 5 });
    await list.restart();
    while (!list.ended) {
      list.show(list.count - 20, list.count - 1);
      await settled();
    }
    expect(list.count).toBe(1000);
    expect(list.inMemory).toBeLessThanOrEqual(50);
    expect(list.at(999)).toEqual(task(1));
    expect(list.at(0)).toBeUndefined();
    list.show(0, 20);
    await settled();
    expect(list.at(0)).toEqual(task(1000));
    expect(list.count).toBe(1000);
  });

  test("reads all rows of a chunk again if pages are short now", async () => {
    const s = server(30);
    let most = 10;
    const list = new TaskList((before, limit, signal) => s.fetch(before, Math.min(limit, most), signal), { page: 10, kept: 1 });
    list.show(0, 29);
    await list.restart();
    await settled();
    most = 3;
    for (const first of [0, 10, 20]) {
      list.show(first, first);
      await settled();
      expect(list.count).toBe(30);
      expect(list.at(first + 9)?.id).toBe(id(21 - first));
    }
  });

  test("reads on behind pages that are empty", async () => {
    const list = new TaskList(server(30, true).fetch, { page: 10 });
    list.show(0, 29);
    await list.restart();
    await settled();
    expect(shown(list)).toEqual(Array.from({ length: 30 }, (_, i) => 30 - i));
    expect(list.ended).toBe(true);
  });

  test("changes rows in place, and puts new ones on top", async () => {
    const list = new TaskList(server(5).fetch);
    await list.restart();
    list.apply([
      { task: task(3, "failed"), matches: true },
      { task: task(6), matches: true },
    ]);
    expect(shown(list)).toEqual([6, 5, 4, 3, 2, 1]);
    expect(list.at(3)?.state).toBe("failed");
  });

  test("has the oldest first, and puts new ones at the end, also while the reader looks", async () => {
    const s = server(25, false);
    const fetch: Fetch = async (from, limit) => {
      const rows = [...s.tasks.values()].filter((t) => from === undefined || t.id > from);
      return { tasks: rows.slice(0, limit), next: rows.length > limit ? rows[limit - 1]?.id : undefined };
    };
    const list = new TaskList(fetch, { page: 10, kept: 1 }, true);
    await list.restart();
    list.apply([{ task: task(26), matches: true }]); // a task of a later page
    expect(shown(list)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for (const [index, n] of [
      [24, 25],
      [3, 4],
      [12, 13],
    ] as const)
      expect((await list.reach(index))?.id).toBe(id(n));
    expect(list.ended).toBe(true);
    list.held = true;
    list.show(20, 24);
    await settled();
    list.apply([{ task: task(27), matches: true }]);
    expect(list.count).toBe(26);
    expect(list.at(25)?.id).toBe(id(27));
    expect(list.waiting).toBe(0);
    // While the live list was cut, the server has got others.
    for (const n of [26, 27, 28]) s.tasks.set(id(n), task(n));
    list.held = false;
    await list.refresh();
    await settled();
    expect(list.count).toBe(28);
    expect(list.at(27)?.id).toBe(id(28));
    expect(list.indexOf(id(26))).toBe(25);
  });

  test("moves no row while the reader looks, and gathers new ones", async () => {
    const list = new TaskList(server(5).fetch);
    await list.restart();
    list.held = true;
    list.apply([
      { task: task(7), matches: true },
      { task: task(6), matches: true },
      { task: task(4, "completed"), matches: false },
    ]);
    expect(shown(list)).toEqual([5, 4, 3, 2, 1]);
    expect(list.at(1)?.state).toBe("completed");
    expect(list.waiting).toBe(2);
    list.apply([{ task: task(6), matches: false }]);
    expect(list.waiting).toBe(1);
    list.held = false;
    list.release();
    expect(shown(list)).toEqual([7, 5, 3, 2, 1]);
    list.apply([{ task: task(3), matches: false }]);
    expect(shown(list)).toEqual([7, 5, 2, 1]);
  });

  test("puts a task that comes into the filter at its place, and leaves out one below what was read", async () => {
    const s = server(40);
    s.tasks.delete(id(38));
    const list = new TaskList(s.fetch, { page: 10 });
    list.show(0, 0);
    await list.restart();
    const before = list.count;
    list.apply([{ task: task(38), matches: true }]);
    expect(shown(list).slice(0, 4)).toEqual([40, 39, 38, 37]);
    expect(list.count).toBe(before + 1);
    const short = new TaskList(async () => ({ tasks: [task(30), task(29)], next: id(29) }), { page: 2 });
    short.show(-500, -500);
    await short.restart();
    short.apply([{ task: task(3), matches: true }]);
    expect(shown(short)).not.toContain(3);
  });

  test("drops the newest rows above the limit, and says so", async () => {
    const list = new TaskList(server(100).fetch, { page: 10, most: 50 });
    let moved = 0;
    list.shifted = (n) => {
      moved += n;
    };
    await list.restart();
    while (!list.ended) {
      list.show(list.count - 5, list.count - 1);
      await settled();
    }
    expect(list.count).toBe(50);
    expect(list.dropped).toBe(50);
    expect(moved).toBe(-50);
    expect(list.at(49)).toEqual(task(1));
    list.apply([{ task: task(101), matches: true }]);
    expect(list.waiting).toBe(1);
    list.release();
    expect(list.waiting).toBe(1);
    list.show(0, 5);
    await list.restart();
    expect(list.at(0)).toEqual(task(100));
    expect(list.dropped).toBe(0);
  });

  test("has a bounded number of rows in memory however long it is open, and loses none", async () => {
    const s = server(40);
    const list = new TaskList(s.fetch, { page: 10, kept: 5, most: 300 });
    list.show(0, 5);
    await list.restart();
    for (let n = 41; n <= 1000; n++) {
      s.tasks.set(id(n), task(n));
      list.apply([{ task: task(n), matches: true }]);
      expect(list.inMemory).toBeLessThanOrEqual(70);
      expect(list.at(0)?.id).toBe(id(n));
    }
    expect(list.count).toBeLessThanOrEqual(320);
    for (let i = 0; i < 990; i += 5) {
      list.show(i, i + 5);
      await settled();
      for (let k = 0; k < 5; k++) expect(list.at(i + k - list.dropped)?.id).toBe(id(1000 - i - k));
      if (i > 200) break;
    }
  });

  test("forgets old new tasks while the reader looks for long, and reads the list again afterwards", async () => {
    const s = server(5);
    const list = new TaskList(s.fetch, { gathered: 20 });
    await list.restart();
    list.held = true;
    for (let n = 6; n <= 1000; n++) {
      s.tasks.set(id(n), task(n));
      list.apply([{ task: task(n), matches: true }]);
      list.apply([{ task: task(6, "completed"), matches: true }]);
      expect(list.waiting).toBe(n - 5);
    }
    expect(shown(list)).toEqual([5, 4, 3, 2, 1]);
    list.held = false;
    list.release();
    await settled();
    expect(list.waiting).toBe(0);
    expect(list.at(0)).toEqual(task(1000));
  });

  test("keeps an error until it is tried again", async () => {
    let fail = true;
    const list = new TaskList(async () => {
      if (fail) throw new Error("away");
      return { tasks: [task(1)] };
    });
    await list.restart();
    expect(list.error).toEqual(new Error("away"));
    list.show(0, 10);
    expect(list.loading).toBe(false);
    fail = false;
    await list.more();
    expect(list.error).toBeUndefined();
    expect(shown(list)).toEqual([1]);
  });

  test("finds what was missed", async () => {
    const s = server(5);
    const list = new TaskList(s.fetch);
    await list.restart();
    s.tasks.set(id(6), task(6));
    s.tasks.set(id(2), task(2, "failed"));
    await list.refresh();
    expect(shown(list)).toEqual([6, 5, 4, 3, 2, 1]);
    expect(list.at(4)?.state).toBe("failed");
  });

  test("reads only what is shown after changes may have been missed", async () => {
    const s = server(100);
    const list = new TaskList(s.fetch, { page: 10 });
    list.show(0, 90);
    await list.restart();
    while (!list.ended) await settled();
    list.show(50, 55);
    s.requests.length = 0;
    s.tasks.set(id(47), task(47, "failed"));
    s.tasks.set(id(3), task(3, "failed"));
    await list.refresh();
    await settled();
    expect(s.requests.length).toBeLessThan(5);
    expect(list.at(53)?.state).toBe("failed");
    expect(list.at(97)?.state).toBe("working");
    list.show(95, 99);
    await settled();
    expect(list.at(97)?.state).toBe("failed");
  });
});
