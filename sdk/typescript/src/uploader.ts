import { EventRefused, Stopped, tooLarge } from "./errors.js";
import { Backoff, object, problemOf, type Transport, temporary } from "./http.js";
import { stringify } from "./json.js";
import type { Fields } from "./log.js";
import type { Event } from "./types.js";

// What waits for the server at most before emissions wait, and what one upload has at most, in UTF-16 units and events.
const room = { size: 1 << 20, count: 1000 };
const logged = 10; // failures of an upload in a row make one line of the log
const batch = { size: 1 << 20, count: 500 };

/** Whether no event may follow. */
export function ends(event: Event): boolean {
  switch (event.type) {
    case "ask":
    case "auth":
    case "complete":
    case "fail":
    case "reject":
    case "reply":
    case "retry":
    case "wait":
    case "call":
      return true;
    case "status":
      return event.state !== undefined && event.state !== null && event.state !== "working";
    default:
      return false;
  }
}

/** What a run has come to by the event that ended it, as in the log of the server. */
const outcomes: { [type: string]: string } = {
  ask: "parked",
  auth: "parked",
  complete: "completed",
  fail: "failed",
  reject: "rejected",
  reply: "completed",
  retry: "retried",
  wait: "waits",
  call: "calls",
};

interface Queued {
  line: string;
  type: string;
  ends: boolean;
}

interface Waiter {
  /** Whether it waits no longer. */
  ready: () => boolean;
  resolve: () => void;
  reject: (error: Error) => void;
}

/**
 * Posts the events of one run in their order, in batches, one upload at a time. Each event has an ordinal. After a cut, the upload
 * is repeated from the first event whose answer has not come; the server passes over what it has stored.
 */
export class Uploader {
  #queue: Queued[] = [];
  #size = 0;
  #base = 0; // the ordinal of the first event in the queue
  #waiters: Waiter[] = [];
  #posting = false;
  #over: Stopped | undefined; // nothing can be posted any more
  #failures = 0; // of uploads, in a row
  #misplaced = false; // the server goes on at an event that is not here
  #refusal: EventRefused | undefined; // of an event, and no emission has thrown it yet
  #closed = false; // an event that ends the run is in the queue, or was
  #outcome: string | undefined; // of that event
  #settled = false; // the run has ended by an event, and the server says so
  readonly #stop = new AbortController();

  constructor(
    private readonly transport: Transport,
    private readonly token: () => string,
    /** Told when the run is over, and not by an event from here. */
    private readonly stopped: (error: Stopped) => void,
    /** Told about failures of uploads. */
    private readonly paused: (problem: string, fields: Fields) => void = () => {},
    /** How many bytes an event may have. */
    private readonly most?: number,
  ) {}

  /** Whether the run has ended by an event, or was stopped: nothing can be posted any more. */
  get over(): boolean {
    return this.#settled || this.#over !== undefined;
  }

  /** Whether an event that ends the run was emitted, and not refused. */
  get closed(): boolean {
    return this.#closed;
  }

  /** What the run has come to by its own event, if that is stored or may be. */
  get outcome(): string | undefined {
    const stopped = this.#over !== undefined && this.#over.reason !== "over" && !this.#settled;
    return this.#closed && !stopped ? this.#outcome : undefined;
  }

  /** Whether the server goes on at an event that is not here any more. */
  get misplaced(): boolean {
    return this.#misplaced;
  }

  /** The refusal that no emission has thrown yet. */
  get refusal(): EventRefused | undefined {
    return this.#refusal;
  }

  /**
   * Queues an event and waits for room, or for the commit of an event that ends the run. The order is that of the calls, also of
   * those that nobody waits for.
   */
  push(event: Event): Promise<void> {
    const line = stringify(event);
    const large = tooLarge(`the event ${event.type}`, line, "max_event", this.most);
    if (large) throw new EventRefused(large, 413);
    if (this.#closed) return rejected(new Error(`${event.type}: the run has ended by an earlier event`));
    const failure = this.#failure();
    if (failure) return rejected(failure);
    const last = ends(event);
    this.#queue.push({ line, type: event.type, ends: last });
    this.#size += line.length;
    this.#closed = last;
    this.#outcome = outcomes[event.type];
    void this.#post();
    return last ? this.flush() : this.#until(() => this.#size <= room.size && this.#queue.length <= room.count);
  }

  /** Waits until all events are committed. */
  flush(): Promise<void> {
    return this.#until(() => this.#queue.length === 0);
  }

  /** Ends the run: nothing is posted any more. */
  stop(error: Stopped): void {
    if (this.over) return;
    this.#over = error;
    this.#drop(error);
    this.#stop.abort(error);
  }

  /** Why the next emission fails. A refusal counts for one. */
  #failure(): Error | undefined {
    const refusal = this.#refusal;
    this.#refusal = undefined;
    return this.#over ?? refusal;
  }

  #until(ready: () => boolean): Promise<void> {
    const failure = this.#failure();
    if (failure) return rejected(failure);
    if (ready()) return Promise.resolve();
    const waiting = new Promise<void>((resolve, reject) => this.#waiters.push({ ready, resolve, reject }));
    waiting.catch(() => {}); // code that does not await is told by the next emission, or by the signal
    return waiting;
  }

  /** Drops the queue, and tells those that wait. Reports whether anybody did. */
  #drop(error: Error): boolean {
    this.#queue = [];
    this.#size = 0;
    const waiters = this.#waiters.splice(0);
    for (const w of waiters) w.reject(error);
    return waiters.length > 0;
  }

  /** Removes what the server has stored, all before the ordinal. Reports whether the server goes on inside of what is here. */
  #advance(next: number): boolean {
    if (next < this.#base || next > this.#base + this.#queue.length) return false;
    for (const e of this.#queue.splice(0, next - this.#base)) this.#size -= e.line.length;
    this.#base = next;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const w of waiters) {
      if (w.ready()) w.resolve();
      else this.#waiters.push(w);
    }
    return true;
  }

  async #post(): Promise<void> {
    if (this.#posting) return;
    this.#posting = true;
    const backoff = new Backoff();
    try {
      await Promise.resolve(); // what is emitted in one go goes up in one go
      while (this.#queue.length > 0 && !this.over) await this.#upload(backoff);
    } finally {
      this.#posting = false;
    }
  }

  async #upload(backoff: Backoff): Promise<void> {
    let count = 0;
    let size = 0;
    let body = "";
    for (const { line } of this.#queue) {
      if (count > 0 && (size + line.length > batch.size || count === batch.count)) break;
      body += `${line}\n`;
      size += line.length;
      count++;
    }
    const closes = this.#queue[count - 1]?.ends === true;
    let answer: Awaited<ReturnType<Transport["request"]>>;
    try {
      answer = await this.transport.request("POST", `/events?from=${this.#base}`, {
        headers: { Authorization: `Bearer ${this.token()}`, "Content-Type": "application/x-ndjson" },
        body,
        signal: this.#stop.signal,
        timeout: 120_000,
      });
    } catch (error) {
      if (this.over) return;
      this.#failed(error instanceof Error ? error.message : String(error), body);
      await backoff.pause(undefined, this.#stop.signal);
      return;
    }
    if (this.over) return;
    if (answer.status === 200) {
      const { next, ended } = object(answer.text);
      if (ended === true) {
        if (!closes) return this.#end("over", "the run has ended");
        // The count may leave out the event that ends the run: a retry is no event of the task.
        this.#settled = true;
        this.#advance(this.#base + count);
        return;
      }
      const progress = next !== this.#base;
      if (typeof next !== "number" || !this.#advance(next))
        return this.#end("lost", `the server goes on at event ${String(next)}`);
      this.#failures = 0;
      if (progress) backoff.reset();
      else await backoff.pause(undefined, this.#stop.signal);
      return;
    }
    const problem = problemOf(answer);
    if (temporary(answer.status)) {
      if (problem.next !== undefined && problem.next > this.#base && this.#advance(problem.next)) backoff.reset();
      this.#failed(problem.detail, body);
      await backoff.pause(answer, this.#stop.signal);
      return;
    }
    const at = problem.next ?? this.#base;
    switch (answer.status) {
      case 409:
        if (problem.next === undefined || !this.#advance(problem.next)) {
          this.#end("lost", `the server goes on at event ${String(problem.next)}: ${problem.detail}`);
        } else {
          await backoff.pause(undefined, this.#stop.signal);
        }
        return;
      case 400:
      case 413:
      case 415:
      case 422: {
        const refused = this.#queue[at - this.#base];
        const what = refused ? `the event ${refused.type}` : "an event";
        this.#refuse(at, new EventRefused(`the server refuses ${what}: ${problem.detail}`, answer.status, problem.field));
        return;
      }
      default: // 401, 404 and 410: the token is of no use any more
        this.#end("over", problem.detail);
    }
  }

  /** Tells about each tenth failure in a row. */
  #failed(error: string, body: string): void {
    if (this.#failures++ % logged === 0) {
      this.paused(error, { ordinal: this.#base, bytes: Buffer.byteLength(body), failures: this.#failures });
    }
  }

  #refuse(next: number, error: EventRefused): void {
    if (!this.#advance(next)) {
      this.#end("lost", `the server goes on at event ${next}`);
      return;
    }
    this.#closed = false;
    if (!this.#drop(error)) this.#refusal = error;
  }

  #end(reason: "lost" | "over", message: string): void {
    this.#misplaced = reason === "lost";
    const error = new Stopped(reason, message);
    this.stop(error);
    this.stopped(error);
  }
}

function rejected(error: Error): Promise<void> {
  const promise = Promise.reject(error);
  promise.catch(() => {});
  return promise;
}
