import { randomUUID } from "node:crypto";
import type { Agent, Handler } from "./agent.js";
import { ConnectError, EventRefused, Fail, Reject, Retry, raised, Stopped, stackOf } from "./errors.js";
import {
  type Answer,
  Backoff,
  HttpTransport,
  object,
  type Problem,
  pause,
  problemOf,
  type Transport,
  temporary,
} from "./http.js";
import type { JsonObject } from "./json.js";
import { parse, stringify } from "./json.js";
import { describe, type Logger, withFields } from "./log.js";
import { type ConnectOptions, type Resolved, resolve } from "./options.js";
import { Run } from "./run.js";
import type { Event, RunDocument } from "./types.js";
import { version } from "./version.js";

/** A worker that is connected. */
export interface Worker {
  /** New with each worker. The server's views and logs have it. */
  readonly id: string;
  /** Fulfilled when the worker has stopped, because drain or stop was called or an operator retired it. */
  readonly closed: Promise<void>;
  /** Claims no more, lets the runs finish within drainTimeout, releases the rest. Resolves as closed does. */
  drain(): Promise<void>;
  /** Stops and releases all runs at once. Resolves as closed does. */
  stop(): Promise<void>;
}

/**
 * Connects agents to the server: claims their runs and does them, until drain or stop. It installs no handlers of signals; serve does.
 * Throws a ConnectError if an option is wrong. `closed` is rejected with one if the server rules out this worker.
 */
export function connect(agents: Agent | readonly Agent[], options: ConnectOptions = {}): Worker {
  const worker = new Connection(resolve(agents, options));
  return worker;
}

interface Active {
  id: string;
  agent: string;
  run: Run;
  /** Seconds. */
  lease: number;
  /** The server has said to stop it. */
  stopping: boolean;
  /** The worker has it no longer: it was lost, it is over, or it was released. */
  gone: boolean;
}

/** A run that this worker cannot do. It is released after a while. */
interface Kept {
  id: string;
  agent: string;
  lease: number;
  stopping: boolean;
}

// How long the answer to a claim may take, and what the server may need besides waiting.
const claimWait = 30;
const answerTime = 30_000;
// How long functions have after they were stopped for a drain, before their runs are released.
const lastWords = 2000;
const leaveTime = 2000;
// How long a run that the worker cannot do is kept: the server may give it to this worker again.
const strangePause = 10_000;
// How many ended runs are remembered, because the server may answer with one again.
const remembered = 10_000;

class Connection implements Worker {
  readonly id = randomUUID();
  readonly closed: Promise<void>;
  readonly #o: Resolved;
  readonly #log: Logger;
  readonly #transport: HttpTransport;
  /** The run API, on the same server. */
  readonly #runApi: Transport = {
    request: async (method, path, options) => {
      const answer = await this.#transport.request(method, `/run/v1${path}`, options);
      if (answer.status === 503) this.#transport.renew();
      return answer;
    },
  };
  readonly #runs = new Map<string, Active>();
  readonly #kept = new Map<string, Kept>();
  readonly #ended = new Set<string>();
  readonly #busy = new Map<string, number>(); // slots in use, by agent
  readonly #stopClaims = new AbortController();
  readonly #stopBeats = new AbortController();
  #draining = false;
  #hasTimeout = false; // of the drain
  #returning: Promise<unknown> = Promise.resolve(); // runs that this worker does not begin
  #begun = 0; // runs, since the start
  #cut = false; // a claim was ended before its answer came
  #hurry: () => void = () => {}; // ends the drain's patience
  readonly #hurried: Promise<void>;
  #stopNow: () => void = () => {}; // ends the patience with code that was stopped, too
  readonly #stopped: Promise<void>;
  #claim: { cancel: AbortController; full: Set<string> } | undefined;
  #beat: AbortController | undefined;
  #wake: () => void = () => {}; // the claims, when a slot is free
  #beatWake: () => void = () => {}; // the heartbeats, when there is a run
  #idle: () => void = () => {}; // the drain, when no run is left

  constructor(o: Resolved) {
    this.#o = o;
    this.#transport = new HttpTransport(o.urls);
    this.#log = withFields(o.log, { worker: this.id });
    this.#hurried = new Promise((done) => {
      this.#hurry = done;
    });
    this.#stopped = new Promise((done) => {
      this.#stopNow = done;
    });
    this.closed = this.#live();
    this.closed.catch(() => {}); // those that wait for it get it
  }

  drain(): Promise<void> {
    if (!this.#hasTimeout) {
      this.#hasTimeout = true;
      this.#log.info("the worker drains", { runs: this.#runs.size, timeout: `${this.#o.drainTimeout}s` });
      setTimeout(this.#hurry, this.#o.drainTimeout * 1000).unref();
    }
    this.#beginDrain();
    return this.closed;
  }

  stop(): Promise<void> {
    this.#stopNow();
    this.#hurry();
    this.#beginDrain();
    return this.closed;
  }

  #beginDrain(): void {
    this.#draining = true;
    this.#stopClaims.abort();
    this.#wake();
    if (this.#runs.size === 0) this.#idle();
  }

  async #live(): Promise<void> {
    this.#log.info("the worker starts", {
      url: this.#o.urls.map((u) => u.origin).join(","),
      agents: this.#o.agents.map((a) => a.name).join(","),
      version: this.#o.version || undefined,
    });
    const beats = this.#heartbeats();
    const lag = this.#watchLoop();
    try {
      await this.#claims();
      await Promise.all([this.#returnUndelivered(), this.#drainRuns()]);
      await this.#returning;
      this.#log.info("the worker has stopped");
    } catch (error) {
      this.#draining = true;
      this.#stopClaims.abort();
      for (const a of this.#runs.values()) this.#lose(a, new Stopped("released", "the worker has failed"));
      throw error;
    } finally {
      clearInterval(lag);
      this.#stopBeats.abort();
      this.#beatWake();
      await beats;
      await this.#leave();
      this.#transport.close();
    }
  }

  // Claims

  async #claims(): Promise<void> {
    const backoff = new Backoff();
    let connected = false;
    let drained = 0;
    while (!this.#draining) {
      const free = this.#free();
      if (free.every((a) => a.slots === 0)) {
        await new Promise<void>((wake) => {
          this.#wake = wake;
        });
        continue;
      }
      const cancel = new AbortController();
      const abort = () => cancel.abort();
      this.#stopClaims.signal.addEventListener("abort", abort);
      this.#claim = { cancel, full: new Set(free.filter((a) => a.slots === 0).map((a) => a.name)) };
      let answer: Answer | undefined;
      const sent = performance.now();
      try {
        answer = await this.#post(
          "/worker/v1/claims",
          this.#claimBody(free, claimWait),
          cancel.signal,
          claimWait * 1000 + answerTime,
        );
      } catch (error) {
        if (cancel.signal.aborted) {
          this.#cut = true;
          continue;
        }
        this.#noAnswer("claims", error);
      } finally {
        this.#claim = undefined;
        this.#stopClaims.signal.removeEventListener("abort", abort);
      }
      if (answer?.status === 200) {
        if (!connected) this.#log.info("the worker is connected");
        connected = true;
        backoff.reset();
        const before = this.#begun;
        const drain = this.#begin(answer);
        if (drain === "worker") this.#retire();
        drained = drain === "replica" ? drained + 1 : 0;
        // An answer without runs that did not wait: this server does not, or it has ended the claim.
        const idle = drain === undefined && this.#begun === before && performance.now() - sent < 1000;
        if (idle) await pause(200, this.#stopClaims.signal);
        // Behind a proxy, new connections may lead to the same replica for a while.
        if (drained > 1) await pause(Math.min(100 * drained, 1000), this.#stopClaims.signal);
        continue;
      }
      if (answer) this.#refusedRequest("claims", answer);
      await backoff.pause(answer, this.#stopClaims.signal);
    }
  }

  #free(): { name: string; slots: number }[] {
    const kept = [...this.#kept.values()];
    return this.#o.agents.map(({ name, concurrency }) => {
      // As many kept runs as slots leave room for others. More of them would make the worker claim the whole queue.
      const extra = Math.max(0, kept.filter((k) => k.agent === name).length - concurrency);
      return { name, slots: Math.max(0, concurrency - (this.#busy.get(name) ?? 0) - extra) };
    });
  }

  #claimBody(agents: { name: string; slots: number }[], wait: number): unknown {
    return { worker: this.#self(), agents, running: [...this.#runs.keys(), ...this.#kept.keys()], wait };
  }

  #self(): unknown {
    const { name, version: of } = this.#o;
    return {
      id: this.id,
      name: name || undefined,
      version: of || undefined,
      sdk: `holdfast-agent/${version} node/${process.versions.node}`,
    };
  }

  /** Logs an answer that is no success. Throws if no repetition can change it. */
  #refusedRequest(request: string, answer: Answer): void {
    const problem = problemOf(answer);
    if (problem.reason === "version") {
      throw new ConnectError(
        `the server speaks other versions of the worker API than 1: ${problem.versions?.join(", ") || problem.detail}`,
      );
    }
    if (answer.status === 400 && request === "claims")
      throw new ConnectError(`the server refuses the claim: ${at(problem)}${problem.detail}`);
    const level = temporary(answer.status) ? "warn" : "error";
    this.#log[level]("the server refuses a request", {
      request,
      status: answer.status,
      reason: problem.reason || undefined,
      field: problem.field,
      error: problem.detail,
    });
    if (answer.status >= 500) this.#transport.renew();
  }

  /** Begins the runs of an answer, and returns what it says about draining. */
  #begin(answer: Answer): string | undefined {
    let claimed: JsonObject;
    try {
      claimed = parse(answer.text) as JsonObject;
    } catch (error) {
      this.#log.error("the answer to a claim is no JSON", { error: describe(error) });
      return undefined;
    }
    const unwanted: Kept[] = [];
    for (const { id, run, lease } of (claimed.runs ?? []) as unknown as { id: string; run: RunDocument; lease: number }[]) {
      if (this.#runs.has(id) || this.#kept.has(id) || this.#ended.has(id)) continue; // given twice
      const kept: Kept = { id, agent: "", lease, stopping: false };
      try {
        kept.agent = run.task.agent;
        const agent = this.#o.agents.find((a) => a.name === kept.agent);
        if (!this.#draining && agent) {
          void this.#perform(this.#activate(id, run, lease), agent.handler);
          continue;
        }
        if (!agent)
          this.#log.error("the server sent a run of an agent that this worker does not have", { run: id, agent: kept.agent });
      } catch (error) {
        this.#log.error("cannot read the run document", { run: id, error: describe(error) });
      }
      unwanted.push(kept);
    }
    if (unwanted.length > 0) this.#returning = Promise.all([this.#returning, this.#releaseLater(unwanted)]).then(() => {});
    if (claimed.drain === "replica") this.#transport.renew();
    return claimed.drain as string | undefined;
  }

  /** Releases runs after a while, or when the worker drains. */
  async #releaseLater(runs: Kept[]): Promise<void> {
    for (const k of runs) this.#kept.set(k.id, k);
    this.#newBeat();
    await pause(strangePause, this.#stopClaims.signal);
    const left = runs.filter((k) => this.#kept.get(k.id) === k);
    if (left.length > 0) await this.#release(left.map((k) => k.id));
    for (const k of left) this.#kept.delete(k.id);
    for (const k of runs) this.#freed(k.agent);
  }

  /** Uses a slot that may be free. */
  #freed(agent: string): void {
    // A claim that waits has named no slots of this agent: another one replaces it.
    if (this.#claim?.full.has(agent)) this.#claim.cancel.abort();
    this.#wake();
  }

  #noAnswer(request: string, error: unknown): void {
    if (error instanceof ConnectError) this.#log.error(error.message, { request });
    else this.#log.warn("the server does not answer", { request, error: describe(error) });
    this.#transport.renew();
  }

  /** Asks once for runs that the server gave in an answer that this process did not read, and releases them. */
  async #returnUndelivered(): Promise<void> {
    if (!this.#cut) return;
    const none = this.#o.agents.map(({ name }) => ({ name, slots: 0 }));
    try {
      const answer = await this.#post("/worker/v1/claims", this.#claimBody(none, 0), this.#stopBeats.signal, 5000);
      if (answer.status === 200) this.#begin(answer);
    } catch (error) {
      this.#log.debug("runs that were not delivered are unknown", { error: describe(error) });
    }
  }

  // Runs

  /** Throws if the document cannot be read. */
  #activate(id: string, document: RunDocument, lease: number): Active {
    const run: Run = new Run(document, this.#runApi, this.#log, id, (reason) => {
      if (reason.reason === "over") this.#lose(active, reason);
    });
    const active: Active = { id, agent: run.agent, run, lease, stopping: false, gone: false };
    return active;
  }

  async #perform(active: Active, handler: Handler): Promise<void> {
    const { agent: name, run } = active;
    this.#runs.set(active.id, active);
    this.#begun++;
    this.#busy.set(name, (this.#busy.get(name) ?? 0) + 1);
    this.#newBeat();
    run.log.info("run began", { turn: run.turn, try: run.try, attempt: run.attempt });
    const began = performance.now();
    try {
      await this.#finish(active, handler);
    } catch (error) {
      run.log.error("the run was not ended", { error: describe(error) });
    }
    const took = `${((performance.now() - began) / 1000).toFixed(3)}s`;
    run.log.info("run ended", { outcome: outcomeOf(run), took });
    this.#forget(active);
    const busy = (this.#busy.get(name) ?? 1) - 1;
    this.#busy.set(name, busy);
    this.#freed(name);
  }

  /** Calls the function and ends the run. */
  async #finish(active: Active, handler: Handler): Promise<void> {
    const { run } = active;
    const { uploader } = run;
    const result = await perform(run, handler, () => active.gone);
    if (active.gone || (result !== "release" && !uploader.misplaced)) return;
    await uploader.flush().catch(() => {});
    if (!active.gone) await this.#give([active]);
  }

  /** Removes a run. Nothing names it any more. */
  #forget(active: Active): void {
    active.gone = true;
    if (!this.#runs.delete(active.id)) return;
    this.#ended.add(active.id);
    for (const old of this.#ended) {
      if (this.#ended.size <= remembered) break;
      this.#ended.delete(old);
    }
    if (this.#runs.size === 0) this.#idle();
  }

  /** Stops a run that is another worker's, or nobody's. */
  #lose(active: Active, reason: Stopped): void {
    this.#forget(active);
    active.run.interrupt(reason);
    active.run.uploader.stop(reason);
  }

  /** Releases runs: nothing is posted for them from now on. */
  async #give(actives: Active[]): Promise<void> {
    const given = actives.filter((a) => !a.gone);
    for (const a of given) {
      a.gone = true;
      a.run.uploader.stop(new Stopped("released", "the run was released"));
    }
    if (given.length > 0) await this.#release(given.map((a) => a.id));
    for (const a of given) this.#forget(a);
  }

  async #release(runs: string[]): Promise<void> {
    const backoff = new Backoff();
    for (const end = performance.now() + answerTime; performance.now() < end; ) {
      let answer: Answer | undefined;
      try {
        answer = await this.#post("/worker/v1/release", { worker: this.#self(), runs }, undefined, 10_000);
      } catch (error) {
        this.#noAnswer("release", error);
      }
      if (answer?.status === 200) return;
      if (answer) {
        const { status, detail } = problemOf(answer);
        this.#log.warn("the server refuses a release", { status, error: detail });
        if (status === 400) return;
      }
      await backoff.pause(answer);
    }
    this.#log.error("runs could not be released; they go on when their leases have ended", { runs: runs.length });
  }

  /** Tells the server that this worker is gone. */
  async #leave(): Promise<void> {
    try {
      await this.#post("/worker/v1/release", { worker: this.#self(), runs: [], leaves: true }, undefined, leaveTime);
    } catch {
      // it finds out
    }
  }

  async #drainRuns(): Promise<void> {
    if (this.#runs.size === 0) return;
    const idle = new Promise<void>((done) => {
      this.#idle = done;
    });
    await Promise.race([idle, this.#hurried]);
    if (this.#runs.size === 0) return;
    this.#log.info("the worker releases its runs", { runs: this.#runs.size });
    for (const { run } of this.#runs.values()) run.interrupt(new Stopped("released", "the worker stops"));
    const given = new AbortController(); // a timer that is left would keep the process
    await Promise.race([idle, pause(lastWords, given.signal), this.#stopped.then(() => pause(100, given.signal))]);
    given.abort();
    await this.#give([...this.#runs.values()]);
  }

  #retire(): void {
    if (this.#draining) return;
    this.#log.info("the worker is retired", { runs: this.#runs.size });
    this.#beginDrain();
  }

  // Heartbeats

  /** Replaces the heartbeat that waits, so that the next one names a new run. Runs that are short cause none. */
  #newBeat(): void {
    this.#beatWake();
    const waiting = this.#beat;
    if (waiting) setTimeout(() => waiting.abort(), 200).unref();
  }

  async #heartbeats(): Promise<void> {
    const backoff = new Backoff();
    let drained = 0;
    let answered = true; // the newest heartbeat
    const over = this.#stopBeats.signal;
    while (!over.aborted) {
      const named = [...this.#runs.values(), ...this.#kept.values()];
      if (named.length === 0) {
        await new Promise<void>((wake) => {
          this.#beatWake = wake;
        });
        continue;
      }
      const lease = Math.min(...named.map((a) => a.lease));
      // A heartbeat waits a quarter of the lease, and its answer may take another quarter: the next one still comes in time. After one
      // without an answer it does not wait, because nobody knows whether that one has renewed the leases.
      const wait = answered ? Math.min(30, lease / 4) : 0;
      const patience = Math.min(Math.max(lease / 4, 2), 15);
      const cancel = new AbortController();
      const abort = () => cancel.abort();
      over.addEventListener("abort", abort);
      this.#beat = answered ? cancel : undefined;
      answered = false;
      const body = {
        worker: this.#self(),
        runs: named.map((a) => a.id),
        stopping: named.filter((a) => a.stopping).map((a) => a.id),
        wait,
      };
      let answer: Answer | undefined;
      const began = performance.now();
      try {
        answer = await this.#post("/worker/v1/heartbeat", body, cancel.signal, (wait + patience) * 1000);
      } catch (error) {
        if (cancel.signal.aborted) continue;
        this.#noAnswer("heartbeat", error);
      } finally {
        this.#beat = undefined;
        over.removeEventListener("abort", abort);
      }
      if (answer?.status === 200) {
        backoff.reset();
        answered = true;
        const said = this.#hear(answer, named);
        drained = object(answer.text).drain === "replica" ? drained + 1 : 0;
        if (drained > 0) {
          await this.#beatPause(drained > 1 ? Math.min(100 * drained, 1000) : 0);
          continue;
        }
        // An answer that says nothing, and did not wait: some server does not.
        const early = wait * 1000 - (performance.now() - began);
        if (!said && early > 0) await this.#beatPause(Math.min(early, 1000));
        continue;
      }
      if (answer) {
        try {
          this.#refusedRequest("heartbeat", answer);
        } catch (error) {
          this.#log.error("the server refuses a heartbeat", { error: describe(error) });
        }
      }
      await this.#beatPause(Math.max(Math.min(backoff.next(), lease * 150), answer ? new Backoff().next(answer) : 0));
    }
  }

  /** Pauses, at most until the heartbeats stop. */
  async #beatPause(ms: number): Promise<void> {
    await pause(ms, this.#stopBeats.signal);
  }

  /** Does what the answer to a heartbeat says. Reports whether it said something new. */
  #hear(answer: Answer, named: { lease: number }[]): boolean {
    const beaten = object(answer.text);
    const stops = (beaten.runs ?? []) as unknown as { id: string; stop: string; metadata?: JsonObject }[];
    let news = false;
    for (const { id, stop, metadata } of stops) {
      const kept = this.#kept.get(id);
      if (kept) {
        news ||= !kept.stopping;
        kept.stopping = true;
        if (stop !== "canceled") this.#kept.delete(id);
        continue;
      }
      const active = this.#runs.get(id);
      if (!active || active.gone) continue;
      news ||= !active.stopping;
      active.stopping = true;
      // It also stops a run whose end it has just stored.
      active.run.log[active.run.uploader.closed ? "debug" : "info"]("the server stops the run", { reason: stop });
      if (stop === "canceled") active.run.interrupt(new Stopped("canceled", "the client has canceled the task", metadata));
      else if (stop === "lost") this.#lose(active, new Stopped("lost", "the lease has ended"));
      else this.#lose(active, new Stopped("over", "the run has ended"));
    }
    if (typeof beaten.lease === "number" && beaten.lease > 0) {
      for (const a of named) a.lease = beaten.lease;
    }
    if (beaten.drain === "replica") this.#transport.renew();
    if (beaten.drain === "worker") this.#retire();
    return news;
  }

  /** Warns of code that blocks the event loop, because leases end meanwhile. */
  #watchLoop(): NodeJS.Timeout {
    let last = performance.now();
    return setInterval(() => {
      const lag = performance.now() - last - 1000;
      last = performance.now();
      const lease = Math.min(...[...this.#runs.values()].map((a) => a.lease));
      if (lag > (lease * 1000) / 3) {
        this.#log.warn("the event loop was blocked; leases may end meanwhile", { seconds: (lag / 1000).toFixed(1), lease });
      }
    }, 1000).unref();
  }

  async #post(path: string, body: unknown, signal: AbortSignal | undefined, timeout: number): Promise<Answer> {
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    const credential = await this.#o.credential();
    if (credential) headers.Authorization = `Bearer ${credential}`;
    return await this.#transport.request("POST", path, { headers, body: stringify(body), signal, timeout });
  }
}

const at = (problem: Problem) => (problem.field ? `${problem.field}: ` : "");

/**
 * Calls the function, and posts the event that ends the run, unless one was emitted. Returns what came of it, or "release" for a run
 * that must be given back. Never throws.
 * @internal
 */
export async function perform(run: Run, handler: Handler, gone: () => boolean): Promise<string> {
  const { uploader, signal } = run;
  let error: unknown;
  try {
    const given = await handler(run);
    if (typeof given === "string") await run.text(given);
    else if (given !== undefined && given !== null) {
      const parts = Array.isArray(given) ? given : [given];
      await run.artifact({ artifactId: `result-${run.turn}`, name: "result", parts }, { last: true });
    }
  } catch (thrown) {
    error = thrown ?? new Error("the function threw nothing");
  }
  if (gone()) return "stopped";
  if (!uploader.closed && !uploader.over) await uploader.flush().catch((late) => (error ??= late));
  if (gone()) return "stopped";
  if (uploader.closed && !uploader.over) await uploader.flush().catch((late) => (error ??= late));
  if (gone()) return "stopped";
  if (uploader.closed && uploader.over) {
    if (error !== undefined && !(error instanceof Stopped))
      run.log.warn("the agent failed after the end of its run", { error: stackOf(error) });
    return "ended";
  }
  if (uploader.over) return uploader.misplaced ? "release" : "stopped";
  // Code that was stopped has ended the run itself, or not at all.
  if (signal.aborted) return "release";
  const [event, outcome] = endOf(error);
  if (outcome === "failed") run.log.error("the agent failed", { error: stackOf(error) });
  else if (outcome === "retried") run.log.info("the agent asks for a retry", { reason: describe(error) });
  const end = async (e: Event) => uploader.push(e);
  await end(event)
    .catch((late) =>
      late instanceof EventRefused
        ? end({ type: "fail", message: "The agent failed.", error: raised(late) })
        : Promise.reject(late),
    )
    .catch((late) => run.log.warn("the end of the run was not stored", { error: describe(late) }));
  return uploader.misplaced ? "release" : outcome;
}

/** The result of a run, as the server's log says it. */
function outcomeOf({ uploader, signal }: Run): string {
  if (uploader.outcome) return uploader.outcome;
  const reason = (signal.reason as Stopped | undefined)?.reason ?? (uploader.misplaced ? "lost" : "released");
  return reason === "released" ? "returned" : reason;
}

/** The event that ends a run after its function has returned or thrown, and what to call that. */
function endOf(error: unknown): [Event, "completed" | "failed" | "rejected" | "retried"] {
  if (error === undefined) return [{ type: "complete" }, "completed"];
  if (error instanceof Retry) return [{ type: "retry", reason: describe(error) || undefined, after: error.after }, "retried"];
  if (error instanceof Reject) return [{ type: "reject", message: error.message || undefined }, "rejected"];
  if (error instanceof Fail)
    return [{ type: "fail", message: error.message || "The agent failed.", error: raised(error.cause) }, "failed"];
  return [{ type: "fail", message: "The agent failed.", error: raised(error) }, "failed"];
}
