// The conversation of a task, as people read it, from the events of its log without the chunks of artifacts.
import type { Event } from "../api/schema";
import type { Item } from "../conversation/Conversation";
import { listOf, member, partsOf, textOf } from "../conversation/types";
import { isFinal } from "../lib/states";
import { hostOf } from "../lib/text";
/** Mark is where an artifact appears first. */
export interface Mark {
  id: string;
  firstSeq: number;
}

/** keeps says whether an event stores where its run stands: a checkpoint, or a record of a durable run. */
export function keeps(e: Event): boolean {
  return ["checkpoint", "record"].includes(textOf(member(e.payload, "outcome")) ?? "");
}

/** errorKey is the same for an error that is written twice, also where one of the two is cut or is on one line. */
export function errorKey(text: string): string {
  return text.replace(/\s+/g, " ").trim().slice(0, 300);
}

/**
 * conversation makes the items of events that are in order. whole says that the first of them is the first of the log: then
 * turns can be counted. Artifacts are put where they appear first. An error is shown once: shown is one that stands above all.
 */
export function conversation(events: readonly Event[], artifacts: readonly Mark[], whole: boolean, shown = ""): Item[] {
  const items: Item[] = [];
  const errors = new Set(shown ? [errorKey(shown)] : []);
  const known = (error: string | undefined) => {
    if (!error) return false;
    const key = errorKey(error);
    const again = errors.has(key);
    errors.add(key);
    return again;
  };
  const marks = [...artifacts].sort((a, b) => a.firstSeq - b.firstSeq);
  let mark = 0;
  while (!whole && mark < marks.length && (marks[mark]?.firstSeq ?? 0) < (events[0]?.seq ?? 0)) mark++;
  let turn = 0;
  let at = "";
  const putArtifacts = (before: number) => {
    for (let m = marks[mark]; m && m.firstSeq < before; m = marks[++mark]) {
      items.push({ type: "artifact", key: `artifact ${m.id}`, seq: m.firstSeq, at, id: m.id });
    }
  };
  for (const e of events) {
    putArtifacts(e.seq);
    at = e.at;
    const key = String(e.seq);
    const base = { key, seq: e.seq, at: e.at };
    if (e.kind === "message") {
      const user = textOf(member(e.payload, "role")) !== "agent";
      if (user) {
        turn++;
        if (whole) items.push({ type: "turn", ...base, key: `turn ${key}`, turn });
      }
      items.push({
        type: "message",
        ...base,
        role: user ? "user" : "agent",
        parts: partsOf(member(e.payload, "parts")),
        metadata: member(e.payload, "metadata"),
      });
    } else if (e.kind === "status") {
      const state = e.state ?? "working";
      const message = member(e.payload, "message");
      const parts = partsOf(member(message, "parts"));
      const metadata = member(message, "metadata");
      if (state === "input-required" || state === "auth-required") {
        items.push({ type: "question", ...base, state, parts, metadata, open: true });
      } else if (isFinal(state)) {
        const cause = textOf(member(e.payload, "cause"));
        const said = parts.map((p) => p.text ?? "").join("\n");
        const twice = [known(cause), state !== "completed" && parts.every((p) => p.kind === "text") && known(said)];
        items.push({
          type: "end",
          ...base,
          state,
          parts: twice[1] ? [] : parts,
          metadata,
          ...(cause && !twice[0] && { cause }),
          ...((twice[0] || twice[1]) && { same: true }),
        });
      } else if (parts.length > 0) {
        items.push({ type: "message", ...base, role: "agent", parts, metadata, state });
      } else {
        // Of several silent states in a row, only the last one says something.
        if (items.at(-1)?.type === "state") items.pop();
        items.push({ type: "state", ...base, state });
      }
    } else if (e.kind === "run") {
      const outcome = textOf(member(e.payload, "outcome")) ?? "";
      const calls = listOf(member(e.payload, "calls"));
      if (calls.length > 0) {
        items.push({
          type: "calls",
          ...base,
          calls: calls.map((c) => ({
            id: textOf(member(c, "id")) ?? "",
            agent: textOf(member(c, "agent")) ?? "",
            task: textOf(member(c, "task")),
          })),
        });
      } else if (outcome && !keeps(e)) {
        const error = textOf(member(e.payload, "error"));
        items.push({ type: "note", ...base, outcome, error, same: known(error) });
      }
    }
  }
  putArtifacts(Number.POSITIVE_INFINITY);
  // A question is open until anything of its client or its agent follows.
  let later = false;
  for (const item of items.toReversed()) {
    if (item.type === "question") item.open = !later;
    if (item.type !== "artifact" && item.type !== "turn") later = true;
  }
  return items;
}

/** traces returns the ids of the traces of a task, the newest first. */
export function traces(events: readonly Event[]): string[] {
  const found: string[] = [];
  for (const e of events) {
    const header = textOf(member(member(e.payload, "request"), "traceparent"));
    const id = header?.match(/^[0-9a-f]{2}-([0-9a-f]{32})-/)?.[1];
    if (id && !found.includes(id)) found.unshift(id);
  }
  return found;
}

/** traceHref returns the address of a trace in the operators' tracing tool. It returns undefined without a tool, and for other schemes than http and https. */
export function traceHref(address: string | undefined, id: string): string | undefined {
  const href = address?.replaceAll("{trace_id}", id);
  return href !== undefined && hostOf(href) !== undefined ? href : undefined;
}
