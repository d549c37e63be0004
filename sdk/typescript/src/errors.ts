import type { JsonObject } from "./json.js";
import type { ErrorDocument } from "./types.js";

/** Throw it to fail the task with a text for the client. The cause is logged, and clients do not see it. */
export class Fail extends Error {
  override name = "Fail";
}

/** Throw it to reject the task with a text for the client: the agent will not do it. */
export class Reject extends Error {
  override name = "Reject";
}

/** Throw it to end this try. Holdfast retries the run after so many seconds, or after its backoff. The reason is for logs. */
export class Retry extends Error {
  override name = "Retry";
  readonly after: number | undefined;

  constructor(reason = "", options: ErrorOptions & { after?: number } = {}) {
    super(reason, options);
    this.after = options.after;
  }
}

/**
 * Why a run stops although its function has not ended: the reason of run.signal, and the error of emissions from then on.
 *
 * - canceled: the client has canceled the task. Emissions still count, for a short time.
 * - lost: another worker may have the run.
 * - over: the run has ended, by a timeout, because its task was deleted, or by an event.
 * - released: this process stops, and returns the run. Another process goes on with it.
 */
export class Stopped extends Error {
  override name = "Stopped";

  constructor(
    readonly reason: "canceled" | "lost" | "over" | "released",
    message: string,
    /** Of the request that canceled the task. */
    readonly metadata?: JsonObject,
  ) {
    super(message);
  }
}

/**
 * An event was refused. One that is too large is refused by the call that emits it; otherwise the next emission throws this error,
 * and what was emitted after the event is dropped. A run that does not see the error fails.
 */
export class EventRefused extends Error {
  override name = "EventRefused";

  constructor(
    message: string,
    /** The HTTP status: 400, 413, 422. */
    readonly status: number,
    /** The member at fault. */
    readonly field?: string,
  ) {
    super(message);
  }
}

/** Says that something has more bytes than a limit of the server, or nothing. */
export function tooLarge(what: string, text: string, limit: string, most: number | undefined): string | undefined {
  const size = Buffer.byteLength(text);
  if (most === undefined || size <= most) return undefined;
  return `${what} has ${size} bytes; the limit is ${most} (limits.${limit})`;
}

/** Another run has changed the state since it was read. Read it again. */
export class StateChanged extends Error {
  override name = "StateChanged";

  constructor(
    message: string,
    /** @internal The request was a repetition. */
    readonly repeated = false,
  ) {
    super(message);
  }
}

/** The run API has answered a read or a write with an error that repeating does not change. */
export class RunApiError extends Error {
  override name = "RunApiError";

  constructor(
    message: string,
    readonly status: number,
    /** For programs, such as not_found: see docs/run-api.yaml. */
    readonly reason: string,
  ) {
    super(message);
  }
}

/** An option, a variable or the server rules out that this worker ever works. */
export class ConnectError extends Error {
  override name = "ConnectError";
}

/** What a step of a durable run has thrown, as it is recorded: the same at first and in a replay. */
export class StepFailed extends Error {
  /** The name of the error that the step threw. */
  readonly type: string;

  /** @internal */
  constructor(recorded: ErrorDocument) {
    super(recorded.message);
    this.type = recorded.type ?? "Error";
    this.name = this.type;
    this.stack = `${this.type}: ${recorded.message}\n${recorded.trace ?? ""}`;
  }
}

/** The code of a durable agent does not fit the records of the task. */
export class CodeChanged extends Error {
  override name = "CodeChanged";
}

const maxTrace = 16000;

/** What operators read of an error. Its place is the newest frame of the agent's own code. */
export function raised(error: unknown): ErrorDocument | undefined {
  if (error === undefined || error === null) return undefined;
  if (!(error instanceof Error)) return { message: String(error) };
  const frames = (error.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line) && !line.includes(here));
  const own = frames.find((line) => !/node:|node_modules/.test(line)) ?? frames[0];
  const place = /([^/\\() ]+:\d+):\d+\)?$/.exec(own ?? "")?.[1];
  return {
    type: error.name,
    place,
    message: error.message,
    trace: (frames.join("\n") + causesOf(error)).slice(0, maxTrace) || undefined,
  };
}

/** The folder of this package, in the names of its files. */
const here = new URL(".", import.meta.url).pathname;

/** The stack of an error and of its causes. */
export function stackOf(error: unknown): string {
  if (error instanceof EventRefused) return error.message;
  if (!(error instanceof Error)) return String(error);
  return (error.stack ?? error.message) + causesOf(error);
}

const causesOf = (error: Error): string => (error.cause === undefined ? "" : `\ncaused by ${stackOf(error.cause)}`);
