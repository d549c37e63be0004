// The client of the admin API: typed by its document, lossless, same origin.
import { formatJson, parseJson } from "./json";
import { answered, silent } from "./reach";
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
type Having<M extends "get" | "post" | "put" | "delete"> = {
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

/** put saves under a name. */
export function put<P extends Having<"put">>(
  path: P,
  call: { path: PathOf<paths[P]["put"]>; body: Body<paths[P]["put"]> },
): Promise<Answer<paths[P]["put"]>> {
  return send("PUT", path, call as Call, call.body) as Promise<Answer<paths[P]["put"]>>;
}

/** remove deletes. */
export function remove<P extends Having<"delete">>(path: P, call: { path: PathOf<paths[P]["delete"]> }): Promise<unknown> {
  return send("DELETE", path, call as Call);
}

async function send(method: string, path: string, call: Call, body?: unknown, idempotencyKey?: string): Promise<unknown> {
  const headers: Record<string, string> = {};
  if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
  const written = body === undefined ? undefined : formatJson(body, 0);
  return parseJson(await ask(method, href(path, call.path, call.query), headers, written, call.signal));
}

/** ask makes a request and returns the text of its answer. */
async function ask(
  method: string,
  url: string,
  headers: Record<string, string>,
  body?: string,
  signal?: AbortSignal,
): Promise<string> {
  let response: Response;
  let text: string;
  try {
    response = await fetch(url, {
      method,
      headers: {
        Accept: "application/json",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      credentials: "same-origin",
      cache: "no-store",
      ...(body === undefined ? {} : { body }),
      ...(signal ? { signal } : {}),
    });
    text = await response.text();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    silent();
    throw new ApiError({
      title: "The server does not answer",
      status: 0,
      reason: "unavailable",
      detail: "Nothing was changed, or its answer was lost. Look again when the server is back.",
    });
  }
  // A proxy answers for a server that is away.
  if (response.status >= 502 && response.status <= 504 && !isProblem(response)) silent();
  else answered();
  if (!response.ok) throw new ApiError(problemOf(response, text));
  return text;
}

function isProblem(response: Response): boolean {
  return response.headers.get("Content-Type")?.startsWith("application/problem+json") ?? false;
}

function problemOf(response: Response, text: string): Problem {
  if (isProblem(response)) {
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

/** logIn opens a session for an API key, or for a user and a password. The server puts it into a cookie that no script can read. */
export async function logIn(url: string, credential: { key: string } | { user: string; password: string }): Promise<void> {
  await ask("POST", url, {}, formatJson(credential, 0));
}

/** logout ends the session of this browser, and returns where to end that of the issuer; "" if there is no such address. */
export async function logout(url: string): Promise<string> {
  return (parseJson(await ask("POST", url, {})) as { issuer_logout?: string }).issuer_logout ?? "";
}
