import { readFile } from "node:fs/promises";
import { hostname } from "node:os";
import type { Agent } from "./agent.js";
import { ConnectError } from "./errors.js";
import { type Logger, textLogger } from "./log.js";

/** How a worker connects. What is left out comes from the environment. */
export interface ConnectOptions {
  /** Of the server, or of several replicas. HOLDFAST_URL, with commas between them; default http://127.0.0.1:8080. */
  url?: string | readonly string[];
  /** HOLDFAST_API_KEY. */
  apiKey?: string;
  /** A file with the API key, read for each request. HOLDFAST_API_KEY_FILE. */
  apiKeyFile?: string;
  /** A file with a token, read for each request. HOLDFAST_TOKEN_FILE. */
  tokenFile?: string;
  /** Returns the credential for each request, such as a token that changes. */
  credential?: () => string | Promise<string>;
  /** For people. HOLDFAST_WORKER_NAME; default: the name of the host. */
  name?: string;
  /** Of the agents' code, such as a commit. HOLDFAST_WORKER_VERSION. */
  version?: string;
  /** How many runs of an agent at most at the same time, for agents that do not say it; default 10. */
  concurrency?: number;
  /** How many seconds runs get to finish when the process stops; default 30, and 0 under `node --watch`. */
  drainTimeout?: number;
  log?: Logger;
}

/** ConnectOptions, checked and complete. */
export interface Resolved {
  urls: URL[];
  credential: () => Promise<string | undefined>;
  name: string;
  version: string;
  drainTimeout: number;
  log: Logger;
  agents: { name: string; handler: Agent["handler"]; concurrency: number }[];
}

type Env = { [name: string]: string | undefined };

/** Checks options, and completes them from the environment. */
export function resolve(agents: Agent | readonly Agent[], o: ConnectOptions, env: Env = process.env): Resolved {
  const list = Array.isArray(agents) ? (agents as readonly Agent[]) : [agents as Agent];
  if (list.length === 0 || list.length > 100) throw new ConnectError(`a worker has 1 to 100 agents, not ${list.length}`);
  const named = list.map((a) => {
    const name = a.name || env.HOLDFAST_AGENT || "";
    if (!name) throw new ConnectError("an agent has no name: write agent(name, …) or set HOLDFAST_AGENT");
    return { name, handler: a.handler, concurrency: a.concurrency ?? o.concurrency ?? 10 };
  });
  for (const [i, { name, concurrency }] of named.entries()) {
    if (named.findIndex((a) => a.name === name) !== i)
      throw new ConnectError(`two agents have the name ${JSON.stringify(name)}`);
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > 1000) {
      throw new ConnectError(`concurrency: ${concurrency} is not an integer from 1 to 1000`);
    }
  }
  const given = o.url ?? (env.HOLDFAST_URL || "http://127.0.0.1:8080");
  const urls = (typeof given === "string" ? given.split(",") : given).map((u) => urlOf(u.trim()));
  if (urls.length === 0) throw new ConnectError("url: there is none");
  const drainTimeout = o.drainTimeout ?? (env.WATCH_REPORT_DEPENDENCIES ? 0 : 30);
  if (!(drainTimeout >= 0 && drainTimeout <= 86_400))
    throw new ConnectError(`drainTimeout: ${drainTimeout} is not 0 to 86400 seconds`);
  return {
    urls,
    credential: credentialOf(o, env),
    name: (o.name ?? (env.HOLDFAST_WORKER_NAME || hostname())).slice(0, 255),
    version: (o.version ?? env.HOLDFAST_WORKER_VERSION ?? "").slice(0, 255),
    drainTimeout,
    log: o.log ?? textLogger(env.HOLDFAST_LOG_LEVEL === "debug" ? "debug" : "info"),
    agents: named,
  };
}

function urlOf(said: string): URL {
  const url = URL.canParse(said) ? new URL(said) : undefined;
  if (url?.protocol !== "http:" && url?.protocol !== "https:") {
    const shown = said.replace(/^(\w+:\/\/)?.*@/, "$1"); // without a password
    throw new ConnectError(`url: ${JSON.stringify(shown)} is no address; write http://HOST:PORT or https://HOST`);
  }
  return url;
}

// The options are looked at before the environment, so that one of them replaces whichever variable is set.
function credentialOf(o: ConnectOptions, env: Env): Resolved["credential"] {
  for (const source of [
    o,
    { apiKey: env.HOLDFAST_API_KEY, apiKeyFile: env.HOLDFAST_API_KEY_FILE, tokenFile: env.HOLDFAST_TOKEN_FILE },
  ]) {
    const given = Object.entries({
      credential: "credential" in source ? source.credential : undefined,
      apiKey: source.apiKey,
      apiKeyFile: source.apiKeyFile,
      tokenFile: source.tokenFile,
    }).filter(([, value]) => value);
    if (given.length > 1) throw new ConnectError(`credentials: choose one of ${given.map(([name]) => name).join(" and ")}`);
    const [one] = given;
    if (!one) continue;
    const value = one[1] as string | (() => string | Promise<string>);
    if (typeof value === "function") return async () => value();
    if (one[0] === "apiKey") return async () => value;
    return async () => {
      try {
        return (await readFile(value, "utf8")).trim();
      } catch (error) {
        throw new ConnectError(`cannot read the credential: ${error instanceof Error ? error.message : String(error)}`, {
          cause: error,
        });
      }
    };
  }
  return async () => undefined;
}
