import { EventEmitter } from "node:events";
import type { Handler } from "../agent.js";
import { EventRefused, type Stopped } from "../errors.js";
import { pause } from "../http.js";
import { type Json, type JsonObject, stringify } from "../json.js";
import { describe } from "../log.js";
import type { Reference, Run } from "../run.js";
import type { NewArtifact, NewPart, Part, SaidDocument, Speech } from "../types.js";

/** The state of a task, as events name it. */
export type State =
  | "submitted"
  | "working"
  | "input-required"
  | "auth-required"
  | "completed"
  | "failed"
  | "rejected"
  | "canceled"
  | "unknown";

/** A message of the agent. */
export type AgentMessage = Exclude<Speech, string>;

/** What an executor has published, in the vocabulary of runs. */
export type Action =
  | { kind: "status"; state: State; message?: AgentMessage; metadata?: JsonObject; final: boolean }
  | { kind: "artifact"; artifact: NewArtifact; append: boolean; last: boolean; metadata?: JsonObject }
  | { kind: "message"; message: AgentMessage }
  | { kind: "task"; state: State; message?: AgentMessage; artifacts: NewArtifact[] };

/** The executor of either line, as far as both have the same form. */
export interface Executor<Context, EventBus> {
  execute(context: Context, bus: EventBus): Promise<void>;
  cancelTask(taskId: string, bus: EventBus): Promise<void>;
}

/** Translates one line of the library. */
export interface Line<Context, Published> {
  /** Whether the run ends when execute returns, as in 1.x, or only by what is published, as in 0.3. */
  readonly endsOnReturn: boolean;
  context(run: Run): Context;
  action(event: Published): Action;
}

class Bus<Published> extends EventEmitter {
  publish(event: Published): void {
    this.emit("event", event);
  }

  finished(): void {
    this.emit("finished");
  }
}

const ended: readonly State[] = ["completed", "failed", "rejected", "canceled"];
const asks: readonly State[] = ["input-required", "auth-required"];

/**
 * Makes an executor a handler. As in the library, the run ends with a bare message, with a status that ends the task or asks
 * something, or with bus.finished().
 */
export function bridge<Context, EventBus, Published>(
  executor: Executor<Context, EventBus>,
  line: Line<Context, Published>,
): Handler {
  return async (run) => {
    const bus = new Bus<Published>();
    const queue: Published[] = [];
    let finished = false;
    let failure: { error: unknown } | undefined;
    let wake = () => {};
    bus.on("event", (event: Published) => {
      queue.push(event);
      wake();
    });
    bus.on("finished", () => {
      finished = true;
      wake();
    });
    const context = line.context(run);
    const fail = (error: unknown) => {
      if (finished || failure) run.log.error("the executor has failed after its end", { error: describe(error) });
      failure ??= { error };
      wake();
    };
    const aborted = () => {
      const { reason } = run.signal.reason as Stopped;
      wake();
      if (reason !== "canceled" && reason !== "over") return;
      callAsync(() => executor.cancelTask(run.taskKey, bus as unknown as EventBus)).catch((error) => {
        run.log.error("cancelTask has failed", { error: describe(error) });
      });
    };
    run.signal.addEventListener("abort", aborted, { once: true });
    const writer = new Writer(run);
    try {
      if (run.signal.aborted) aborted();
      callAsync(() => executor.execute(context, bus as unknown as EventBus)).then(() => {
        if (line.endsOnReturn) bus.finished();
      }, fail);
      for (;;) {
        const event = queue.shift();
        if (event !== undefined) {
          if (await writer.write(line.action(event))) return;
        } else if (failure) {
          throw failure.error;
        } else if (finished) {
          return await writer.end();
        } else if (run.signal.aborted && (!run.canceled || run.uploader.over)) {
          throw run.signal.reason; // what the executor still does is nobody's
        } else {
          const more = new Promise<void>((done) => {
            wake = done;
          });
          await (run.canceled ? Promise.race([more, pause(1000)]) : more);
        }
      }
    } finally {
      finished = true;
      run.signal.removeEventListener("abort", aborted);
      bus.removeAllListeners();
    }
  };
}

const callAsync = async (call: () => Promise<void>) => call();

class Writer {
  readonly #run: Run;
  readonly #known: Set<string>; // artifacts of earlier turns
  readonly #begun = new Set<string>(); // artifacts of this run
  #last: Extract<Action, { kind: "task" | "status" }> | undefined;
  #empty = true;

  constructor(run: Run) {
    this.#run = run;
    this.#known = new Set(own(run.history).flatMap((said) => said.artifactId ?? []));
  }

  /** Emits what was published. Reports whether the run has ended. */
  async write(action: Action): Promise<boolean> {
    switch (action.kind) {
      case "task": {
        this.#last = action;
        for (const artifact of action.artifacts) {
          const id = artifact.artifactId ?? "";
          if (this.#known.has(id) || this.#begun.has(id)) continue;
          await this.#artifact(artifact, false, true);
        }
        return false;
      }
      case "artifact":
        await this.#artifact(action.artifact, action.append, action.last, action.metadata);
        return false;
      case "message":
        await this.#reply(action.message);
        return true;
      case "status":
        this.#last = action;
        if (ended.includes(action.state) || asks.includes(action.state) || action.final) {
          await this.end();
          return true;
        }
        // The state submitted is the server's to set.
        if (action.message || action.metadata || action.state === "working") {
          await this.#run.status(action.message, { metadata: action.metadata });
          this.#empty = false;
        }
        return false;
    }
  }

  /** Ends the run with the last status. */
  async end(): Promise<void> {
    const { state = "completed", message } = this.#last ?? {};
    const o = { metadata: this.#last?.kind === "status" ? this.#last.metadata : undefined };
    // A task that was published as it was given says nothing new.
    if (this.#last?.kind === "task" && asks.includes(state) && this.#run.turn > 1) return;
    switch (state) {
      case "input-required":
        if (message) return await this.#run.ask(message, o);
        return await this.#run.uploader.push({ type: "status", state, ...o });
      case "auth-required":
        return await this.#run.auth(message, o);
      case "failed":
        return await this.#run.fail(message ?? "The agent failed.", o);
      case "rejected":
        return await this.#run.reject(message, o);
      case "canceled":
        if (this.#run.signal.aborted) throw this.#run.signal.reason;
        return await this.#run.fail(message ?? "The agent canceled the task.", o);
      default:
        if (this.#run.signal.aborted && state !== "completed") throw this.#run.signal.reason;
        return await this.#run.complete(state === "completed" ? message : undefined, state === "completed" ? o : {});
    }
  }

  async #artifact(artifact: NewArtifact, append: boolean, last: boolean, metadata?: JsonObject): Promise<void> {
    const id = artifact.artifactId ?? "";
    // The first piece of this run replaces what an earlier try has left.
    const continues = append && (this.#begun.has(id) || this.#known.has(id));
    this.#begun.add(id);
    this.#empty = false;
    await this.#run.artifact(artifact, { append: continues || undefined, last: last || undefined, metadata });
  }

  /** Answers with a bare message if the agent may, and otherwise completes with it. */
  async #reply(message: AgentMessage): Promise<void> {
    if (this.#empty && this.#run.turn === 1) {
      try {
        return await this.#run.reply(message);
      } catch (error) {
        if (!(error instanceof EventRefused)) throw error;
      }
    }
    await this.#run.complete(message);
  }
}

/** The context of a task that the message refers to, as the executor knows it. */
export const contextOf = (run: Run, r: Reference): string => (r.contextId === run.contextId ? run.contextKey : r.contextId);

/** The entries of the task itself, without those of other tasks of the context. */
export const own = (history: readonly SaidDocument[]): SaidDocument[] => history.filter((said) => said.taskId === undefined);

/** JSON as the library reads it: numbers instead of bigints. */
export const plain = <T>(value: T): T => (value === undefined ? value : JSON.parse(stringify(value)));

/** The parts that began the turn: of the message, or what came by a resume URL. */
export function partsOf(run: Run): Part[] {
  const { input, message } = run;
  if (message.parts.length > 0 || input?.source !== "resume") return message.parts;
  if (input.data !== undefined) return [{ data: input.data }];
  if (input.text !== undefined) return [{ text: input.text }];
  return input.bytes === undefined ? [] : [{ raw: input.bytes, mediaType: input.contentType }];
}

/** The id of the message that began the turn. Turns without one get the same id in each try. */
export const messageIdOf = (run: Run): string => run.message.messageId ?? run.idempotencyKey;

/** A member that is left out if it is empty. */
export const some = <T extends string | readonly unknown[]>(value: T | undefined): T | undefined =>
  value?.length ? value : undefined;

/** Metadata, if there is any. */
export const object = (value: unknown): JsonObject | undefined =>
  typeof value === "object" && value !== null && Object.keys(value).length > 0 ? (value as JsonObject) : undefined;

/** Parts that an agent may emit, without those that have no content. */
export const emitted = (parts: (NewPart | undefined)[]): NewPart[] => parts.filter((p) => p !== undefined);

/** The state of a stored entry, or of the task before this turn. */
export function stateBefore(run: Run): State {
  const last = own(run.history).findLast((said) => said.state !== undefined);
  return (last?.state as State | undefined) ?? "submitted";
}

/** A data value, for parts of both lines. */
export const json = (value: unknown): Json => (value === undefined ? null : (value as Json));
