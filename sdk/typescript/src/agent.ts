import { ConnectError } from "./errors.js";
import type { Run } from "./run.js";
import type { NewPart } from "./types.js";

/** What a function may return: a text or parts, which are the answer. */
// biome-ignore lint/suspicious/noConfusingVoidType: most functions return nothing
export type Returned = string | NewPart | NewPart[] | undefined | void;

/**
 * Answers one message. Returning completes the task, unless an event has ended the run: a string is emitted as text, parts as an
 * artifact. Calls run concurrently.
 */
export type Handler = (run: Run) => Promise<Returned> | Returned;

/** What an agent has besides its function. */
export interface AgentOptions {
  /** How many runs at most at the same time; default 10. */
  concurrency?: number;
}

/** A function that answers messages, under the name that the server's configuration has. */
export interface Agent {
  /** "" stands for HOLDFAST_AGENT. */
  readonly name: string;
  readonly handler: Handler;
  readonly concurrency: number | undefined;
}

/** Makes a function an agent. Without a name it is the one in HOLDFAST_AGENT. */
export function agent(name: string, handler: Handler, options?: AgentOptions): Agent;
export function agent(handler: Handler, options?: AgentOptions): Agent;
export function agent(first: string | Handler, second?: Handler | AgentOptions, third?: AgentOptions): Agent {
  const [name, handler, options] =
    typeof first === "string" ? [first, second, third] : ["", first, second as AgentOptions | undefined];
  if (typeof handler !== "function") throw new ConnectError(`agent ${JSON.stringify(name)}: the handler is not a function`);
  const concurrency = options?.concurrency;
  if (concurrency !== undefined && !(Number.isInteger(concurrency) && concurrency >= 1 && concurrency <= 1000)) {
    throw new ConnectError(`agent ${JSON.stringify(name)}: concurrency: ${concurrency} is not an integer from 1 to 1000`);
  }
  return { name, handler, concurrency };
}
