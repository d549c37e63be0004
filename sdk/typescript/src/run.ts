import { RunApiError, raised, StateChanged, Stopped, tooLarge } from "./errors.js";
import { type Answer, Backoff, problemOf, type Transport, temporary } from "./http.js";
import { type Json, type JsonObject, parse, stringify } from "./json.js";
import { describe, type Logger, withFields } from "./log.js";
import type {
  Artifact,
  ArtifactEntry,
  Call,
  Event,
  EventOptions,
  InputDocument,
  MessageDocument,
  NewArtifact,
  NewPart,
  Part,
  RecordDocument,
  RecordsDocument,
  ResultDocument,
  Resume,
  RunDocument,
  SaidDocument,
  Scope,
  Speech,
  StoredState,
  TaskEntry,
} from "./types.js";
import { Uploader } from "./uploader.js";

type WithContent<T> = T & {
  /** The text of its text parts: of a message joined by newlines, of an artifact by nothing. */
  readonly text: string;
  /** The value of its first data part, or undefined. */
  readonly data: Json | undefined;
};

/** A message, with its text and its data. */
export type Message = WithContent<MessageDocument>;

/** An entry of the history, with its text and its data. */
export type Said = WithContent<SaidDocument>;

/** What came of a call. */
export type Result = ResultDocument & {
  /** The text of its artifacts, or else of its message. */
  readonly text: string;
};

/** What began the turn, if not only a message. */
export type Input = Extract<InputDocument, { source: "timer" | "resume" }> | { source: "calls"; results: Result[] };

/** A task that the message refers to. */
export interface Reference {
  id: string;
  contextId: string;
  state: string;
  history: Said[];
}

/** The cancel of a client. */
export interface Cancel {
  /** Of the request that canceled the task. */
  metadata: JsonObject;
}

/** What a reading of the history returns: the newest entries, oldest first. */
export interface HistoryOptions {
  /** At most so many entries. */
  count?: number;
  /** At most so many bytes. An entry of more than half of it comes without its content. */
  bytes?: number;
  /** With the messages of the status working. */
  progress?: boolean;
  /** `next` of an earlier answer. */
  before?: string;
}

/** A part of a conversation. */
export interface HistoryPage {
  history: Said[];
  /** Where older entries begin, for `before`. Without it there are none. */
  next?: string;
}

/** One run: a message to answer, and the ways to answer. The methods that emit keep the order of their calls. */
export class Run {
  /** The run document as it came. */
  readonly document: RunDocument;
  readonly agent: string;
  readonly taskId: string;
  /** For memory of the task that is not Holdfast's. Another caller's task may have the same `taskId`. */
  readonly taskKey: string;
  readonly contextId: string;
  /** For memory of the context that is not Holdfast's: no other caller or agent has it. Clients choose `contextId`. */
  readonly contextKey: string;
  readonly tenant: string;
  readonly owner: string;
  /** What to answer. Without parts if a timer, the results of calls or a resume URL began the turn. */
  readonly message: Message;
  readonly input: Input | undefined;
  /** The results of calls, if they began the turn. */
  readonly results: Result[];
  /** Of the request that created the task. */
  readonly metadata: JsonObject;
  /** Of the request with this message, from the second turn on. */
  readonly turnMetadata: JsonObject;
  /** Media types that the client can read; empty: any. */
  readonly acceptedOutputModes: string[];
  readonly extensions: string[];
  readonly extensionParams: { [uri: string]: JsonObject };
  /** Of the caller. */
  readonly scopes: string[];
  readonly traceparent: string;
  /** The id of the trace, or "". */
  readonly traceId: string;
  readonly deadline: Date | undefined;
  /** 1 for the task's first message. */
  readonly turn: number;
  /** 1 for the first run for this message. */
  readonly try: number;
  /** Rises with every run of the task. */
  readonly attempt: number;
  /** The same for every try at this message, different for everything else. Pass it to services with side effects. */
  readonly idempotencyKey: string;
  /** What was said before this message, oldest first. */
  readonly history: Said[];
  readonly references: Reference[];
  /** What the last checkpoint of earlier tries at this message stored, or undefined. */
  readonly lastCheckpoint: Json | undefined;
  /** The artifacts that earlier tries at this message left. */
  readonly earlier: { artifactId: string; name?: string; chunks: number; last: boolean }[];
  /** Begins the next turn if this one ends with a question with `resume`. Everybody with it can answer. Or "". */
  readonly resumeUrl: string;
  /** Logs with the task, the run and the trace. */
  readonly log: Logger;

  readonly #states: { task?: StoredState; context?: StoredState };
  readonly #stop = new AbortController();
  readonly #uploader: Uploader;
  readonly #transport: Transport;
  readonly #token: string;
  readonly #over: (reason: Stopped) => void;
  #canceled: Cancel | undefined;

  /** @internal */
  constructor(
    document: RunDocument,
    transport: Transport,
    log: Logger,
    id = "",
    /** Told when the server says that the run is over. */
    over: (reason: Stopped) => void = () => {},
  ) {
    const { task } = document;
    this.document = document;
    this.agent = task.agent;
    this.taskId = task.id;
    this.taskKey = task.key;
    this.contextId = task.contextId;
    this.contextKey = task.contextKey;
    this.tenant = task.tenant ?? "";
    this.owner = task.owner ?? "";
    this.message = withContent(document.message ?? { role: "user", parts: [] });
    this.input = inputOf(document.input);
    this.results = this.input?.source === "calls" ? this.input.results : [];
    this.metadata = document.metadata ?? {};
    this.turnMetadata = document.turnMetadata ?? {};
    this.acceptedOutputModes = document.acceptedOutputModes ?? [];
    this.extensions = document.extensions ?? [];
    this.extensionParams = document.extensionParams ?? {};
    this.scopes = document.scopes ?? [];
    this.traceparent = document.traceparent ?? "";
    this.traceId = this.traceparent.split("-")[1] ?? "";
    this.deadline = document.deadline === undefined ? undefined : new Date(document.deadline);
    this.turn = document.turn;
    this.try = document.try;
    this.attempt = document.attempt;
    this.idempotencyKey = document.idempotencyKey;
    this.history = (document.history ?? []).map(withContent);
    this.references = (document.references ?? []).map((r) => ({ ...r, history: (r.history ?? []).map(withContent) }));
    this.lastCheckpoint = document.checkpoint;
    this.earlier = document.earlier ?? [];
    this.#states = { ...document.state };
    this.resumeUrl = document.resume?.url ?? "";
    this.log = withFields(log, { agent: task.agent, task_id: task.id, run: id, trace_id: this.traceId || undefined });
    this.#transport = transport;
    this.#over = over;
    this.#token = document.runApi?.token ?? "";
    this.#uploader = new Uploader(
      transport,
      () => this.#token,
      (reason) => {
        this.#stop.abort(reason);
        over(reason);
      },
      (error, fields) => this.log.warn("upload failed, will retry", { error, ...fields }),
      document.limits?.event,
    );
  }

  /** Aborted when the run must stop. Its reason is a Stopped. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** The cancel of the client, if it has canceled the task. */
  get canceled(): Cancel | undefined {
    return this.#canceled;
  }

  /** @internal */
  get uploader(): Uploader {
    return this.#uploader;
  }

  /** @internal Tells the agent's code to stop. Only after a cancel and for a drain may it still emit. */
  interrupt(reason: Stopped): void {
    if (reason.reason === "canceled") this.#canceled ??= { metadata: reason.metadata ?? {} };
    if (reason.reason === "lost" || reason.reason === "over") this.#uploader.stop(reason);
    this.#stop.abort(reason);
  }

  /** Waits until everything that was emitted is committed. Emitting itself waits only for room in a queue. */
  async flush(): Promise<void> {
    await this.#uploader.flush();
  }

  /**
   * Adds text to an artifact. Texts of one name are one artifact; the first of a run replaces what an earlier try left after its
   * checkpoint, unless `append` is true.
   */
  text(text: string, o: { name?: string; artifactId?: string; append?: boolean; last?: boolean } = {}): Promise<void> {
    if (typeof text !== "string") throw new TypeError(`text: ${typeof text} is not a string`);
    return this.#emit({ type: "text", text, name: o.name, artifactId: o.artifactId, append: o.append, last: o.last });
  }

  /** Emits an artifact, or with `append` a piece of the one with its artifactId. */
  artifact(artifact: NewArtifact, o: EventOptions & { append?: boolean; last?: boolean } = {}): Promise<void> {
    if (o.append && !artifact.artifactId) throw new TypeError("artifact.artifactId: a piece needs the id of its artifact");
    const { parts } = artifact;
    return this.#emit({
      type: "artifact",
      artifact: { ...artifact, parts: partsOf(parts, "artifact") },
      append: o.append,
      last: o.last,
      metadata: o.metadata,
    });
  }

  /** Reports progress, with a message or as a sign of life. */
  status(message?: Speech, o: EventOptions = {}): Promise<void> {
    return this.#emit({ type: "status", message: optional(message), metadata: o.metadata });
  }

  /** Stores the progress of the run, for the next try. */
  checkpoint(data: unknown): Promise<void> {
    return this.#emit({ type: "checkpoint", data: required(data, "checkpoint") });
  }

  /** Ends the run with a question. The client's answer is the next turn. */
  ask(message: Speech, o: EventOptions & { resume?: Resume } = {}): Promise<void> {
    return this.#emit({ type: "ask", message: speech(message), metadata: o.metadata, resume: o.resume });
  }

  /** Ends the run until the client has authenticated, or somebody has used the resume URL. */
  auth(message?: Speech, o: EventOptions & { resume?: Resume } = {}): Promise<void> {
    return this.#emit({ type: "auth", message: optional(message), metadata: o.metadata, resume: o.resume });
  }

  /** Ends the task as completed. Returning from the function does so, too. */
  complete(message?: Speech, o: EventOptions = {}): Promise<void> {
    return this.#emit({ type: "complete", message: optional(message), metadata: o.metadata });
  }

  /** Ends the task as failed, with a message that the client reads. Operators read the error, with its stack. */
  fail(message: Speech, o: EventOptions & { error?: unknown } = {}): Promise<void> {
    return this.#emit({ type: "fail", message: speech(message), metadata: o.metadata, error: raised(o.error) });
  }

  /** Ends the task as rejected: the agent will not do it. */
  reject(message?: Speech, o: EventOptions = {}): Promise<void> {
    return this.#emit({ type: "reject", message: optional(message), metadata: o.metadata });
  }

  /** Answers with a bare message instead of a task. It must be the only event, and the agent have direct_replies. */
  reply(message: Speech): Promise<void> {
    return this.#emit({ type: "reply", message: speech(message) });
  }

  /** Ends this try. Holdfast retries the run after so many seconds, or after its backoff. */
  retry(reason?: string, o: { after?: number } = {}): Promise<void> {
    return this.#emit({ type: "retry", reason, after: o.after });
  }

  /** Ends the run. The next turn begins at a time, or after so many seconds; if it is interruptible, also with a message. */
  wait(o: ({ for: number } | { until: Date | string }) & { interruptible?: boolean }): Promise<void> {
    const at = "until" in o ? { until: o.until instanceof Date ? o.until.toISOString() : o.until } : { for: o.for };
    return this.#emit({ type: "wait", ...at, interruptible: o.interruptible });
  }

  /** Ends the run with calls of other agents. Their results begin the next turn. */
  call(...calls: Call[]): Promise<void> {
    if (calls.length === 0) throw new TypeError("call: there is no call");
    return this.#emit({
      type: "call",
      calls: calls.map((c, i) => ({ ...c, message: speech(c.message, `calls[${i}].message`) })),
    });
  }

  /** The run document, read again: the history within the same bounds, and the present states. */
  async read(): Promise<RunDocument> {
    return (await this.#get("")) as unknown as RunDocument;
  }

  /** A part of the conversation before this message. Scope context: also the owner's other tasks with this agent in the context. */
  async readHistory(o: HistoryOptions & { scope?: Scope } = {}): Promise<HistoryPage> {
    return pageOf((await this.#get(`/history${query({ ...o })}`)) as unknown as HistoryPage);
  }

  /** @internal What durable runs of the task have recorded, oldest first. */
  async readRecords(): Promise<RecordDocument[]> {
    const all = [...(this.document.records?.records ?? [])];
    for (let next = this.document.records?.next; next !== undefined; ) {
      const page = (await this.#get(`/records${query({ after: next })}`)) as unknown as RecordsDocument;
      all.push(...page.records);
      next = page.next;
    }
    return all;
  }

  /** The artifacts of the task, those of this run included, without their contents. */
  readArtifacts(): AsyncGenerator<ArtifactEntry, void, undefined> {
    return this.#list<ArtifactEntry>("/artifacts", "artifacts", "after");
  }

  /** An artifact with its content, or undefined. */
  async readArtifact(artifactId: string): Promise<Artifact | undefined> {
    return (await this.#getOr404(`/artifacts/${encodeURIComponent(artifactId)}`)) as Artifact | undefined;
  }

  /** The other tasks of the context that have ended or wait for their client, the newest first. */
  readTasks(): AsyncGenerator<TaskEntry, void, undefined> {
    return this.#list<TaskEntry>("/tasks", "tasks", "before");
  }

  /** One of the other tasks of the context with what was said in it, or undefined. */
  async readTask(taskId: string, o: HistoryOptions = {}): Promise<(TaskEntry & HistoryPage) | undefined> {
    const found = (await this.#getOr404(`/tasks/${encodeURIComponent(taskId)}${query({ ...o })}`)) as
      | (TaskEntry & HistoryPage)
      | undefined;
    return found && pageOf(found);
  }

  /** The stored value, as this run has last read or stored it, or else as it was when the run began. Version 0: nothing is stored. */
  state(scope: Scope = "task"): StoredState {
    return this.#states[scope] ?? { data: null, version: 0 };
  }

  /** Reads what is stored for the task or the context now. */
  async getState(scope: Scope = "task"): Promise<StoredState> {
    const stored = (await this.#getOr404(`/state/${scopeOf(scope)}`)) as unknown as StoredState | undefined;
    this.#states[scope] = stored;
    return this.state(scope);
  }

  /**
   * Stores a value for later runs of the task or the context at once, and returns its version; null removes the value. With `version`,
   * that of the state to replace (0: nothing is stored), it throws StateChanged if another one is stored.
   */
  async setState(data: unknown, o: { scope?: Scope; version?: number } = {}): Promise<number> {
    const scope = scopeOf(o.scope ?? "task");
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (o.version === 0) headers["If-None-Match"] = "*";
    else if (o.version !== undefined) headers["If-Match"] = `"${o.version}"`;
    const body = stringify(required(data, "state"));
    const large = tooLarge("the state", body, "max_state", this.document.limits?.state);
    if (large) throw new RunApiError(large, 413, "too_large");
    let version: number;
    try {
      const answer = await this.#request("PUT", `/state/${scope}`, headers, body);
      version = Number((parse(answer.text) as { version: number }).version);
    } catch (error) {
      // The first of several requests may have stored the value, and its answer was lost.
      if (!(error instanceof StateChanged && error.repeated && o.version !== undefined)) throw error;
      const found = await this.getState(scope);
      if (stringify(found.data) !== body || (found.version !== 0 && found.version !== o.version + 1)) throw error;
      version = found.version;
    }
    this.#states[scope] = { data: parse(body), version };
    return version;
  }

  // Invalid events throw at once, so that no code misses the error because it does not await.
  #emit(event: Event): Promise<void> {
    return this.#uploader.push(event);
  }

  async #get(path: string): Promise<Json> {
    return parse((await this.#request("GET", path)).text);
  }

  async #getOr404(path: string): Promise<Json | undefined> {
    try {
      return await this.#get(path);
    } catch (error) {
      if (error instanceof RunApiError && error.status === 404) return undefined;
      throw error;
    }
  }

  async *#list<T>(path: string, member: string, from: string): AsyncGenerator<T, void, undefined> {
    for (let next: string | undefined; ; ) {
      const page = (await this.#get(`${path}${query({ count: 100, [from]: next })}`)) as JsonObject;
      yield* (page[member] as unknown as T[]) ?? [];
      if (typeof page.next !== "string") return;
      next = page.next;
    }
  }

  async #request(method: string, path: string, headers: Record<string, string> = {}, body?: string): Promise<Answer> {
    const backoff = new Backoff();
    for (let repeated = false; ; repeated = true) {
      let answer: Answer | undefined;
      try {
        answer = await this.#transport.request(method, path, {
          headers: { ...headers, Authorization: `Bearer ${this.#token}` },
          body,
          signal: this.#stop.signal.aborted ? undefined : this.#stop.signal,
        });
      } catch (error) {
        if (this.#stop.signal.aborted) throw error;
        this.log.warn("the run API does not answer", { error: describe(error) });
      }
      if (answer && answer.status < 300) return answer;
      if (answer && !temporary(answer.status)) {
        const problem = problemOf(answer);
        if (answer.status === 410) {
          const over = new Stopped("over", problem.detail);
          this.interrupt(over);
          this.#over(over);
          throw over;
        }
        if (answer.status === 412) throw new StateChanged(problem.detail, repeated);
        throw new RunApiError(`${method} ${path}: ${problem.detail}`, answer.status, problem.reason);
      }
      await backoff.pause(answer, this.#stop.signal);
      if (this.#stop.signal.aborted) throw this.#stop.signal.reason;
    }
  }
}

/** Adds the text and the data of the parts. @internal */
export function withContent<T extends { parts: Part[]; artifactId?: string }>(of: T): WithContent<T> {
  const data = of.parts.find((p) => p.data !== undefined)?.data;
  return { ...of, text: textOf(of.parts, of.artifactId === undefined ? "\n" : ""), data };
}

const textOf = (parts: Part[], between = "") =>
  parts
    .map((p) => p.text)
    .filter((text) => text !== undefined)
    .join(between);

/** @internal */
export const resultText = (r: ResultDocument) =>
  (r.artifacts ?? []).map((a) => textOf(a.parts)).join("") || textOf(r.message?.parts ?? [], "\n");

function inputOf(input: InputDocument | undefined): Input | undefined {
  if (input?.source !== "calls") return input;
  return {
    source: "calls",
    results: (input.results ?? []).map((r) => ({ ...r, text: resultText(r) })),
  };
}

function pageOf<T extends { history: SaidDocument[] }>(page: T): T & HistoryPage {
  return { ...page, history: (page.history ?? []).map(withContent) };
}

function query(members: { [name: string]: string | number | boolean | undefined }): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(members)) {
    if (value !== undefined) q.set(name, String(value));
  }
  return q.size > 0 ? `?${q}` : "";
}

function scopeOf(scope: Scope): Scope {
  if (scope !== "task" && scope !== "context")
    throw new TypeError(`scope: ${JSON.stringify(scope)} is neither "task" nor "context"`);
  return scope;
}

function required(data: unknown, what: string): unknown {
  if (data === undefined) throw new TypeError(`${what}: undefined is not JSON; write null`);
  return data;
}

function partsOf(parts: NewPart[], what: string): Json[] {
  if (!Array.isArray(parts) || parts.length === 0) throw new TypeError(`${what}.parts: there must be at least one part`);
  return parts.map((part, i) => {
    const kinds = (["text", "raw", "url", "data"] as const).filter((k) => (part as unknown as JsonObject)[k] !== undefined);
    if (kinds.length !== 1) {
      throw new TypeError(
        `${what}.parts[${i}]: a part has exactly one of text, raw, url and data, not ${kinds.join(" and ") || "none"}`,
      );
    }
    if ("raw" in part && part.raw instanceof Uint8Array) {
      const { buffer, byteOffset, byteLength } = part.raw;
      return { ...part, raw: Buffer.from(buffer, byteOffset, byteLength).toString("base64") } as JsonObject;
    }
    return part as unknown as JsonObject;
  });
}

/** @internal */
export function speech(message: Speech, what = "message"): Json {
  if (typeof message === "string") return message;
  if (typeof message !== "object" || message === null) throw new TypeError(`${what}: ${typeof message} is not a message`);
  return { ...message, parts: partsOf(message.parts, what) } as JsonObject;
}

const optional = (message: Speech | undefined) => (message === undefined ? undefined : speech(message));
