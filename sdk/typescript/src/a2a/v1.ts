/**
 * Runs an `AgentExecutor` of `@a2a-js/sdk` 1.x unchanged.
 *
 * ```ts
 * import { agent, serve } from "holdfast-agent";
 * import { wrap } from "holdfast-agent/a2a";
 *
 * serve(agent("hello", wrap(new MyExecutor())));
 * ```
 */
import type { Handler } from "../agent.js";
import type { JsonObject } from "../json.js";
import type { Run } from "../run.js";
import type { NewArtifact, NewPart, Part, SaidDocument } from "../types.js";
import {
  type Action,
  type AgentMessage,
  bridge,
  contextOf,
  type Executor,
  emitted,
  json,
  type Line,
  messageIdOf,
  object,
  own,
  partsOf,
  plain,
  type State,
  some,
  stateBefore,
} from "./bridge.js";

// The forms of the library, as far as they are used. A test compares them with its types.
interface SdkPart {
  content?:
    | { $case: "text"; value: string }
    | { $case: "raw"; value: Buffer }
    | { $case: "url"; value: string }
    // biome-ignore lint/suspicious/noExplicitAny: as in the library
    | { $case: "data"; value: any };
  metadata: Metadata;
  filename: string;
  mediaType: string;
}

// biome-ignore lint/suspicious/noExplicitAny: as in the library
type Metadata = { [key: string]: any } | undefined;

interface SdkMessage {
  messageId: string;
  contextId: string;
  taskId: string;
  role: number;
  parts: SdkPart[];
  metadata: Metadata;
  extensions: string[];
  referenceTaskIds: string[];
}

interface SdkArtifact {
  artifactId: string;
  name: string;
  description: string;
  parts: SdkPart[];
  metadata: Metadata;
  extensions: string[];
}

interface SdkStatus {
  state: number;
  message: SdkMessage | undefined;
  timestamp: string | undefined;
}

interface SdkTask {
  id: string;
  contextId: string;
  status: SdkStatus | undefined;
  artifacts: SdkArtifact[];
  history: SdkMessage[];
  metadata: Metadata;
}

interface SdkContext {
  request: {
    tenant: string;
    message: SdkMessage;
    configuration: { acceptedOutputModes: string[]; taskPushNotificationConfig: undefined; returnImmediately: boolean };
    metadata: Metadata;
  };
  userMessage: SdkMessage;
  taskId: string;
  contextId: string;
  context: CallContext;
  task?: SdkTask;
  referenceTasks?: SdkTask[];
}

type SdkEvent =
  | { kind: "message"; data: SdkMessage }
  | { kind: "task"; data: SdkTask }
  | { kind: "statusUpdate"; data: { status: SdkStatus | undefined; metadata: Metadata } }
  | {
      kind: "artifactUpdate";
      data: { artifact: SdkArtifact | undefined; append: boolean; lastChunk: boolean; metadata: Metadata };
    };

/** An `AgentExecutor` of `@a2a-js/sdk` 1.x. */
export interface AgentExecutor {
  // biome-ignore lint/suspicious/noExplicitAny: the classes of the library have private members
  execute(requestContext: any, eventBus: any): Promise<void>;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  cancelTask(taskId: string, eventBus: any): Promise<void>;
}

/** Makes an executor a handler, for agent(name, wrap(executor)). */
export function wrap(executor: AgentExecutor): Handler {
  return bridge(executor as Executor<SdkContext, unknown>, line);
}

const states: readonly State[] = [
  "unknown",
  "submitted",
  "working",
  "completed",
  "failed",
  "canceled",
  "input-required",
  "rejected",
  "auth-required",
];
const roleUser = 1;
const roleAgent = 2;

/** The context of a call, as the server of the library makes it. */
class CallContext {
  readonly user: { isAuthenticated: boolean; userName: string };
  readonly requestedVersion = "1.0";
  readonly state = new Map<string, unknown>();
  requestedExtensions: string[] | undefined;
  activatedExtensions: string[] | undefined;
  tenant: string | undefined;

  constructor(run: Run) {
    this.user = { isAuthenticated: run.owner !== "", userName: run.owner };
    this.requestedExtensions = some(run.extensions);
    this.tenant = some(run.tenant);
    this.state.set("headers", {});
    this.state.set("holdfast", run);
  }

  setTenant(tenant: string): void {
    this.tenant = tenant;
  }

  setRequestedExtensions(extensions: string[] | undefined): void {
    this.requestedExtensions = extensions;
  }

  addActivatedExtension(uri: string): void {
    this.activatedExtensions = [...(this.activatedExtensions ?? []), uri];
  }
}

const line: Line<SdkContext, SdkEvent> = {
  endsOnReturn: true,

  context(run) {
    const message: SdkMessage = {
      ...toMessage({ role: "user", parts: partsOf(run), metadata: run.message.metadata }, run.taskKey, run.contextKey),
      messageId: messageIdOf(run),
      extensions: run.message.extensions ?? [],
      referenceTaskIds: run.message.referenceTaskIds ?? [],
    };
    const metadata = plain(run.turn === 1 ? run.metadata : run.turnMetadata);
    const history = own(run.history);
    return {
      request: {
        tenant: run.tenant,
        message,
        configuration: {
          acceptedOutputModes: run.acceptedOutputModes,
          taskPushNotificationConfig: undefined,
          returnImmediately: false,
        },
        metadata,
      },
      userMessage: message,
      taskId: run.taskKey,
      contextId: run.contextKey,
      context: new CallContext(run),
      task:
        run.turn > 1 ? toTask(run.taskKey, run.contextKey, stateBefore(run), history, plain(run.metadata), message) : undefined,
      referenceTasks: some(run.references)?.map((r) => toTask(r.id, contextOf(run, r), r.state as State, r.history, undefined)),
    };
  },

  action(event): Action {
    switch (event.kind) {
      case "message":
        return { kind: "message", message: fromMessage(event.data) };
      case "task":
        return {
          kind: "task",
          state: stateOf(event.data.status),
          message: optionalMessage(event.data.status),
          artifacts: event.data.artifacts.map(fromArtifact),
        };
      case "statusUpdate":
        return {
          kind: "status",
          state: stateOf(event.data.status),
          message: optionalMessage(event.data.status),
          metadata: object(event.data.metadata),
          final: false,
        };
      case "artifactUpdate": {
        const { artifact, append, lastChunk, metadata } = event.data;
        if (!artifact) throw new TypeError("artifactUpdate: there is no artifact");
        return { kind: "artifact", artifact: fromArtifact(artifact), append, last: lastChunk, metadata: object(metadata) };
      }
      default:
        throw new TypeError(
          `the executor has published ${JSON.stringify((event as { kind?: unknown })?.kind)}, which is no event of 1.x`,
        );
    }
  },
};

const stateOf = (status: SdkStatus | undefined): State => states[status?.state ?? 0] ?? "unknown";

function optionalMessage(status: SdkStatus | undefined): AgentMessage | undefined {
  return status?.message?.parts.length ? fromMessage(status.message) : undefined;
}

function fromMessage(m: SdkMessage): AgentMessage {
  return {
    messageId: some(m.messageId),
    parts: emitted(m.parts.map(fromPart)),
    metadata: object(m.metadata),
    extensions: some(m.extensions),
    referenceTaskIds: some(m.referenceTaskIds),
  };
}

function fromArtifact(a: SdkArtifact): NewArtifact {
  return {
    artifactId: some(a.artifactId),
    name: some(a.name),
    description: some(a.description),
    parts: emitted(a.parts.map(fromPart)),
    metadata: object(a.metadata),
    extensions: some(a.extensions),
  };
}

function fromPart(p: SdkPart): NewPart | undefined {
  const facts = { filename: some(p.filename), mediaType: some(p.mediaType), metadata: object(p.metadata) };
  switch (p.content?.$case) {
    case "text":
      return { ...facts, text: p.content.value };
    case "raw":
      return { ...facts, raw: p.content.value };
    case "url":
      return { ...facts, url: p.content.value };
    case "data":
      return { ...facts, data: json(p.content.value) };
    default:
      return undefined;
  }
}

function toPart(p: Part): SdkPart {
  const facts = { metadata: plain(p.metadata), filename: p.filename ?? "", mediaType: p.mediaType ?? "" };
  if (p.text !== undefined) return { content: { $case: "text", value: p.text }, ...facts };
  if (p.raw !== undefined) return { content: { $case: "raw", value: Buffer.from(p.raw, "base64") }, ...facts };
  if (p.url !== undefined) return { content: { $case: "url", value: p.url }, ...facts };
  return { content: { $case: "data", value: plain(p.data) }, ...facts };
}

function toMessage(said: SaidDocument, taskId: string, contextId: string): SdkMessage {
  return {
    messageId: said.messageId ?? "",
    contextId,
    taskId,
    role: said.role === "user" ? roleUser : roleAgent,
    parts: said.parts.map(toPart),
    metadata: plain(said.metadata),
    extensions: said.extensions ?? [],
    referenceTaskIds: said.referenceTaskIds ?? [],
  };
}

function toTask(
  id: string,
  contextId: string,
  state: State,
  history: SaidDocument[],
  metadata: JsonObject | undefined,
  message?: SdkMessage,
): SdkTask {
  const messages = history.filter((said) => said.artifactId === undefined).map((said) => toMessage(said, id, contextId));
  const status = history.findLast((said) => said.role === "agent" && said.state === state);
  return {
    id,
    contextId,
    status: { state: states.indexOf(state), message: status && toMessage(status, id, contextId), timestamp: undefined },
    artifacts: history
      .filter((said) => said.artifactId !== undefined)
      .map((said) => ({
        artifactId: said.artifactId ?? "",
        name: said.name ?? "",
        description: said.description ?? "",
        parts: said.parts.map(toPart),
        metadata: plain(said.metadata),
        extensions: said.extensions ?? [],
      })),
    history: message ? [...messages, message] : messages,
    metadata,
  };
}
