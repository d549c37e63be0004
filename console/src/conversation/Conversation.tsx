import { Link } from "@tanstack/react-router";
import { memo, type ReactNode } from "react";
import type { Call, State } from "../api/schema";
import { Badge } from "../components/Badge";
import { Text } from "../components/Panel";
import { Time } from "../components/Time";
import { notes, outcomes } from "../lib/outcomes";
import { isFinal, stateNames } from "../lib/states";
import { line } from "../lib/text";
import { Fold } from "./Fold";
import { Metadata, Parts } from "./Parts";
import { SeqLink, type SeqLinkProps } from "./SeqLink";
import type { Part } from "./types";
import "./Conversation.css";

/** Item is what a conversation shows: of the log of a task, or of a talk. */
export type Item = { key: string; at?: string; seq?: number } & (
  | { type: "turn"; turn: number }
  | { type: "message"; role: "user" | "agent"; parts: readonly Part[]; metadata?: unknown; state?: State; refused?: boolean }
  | { type: "question"; state: State; parts: readonly Part[]; metadata?: unknown; open: boolean }
  | { type: "end"; state: State; parts: readonly Part[]; metadata?: unknown; cause?: string; same?: boolean }
  | { type: "state"; state: State }
  | { type: "note"; outcome: string; error?: string; same?: boolean }
  | { type: "calls"; calls: { id: string; agent: string; task?: string }[] }
  | { type: "artifact"; id: string }
  | { type: "line"; tone: "good" | "warn" | "bad" | "info"; alert?: boolean; text: ReactNode }
);

type Kind<T extends Item["type"]> = Extract<Item, { type: T }>;

interface Shared {
  /** you says that the reader is the client. */
  you?: boolean;
  calls?: readonly Call[];
  toSeq?: SeqLinkProps["toSeq"];
  /** answer shows where an open question is answered. It must stay the same function. */
  answer?: (question: Kind<"question">) => ReactNode;
}

/** Conversation shows what was said, for the page of a task and for Talk. artifact shows an artifact by its id. */
export function Conversation({
  items,
  artifact,
  ...shared
}: Shared & { items: readonly Item[]; artifact: (id: string) => ReactNode }) {
  return (
    <ol className="conversation-items">
      {items.map((item) => (
        <li
          key={item.key}
          className="conversation-item"
          data-type={item.type}
          data-by={item.type === "message" ? item.role : undefined}
        >
          {item.type === "artifact" ? artifact(item.id) : <One item={item} {...shared} />}
        </li>
      ))}
    </ol>
  );
}

type OneProps = Shared & { item: Exclude<Item, { type: "artifact" }> };

/** unchanged says that an item shows the same as before. What was said does not change; whether a question is open does. */
function unchanged(a: OneProps, b: OneProps): boolean {
  const x = a.item;
  const y = b.item;
  return (
    x.key === y.key &&
    x.type === y.type &&
    a.toSeq === b.toSeq &&
    a.answer === b.answer &&
    (x.type !== "question" || x.open === (y as typeof x).open) &&
    (x.type !== "message" || x.refused === (y as typeof x).refused) &&
    ((x.type !== "end" && x.type !== "note") || x.same === (y as typeof x).same) &&
    (x.type !== "turn" || x.turn === (y as typeof x).turn) &&
    (x.type !== "state" || x.state === (y as typeof x).state) &&
    (x.type !== "calls" || a.calls === b.calls) &&
    x.type !== "line"
  );
}

const One = memo(function One({ item, you, calls, toSeq, answer }: OneProps) {
  switch (item.type) {
    case "turn":
      return item.turn > 1 ? (
        <div className="conversation-divider">
          <span>Turn {item.turn}</span>
        </div>
      ) : null;
    case "message":
      return (
        <Bubble item={item} who={item.role === "agent" ? "Agent" : you ? "You" : "Client"} kind={item.role} toSeq={toSeq}>
          <Parts parts={item.parts} markdown={item.role === "agent"} />
          <Metadata value={item.metadata} />
          {item.refused && <p className="bubble-refused">Not accepted</p>}
        </Bubble>
      );
    case "question":
      return (
        <>
          <Bubble item={item} who="Agent" kind="question" state={item.state} toSeq={toSeq}>
            {item.parts.length > 0 ? (
              <Parts parts={item.parts} markdown asks />
            ) : (
              <p className="muted">The agent asks without words.</p>
            )}
            <Metadata value={item.metadata} />
          </Bubble>
          {item.open && answer?.(item)}
        </>
      );
    case "end":
      if (item.same || (item.parts.length === 0 && !item.cause)) {
        return (
          <Small item={item} toSeq={toSeq}>
            <Badge state={item.state} /> {item.same && <span className="muted">with the error above</span>}
          </Small>
        );
      }
      return (
        <Bubble item={item} who="Agent" kind="end" state={item.state} toSeq={toSeq}>
          {item.parts.length > 0 && <Parts parts={item.parts} markdown={item.state === "completed"} />}
          {item.cause && <Text>{item.cause}</Text>}
          <Metadata value={item.metadata} />
        </Bubble>
      );
    case "state":
      return (
        <Small item={item} toSeq={toSeq}>
          {isFinal(item.state) ? <Badge state={item.state} /> : (stateNames[item.state] ?? item.state)}
        </Small>
      );
    case "note": {
      const known = outcomes[item.outcome];
      return (
        <Small item={item} toSeq={toSeq} tone={known?.tone}>
          {notes[item.outcome] ?? `The run ${known?.text ?? line(item.outcome, 60)}`}
          {item.same ? ": the error above" : item.error ? ":" : ""}
          {!item.same && item.error && <Text>{item.error}</Text>}
        </Small>
      );
    }
    case "calls":
      return (
        <div className="conversation-calls">
          {item.calls.map((c) => {
            const call = calls?.find((k) => k.id === c.id || k.task === c.task);
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
    case "line":
      return (
        <div className="conversation-line" data-tone={item.tone} role={item.alert ? "alert" : "status"}>
          {item.text}
        </div>
      );
  }
}, unchanged);

function Bubble({
  item,
  who,
  kind,
  state,
  children,
  toSeq,
}: {
  item: Item;
  who: string;
  kind: "user" | "agent" | "question" | "end";
  state?: State;
  children: ReactNode;
  toSeq?: SeqLinkProps["toSeq"];
}) {
  return (
    <article className={`bubble bubble-${kind}`} data-state={state}>
      <header>
        <strong>{who}</strong>
        {state && <Badge state={state} />}
        <Where item={item} toSeq={toSeq} />
      </header>
      <Fold>{children}</Fold>
    </article>
  );
}

function Small({
  item,
  tone,
  children,
  toSeq,
}: {
  item: Item;
  tone?: "good" | "bad" | "warn" | "info" | "neutral";
  children: ReactNode;
  toSeq?: SeqLinkProps["toSeq"];
}) {
  return (
    <div className="conversation-small" data-tone={tone}>
      <div className="conversation-said">{children}</div>
      <Where item={item} toSeq={toSeq} />
    </div>
  );
}

/** Where says when something was said, and where it is in the log. */
function Where({ item, toSeq }: { item: Item; toSeq?: SeqLinkProps["toSeq"] }) {
  return (
    <span className="bubble-at">
      {item.at && <Time at={item.at} />}
      {item.seq !== undefined && toSeq && <SeqLink seq={item.seq} toSeq={toSeq} />}
    </span>
  );
}
