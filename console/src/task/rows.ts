// What happened to a task, as the rows of its waterfall, and the scale on which they are drawn.
import type { Attempt, Call, Event, Run, TaskDetail } from "../api/schema";
import { isDict, listOf, member, textOf } from "../conversation/types";
import { outcomes } from "../lib/outcomes";
import { isFinal, stateNames } from "../lib/states";
import { hostOf, line } from "../lib/text";
import { errorKey, keeps } from "./conversation";

/** kinds are those of rows, and whether something works in such a row: long times in which nothing does are cut. */
export const kinds = {
  run: { name: "Run", works: true },
  call: { name: "Called task", works: true },
  model: { name: "Model", works: true },
  tool: { name: "Tool", works: true },
  step: { name: "Step", works: true },
  checkpoint: { name: "Checkpoint", works: true },
  artifact: { name: "Artifact", works: true },
  webhook: { name: "Webhook", works: true },
  queue: { name: "Queue", works: false },
  backoff: { name: "Backoff", works: false },
  away: { name: "Agent away", works: false },
  wait: { name: "Wait", works: false },
  question: { name: "Question", works: false },
} as const;
export type Kind = keyof typeof kinds;

export type Tone = "good" | "bad" | "warn" | "info" | "neutral";

export interface Bar {
  /** kind differs from that of its row where a run stands in the queue first. */
  kind: Kind;
  from: number;
  to: number;
  tone: Tone;
}

export interface Row {
  key: string;
  kind: Kind;
  name: string;
  note?: string;
  error?: string;
  /** again says that a row above has the same error. */
  again?: boolean;
  bars: Bar[];
  /** open says that it has not ended. */
  open?: boolean;
  /** seq is where the log has it. */
  seq?: number;
  /** call is the task that a row has called: its rows are read when the reader asks. */
  call?: Call;
  children?: Row[];
}

const ms = (at: string | undefined): number | undefined => (at ? Date.parse(at) : undefined);

export type Waterfalled = Pick<TaskDetail, "id" | "created_at" | "state" | "status_at">;

/** rowsOf returns the rows of a task. now ends those that have not ended. */
export function rowsOf(
  task: Waterfalled,
  runs: readonly Run[],
  events: readonly Event[],
  calls: readonly Call[],
  now: number,
): Row[] {
  const rows: Row[] = [];
  const left = new Set(calls);
  let before: Run | undefined;
  let free = Date.parse(task.created_at);

  /** idle adds what happened between two runs, and returns since when the second one was in the queue. */
  const idle = (to: number, open: boolean): number => {
    const from = free;
    const add = (kind: Kind, name: string, until: number, tone: Tone, more: Partial<Row> = {}) => {
      const over = Math.max(from, until);
      rows.push({
        key: `${kind} ${before?.run ?? 0}`,
        kind,
        name,
        seq: before?.seq,
        open: open && over >= to,
        ...more,
        bars: [{ kind, from, to: over, tone }],
      });
      return over;
    };
    switch (before?.outcome) {
      case "retry":
        return add("backoff", "Backoff", to, "warn");
      case "away": {
        const last = rows.findLast((r) => r.kind !== "run");
        if (last?.kind === "away" && last.bars.at(-1)?.to === ms(before.started_at)) {
          // The tries that found the agent away are one row.
          rows.splice(rows.indexOf(last) + 1);
          last.bars.push({ kind: "away", from, to, tone: "warn" });
          last.note = `${last.bars.length} tries`;
          last.error = before.error;
          last.open = open;
          return to;
        }
        return add("away", "Agent away", to, "warn", { error: before.error });
      }
      case "waits": {
        const note = events.find((e) => e.seq === before?.seq);
        const until = ms(textOf(member(note?.payload, "until")));
        const word = member(note?.payload, "interruptible") === true ? "or for a message" : undefined;
        return add("wait", "Waits for a time", Math.min(until ?? to, to), "neutral", { note: word });
      }
      case "calls": {
        const mine = [...left].filter((c) => {
          const at = Date.parse(c.called_at);
          return at >= from - 1000 && at <= to;
        });
        for (const c of mine) left.delete(c);
        return add("wait", `Waits for ${mine.length === 1 ? "a called task" : `${mine.length} called tasks`}`, to, "neutral", {
          children: mine.map((c) => callRow(c, now)),
        });
      }
      case "input-required":
      case "auth-required": {
        const answer = events.find((e) => e.kind === "message" && e.seq > (before?.seq ?? 0));
        const name =
          before.outcome === "auth-required" ? "Waits for a login of its client" : "Waits for an answer of its client";
        return add("question", name, Math.min(ms(answer?.at) ?? to, to), "warn");
      }
      default:
        return from;
    }
  };

  for (const run of runs) {
    const end = ms(run.ended_at);
    const start = Math.min(ms(run.started_at) ?? free, end ?? now);
    const queued = Math.min(idle(start, false), start);
    const known = outcomes[run.outcome];
    const to = end ?? Math.max(now, start);
    rows.push({
      key: `run ${run.run}`,
      kind: "run",
      name: `Run ${run.run}`,
      note: [
        run.attempt > 1 ? `attempt ${run.attempt}` : "",
        line(run.worker_name ?? "", 40),
        known?.text ?? line(run.outcome, 40),
      ]
        .filter(Boolean)
        .join(" · "),
      error: run.error,
      seq: run.seq ?? events.findLast((e) => e.attempt === run.attempt)?.seq,
      open: end === undefined,
      bars: [
        ...(start > queued ? [{ kind: "queue", from: queued, to: start, tone: "neutral" } as const] : []),
        { kind: "run", from: start, to, tone: known?.tone ?? "neutral" },
      ],
      children: stepsOf(run, events, start, to),
    });
    free = to;
    before = run;
  }
  const final = isFinal(task.state);
  const end = final ? Date.parse(task.status_at) : now;
  if (before?.outcome !== "running" && end > free && !(final && before && isFinal(before.outcome as TaskDetail["state"]))) {
    const queued = idle(end, !final);
    if (queued < end) {
      rows.push({
        key: "queue",
        kind: "queue",
        name: "In the queue",
        open: !final,
        bars: [{ kind: "queue", from: queued, to: end, tone: "neutral" }],
      });
    }
  }
  return [...rows, ...[...left].map((c) => callRow(c, now))];
}

function callRow(call: Call, now: number): Row {
  const from = Date.parse(call.called_at);
  return {
    key: `call ${call.id}`,
    kind: "call",
    name: line(call.agent || "an agent", 60),
    error: call.error,
    call,
    open: !call.result,
    bars: [{ kind: "call", from, to: Math.max(from, now), tone: "info" }],
  };
}

/** ended sets the end of a called task, as far as it is known. */
export function ended(row: Row, child: Pick<TaskDetail, "agent" | "state" | "status_at"> | undefined): Row {
  const bar = row.bars[0];
  if (!child || !bar) return row;
  const over = isFinal(child.state);
  const tone: Tone = !over ? "info" : child.state === "completed" ? "good" : child.state === "canceled" ? "neutral" : "bad";
  return {
    ...row,
    name: line(child.agent, 60),
    note: stateNames[child.state],
    open: !over,
    bars: [{ ...bar, tone, to: over ? Math.max(bar.from, Date.parse(child.status_at)) : bar.to }],
  };
}

/** stepsOf returns the steps that a run has recorded, the calls of the model and of tools that it has stored, and its other checkpoints. */
function stepsOf(run: Run, events: readonly Event[], from: number, to: number): Row[] {
  const steps: Row[] = [];
  let last = from;
  let calls: unknown[] = [];
  const began = new Map<string, number>();
  const add = (e: Event, kind: Kind, name: string, since: number, more: Partial<Row> = {}) => {
    const bars: Bar[] = [{ kind, from: since, to: Date.parse(e.at), tone: more.error ? "bad" : "info" }];
    steps.push({ key: `${kind} ${e.seq}`, kind, name, seq: e.seq, bars, ...more });
  };
  for (const e of events) {
    const at = Date.parse(e.at);
    if (e.attempt === 0 || at < from || at > to || (run.seq !== undefined && e.seq > run.seq)) continue;
    const usage = member(member(member(e.payload, "message"), "metadata"), "usage");
    if (e.kind === "status" && isDict(usage) && !steps.some((s) => s.kind === "model")) {
      add(e, "model", modelName(member(member(e.payload, "message"), "metadata")), last, { note: tokens(usage) });
      last = at;
    }
    if (e.kind !== "run" || !keeps(e)) continue;
    const step = member(e.payload, "checkpoint");
    if (textOf(member(e.payload, "outcome")) === "record") {
      if (textOf(member(step, "kind")) === "step") add(e, "step", ...recorded(step, at));
      last = at;
      continue;
    }
    const said = member(step, "said");
    const started = member(step, "began");
    const of = member(step, "of");
    const place = (p: unknown) => `${member(p, "round")} ${member(p, "call")}`;
    if (isDict(said)) {
      calls = listOf(member(said, "calls"));
      add(e, "model", "Model", last, { note: tokens(member(said, "usage")) });
    } else if (isDict(started)) began.set(place(started), at);
    else if (isDict(of)) {
      const name = textOf(member(calls[Number(member(of, "call"))], "name")) ?? "a tool";
      const result = member(step, "result");
      const error = member(result, "error") === true ? (textOf(member(result, "text")) ?? "It failed.") : undefined;
      add(e, "tool", line(name, 60), began.get(place(of)) ?? last, { error });
    } else add(e, "checkpoint", "Checkpoint", at);
    if (!isDict(started)) last = at;
  }
  return steps;
}

/** recorded returns the name of a step, when it began, and what came of it. */
function recorded(step: unknown, at: number): [string, number, Partial<Row>] {
  const nth = Number(member(step, "nth"));
  const tries = Number(member(step, "tries") ?? 1);
  const error = member(step, "error");
  return [
    `${line(textOf(member(step, "name")) ?? "", 60)}${nth > 1 ? ` ${nth}` : ""}`,
    at - 1000 * (Number(member(step, "took")) || 0),
    {
      note: tries > 1 ? `${tries} tries` : undefined,
      error: isDict(error) ? (textOf(member(error, "message")) ?? textOf(member(error, "type")) ?? "It failed.") : undefined,
    },
  ];
}

function modelName(metadata: unknown): string {
  return line(textOf(member(metadata, "model")) ?? "Model", 60);
}

function tokens(usage: unknown): string | undefined {
  const count = (name: string) => {
    const n = Number(member(usage, name));
    return Number.isFinite(n) && n > 0 ? n.toLocaleString("en") : undefined;
  };
  const into = count("inputTokens");
  const out = count("outputTokens");
  const all = count("totalTokens");
  if (into || out) return `${into ?? 0} tokens in, ${out ?? 0} out`;
  return all && `${all} tokens`;
}

/**
 * pace returns the milliseconds to the first chunk of a task, and its output tokens per second between the first and the last
 * chunk. A question or another attempt lies between the chunks of a task with more turns or runs: those have no such speed.
 */
export function pace(
  task: Pick<TaskDetail, "created_at" | "turns" | "runs">,
  first: Event | undefined,
  last: Event | undefined,
  output: number,
): { wait?: number; speed?: number } {
  if (!first) return {};
  const from = Date.parse(first.at);
  const took = last ? Date.parse(last.at) - from : 0;
  const speed = task.turns === 1 && task.runs === 1 && took > 0 && output > 0 ? (output * 1000) / took : undefined;
  return { wait: from - Date.parse(task.created_at), speed };
}

/** artifactRow returns the row of an artifact by its first and its newest event. */
export function artifactRow(id: string, first: Event, last: Event, complete: boolean, chunks: number): Row {
  const metadata = member(last.payload, "event_metadata") ?? member(last.payload, "metadata");
  const usage = tokens(member(metadata, "usage"));
  return {
    key: `artifact ${id}`,
    kind: "artifact",
    name: line(textOf(member(first.payload, "name")) || id, 60),
    note: [chunks > 1 ? `${chunks.toLocaleString("en")} chunks` : "", textOf(member(metadata, "model")) ?? "", usage ?? ""]
      .filter(Boolean)
      .join(" · "),
    open: !complete,
    seq: first.seq,
    bars: [{ kind: "artifact", from: Date.parse(first.at), to: Date.parse(last.at), tone: "good" }],
  };
}

/** placed puts rows below the runs in which they began, in the order of time. */
export function placed(rows: readonly Row[], more: readonly Row[]): Row[] {
  const out = rows.map((r) => ({ ...r }));
  for (const row of more) {
    const at = row.bars[0]?.from ?? 0;
    const run = out.find((r) => r.kind === "run" && r.bars.some((b) => b.kind === "run" && at >= b.from && at <= b.to));
    if (run) run.children = [...(run.children ?? []), row].sort((a, b) => (a.bars[0]?.from ?? 0) - (b.bars[0]?.from ?? 0));
    else out.push(row);
  }
  return out;
}

/** once marks the errors that a row above has, or that is shown above all rows. */
export function once(rows: readonly Row[], shown = ""): Row[] {
  const known = new Set(shown ? [errorKey(shown)] : []);
  const mark = (row: Row): Row => {
    const key = row.error && errorKey(row.error);
    const again = key ? known.has(key) : false;
    if (key) known.add(key);
    return { ...row, again, ...(row.children && { children: row.children.map(mark) }) };
  };
  return rows.map(mark);
}

/** webhookRows returns a row for each webhook, with its attempts to deliver. */
export function webhookRows(attempts: readonly Attempt[], urls: ReadonlyMap<string, string>): Row[] {
  const by = new Map<string, Attempt[]>();
  for (const a of attempts) by.set(a.config_id, [...(by.get(a.config_id) ?? []), a]);
  return [...by].map(([config, tries]) => {
    const bad = tries.filter((a) => a.class !== "delivered").length;
    const url = urls.get(config);
    return {
      key: `webhook ${config}`,
      kind: "webhook",
      name: line(hostOf(url) ?? url ?? config, 60),
      note: `${tries.length} ${tries.length === 1 ? "attempt" : "attempts"}${bad ? `, ${bad} failed` : ""}`,
      error: tries.findLast((a) => a.error)?.error,
      seq: tries.at(-1)?.to_seq,
      bars: tries.map((a) => {
        const from = Date.parse(a.at);
        return { kind: "webhook", from, to: from + a.took_ms, tone: a.class === "delivered" ? "good" : "bad" };
      }),
    };
  });
}

export interface Scale {
  from: number;
  to: number;
  /** at says where a time is, from 0 to 1. */
  at: (time: number) => number;
  /** cuts are long times in which nothing worked: they are drawn shorter. */
  cuts: { at: number; ms: number }[];
}

/** scaleOf makes the scale of rows. A wait of a day does not make the run of a second invisible. */
export function scaleOf(rows: readonly Row[]): Scale {
  const bars: Bar[] = [];
  const walk = (all: readonly Row[]) => {
    for (const row of all) {
      bars.push(...row.bars);
      walk(row.children ?? []);
    }
  };
  walk(rows);
  let from = Number.POSITIVE_INFINITY;
  let to = Number.NEGATIVE_INFINITY;
  for (const b of bars) {
    from = Math.min(from, b.from);
    to = Math.max(to, b.to);
  }
  if (bars.length === 0) return { from: 0, to: 0, at: () => 0, cuts: [] };
  const busy = bars.filter((b) => kinds[b.kind].works).sort((a, b) => a.from - b.from);
  const parts: { from: number; to: number; works: boolean; width: number }[] = [];
  let at = from;
  for (const b of busy) {
    if (b.from > at) parts.push({ from: at, to: b.from, works: false, width: b.from - at });
    if (b.to > at) {
      const begin = Math.max(at, b.from);
      parts.push({ from: begin, to: b.to, works: true, width: b.to - begin });
      at = b.to;
    } else at = Math.max(at, b.from);
  }
  if (to > at) parts.push({ from: at, to, works: false, width: to - at });
  const works = parts.reduce((n, p) => n + (p.works ? p.width : 0), 0);
  const long = parts.filter((p) => !p.works && p.width > 2000 && p.width > works);
  // Together the cuts are as long as all that works.
  if (works > 0) for (const p of long) p.width = works / long.length;
  const all = parts.reduce((n, p) => n + p.width, 0) || 1;
  const cuts: Scale["cuts"] = [];
  let sum = 0;
  const placedParts = parts.map((p) => {
    const begin = sum / all;
    sum += p.width;
    if (works > 0 && long.includes(p)) cuts.push({ at: begin + p.width / all / 2, ms: p.to - p.from });
    return { ...p, begin, share: p.width / all };
  });
  return {
    from,
    to,
    cuts,
    at: (time) => {
      const p = placedParts.find((one) => time <= one.to) ?? placedParts.at(-1);
      if (!p || time <= p.from) return p?.begin ?? 0;
      return Math.min(1, p.begin + (p.share * (time - p.from)) / (p.to - p.from || 1));
    },
  };
}
