// Two tasks or two runs side by side: what was said, line by line, and where it differs.
import { formatJson } from "../api/json";
import type { Event } from "../api/schema";
import { listOf, member, partsOf, textOf } from "../conversation/types";
import { stateNames } from "../lib/states";
import { type Artifact, apply, begun } from "./artifacts";
import { keeps } from "./conversation";

/** transcript returns what events say, as lines. */
export function transcript(events: readonly Event[]): string[] {
  const out: string[] = [];
  const artifacts = new Map<string, Artifact>();
  const places = new Map<string, number>();
  const say = (who: string, parts: unknown) => {
    const said = wordsOf(partsOf(parts));
    if (said.length > 0) out.push(`${who}:`, ...said);
  };
  for (const e of events) {
    if (e.kind === "message") {
      say(textOf(member(e.payload, "role")) === "agent" ? "Agent" : "Client", member(e.payload, "parts"));
    } else if (e.kind === "status") {
      say("Agent", member(member(e.payload, "message"), "parts"));
      const cause = textOf(member(e.payload, "cause"));
      if (e.state && e.state !== "working") out.push(stateNames[e.state]);
      if (cause) out.push(...cause.split("\n"));
    } else if (e.kind === "artifact") {
      const id = e.artifact_id ?? "";
      const old = artifacts.get(id);
      artifacts.set(id, old ? apply(old, e) : begun(e));
      if (!old) places.set(id, out.length);
    } else {
      const outcome = textOf(member(e.payload, "outcome")) ?? "";
      if (keeps(e)) continue;
      out.push(`Run: ${outcome}`, ...(textOf(member(e.payload, "error"))?.split("\n") ?? []));
      for (const c of listOf(member(e.payload, "calls"))) out.push(`calls ${textOf(member(c, "agent")) ?? "an agent"}`);
    }
  }
  // An artifact stands where it began; the places before others move nothing.
  for (const [id, place] of [...places].reverse()) {
    const a = artifacts.get(id);
    if (a) out.splice(place, 0, `Artifact ${a.name ?? ""}:`, ...wordsOf(a.parts));
  }
  return out;
}

function wordsOf(parts: ReturnType<typeof partsOf>): string[] {
  return parts.flatMap((p) => {
    if (p.kind === "text") return (p.text ?? "").split("\n");
    if (p.kind === "data") return formatJson(p.data).split("\n");
    return [`[${p.filename ?? p.url ?? p.mediaType ?? "file"}, ${p.bytes} bytes]`];
  });
}

/** Pair is a line of each side. A side that has none is absent. */
export interface Pair {
  left?: string;
  right?: string;
}

/** mostCells bounds the table of the comparison: larger texts are compared as wholes. */
const mostCells = 4_000_000;

/** differences pairs the lines of two texts: the longest common ones with each other. */
export function differences(left: readonly string[], right: readonly string[]): Pair[] {
  let begin = 0;
  while (begin < left.length && begin < right.length && left[begin] === right[begin]) begin++;
  let end = 0;
  while (end < left.length - begin && end < right.length - begin && left.at(-1 - end) === right.at(-1 - end)) end++;
  const a = left.slice(begin, left.length - end);
  const b = right.slice(begin, right.length - end);
  const same = (l: string): Pair => ({ left: l, right: l });
  return [...left.slice(0, begin).map(same), ...middle(a, b), ...left.slice(left.length - end).map(same)];
}

function middle(a: readonly string[], b: readonly string[]): Pair[] {
  const out: Pair[] = [];
  let gone: string[] = [];
  let come: string[] = [];
  const flush = () => {
    for (let i = 0; i < Math.max(gone.length, come.length); i++) out.push({ left: gone[i], right: come[i] });
    gone = [];
    come = [];
  };
  const width = b.length + 1;
  if ((a.length + 1) * width > mostCells) {
    gone = [...a];
    come = [...b];
    flush();
    return out;
  }
  // common[i][j] is how many lines a from i on and b from j on have in common.
  const common = new Uint16Array((a.length + 1) * width);
  const at = (i: number, j: number) => common[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      flush();
      out.push({ left: a[i++], right: b[j++] });
    } else if (j >= b.length || (i < a.length && at(i + 1, j) >= at(i, j + 1))) gone.push(a[i++] ?? "");
    else come.push(b[j++] ?? "");
  }
  flush();
  return out;
}

/** Stretch is lines that differ, or lines that are the same. */
export interface Stretch {
  same: boolean;
  pairs: Pair[];
}

export function stretches(pairs: readonly Pair[]): Stretch[] {
  const out: Stretch[] = [];
  for (const p of pairs) {
    const same = p.left === p.right;
    const last = out.at(-1);
    if (last?.same === same) last.pairs.push(p);
    else out.push({ same, pairs: [p] });
  }
  return out;
}
