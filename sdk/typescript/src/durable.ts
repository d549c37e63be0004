// Durable agents: a function that begins at the top in every try and turn, and gets what it has awaited before from the records of
// its task. Records come back in the order of the log, one at a time, so that a replay does what the runs before it did.
import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";
import { setTimeout as pause, setImmediate as turn } from "node:timers/promises";
import type { Handler, Returned } from "./agent.js";
import { answerTo, messageOf, type Question, type Schema } from "./answers.js";
import { CodeChanged, EventRefused, Fail, Reject, Retry, raised, StepFailed, type Stopped, tooLarge } from "./errors.js";
import { type Json, type JsonObject, parse, stringify } from "./json.js";
import type { Logger } from "./log.js";
import { type Cancel, type Message, type Result, type Run, resultText, speech, withContent } from "./run.js";
import type * as t from "./types.js";

/** How a step is tried. */
export interface StepOptions {
  /** How often it is tried again; default 0. */
  retries?: number;
  /** Seconds before the second try, doubled for each other up to 60; default 1. */
  backoff?: number;
  /** Seconds for one try. */
  timeout?: number;
  /** Errors that end the step at once. Fail and Reject do, too. */
  final?: (abstract new (
    ...args: never[]
  ) => Error)[];
}

/** How a question is asked. The name tells questions apart in records and forms; default "ask" and "auth". */
export interface AskOptions extends t.EventOptions {
  name?: string;
  resume?: t.Resume;
}

/** A call: an agent and a message for it, or all that a call of the old style has but its id. */
export type DurableCall = readonly [agent: string, message: t.Speech] | DistributiveOmit<t.Call, "id">;
type DistributiveOmit<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

/** How long a durable run sleeps: the sum of its members, or until a time. */
export type Sleep = { seconds?: number; minutes?: number; hours?: number; days?: number; until?: Date | string };

/** Makes a function a durable agent: `agent("refund", durable(async (run) => { … }))`. */
export function durable(f: (run: DurableRun) => Promise<Returned> | Returned): Handler {
  return async (base) => await new DurableRun(base, await base.readRecords()).perform(f);
}

/** @internal Runs that end where their records do. */
export const replayed = new WeakSet<Run>();

/** What a `wait` record says: what the run before waited for, under `name#nth`. */
interface Waits {
  turn: number;
  asks: [name: string, nth: number][];
  calls: [name: string, nth: number][];
  until: string | null;
  sleeps: { [key: string]: string };
  /** Of steps that wait for their next try. */
  tries?: { [key: string]: number };
}

/** A word that has not returned: it waits for its record, its answer, its time, or for its turn to begin. */
interface Word {
  kind: t.RecordDocument["kind"];
  name: string;
  nth: number;
  key: string;
  resolve: (data: Json) => void;
  reject: (error: unknown) => void;
  place: string | undefined;
  shielded: boolean;
  /** A cancel has rejected it. */
  dropped?: boolean;
  due?: number;
  tries?: number;
  step?: (word: Word) => Promise<void>;
  question?: Question & AskOptions;
  call?: t.Call;
}

/** A step under way. */
interface Step {
  run: DurableRun;
  name: string;
  nth: number;
  /** Of the artifacts that it writes: not "" if another step was under way when it began. */
  suffix: string;
  wrote: Set<string>;
  pieces: number;
}

const steps = new AsyncLocalStorage<Step>();
const shields = new AsyncLocalStorage<DurableRun>();
const inProcess = 5; // seconds that a pause before the next try may have, and the run does not end
const patience = 1000; // ms until a history that nobody asks for is one of other code
const idle = 3; // turns of the event loop without a word after which all branches wait
const never = <T>() => new Promise<T>(() => {});
const keyOf = (r: { name: string; nth: number }) => `${r.name}#${r.nth}`;
const waitsOf = (r: t.RecordDocument | undefined) => r?.data as unknown as Waits | undefined;

/** One run of a durable function. What its words return is recorded, or was. */
export class DurableRun {
  /** The first message of the task, in each turn. */
  readonly message: Message;
  /** The run without durability, for what is not here. Read with it inside of steps. */
  readonly base: Run;

  readonly #log: t.RecordDocument[]; // all but the message
  readonly #records = new Map<string, t.RecordDocument>(); // of words, by key
  readonly #waits: t.RecordDocument[];
  readonly #newest: Waits | undefined; // what this turn may answer
  readonly #nths = new Map<string, number>();
  readonly #asked = new Set<string>(); // keys that the function has reached
  readonly #done = new Set<string>(); // keys whose records have returned
  readonly #waiting = new Map<string, Word>();
  readonly #questions = new Map<string, Question>();
  readonly #running = new Set<Word>();
  readonly #steps = new Set<Step>();
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #skip: { [key: string]: number }; // emissions that are in the log
  readonly #kept: { [key: string]: number }; // emissions that the newest record keeps
  readonly #count: { [key: string]: number } = {}; // emissions of this run
  #next = 0; // record of the log
  #passed = 0; // waits of the log
  #unnamed = 0; // artifacts since the newest wait
  #live = false; // the log has been replayed
  #busy = 0; // steps and emissions under way
  #activity = 0;
  #frozen = false; // the run ends: its words settle no more
  #raised = false; // the cancel, by a word
  #wake: () => void = () => {};
  #end: (error?: unknown) => void = () => {};
  readonly #ended = new Promise<undefined>((resolve, reject) => {
    this.#end = (error) => (error === undefined ? resolve(undefined) : reject(error));
  });

  /** @internal */
  constructor(base: Run, records: t.RecordDocument[]) {
    this.base = base;
    this.#log = records.filter((r) => r.kind !== "message");
    this.#waits = this.#log.filter((r) => r.kind === "wait");
    for (const r of this.#log) if (r.kind !== "wait") this.#records.set(keyOf(r), r);
    const newest = waitsOf(this.#waits.at(-1));
    // Of this turn: the event after it was lost, and nothing has answered it.
    this.#newest = newest?.turn === base.turn ? undefined : newest;
    this.#skip = records.at(-1)?.emitted ?? {};
    this.#kept = { ...this.#skip };
    const first = records.find((r) => r.kind === "message");
    this.message = first ? withContent(first.data as unknown as t.MessageDocument) : base.message;
    if (!first && base.document.message) {
      this.#record("message", "message", 1, { data: base.document.message as unknown as Json }).catch(() => {});
    }
  }

  get taskId(): string {
    return this.base.taskId;
  }

  get contextId(): string {
    return this.base.contextId;
  }

  /** Of the request that created the task. */
  get metadata(): JsonObject {
    return this.base.metadata;
  }

  /** Logs with the task, the run and the trace; in replays again. */
  get log(): Logger {
    return this.base.log;
  }

  /** Aborted when the run must stop. */
  get signal(): AbortSignal {
    return this.base.signal;
  }

  /** The cancel of the client, if it has canceled the task. */
  get canceled(): Cancel | undefined {
    return this.base.canceled;
  }

  /** Inside of a step: of this step, the same in each try. Pass it to services with side effects. */
  get idempotencyKey(): string {
    const step = this.#step();
    return step ? `${this.base.taskKey}/${step.name}/${step.nth}` : this.base.idempotencyKey;
  }

  /**
   * Does something once: what the function returns, as JSON, is recorded and returned in all later runs. At least once, to be exact:
   * it runs again if the process dies before the record is stored. What it throws becomes a StepFailed, after the retries.
   */
  step<T>(name: string, f: (signal: AbortSignal) => Promise<T> | T, o: StepOptions = {}): Promise<T> {
    return this.#word("step", name, { step: (word) => this.#try(word, f, o) }) as Promise<T>;
  }

  /** Asks the client. Without a schema it returns the answer's message, with one the value that the schema accepts. */
  ask(question: t.Speech, o?: AskOptions): Promise<Message>;
  ask<T>(question: t.Speech, o: AskOptions & { schema: { parse(value: unknown): T } }): Promise<T>;
  ask<T = Json>(question: t.Speech, o: AskOptions & { schema: JsonObject }): Promise<T>;
  ask(question: t.Speech, o: AskOptions & { schema?: Schema<unknown> } = {}): Promise<unknown> {
    const { schema } = o;
    const word = this.#word("ask", o.name ?? "ask", { question: { ...o, key: "", message: question } });
    return later(word, (data) => {
      if (schema && typeof schema.parse === "function") return schema.parse(data);
      return schema ? data : withContent(data as unknown as t.MessageDocument);
    });
  }

  /** Waits until the client has authenticated, or somebody has used the resume URL. */
  auth(message?: t.Speech, o: AskOptions = {}): Promise<Message> {
    const word = this.#word("auth", o.name ?? "auth", { question: { ...o, key: "", message } });
    return later(word, (data) => withContent(data as unknown as t.MessageDocument));
  }

  /** Calls other agents at the same time, and returns their results: of one call the result, of several a list. */
  call(call: DurableCall): Promise<Result>;
  call(...calls: DurableCall[]): Promise<Result[]>;
  async call(...calls: DurableCall[]): Promise<Result | Result[]> {
    const words = calls.map((c) => {
      const call = "0" in c ? { agent: c[0], message: c[1] } : c;
      const word = this.#word("call", "agent" in call ? call.agent : "call", {
        call: { ...call, message: speech(call.message) as t.Speech },
      });
      return later(word, (data) => {
        const result = data as unknown as t.ResultDocument;
        return { ...result, text: resultText(result) };
      });
    });
    const [only] = words;
    return only && words.length === 1 ? only : Promise.all(words);
  }

  /** Sleeps for a second or a year, without a process. */
  async sleep(o: Sleep): Promise<void> {
    const { seconds = 0, minutes = 0, hours = 0, days = 0, until } = o;
    const due =
      until === undefined ? Date.now() + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 : +new Date(until);
    if (Number.isNaN(due)) throw new TypeError(`sleep: ${stringify(o)} is not a time`);
    await this.#word("sleep", "sleep", { due });
  }

  /** Waits for several words that run at the same time, as Promise.all does. */
  gather<T extends readonly unknown[]>(...words: T): Promise<{ -readonly [P in keyof T]: Awaited<T[P]> }> {
    return Promise.all(words);
  }

  /** Lets what the function awaits finish when the client cancels. */
  shield<T>(f: () => Promise<T>): Promise<T> {
    return shields.run(this, f);
  }

  /** The time at which this place was first reached. */
  now(): Date {
    return new Date(this.#value("now", () => Date.now()));
  }

  random(): number {
    return this.#value("random", () => Math.random());
  }

  uuid(): string {
    return this.#value("uuid", () => randomUUID() as string);
  }

  /** Whether the task has reached this place with code that has the version. Guards code that is newer than open tasks. */
  version(name: string): boolean {
    const key = `version ${name}`;
    if (this.#asked.has(`${key}#1`)) this.#nths.set(key, 0); // one value for the whole task
    return this.#value(key, () => !this.#log.slice(this.#next).some((r) => r.kind === "wait" || !this.#done.has(keyOf(r))));
  }

  /** Adds text to an artifact. Texts of one name are one artifact in each turn. */
  text(text: string, o: { name?: string; artifactId?: string; last?: boolean } = {}): Promise<void> {
    const artifactId = this.#artifact(o.artifactId ?? `${o.name ?? "text"}-${this.#passed + 1}`);
    return this.#emit(artifactId, () => this.base.text(text, { ...o, artifactId }));
  }

  /** Emits an artifact, or with `append` a piece of the one with its artifactId. */
  artifact(artifact: t.NewArtifact, o: t.EventOptions & { append?: boolean; last?: boolean } = {}): Promise<void> {
    const step = this.#step();
    const unnamed = () =>
      `artifact-${this.#passed + 1}-${step ? `${step.name}-${step.nth}-${++step.pieces}` : ++this.#unnamed}`;
    const artifactId = artifact.artifactId ? this.#artifact(artifact.artifactId) : unnamed();
    return this.#emit(artifactId, () => this.base.artifact({ ...artifact, artifactId }, o));
  }

  /** Reports progress, with a message or as a sign of life. */
  status(message?: t.Speech, o: t.EventOptions = {}): Promise<void> {
    return this.#emit("status", () => this.base.status(message, o));
  }

  /** Reads what is stored for the task or the context, as a step. */
  getState(scope: t.Scope = "task"): Promise<t.StoredState> {
    return this.step(`get state of ${scope}`, () => this.base.getState(scope));
  }

  /** Stores a value for the task or the context, as a step. */
  setState(data: unknown, o: { scope?: t.Scope; version?: number } = {}): Promise<number> {
    return this.step(`set state of ${o.scope ?? "task"}`, () => this.base.setState(data, o));
  }

  // Words

  /** The step inside of which this is called. */
  #step(): Step | undefined {
    const step = steps.getStore();
    return step?.run === this ? step : undefined;
  }

  #reach(name: string): [nth: number, key: string] {
    if (typeof name !== "string" || name === "" || [...name].length > 200) {
      throw new TypeError(`${JSON.stringify(name)} is not a name of 1 to 200 characters`);
    }
    const nth = (this.#nths.get(name) ?? 0) + 1;
    this.#nths.set(name, nth);
    this.#asked.add(`${name}#${nth}`);
    this.#active();
    return [nth, `${name}#${nth}`];
  }

  #word(kind: Word["kind"], name: string, more: Partial<Word>): Promise<Json> {
    if (this.#step())
      throw new TypeError(`${kind} "${name}": a step must not contain another one, a question, a call or a sleep`);
    if (this.#frozen) return this.#late();
    const [nth, key] = this.#reach(name);
    const record = this.#records.get(key);
    const place = this.#live || record ? undefined : raised(new Error("here"))?.place;
    const promise = new Promise<Json>((resolve, reject) => {
      const shielded = shields.getStore() === this;
      const word: Word = { kind, name, nth, key, resolve, reject, place, shielded, ...more };
      if (word.question) {
        word.question.key = nth === 1 ? name : `${name}-${nth}`;
        this.#questions.set(key, word.question);
      }
      if (word.call) word.call.id = key;
      if (record && record.kind !== kind) {
        this.#fail(
          new CodeChanged(`the code has changed: it recorded ${record.kind} "${name}", and now asks for ${kind} "${name}"`),
        );
        return;
      }
      this.#waiting.set(key, word);
      if (this.canceled && !(this.#raised && kind === "step") && !(shielded && kind === "step")) this.#drop(word);
      else if (this.#live) this.#begin(word);
    });
    promise.catch(() => {}); // code that does not await it is no reason to end the process
    return promise;
  }

  /** A word of code that goes on although its run has ended. */
  #late<T>(): Promise<T> {
    if (!this.signal.aborted) {
      this.log.warn("the function goes on after the end of its run; put what takes time into a step");
    }
    return never();
  }

  #value<T extends Json>(name: string, make: () => T): T {
    if (this.#step() || this.#frozen) return make();
    const [nth, key] = this.#reach(name);
    const record = this.#records.get(key);
    if (record) {
      this.#done.add(key);
      return record.data as T;
    }
    const made = make();
    const data: t.RecordDocument = { kind: "value", name, nth, data: made };
    this.#records.set(key, data);
    this.#record("value", name, nth, { data: made }).catch(() => {});
    return made;
  }

  #artifact(id: string): string {
    return id + (this.#step()?.suffix ?? "");
  }

  /** Emits, unless the log has it. */
  #emit(key: string, send: () => Promise<void>): Promise<void> {
    const step = this.#step();
    if (step) {
      if (key !== "status") step.wrote.add(key);
      return send();
    }
    if (this.#frozen) return this.#late();
    this.#count[key] = (this.#count[key] ?? 0) + 1;
    if (this.#count[key] <= (this.#skip[key] ?? 0)) return Promise.resolve();
    this.#active(1);
    const sent = send().finally(() => this.#active(-1));
    sent.catch(() => {});
    return sent;
  }

  /** Queues a record. Throws if it is too large. */
  #record(
    kind: t.RecordDocument["kind"],
    name: string,
    nth: number,
    said: { data?: unknown; error?: t.ErrorDocument },
    more: { tries?: number; took?: number } = {},
    own?: Step,
  ): Promise<void> {
    const open = new Set<string>();
    for (const step of this.#steps) if (step !== own) for (const id of step.wrote) open.add(id);
    const kept = { ...this.#kept };
    for (const [key, n] of Object.entries(this.#count)) if (!open.has(key)) kept[key] = Math.max(n, kept[key] ?? 0);
    const some = <T extends object>(of: T) => (Object.keys(of).length > 0 ? of : undefined);
    const record = { kind, name, nth, ...said, emitted: some(kept), open: some([...open]), ...more };
    const large = tooLarge(`the record of ${kind} "${name}"`, stringify(record), "max_state", this.base.document.limits?.state);
    if (large) throw new EventRefused(large, 413);
    Object.assign(this.#kept, kept);
    return this.base.uploader.push({ type: "record", ...record });
  }

  /** Records what a word has come to, and settles it. */
  #settle(
    word: Word,
    said: { data: unknown } | { error: t.ErrorDocument },
    more: { tries?: number; took?: number } = {},
    own?: Step,
  ) {
    const { kind } = word;
    try {
      this.#record(kind, word.name, word.nth, said, more, own).catch(() => {});
    } catch (error) {
      said = { error: raised(error) as t.ErrorDocument };
      this.#record(kind, word.name, word.nth, said, more, own).catch(() => {});
    }
    this.#deliver(word, { kind, name: word.name, nth: word.nth, ...(said as { data: Json }) });
  }

  #deliver(word: Word, record: t.RecordDocument): void {
    this.#waiting.delete(word.key);
    this.#done.add(word.key);
    this.#active();
    if (this.#frozen) return;
    const { error, data = null } = record;
    if (!error) word.resolve(data);
    else if (error.type === "Fail") word.reject(new Fail(error.message));
    else if (error.type === "Reject") word.reject(new Reject(error.message));
    else word.reject(new StepFailed(error));
  }

  #drop(word: Word): void {
    this.#waiting.delete(word.key);
    this.#raised = word.dropped = true;
    word.reject(this.signal.reason);
  }

  // Steps

  async #try<T>(word: Word, f: (signal: AbortSignal) => Promise<T> | T, o: StepOptions): Promise<void> {
    const { retries = 0, backoff = 1, timeout, final = [] } = o;
    const suffix = this.#steps.size > 0 ? `-${word.name}-${word.nth}` : "";
    const own: Step = { run: this, name: word.name, nth: word.nth, suffix, wrote: new Set(), pieces: 0 };
    const began = performance.now();
    const more = () => ({
      tries: word.tries === 1 ? undefined : word.tries,
      took: Math.round(performance.now() - began) / 1000,
    });
    this.#steps.add(own);
    this.#active(1);
    try {
      word.tries = this.#newest?.tries?.[word.key] ?? 0;
      if (word.tries > 0) await this.#backOff(word, Date.parse(this.#newest?.sleeps[word.key] ?? ""));
      for (;;) {
        // The effect of a step must not come before the record of the one before it.
        await this.base.flush();
        if (this.#frozen || word.dropped) return;
        word.tries++;
        try {
          const data = parse(stringify((await steps.run(own, () => once(f, this.signal, timeout))) ?? null));
          return this.#settle(word, { data }, more(), own);
        } catch (error) {
          if (error instanceof Retry) return this.#fail(error);
          if (this.#frozen || word.dropped) return;
          const over = error instanceof Fail || error instanceof Reject || final.some((type) => error instanceof type);
          if (over || word.tries > retries) {
            return this.#settle(
              word,
              { error: raised(error ?? new Error("the step threw nothing")) as t.ErrorDocument },
              more(),
              own,
            );
          }
          this.log.info("a step failed, will retry", { step: word.name, try: word.tries, error: String(error) });
          await this.#backOff(word, this.#time() + Math.min(backoff * 2 ** (word.tries - 1), 60) * 1000);
        }
      }
    } catch (error) {
      this.#fail(error); // of the flush: the run is over, or an event was refused
    } finally {
      this.#steps.delete(own);
      this.#active(-1);
      if (this.#frozen && this.#steps.size === 0) this.#end();
    }
  }

  /** Waits for the next try: in process, and if nothing else is under way without one. */
  async #backOff(word: Word, due: number): Promise<void> {
    const ms = Math.max(due - this.#time(), 0);
    const ends = ms > inProcess * 1000;
    if (ends) {
      word.due = due;
      this.#waiting.set(word.key, word);
      this.#active(-1);
    }
    await new Promise<void>((done) => this.#timers.add(setTimeout(done, ms)));
    if (ends) {
      this.#waiting.delete(word.key);
      this.#active(1);
    }
  }

  // The run

  /** @internal */
  async perform(f: (run: DurableRun) => Promise<Returned> | Returned): Promise<Returned> {
    const { signal } = this;
    const stop = () => this.#stop(signal.reason as Stopped);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop);
    const returned = (async () => await f(this))().then(
      (value) => this.#returned(value),
      (error) => (this.#frozen ? this.#late<never>() : Promise.reject(error)),
    );
    this.#drive().catch((error) => this.#end(error));
    try {
      return await Promise.race([returned, this.#ended]);
    } finally {
      this.#frozen = true;
      this.#active();
      for (const timer of this.#timers) clearTimeout(timer);
      signal.removeEventListener("abort", stop);
    }
  }

  async #returned(value: Returned): Promise<Returned> {
    if (this.#frozen) return this.#late();
    const left = this.#log.slice(this.#next).find((r) => r.kind !== "wait" && !this.#asked.has(keyOf(r)));
    if (left && !this.canceled) {
      throw new CodeChanged(`the code has changed: it recorded ${left.kind} "${left.name}", and now returns without it`);
    }
    if (typeof value !== "string") return value;
    await this.text(value);
    return undefined;
  }

  /** Ends the run with an error. */
  #fail(error: unknown): void {
    if (!this.#frozen) this.#end(error);
    this.#frozen = true;
  }

  #stop(reason: Stopped): void {
    if (reason.reason === "canceled") {
      this.#live = true;
      for (const word of [...this.#waiting.values()]) {
        if (!word.shielded || word.kind !== "step") this.#drop(word);
        else if (word.due === undefined) this.#begin(word);
      }
      for (const word of this.#running) if (!word.shielded) this.#drop(word);
      return;
    }
    this.#frozen = true;
    // Steps that end before the process does need not run again.
    if (reason.reason !== "released" || this.#steps.size === 0) this.#end();
  }

  /** Lets a word do what it does where the log ends. */
  #begin(word: Word): void {
    const { kind, key } = word;
    const record = this.#records.get(key);
    if (record) {
      this.#deliver(word, record); // after a cancel in a replay
    } else if (kind === "step") {
      this.#waiting.delete(key);
      this.#running.add(word);
      void word.step?.(word).finally(() => this.#running.delete(word));
    } else if (kind === "sleep") {
      const until = this.#newest?.sleeps[key];
      if (until === undefined) return;
      word.due = Date.parse(until);
      if (word.due <= this.#time()) this.#settle(word, { data: null });
    } else if (kind === "call") {
      const result = this.base.results.find((r) => r.id === key);
      if (!result || !this.#newest?.calls.some(([name, nth]) => key === keyOf({ name, nth }))) return;
      const { text: _, ...data } = result;
      this.#settle(word, { data });
    } else if (word.question) this.#answer(word);
  }

  #answer(word: Word): void {
    const asked = this.#newest?.asks.map(([name, nth]) => keyOf({ name, nth })) ?? [];
    const parts = this.#parts();
    if (!parts || !asked.includes(word.key)) return;
    // Questions that were asked together are answered together, when all of them are here again.
    const all = asked.map((key) => this.#questions.get(key));
    if (all.some((q) => q === undefined)) return;
    for (const [i, key] of asked.entries()) {
      const asking = this.#waiting.get(key);
      const said = answerTo(all[i] as Question, all as Question[], parts);
      if (!asking?.question) continue;
      asking.question.problem = said.problem;
      if (said.data !== undefined) this.#settle(asking, { data: said.data });
    }
  }

  /** What answers the questions of the turn before. */
  #parts(): t.Part[] | undefined {
    const { message, input } = this.base.document;
    if (message && message.parts.length > 0) return message.parts;
    if (input?.source !== "resume") return undefined;
    return [input.data === undefined ? { text: input.text ?? input.query ?? "" } : { data: input.data }];
  }

  /** The time, by the clock of the server if it has begun the turn. */
  #time(): number {
    const { input } = this.base.document;
    return Math.max(Date.now(), input?.source === "timer" ? Date.parse(input.until) : 0);
  }

  #active(more = 0): void {
    this.#busy += more;
    this.#activity++;
    this.#wake();
  }

  /** Returns when the function or the server has done something. */
  #news(): Promise<void> {
    return new Promise((wake) => {
      this.#wake = wake;
    });
  }

  /** Returns records one by one, and ends the run when all branches wait. */
  async #drive(): Promise<void> {
    while (!this.#frozen) {
      await turn();
      if (this.#replay()) continue;
      const seen = this.#activity;
      for (let n = 0; n < idle && seen === this.#activity; n++) await turn();
      if (seen !== this.#activity || this.#frozen) continue;
      if (this.#busy > 0 || this.#waiting.size === 0 || this.canceled) await this.#news();
      else if (this.#live) await this.#suspend();
      else await this.#quiet();
    }
  }

  /** Returns the next record to the word that waits for it. Reports whether that was possible. */
  #replay(): boolean {
    if (this.#live) return false;
    for (; this.#next < this.#log.length; this.#next++) {
      const record = this.#log[this.#next] as t.RecordDocument;
      const word = record.kind === "wait" ? undefined : this.#waiting.get(keyOf(record));
      if (record.kind !== "wait" && this.#done.has(keyOf(record))) continue;
      if (!word) return false;
      this.#next++;
      this.#deliver(word, record);
      return true;
    }
    this.#live = true;
    if (replayed.has(this.base)) this.#stop({ reason: "over" } as Stopped);
    else for (const word of [...this.#waiting.values()]) if (this.#waiting.has(word.key)) this.#begin(word);
    return true;
  }

  /** Goes on in a replay whose next record no word waits for. */
  async #quiet(): Promise<void> {
    const record = this.#log[this.#next] as t.RecordDocument;
    if (record.kind === "wait") {
      if (this.#next === this.#log.length - 1 && waitsOf(record)?.turn === this.base.turn) return this.#suspend(record);
      this.#next++;
      this.#passed++;
      this.#unnamed = 0;
      return;
    }
    const later = this.#log.slice(this.#next).find((r) => r.kind !== "wait" && this.#waiting.has(keyOf(r)));
    if (later) return this.#deliver(this.#waiting.get(keyOf(later)) as Word, later);
    const seen = this.#activity;
    for (let end = Date.now() + patience; Date.now() < end && seen === this.#activity; ) await pause(20);
    if (seen !== this.#activity || this.#frozen) return;
    const word = [...this.#waiting.values()].find((w) => w.place !== undefined);
    const met = word ? `now asks for ${word.kind} "${word.name}" at ${word.place}` : "now asks for nothing";
    this.#fail(new CodeChanged(`the code has changed: it recorded ${record.kind} "${record.name}", and ${met}`));
  }

  /** Ends the run by what its branches wait for. Its words settle no more, so that no finally runs. */
  async #suspend(lost?: t.RecordDocument): Promise<void> {
    const words = [...this.#waiting.values()];
    const of = (kind: Word["kind"]) => words.filter((w) => w.kind === kind).map((w): [string, number] => [w.name, w.nth]);
    const asking = words.flatMap((w) => w.question ?? []);
    const calls = words.flatMap((w) => w.call ?? []);
    const timed = words.filter((w) => w.due !== undefined);
    const times = new Map(timed.map((w) => [w.key, new Date(w.due as number).toISOString()]));
    const until = lost ? (waitsOf(lost)?.until ?? null) : ([...times.values()].sort()[0] ?? null);
    const tries = timed.filter((w) => w.kind === "step").map((w) => [w.key, w.tries]);
    const data: Waits = {
      turn: this.base.turn,
      asks: [...of("ask"), ...of("auth")],
      calls: of("call"),
      until,
      sleeps: Object.fromEntries(times),
      ...(tries.length > 0 ? { tries: Object.fromEntries(tries) } : {}),
    };
    this.#frozen = true;
    if (!lost) this.#record("wait", "wait", this.#waits.length + 1, { data }).catch(() => {});
    const resume = asking.find((q) => q.resume)?.resume;
    const metadata = asking.find((q) => q.metadata)?.metadata;
    if (calls.length > 0) await this.base.call(...calls);
    else if (asking.length > 0 && data.asks.length === of("auth").length)
      await this.base.auth(messageOf(asking), { resume, metadata });
    else if (asking.length > 0) await this.base.ask(messageOf(asking) as t.Speech, { resume, metadata });
    else if (until) await this.base.wait({ until });
    this.#end();
  }
}

/** Converts what a word returns. As with the word itself, code that does not await it is no reason to end the process. */
function later<T>(word: Promise<Json>, convert: (data: Json) => T): Promise<T> {
  const promise = word.then(convert);
  promise.catch(() => {});
  return promise;
}

/** One try of a step. */
async function once<T>(f: (signal: AbortSignal) => Promise<T> | T, of: AbortSignal, timeout: number | undefined): Promise<T> {
  const stop = new AbortController();
  const relay = () => stop.abort(of.reason);
  of.addEventListener("abort", relay);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    if (timeout === undefined) return;
    timer = setTimeout(() => {
      const error = Object.assign(new Error(`the step took more than ${timeout} s`), { name: "TimeoutError" });
      reject(error);
      stop.abort(error);
    }, timeout * 1000);
  });
  try {
    return await Promise.race([(async () => await f(stop.signal))(), late]);
  } finally {
    clearTimeout(timer);
    of.removeEventListener("abort", relay);
  }
}
