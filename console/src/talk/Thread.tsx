import { Link } from "@tanstack/react-router";
import { type DragEvent, memo, useEffect, useRef, useState } from "react";
import type { Talks } from "../api/schema";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { isFinal } from "../lib/states";
import { visible } from "../lib/text";
import { AnswerForm } from "./AnswerForm";
import { Composer } from "./Composer";
import { type Attachment, attach } from "./files";
import { Parts } from "./Parts";
import { SetupBar } from "./SetupBar";
import { type Conversation, cancel, cut, type Entry, resume, type Setup } from "./store";
import type { Part } from "./wire";
import "./Thread.css";

/** Thread is a conversation as people read it, and where they write. */
export function Thread({
  c,
  setup,
  talks,
  onSetup,
  onSend,
}: {
  c: Conversation | undefined;
  setup: Setup;
  talks: Talks;
  onSetup: (some: Partial<Setup>) => void;
  onSend: (parts: Part[]) => void;
}) {
  const [files, setFiles] = useState<Attachment[]>([]);
  const [over, setOver] = useState(false);
  const scroll = useRef<HTMLDivElement>(null);
  const pinned = useRef(true);
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
          pinned.current = at.scrollHeight - at.scrollTop - at.clientHeight < 60;
        }}
      >
        <div className="thread-inner">
          {!c || c.entries.length === 0 ? (
            <Begin setup={setup} talks={talks} onSend={refusal ? undefined : onSend} />
          ) : (
            grouped(c.entries).map((g) =>
              Array.isArray(g) ? <States key={g[0]?.key} states={g} /> : <Shown key={g.key} e={g} />,
            )
          )}
          {c && (c.live === "sending" || c.live === "resuming") && (
            <p className="thread-waits muted" role="status">
              <span className="button-spinner" aria-hidden="true" />
              {c.live === "sending" ? "Waiting for the agent…" : `Resuming after event ${c.lastEventId}…`}
            </p>
          )}
        </div>
      </div>
      {c?.taskId && <TaskBar c={c} />}
      {c && asked && <AnswerForm key={asked.key} parts={asked.parts} state={asked.state} onSend={onSend} />}
      <Composer
        files={files}
        onFiles={setFiles}
        onTake={take}
        refusal={refusal || (c && c.live !== "idle" ? "busy" : "")}
        answers={asked !== undefined}
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

/** TaskBar says how the task stands, and has what one can do about it. */
function TaskBar({ c }: { c: Conversation }) {
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

type StateEntry = Extract<Entry, { kind: "state" }>;
type OtherEntry = Exclude<Entry, { kind: "state" }>;

/** grouped returns the entries, with states that follow each other together. */
function grouped(entries: Entry[]): (OtherEntry | StateEntry[])[] {
  const out: (OtherEntry | StateEntry[])[] = [];
  for (const e of entries) {
    const last = out.at(-1);
    if (e.kind !== "state") out.push(e);
    else if (Array.isArray(last)) last.push(e);
    else out.push([e]);
  }
  return out;
}

/** States are the states that a task went through at once. */
function States({ states }: { states: StateEntry[] }) {
  return (
    <p className="said-state">
      {states.map((e, i) => (
        <span key={e.key} className="said-state-one">
          {i > 0 && <span aria-hidden="true">→</span>}
          <Badge state={e.state} />
        </span>
      ))}
    </p>
  );
}

/** Shown is an entry. It is rendered again only when it has changed, because an event changes one entry of many. */
const Shown = memo(function Shown({ e }: { e: OtherEntry }) {
  switch (e.kind) {
    case "me":
      return (
        <div className="said said-me" data-failed={e.failed || undefined}>
          <span className="visually-hidden">You:</span>
          <Parts parts={e.parts} plain />
          {e.failed && <p className="said-failed">Not accepted</p>}
        </div>
      );
    case "agent":
      return (
        <div className="said said-agent">
          <span className="visually-hidden">The agent:</span>
          <Parts parts={e.parts} asks={e.state === "input-required"} />
        </div>
      );
    case "artifact":
      return (
        <figure className="said talk-artifact">
          <figcaption>
            <span className="artifact-name">{visible(e.name ?? e.artifactId)}</span>
            {e.description && <span className="muted"> {visible(e.description)}</span>}
          </figcaption>
          <Parts parts={e.parts} />
        </figure>
      );
    case "cut":
      return (
        <p className="said-cut" role="status">
          <strong>
            {e.by === "you"
              ? "You cut the connection"
              : e.by === "network"
                ? "The connection broke"
                : "The server closed the stream"}
          </strong>
          {e.after ? ` after event ${e.after}` : " before the first event"}. The task goes on without it.
        </p>
      );
    case "resumed":
      return (
        <p className="said-resumed" role="status" data-whole={e.whole}>
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
        </p>
      );
    case "error":
      return (
        <div className="said-error" role="alert">
          <strong>{e.title}</strong>
          <p>{e.detail}</p>
        </div>
      );
  }
});

const scripts = [
  ["echo:hello", "answers with an artifact"],
  ["chunks=60 size=80 delay=100ms", "streams: cut it in the middle"],
  ["ask:Which city?", "asks, and waits"],
  ["steps=5 delay=500ms", "tells its progress"],
  ["data", "answers with data"],
  ["file", "answers with a file"],
] as const;

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
          {scripts.map(([script, does]) => (
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
