// Executors of both lines of the library: each scenario runs on the library's own server and in a Run, and must come to the same.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import * as a2a from "@a2a-js/sdk";
import * as server1 from "@a2a-js/sdk/server";
import type * as types03 from "@a2a-js/sdk-0.3";
import * as server03 from "@a2a-js/sdk-0.3/server";
import { agent, type Handler } from "holdfast-agent";
import * as v1 from "holdfast-agent/a2a";
import * as v03 from "holdfast-agent/a2a/v0_3";
import { TestTask } from "holdfast-agent/testing";

/** What a scenario publishes, for either line. */
interface Publisher {
  readonly first: boolean;
  readonly text: string;
  /** What the task had when the turn began: its artifacts, and the texts of its history. */
  readonly before: string;
  task(): void;
  working(text?: string): void;
  artifact(id: string, text: string, append: boolean, last: boolean): void;
  file(id: string): void;
  data(id: string, data: object): void;
  end(state: "completed" | "failed" | "rejected" | "input-required" | "auth-required" | "canceled", text?: string): void;
  message(text: string): void;
  finished(): void;
}

type Script = (p: Publisher) => Promise<void> | void;

let canceled = () => {};

const scripts: { [name: string]: Script } = {
  chunks(p) {
    p.task();
    p.working("Busy.");
    for (const [i, piece] of ["one ", "two ", "three"].entries()) p.artifact("a", piece, i > 0, i === 2);
    p.end("completed");
    p.finished();
  },
  content(p) {
    p.task();
    p.file("f");
    p.data("d", { list: [1, "two", null, 1.5], nested: { yes: true } });
    p.end("completed", "Here you are.");
  },
  ask(p) {
    if (p.text === "ask") {
      p.task();
      p.artifact("plan", "draft", false, true);
      return p.end("input-required", "Which color?");
    }
    p.task();
    p.artifact("answer", `${p.text}; ${p.before}`, false, true);
    p.end("completed");
  },
  reject(p) {
    p.task();
    p.end("rejected", "Not me.");
  },
  fail(p) {
    p.task();
    p.end("failed", "Out of paper.");
  },
  async background(p) {
    p.task();
    setImmediate(() => {
      p.artifact("late", "later", false, true);
      setImmediate(() => p.end("completed"));
    });
  },
  async hold(p) {
    p.task();
    p.working("Holding.");
    await new Promise<void>((done) => {
      canceled = done;
    });
    p.end("canceled");
    p.finished();
  },
};

const part = (content: a2a.Part["content"], more: object = {}): a2a.Part => ({
  content,
  metadata: undefined,
  filename: "",
  mediaType: "",
  ...more,
});

class Executor1 implements server1.AgentExecutor {
  constructor(readonly script: Script) {}

  async execute(ctx: server1.RequestContext, bus: server1.ExecutionEventBus): Promise<void> {
    const { taskId, contextId, task, userMessage } = ctx;
    assert.ok(ctx.context.user === undefined || typeof ctx.context.user.userName === "string");
    assert.equal(ctx.request.message, ctx.userMessage);
    const text = (parts: a2a.Part[]) => parts.map((x) => (x.content?.$case === "text" ? x.content.value : "")).join();
    const message = (said: string): a2a.Message => ({
      messageId: randomUUID(),
      role: a2a.Role.ROLE_AGENT,
      parts: [part({ $case: "text", value: said })],
      taskId,
      contextId,
      extensions: [],
      metadata: undefined,
      referenceTaskIds: [],
    });
    const status = (state: a2a.TaskState, said?: string) =>
      bus.publish(
        server1.AgentEvent.statusUpdate({
          taskId,
          contextId,
          metadata: undefined,
          status: { state, timestamp: undefined, message: said === undefined ? undefined : message(said) },
        }),
      );
    const artifact = (artifactId: string, parts: a2a.Part[], append = false, lastChunk = true) =>
      bus.publish(
        server1.AgentEvent.artifactUpdate({
          taskId,
          contextId,
          append,
          lastChunk,
          metadata: undefined,
          artifact: { artifactId, name: artifactId, description: "", parts, metadata: undefined, extensions: [] },
        }),
      );
    const states = {
      completed: a2a.TaskState.TASK_STATE_COMPLETED,
      failed: a2a.TaskState.TASK_STATE_FAILED,
      rejected: a2a.TaskState.TASK_STATE_REJECTED,
      canceled: a2a.TaskState.TASK_STATE_CANCELED,
      "input-required": a2a.TaskState.TASK_STATE_INPUT_REQUIRED,
      "auth-required": a2a.TaskState.TASK_STATE_AUTH_REQUIRED,
    };
    await this.script({
      first: !task,
      text: text(userMessage.parts),
      before: [...(task?.artifacts ?? []).map((x) => text(x.parts)), ...(task?.history ?? []).map((m) => text(m.parts))].join(
        "|",
      ),
      task: () =>
        bus.publish(
          server1.AgentEvent.task(
            task ?? {
              id: taskId,
              contextId,
              artifacts: [],
              history: [userMessage],
              metadata: undefined,
              status: { state: a2a.TaskState.TASK_STATE_SUBMITTED, timestamp: undefined, message: undefined },
            },
          ),
        ),
      working: (said) => status(a2a.TaskState.TASK_STATE_WORKING, said),
      artifact: (id, said, append, last) => artifact(id, [part({ $case: "text", value: said })], append, last),
      file: (id) =>
        artifact(id, [part({ $case: "raw", value: Buffer.from("Hello") }, { filename: "h.txt", mediaType: "text/plain" })]),
      data: (id, data) => artifact(id, [part({ $case: "data", value: data })]),
      end: (state, said) => status(states[state], said),
      message: (said) => bus.publish(server1.AgentEvent.message(message(said))),
      finished: () => bus.finished(),
    });
  }

  async cancelTask(): Promise<void> {
    canceled();
  }
}

class Executor03 implements server03.AgentExecutor {
  constructor(readonly script: Script) {}

  async execute(ctx: server03.RequestContext, bus: server03.ExecutionEventBus): Promise<void> {
    const { taskId, contextId, task, userMessage } = ctx;
    const text = (parts: types03.Part[]) => parts.map((x) => (x.kind === "text" ? x.text : "")).join();
    const message = (said: string): types03.Message => ({
      kind: "message",
      messageId: randomUUID(),
      role: "agent",
      parts: [{ kind: "text", text: said }],
      taskId,
      contextId,
    });
    const status = (state: types03.TaskState, final: boolean, said?: string) =>
      bus.publish({
        kind: "status-update",
        taskId,
        contextId,
        final,
        status: { state, message: said === undefined ? undefined : message(said) },
      });
    const artifact = (artifactId: string, parts: types03.Part[], append = false, lastChunk = true) =>
      bus.publish({
        kind: "artifact-update",
        taskId,
        contextId,
        append,
        lastChunk,
        artifact: { artifactId, name: artifactId, parts },
      });
    await this.script({
      first: !task,
      text: text(userMessage.parts),
      before: [...(task?.artifacts ?? []).map((x) => text(x.parts)), ...(task?.history ?? []).map((m) => text(m.parts))].join(
        "|",
      ),
      task: () => {
        if (!task) bus.publish({ kind: "task", id: taskId, contextId, history: [userMessage], status: { state: "submitted" } });
      },
      working: (said) => status("working", false, said),
      artifact: (id, said, append, last) => artifact(id, [{ kind: "text", text: said }], append, last),
      file: (id) => artifact(id, [{ kind: "file", file: { name: "h.txt", mimeType: "text/plain", bytes: "SGVsbG8=" } }]),
      data: (id, data) => artifact(id, [{ kind: "data", data: data as { [k: string]: unknown } }]),
      end: (state, said) => status(state, true, said),
      message: (said) => bus.publish(message(said)),
      finished: () => bus.finished(),
    });
  }

  async cancelTask(): Promise<void> {
    canceled();
  }
}

/** A task, as either server has it at the end of a turn. */
interface Outcome {
  state: string;
  message: string;
  artifacts: { [id: string]: string };
}

interface Conversation {
  say(text: string): Promise<Outcome>;
}

const card1: a2a.AgentCard = {
  name: "test",
  description: "",
  version: "1",
  provider: undefined,
  documentationUrl: "",
  signatures: [],
  supportedInterfaces: [{ url: "http://127.0.0.1/", protocolBinding: "JSONRPC", tenant: "", protocolVersion: "1.0" }],
  capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
  securitySchemes: {},
  securityRequirements: [],
  defaultInputModes: ["*/*"],
  defaultOutputModes: ["*/*"],
  skills: [],
};

function library1(script: Script): Conversation {
  const handler = new server1.DefaultRequestHandler(card1, new server1.InMemoryTaskStore(), new Executor1(script));
  let task: a2a.Task | undefined;
  return {
    async say(text) {
      const message: a2a.Message = {
        messageId: randomUUID(),
        role: a2a.Role.ROLE_USER,
        parts: [part({ $case: "text", value: text })],
        taskId: task?.id ?? "",
        contextId: task?.contextId ?? "",
        extensions: [],
        metadata: undefined,
        referenceTaskIds: [],
      };
      const request = { tenant: "", message, configuration: undefined, metadata: undefined };
      task = (await handler.sendMessage(request, new server1.ServerCallContext())) as a2a.Task;
      const texts = (parts: a2a.Part[] = []) =>
        parts
          .map((p) =>
            p.content?.$case === "data"
              ? JSON.stringify(p.content.value)
              : String(p.content?.$case === "raw" ? Buffer.from(p.content.value) : p.content?.value),
          )
          .join("");
      return {
        state: a2a
          .taskStateToJSON(task.status?.state ?? 0)
          .replace("TASK_STATE_", "")
          .toLowerCase()
          .replace("_", "-"),
        message: texts(task.status?.message?.parts),
        artifacts: Object.fromEntries(task.artifacts.map((x) => [x.artifactId, texts(x.parts)])),
      };
    },
  };
}

function library03(script: Script): Conversation {
  const card: types03.AgentCard = {
    name: "test",
    description: "",
    version: "1",
    protocolVersion: "0.3.0",
    url: "http://127.0.0.1/",
    capabilities: {},
    defaultInputModes: [],
    defaultOutputModes: [],
    skills: [],
  };
  const handler = new server03.DefaultRequestHandler(card, new server03.InMemoryTaskStore(), new Executor03(script));
  let task: types03.Task | undefined;
  return {
    async say(text) {
      const message: types03.Message = {
        kind: "message",
        messageId: randomUUID(),
        role: "user",
        parts: [{ kind: "text", text }],
      };
      if (task) Object.assign(message, { taskId: task.id, contextId: task.contextId });
      task = (await handler.sendMessage({ message })) as types03.Task;
      const texts = (parts: types03.Part[] = []) =>
        parts.map((p) => (p.kind === "text" ? p.text : p.kind === "data" ? JSON.stringify(p.data) : fileText(p.file))).join("");
      return {
        state: task.status.state,
        message: texts(task.status.message?.parts),
        artifacts: Object.fromEntries((task.artifacts ?? []).map((x) => [x.artifactId, texts(x.parts)])),
      };
    },
  };
}

const fileText = (file: types03.FileWithBytes | types03.FileWithUri) =>
  "bytes" in file ? Buffer.from(file.bytes, "base64").toString() : file.uri;

function holdfast(handler: Handler): Conversation & { task: TestTask } {
  const task = new TestTask(agent("test", handler));
  const artifacts: { [id: string]: string } = {};
  return {
    task,
    async say(text) {
      const turn = await task.say(text);
      const texts = (parts: { text?: string; raw?: string; data?: unknown }[] = []) =>
        parts.map((p) => p.text ?? (p.raw ? Buffer.from(p.raw, "base64").toString() : JSON.stringify(p.data))).join("");
      for (const x of turn.artifacts) artifacts[x.artifactId] = texts(x.parts);
      return { state: turn.state, message: texts(turn.message?.parts), artifacts: { ...artifacts } };
    },
  };
}

const lines = [
  { name: "1.x", library: library1, wrapped: (script: Script) => v1.wrap(new Executor1(script)) },
  { name: "0.3", library: library03, wrapped: (script: Script) => v03.wrap(new Executor03(script)) },
];

for (const { name, library, wrapped } of lines) {
  for (const scenario of ["chunks", "content", "reject", "fail", ...(name === "0.3" ? ["background"] : [])]) {
    test(`${name}: ${scenario}`, async () => {
      const script = scripts[scenario] as Script;
      assert.deepEqual(
        withoutProgress(await holdfast(wrapped(script)).say("go")),
        withoutProgress(await library(script).say("go")),
      );
    });
  }

  test(`${name}: a question and its answer`, async () => {
    const script = scripts.ask as Script;
    const here = holdfast(wrapped(script));
    const there = library(script);
    const [first, theirs] = [await here.say("ask"), await there.say("ask")];
    assert.deepEqual(first, theirs);
    assert.equal(first.state, "input-required");
    const [second, theirSecond] = [await here.say("blue"), await there.say("blue")];
    assert.equal(second.state, theirSecond.state);
    assert.equal(second.artifacts.plan, theirSecond.artifacts.plan);
    // The executor sees the artifacts, the messages before and its own question, as in the library.
    for (const said of [second.artifacts.answer, theirSecond.artifacts.answer]) assert.match(said ?? "", /^blue; draft\|ask\|/);
    assert.match(second.artifacts.answer ?? "", /Which color\?\|blue$/);
  });

  test(`${name}: a question without text`, async () => {
    const here = holdfast(
      wrapped((p) => {
        p.task();
        p.end("input-required");
      }),
    );
    assert.deepEqual(await here.say("go"), { state: "input-required", message: "", artifacts: {} });
  });

  test(`${name}: auth-required ends the run`, async () => {
    const here = holdfast(
      wrapped((p) => {
        p.task();
        if (p.text !== "go") return p.end("completed", "Thanks.");
        p.end("auth-required", "Sign in.");
      }),
    );
    assert.deepEqual(await here.say("go"), { state: "auth-required", message: "Sign in.", artifacts: {} });
    assert.equal((await here.say("done")).message, "Thanks.");
  });

  test(`${name}: a bare message is a reply, or the message of the end`, async () => {
    const script: Script = (p) => p.message("Hi.");
    const here = holdfast(wrapped(script));
    await here.say("go");
    assert.deepEqual(
      here.task.turns[0]?.events.map((e) => e.type),
      ["reply"],
    );
    const late = holdfast(
      wrapped((p) => {
        p.task();
        p.working("Busy.");
        p.message("Hi.");
      }),
    );
    assert.deepEqual(await late.say("go"), { state: "completed", message: "Hi.", artifacts: {} });
  });

  test(`${name}: a cancel reaches cancelTask`, async () => {
    const here = holdfast(wrapped(scripts.hold as Script));
    const turn = here.task.say("go");
    await turn.event("status");
    here.task.cancel();
    assert.equal((await turn).state, "canceled");
  });

  test(`${name}: a lost run leaves its executor`, async () => {
    const here = holdfast(
      wrapped((p) => {
        p.task();
        p.working("Busy.");
        if (p.text !== "go" || tries++ > 0) p.end("completed");
      }),
    );
    let tries = 0;
    const turn = here.task.say("go");
    await turn.event("status");
    here.task.lose();
    assert.deepEqual([(await turn).state, (await turn).tries], ["completed", 2]);
  });

  test(`${name}: an error fails the task without its text`, async () => {
    const errors: string[] = [];
    const log = { debug() {}, info() {}, warn() {}, error: (_: string, f?: object) => errors.push(JSON.stringify(f)) };
    const script: Script = (p) => {
      p.task();
      throw new Error("secret");
    };
    const task = new TestTask(agent("test", wrapped(script)), { log });
    const turn = await task.say("go");
    assert.deepEqual([turn.state, turn.message?.parts], ["failed", [{ text: "The agent failed." }]]);
    assert.match(errors.join(), /secret/);
  });

  test(`${name}: a retry replaces the pieces of the try before`, async () => {
    let tries = 0;
    const here = holdfast(
      wrapped(async (p) => {
        p.task();
        p.artifact("a", "one ", true, false);
        p.artifact("a", "two", true, true);
        if (tries++ > 0) return p.end("completed");
        p.working("Busy.");
        await new Promise<void>(() => {});
      }),
    );
    const turn = here.task.say("go");
    await turn.event("status");
    here.task.lose();
    assert.equal((await turn).text, "one two");
  });
}

/** The library keeps the message of a status; a client of Holdfast reads it in the history. */
const withoutProgress = (o: Outcome): Outcome => ({ ...o, message: o.message === "Busy." ? "" : o.message });

for (const [name, wrap] of [
  ["1.x", v1.wrap],
  ["0.3", v03.wrap],
] as const) {
  test(`${name}: the ids are keys, which only one caller has`, async () => {
    const seen: string[][] = [];
    const executor = {
      async execute(
        ctx: { taskId: string; contextId: string; userMessage: { contextId?: string } },
        bus: { finished(): void },
      ) {
        seen.push([ctx.taskId, ctx.contextId, ctx.userMessage.contextId ?? ""]);
        bus.finished();
      },
      async cancelTask() {},
    };
    const task = { id: "trip-9", key: "task-key", contextId: "shared", contextKey: "context-key", agent: "test" };
    const turn = await new TestTask(agent("test", wrap(executor)), { document: { task } }).say("go");
    assert.equal(turn.state, "completed");
    assert.deepEqual(seen, [["task-key", "context-key", "context-key"]]);
  });
}
