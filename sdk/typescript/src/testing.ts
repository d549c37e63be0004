/**
 * Runs an agent in a test, without a server. The agent has the same Run as in a worker; only the log is in memory, and a retry
 * starts at once.
 *
 * ```ts
 * const task = new TestTask(greeter);
 * assert.equal((await task.say("hi")).question, "What is your name?");
 * assert.equal((await task.say("Ada")).text, "Hello, Ada!");
 * assert.equal(task.state, "completed");
 * ```
 */
import { randomUUID } from "node:crypto";
import type { Agent } from "./agent.js";
import { replayed } from "./durable.js";
import { Fail, Reject, StepFailed, Stopped } from "./errors.js";
import type { Answer, RequestOptions, Transport } from "./http.js";
import { type Json, type JsonObject, parse, stringify } from "./json.js";
import { type Logger, textLogger } from "./log.js";
import { Run } from "./run.js";
import type {
  Artifact,
  Call,
  Event,
  InputDocument,
  MessageDocument,
  NewPart,
  Part,
  RecordDocument,
  RecordsDocument,
  ResultDocument,
  RunDocument,
  SaidDocument,
  Scope,
  StoredState,
} from "./types.js";
import { ends } from "./uploader.js";
import { perform } from "./worker.js";

export { type Answered, DevServer, type DevServerOptions, type SendOptions } from "./devserver.js";

/** The state of a task. */
export type TaskState =
  | "submitted"
  | "working"
  | "input-required"
  | "auth-required"
  | "completed"
  | "failed"
  | "rejected"
  | "canceled";

/** What the agent of a test gets besides its message. */
export interface TestOptions {
  /** Members of the run document, such as metadata, scopes or history. */
  document?: Partial<RunDocument>;
  /** How many tries a message has; default 3. */
  maxAttempts?: number;
  /** The process dies after so many events of the task, once. The next try begins at once. */
  crashAfter?: number;
  /** Default: errors, to stderr. */
  log?: Logger;
}

/** What the agent did in one turn. */
export class Turn {
  /** The events of all tries, in their order. */
  readonly events: Event[] = [];
  /** How many runs there were. */
  tries = 0;
  /** What the task was at the end of the turn. While it waits for a time or for calls, it is working. */
  state: TaskState = "submitted";
  /** The message of the last status or reply. */
  message: MessageDocument | undefined;
  /** The artifacts of the turn, as a client reads them. */
  readonly artifacts: Artifact[] = [];
  /** The calls of other agents, if the turn has ended with some. */
  calls: Call[] = [];
  /** The wait that ended the turn. */
  wait: { for?: number; until?: string; interruptible?: boolean } | undefined;
  /** Whether the resume URL is valid. */
  resumable = false;

  /** The texts of all artifacts, one after the other. */
  get text(): string {
    return this.artifacts.flatMap((a) => a.parts.map((p) => p.text ?? "")).join("");
  }

  /** The text of the question, or "". */
  get question(): string {
    return this.state === "input-required" || this.state === "auth-required" ? textOf(this.message) : "";
  }
}

/** A turn that has not ended. */
export interface RunningTurn extends Promise<Turn> {
  /** Resolves when an event of the type is stored. Rejected if the turn ends without one. */
  event(type: string): Promise<Event>;
}

/** A task of an agent, to which a test talks as a client does. */
export class TestTask {
  readonly id: string = randomUUID();
  readonly turns: Turn[] = [];
  state: TaskState = "submitted";
  /** What durable runs have recorded, oldest first: the history for `replay`. */
  readonly records: RecordDocument[] = [];
  /** The agent that the task belongs to. */
  readonly agent: Agent;
  readonly #o: TestOptions;
  readonly #said: SaidDocument[] = [];
  readonly #states: { task?: StoredState; context?: StoredState } = {};
  #run: Run | undefined;
  #attempt = 0;
  #stored = 0; // events
  #watchers: { type: string; found: (event: Event) => void }[] = [];

  constructor(agent: Agent, options: TestOptions = {}) {
    this.agent = agent;
    this.#o = options;
  }

  /** Sends a message, and waits until the turn has ended. */
  say(message: string | NewPart[]): RunningTurn {
    const parts = typeof message === "string" ? [{ text: message }] : message;
    return this.#start({ messageId: randomUUID(), role: "user", parts: parse(stringify(parts)) as Part[] }, undefined);
  }

  /** Lets the time of a wait come. */
  wake(): RunningTurn {
    const { until, for: seconds = 0 } = this.turns.at(-1)?.wait ?? {};
    return this.#start(undefined, { source: "timer", until: until ?? new Date(Date.now() + seconds * 1000).toISOString() });
  }

  /** Delivers the results of calls. Members that are left out come from the calls of the last turn. */
  deliver(...results: (Partial<ResultDocument> & { text?: string })[]): RunningTurn {
    const calls = this.turns.at(-1)?.calls ?? [];
    return this.#start(undefined, {
      source: "calls",
      results: results.map(({ text, ...result }, i) => {
        const call = calls[i];
        return {
          id: call?.id ?? String(i + 1),
          agent: call && "agent" in call ? call.agent : "",
          task: randomUUID(),
          state: "completed",
          ...(text === undefined ? {} : { artifacts: [{ artifactId: "text-1", parts: [{ text }] }] }),
          ...result,
        };
      }),
    });
  }

  /** Sends a request to the resume URL, with a text or a JSON value. */
  resume(body: { text: string } | { data: Json } | Record<string, never> = {}): RunningTurn {
    return this.#start(undefined, { source: "resume", method: "POST", ...body });
  }

  /** Cancels the task, as a client does. The turn that runs ends then. */
  cancel(metadata: JsonObject = {}): void {
    if (this.#run) this.#run.interrupt(new Stopped("canceled", "the client has canceled the task", metadata));
    else this.state = "canceled";
  }

  /** Takes the run away, as if its lease had ended. The next try begins when the agent's code has stopped. */
  lose(): void {
    this.#run?.interrupt(new Stopped("lost", "the lease has ended"));
  }

  /** Stops the run as a process does that ends. The next try begins when the agent's code has stopped. */
  drain(): void {
    this.#run?.interrupt(new Stopped("released", "the worker stops"));
  }

  #start(message: MessageDocument | undefined, input: InputDocument | undefined): RunningTurn {
    if (this.#run) throw new Error("a turn of this task has not ended");
    if (["completed", "failed", "rejected", "canceled"].includes(this.state)) throw new Error(`the task is ${this.state}`);
    const turn = new Turn();
    this.turns.push(turn);
    const done = this.#execute(turn, message, input);
    const over = done.then((t) => {
      throw new Error(`the turn has ended without the event; it has ${t.events.map((e) => e.type).join(", ") || "none"}`);
    });
    over.catch(() => {});
    const event = (type: string) => {
      const past = turn.events.find((e) => e.type === type);
      if (past) return Promise.resolve(past);
      return Promise.race([new Promise<Event>((found) => this.#watchers.push({ type, found })), over]);
    };
    return Object.assign(done, { event });
  }

  async #execute(turn: Turn, message: MessageDocument | undefined, input: InputDocument | undefined): Promise<Turn> {
    const history = [...this.#said];
    let checkpoint: Json | undefined;
    const artifacts = new Map<string, Artifact>();
    const kept = new Map<string, Artifact>();
    this.state = "working";
    for (let again = true; again; ) {
      turn.tries++;
      this.#attempt++;
      const log = new Log(
        turn,
        artifacts,
        kept,
        this.#states,
        history,
        (event) => {
          for (const w of this.#watchers.filter((x) => x.type === event.type)) w.found(event);
          this.#watchers = this.#watchers.filter((x) => x.type !== event.type);
          if (++this.#stored === this.#o.crashAfter) this.lose();
        },
        this.records,
      );
      const run = new Run(
        parse(stringify(this.#document(turn, message, input, history, checkpoint, artifacts))) as unknown as RunDocument,
        log,
        this.#o.log ?? textLogger("error"),
        String(this.#attempt),
      );
      log.run = run;
      this.#run = run;
      const outcome = await perform(run, this.agent.handler, () => run.signal.reason?.reason === "lost");
      this.#run = undefined;
      checkpoint = log.checkpoint ?? checkpoint;
      this.state = log.state;
      again = false;
      if (outcome === "release" && run.canceled) this.state = "canceled";
      else if (outcome === "release" || run.signal.reason?.reason === "lost") again = true;
      else if (log.last?.type === "retry") again = true;
      if (again && turn.tries >= (this.#o.maxAttempts ?? 3)) {
        again = false;
        this.state = "failed";
      }
    }
    turn.state = this.state;
    turn.artifacts.push(...artifacts.values());
    if (message) this.#said.push(message);
    for (const { artifactId, name, description, parts, metadata } of artifacts.values()) {
      this.#said.push({ role: "agent", artifactId, name, description, parts, metadata });
    }
    if (turn.message && this.state !== "working") this.#said.push({ ...turn.message, state: this.state });
    return turn;
  }

  #document(
    turn: Turn,
    message: MessageDocument | undefined,
    input: InputDocument | undefined,
    history: SaidDocument[],
    checkpoint: Json | undefined,
    artifacts: Map<string, Artifact>,
  ): RunDocument {
    const before = this.turns.at(-2);
    const interrupted = message !== undefined && before?.wait?.interruptible ? new Date().toISOString() : undefined;
    const earlier = [...artifacts.values()].map((a) => ({ artifactId: a.artifactId, name: a.name, chunks: 1, last: false }));
    return {
      version: 1,
      idempotencyKey: `${this.id}:${this.turns.length}`,
      task: {
        id: this.id,
        key: this.id,
        contextId: "context",
        contextKey: `key-${this.id}`,
        agent: this.agent.name || "test",
      },
      message,
      input: interrupted ? { source: "timer", until: interrupted, interrupted: true } : input,
      resume: { url: `http://127.0.0.1/resume/${this.id}` },
      runApi: { token: "test" },
      turn: this.turns.length,
      try: turn.tries,
      attempt: this.#attempt,
      limits: { event: 16 << 20, state: 256 << 10 },
      history,
      checkpoint,
      records: this.records.length > 0 ? recordsOf(this.records, 0) : undefined,
      earlier: earlier.length > 0 ? earlier : undefined,
      state: this.#states,
      ...this.#o.document,
    };
  }
}

/** The records in the log of a task. */
function recordsIn(log: string): RecordDocument[] {
  const events = log.split("\n").filter((line) => line !== "");
  return events.flatMap((line) => {
    const { payload } = parse(line) as { payload?: { outcome?: string; checkpoint?: RecordDocument } };
    return payload?.outcome === "record" && payload.checkpoint ? [payload.checkpoint] : [];
  });
}

/**
 * Runs a durable agent over the records of a task until they end, and no step of it. Throws CodeChanged if the code does not fit them.
 * history: TestTask.records, or the text that `holdfast tasks events ID -o json` prints.
 */
export async function replay(agent: Agent, history: readonly RecordDocument[] | string): Promise<void> {
  const records = typeof history === "string" ? recordsIn(history) : [...history];
  const turns = records.flatMap((r) => (r.kind === "wait" ? Number((r.data as { turn?: number }).turn ?? 0) : []));
  const task = { id: "replay", key: "replay", contextId: "context", contextKey: "context", agent: agent.name || "test" };
  const silent: Transport = { request: async () => ({ status: 200, headers: {}, text: '{"next": 1, "ended": true}' }) };
  const document: RunDocument = {
    version: 1,
    idempotencyKey: "replay",
    task,
    turn: Math.max(0, ...turns) + 1,
    try: 1,
    attempt: 1,
    records: { records: parse(stringify(records)) as unknown as RecordDocument[] },
  };
  const run = new Run(document, silent, textLogger("error"));
  replayed.add(run);
  try {
    await agent.handler(run);
  } catch (error) {
    // So ends the task.
    if (!(error instanceof Fail || error instanceof Reject || error instanceof StepFailed)) throw error;
  }
}

// How many records a page has at most.
const page = 500;

function recordsOf(records: RecordDocument[], after: number): RecordsDocument {
  const next = after + page < records.length ? after + page : undefined;
  return { records: records.slice(after, after + page), next };
}

/** The run API of one run, in memory. */
class Log implements Transport {
  run: Run | undefined;
  checkpoint: Json | undefined;
  state: TaskState = "working";
  last: Event | undefined;
  #next = 0;
  readonly #own = new Set<string>(); // artifacts that this try has written
  #unnamed = 0;

  constructor(
    private readonly turn: Turn,
    private readonly artifacts: Map<string, Artifact>,
    private readonly kept: Map<string, Artifact>, // as they stood at the checkpoint
    private readonly states: { task?: StoredState; context?: StoredState },
    private readonly history: SaidDocument[],
    private readonly stored: (event: Event) => void,
    private readonly records: RecordDocument[],
  ) {}

  async request(method: string, path: string, o: RequestOptions = {}): Promise<Answer> {
    const [status, body] = this.#answer(method, path, o);
    return { status, headers: {}, text: stringify(body) };
  }

  #answer(method: string, path: string, o: RequestOptions): [number, unknown] {
    const [, kind = "", id = ""] = (path.split("?")[0] ?? "").split("/");
    switch (kind) {
      case "":
        return [200, { ...this.run?.document, state: this.states }];
      case "events":
        return this.#events((o.body ?? "").split("\n").filter(Boolean));
      case "history":
        return [200, { history: this.history }];
      case "records":
        return [200, recordsOf(this.records, Number(new URLSearchParams(path.split("?")[1]).get("after") ?? 0))];
      case "state":
        return this.#state(method, id as Scope, o);
      case "artifacts": {
        const all = [...this.artifacts.values()];
        if (!id) {
          const list = all.map((a) => ({
            artifactId: a.artifactId,
            name: a.name,
            chunks: 1,
            bytes: stringify(a).length,
            last: false,
          }));
          return [200, { artifacts: list }];
        }
        const found = this.artifacts.get(decodeURIComponent(id));
        return found ? [200, found] : refused(404, "not_found", "there is no such artifact");
      }
      case "tasks":
        return id ? refused(404, "not_found", "there is no such task") : [200, { tasks: [] }];
      default:
        return refused(404, "not_found", `there is no ${path}`);
    }
  }

  #state(method: string, scope: Scope, o: RequestOptions): [number, unknown] {
    const stored = this.states[scope];
    if (method === "GET") return stored ? [200, stored] : refused(404, "not_found", "nothing is stored");
    const match = o.headers?.["If-Match"];
    if ((match && match !== `"${stored?.version}"`) || (o.headers?.["If-None-Match"] && stored)) {
      return refused(412, "state_changed", `version ${stored?.version ?? 0} is stored`);
    }
    const data = parse(o.body ?? "null");
    if (data === null) {
      delete this.states[scope];
      return [200, { version: 0 }];
    }
    this.states[scope] = { data, version: (stored?.version ?? 0) + 1 };
    return [200, { version: this.states[scope]?.version }];
  }

  #events(lines: string[]): [number, unknown] {
    for (const line of lines) {
      const event = parse(line) as Event;
      if (event.type === "reply" && (this.#next > 0 || this.turn.tries > 1)) {
        return refused(422, "refused", "a reply must be the only event", { next: this.#next });
      }
      this.#store(event);
      this.#next++;
      this.turn.events.push(event);
      this.stored(event);
      if (ends(event)) {
        this.last = event;
        return [200, { next: this.#next, ended: true }];
      }
      if (this.run?.signal.reason?.reason === "lost") break;
    }
    return [200, { next: this.#next, ended: false }];
  }

  /** The id of an artifact without one, after those that a checkpoint keeps. */
  #number(): string {
    const id = () => `artifact-${this.run?.turn}-${++this.#unnamed}`;
    let next = id();
    while (this.kept.has(next) && !this.#own.has(next)) next = id();
    return next;
  }

  #store(event: Event): void {
    switch (event.type) {
      case "text": {
        const name = event.name as string | undefined;
        const artifactId = (event.artifactId as string) ?? `${name ?? "text"}-${this.run?.turn}`;
        const append = event.append ?? this.#own.has(artifactId);
        const before = append
          ? this.artifacts.get(artifactId)
          : event.append === undefined
            ? this.kept.get(artifactId)
            : undefined;
        this.#own.add(artifactId);
        const text = (before?.parts[0]?.text ?? "") + event.text;
        this.artifacts.set(artifactId, { artifactId, name, parts: [{ text }] });
        break;
      }
      case "artifact": {
        const given = event.artifact as Artifact;
        const artifactId = given.artifactId ?? this.#number();
        this.#own.add(artifactId);
        const stored = this.artifacts.get(artifactId);
        const parts = event.append && stored ? joined(stored.parts, given.parts) : given.parts;
        this.artifacts.set(artifactId, {
          ...(event.append ? stored : {}),
          ...given,
          ...(event.append && given.metadata ? { metadata: { ...stored?.metadata, ...given.metadata } } : {}),
          artifactId,
          parts,
        });
        break;
      }
      case "checkpoint":
        this.checkpoint = event.data as Json;
        for (const [id, artifact] of this.artifacts) if (this.#own.has(id)) this.kept.set(id, artifact);
        break;
      case "record": {
        const { type: _, ...record } = event as unknown as RecordDocument & { type: string };
        this.records.push(record);
        for (const [id, artifact] of this.artifacts) {
          if (this.#own.has(id) && !record.open?.includes(id)) this.kept.set(id, artifact);
        }
        break;
      }
      case "call":
        this.turn.calls = event.calls as Call[];
        break;
      case "wait":
        this.turn.wait = event as Turn["wait"];
        break;
      case "retry":
        break;
      default: {
        const states: { [type: string]: TaskState } = {
          ask: "input-required",
          auth: "auth-required",
          complete: "completed",
          fail: "failed",
          reject: "rejected",
          reply: "completed",
        };
        this.state = states[event.type] ?? (event.state as TaskState) ?? "working";
        this.turn.message = messageOf(event.message as string | MessageDocument | undefined) ?? this.turn.message;
        if (ends(event) && event.message === undefined) this.turn.message = undefined;
        this.turn.resumable = event.resume !== undefined;
      }
    }
  }
}

// Appended text continues the text before it, as for clients that read the task.
function joined(before: Part[], added: Part[]): Part[] {
  const last = before.at(-1);
  const [first, ...rest] = added;
  if (last?.text === undefined || first?.text === undefined) return [...before, ...added];
  return [...before.slice(0, -1), { ...last, text: last.text + first.text }, ...rest];
}

function messageOf(speech: string | MessageDocument | undefined): MessageDocument | undefined {
  if (speech === undefined) return undefined;
  return { role: "agent", messageId: randomUUID(), ...(typeof speech === "string" ? { parts: [{ text: speech }] } : speech) };
}

const textOf = (message: MessageDocument | undefined) => (message?.parts ?? []).map((p) => p.text ?? "").join("\n");

function refused(status: number, reason: string, detail: string, more: object = {}): [number, unknown] {
  return [status, { title: "Refused", status, reason, detail, ...more }];
}
