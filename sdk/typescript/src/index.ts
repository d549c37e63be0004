/**
 * Agents for a Holdfast server, as workers that connect to it.
 *
 * ```ts
 * import { agent, serve } from "holdfast-agent";
 *
 * serve(agent("hello", async (run) => { await run.text(`Hello, ${run.message.text}!`); }));
 * ```
 */
export { type Agent, type AgentOptions, agent, type Handler, type Returned } from "./agent.js";
export type { Parser, Schema } from "./answers.js";
export { type AskOptions, type DurableCall, type DurableRun, durable, type Sleep, type StepOptions } from "./durable.js";
export {
  CodeChanged,
  ConnectError,
  EventRefused,
  Fail,
  Reject,
  Retry,
  RunApiError,
  StateChanged,
  StepFailed,
  Stopped,
} from "./errors.js";
export { type Json, type JsonObject, parse, stringify } from "./json.js";
export { type Fields, type Level, type Logger, textLogger } from "./log.js";
export type { ConnectOptions } from "./options.js";
export type { Cancel, HistoryOptions, HistoryPage, Input, Message, Reference, Result, Run, Said } from "./run.js";
export { serve } from "./serve.js";
export type * from "./types.js";
export { version } from "./version.js";
export { connect, type Worker } from "./worker.js";
