// The live list of tasks. It has every task that was read as a place, but only some of them in memory; it changes rows in place,
// and gathers new ones while the reader looks at the list.
import type { Task } from "../api/schema";

export interface TaskPage {
  tasks: Task[];
  next?: string;
  searched_since?: string;
}

/** Fetch reads a page: the tasks behind an id in the order of the list. */
export type Fetch = (from: string | undefined, limit: number, signal: AbortSignal) => Promise<TaskPage>;

interface Chunk {
  /** before is the cursor from which the chunk was read. */
  before: string | undefined;
  count: number;
  /** rows is undefined while the chunk is not in memory. */
  rows: Task[] | undefined;
  used: number;
  loading?: boolean;
  /** stale rows are read again when they are shown. */
  stale?: boolean;
}

/** Sizes are those of the list; tests use smaller ones. */
export interface Sizes {
  page: number;
  /** kept is how many chunks stay in memory. */
  kept: number;
  /** most is how many rows have a place. Browsers draw no element that is higher than about 17 million pixels. */
  most: number;
  /** live is how many rows have a place in a list that grows while nobody scrolls in it. */
  live: number;
  /** gathered is how many new tasks are kept for a reader who looks at the list. */
  gathered: number;
}

export const sizes: Sizes = { page: 100, kept: 20, most: 380_000, live: 2_000, gathered: 2_000 };

export class TaskList {
  /** version changes with every change, for useSyncExternalStore. */
  version = 0;
  /** dropped is how many of the first rows have no place any more. */
  dropped = 0;
  loading = false;
  /** ended says that the last task was read. */
  ended = false;
  /** started says that the first page was read. */
  started = false;
  /** searched is how far back a search for a text came. Such a list reads on only when it is asked to. */
  searched: string | undefined;
  error: unknown;
  /** shifted is told how many rows were put before the others (or, below zero, taken away), so that the page does not jump. */
  shifted: (rows: number) => void = () => {};
  /** held says that the reader looks at the list, so that no row may move. */
  held = false;

  private chunks: Chunk[] = [];
  private offsets: number[] = [];
  private next: string | undefined;
  private gathered = new Map<string, Task>();
  /** lost is how many tasks were gathered and forgotten again, and lostUpTo the first of them. */
  private lost = 0;
  private lostUpTo: string | undefined;
  /** left are tasks that do not match any more, and keep their place. */
  private left = new Set<string>();
  private listeners = new Set<() => void>();
  private abort = new AbortController();
  private clock = 0;
  private wanted: [number, number] = [0, 0];
  private readonly fetch: Fetch;
  private readonly sizes: Sizes;
  /** oldest says that the oldest task is the first. */
  readonly oldest: boolean;

  constructor(fetch: Fetch, some: Partial<Sizes> = {}, oldest = false) {
    this.fetch = fetch;
    this.sizes = { ...sizes, ...some };
    this.oldest = oldest;
  }

  /** behind says whether the task with id a comes after the one with id b. */
  private behind(a: string, b: string): boolean {
    return this.oldest ? a > b : a < b;
  }

  subscribe = (tell: () => void): (() => void) => {
    this.listeners.add(tell);
    return () => this.listeners.delete(tell);
  };

  private once(tell: () => void): void {
    const stop = this.subscribe(() => {
      stop();
      tell();
    });
  }

  private changed(): void {
    this.version++;
    let sum = 0;
    this.offsets = this.chunks.map((c) => {
      const at = sum;
      sum += c.count;
      return at;
    });
    for (const tell of this.listeners) tell();
  }

  get count(): number {
    const last = this.chunks.length - 1;
    return last < 0 ? 0 : (this.offsets[last] ?? 0) + (this.chunks[last]?.count ?? 0);
  }

  /** waiting is how many tasks are new and not shown. */
  get waiting(): number {
    return this.gathered.size + this.lost;
  }

  /** inMemory is how many rows the list holds. */
  get inMemory(): number {
    return this.chunks.reduce((sum, c) => sum + (c.rows?.length ?? 0), 0);
  }

  at(index: number): Task | undefined {
    const n = this.chunkOf(index);
    return this.chunks[n]?.rows?.[index - (this.offsets[n] ?? 0)];
  }

  private chunkOf(index: number): number {
    let low = 0;
    let high = this.offsets.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.offsets[middle] ?? 0) <= index) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  stop(): void {
    this.abort.abort();
  }

  /** indexOf returns the place of a task that is in memory, or -1. */
  indexOf(id: string): number {
    const found = this.find(id);
    return found ? (this.offsets[this.chunks.indexOf(found[0])] ?? 0) + found[1] : -1;
  }

  /** reach returns a row, which it reads if it is not in memory, also after stop. */
  async reach(index: number): Promise<Task | undefined> {
    if (this.abort.signal.aborted) {
      this.abort = new AbortController();
      this.loading = false;
    }
    this.wanted = [index, index];
    for (let pages = 0; index >= this.count && !this.ended && !this.error && !(this.searched && pages > 0); pages++) {
      if (this.loading) await new Promise<void>((resolve) => this.once(resolve));
      else await this.more();
    }
    const chunk = this.chunks[this.chunkOf(index)];
    if (chunk && !chunk.rows) await this.reload(chunk);
    return this.at(index);
  }

  /** restart reads the list from its first task again. */
  async restart(): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    this.chunks = [];
    this.next = undefined;
    this.dropped = 0;
    this.ended = false;
    this.started = false;
    this.searched = undefined;
    this.loading = false;
    this.error = undefined;
    this.gathered.clear();
    this.lost = 0;
    this.lostUpTo = undefined;
    this.left.clear();
    this.wanted = [0, this.wanted[1] - this.wanted[0]];
    this.changed();
    await this.more();
  }

  /** show makes sure that rows are in memory, and that there are more below. */
  show(first: number, last: number): void {
    this.wanted = [first, last];
    const near = this.sizes.page / 4;
    const from = this.chunkOf(Math.max(0, first - near));
    const to = this.chunkOf(last + near);
    for (let i = from; i <= to; i++) {
      const chunk = this.chunks[i];
      if (!chunk) continue;
      chunk.used = ++this.clock;
      if ((!chunk.rows || chunk.stale) && !chunk.loading) void this.reload(chunk);
    }
    if (
      this.started &&
      !this.ended &&
      !this.loading &&
      !this.error &&
      !this.searched &&
      last >= this.count - this.sizes.page / 2
    )
      void this.more();
  }

  /** more reads the next page. */
  async more(): Promise<void> {
    if (this.loading || this.ended) return;
    const { signal } = this.abort;
    this.loading = true;
    this.error = undefined;
    this.changed();
    try {
      const before = this.next;
      const page = await this.fetch(before, this.sizes.page, signal);
      if (signal.aborted) return;
      this.started = true;
      this.next = page.next;
      this.ended = page.next === undefined;
      this.searched = page.searched_since;
      if (page.tasks.length > 0) {
        this.chunks.push({ before, count: page.tasks.length, rows: page.tasks, used: ++this.clock });
      }
      this.loading = false;
      this.evict();
      this.changed();
      this.trim();
    } catch (error) {
      if (signal.aborted) return;
      this.loading = false;
      this.error = error;
      this.changed();
      return;
    }
    // A page may be short, or empty, and have a next one.
    this.show(...this.wanted);
  }

  private async reload(chunk: Chunk): Promise<void> {
    const { signal } = this.abort;
    chunk.loading = true;
    try {
      const rows: Task[] = [];
      let before = chunk.before;
      let after: string | undefined;
      do {
        const page: TaskPage = await this.fetch(before, this.sizes.page, signal);
        if (signal.aborted) return;
        rows.push(...page.tasks);
        before = page.next;
        after = this.chunks[this.chunks.indexOf(chunk) + 1]?.before ?? this.next;
        // A page may be short, and a chunk longer than a page.
      } while (before !== undefined && (after === undefined || this.behind(after, before)));
      const end = after;
      chunk.rows = end === undefined ? rows : rows.filter((t) => !this.behind(t.id, end));
      chunk.count = chunk.rows.length;
      chunk.used = ++this.clock;
      chunk.loading = false;
      chunk.stale = false;
      this.evict();
      this.changed();
    } catch (error) {
      if (signal.aborted) return;
      chunk.loading = false;
      chunk.stale = false;
      this.error = error;
      this.changed();
    }
  }

  private evict(): void {
    const loaded = this.chunks.filter((c) => c.rows);
    if (loaded.length <= this.sizes.kept) return;
    // Visible rows stay, even if they were first shown long ago.
    const shown = this.chunks.slice(this.chunkOf(this.wanted[0]), this.chunkOf(this.wanted[1]) + 1);
    for (const chunk of shown) chunk.used = ++this.clock;
    loaded.sort((a, b) => a.used - b.used);
    for (const chunk of loaded.slice(0, loaded.length - this.sizes.kept)) chunk.rows = undefined;
  }

  private trim(): void {
    let gone = 0;
    while (this.count - gone > this.sizes.most && this.chunks.length > 1) gone += this.chunks.shift()?.count ?? 0;
    if (gone === 0) return;
    this.dropped += gone;
    this.changed();
    this.shifted(-gone);
  }

  private find(id: string): [Chunk, number] | undefined {
    for (const chunk of this.chunks) {
      if (!chunk.rows) continue;
      const first = chunk.rows[0];
      const last = chunk.rows.at(-1);
      if (!first || !last || this.behind(first.id, id) || this.behind(id, last.id)) continue;
      const n = chunk.rows.findIndex((t) => t.id === id);
      return n < 0 ? undefined : [chunk, n];
    }
    return undefined;
  }

  /** apply takes what the live list tells of tasks, all at once. */
  apply(told: { task: Task; matches: boolean }[]): void {
    for (const { task, matches } of told) {
      const found = this.find(task.id);
      if (found) {
        const [chunk, n] = found;
        if (!chunk.rows) continue;
        if (matches || this.held) {
          // A task that has left stays in its place until the reader looks away; its state says so.
          chunk.rows = chunk.rows.with(n, task);
          if (matches) this.left.delete(task.id);
          else this.left.add(task.id);
        } else this.remove(chunk, n);
      } else if (!matches) this.gathered.delete(task.id);
      else if ((this.held && !this.last(task.id)) || this.dropped > 0) {
        const lost = this.lostUpTo !== undefined && !this.behind(this.lostUpTo, task.id);
        if (this.placed(task.id) && !lost) this.gathered.set(task.id, task);
      } else this.insert(task);
    }
    this.chunks = this.chunks.filter((c) => c.count > 0 || !c.rows);
    this.bound();
  }

  /** bound keeps a list that is left open from growing for ever. */
  private bound(): void {
    // The oldest rows are read again when the reader comes to them.
    const enough = () => {
      const unseen = (this.offsets.at(-1) ?? 0) > this.wanted[1] + this.sizes.page;
      return this.count > (unseen ? Math.min(this.sizes.live, this.sizes.most) : this.sizes.most);
    };
    this.changed(); // which counts the offsets
    while (!this.held && this.chunks.length > 1 && enough()) {
      this.next = this.chunks.pop()?.before;
      this.ended = false;
      this.changed();
    }
    this.evict();
    if (this.gathered.size <= this.sizes.gathered) return;
    const ids = [...this.gathered.keys()].sort((a, b) => (this.behind(a, b) ? -1 : 1));
    // Half of them, so that not every task sorts them.
    const lost = ids.slice(0, ids.length - this.sizes.gathered / 2);
    for (const id of lost) this.gathered.delete(id);
    this.lost += lost.length;
    this.lostUpTo = lost.at(-1);
  }

  private remove(chunk: Chunk, n: number): void {
    chunk.rows = chunk.rows?.toSpliced(n, 1);
    chunk.count--;
  }

  /** placed says whether a task would be among those that were read. */
  private placed(id: string): boolean {
    return this.ended || this.next === undefined || !this.behind(id, this.next);
  }

  /** last says whether a task would be behind all rows, where it moves none. */
  private last(id: string): boolean {
    const chunk = this.chunks.at(-1);
    const row = chunk?.rows?.at(-1)?.id ?? chunk?.before;
    return row !== undefined && this.behind(id, row) && this.count < this.sizes.most;
  }

  private insert(task: Task): void {
    if (!this.placed(task.id)) return;
    const i = this.chunks.findLastIndex((c, n) => n === 0 || (c.before !== undefined && this.behind(task.id, c.before)));
    const chunk = this.chunks[Math.max(i, 0)];
    if (!chunk) {
      this.chunks.push({ before: undefined, count: 1, rows: [task], used: ++this.clock });
      this.changed();
      return;
    }
    // A chunk that is not in memory may have the task already. It is counted when it is read again.
    if (!chunk.rows) return;
    chunk.count++;
    const at = chunk.rows.findIndex((t) => this.behind(t.id, task.id));
    chunk.rows = chunk.rows.toSpliced(at < 0 ? chunk.rows.length : at, 0, task);
    // The first chunk grows with each new task.
    if (chunk.rows.length > 2 * this.sizes.page) {
      // The rest is a page, so that one request reads it again.
      const rest = chunk.rows.slice(-this.sizes.page);
      chunk.rows = chunk.rows.slice(0, -this.sizes.page);
      chunk.count = chunk.rows.length;
      this.chunks.splice(Math.max(i, 0) + 1, 0, {
        before: chunk.rows.at(-1)?.id,
        count: rest.length,
        rows: rest,
        used: ++this.clock,
      });
    }
  }

  /** release shows what was gathered, and takes out what does not match any more. */
  release(): void {
    if (this.dropped > 0) return; // the newest have no place: restart shows them
    if (this.lost > 0) {
      void this.restart();
      return;
    }
    if (this.gathered.size === 0 && this.left.size === 0) return;
    for (const id of this.left) {
      const found = this.find(id);
      if (found) this.remove(...found);
    }
    this.left.clear();
    const tasks = [...this.gathered.values()];
    this.gathered.clear();
    for (const task of tasks) if (!this.find(task.id)) this.insert(task);
    this.chunks = this.chunks.filter((c) => c.count > 0 || !c.rows);
    this.bound();
  }

  /** refresh reads the first tasks, after changes may have been missed. The others are read when they are shown. */
  async refresh(): Promise<void> {
    if (!this.started || this.loading) return;
    const { signal } = this.abort;
    let page: TaskPage;
    try {
      page = await this.fetch(undefined, this.sizes.page, signal);
    } catch {
      return; // the live list says that it is cut, and another resync follows
    }
    if (signal.aborted) return;
    this.apply(page.tasks.map((task) => ({ task, matches: true })));
    // What is new to an old list may be behind its first page.
    for (const chunk of this.chunks.slice(this.oldest ? 0 : 1)) chunk.stale = true;
    this.show(...this.wanted);
  }
}
