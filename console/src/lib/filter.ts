// The filter of tasks: as it is in an address, in the text field, and in requests.
import type { Filter, State } from "../api/schema";
import { many, one, type Search } from "./search";
import { stateNames, states } from "./states";
import { visible } from "./text";

/** TaskFilter is a filter as people write it: since and until may be "2h". A missing owner means any, an empty one none. */
export interface TaskFilter {
  state: State[];
  agent?: string;
  tenant?: string;
  owner?: string;
  context?: string;
  since?: string;
  until?: string;
  /** text is what a message says. Only pages of tasks know it: counts, live lists and jobs do not. */
  text?: string;
  /** reason is why tasks failed, apart from numbers and ids in it. It is as text is. */
  reason?: string;
  id?: string;
}

export const fields = ["state", "agent", "tenant", "owner", "context", "since", "until", "text", "reason", "id"] as const;
export type Field = (typeof fields)[number];

/** mayBeEmpty are the fields whose emptiness is a value. */
const mayBeEmpty: readonly Field[] = ["owner", "tenant", "reason"];

export const fieldHelp: Record<Field, string> = {
  state: "failed, working, …",
  agent: "the name of an agent",
  tenant: "a tenant",
  owner: "the subject that made the task",
  context: "the id of a conversation",
  since: "2h, 7d or 2026-01-31T12:00Z",
  until: "created before: 2h, 7d or a time",
  text: "what a message says",
  reason: "why tasks failed, apart from numbers and ids",
  id: "the id of a task",
};

/** isPlain says that live lists, counts and jobs know the filter. A list with an id, a text or a reason is read once. */
export function isPlain(filter: TaskFilter): boolean {
  return filter.id === undefined && filter.text === undefined && filter.reason === undefined;
}

/** fromSearch reads the filter of an address. Unknown states are left out. */
export function fromSearch(search: Search): TaskFilter {
  const filter: TaskFilter = { state: many(search, "state").filter((s): s is State => s in stateNames) };
  for (const name of fields) {
    if (name === "state") continue;
    const value = one(search, name);
    if (value !== undefined && (value !== "" || mayBeEmpty.includes(name))) filter[name] = value;
  }
  return filter;
}

/** toSearch writes a filter into an address, in a fixed order. */
export function toSearch(filter: TaskFilter): Search {
  const out: Search = {};
  if (filter.state.length > 0) out.state = states.filter((s) => filter.state.includes(s));
  for (const name of fields) if (name !== "state" && filter[name] !== undefined) out[name] = filter[name];
  return out;
}

/** isEmpty says whether a filter selects all tasks. */
export function isEmpty(filter: TaskFilter): boolean {
  return Object.keys(toSearch(filter)).length === 0;
}

const spans: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400, w: 7 * 86_400 };

/** toTime returns the time of "2h" or of a date, in the form of requests; undefined if it is neither. */
export function toTime(text: string, now: number): string | undefined {
  const span = /^(\d{1,5})([smhdw])$/.exec(text.trim());
  if (span) return new Date(now - Number(span[1]) * 1000 * (spans[span[2] ?? ""] ?? 0)).toISOString();
  const time = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?$/.test(text.trim())
    ? Date.parse(text)
    : Number.NaN;
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}

/** toQuery returns the parameters of requests for lists. */
export function toQuery(filter: TaskFilter, now: number) {
  return {
    state: filter.state.length > 0 ? filter.state : undefined,
    agent: filter.agent,
    tenant: filter.tenant,
    owner: filter.owner,
    context: filter.context,
    since: filter.since === undefined ? undefined : (toTime(filter.since, now) ?? filter.since),
    until: filter.until === undefined ? undefined : (toTime(filter.until, now) ?? filter.until),
  };
}

/** toJob returns the filter of a job. A job must have one, so all tasks are those created until now. */
export function toJob(filter: TaskFilter, now: number): Filter {
  const { state, ...rest } = toQuery(filter, now);
  const out: Filter = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
  if (state) out.states = state;
  if (Object.keys(out).length === 0) out.until = new Date(now).toISOString();
  return out;
}

/** fromJob returns the filter of a job for an address, so that people can look at what it selects. */
export function fromJob(filter: Filter): Search {
  const { states: list, ...rest } = filter;
  return { ...(list ? { state: [...list] } : {}), ...(rest as Record<string, string>) };
}

/** describe says what a filter selects. */
export function describe(filter: TaskFilter): string {
  const parts = fields.flatMap((name) => {
    const value = name === "state" ? filter.state.join(", ") : filter[name];
    return value === undefined || (name === "state" && value === "")
      ? []
      : [`${name} ${value === "" ? "(none)" : visible(value)}`];
  });
  return parts.join(" · ") || "all tasks";
}

/**
 * add puts "agent:demo" into a filter. A text without a field is an id, which selects one task by itself. It returns why it cannot,
 * or the new filter.
 */
export function add(old: TaskFilter, text: string, now: number): TaskFilter | string {
  const filter = without(old, "id");
  const match = /^(\w+):\s*(.*)$/s.exec(text.trim());
  const known = match && (fields as readonly string[]).includes(match[1] ?? "");
  const name = known ? (match[1] as Field) : "id";
  const value = unquoted(known ? name : undefined, known ? (match[2] ?? "") : text);
  if (name === "state") {
    const state = states.find((s) => s === value || stateNames[s].toLowerCase() === value.toLowerCase());
    if (!state) return `“${value}” is no state. The states are ${states.join(", ")}.`;
    return filter.state.includes(state) ? filter : { ...filter, state: [...filter.state, state] };
  }
  if (value === "" && !mayBeEmpty.includes(name)) return `Give a value: ${name}: ${fieldHelp[name]}`;
  if ((name === "since" || name === "until") && toTime(value, now) === undefined) {
    return `“${value}” is no time. Write 15m, 2h, 7d or 2026-01-31T12:00Z.`;
  }
  return name === "id" ? { state: [], id: value } : { ...filter, [name]: value };
}

/** unquoted takes the quotes off a text or a reason: text:"no such host". */
function unquoted(name: Field | undefined, value: string): string {
  const plain = value.trim();
  return name === "text" || name === "reason" ? plain.replace(/^"(.*)"$/s, "$1") : plain;
}

/** without takes a field, or one of the states, out of a filter. */
export function without(filter: TaskFilter, name: Field, state?: State): TaskFilter {
  if (name === "state") return { ...filter, state: state ? filter.state.filter((s) => s !== state) : [] };
  const { [name]: _, ...rest } = filter;
  return rest as TaskFilter;
}
