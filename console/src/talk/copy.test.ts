import { execFile } from "node:child_process";
import { mkdtemp, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { copyAs, languages, type Target } from "./copy";
import { type Request, send } from "./wire";

const run = promisify(execFile);
const got: { method: string; url: string; headers: Record<string, unknown>; body: string }[] = [];
const server = createServer((req, res) => {
  let body = "";
  req.on("data", (piece) => {
    body += piece;
  });
  req.on("end", () => {
    got.push({ method: req.method ?? "", url: req.url ?? "", headers: req.headers, body });
    const streams = String(req.headers.accept).includes("event-stream");
    res.setHeader("Content-Type", streams ? "text/event-stream" : "application/json");
    res.end(streams ? "id: 1\ndata: first\n\nid: 2\ndata: last\n\n" : '{"ok":"last"}');
  });
});
let base = "";
let dir = "";
beforeAll(async () => {
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/agents/a`;
  dir = await mkdtemp(join(tmpdir(), "copy-"));
});
afterAll(() => server.close());

/** python returns a Python that has httpx, which the copied program needs. The first run of a machine fetches it. */
async function python(): Promise<string> {
  const venv = new URL("../../node_modules/.cache/python", import.meta.url).pathname;
  const at = join(venv, "bin/python");
  const has = (file: string) =>
    run(file, ["-c", "import httpx"]).then(
      () => true,
      () => false,
    );
  if (await has("python3")) return "python3";
  if (!(await has(at))) {
    await run("python3", ["-m", "venv", venv]);
    await run(at, ["-m", "pip", "install", "--quiet", "httpx"]);
  }
  return at;
}

async function runs(language: (typeof languages)[number], text: string): Promise<string> {
  const script = async (name: string, content: string, program: string) => {
    const file = join(dir, name);
    await writeFile(file, content);
    const env = { ...process.env, HOLDFAST_API_KEY: "s3cret", NO_PROXY: "*" };
    return (await run(program, [file], { env })).stdout;
  };
  switch (language) {
    case "curl":
      return script("a.sh", text, "bash");
    case "Python":
      return script("a.py", text, await python());
    case "TypeScript":
      return script(
        "a.mjs",
        ts.transpileModule(text, { compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext } })
          .outputText,
        process.execPath,
      );
  }
}

// biome-ignore lint/suspicious/noTemplateCurlyInString: a shell and a template must leave it alone
const nasty = "it's \"q\" `b` ${x} $(y) \\n ''' \u2028 é 😀\nA2A\n%s";

describe.each(languages)("a request copied as %s", (language) => {
  const cases: [string, (t: Target) => Request, Target["credential"]][] = [
    [
      "sends a message and prints the answer",
      () => send({ version: "1.0", binding: "rest" }, false, { messageId: "m", parts: [{ kind: "text", text: nasty }] }, ""),
      undefined,
    ],
    [
      "prints a stream",
      () => send({ version: "0.3", binding: "jsonrpc" }, true, { messageId: "m", parts: [{ kind: "text", text: nasty }] }, ""),
      { kind: "api_key", header: "X-API-Key" },
    ],
    [
      "reads, with a bearer",
      () => ({ op: "get", name: "", method: "GET", path: "tasks/a%2Fb", headers: { "A2A-Version": "1.0" } }),
      { kind: "api_key", header: "Authorization" },
    ],
  ];
  it.each(cases)("%s", { timeout: 120_000 }, async (_, make, credential) => {
    const to: Target = { base, ...(credential ? { credential } : {}) };
    const r = make(to);
    got.length = 0;
    const out = await runs(language, copyAs(language, r, to));
    expect(out).toContain("last");
    expect(got).toHaveLength(1);
    expect(got[0]).toMatchObject({ method: r.method, url: r.path ? `/agents/a/${r.path}` : "/agents/a", body: r.body ?? "" });
    for (const [name, value] of Object.entries(r.headers)) expect(got[0]?.headers[name.toLowerCase()]).toBe(value);
    if (credential) expect(got[0]?.headers[(credential.header ?? "").toLowerCase()]).toContain("s3cret");
  });
});

it("a long request is no argument of curl", async () => {
  const r = send(
    { version: "1.0", binding: "rest" },
    false,
    { messageId: "m", parts: [{ kind: "file", base64: "A".repeat(300_000) }] },
    "",
  );
  got.length = 0;
  expect(await runs("curl", copyAs("curl", r, { base }))).toContain("last");
  expect(got[0]?.body.trim()).toBe(r.body);
});
