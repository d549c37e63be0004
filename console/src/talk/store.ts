// The conversations of this tab: what was said, how each task stands, and the frames on the wire.
import { useSyncExternalStore } from "react";
import { formatJson, parseJson } from "../api/json";
import type { State, Talks } from "../api/schema";
import { one, type Search } from "../lib/search";
import { isFinal } from "../lib/states";
import { sseReader } from "./sse";
import {
  about,
  appended,
  type Message,
  newId,
  type Part,
  type Request,
  read,
  type Speech,
  send,
  type TaskView,
  type Update,
} from "./wire";

export interface Caller {
  subject: string;
  tenant: string;
  scopes: string;
  reason: string;
}

export const anonymous: Caller = { subject: "", tenant: "", scopes: "", reason: "" };

export interface Setup {
  agent: string;
  caller: Caller;
  speech: Speech;
  streaming: boolean;
}

export type Entry = { key: string; at: number } & (
  | { kind: "me"; parts: Part[]; failed?: boolean }
  | { kind: "agent"; parts: Part[]; messageId?: string; state?: State }
  | { kind: "artifact"; taskId: string; artifactId: string; name?: string; description?: string; parts: Part[] }
  | { kind: "state"; taskId: string; state: State }
  | { kind: "cut"; after: string; by: "you" | "network" | "server" }
  | { kind: "resumed"; after: string; whole?: "checking" | "yes" | "no" }
  | { kind: "error"; title: string; detail: string }
);

export interface Frame {
  n: number;
  at: number;
  kind: "request" | "response" | "event" | "note";
  label: string;
  /** status is that of HTTP. */
  status?: number;
  /** id is that of the event. */
  id?: string;
  text: string;
  headers?: Record<string, string>;
  request?: Request;
  ms?: number;
}

export interface Conversation {
  id: string;
  began: number;
  title: string;
  setup: Setup;
  contextId?: string;
  taskId?: string;
  state?: State;
  entries: Entry[];
  frames: Frame[];
  /** dropped is how many of the oldest frames are not kept. */
  dropped: number;
  live: "idle" | "sending" | "streaming" | "cut" | "resuming";
  lastEventId: string;
  cuts: number;
}

const mostFrames = 1000;

let all: Conversation[] = [];
const listeners = new Set<() => void>();
let shown: Conversation[] = all;
let due = false;

/** change replaces a conversation. Readers learn of it once per frame, however many events come. */
function change(id: string, how: (c: Conversation) => Partial<Conversation>): void {
  all = all.map((c) => (c.id === id ? { ...c, ...how(c) } : c));
  if (due) return;
  due = true;
  setTimeout(tell, 16);
}

function tell(): void {
  due = false;
  shown = all;
  for (const one of listeners) one();
}

export function conversation(id: string): Conversation | undefined {
  return all.find((c) => c.id === id);
}

/** useConversations returns the conversations of this tab, the newest first. */
export function useConversations(): Conversation[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => shown,
  );
}

/** setupOf returns how a new conversation begins: in the newest version, with the agent and the caller of an address. */
export function setupOf(talks: Talks, search: Search): Setup {
  const name = one(search, "agent") ?? talks.agents.find((a) => a.default)?.name ?? talks.agents[0]?.name ?? "";
  const open = talks.agents.find((a) => a.name === name)?.schemes.length === 0;
  return {
    agent: name,
    caller: open
      ? anonymous
      : { ...anonymous, subject: one(search, "subject") ?? "", tenant: one(search, "tenant") ?? talks.tenant ?? "" },
    speech: { version: "1.0", binding: "jsonrpc" },
    streaming: true,
  };
}

/** start begins a conversation, or continues a task or a context. */
export function start(setup: Setup, from: { taskId?: string; contextId?: string } = {}): string {
  const id = newId("c-");
  const c: Conversation = {
    id,
    began: Date.now(),
    title: "",
    setup,
    ...from,
    entries: [],
    frames: [],
    dropped: 0,
    live: "idle",
    lastEventId: "",
    cuts: 0,
  };
  all = [c, ...all];
  tell();
  if (from.taskId) void request(id, about(setup.speech, "get", from.taskId));
  return id;
}

/** setUp changes how a conversation goes on. */
export function setUp(id: string, some: Partial<Setup>): void {
  change(id, (c) => ({ setup: { ...c.setup, ...some } }));
  tell();
}

/** close forgets a conversation. Its tasks go on. */
export function close(id: string): void {
  open.get(id)?.abort();
  clearTimeout(timers.get(id));
  all = all.filter((c) => c.id !== id);
  tell();
}

let keys = 0;

type New<T> = T extends unknown ? Omit<T, "key" | "at"> : never;

function add(id: string, entry: New<Entry>): void {
  keys += 1;
  change(id, (c) => ({ entries: [...c.entries, { ...entry, key: `e${keys}`, at: Date.now() } as Entry] }));
}

let frameNumber = 0;

function frame(id: string, one: Omit<Frame, "n" | "at">): void {
  frameNumber += 1;
  const full = { ...one, n: frameNumber, at: Date.now() };
  change(id, (c) => {
    const frames = [...c.frames, full];
    return frames.length > mostFrames
      ? { frames: frames.slice(-mostFrames), dropped: c.dropped + frames.length - mostFrames }
      : { frames };
  });
}

// The open stream of each conversation, and what resumes one that was cut.
const open = new Map<string, AbortController>();
const timers = new Map<string, ReturnType<typeof setTimeout>>();

export function callerHeaders(caller: Caller): Record<string, string> {
  const out: Record<string, string> = {};
  if (caller.subject) out["Holdfast-Subject"] = encodeURIComponent(caller.subject);
  if (caller.tenant) out["Holdfast-Tenant"] = encodeURIComponent(caller.tenant);
  if (caller.scopes.trim()) out["Holdfast-Scopes"] = encodeURIComponent(caller.scopes.trim());
  if (caller.reason.trim()) out["Holdfast-Reason"] = encodeURIComponent(caller.reason.trim());
  return out;
}

function transport(setup: Setup, r: Request, signal: AbortSignal): Promise<Response> {
  return fetch(`/admin/v1/talk/${encodeURIComponent(setup.agent)}/${r.path}`, {
    method: r.method,
    headers: { ...r.headers, ...callerHeaders(setup.caller) },
    credentials: "same-origin",
    cache: "no-store",
    redirect: "error",
    signal,
    ...(r.body === undefined ? {} : { body: r.body }),
  });
}

/** say sends a message. */
export async function say(id: string, parts: Part[]): Promise<void> {
  const c = conversation(id);
  if (c?.live !== "idle") return;
  const { speech, streaming } = c.setup;
  const taskId = c.taskId && c.state && !isFinal(c.state) ? c.taskId : undefined;
  const chosen = speech.version === "0.1" ? (taskId ?? newId("task-")) : "";
  const r = send(
    speech,
    streaming,
    {
      messageId: newId("m-"),
      parts,
      ...(taskId ? { taskId } : {}),
      ...(c.contextId ? { contextId: c.contextId } : {}),
    },
    chosen,
  );
  add(id, { kind: "me", parts });
  change(id, (now) => ({
    title: now.title || titleOf(parts),
    live: "sending",
    lastEventId: taskId ? now.lastEventId : "",
    ...(chosen ? { taskId: chosen } : {}),
    ...(chosen || taskId ? {} : { taskId: undefined, state: undefined }),
  }));
  tell();
  await request(id, r);
}

function titleOf(parts: Part[]): string {
  for (const p of parts) {
    if (p.kind === "text" && p.text.trim()) return p.text.trim().slice(0, 80);
    if (p.kind === "file" && p.name) return p.name;
  }
  return parts[0]?.kind === "data" ? formatJson(parts[0].data, 0).slice(0, 80) : "A message";
}

interface Answer {
  response: Response;
  ms: number;
}

/** asked sends a request and shows it in the frames. answered shows its answer there. */
async function asked(id: string, setup: Setup, r: Request, signal: AbortSignal): Promise<Answer> {
  frame(id, {
    kind: "request",
    label: r.name,
    text: r.body ?? "",
    headers: { ...r.headers, ...callerHeaders(setup.caller) },
    request: r,
  });
  const began = performance.now();
  const response = await transport(setup, r, signal);
  return { response, ms: Math.round(performance.now() - began) };
}

function answered(id: string, { response, ms }: Answer, text: string, label = response.ok ? "answer" : "refused"): void {
  frame(id, { kind: "response", label, status: response.status, text, headers: Object.fromEntries(response.headers), ms });
}

/** request sends a request, and applies its answer to the conversation. */
async function request(id: string, r: Request): Promise<void> {
  const c = conversation(id);
  if (!c) return;
  const streams = r.op === "stream" || r.op === "subscribe";
  const abort = new AbortController();
  open.set(id, abort);
  let got: Answer;
  try {
    got = await asked(id, c.setup, r, abort.signal);
  } catch {
    if (abort.signal.aborted) return broken(id, r, abort.signal.reason === "you" ? "you" : "gone");
    frame(id, { kind: "note", label: "No answer: the connection failed", text: "" });
    return broken(id, r, "network");
  }
  const answer = got.response;
  const media = answer.headers.get("Content-Type") ?? "";
  if (answer.ok && media.startsWith("text/event-stream") && answer.body) {
    answered(id, got, "", "stream opened");
    change(id, () => ({ live: "streaming" }));
    if (r.op === "subscribe") add(id, { kind: "resumed", after: r.headers["Last-Event-ID"] ?? "" });
    return follow(id, r, answer.body, abort.signal);
  }
  let text = "";
  try {
    text = await answer.text();
  } catch {
    return broken(id, r, abort.signal.aborted ? (abort.signal.reason === "you" ? "you" : "gone") : "network");
  }
  answered(id, got, text);
  if (streams && (answer.status === 503 || answer.status === 429) && resumable(conversation(id)) && r.op === "subscribe") {
    return broken(id, r, "network");
  }
  if (answer.status === 204) {
    // The stream has ended, and we have seen all of it. The task says how it ended.
    const taskId = conversation(id)?.taskId;
    if (taskId) return request(id, about(c.setup.speech, "get", taskId));
  }
  const update = parsed(text);
  if (update) apply(id, update, r);
  else if (!answer.ok || text) {
    add(id, { kind: "error", title: `HTTP ${answer.status}`, detail: text.slice(0, 500) || answer.statusText });
  }
  idle(id);
}

function parsed(text: string): Update | undefined {
  try {
    return read(parseJson(text));
  } catch {
    return undefined;
  }
}

/** A subscription may stay open while its task waits for an answer. After this silence the page leaves it. */
const parkedQuiet = 1500;

async function follow(id: string, r: Request, body: ReadableStream<Uint8Array>, signal: AbortSignal): Promise<void> {
  let quiet: ReturnType<typeof setTimeout> | undefined;
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const events = sseReader();
  try {
    for (;;) {
      const state = conversation(id)?.state;
      if (r.op === "subscribe" && state !== undefined && settled(state)) {
        quiet = setTimeout(() => open.get(id)?.abort("parked"), parkedQuiet);
      }
      const { done, value } = await reader.read();
      clearTimeout(quiet);
      if (done) break;
      for (const e of events(decoder.decode(value, { stream: true }))) {
        frame(id, { kind: "event", label: e.name ?? "event", text: e.data, ...(e.id === undefined ? {} : { id: e.id }) });
        const update = parsed(e.data);
        if (update) apply(id, update, r);
        if (e.id !== undefined) change(id, () => ({ lastEventId: e.id as string }));
      }
    }
  } catch {
    clearTimeout(quiet);
    if (signal.reason === "parked") return settle(id);
    return broken(id, r, signal.aborted ? (signal.reason === "you" ? "you" : "gone") : "network");
  }
  const c = conversation(id);
  frame(id, { kind: "note", label: "The server closed the stream", text: "" });
  const said = c?.entries.at(-1);
  if (c?.state && !settled(c.state) && said?.kind !== "error") return broken(id, r, "server");
  await settle(id);
}

/** settled says whether a stream of the task has nothing more to say for now. */
function settled(state: State): boolean {
  return isFinal(state) || state === "input-required" || state === "auth-required";
}

function resumable(c: Conversation | undefined): c is Conversation {
  return c?.taskId !== undefined && c.state !== undefined && !settled(c.state);
}

const pauses = [1000, 1000, 2000, 4000, 8000, 8000, 8000, 8000];
/** A cut that the reader has made stays visible for this time. */
const staysCut = 4000;

function broken(id: string, r: Request, by: "you" | "network" | "server" | "gone"): void {
  open.delete(id);
  if (by === "gone") return;
  const c = conversation(id);
  if (!c) return;
  if (!resumable(c)) {
    if (by === "network") {
      add(id, {
        kind: "error",
        title: "No answer",
        detail:
          r.op === "send" || r.op === "stream"
            ? "The connection broke before the answer. The message may be stored: look for its task before you send it again."
            : "The connection broke before the answer.",
      });
    }
    idle(id);
    return;
  }
  if (c.live !== "cut" && c.live !== "resuming") add(id, { kind: "cut", after: c.lastEventId, by });
  frame(id, { kind: "note", label: by === "you" ? "You cut the connection" : "The connection broke", text: "" });
  const tries = c.live === "resuming" ? c.cuts : 0;
  const pause = pauses[tries];
  if (pause === undefined) {
    add(id, {
      kind: "error",
      title: "The stream could not be resumed",
      detail: "The server does not answer. Press Resume to try again.",
    });
    change(id, () => ({ live: "cut", cuts: 0 }));
    return;
  }
  change(id, () => ({ live: "cut", cuts: tries + 1 }));
  tell();
  clearTimeout(timers.get(id));
  timers.set(
    id,
    setTimeout(() => void resume(id), by === "you" ? staysCut : pause),
  );
}

/** cut kills the connection of a stream, as a network would. */
export function cut(id: string): void {
  open.get(id)?.abort("you");
}

/** resume opens the stream again after the last event. */
export async function resume(id: string): Promise<void> {
  const c = conversation(id);
  clearTimeout(timers.get(id));
  if (!c?.taskId || c.live !== "cut") return;
  change(id, () => ({ live: "resuming" }));
  tell();
  await request(id, about(c.setup.speech, "subscribe", c.taskId, c.lastEventId));
}

/** cancel asks the agent to end the task. The answer of a stream goes on until it has ended. */
export async function cancel(id: string): Promise<void> {
  const c = conversation(id);
  if (!c?.taskId) return;
  const r = about(c.setup.speech, "cancel", c.taskId);
  try {
    const got = await asked(id, c.setup, r, AbortSignal.timeout(60_000));
    const text = await got.response.text();
    answered(id, got, text);
    const update = parsed(text);
    if (update && (update.type === "error" || !open.has(id))) apply(id, update, r);
  } catch {
    add(id, { kind: "error", title: "No answer", detail: "The server did not say whether it cancels the task." });
  }
}

function idle(id: string): void {
  open.delete(id);
  change(id, () => ({ live: "idle", cuts: 0 }));
  tell();
}

/** settle ends a stream. One that was resumed is compared with the task as it is stored. */
async function settle(id: string): Promise<void> {
  const c = conversation(id);
  const resumed = c?.entries.findLast((e) => e.kind === "resumed");
  if (c?.taskId && resumed?.kind === "resumed" && resumed.whole === undefined) {
    const whole = (to: "checking" | "yes" | "no") =>
      change(id, (now) => ({
        entries: now.entries.map((e) =>
          e.kind === "resumed" && (e.whole === undefined || e.whole === "checking") ? { ...e, whole: to } : e,
        ),
      }));
    whole("checking");
    const r = about(c.setup.speech, "get", c.taskId);
    frame(id, {
      kind: "request",
      label: r.name,
      text: r.body ?? "",
      headers: { ...r.headers, ...callerHeaders(c.setup.caller) },
      request: r,
    });
    try {
      const answer = await transport(c.setup, r, AbortSignal.timeout(30_000));
      const text = await answer.text();
      frame(id, {
        kind: "response",
        label: "answer",
        status: answer.status,
        text,
        headers: Object.fromEntries(answer.headers),
      });
      const update = parsed(text);
      whole(update?.type === "task" && sameArtifacts(conversation(id), update.task) ? "yes" : "no");
    } catch {
      whole("no");
    }
  }
  idle(id);
}

/** sameArtifacts says whether the stream has given what is stored, each event once. */
export function sameArtifacts(c: Conversation | undefined, task: TaskView): boolean {
  const ours = new Map<string, string>();
  for (const e of c?.entries ?? []) {
    if (e.kind === "artifact" && e.taskId === task.id) ours.set(e.artifactId, formatJson(e.parts, 0));
  }
  return (
    ours.size === task.artifacts.length && task.artifacts.every((a) => ours.get(a.id) === formatJson(appended([], a.parts), 0))
  );
}

function apply(id: string, u: Update, r: Request): void {
  switch (u.type) {
    case "error":
      add(id, { kind: "error", title: u.code, detail: u.message });
      if (r.op === "send" || r.op === "stream") {
        change(id, (c) => {
          const at = c.entries.findLastIndex((e) => e.kind === "me");
          return { entries: c.entries.map((e, i) => (i === at && e.kind === "me" ? { ...e, failed: true } : e)) };
        });
      }
      return;
    case "message":
      if (u.contextId) change(id, () => ({ contextId: u.contextId }));
      add(id, { kind: "agent", parts: u.message.parts, ...(u.message.id ? { messageId: u.message.id } : {}) });
      return;
    case "task":
      place(id, u.task.id, u.task.contextId);
      if (r.op !== "subscribe" || u.task.artifacts.length > 0) snapshot(id, u.task);
      status(id, u.task.id, u.task.state, u.task.message);
      return;
    case "status":
      place(id, u.taskId, u.contextId);
      status(id, u.taskId, u.state, u.message);
      return;
    case "artifact":
      place(id, u.taskId, u.contextId);
      artifact(id, u.taskId, u.artifact, u.append);
  }
}

function place(id: string, taskId: string, contextId: string | undefined): void {
  change(id, (c) => ({
    ...(taskId ? { taskId } : {}),
    ...((contextId ?? c.contextId) ? { contextId: contextId ?? c.contextId } : {}),
  }));
}

function status(id: string, taskId: string, state: State, message: Message | undefined): void {
  const c = conversation(id);
  if (!c) return;
  const known = c.entries.some((e) => e.kind === "agent" && message?.id !== undefined && e.messageId === message.id);
  if (message && message.parts.length > 0 && message.role === "agent" && !known && !repeats(c, message, state)) {
    add(id, { kind: "agent", parts: message.parts, state, ...(message.id ? { messageId: message.id } : {}) });
  }
  const last = c.entries.findLast((e) => e.kind === "state" && e.taskId === taskId);
  if (last?.kind !== "state" || last.state !== state) add(id, { kind: "state", taskId, state });
  change(id, () => ({ state }));
}

/** repeats says whether an answer repeats the message before: versions without ids of messages show a status twice. */
function repeats(c: Conversation, message: Message, state: State): boolean {
  if (message.id) return false;
  const last = c.entries.findLast((e) => e.kind !== "state");
  return last?.kind === "agent" && last.state === state && formatJson(last.parts, 0) === formatJson(message.parts, 0);
}

function snapshot(id: string, task: TaskView): void {
  for (const a of task.artifacts) artifact(id, task.id, a, false);
}

function artifact(id: string, taskId: string, a: TaskView["artifacts"][number], append: boolean): void {
  const c = conversation(id);
  const old = c?.entries.find((e) => e.kind === "artifact" && e.taskId === taskId && e.artifactId === a.id);
  if (!old) {
    const { parts, id: artifactId, ...named } = a;
    add(id, { kind: "artifact", taskId, artifactId, ...named, parts: appended([], parts) });
    return;
  }
  change(id, (now) => ({
    entries: now.entries.map((e) =>
      e.key === old.key && e.kind === "artifact" ? { ...e, parts: appended(append ? e.parts : [], a.parts) } : e,
    ),
  }));
}
