/**
 * Runs an `AgentExecutor` of `@a2a-js/sdk` 0.3 unchanged.
 *
 * ```ts
 * import { agent, serve } from "holdfast-agent";
 * import { wrap } from "holdfast-agent/a2a/v0_3";
 *
 * serve(agent("hello", wrap(new MyExecutor())));
 * ```
 */
import type { Handler } from "../agent.js";
import type { JsonObject } from "../json.js";
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
// biome-ignore lint/suspicious/noExplicitAny: as in the library
type Metadata = { [key: string]: any } | undefined;

type SdkPart =
  | { kind: "text"; text: string; metadata?: Metadata }
  | { kind: "file"; file: { bytes?: string; uri?: string; name?: string; mimeType?: string }; metadata?: Metadata }
  // biome-ignore lint/suspicious/noExplicitAny: as in the library
  | { kind: "data"; data: any; metadata?: Metadata };

interface SdkMessage {
  kind: "message";
  messageId: string;
  role: "user" | "agent";
  parts: SdkPart[];
  contextId?: string;
  taskId?: string;
  metadata?: Metadata;
  extensions?: string[];
  referenceTaskIds?: string[];
}

interface SdkArtifact {
  artifactId: string;
  name?: string;
  description?: string;
  parts: SdkPart[];
  metadata?: Metadata;
  extensions?: string[];
}

interface SdkStatus {
  state: State;
  message?: SdkMessage;
  timestamp?: string;
}

interface SdkTask {
  kind: "task";
  id: string;
  contextId: string;
  status: SdkStatus;
  artifacts?: SdkArtifact[];
  history?: SdkMessage[];
  metadata?: Metadata;
}

interface SdkContext {
  userMessage: SdkMessage;
  taskId: string;
  contextId: string;
  task?: SdkTask;
  referenceTasks?: SdkTask[];
  context?: unknown;
}

type SdkEvent =
  | SdkMessage
  | SdkTask
  | { kind: "status-update"; status: SdkStatus; final: boolean; metadata?: Metadata }
  | { kind: "artifact-update"; artifact: SdkArtifact; append?: boolean; lastChunk?: boolean; metadata?: Metadata };

/** An `AgentExecutor` of `@a2a-js/sdk` 0.3. */
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

const line: Line<SdkContext, SdkEvent> = {
  endsOnReturn: false,

  context(run) {
    const userMessage: SdkMessage = {
      ...toMessage({ role: "user", parts: partsOf(run), metadata: run.message.metadata }, run.taskKey, run.contextKey),
      messageId: messageIdOf(run),
      extensions: run.message.extensions,
      referenceTaskIds: run.message.referenceTaskIds,
    };
    return {
      userMessage,
      taskId: run.taskKey,
      contextId: run.contextKey,
      task:
        run.turn > 1
          ? toTask(run.taskKey, run.contextKey, stateBefore(run), own(run.history), plain(run.metadata), userMessage)
          : undefined,
      referenceTasks: some(run.references)?.map((r) => toTask(r.id, contextOf(run, r), r.state as State, r.history, undefined)),
      context: {
        user: { isAuthenticated: run.owner !== "", userName: run.owner },
        requestedExtensions: some(run.extensions),
        activatedExtensions: undefined,
        addActivatedExtension() {},
        holdfast: run,
      },
    };
  },

  action(event): Action {
    switch (event.kind) {
      case "message":
        return { kind: "message", message: fromMessage(event) };
      case "task":
        return {
          kind: "task",
          state: event.status.state,
          message: optionalMessage(event.status),
          artifacts: (event.artifacts ?? []).map(fromArtifact),
        };
      case "status-update":
        return {
          kind: "status",
          state: event.status.state,
          message: optionalMessage(event.status),
          metadata: object(event.metadata),
          final: event.final,
        };
      case "artifact-update": {
        const { artifact, append = false, lastChunk = false, metadata } = event;
        return { kind: "artifact", artifact: fromArtifact(artifact), append, last: lastChunk, metadata: object(metadata) };
      }
      default:
        throw new TypeError(
          `the executor has published ${JSON.stringify((event as { kind?: unknown })?.kind)}, which is no event of 0.3`,
        );
    }
  },
};

function optionalMessage(status: SdkStatus): AgentMessage | undefined {
  return status.message?.parts.length ? fromMessage(status.message) : undefined;
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
  const metadata = object(p.metadata);
  switch (p.kind) {
    case "text":
      return { text: p.text, metadata };
    case "data":
      return { data: json(p.data), metadata };
    case "file": {
      const facts = { filename: some(p.file.name), mediaType: some(p.file.mimeType), metadata };
      return p.file.bytes === undefined ? { ...facts, url: p.file.uri ?? "" } : { ...facts, raw: p.file.bytes };
    }
    default:
      return undefined;
  }
}

function toPart(p: Part): SdkPart {
  const metadata = plain(p.metadata);
  if (p.text !== undefined) return { kind: "text", text: p.text, metadata };
  const file = { name: p.filename, mimeType: p.mediaType };
  if (p.raw !== undefined) return { kind: "file", file: { ...file, bytes: p.raw }, metadata };
  if (p.url !== undefined) return { kind: "file", file: { ...file, uri: p.url }, metadata };
  return { kind: "data", data: plain(p.data), metadata };
}

function toMessage(said: SaidDocument, taskId: string, contextId: string): SdkMessage {
  return {
    kind: "message",
    messageId: said.messageId ?? "",
    role: said.role,
    parts: said.parts.map(toPart),
    contextId,
    taskId,
    metadata: plain(said.metadata),
    extensions: said.extensions,
    referenceTaskIds: said.referenceTaskIds,
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
    kind: "task",
    id,
    contextId,
    status: { state, message: status && toMessage(status, id, contextId) },
    artifacts: history
      .filter((said) => said.artifactId !== undefined)
      .map((said) => ({
        artifactId: said.artifactId ?? "",
        name: said.name,
        description: said.description,
        parts: said.parts.map(toPart),
        metadata: plain(said.metadata),
        extensions: said.extensions,
      })),
    history: message ? [...messages, message] : messages,
    metadata,
  };
}
