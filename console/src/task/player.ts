// The log of a task, shown again at the speed at which it was written.
import type { Event } from "../api/schema";
import { Feed } from "./feed";
import type { Load } from "./log";

/** longestPause bounds a time without events, in milliseconds of the log. A replay of a wait of a day says nothing. */
export const longestPause = 2000;
const page = 200;

/** Player puts the events of a log into a feed when their time has come. */
export class Player {
  feed: Feed;
  /** at is the moment of the log that is shown, in milliseconds since 1970. */
  at: number;
  /** cut is how much of pauses was left out, in milliseconds. */
  cut = 0;
  error: unknown;
  private readonly from: number;
  private readonly lastSeq: number;
  private readonly load: Load;
  private coming: Event[] = [];
  private shown = 0;
  private abort = new AbortController();
  private busy = false;

  constructor(from: number, lastSeq: number, load: Load) {
    this.from = from;
    this.at = from;
    this.lastSeq = lastSeq;
    this.load = load;
    this.feed = new Feed(0, load);
  }

  /** over says that all events are shown. */
  get over(): boolean {
    return this.shown >= this.lastSeq;
  }

  /** advance shows what came in the next milliseconds of the log. A call while another one reads does nothing. */
  async advance(ms: number): Promise<void> {
    await this.until(this.at + ms, true);
  }

  /** seek shows the log as it was at a moment. */
  async seek(at: number): Promise<void> {
    if (at < this.at) {
      this.stop();
      this.abort = new AbortController();
      this.busy = false;
      this.feed = new Feed(0, this.load);
      this.coming = [];
      this.shown = 0;
      this.cut = 0;
      this.at = this.from;
    }
    await this.until(at, false);
  }

  stop(): void {
    this.abort.abort();
  }

  private async until(to: number, cutPauses: boolean): Promise<void> {
    if (this.busy) return;
    const { signal } = this.abort;
    this.busy = true;
    this.error = undefined;
    let moment = to;
    try {
      while (!this.over) {
        if (this.coming.length === 0) this.coming = await this.load(this.shown, page, signal);
        if (signal.aborted) return;
        const next = this.coming[0];
        if (!next) {
          this.shown = this.lastSeq; // it was purged meanwhile
          break;
        }
        const at = Date.parse(next.at);
        if (cutPauses && at - moment > longestPause) {
          this.cut += at - longestPause - moment;
          moment = at - longestPause;
        }
        if (at > moment) break;
        this.coming.shift();
        this.shown = next.seq;
        this.feed.add(next);
      }
      this.at = moment;
    } catch (error) {
      if (!signal.aborted) this.error = error;
    } finally {
      if (!signal.aborted) this.busy = false;
    }
  }
}
