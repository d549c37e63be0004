import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type DragEvent, useEffect, useRef, useState } from "react";
import { get } from "../api/client";
import type { State, Talks } from "../api/schema";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { StatusLine } from "../components/StatusLine";
import { AnswerForm } from "../conversation/AnswerForm";
import { Artifact } from "../conversation/Artifact";
import { Conversation, type Item } from "../conversation/Conversation";
import { partOf, type Part as ShownPart } from "../conversation/types";
import { refresh } from "../lib/refresh";
import { isFinal } from "../lib/states";
import { Composer } from "./Composer";
import { type Attachment, attach } from "./files";
import { SetupBar } from "./SetupBar";
import { demoScripts } from "./samples";
import { cancel, cut, type Entry, resume, type Setup, type Conversation as Talk } from "./store";
import type { Part } from "./wire";
import "./Thread.css";

/** Thread is a conversation as people read it, and where they write. */
export function Thread({
  c,
  setup,
  talks,
  words,
  onSetup,
  onSend,
}: {
  c: Talk | undefined;
  setup: Setup;
  talks: Talks;
  /** words are in the field at first, if nothing was said yet. */
  words: string | undefined;
  onSetup: (some: Partial<Setup>) => void;
  onSend: (parts: Part[]) => void;
}) {
  const [files, setFiles] = useState<Attachment[]>([]);
  const [over, setOver] = useState(false);
  const scroll = useRef<HTMLDivElement>(null);
  const pinned = useRef(true);
  const top = useRef(0);
  const waits = c?.state === "input-required" || c?.state === "auth-required";
  const question = c && c.live === "idle" && waits ? c.entries.findLast((e) => e.kind === "agent") : undefined;
  const asked = question?.kind === "agent" ? question : undefined;

  // Text that grows is laid out later than its event.
  useEffect(() => {
    const inner = scroll.current?.firstElementChild;
    if (!inner) return;
    const watch = new ResizeObserver(() => {
      if (pinned.current && scroll.current) scroll.current.scrollTop = scroll.current.scrollHeight;
    });
    watch.observe(inner);
    return () => watch.disconnect();
  }, []);

  const take = (list: Iterable<File>) => {
    void attach(list).then((more) => setFiles((now) => [...now, ...more]));
  };
  const drag = (e: DragEvent) => {
    if (!e.dataTransfer.types.includes("Files")) return;
    e.preventDefault();
    setOver(e.type !== "dragleave" || e.currentTarget.contains(e.relatedTarget as Node | null));
  };
  const refusal = why(setup, talks);
  return (
    <section
      className="thread"
      aria-label="Conversation"
      data-over={over || undefined}
      onDragOver={drag}
      onDragLeave={drag}
      onDrop={(e) => {
        if (e.dataTransfer.files.length === 0) return;
        e.preventDefault();
        setOver(false);
        take(e.dataTransfer.files);
      }}
    >
      <SetupBar setup={setup} talks={talks} begun={c !== undefined} onChange={onSetup} />
      <div
        className="thread-scroll"
        ref={scroll}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
        tabIndex={0}
        role="log"
        aria-label="What was said"
        onScroll={(e) => {
          const at = e.currentTarget;
          const end = at.scrollHeight - at.scrollTop - at.clientHeight < 60;
          // Only the reader scrolls up. What came since the page scrolled does not end the following.
          if (end || at.scrollTop < top.current) pinned.current = end;
          top.current = at.scrollTop;
        }}
      >
        <div className="thread-inner">
          {!c || c.entries.length === 0 ? (
            <Begin setup={setup} talks={talks} onSend={refusal ? undefined : onSend} />
          ) : (
            <Conversation items={items(c.entries)} you artifact={(key) => <Written c={c} entry={key} />} />
          )}
          {c && (c.live === "sending" || c.live === "resuming") && (
            <p className="thread-waits muted" role="status">
              <span className="button-spinner" aria-hidden="true" />
              {c.live === "sending" ? "Waiting for the agent…" : `Resuming after event ${c.lastEventId}…`}
            </p>
          )}
        </div>
      </div>
      {c?.taskId && <Line key={c.taskId} task={c.taskId} state={c.state} />}
      {c?.taskId && <TaskBar c={c} />}
      {c && asked && <AnswerForm key={asked.key} parts={shown(asked.parts)} state={asked.state} onSend={onSend} />}
      <Composer
        files={files}
        onFiles={setFiles}
        onTake={take}
        refusal={refusal || (c && c.live !== "idle" ? "busy" : "")}
        answers={asked !== undefined}
        words={c ? undefined : words}
        onSend={onSend}
      />
    </section>
  );
}

/** why says why nothing can be sent, or "". */
function why(setup: Setup, talks: Talks): string {
  const agent = talks.agents.find((a) => a.name === setup.agent);
  if (!agent) return "Choose an agent.";
  if (agent.schemes.length > 0 && setup.caller.subject === "") return "Name the caller in whose name you talk.";
  return "";
}

/** Line says what the task does or waits for. */
function Line({ task, state }: { task: string; state: Talk["state"] }) {
  const { data } = useQuery({
    queryKey: ["task", task, "line", state],
    queryFn: ({ signal }) => get("/tasks/{id}", { path: { id: task }, signal }),
    placeholderData: keepPreviousData,
    refetchInterval: state !== undefined && isFinal(state) ? false : refresh.soon,
  });
  return data ? (
    <div className="taskbar-line">
      <StatusLine task={data} />
    </div>
  ) : null;
}

/** TaskBar says how the task stands, and has what one can do about it. */
function TaskBar({ c }: { c: Talk }) {
  const open = c.state !== undefined && !isFinal(c.state);
  return (
    <div className="taskbar">
      {c.state && <Badge state={c.state} />}
      <Link to="/tasks/$id" params={{ id: c.taskId ?? "" }} className="taskbar-task truncate mono" title={c.taskId}>
        {c.taskId}
      </Link>
      {c.live === "streaming" && c.lastEventId && <span className="taskbar-id muted">event {c.lastEventId}</span>}
      <span className="taskbar-actions">
        {c.live === "streaming" && (
          <Button kind="ghost" onClick={() => cut(c.id)} title="Kill the connection of the stream, as a network would">
            Cut the connection
          </Button>
        )}
        {c.live === "cut" && (
          <Button kind="primary" onClick={() => void resume(c.id)}>
            Resume now
          </Button>
        )}
        {open && (
          <Button kind="ghost" onClick={() => void cancel(c.id)}>
            Cancel the task
          </Button>
        )}
      </span>
    </div>
  );
}

/** Written is an artifact that the agent wrote, or writes. */
function Written({ c, entry }: { c: Talk; entry: string }) {
  const e = c.entries.find((one) => one.key === entry);
  if (e?.kind !== "artifact") return null;
  return (
    <Artifact
      name={e.name ?? e.artifactId}
      description={e.description}
      parts={shown(e.parts)}
      grows={c.live !== "idle" && e.taskId === c.taskId}
    />
  );
}

/** items returns what a conversation shows of the entries. A state is shown if no message says it. */
function items(entries: readonly Entry[]): Item[] {
  const out: Item[] = [];
  let said: State | undefined;
  for (const e of entries) {
    const base = { key: e.key, at: new Date(e.at).toISOString() };
    switch (e.kind) {
      case "me":
        out.push({ ...base, type: "message", role: "user", parts: shown(e.parts), refused: e.failed });
        break;
      case "agent": {
        const state = e.state;
        const parts = shown(e.parts);
        if (state === "input-required" || state === "auth-required") {
          out.push({ ...base, type: "question", state, parts, open: false });
        } else if (state && isFinal(state)) out.push({ ...base, type: "end", state, parts });
        else out.push({ ...base, type: "message", role: "agent", parts });
        said = state;
        continue;
      }
      case "state":
        if (e.state === said) continue;
        if (out.at(-1)?.type === "state") out.pop();
        out.push({ ...base, type: "state", state: e.state });
        break;
      case "artifact":
        out.push({ ...base, type: "artifact", id: e.key });
        break;
      default:
        out.push({ ...base, type: "line", ...lineOf(e) });
    }
    said = undefined;
  }
  return out;
}

const converted = new WeakMap<Part[], ShownPart[]>();

/** shown returns parts as a conversation shows them: the same ones for the same parts, so that they are not rendered again. */
function shown(parts: Part[]): ShownPart[] {
  const known = converted.get(parts);
  if (known) return known;
  const made = parts.map((p): ShownPart => {
    if (p.kind === "data") return { ...p, bytes: 0 };
    const { name: filename, media: media_type } = p;
    return partOf({
      ...(p.kind === "text" && { text: p.text }),
      ...(p.kind === "file" && { raw: p.base64 }),
      ...(p.kind === "url" && { url: p.url }),
      filename,
      media_type,
    });
  });
  converted.set(parts, made);
  return made;
}

/** lineOf says what happened to the stream. */
function lineOf(
  e: Extract<Entry, { kind: "cut" | "resumed" | "error" }>,
): Omit<Extract<Item, { type: "line" }>, "key" | "type"> {
  switch (e.kind) {
    case "cut": {
      const by = {
        you: "You cut the connection",
        network: "The connection broke",
        server: "The server closed the stream",
      };
      return {
        tone: "warn",
        text: (
          <>
            <strong>{by[e.by]}</strong>
            {e.after ? ` after event ${e.after}` : " before the first event"}. The task goes on without it.
          </>
        ),
      };
    }
    case "resumed":
      return {
        tone: e.whole === "yes" ? "good" : e.whole === "no" ? "bad" : "info",
        text: (
          <>
            <strong>Resumed</strong>
            {e.after && (
              <>
                {" by "}
                <code>Last-Event-ID: {e.after}</code>
              </>
            )}
            {e.whole === "checking" && " · comparing with what is stored…"}
            {e.whole === "yes" && " · whole: every event came once, and the artifacts are those that are stored"}
            {e.whole === "no" && " · the artifacts differ from those that are stored: look at the wire"}
          </>
        ),
      };
    case "error":
      return {
        tone: "bad",
        alert: true,
        text: (
          <>
            <strong>{e.title}</strong>
            <p className="text">{e.detail}</p>
          </>
        ),
      };
  }
}

/** Begin is a conversation in which nothing was said yet. */
function Begin({ setup, talks, onSend }: { setup: Setup; talks: Talks; onSend: ((parts: Part[]) => void) | undefined }) {
  const agent = talks.agents.find((a) => a.name === setup.agent);
  if (!agent) {
    return (
      <div className="begin">
        <h2>No agent is configured</h2>
        <p className="muted">Add one to the configuration: docs/executors.md. Any A2A server is one by kind: a2a.</p>
      </div>
    );
  }
  return (
    <div className="begin">
      <h2>Talk to {agent.name}</h2>
      <p className="muted">
        {agent.schemes.length === 0
          ? "All callers of this agent are anonymous, and so are you here."
          : "Name the caller in whose name you talk. The tasks are the caller's; the audit log has your name."}{" "}
        Drop files anywhere, or paste them.
      </p>
      {agent.kind === "demo" && (
        <ul className="begin-scripts">
          {demoScripts.map(([script, does]) => (
            <li key={script}>
              <button type="button" disabled={!onSend} onClick={() => onSend?.([{ kind: "text", text: script }])}>
                <code>{script}</code>
                <span className="muted">{does}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
