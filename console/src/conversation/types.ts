// What the log stores, as far as the page reads it. An agent has written it: every member may be missing or of another type.
import { LosslessNumber } from "../api/json";

export interface StoredPart {
  text?: unknown;
  raw?: unknown;
  url?: unknown;
  data?: unknown;
  filename?: unknown;
  media_type?: unknown;
  metadata?: unknown;
}

/** Part is a part of a message or an artifact, as it is shown. */
export interface Part {
  kind: "text" | "raw" | "url" | "data";
  text?: string;
  /** raw is base64; absent for a file that is only a download. */
  raw?: string;
  url?: string;
  data?: unknown;
  filename?: string;
  mediaType?: string;
  metadata?: unknown;
  /** bytes is the size of the whole part. */
  bytes: number;
  /** cut says that the text or the data is not here as a whole. */
  cut?: boolean;
}

export type Dict = Record<string, unknown>;

export function isDict(value: unknown): value is Dict {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof LosslessNumber);
}

/** member reads a member of a value that may be anything. */
export function member(value: unknown, name: string): unknown {
  return isDict(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

export function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

export function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

const utf8 = new TextEncoder();

export function bytesOf(text: string): number {
  return utf8.encode(text).length;
}

/** partOf reads a stored part. */
export function partOf(stored: unknown): Part {
  const common = {
    filename: textOf(member(stored, "filename")),
    mediaType: textOf(member(stored, "media_type")),
    metadata: member(stored, "metadata"),
  };
  const text = textOf(member(stored, "text"));
  if (text !== undefined) return { ...common, kind: "text", text, bytes: bytesOf(text) };
  const raw = textOf(member(stored, "raw"));
  if (raw !== undefined) return { ...common, kind: "raw", raw, bytes: rawBytes(raw) };
  if (isDict(stored) && Object.hasOwn(stored, "data")) return { ...common, kind: "data", data: stored.data, bytes: 0 };
  return { ...common, kind: "url", url: textOf(member(stored, "url")) ?? "", bytes: 0 };
}

function rawBytes(base64: string): number {
  return Math.floor((base64.replace(/=+$/, "").length * 3) / 4);
}

export function partsOf(value: unknown): Part[] {
  return listOf(value).map(partOf);
}
