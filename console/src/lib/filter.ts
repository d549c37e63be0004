// The filter of tasks: as people type it, as it is in an address, and in requests.
import type { Filter, State } from "../api/schema";
import { many, type Search } from "./search";
import { stateNames, states } from "./states";
import { visible } from "./text";

/** keys are the words before the colon, in the order of an address. */
export const keys = [
  "state",
  "agent",
  "tenant",
  "owner",
  "context",
  "since",
  "until",
  "duration",
  "tokens",
  "has",
  "metadata",
  "text",
  "reason",
  "order",
  "id",
] as const;
export type Key = (typeof keys)[number];

/** Term is a part of a filter, such as -owner:bot. Since and until may be "2h". */
export interface Term {
  key: Key;
  value: string;
  /** not leaves out the tasks that have the value. */
  not?: boolean;
}

/** TaskFilter selects the tasks that have one of the values of each key. */
export type TaskFilter = readonly Term[];

/** several are the keys that may have more than one value, and that may be left out. */
const several: readonly Key[] = ["state", "agent", "tenant", "owner"];
const negatable: readonly Key[] = [...several, "has"];
/** bounds are the keys that may have a lower and an upper bound. */
const bounds: readonly Key[] = ["duration", "tokens"];
/** mayBeEmpty are the keys whose emptiness is a value. */
const mayBeEmpty: readonly Key[] = ["owner", "tenant", "reason"];

export const keyHelp: Record<Key, string> = {
  state: "failed, working, …",
  agent: "the name of an agent",
  tenant: "a tenant",
  owner: "the subject that made the task",
  context: "the id of a conversation",
  since: "2h, 7d or 2026-01-31T12:00Z",
  until: "created before: 2h, 7d or a time",
  duration: ">30s or <5m, to the end or to now",
  tokens: ">10k or <500, as its newest events report them",
  has: "retry: it was retried as another task",
  metadata: "metadata.ticket:T-9: what the client gave",
  text: "what a message says",
  reason: "why tasks failed, apart from numbers and ids",
  order: "oldest: the oldest task first",
  id: "the id of a task",
};

/** valuesOf returns the values of a key. */
export function valuesOf(filter: TaskFilter, key: Key, not = false): string[] {
  return filter.filter((t) => t.key === key && (t.not ?? false) === not).map((t) => t.value);
}

export function firstOf(filter: TaskFilter, key: Key): string | undefined {
  return valuesOf(filter, key)[0];
}

/** statesOf returns the states that a filter asks for. */
export function statesOf(filter: TaskFilter): State[] {
  const asked = valuesOf(filter, "state");
  return states.filter((s) => asked.includes(s));
}

/** isPlain says that live lists, counts and jobs know the filter. A list with an id, a text, a reason or tokens is read once. */
export function isPlain(filter: TaskFilter): boolean {
  return !filter.some((t) => ["id", "text", "reason", "tokens"].includes(t.key));
}

const name = (t: Term) => (t.not ? "-" : "") + t.key;

/** fromSearch reads the filter of an address. What is no term is left out. */
export function fromSearch(search: Search): TaskFilter {
  let out: TaskFilter = [];
  for (const key of keys) {
    for (const not of [false, true]) {
      for (const value of many(search, (not ? "-" : "") + key)) {
        const term: Term = not ? { key, value, not } : { key, value };
        if (fault(term, Date.now()) === undefined) out = put(out, term);
      }
    }
  }
  return sorted(out);
}

function sorted(filter: TaskFilter): TaskFilter {
  const place = (t: Term) => keys.indexOf(t.key) * 2 + (t.not ? 1 : 0);
  const state = (t: Term) => (t.key === "state" ? states.indexOf(t.value as State) : 0);
  return filter.toSorted((a, b) => place(a) - place(b) || state(a) - state(b));
}

/** toSearch writes a filter into an address, in a fixed order. */
export function toSearch(filter: TaskFilter): Search {
  const out: Search = {};
  for (const t of sorted(filter)) {
    const old = out[name(t)];
    out[name(t)] = old === undefined ? (several.includes(t.key) ? [t.value] : t.value) : [old, t.value].flat();
  }
  return out;
}

const spans: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400, w: 7 * 86_400 };

/** seconds returns those of "2h" or "1h30m", or undefined for other text. */
function seconds(text: string): number | undefined {
  if (!/^(\d{1,6}(\.\d+)?[smhdw])+$/.test(text)) return undefined;
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/([\d.]+)([smhdw])/g)) sum += Number(n) * (spans[unit ?? ""] ?? 0);
  return sum;
}

/** tokensOf returns the number of ">10k", or undefined for other text. */
function tokensOf(text: string): number | undefined {
  const found = /^[<>](\d{1,9}(?:\.\d+)?)([km]?)$/i.exec(text);
  return found ? Math.round(Number(found[1]) * ({ k: 1e3, m: 1e6 }[(found[2] ?? "").toLowerCase()] ?? 1)) : undefined;
}

/** unplain returns the parameters that only a list that is read once has. */
export function unplain(filter: TaskFilter) {
  const bound = (sign: string) => {
    const value = valuesOf(filter, "tokens").find((v) => v.startsWith(sign));
    return value === undefined ? undefined : tokensOf(value);
  };
  return {
    id: firstOf(filter, "id"),
    text: firstOf(filter, "text"),
    reason: firstOf(filter, "reason"),
    min_tokens: bound(">"),
    max_tokens: bound("<"),
  };
}

/** toTime returns the time of "2h" or of a date, in the form of requests; undefined if it is neither. */
export function toTime(text: string, now: number): string | undefined {
  const span = seconds(text.trim());
  if (span !== undefined && span <= now / 1000) return new Date(now - span * 1000).toISOString();
  const time = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?$/.test(text.trim())
    ? Date.parse(text)
    : Number.NaN;
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}

/** toQuery returns the parameters of requests for lists. */
export function toQuery(filter: TaskFilter, now: number) {
  const list = (key: Key, not = false) => {
    const values = valuesOf(filter, key, not);
    return values.length > 0 ? values : undefined;
  };
  const time = (key: Key) => {
    const value = firstOf(filter, key);
    return value === undefined ? undefined : (toTime(value, now) ?? value);
  };
  const lasted = (sign: string) => {
    const value = valuesOf(filter, "duration").find((v) => v.startsWith(sign));
    return value === undefined ? undefined : `${seconds(value.slice(1))}s`;
  };
  return {
    state: list("state") as State[] | undefined,
    "-state": list("state", true) as State[] | undefined,
    agent: list("agent"),
    "-agent": list("agent", true),
    tenant: list("tenant"),
    "-tenant": list("tenant", true),
    owner: list("owner"),
    "-owner": list("owner", true),
    context: firstOf(filter, "context"),
    since: time("since"),
    until: time("until"),
    min_duration: lasted(">"),
    max_duration: lasted("<"),
    metadata: list("metadata"),
    retried: list("has") ? true : list("has", true) ? false : undefined,
  };
}

/** toJob returns the filter of a job. A job must have one, so all tasks are those created until now. */
export function toJob(filter: TaskFilter, now: number): Filter {
  const out: Record<string, string[]> = {};
  for (const [key, value] of Object.entries(toQuery(filter, now)))
    if (value !== undefined) out[key] = [value].flat().map(String);
  return Object.keys(out).length === 0 ? { until: [new Date(now).toISOString()] } : out;
}

/** fromJob returns the filter of a job for an address, so that people can look at what it selects. */
export function fromJob(filter: Filter): Search {
  const { min_duration, max_duration, retried, ...rest } = filter as Record<string, string[] | undefined>;
  const out: Search = { ...rest };
  const lasted = [...(min_duration ?? []).map((v) => `>${v}`), ...(max_duration ?? []).map((v) => `<${v}`)];
  if (lasted.length > 0) out.duration = lasted;
  if (retried) out[retried[0] === "true" ? "has" : "-has"] = "retry";
  return out;
}

/** describe says what a filter selects. */
export function describe(filter: TaskFilter): string {
  const names = [...new Set(sorted(filter).map(name))];
  const parts = names.map((n) => {
    const values = filter.filter((t) => name(t) === n).map((t) => (t.value === "" ? "(none)" : visible(t.value)));
    return `${n.replace("-", "not ")} ${values.join(", ")}`;
  });
  return parts.join(" · ") || "all tasks";
}

/** format writes a term as people type it. */
export function format(t: Term): string {
  const cut = t.key === "metadata" ? t.value.indexOf(":") : -1;
  const [key, value] = cut < 0 ? [name(t), t.value] : [`metadata.${t.value.slice(0, cut)}`, t.value.slice(cut + 1)];
  return `${key}:${value === "" || /[\s",]/.test(value) ? `"${value.replaceAll('"', "")}"` : value}`;
}

/** fault says why a term selects nothing that there is, and what to write. */
function fault(t: Term, now: number): string | undefined {
  if (t.not && !negatable.includes(t.key)) return `${t.key} cannot be left out. A minus is for ${negatable.join(", ")}.`;
  if (t.value === "" && !mayBeEmpty.includes(t.key)) return `Give a value: ${name(t)}: ${keyHelp[t.key]}`;
  switch (t.key) {
    case "state":
      if (!(t.value in stateNames)) return `“${t.value}” is no state. The states are ${states.join(", ")}.`;
      break;
    case "since":
    case "until":
      if (toTime(t.value, now) === undefined) return `“${t.value}” is no time. Write 15m, 2h, 7d or 2026-01-31T12:00Z.`;
      break;
    case "duration":
      if (!/^[<>]/.test(t.value) || !seconds(t.value.slice(1)))
        return `“${t.value}” is no bound of a duration. Write duration:>30s or duration:<5m.`;
      break;
    case "tokens":
      if (!tokensOf(t.value)) return `“${t.value}” is no bound of tokens. Write tokens:>10k or tokens:<500.`;
      break;
    case "metadata":
      if (t.value.indexOf(":") < 1) return "Name the member: metadata.ticket:T-9.";
      break;
    case "order":
      if (t.value !== "oldest") return `“${t.value}” is no order. Write order:oldest, or nothing for the newest first.`;
      break;
    case "has":
      if (t.value !== "retry") return `“${t.value}” is nothing that a task has. Write has:retry or -has:retry.`;
  }
  return undefined;
}

/** put adds a term to a filter. It replaces what cannot be beside it. An id selects one task by itself. */
function put(filter: TaskFilter, t: Term): TaskFilter {
  const rest = filter.filter((old) => {
    if (old.key === "id" || t.key === "id") return false;
    if (old.key !== t.key) return true;
    if (bounds.includes(t.key)) return old.value[0] !== t.value[0];
    if (t.key === "metadata") return old.value.split(":")[0] !== t.value.split(":")[0];
    return several.includes(t.key) && old.value !== t.value;
  });
  return [...rest, t];
}

const uuid = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

/**
 * parse adds to a filter what was typed, such as state:failed,rejected agent:weather -owner:bot text:"refund". Words without a
 * key are a text, and a UUID is an id. It returns why it cannot, or the new filter.
 */
export function parse(old: TaskFilter, typed: string, now: number): TaskFilter | string {
  let filter = old;
  const words: string[] = [];
  for (const [whole, minus, word, raw] of typed.matchAll(/(-?)([\w.][\w.-]*):((?:"[^"]*"|[^\s"])*)|(?:"[^"]*"|[^\s"])+|"/g)) {
    if (word === undefined || raw === undefined || raw.startsWith("//")) {
      if (uuid.test(whole)) filter = put(filter, { key: "id", value: whole });
      else words.push(whole);
      continue;
    }
    const member = /^metadata\.(.+)$/i.exec(word)?.[1];
    const key = member ? "metadata" : keys.find((k) => k === word.toLowerCase());
    if (!key) {
      return `“${word}” is no key. The keys are ${keys.join(", ")}. For a text with a colon write text:"${whole}", for an id id:${whole}`;
    }
    const quoted = /^"[^"]*"$/.test(raw);
    const plain = raw.replaceAll('"', "");
    for (const value of several.includes(key) && !quoted ? plain.split(",") : [plain]) {
      const known = key === "state" && states.find((s) => stateNames[s].toLowerCase() === value.toLowerCase());
      const term: Term = { key, value: known || (member ? `${member}:${value}` : value), ...(minus ? { not: true } : {}) };
      const why = fault(term, now);
      if (why !== undefined) return why;
      filter = put(filter, term);
    }
  }
  const text = words.join(" ").replaceAll('"', "").trim();
  if (text) filter = put(filter, { key: "text", value: text });
  if (valuesOf(filter, "tokens").length > 0 && filter.some((t) => t.key === "text" || t.key === "reason"))
    return "tokens cannot be combined with text or reason.";
  return sorted(filter);
}

/** without takes a term out of a filter, or all of a key. */
export function without(filter: TaskFilter, gone: Key | Term): TaskFilter {
  return filter.filter((t) => (typeof gone === "string" ? t.key !== gone : t !== gone));
}

/** within sets the time of a filter. */
export function within(filter: TaskFilter, since: string, until: string): TaskFilter {
  return sorted([
    ...without(without(filter, "since"), "until"),
    { key: "since", value: since },
    { key: "until", value: until },
  ]);
}

/** toggle adds a value to a filter, or takes it out. */
export function toggle(filter: TaskFilter, value: string, key: Key = "state"): TaskFilter {
  const old = filter.find((t) => t.key === key && !t.not && t.value === value);
  return old ? without(filter, old) : sorted(put(filter, { key, value }));
}
