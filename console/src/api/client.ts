// The client of the admin API: typed by its document, lossless, same origin.
import { formatJson, parseJson } from "./json";
import type { Problem, paths } from "./schema";

export const base = "/admin/v1";

/** ApiError is an answer that is a problem, or no answer at all (status 0). */
export class ApiError extends Error {
  readonly problem: Problem;
  constructor(problem: Problem) {
    super(problem.detail || problem.title);
    this.name = "ApiError";
    this.problem = problem;
  }
}

type Json<T> = T extends { content: { "application/json": infer R } } ? R : never;
type Answer<O> = O extends { responses: infer R }
  ? 200 extends keyof R
    ? Json<R[200]>
    : 201 extends keyof R
      ? Json<R[201]>
      : never
  : never;
type Having<M extends "get" | "post"> = {
  [P in keyof paths]: paths[P] extends { [K in M]: { responses: unknown } } ? P : never;
}[keyof paths];
type Body<O> = O extends { requestBody: { content: { "application/json": infer B } } } ? B : never;
type Query<O> = O extends { parameters: { query?: infer Q } } ? Q : never;
type PathOf<O> = O extends { parameters: { path: infer P } } ? P : never;

export type GetPath = Having<"get">;
export type PostPath = Having<"post">;
export type Got<P extends GetPath> = Answer<paths[P]["get"]>;

interface Call {
  path?: Record<string, string>;
  query?: object;
  signal?: AbortSignal;
}

/** href returns the address of an operation. Undefined members of the query are left out, arrays are repeated. */
export function href(path: string, params: Record<string, string> = {}, query: object = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ""));
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) q.append(name, String(one));
    }
  }
  const search = q.toString();
  return base + filled + (search ? `?${search}` : "");
}

/** get reads from the admin API, and throws an ApiError. */
export function get<P extends GetPath>(
  path: P,
  call: { path?: PathOf<paths[P]["get"]>; query?: Query<paths[P]["get"]>; signal?: AbortSignal } = {},
): Promise<Got<P>> {
  return send("GET", path, call as Call) as Promise<Got<P>>;
}

/** post acts. An idempotency key makes a repeated request find what the first one has done. */
export function post<P extends PostPath>(
  path: P,
  call: { path?: PathOf<paths[P]["post"]>; body: Body<paths[P]["post"]>; idempotencyKey?: string; signal?: AbortSignal },
): Promise<Answer<paths[P]["post"]>> {
  return send("POST", path, call as Call, call.body, call.idempotencyKey) as Promise<Answer<paths[P]["post"]>>;
}

async function send(method: string, path: string, call: Call, body?: unknown, idempotencyKey?: string): Promise<unknown> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
  let response: Response;
  let text: string;
  try {
    response = await fetch(href(path, call.path, call.query), {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      ...(body === undefined ? {} : { body: formatJson(body, 0) }),
      ...(call.signal ? { signal: call.signal } : {}),
    });
    text = await response.text();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError({
      title: "No answer",
      status: 0,
      reason: "unavailable",
      detail: "The server does not answer. Check that it runs and that this machine can reach it; the page tries again.",
    });
  }
  if (!response.ok) throw new ApiError(problemOf(response, text));
  return parseJson(text);
}

function problemOf(response: Response, text: string): Problem {
  if (response.headers.get("Content-Type")?.startsWith("application/problem+json")) {
    try {
      return parseJson(text) as Problem;
    } catch {
      // A proxy has cut it: the status says enough.
    }
  }
  return {
    title: response.statusText || `HTTP ${response.status}`,
    status: response.status,
    reason: response.status === 401 ? "unauthenticated" : response.status === 403 ? "forbidden" : "unavailable",
    detail: response.headers.get("Content-Type")?.startsWith("text/plain") ? text.slice(0, 500) : undefined,
  };
}

/** loginWithKey opens a session for an API key. The server puts it into a cookie that no script can read. */
export async function loginWithKey(url: string, key: string): Promise<void> {
  await beside(url, formatJson({ key }, 0));
}

/** logout ends the session of this browser, and returns where to end that of the issuer; "" if there is no such address. */
export async function logout(url: string): Promise<string> {
  const text = await beside(url);
  return (parseJson(text) as { issuer_logout?: string }).issuer_logout ?? "";
}

/** beside posts to an address of the server that is not part of the admin API. */
async function beside(url: string, body?: string): Promise<string> {
  let response: Response;
  try {
    response = await fetch(url, {
      method: "POST",
      headers: { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      credentials: "same-origin",
      cache: "no-store",
      ...(body === undefined ? {} : { body }),
    });
  } catch {
    throw new ApiError({
      title: "No answer",
      status: 0,
      reason: "unavailable",
      detail: "The server does not answer. Try again.",
    });
  }
  const text = await response.text();
  if (!response.ok) throw new ApiError(problemOf(response, text));
  return text;
}
