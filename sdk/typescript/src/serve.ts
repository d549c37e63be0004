import type { Agent } from "./agent.js";
import { ConnectError } from "./errors.js";
import { describe, textLogger } from "./log.js";
import type { ConnectOptions } from "./options.js";
import { connect } from "./worker.js";

let serving = 0; // calls of serve in this process

/**
 * Connects agents to the server for the life of this process. SIGTERM and SIGINT drain: no more claims, runs finish within
 * drainTimeout, the rest is released. A second signal releases at once. It resolves when the worker has stopped, and never rejects:
 * if the worker cannot work, it says why and sets the exit code 1.
 */
export async function serve(agents: Agent | readonly Agent[], options: ConnectOptions = {}): Promise<void> {
  const log = options.log ?? textLogger();
  serving++;
  try {
    const worker = connect(agents, options);
    let signals = 0;
    const onSignal = () => {
      if (serving === 0) process.exit();
      (signals++ === 0 ? worker.drain() : worker.stop()).catch(() => {});
    };
    process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
    await worker.closed;
  } catch (error) {
    if (!(error instanceof ConnectError))
      log.error("worker failed", { error: error instanceof Error ? error.stack : String(error) });
    else log.error("worker cannot work", { error: describe(error) });
    process.exitCode = 1;
  } finally {
    serving--;
    // Functions that were stopped may go on forever. They must not keep the process. A signal in this time ends it with the same status.
    if (serving === 0) setTimeout(() => process.exit(), 5000).unref();
  }
}
