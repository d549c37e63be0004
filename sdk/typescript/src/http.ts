import { Agent, type IncomingHttpHeaders, request as requestHttp } from "node:http";
import { Agent as AgentTls, request as requestHttps } from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { type Json, parse } from "./json.js";

/** An answer, read whole. */
export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

/** What a request has besides its method and path. */
export interface RequestOptions {
  headers?: Record<string, string>;
  body?: string;
  /** Ends the request. */
  signal?: AbortSignal;
  /** How long the answer may take, in milliseconds. */
  timeout?: number;
}

/** Anything that answers requests: a server, or a test. The promise is rejected if no whole answer came. */
export interface Transport {
  request(method: string, path: string, options?: RequestOptions): Promise<Answer>;
}

/** A server by the URLs of its replicas, with connections that are kept. */
export class HttpTransport implements Transport {
  readonly #bases: readonly URL[];
  #base: URL;
  #agent: Agent;

  constructor(bases: readonly URL[]) {
    this.#bases = bases;
    this.#base = bases[Math.floor(Math.random() * bases.length)] as URL;
    this.#agent = this.#newAgent();
  }

  #newAgent(): Agent {
    const options = { keepAlive: true, maxFreeSockets: 16 };
    return this.#base.protocol === "https:" ? new AgentTls(options) : new Agent(options);
  }

  /** Makes later requests use new connections, to the next replica. Requests under way keep theirs. */
  renew(): void {
    const old = this.#agent;
    this.#base = this.#bases[(this.#bases.indexOf(this.#base) + 1) % this.#bases.length] as URL;
    this.#agent = this.#newAgent();
    old.maxFreeSockets = 0;
    for (const sockets of Object.values(old.freeSockets)) {
      for (const socket of sockets ?? []) socket.destroy();
    }
  }

  /** Closes all connections. */
  close(): void {
    this.renew();
    this.#agent.destroy();
  }

  request(method: string, path: string, o: RequestOptions = {}): Promise<Answer> {
    const url = new URL(this.#base);
    const [pathname = "", query = ""] = path.split("?", 2);
    url.pathname = url.pathname.replace(/\/+$/, "") + pathname;
    url.search = query;
    const agent = this.#agent;
    return new Promise((resolve, reject) => {
      if (o.signal?.aborted) {
        reject(o.signal.reason);
        return;
      }
      const headers: Record<string, string | number> = { ...o.headers };
      if (o.body !== undefined) headers["Content-Length"] = Buffer.byteLength(o.body);
      const req = (url.protocol === "https:" ? requestHttps : requestHttp)(url, { method, headers, agent });
      const timeout = o.timeout ?? 60_000;
      const timer = setTimeout(() => fail(new Error(`no answer within ${timeout / 1000}s`)), timeout);
      const aborted = () => fail(o.signal?.reason);
      let settled = false;
      const settle = () => {
        clearTimeout(timer);
        o.signal?.removeEventListener("abort", aborted);
        const first = !settled;
        settled = true;
        return first;
      };
      const fail = (error: unknown) => {
        if (!settle()) return; // the connection may have another request by now
        reject(error);
        req.destroy();
      };
      o.signal?.addEventListener("abort", aborted);
      req.on("error", fail);
      req.on("response", (res) => {
        const chunks: Buffer[] = [];
        res.on("data", (chunk: Buffer) => chunks.push(chunk));
        res.on("error", fail);
        res.on("close", () => fail(new Error("the connection broke in the middle of the answer")));
        res.on("end", () => {
          if (settle())
            resolve({ status: res.statusCode ?? 0, headers: res.headers, text: Buffer.concat(chunks).toString("utf8") });
        });
      });
      req.end(o.body);
    });
  }
}

/** A request was refused: RFC 9457. */
export interface Problem {
  status: number;
  reason: string;
  detail: string;
  field?: string;
  next?: number;
  versions?: string[];
}

/** Reads the problem of an answer, whatever its body is. */
export function problemOf(answer: Answer): Problem {
  const body = object(answer.text);
  const text = (member: Json | undefined) => (typeof member === "string" ? member : undefined);
  return {
    status: answer.status,
    reason: text(body.reason) ?? "",
    detail: text(body.detail) ?? text(body.title) ?? `HTTP ${answer.status}`,
    field: text(body.field),
    next: typeof body.next === "number" ? body.next : undefined,
    versions: Array.isArray(body.versions) ? body.versions.map(String) : undefined,
  };
}

/** Reads a JSON object, or {} if there is none. */
export function object(body: string): { [member: string]: Json | undefined } {
  try {
    const value = parse(body);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

/** Whether the same request may succeed later. */
export const temporary = (status: number): boolean => status === 408 || status === 429 || status >= 500;

/** Pauses between tries: 0.2 s first, then twice as long each time, at most 10 s, and at least what Retry-After says. */
export class Backoff {
  #tries = 0;

  /** Begins with short pauses again. */
  reset(): void {
    this.#tries = 0;
  }

  /** How many milliseconds to pause before the next try. */
  next(answer?: Answer): number {
    const pause = Math.min(200 * 2 ** this.#tries++, 10_000) * (0.75 + Math.random() / 4);
    return Math.max(pause, retryAfter(answer));
  }

  /** Pauses. Returns at once when the signal is aborted. */
  async pause(answer?: Answer, signal?: AbortSignal): Promise<void> {
    await pause(this.next(answer), signal);
  }
}

function retryAfter(answer?: Answer): number {
  const header = answer?.headers["retry-after"];
  if (header === undefined) return 0;
  const seconds = Number(header);
  const pause = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(pause) ? Math.min(Math.max(pause, 0), 3_600_000) : 0;
}

/** Waits for so many milliseconds. Returns at once when the signal is aborted. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return;
  await sleep(ms, undefined, { signal }).catch(() => {});
}
