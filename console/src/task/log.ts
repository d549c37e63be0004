// The log of one task in the memory of the page: pages by seq, and the events that a stream adds. The log has no gap, so the
// place of an event in the list is its seq.
import { get } from "../api/client";
import type { Event, State } from "../api/schema";

/** blockSize is how many events one request asks for. */
export const blockSize = 200;
/** mostBlocks bounds the events in memory. Those that were not looked at for the longest are dropped, and read again when needed. */
export const mostBlocks = 10;
/** mostBytes does the same for large events: it is about how long the strings of all events may be together. */
const mostBytes = 16 << 20;
/** mostCuts is how many cuts of the stream are remembered. */
const mostCuts = 100;

export type Load = (after: number, limit: number, signal: AbortSignal) => Promise<Event[]>;

/** Cut is a place where the stream broke, and whether it went on. */
export interface Cut {
  at: number;
  after: number;
  resumedAt?: number;
  /** missed counts the events between those before and after the cut; absent before the next one. */
  missed?: number;
}

interface Block {
  events: Map<number, Event>;
  /** whole says that all events of the block up to this seq are here. */
  through: number;
  used: number;
  /** bytes is about how long the strings of its events are. */
  bytes: number;
  loading?: AbortController;
  error?: unknown;
}

/** TaskLog has the events of a task. Its listeners are told at most once per frame. */
export class TaskLog {
  lastSeq: number;
  cuts: Cut[] = [];
  /** ended is the state in which the task ended, or "deleted". */
  ended: State | "deleted" | undefined;
  /** error is what the newest request for a page failed with. */
  error: unknown;
  version = 0;
  private readonly blocks = new Map<number, Block>();
  private readonly listeners = new Set<() => void>();
  private clock = 0;
  private bytes = 0;
  private told = false;
  private readonly load: Load;

  constructor(lastSeq: number, load: Load) {
    this.lastSeq = lastSeq;
    this.load = load;
  }

  subscribe = (tell: () => void): (() => void) => {
    this.listeners.add(tell);
    return () => this.listeners.delete(tell);
  };

  snapshot = (): number => this.version;

  private changed(): void {
    if (this.told) return;
    this.told = true;
    setTimeout(() => {
      this.told = false;
      this.version++;
      for (const tell of this.listeners) tell();
    }, 50);
  }

  private block(seq: number): Block {
    const n = Math.floor((seq - 1) / blockSize);
    let b = this.blocks.get(n);
    if (!b) {
      b = { events: new Map(), through: n * blockSize, used: 0, bytes: 0 };
      this.blocks.set(n, b);
    }
    b.used = ++this.clock;
    return b;
  }

  at(seq: number): Event | undefined {
    return this.blocks.get(Math.floor((seq - 1) / blockSize))?.events.get(seq);
  }

  /** add takes an event of the stream. It returns false for one that is here already. */
  add(event: Event): boolean {
    const b = this.block(event.seq);
    const known = event.seq <= this.lastSeq;
    if (b.events.has(event.seq)) return false;
    this.put(b, event);
    if (event.seq === b.through + 1) b.through = event.seq;
    if (!known) this.lastSeq = event.seq;
    const cut = this.cuts.at(-1);
    if (cut && cut.missed === undefined && event.seq > cut.after) {
      cut.resumedAt ??= Date.now();
      cut.missed = event.seq - cut.after - 1;
    }
    this.changed();
    this.forget();
    return !known;
  }

  /** broke notes that the stream was cut after an event, and resumed that it goes on. */
  broke(after: number): void {
    const open = this.cuts.at(-1);
    if (open && open.resumedAt === undefined) return;
    this.cuts = [...this.cuts.slice(1 - mostCuts), { at: Date.now(), after }];
    this.changed();
  }

  resumed(): void {
    const cut = this.cuts.at(-1);
    if (!cut || cut.resumedAt !== undefined) return;
    cut.resumedAt = Date.now();
    this.cuts = [...this.cuts];
    this.changed();
  }

  end(state: State | "deleted"): void {
    this.ended = state;
    this.changed();
  }

  /** want loads the events from one seq to another, those of them that are not here. */
  want(first: number, last: number): void {
    for (let seq = Math.max(1, first); seq <= Math.min(last, this.lastSeq); ) {
      const b = this.block(seq);
      const n = Math.floor((seq - 1) / blockSize);
      const end = Math.min((n + 1) * blockSize, this.lastSeq);
      if (b.through < end && !b.loading && !b.error) void this.fill(n, b);
      seq = (n + 1) * blockSize + 1;
    }
    this.forget();
  }

  /** again tries pages that failed. */
  again(): void {
    this.error = undefined;
    for (const b of this.blocks.values()) b.error = undefined;
    this.changed();
  }

  private async fill(n: number, b: Block): Promise<void> {
    const abort = new AbortController();
    b.loading = abort;
    try {
      const end = () => Math.min((n + 1) * blockSize, this.lastSeq);
      while (b.through < end()) {
        // A page is shorter than its limit if its events are large.
        const events = await this.load(b.through, end() - b.through, abort.signal);
        if (events.length === 0) break;
        for (const e of events) if (e.seq > b.through && e.seq <= (n + 1) * blockSize) this.put(b, e);
        b.through = Math.min(events.at(-1)?.seq ?? b.through, (n + 1) * blockSize);
        this.changed();
      }
    } catch (error) {
      if (!abort.signal.aborted) {
        b.error = error;
        this.error = error;
      }
    } finally {
      b.loading = undefined;
      this.changed();
    }
  }

  private put(b: Block, event: Event): void {
    if (!b.events.has(event.seq)) {
      const bytes = weight(event.payload);
      b.bytes += bytes;
      this.bytes += bytes;
    }
    b.events.set(event.seq, event);
  }

  /** inMemory is how many events the log holds. */
  get inMemory(): number {
    let n = 0;
    for (const b of this.blocks.values()) n += b.events.size;
    return n;
  }

  private forget(): void {
    const over = () => this.blocks.size > mostBlocks || (this.bytes > mostBytes && this.blocks.size > 2);
    if (!over()) return;
    for (const [n, b] of [...this.blocks.entries()].sort((x, y) => x[1].used - y[1].used)) {
      if (!over()) return;
      b.loading?.abort();
      this.bytes -= b.bytes;
      this.blocks.delete(n);
    }
  }
}

/** weight is about how long the strings of a value are. */
function weight(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null) return 8;
  return Object.values(value).reduce<number>((n, v) => n + weight(v), 16);
}

/** loader reads pages of the log of a task. */
export function loader(id: string): Load {
  return async (after, limit, signal) =>
    (await get("/tasks/{id}/log", { path: { id }, query: { after, limit }, signal })).events;
}
