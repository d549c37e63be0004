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

// A page that is open for long keeps the newest of what the stream brings; the server has the rest.
/** mostStory is how many events of the story stay. When there are twice as many, the older half is forgotten. */
export const mostStory = 200;
/** mostKnown is the same for artifacts that the stream has begun. */
export const mostKnown = 200;
/** mostOpen is how many artifacts stay whole, those that changed or were read last, and mostOpenBytes how large they are together. */
export const mostOpen = 40;
export const mostOpenBytes = 16 << 20;

export class Feed {
  readonly log: TaskLog;
  /** story has the newest events that arrived by the stream and are no chunks. */
  story: Event[] = [];
  /** storyFrom is the seq from which the story has all that arrived: the ones before it were forgotten. */
  storyFrom = 0;
  /** known are the artifacts that the stream has begun or continued. */
  readonly known = new Map<string, Known>();
  private readonly open = new Map<string, { artifact: Artifact; bytes: number }>();
  private openBytes = 0;

  constructor(lastSeq: number, load: Load) {
    this.log = new TaskLog(lastSeq, load);
  }

  /** add takes an event of the stream. It says whether it is new. */
  add(e: Event): boolean {
    if (!this.log.add(e)) return false;
    if (e.kind !== "artifact") {
      this.story.push(e);
      if (this.story.length >= 2 * mostStory) {
        this.story = this.story.slice(-mostStory);
        this.storyFrom = this.story[0]?.seq ?? 0;
      }
      return true;
    }
    const id = e.artifact_id ?? "";
    const old = this.known.get(id);
    this.known.delete(id); // the ones that changed last are the last ones
    this.known.set(id, {
      id,
      firstSeq: old?.firstSeq ?? e.seq,
      chunks: (old?.chunks ?? 0) + 1,
      seq: e.seq,
      complete: e.last ?? false,
    });
    if (this.known.size >= 2 * mostKnown) for (const k of [...this.known.keys()].slice(0, mostKnown)) this.known.delete(k);
    const artifact = this.artifact(id);
    if (artifact) this.keep(apply(artifact, e));
    else if (!old && !e.append) this.keep(begun(e));
    return true;
  }

  /** keep puts an artifact last, and forgets the first ones while there are too many. The page reads those again. */
  private keep(artifact: Artifact): void {
    this.drop(artifact.id);
    const bytes = artifact.parts.reduce((n, p) => n + (p.text?.length ?? 0), 0);
    this.open.set(artifact.id, { artifact, bytes });
    this.openBytes += bytes;
    for (const id of this.open.keys()) {
      if (id === artifact.id || (this.open.size <= mostOpen && this.openBytes <= mostOpenBytes)) break;
      this.drop(id);
    }
  }

  private drop(id: string): void {
    this.openBytes -= this.open.get(id)?.bytes ?? 0;
    this.open.delete(id);
  }

  /** artifact returns an artifact with all that has arrived; undefined: it must be read from the server. */
  artifact(id: string): Artifact | undefined {
    return this.open.get(id)?.artifact;
  }

  /** take takes an artifact that was read from the server. It returns false if chunks between it and the stream are missing. */
  take(read: Artifact): boolean {
    const have = this.artifact(read.id);
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
    this.keep(whole);
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
