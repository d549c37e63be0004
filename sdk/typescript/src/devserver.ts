import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import type { Agent } from "./agent.js";
import type { TaskState } from "./testing.js";
import type { Artifact, Part } from "./types.js";
import { connect, type Worker } from "./worker.js";

/** What a server for tests needs besides its agents. */
export interface DevServerOptions {
  /** The server's binary; default HOLDFAST_BINARY, then what the package `holdfast` brought, then PATH. */
  binary?: string;
  /** A PostgreSQL to use instead of one in a temporary directory. */
  databaseUrl?: string;
  /** Takes each line of the server's log; default: the last 200 lines are in `log`. */
  onLog?: (line: string) => void;
}

/** How a message is sent. */
export interface SendOptions {
  /** Default: the first agent. */
  agent?: string;
  /** The id of a task that asks; default: a new task. */
  task?: string;
  /** Default 30. */
  timeoutSeconds?: number;
}

/** A task, as its client sees it. */
export interface Answered {
  id: string;
  state: TaskState;
  /** The text of the status: the question, or what the task failed with. */
  said: string;
  /** The texts of all artifacts. */
  text: string;
  artifacts: Artifact[];
}

/** Seconds that a start may take: the first one on a machine unpacks PostgreSQL. */
const start = 120;

/**
 * A Holdfast server with a database of its own, for tests that see an agent as its clients do.
 *
 * ```ts
 * await using server = await DevServer.start(greeter);
 * const asked = await server.send("hi");
 * await server.kill(); // as kill -9 does
 * await server.start();
 * assert.equal((await server.send("Ada", { task: asked.id })).text, "Hello, Ada!");
 * ```
 */
export class DevServer {
  /** The base URL of the agents: HOLDFAST_URL of a worker. */
  url = "";
  /** The base URL of metrics, health and console. */
  adminUrl = "";
  /** The newest lines of the server's log. */
  readonly log: string[] = [];
  #process: ChildProcess | undefined;
  #worker: Worker | undefined;
  #directory = "";

  private constructor(
    private readonly agents: readonly (Agent | string)[],
    private readonly options: DevServerOptions,
  ) {}

  /** Starts a server with agents, which this process serves; a string names an agent that other processes of the test serve. */
  static async start(agents: Agent | string | readonly (Agent | string)[], options: DevServerOptions = {}): Promise<DevServer> {
    const server = new DevServer(Array.isArray(agents) ? agents : [agents as Agent | string], options);
    await server.start();
    return server;
  }

  /** The console's address. */
  get consoleUrl(): string {
    return `${this.adminUrl}/console/`;
  }

  /** Starts the server again, with the same addresses and data, after kill or stop. */
  async start(): Promise<void> {
    if (this.#process) return;
    if (!this.#directory) {
      this.#directory = mkdtempSync(join(tmpdir(), "holdfast-dev-"));
      chmodSync(this.#directory, 0o755); // root's PostgreSQL runs as another user
      const agents = this.agents.map((a) => ({ name: typeof a === "string" ? a : a.name, executor: { kind: "worker" } }));
      writeFileSync(join(this.#directory, "holdfast.yaml"), JSON.stringify({ agents }));
    }
    const listen = (url: string) => url.replace("http://", "") || "127.0.0.1:0";
    const args = ["serve", "--config", "holdfast.yaml", "--grpc-listen", "off"];
    args.push("--listen", listen(this.url), "--admin-listen", listen(this.adminUrl));
    if (this.options.databaseUrl) args.push("--database-url", this.options.databaseUrl);
    const kept = Object.entries(process.env).filter(([k]) => !k.startsWith("HOLDFAST_") || k.startsWith("HOLDFAST_PG_"));
    const server = spawn(this.options.binary ?? find(), args, {
      cwd: this.#directory,
      env: Object.fromEntries(kept),
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#process = server;
    const ready = await this.#ready(server);
    if (!ready) {
      await this.close();
      throw new Error(`the server did not start: ${this.log.at(-1) ?? "it wrote nothing"}`);
    }
    [this.url, this.adminUrl] = [ready.url, ready.admin];
    const served = this.agents.filter((a) => typeof a !== "string");
    if (served.length > 0) this.#worker ??= connect(served, { url: this.url, name: "test" });
  }

  #ready(server: ChildProcess): Promise<{ url: string; admin: string } | undefined> {
    return new Promise((done) => {
      const timer = setTimeout(() => done(undefined), start * 1000);
      const over = () => {
        clearTimeout(timer);
        done(undefined);
      };
      server.on("error", (error) => {
        this.log.push(String(error));
        over();
      });
      // biome-ignore lint/style/noNonNullAssertion: it is a pipe
      const lines = createInterface({ input: server.stderr! });
      lines.on("close", over);
      lines.on("line", (line) => {
        this.log.push(line);
        if (this.log.length > 200) this.log.shift();
        this.options.onLog?.(line);
        if (!line.includes('"server ready"')) return;
        clearTimeout(timer);
        done(JSON.parse(line));
      });
    });
  }

  /** Kills the server as kill -9 does, and waits for its death. */
  kill(): Promise<void> {
    return this.#end("SIGKILL");
  }

  /** Stops the server as SIGTERM does. */
  stop(): Promise<void> {
    return this.#end("SIGTERM");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const server = this.#process;
    this.#process = undefined;
    if (!server || server.pid === undefined || server.exitCode !== null || server.signalCode !== null) return;
    const dead = once(server, "exit");
    server.kill(signal);
    await dead;
  }

  /** Stops server and agents, and deletes the data. */
  async close(): Promise<void> {
    await this.#worker?.stop();
    this.#worker = undefined;
    await this.stop();
    if (!this.#directory) return;
    // The database outlives a killed server.
    for (const name of readdirSync(this.#directory, { recursive: true, encoding: "utf8" })) {
      if (name.endsWith("postmaster.pid")) killQuietly(Number.parseInt(readFileSync(join(this.#directory, name), "utf8"), 10));
    }
    rmSync(this.#directory, { recursive: true, force: true, maxRetries: 10 });
    this.#directory = "";
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Sends a message, and waits until the agent has answered or asks. */
  async send(text: string | Part[], options: SendOptions = {}): Promise<Answered> {
    const parts = typeof text === "string" ? [{ text }] : text;
    const message = { messageId: randomUUID(), role: "ROLE_USER", parts, taskId: options.task };
    const sent = await this.#call(options.agent, "SendMessage", { message, configuration: { returnImmediately: true } });
    return this.wait((sent as { task: { id: string } }).task.id, options);
  }

  /** Waits until a task has ended or asks, also while the server is away. */
  async wait(task: string, options: SendOptions = {}): Promise<Answered> {
    const end = Date.now() + (options.timeoutSeconds ?? 30) * 1000;
    for (;;) {
      const found = await this.get(task, options).catch((error) => {
        if (error instanceof TypeError) return undefined; // fetch found no server
        throw error;
      });
      if (found && found.state !== "submitted" && found.state !== "working") return found;
      if (Date.now() > end) throw new Error(`task ${task} is ${found?.state ?? "out of reach"} after the time for it`);
      await sleep(20);
    }
  }

  /** Reads a task. */
  async get(task: string, options: SendOptions = {}): Promise<Answered> {
    const found = (await this.#call(options.agent, "GetTask", { id: task })) as {
      id: string;
      status: { state: string; message?: { parts: Part[] } };
      artifacts?: Artifact[];
    };
    const artifacts = found.artifacts ?? [];
    return {
      id: found.id,
      state: found.status.state.replace("TASK_STATE_", "").toLowerCase().replace("_", "-") as TaskState,
      said: textOf(found.status.message?.parts ?? []),
      text: artifacts.map((a) => textOf(a.parts)).join(""),
      artifacts,
    };
  }

  async #call(agent: string | undefined, method: string, params: object): Promise<unknown> {
    const response = await fetch(agent ? `${this.url}/agents/${agent}` : this.url, {
      method: "POST",
      headers: { "Content-Type": "application/json", "A2A-Version": "1.0" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    const answer = (await response.json()) as { result?: unknown; error?: { message: string } };
    if (answer.error) throw new Error(`${method}: ${answer.error.message}`);
    return answer.result;
  }
}

function textOf(parts: Part[]): string {
  return parts.map((p) => p.text ?? "").join("");
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGQUIT");
  } catch {
    // it has ended
  }
}

/** Finds the server's binary. */
function find(): string {
  if (process.env.HOLDFAST_BINARY) return resolve(process.env.HOLDFAST_BINARY);
  for (const libc of ["", "-musl"]) {
    try {
      const name = `holdfast-${process.platform}-${process.arch}${libc}`;
      return createRequire(join(process.cwd(), "package.json")).resolve(`${name}/bin/holdfast`);
    } catch {
      // another way
    }
  }
  for (const directory of (process.env.PATH ?? "").split(delimiter)) {
    const path = join(directory, "holdfast");
    if (directory && existsSync(path)) return path;
  }
  throw new Error("the server is not installed: npm install holdfast, or set HOLDFAST_BINARY to the binary");
}
