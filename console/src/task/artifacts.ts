// Artifacts as the server folds them (task.Task.Apply), and the chunks that a stream adds to one on the page.
import type { ArtifactDetail, Event } from "../api/schema";
import { listOf, member, type Part, partOf, textOf } from "../conversation/types";

export interface Artifact {
  id: string;
  firstSeq: number;
  /** seq is the newest event that is in it. */
  seq: number;
  chunks: number;
  complete: boolean;
  name?: string;
  description?: string;
  metadata?: unknown;
  parts: Part[];
  /** partial says that the artifact is so large that the page has only its beginning. */
  partial: boolean;
}

/** mostText bounds the text of a part in the page, in characters. More is a download. */
export const mostText = 2 << 20;

export function artifactOf(a: ArtifactDetail): Artifact {
  return {
    id: a.id,
    firstSeq: a.first_seq,
    seq: a.seq,
    chunks: a.chunks,
    complete: a.complete ?? false,
    name: a.name,
    description: a.description,
    metadata: a.metadata,
    partial: a.partial ?? false,
    parts: a.parts.map((p) => ({
      kind: p.kind,
      text: p.kind === "text" ? (p.text ?? "") : undefined,
      url: p.url,
      data: p.data,
      filename: p.filename,
      mediaType: p.media_type,
      metadata: p.metadata,
      bytes: p.bytes,
      cut: p.cut,
    })),
  };
}

/** begun makes an artifact of its first event. */
export function begun(e: Event): Artifact {
  return replaced({ id: e.artifact_id ?? "", firstSeq: e.seq, chunks: 0 }, e);
}

function replaced(old: Pick<Artifact, "id" | "firstSeq" | "chunks">, e: Event): Artifact {
  return {
    id: old.id,
    firstSeq: old.firstSeq,
    seq: e.seq,
    chunks: old.chunks + 1,
    complete: e.last ?? false,
    name: textOf(member(e.payload, "name")),
    description: textOf(member(e.payload, "description")),
    metadata: member(e.payload, "metadata"),
    parts: listOf(member(e.payload, "parts")).map((p) => forget(partOf(p))),
    partial: false,
  };
}

/** forget drops the bytes of a file: the page reads it from the server. */
function forget(part: Part): Part {
  return part.kind === "raw" ? { ...part, raw: undefined } : part;
}

function plain(p: Part): boolean {
  return p.kind === "text" && !p.filename && p.metadata === undefined;
}

/** apply folds an event into an artifact. An event that is in it already changes nothing. */
export function apply(a: Artifact, e: Event): Artifact {
  if (e.seq <= a.seq) return a;
  if (!e.append) return replaced(a, e);
  const more = listOf(member(e.payload, "parts")).map((p) => forget(partOf(p)));
  const last = a.parts.at(-1);
  const next = more[0];
  let parts: Part[];
  let partial = a.partial;
  if (a.partial) parts = a.parts;
  else if (
    last &&
    next &&
    more.length === 1 &&
    plain(last) &&
    plain(next) &&
    (last.mediaType ?? "") === (next.mediaType ?? "")
  ) {
    const joined: Part = { ...last, bytes: last.bytes + next.bytes };
    if (!last.cut) {
      const text = (last.text ?? "") + (next.text ?? "");
      joined.cut = text.length > mostText;
      joined.text = joined.cut ? last.text : text;
    }
    parts = [...a.parts.slice(0, -1), joined];
  } else if (a.parts.length + more.length > 1000) {
    parts = a.parts;
    partial = true;
  } else parts = [...a.parts, ...more];
  return {
    ...a,
    seq: e.seq,
    chunks: a.chunks + 1,
    complete: e.last ?? false,
    name: textOf(member(e.payload, "name")) || a.name,
    description: textOf(member(e.payload, "description")) || a.description,
    metadata: member(e.payload, "metadata") ?? a.metadata,
    parts,
    partial,
  };
}
