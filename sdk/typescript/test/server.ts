// A scripted server, over real HTTP: the worker API and the run API in memory, with faults where a test wants them.
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { parse, type RunDocument, stringify } from "holdfast-agent";

/** One request that came. */
export interface Request {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingMessage["headers"];
  // biome-ignore lint/suspicious/noExplicitAny: tests look at what came
  body: any;
  /** Differs for each connection. */
  port: number;
}

/** An answer instead of the right one. cut: none, and nothing is stored. cutAnswer: none, but what came is stored. */
export type Fault = "cut" | "cutAnswer" | "hang" | { status: number; headers?: Record<string, string>; body?: unknown };

// biome-ignore lint/suspicious/noExplicitAny: events as they come
type AnyEvent = any;

export class Task {
  events: AnyEvent[] = [];
  ended = false;
  over = false;
  released = false;
  given = 0;
  state: { [scope: string]: { data: unknown; version: number } } = {};
  readonly token: string;

  constructor(
    readonly id: string,
    readonly run: RunDocument,
    readonly lease: number,
  ) {
    this.token = run.runApi?.token ?? "";
  }

  get texts(): string {
    return this.events.map((e) => (e.type === "text" ? e.text : "")).join("");
  }

  get types(): string[] {
    return this.events.map((e) => e.type);
  }
}

export class ScriptedServer {
  readonly requests: Request[] = [];
  readonly tasks: Task[] = [];
  /** Looked at before each request. */
  fault: (r: Request) => Fault | undefined = () => undefined;
  /** Members of the answers to come. */
  drain: string | undefined;
  stops = new Map<string, { stop: string; metadata?: object }>();
  #server: Server;
  #queue: Task[] = [];
  #any: Task[] = [];
  #wake: (() => void)[] = [];

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(): Promise<ScriptedServer> {
    const http = createServer();
    const server = new ScriptedServer(http);
    http.on("request", (req, res) => {
      server.#serve(req, res).catch((error) => res.destroy(error));
    });
    http.listen(0, "127.0.0.1");
    await once(http, "listening");
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  /** Makes a run that the next claim gets. */
  give(text: string, more: Partial<RunDocument> & { agent?: string; lease?: number } = {}): Task {
    const n = this.tasks.length + 1;
    const { agent = "test", lease = 30, ...rest } = more;
    const run: RunDocument = {
      version: 1,
      idempotencyKey: `key-${n}:1`,
      task: { id: `task-${n}`, key: `key-${n}`, contextId: "c", contextKey: "c-key", agent },
      message: { messageId: `m-${n}`, role: "user", parts: [{ text }] },
      runApi: { url: "http://192.0.2.1/elsewhere", token: `token-${n}` },
      limits: { event: 16 << 20, state: 256 << 10 },
      traceparent: `00-4bf92f3577b34da6a3ce929d0e0e4736-${String(n).padStart(16, "0")}-01`,
      turn: 1,
      try: 1,
      attempt: 1,
      ...rest,
    };
    const task = new Task(`run-${n}`, run, lease);
    this.tasks.push(task);
    this.#queue.push(task);
    this.wake();
    return task;
  }

  /** Gives a run to the next claim of any agent. */
  deliver(task: Task): void {
    this.#queue = this.#queue.filter((t) => t !== task);
    this.#any.push(task);
    this.wake();
  }

  /** Lets requests that wait look again. */
  wake(): void {
    for (const w of this.#wake.splice(0)) w();
  }

  /** What the next heartbeat says of a run. */
  tell(task: Task, stop: string, metadata?: object): void {
    this.stops.set(task.id, { stop, metadata });
    if (stop !== "canceled") task.over = true;
    this.wake();
  }

  of(path: string): Request[] {
    return this.requests.filter((r) => r.path === path);
  }

  async #wait(until: () => boolean, seconds: number, req: IncomingMessage): Promise<void> {
    const end = performance.now() + seconds * 1000;
    const timer = setTimeout(() => this.wake(), seconds * 1000 + 1);
    req.socket.once("close", () => this.wake());
    while (!until() && performance.now() < end && !req.socket.destroyed) {
      await new Promise<void>((w) => this.#wake.push(w));
    }
    clearTimeout(timer);
  }

  async #serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? "", "http://x");
    let text = "";
    for await (const piece of req.setEncoding("utf8")) text += piece;
    const ndjson = req.headers["content-type"] === "application/x-ndjson";
    const body = ndjson ? text.split("\n").filter(Boolean).map(parse) : text ? parse(text) : undefined;
    const r: Request = {
      method: req.method ?? "",
      path: url.pathname,
      query: url.searchParams,
      headers: req.headers,
      body,
      port: req.socket.remotePort ?? 0,
    };
    this.requests.push(r);
    this.wake();
    const fault = this.fault(r);
    if (fault === "hang") return;
    if (fault === "cut") return void res.destroy();
    if (typeof fault === "object") return this.#answer(res, fault.status, fault.body, fault.headers);
    const [status, answer, headers] = await this.#handle(r, req);
    if (fault === "cutAnswer") return void res.destroy();
    this.#answer(res, status, answer, headers);
  }

  #answer(res: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
    if (res.destroyed) return;
    res.writeHead(status, { "Content-Type": status < 400 ? "application/json" : "application/problem+json", ...headers });
    res.end(body === undefined ? "" : stringify(body));
  }

  async #handle(r: Request, req: IncomingMessage): Promise<[number, unknown, Record<string, string>?]> {
    switch (r.path) {
      case "/worker/v1/claims":
        return [200, await this.#claim(r, req)];
      case "/worker/v1/heartbeat":
        return [200, await this.#heartbeat(r, req)];
      case "/worker/v1/release":
        for (const t of this.tasks) if (r.body.runs.includes(t.id)) t.released = true;
        return [200, { released: r.body.runs }];
    }
    const task = this.tasks.find((t) => r.headers.authorization === `Bearer ${t.token}`);
    if (!task) return problem(401, "unauthenticated");
    if (r.path === "/run/v1/events") return this.#events(r, task);
    if (task.ended || task.over || task.released) return problem(410, "over");
    return this.#memory(r, task);
  }

  async #claim(r: Request, req: IncomingMessage): Promise<unknown> {
    const slots = new Map<string, number>(r.body.agents.map((a: { name: string; slots: number }) => [a.name, a.slots]));
    const missing = () =>
      this.tasks.filter((t) => t.given > 0 && !t.ended && !t.over && !t.released && !r.body.running.includes(t.id));
    const wanted = () => this.#any.length > 0 || this.#queue.some((t) => (slots.get(t.run.task.agent) ?? 0) > 0);
    await this.#wait(() => missing().length > 0 || wanted() || this.drain !== undefined, r.body.wait ?? 30, req);
    if (req.socket.destroyed) return {};
    const runs = missing();
    for (const t of runs) slots.set(t.run.task.agent, (slots.get(t.run.task.agent) ?? 0) - 1);
    this.#queue = this.#queue.filter((t) => {
      const free = slots.get(t.run.task.agent) ?? 0;
      if (free <= 0) return true;
      slots.set(t.run.task.agent, free - 1);
      runs.push(t);
      return false;
    });
    runs.push(...this.#any.splice(0));
    for (const t of runs) t.given++;
    const drain = this.drain;
    if (drain === "replica") this.drain = undefined;
    return { runs: runs.map((t) => ({ id: t.id, run: t.run, lease: t.lease, later: 1 })), drain, unknown: true };
  }

  async #heartbeat(r: Request, req: IncomingMessage): Promise<unknown> {
    const named = new Set<string>(r.body.runs);
    const stopping = new Set<string>(r.body.stopping ?? []);
    const news = () => [...this.stops].some(([id]) => named.has(id) && !stopping.has(id));
    await this.#wait(() => news() || this.drain === "worker", r.body.wait ?? 0, req);
    const runs = [...this.stops].filter(([id]) => named.has(id)).map(([id, stop]) => ({ id, ...stop }));
    return { lease: 30, runs, drain: this.drain };
  }

  #events(r: Request, task: Task): [number, unknown] {
    const from = Number(r.query.get("from"));
    if (task.over || task.released) return problem(410, "over");
    if (from > task.events.length) return problem(409, "ordinal", { next: task.events.length });
    if (task.ended && from + r.body.length > task.events.length) return problem(410, "over");
    for (const event of r.body.slice(task.events.length - from)) {
      task.events.push(event);
      if (["ask", "auth", "complete", "fail", "reject", "reply", "retry", "wait", "call"].includes(event.type))
        task.ended = true;
      if (task.ended) break;
    }
    return [200, { next: task.events.length, ended: task.ended }];
  }

  #memory(r: Request, task: Task): [number, unknown] {
    const [, , , kind, id] = r.path.split("/");
    switch (kind) {
      case "state": {
        const scope = id ?? "";
        const stored = task.state[scope];
        if (r.method === "GET") return stored ? [200, stored] : problem(404, "not_found");
        const match = r.headers["if-match"];
        const none = r.headers["if-none-match"];
        if ((match && match !== `"${stored?.version}"`) || (none && stored)) return problem(412, "state_changed");
        task.state[scope] = { data: r.body, version: (stored?.version ?? 0) + 1 };
        return [200, { version: task.state[scope]?.version }];
      }
      case "history":
        return [200, { history: [{ role: "user", parts: [{ text: `${r.query}` }] }], next: "older" }];
      case "artifacts":
        if (id)
          return id === "none"
            ? problem(404, "not_found")
            : [200, { artifactId: decodeURIComponent(id), parts: [{ text: "a" }] }];
        if (r.query.get("after")) return [200, { artifacts: [{ artifactId: "b", chunks: 1, bytes: 1, last: true }] }];
        return [200, { artifacts: [{ artifactId: "a", chunks: 1, bytes: 1, last: true }], next: "n" }];
      case "tasks":
        if (id)
          return [200, { id, contextId: "c", state: "completed", history: [{ role: "agent", parts: [{ text: "said" }] }] }];
        return [200, { tasks: [{ id: "t-1", contextId: "c", state: "completed" }] }];
      default:
        return [200, task.run];
    }
  }
}

export function problem(status: number, reason: string, more: object = {}): [number, unknown] {
  return [status, { title: "Refused", status, reason, detail: `it is ${reason}`, ...more }];
}

/** Waits until a condition holds, for at most a minute. */
export async function until(what: string, condition: () => boolean): Promise<void> {
  for (const end = performance.now() + 60_000; !condition(); ) {
    if (performance.now() > end) throw new Error(`it did not happen: ${what}`);
    await sleep(5);
  }
}
