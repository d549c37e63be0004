// What happened to a task, in the order of time.
import type { Call, Event, Run, State } from "../api/schema";
import { member, textOf } from "./types";

export interface Span {
  state: State;
  from: number;
  to: number;
  seq: number;
}

/** spans returns how long each state lasted. The last one of an open task lasts until now. */
export function spans(createdAt: string, events: readonly Event[], now: number, ended: boolean): Span[] {
  const out: Span[] = [];
  const begin = (state: State, at: number, seq: number) => {
    const last = out.at(-1);
    if (last && last.state === state) return;
    if (last) last.to = Math.max(last.from, at);
    out.push({ state, from: at, to: at, seq });
  };
  begin("submitted", Date.parse(createdAt), 1);
  for (const e of events) if (e.kind === "status" && e.state) begin(e.state, Date.parse(e.at), e.seq);
  const last = out.at(-1);
  if (last && !ended) last.to = Math.max(last.from, now);
  return out;
}

export type Entry =
  | { type: "run"; at: string; run: Run }
  | { type: "state"; at: string; state: State; seq: number; cause?: string }
  | { type: "wait"; at: string; seq: number; until?: string; interruptible: boolean; over?: string }
  | { type: "call"; at: string; call: Call };

/** timeline merges runs, states, waits and calls. Entries of the same moment stay in this order. */
export function timeline(events: readonly Event[], runs: readonly Run[], calls: readonly Call[]): Entry[] {
  const entries: Entry[] = [];
  let state: State | undefined;
  let wait: Extract<Entry, { type: "wait" }> | undefined;
  for (const e of events) {
    if (wait && e.seq > wait.seq) {
      wait.over = e.at;
      wait = undefined;
    }
    if (e.kind === "status" && e.state && e.state !== state) {
      state = e.state;
      entries.push({ type: "state", at: e.at, state, seq: e.seq, cause: textOf(member(e.payload, "cause")) });
    }
    if (e.kind === "run" && textOf(member(e.payload, "outcome")) === "waits") {
      wait = {
        type: "wait",
        at: e.at,
        seq: e.seq,
        until: textOf(member(e.payload, "until")),
        interruptible: member(e.payload, "interruptible") === true,
      };
      entries.push(wait);
    }
  }
  for (const run of runs) if (run.started_at) entries.push({ type: "run", at: run.started_at, run });
  for (const call of calls) entries.push({ type: "call", at: call.called_at, call });
  const order = { state: 0, run: 1, call: 2, wait: 3 };
  return entries.sort((a, b) => Date.parse(a.at) - Date.parse(b.at) || order[a.type] - order[b.type]);
}

/** outcomes say why a run ended, for people. */
export const outcomes: Record<string, { text: string; tone: "good" | "bad" | "warn" | "info" | "neutral" }> = {
  running: { text: "runs now", tone: "info" },
  completed: { text: "completed the task", tone: "good" },
  failed: { text: "failed the task", tone: "bad" },
  rejected: { text: "rejected the task", tone: "bad" },
  canceled: { text: "was canceled", tone: "neutral" },
  "input-required": { text: "asked its client", tone: "warn" },
  "auth-required": { text: "asked for authentication", tone: "warn" },
  continued: { text: "ended its turn", tone: "good" },
  waits: { text: "waits for a time", tone: "neutral" },
  calls: { text: "waits for its calls", tone: "neutral" },
  retry: { text: "failed, a retry follows", tone: "bad" },
  lost: { text: "lost its process", tone: "bad" },
  returned: { text: "was handed back by its process", tone: "warn" },
  away: { text: "found its agent away", tone: "warn" },
};
