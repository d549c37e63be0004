import { describe, expect, it } from "vitest";
import { formatJson, parseJson } from "../api/json";
import { about, appended, bindings, type Part, read, readState, type Speech, send, versions } from "./wire";

const all: Speech[] = versions.flatMap((version) => bindings(version).map((binding) => ({ version, binding })));
const parts: Part[] = [
  { kind: "text", text: 'hi "there"\n' },
  { kind: "data", data: parseJson('{"z":1,"a":12345678901234567890,"1":1.0}') },
  { kind: "file", base64: "aGVsbG8=", name: "a.txt", media: "text/plain" },
  { kind: "url", url: "https://example.com/a", name: "a", media: "image/png" },
];

describe("requests", () => {
  it("are those of their version and binding", () => {
    const lines = all.map((s) => {
      const r = send(s, true, { messageId: "m", parts: [parts[0] as Part], contextId: "c" }, "t");
      return `${s.version} ${s.binding}: ${r.method} /${r.path} ${r.headers["A2A-Version"] ?? "-"} ${(r.body ?? "").replace(/"id":\d+,/, "")}`;
    });
    expect(lines).toEqual([
      '1.0 jsonrpc: POST / 1.0 {"jsonrpc":"2.0","method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi \\"there\\"\\n"}],"contextId":"c"},"configuration":{"acceptedOutputModes":["*/*"]}}}',
      '1.0 rest: POST /message:stream 1.0 {"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi \\"there\\"\\n"}],"contextId":"c"},"configuration":{"acceptedOutputModes":["*/*"]}}',
      '0.3 jsonrpc: POST / 0.3 {"jsonrpc":"2.0","method":"message/stream","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi \\"there\\"\\n"}],"contextId":"c"},"configuration":{"acceptedOutputModes":["*/*"]}}}',
      '0.3 rest: POST /v1/message:stream 0.3 {"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi \\"there\\"\\n"}],"contextId":"c"},"configuration":{"acceptedOutputModes":["*/*"]}}',
      '0.2 jsonrpc: POST / 0.2 {"jsonrpc":"2.0","method":"message/stream","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi \\"there\\"\\n"}],"contextId":"c"},"configuration":{"acceptedOutputModes":["*/*"]}}}',
      '0.1 jsonrpc: POST /v0.1 - {"jsonrpc":"2.0","method":"tasks/sendSubscribe","params":{"id":"t","sessionId":"c","message":{"role":"user","parts":[{"type":"text","text":"hi \\"there\\"\\n"}]}}}',
    ]);
  });

  it("keep digits, the order of members, and every kind of part", () => {
    for (const s of all) {
      const r = send(s, false, { messageId: "m", parts, taskId: "t" }, "t");
      expect(r.body).toContain('{"z":1,"a":12345678901234567890,"1":1.0}');
      const sent = parseJson(r.body as string) as Record<string, Record<string, unknown>>;
      const message = ((sent.params ?? sent) as Record<string, unknown>).message;
      expect(read(message)).toMatchObject({
        type: "message",
        message: {
          role: "user",
          parts: [
            { kind: "text" },
            { kind: "data" },
            { kind: "file", base64: "aGVsbG8=", name: "a.txt" },
            { kind: "url", url: "https://example.com/a" },
          ],
        },
      });
    }
  });

  it("about a task escape its id, and carry the last event", () => {
    const r = about({ version: "1.0", binding: "rest" }, "subscribe", "a/b", "7-x");
    expect([r.method, r.path, r.headers["Last-Event-ID"], r.body]).toEqual(["GET", "tasks/a%2Fb:subscribe", "7-x", undefined]);
    expect(about({ version: "0.3", binding: "rest" }, "cancel", "t").path).toBe("v1/tasks/t:cancel");
    expect(about({ version: "1.0", binding: "jsonrpc" }, "get", "t").body).toContain('"method":"GetTask","params":{"id":"t"}');
  });
});

describe("answers", () => {
  const docs: [string, string, unknown][] = [
    [
      "1.0 task",
      '{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"?"}]}},"artifacts":[{"artifactId":"a","name":"n","parts":[{"raw":"aGk=","filename":"f","mediaType":"text/plain"}]}]}}}',
      {
        type: "task",
        task: {
          id: "t",
          contextId: "c",
          state: "input-required",
          message: { id: "m", role: "agent", parts: [{ kind: "text", text: "?" }] },
          artifacts: [{ id: "a", name: "n", parts: [{ kind: "file", base64: "aGk=", name: "f", media: "text/plain" }] }],
        },
      },
    ],
    [
      "1.0 artifact",
      '{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"data":[1]}]},"append":true}}',
      {
        type: "artifact",
        taskId: "t",
        contextId: "c",
        artifact: { id: "a", parts: [{ kind: "data", data: [1] }] },
        append: true,
      },
    ],
    [
      "0.3 status",
      '{"jsonrpc":"2.0","id":1,"result":{"kind":"status-update","taskId":"t","contextId":"c","final":false,"status":{"state":"working"}}}',
      { type: "status", taskId: "t", contextId: "c", state: "working" },
    ],
    [
      "0.3 task",
      '{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"}}}',
      { type: "task", task: { id: "t", contextId: "c", state: "completed", artifacts: [] } },
    ],
    [
      "0.3 message",
      '{"result":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"hi"}]},"jsonrpc":"2.0"}',
      { type: "message", message: { id: "m", role: "agent", parts: [{ kind: "text", text: "hi" }] } },
    ],
    [
      "0.3 rest data",
      '{"message":{"messageId":"m","role":"ROLE_AGENT","content":[{"data":{"data":{"a":1}}},{"data":{"data":{"value":7}},"metadata":{"data_part_compat":true}},{"file":{"fileWithUri":"https://e.com/x","mimeType":"image/png"}}]}}',
      {
        type: "message",
        message: {
          id: "m",
          role: "agent",
          parts: [
            { kind: "data", data: { a: 1 } },
            { kind: "data", data: 7 },
            { kind: "url", url: "https://e.com/x", media: "image/png" },
          ],
        },
      },
    ],
    [
      "0.1 status",
      '{"jsonrpc":"2.0","id":1,"result":{"id":"t","status":{"state":"input-required","message":{"role":"agent","parts":[{"type":"text","text":"log in"}],"metadata":{"a2a_state":"auth-required"}}},"final":true}}',
      {
        type: "status",
        taskId: "t",
        state: "auth-required",
        message: { role: "agent", parts: [{ kind: "text", text: "log in" }] },
      },
    ],
    [
      "0.1 artifact",
      '{"id":"t","artifact":{"index":2,"append":true,"parts":[{"type":"text","text":"x"}]}}',
      { type: "artifact", taskId: "t", artifact: { id: "index 2", parts: [{ kind: "text", text: "x" }] }, append: true },
    ],
    [
      "0.1 task",
      '{"jsonrpc":"2.0","id":1,"result":{"id":"t","sessionId":"s","status":{"state":"completed"}}}',
      { type: "task", task: { id: "t", contextId: "s", state: "completed", artifacts: [] } },
    ],
    [
      "an error of JSON-RPC",
      '{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no","data":[{"reason":"TASK_NOT_FOUND"}]}}',
      { type: "error", code: "TASK_NOT_FOUND", message: "no" },
    ],
    [
      "an error of 1.0 rest",
      '{"error":{"code":404,"status":"NOT_FOUND","message":"no","details":[{"reason":"TASK_NOT_FOUND"}]}}',
      { type: "error", code: "TASK_NOT_FOUND", message: "no" },
    ],
    [
      "an error of 0.3 rest",
      '{"error":"TaskNotFoundError","code":-32001,"message":"no"}',
      { type: "error", code: "-32001", message: "no" },
    ],
    [
      "a problem",
      '{"title":"Forbidden","status":403,"reason":"forbidden","detail":"Holdfast-Tenant: must be your tenant"}',
      { type: "error", code: "forbidden", message: "Holdfast-Tenant: must be your tenant" },
    ],
  ];
  it.each(docs)("%s", (_, doc, want) => {
    expect(read(parseJson(doc))).toEqual(want);
  });
  it("that are none of A2A say nothing", () => {
    for (const doc of ["null", "7", "[]", "{}", '"x"', '{"jsonrpc":"2.0","result":null}'])
      expect(read(parseJson(doc))).toBeUndefined();
  });
  it("keep digits", () => {
    const u = read(parseJson('{"message":{"role":"agent","parts":[{"data":{"n":12345678901234567890123}}]}}'));
    expect(u?.type === "message" && u.message.parts[0]?.kind === "data" && formatJson(u.message.parts[0].data, 0)).toBe(
      '{"n":12345678901234567890123}',
    );
  });
});

it("states of all versions have one name", () => {
  expect(
    ["TASK_STATE_AUTH_REQUIRED", "auth-required", "TASK_STATE_CANCELLED", "canceled", "unknown"].map((s) => readState(s)),
  ).toEqual(["auth-required", "auth-required", "canceled", "canceled", "working"]);
});

it("appended text continues the text before it, and other parts follow", () => {
  const t = (text: string): Part => ({ kind: "text", text });
  expect(appended([t("a")], [t("b"), { kind: "data", data: 1 }, t("c"), t("d")])).toEqual([
    t("ab"),
    { kind: "data", data: 1 },
    t("cd"),
  ]);
});
