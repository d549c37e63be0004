// What the page knows of a task beside its facts: the log, the story (its events without the chunks of artifacts), and the
// artifacts that are open. A stream adds to all of them.
import type { Event } from "../api/schema";
import { type Artifact, apply, begun } from "./artifacts";
import type { Mark } from "./conversation";
import { type Load, TaskLog } from "./log";

export interface Known extends Mark {
  chunks: number;
  seq: number;
  complete: boolean;
}

export class Feed {
  readonly log: TaskLog;
  /** story has the events that arrived by the stream and are no chunks, without those that were forgotten. */
  story: Event[] = [];
  /** known are the artifacts that the stream has begun or continued. */
  readonly known = new Map<string, Known>();
  private readonly open = new Map<string, Artifact>();

  constructor(lastSeq: number, load: Load) {
    this.log = new TaskLog(lastSeq, load);
  }

  /** add takes an event of the stream. It says whether it is new. */
  add(e: Event): boolean {
    if (!this.log.add(e)) return false;
    if (e.kind !== "artifact") {
      this.story.push(e);
      return true;
    }
    const id = e.artifact_id ?? "";
    const old = this.known.get(id);
    this.known.set(id, {
      id,
      firstSeq: old?.firstSeq ?? e.seq,
      chunks: (old?.chunks ?? 0) + 1,
      seq: e.seq,
      complete: e.last ?? false,
    });
    const artifact = this.open.get(id);
    if (artifact) this.open.set(id, apply(artifact, e));
    else if (!old && !e.append) this.open.set(id, begun(e));
    return true;
  }

  /** forget drops events of the story up to a seq: the page reads them from the server again when it shows them. */
  forget(seq: number): void {
    this.story = this.story.filter((e) => e.seq > seq);
  }

  /** artifact returns an artifact with all that has arrived; undefined: it must be read from the server. */
  artifact(id: string): Artifact | undefined {
    return this.open.get(id);
  }

  /** take takes an artifact that was read from the server. It returns false if chunks between it and the stream are missing. */
  take(read: Artifact): boolean {
    const have = this.open.get(read.id);
    if (have && have.seq >= read.seq) return true;
    let whole = read;
    for (let seq = read.seq + 1; seq <= this.log.lastSeq; seq++) {
      const e = this.log.at(seq);
      // The log has all events of the stream but those that it forgot again.
      if (!e) {
        const newest = this.known.get(read.id)?.seq ?? 0;
        if (newest <= read.seq) break;
        return false;
      }
      if (e.kind === "artifact" && e.artifact_id === read.id) whole = apply(whole, e);
    }
    this.open.set(read.id, whole);
    return true;
  }
}

/** merged returns the artifacts of the server and of the stream, by their first event. */
export function merged(
  listed: readonly { id: string; first_seq: number; chunks: number; seq: number; complete?: boolean }[],
  known: ReadonlyMap<string, Known>,
): Known[] {
  const all = new Map<string, Known>();
  for (const a of listed) {
    all.set(a.id, { id: a.id, firstSeq: a.first_seq, chunks: a.chunks, seq: a.seq, complete: a.complete ?? false });
  }
  for (const k of known.values()) {
    const old = all.get(k.id);
    if (!old) all.set(k.id, k);
    else if (k.seq > old.seq) {
      all.set(k.id, { ...old, seq: k.seq, chunks: Math.max(old.chunks, k.chunks), complete: k.complete });
    }
  }
  return [...all.values()].sort((a, b) => a.firstSeq - b.firstSeq);
}
