// The vocabulary of runs and events: docs/executor.schema.json.
import type { Json, JsonObject } from "./json.js";

interface PartFacts {
  filename?: string;
  mediaType?: string;
  metadata?: JsonObject;
}

/** A piece of content: exactly one of text, raw (bytes in base64), url and data. */
export interface Part extends PartFacts {
  text?: string;
  raw?: string;
  url?: string;
  data?: Json;
}

/** A part that an agent emits. Bytes may be given as they are. */
export type NewPart = PartFacts & ({ text: string } | { raw: string | Uint8Array } | { url: string } | { data: unknown });

/** What an agent says: a text, or a message with parts. */
export type Speech =
  | string
  | {
      parts: NewPart[];
      messageId?: string;
      metadata?: JsonObject;
      extensions?: string[];
      referenceTaskIds?: string[];
    };

/** An artifact that an agent emits. Without an id it is a new one. */
export interface NewArtifact {
  parts: NewPart[];
  artifactId?: string;
  name?: string;
  description?: string;
  metadata?: JsonObject;
  extensions?: string[];
}

/** An artifact as it is stored. */
export interface Artifact {
  artifactId: string;
  name?: string;
  description?: string;
  parts: Part[];
  metadata?: JsonObject;
  extensions?: string[];
}

/** A message as it is stored. */
export interface MessageDocument {
  messageId?: string;
  role: "user" | "agent";
  parts: Part[];
  metadata?: JsonObject;
  extensions?: string[];
  referenceTaskIds?: string[];
}

/** An entry of the history: a message, or an artifact of the agent in the form of a message. */
export interface SaidDocument extends MessageDocument {
  /** Of another task of the context. */
  taskId?: string;
  /** Of the status that had the agent's message, such as input-required. */
  state?: string;
  artifactId?: string;
  name?: string;
  description?: string;
  /** The size of a content that is left out because it is large. Parts are empty. */
  omitted?: number;
}

/** What an agent's code has thrown, for operators. */
export interface ErrorDocument {
  type?: string;
  /** File and line. */
  place?: string;
  message: string;
  trace?: string;
}

/** The state of a called task. */
export type ResultState = "completed" | "failed" | "canceled" | "rejected" | "input-required" | "auth-required";

/** What came of a call. */
export interface ResultDocument {
  id: string;
  agent: string;
  /** The task that answers. Absent if the call was refused. */
  task?: string;
  state: ResultState;
  message?: MessageDocument;
  artifacts?: Artifact[];
  omitted?: number;
  error?: string;
}

/** What began the turn, if not only a message. */
export type InputDocument =
  | { source: "timer"; until: string; interrupted?: boolean }
  | { source: "calls"; results: ResultDocument[] }
  | {
      source: "resume";
      /** POST or GET. */
      method: string;
      /** As it came, without the question mark. */
      query?: string;
      contentType?: string;
      /** The body, if it is JSON. */
      data?: Json;
      /** The body, if it is other text. */
      text?: string;
      /** The body in base64 otherwise. */
      bytes?: string;
    };

/** A value that a run has stored. */
export interface StoredState {
  data: Json;
  version: number;
}

/** The task or the context: what a state belongs to, or a history covers. */
export type Scope = "task" | "context";

/** A task that the message refers to. */
export interface ReferenceDocument {
  id: string;
  contextId: string;
  state: string;
  history?: SaidDocument[];
}

/** What a durable run has recorded. */
export interface RecordDocument {
  kind: "message" | "step" | "ask" | "auth" | "call" | "sleep" | "value" | "wait";
  name: string;
  /** Which one of the name, from 1. */
  nth: number;
  data?: Json;
  error?: ErrorDocument;
  /** How often the function had emitted before it, by artifact id or status. */
  emitted?: { [key: string]: number };
  /** Artifacts that steps under way have written. */
  open?: string[];
  tries?: number;
  /** Seconds. */
  took?: number;
}

/** A page of records, oldest first. */
export interface RecordsDocument {
  records: RecordDocument[];
  /** The place after which others follow. */
  next?: number;
}

/** The document that starts a run. */
export interface RunDocument {
  version: number;
  idempotencyKey: string;
  task: { id: string; key: string; contextId: string; contextKey: string; agent: string; tenant?: string; owner?: string };
  message?: MessageDocument;
  input?: InputDocument;
  resume?: { url: string };
  metadata?: JsonObject;
  turnMetadata?: JsonObject;
  acceptedOutputModes?: string[];
  extensions?: string[];
  extensionParams?: { [uri: string]: JsonObject };
  scopes?: string[];
  traceparent?: string;
  deadline?: string;
  runApi?: { url?: string; token: string };
  /** In bytes: of an event, and of the state of the task or the context. */
  limits?: { event?: number; state?: number };
  references?: ReferenceDocument[];
  turn: number;
  try: number;
  attempt: number;
  history?: SaidDocument[];
  checkpoint?: Json;
  records?: RecordsDocument;
  earlier?: { artifactId: string; name?: string; chunks: number; last: boolean }[];
  state?: { task?: StoredState; context?: StoredState };
}

/** A message for another agent, or for the task of an earlier call. */
export type Call = {
  /** Of the result. Default: the place of the call, from "1". */
  id?: string;
  message: Speech;
  /** Of the request. */
  metadata?: JsonObject;
  /** Shows clients the progress of the called task. */
  relay?: boolean;
} & ({ agent: string; contextId?: string } | { task: string });

/** How the resume URL of the turn is valid. */
export interface Resume {
  /** For so many seconds; default a day. */
  for?: number;
  /** Adds the URL to the message. */
  show?: boolean;
}

/** Metadata of an event. */
export interface EventOptions {
  metadata?: JsonObject;
}

/** An event, as it is posted. */
export type Event = { type: string } & { [member: string]: unknown };

/** An artifact of the task in a list, without its content. */
export interface ArtifactEntry {
  artifactId: string;
  name?: string;
  /** How many pieces are stored. */
  chunks: number;
  /** As stored, where contents may be compressed. */
  bytes: number;
  last: boolean;
}

/** Another task of the context. */
export interface TaskEntry {
  id: string;
  contextId: string;
  state: ResultState;
  createdAt: string;
  updatedAt: string;
}
