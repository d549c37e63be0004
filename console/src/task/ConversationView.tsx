import { Link } from "@tanstack/react-router";
import { memo, type ReactNode, useMemo, useRef } from "react";
import type { Call, State, TaskDetail } from "../api/schema";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Time } from "../components/Time";
import { stateNames } from "../lib/states";
import { line } from "../lib/text";
import { ArtifactCard } from "./ArtifactsView";
import { conversation, type Item } from "./conversation";
import { Metadata, Parts } from "./Parts";
import { outcomes } from "./timeline";
import { useFollow } from "./useFollow";
import type { Live, useArtifacts, useStory } from "./useTask";
import "./Conversation.css";

export function ConversationView({
  task,
  live,
  story,
  artifacts,
  calls,
  toSeq,
  answer,
}: {
  task: TaskDetail;
  live: Live;
  story: ReturnType<typeof useStory>;
  artifacts: ReturnType<typeof useArtifacts>;
  calls: readonly Call[];
  toSeq: (seq: number) => void;
  answer?: () => void;
}) {
  const items = useMemo(
    () => conversation(story.events, artifacts.list, story.whole),
    [story.events, artifacts.list, story.whole],
  );
  const scroller = useRef<HTMLDivElement>(null);
  const open = live.state !== "ended";
  const { following, follow } = useFollow(scroller, open, live.tick + items.length);
  const { query } = story;
  if (query.error && !query.data) {
    return <ErrorBox error={query.error} retry={() => query.refetch()} title="The conversation cannot be read" />;
  }
  return (
    <div className="conversation-frame">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it */}
      <section className="conversation" ref={scroller} tabIndex={0} aria-label="Conversation">
        {query.hasNextPage && (
          <div className="conversation-earlier">
            <Button busy={query.isFetchingNextPage} onClick={() => query.fetchNextPage()}>
              Load earlier messages
            </Button>
          </div>
        )}
        {query.isPending && <p className="muted conversation-note">Reading…</p>}
        {query.isSuccess && items.length === 0 && (
          <EmptyState title="Nothing was said">The log of this task has no message. The log shows what it has.</EmptyState>
        )}
        <ol className="conversation-items">
          {items.map((item) => (
            <li key={item.key} className={`conversation-item conversation-${item.type}`}>
              {item.type === "artifact" ? (
                <ArtifactCard task={task} id={item.id} live={live} artifacts={artifacts.list} toSeq={toSeq} />
              ) : (
                <ItemView item={item} calls={calls} toSeq={toSeq} answer={answer} />
              )}
            </li>
          ))}
        </ol>
        {open && task.state === "working" && (
          <p className="conversation-note conversation-working">
            <span className="conversation-dots" aria-hidden="true" />
            The agent works.
          </p>
        )}
      </section>
      {open && !following && (
        <button type="button" className="follow" onClick={follow}>
          ↓ Follow
        </button>
      )}
    </div>
  );
}

interface ItemProps {
  item: Exclude<Item, { type: "artifact" }>;
  calls: readonly Call[];
  toSeq: (seq: number) => void;
  answer?: () => void;
}

/** same says that an item shows the same. Events do not change; whether a question is open does. */
function same(a: ItemProps, b: ItemProps): boolean {
  const open = (p: ItemProps) => p.item.type === "question" && p.item.open;
  return (
    a.item.key === b.item.key &&
    a.item.type === b.item.type &&
    open(a) === open(b) &&
    (a.item.type !== "turn" || b.item.type !== "turn" || a.item.turn === b.item.turn) &&
    (a.item.type !== "calls" || a.calls === b.calls) &&
    a.toSeq === b.toSeq &&
    a.answer === b.answer
  );
}

const ItemView = memo(function ItemView({ item, calls, toSeq, answer }: ItemProps) {
  switch (item.type) {
    case "turn":
      return item.turn > 1 ? (
        <div className="conversation-divider">
          <span>Turn {item.turn}</span>
        </div>
      ) : null;
    case "message":
      return (
        <Bubble item={item} who={item.role === "user" ? "Client" : "Agent"} kind={item.role} toSeq={toSeq}>
          <Parts parts={item.parts} markdown={item.role === "agent"} />
          <Metadata value={item.metadata} />
        </Bubble>
      );
    case "question":
      return (
        <Bubble item={item} who="Agent" kind="question" state={item.state} toSeq={toSeq}>
          {item.parts.length > 0 ? (
            <Parts parts={item.parts} markdown />
          ) : (
            <p className="muted">The agent asks without words.</p>
          )}
          <Metadata value={item.metadata} />
          {item.open && answer && (
            <div className="conversation-answer">
              <Button kind="primary" onClick={answer}>
                Answer
              </Button>
            </div>
          )}
        </Bubble>
      );
    case "end":
      return (
        <Bubble item={item} who="Agent" kind="end" state={item.state} toSeq={toSeq}>
          {item.parts.length > 0 && <Parts parts={item.parts} markdown />}
          {item.cause && <p className="conversation-cause">{line(item.cause, 2000)}</p>}
          <Metadata value={item.metadata} />
        </Bubble>
      );
    case "state":
      return <Small item={item} toSeq={toSeq} text={stateNames[item.state] ?? item.state} />;
    case "note": {
      const known = outcomes[item.outcome];
      return (
        <Small
          item={item}
          toSeq={toSeq}
          tone={known?.tone}
          text={`The run ${known?.text ?? line(item.outcome, 60)}${item.error ? `: ${line(item.error, 300)}` : ""}`}
        />
      );
    }
    case "calls":
      return (
        <div className="conversation-calls">
          {item.calls.map((c) => {
            const call = calls.find((k) => k.id === c.id || k.task === c.task);
            const child = c.task ?? call?.task;
            return (
              <div key={c.id || c.agent} className="conversation-call">
                <span className="muted">calls</span> <strong>{line(c.agent || call?.agent || "an agent", 80)}</strong>
                {call?.result && <Badge state={call.result as State} />}
                {child && (
                  <Link to="/tasks/$id" params={{ id: child }}>
                    Open
                  </Link>
                )}
              </div>
            );
          })}
        </div>
      );
  }
}, same);

function Bubble({
  item,
  who,
  kind,
  state,
  children,
  toSeq,
}: {
  item: { seq: number; at: string };
  who: string;
  kind: "user" | "agent" | "question" | "end";
  state?: State;
  children: ReactNode;
  toSeq: (seq: number) => void;
}) {
  return (
    <article className={`bubble bubble-${kind}`} data-state={state}>
      <header>
        <strong>{who}</strong>
        {state && <Badge state={state} />}
        <span className="bubble-at">
          <Time at={item.at} />
        </span>
        <SeqLink seq={item.seq} toSeq={toSeq} />
      </header>
      {children}
    </article>
  );
}

/** SeqLink leads to an event in the log. */
export function SeqLink({ seq, toSeq }: { seq: number; toSeq: (seq: number) => void }) {
  return (
    <a
      className="task-seq"
      href={`?tab=log&seq=${seq}`}
      title={`Event ${seq} in the log`}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        toSeq(seq);
      }}
    >
      #{seq}
    </a>
  );
}

function Small({
  item,
  text,
  tone,
  toSeq,
}: {
  item: { seq: number; at: string };
  text: string;
  tone?: "good" | "bad" | "warn" | "info" | "neutral";
  toSeq: (seq: number) => void;
}) {
  return (
    <p className="conversation-small" data-tone={tone}>
      <span>{text}</span>
      <Time at={item.at} />
      <SeqLink seq={item.seq} toSeq={toSeq} />
    </p>
  );
}
