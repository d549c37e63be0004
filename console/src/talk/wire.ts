// A2A as clients write and read it: every version, over JSON-RPC and HTTP+JSON.
import { formatJson, LosslessNumber } from "../api/json";
import type { State } from "../api/schema";

export const versions = ["1.0", "0.3", "0.2", "0.1"] as const;
export type Version = (typeof versions)[number];
export type Binding = "jsonrpc" | "rest";

/** bindings are those that a version has, besides gRPC, which no browser speaks. */
export function bindings(version: Version): Binding[] {
  return version === "1.0" || version === "0.3" ? ["jsonrpc", "rest"] : ["jsonrpc"];
}

export const bindingNames: Record<Binding, string> = { jsonrpc: "JSON-RPC", rest: "HTTP+JSON" };

export interface Speech {
  version: Version;
  binding: Binding;
}

export type Part =
  | { kind: "text"; text: string; name?: string; media?: string }
  | { kind: "data"; data: unknown }
  | { kind: "file"; base64: string; name?: string; media?: string }
  | { kind: "url"; url: string; name?: string; media?: string };

export interface Message {
  id?: string;
  role: "user" | "agent";
  parts: Part[];
}

export interface Artifact {
  id: string;
  name?: string;
  description?: string;
  parts: Part[];
}

export interface TaskView {
  id: string;
  contextId?: string;
  state: State;
  message?: Message;
  artifacts: Artifact[];
}

/** Update is what one document of an answer says. */
export type Update =
  | { type: "task"; task: TaskView }
  | { type: "status"; taskId: string; contextId?: string; state: State; message?: Message }
  | { type: "artifact"; taskId: string; contextId?: string; artifact: Artifact; append: boolean }
  | { type: "message"; contextId?: string; message: Message }
  | { type: "error"; code: string; message: string };

export type Op = "send" | "stream" | "subscribe" | "cancel" | "get";

/** Request is a request below the base of an agent. */
export interface Request {
  op: Op;
  /** name is how the binding calls the operation. */
  name: string;
  method: "GET" | "POST";
  path: string;
  headers: Record<string, string>;
  body?: string;
}

const methods: Record<"0.1" | "0.3" | "1.0", Record<Op, string>> = {
  "0.1": {
    send: "tasks/send",
    stream: "tasks/sendSubscribe",
    subscribe: "tasks/resubscribe",
    cancel: "tasks/cancel",
    get: "tasks/get",
  },
  "0.3": {
    send: "message/send",
    stream: "message/stream",
    subscribe: "tasks/resubscribe",
    cancel: "tasks/cancel",
    get: "tasks/get",
  },
  "1.0": {
    send: "SendMessage",
    stream: "SendStreamingMessage",
    subscribe: "SubscribeToTask",
    cancel: "CancelTask",
    get: "GetTask",
  },
};

let counter = 0;

const resumeUri = "https://github.com/holdfast-a2a/holdfast/blob/main/docs/extensions/resume.md";

function build(s: Speech, op: Op, rest: { path: string; method: "GET" | "POST" }, params: unknown, lastEventId = ""): Request {
  const headers: Record<string, string> = {
    Accept: op === "stream" || op === "subscribe" ? "text/event-stream, application/json" : "application/json",
  };
  // 0.1 has no header for its version: the path says it. There the ids of events come on request.
  if (s.version !== "0.1") headers["A2A-Version"] = s.version;
  else if (op === "stream" || op === "subscribe") headers["X-A2A-Extensions"] = resumeUri;
  if (lastEventId) headers["Last-Event-ID"] = lastEventId;
  if (s.binding === "rest") {
    const path = (s.version === "0.3" ? "v1/" : "") + rest.path;
    const request: Request = { op, name: `${rest.method} /${path}`, method: rest.method, path, headers };
    if (rest.method === "POST") {
      headers["Content-Type"] = "application/json";
      request.body = formatJson(params, 0);
    }
    return request;
  }
  const name = methods[s.version === "0.2" ? "0.3" : s.version][op];
  headers["Content-Type"] = "application/json";
  counter += 1;
  return {
    op,
    name,
    method: "POST",
    path: s.version === "0.1" ? "v0.1" : "",
    headers,
    body: formatJson({ jsonrpc: "2.0", id: counter, method: name, params }, 0),
  };
}

export interface Outgoing {
  messageId: string;
  parts: Part[];
  taskId?: string;
  contextId?: string;
}

/** send writes a message. In 0.1 clients choose the ids of tasks, so a message without one needs newTaskId. */
export function send(s: Speech, streaming: boolean, m: Outgoing, newTaskId: string): Request {
  const op = streaming ? "stream" : "send";
  const parts = m.parts.map((p) => writePart(s, p));
  const ids = { ...(m.taskId ? { taskId: m.taskId } : {}), ...(m.contextId ? { contextId: m.contextId } : {}) };
  const rest = { path: streaming ? "message:stream" : "message:send", method: "POST" as const };
  const waits = streaming ? {} : { blocking: true };
  if (s.version === "0.1") {
    const session = m.contextId ? { sessionId: m.contextId } : {};
    return build(s, op, rest, { id: m.taskId ?? newTaskId, ...session, message: { role: "user", parts } });
  }
  if (s.version === "1.0") {
    return build(s, op, rest, {
      message: { messageId: m.messageId, role: "ROLE_USER", parts, ...ids },
      configuration: { acceptedOutputModes: ["*/*"] },
    });
  }
  if (s.binding === "rest") {
    return build(s, op, rest, {
      message: { messageId: m.messageId, role: "ROLE_USER", content: parts, ...ids },
      configuration: { acceptedOutputModes: ["*/*"], ...waits },
    });
  }
  return build(s, op, rest, {
    message: { kind: "message", messageId: m.messageId, role: "user", parts, ...ids },
    configuration: { acceptedOutputModes: ["*/*"], ...waits },
  });
}

/** about writes a request about a task. A subscription begins after the event lastEventId. */
export function about(s: Speech, op: "subscribe" | "cancel" | "get", taskId: string, lastEventId = ""): Request {
  const id = encodeURIComponent(taskId);
  const rest = {
    subscribe: { path: `tasks/${id}:subscribe`, method: "GET" as const },
    cancel: { path: `tasks/${id}:cancel`, method: "POST" as const },
    get: { path: `tasks/${id}`, method: "GET" as const },
  }[op];
  return build(s, op, rest, s.binding === "rest" ? {} : { id: taskId }, lastEventId);
}

function writePart(s: Speech, p: Part): unknown {
  const named = (name?: string, media?: string) => ({ ...(name ? { name } : {}), ...(media ? { mimeType: media } : {}) });
  if (s.version === "1.0") {
    const more = "name" in p && p.name ? { filename: p.name } : {};
    const media = "media" in p && p.media ? { mediaType: p.media } : {};
    switch (p.kind) {
      case "text":
        return { text: p.text, ...more, ...media };
      case "data":
        return { data: p.data };
      case "file":
        return { raw: p.base64, ...more, ...media };
      case "url":
        return { url: p.url, ...more, ...media };
    }
  }
  if (s.binding === "rest") {
    switch (p.kind) {
      case "text":
        return { text: p.text };
      case "data":
        return { data: { data: isObject(p.data) ? p.data : { value: p.data } } };
      case "file":
        return { file: { fileWithBytes: p.base64, ...named(p.name, p.media) } };
      case "url":
        return { file: { fileWithUri: p.url, ...named(p.name, p.media) } };
    }
  }
  const tag = (kind: string) => (s.version === "0.1" ? { type: kind } : { kind });
  switch (p.kind) {
    case "text":
      return { ...tag("text"), text: p.text };
    case "data":
      return { ...tag("data"), data: isObject(p.data) ? p.data : { value: p.data } };
    case "file":
      return { ...tag("file"), file: { bytes: p.base64, ...named(p.name, p.media) } };
    case "url":
      return { ...tag("file"), file: { uri: p.url, ...named(p.name, p.media) } };
  }
}

type Doc = Record<string, unknown>;

/** isObject says whether a parsed value is a JSON object. */
export function isObject(v: unknown): v is Doc {
  return typeof v === "object" && v !== null && !Array.isArray(v) && !(v instanceof LosslessNumber);
}

const text = (v: unknown): string | undefined => (typeof v === "string" && v !== "" ? v : undefined);
const list = (v: unknown): unknown[] => (Array.isArray(v) ? v : []);

/** read reads one document of an answer, in any version. It returns undefined for one that says nothing to a conversation. */
export function read(doc: unknown): Update | undefined {
  if (!isObject(doc)) return undefined;
  if (isObject(doc.error) || (typeof doc.error === "string" && doc.message !== undefined)) return readError(doc);
  if (doc.reason !== undefined && doc.title !== undefined) {
    return { type: "error", code: String(doc.reason), message: text(doc.detail) ?? String(doc.title) };
  }
  if (doc.jsonrpc !== undefined) return read(doc.result);
  if (isObject(doc.task)) return { type: "task", task: readTask(doc.task) };
  if (isObject(doc.statusUpdate)) return readStatus(doc.statusUpdate);
  if (isObject(doc.artifactUpdate)) return readArtifactUpdate(doc.artifactUpdate);
  if (isObject(doc.message)) return readMessageUpdate(doc.message);
  if (isObject(doc.msg)) return readMessageUpdate(doc.msg);
  if (isObject(doc.artifact)) return readArtifactUpdate(doc);
  if (isObject(doc.status)) {
    return doc.kind === "status-update" || doc.final !== undefined ? readStatus(doc) : { type: "task", task: readTask(doc) };
  }
  if (doc.parts !== undefined || doc.content !== undefined) return readMessageUpdate(doc);
  return undefined;
}

function readError(doc: Doc): Update {
  const e = isObject(doc.error) ? doc.error : doc;
  let code = e.code === undefined ? String(doc.error) : String(e.code);
  for (const d of list(e.data).concat(list(e.details))) if (isObject(d) && text(d.reason)) code = String(d.reason);
  return { type: "error", code, message: text(e.message) ?? "The agent's server gave no reason." };
}

/** readState reads a state in any version. */
export function readState(v: unknown, metadata?: unknown): State {
  const name = String(v ?? "")
    .replace(/^TASK_STATE_/, "")
    .toLowerCase()
    .replaceAll("_", "-");
  // A state that the version lacks is shown as the nearest one, and marked.
  const mark = isObject(metadata) ? text(metadata.a2a_state) : undefined;
  const real = mark ?? (name === "cancelled" ? "canceled" : name);
  const known = ["submitted", "working", "input-required", "auth-required", "completed", "failed", "canceled", "rejected"];
  return (known.includes(real) ? real : "working") as State;
}

function statusOf(doc: Doc): { state: State; message?: Message } {
  const status = isObject(doc.status) ? doc.status : {};
  const said = isObject(status.message) ? status.message : isObject(status.update) ? status.update : undefined;
  const message = said ? readMessage(said) : undefined;
  const state = readState(status.state, said?.metadata ?? doc.metadata);
  return message ? { state, message } : { state };
}

function readTask(doc: Doc): TaskView {
  const contextId = text(doc.contextId) ?? text(doc.sessionId);
  return {
    id: String(doc.id ?? ""),
    ...(contextId ? { contextId } : {}),
    ...statusOf(doc),
    artifacts: list(doc.artifacts).filter(isObject).map(readArtifact),
  };
}

function place(doc: Doc): { taskId: string; contextId?: string } {
  const contextId = text(doc.contextId) ?? text(doc.sessionId);
  return { taskId: text(doc.taskId) ?? text(doc.id) ?? "", ...(contextId ? { contextId } : {}) };
}

function readStatus(doc: Doc): Update {
  return { type: "status", ...place(doc), ...statusOf(doc) };
}

function readArtifactUpdate(doc: Doc): Update {
  const artifact = isObject(doc.artifact) ? doc.artifact : {};
  const append = doc.append === true || artifact.append === true;
  return { type: "artifact", ...place(doc), artifact: readArtifact(artifact), append };
}

function readArtifact(doc: Doc): Artifact {
  const id = text(doc.artifactId) ?? text(doc.artifact_id) ?? `index ${String(doc.index ?? 0)}`;
  const name = text(doc.name);
  const description = text(doc.description);
  return {
    id,
    ...(name ? { name } : {}),
    ...(description ? { description } : {}),
    parts: list(doc.parts).filter(isObject).map(readPart),
  };
}

function readMessageUpdate(doc: Doc): Update {
  const contextId = text(doc.contextId);
  return { type: "message", ...(contextId ? { contextId } : {}), message: readMessage(doc) };
}

function readMessage(doc: Doc): Message {
  const id = text(doc.messageId);
  const parts = Array.isArray(doc.parts) ? doc.parts : list(doc.content);
  return {
    ...(id ? { id } : {}),
    role: /user/i.test(String(doc.role)) ? "user" : "agent",
    parts: parts.filter(isObject).map(readPart),
  };
}

function readPart(p: Doc): Part {
  const metadata = isObject(p.metadata) ? p.metadata : {};
  const more = (name: unknown, media: unknown) => ({
    ...(text(name) ? { name: text(name) as string } : {}),
    ...(text(media) ? { media: text(media) as string } : {}),
  });
  if (typeof p.text === "string") {
    return { kind: "text", text: p.text, ...more(p.filename ?? metadata.filename, p.mediaType ?? metadata.mediaType) };
  }
  if (typeof p.raw === "string") return { kind: "file", base64: p.raw, ...more(p.filename, p.mediaType) };
  if (typeof p.url === "string") return { kind: "url", url: p.url, ...more(p.filename, p.mediaType) };
  if (isObject(p.file)) {
    const f = p.file;
    const names = more(f.name, f.mimeType ?? f.mime_type);
    const uri = f.uri ?? f.fileWithUri;
    if (typeof uri === "string") return { kind: "url", url: uri, ...names };
    return { kind: "file", base64: String(f.bytes ?? f.fileWithBytes ?? ""), ...names };
  }
  let data: unknown = p.data;
  // HTTP+JSON of 0.3 has a message DataPart around the data.
  if (p.kind === undefined && p.type === undefined && isObject(data) && Object.keys(data).length === 1 && isObject(data.data)) {
    data = data.data;
  }
  if (metadata.data_part_compat === true && isObject(data)) data = data.value;
  return { kind: "data", data };
}

/** appended returns parts with those that continue them. Text continues the text before it. */
export function appended(parts: Part[], more: Part[]): Part[] {
  const out = [...parts];
  for (const p of more) {
    const last = out.at(-1);
    if (last?.kind === "text" && p.kind === "text" && last.media === p.media)
      out[out.length - 1] = { ...last, text: last.text + p.text };
    else out.push(p);
  }
  return out;
}

/** newId returns an id that nobody else has. Pages without TLS have no crypto.randomUUID. */
export function newId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  return (
    prefix +
    Array.from(bytes, (b) => b.toString(36).padStart(2, "0"))
      .join("")
      .slice(0, 16)
  );
}
