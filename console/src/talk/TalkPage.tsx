import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import type { Talks } from "../api/schema";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import { useActRefusal } from "../layout/me";
import { useMedia } from "../lib/media";
import { one } from "../lib/search";
import { useShortcut } from "../lib/shortcuts";
import { talks as query, targetOf } from "./copy";
import { Frames } from "./Frames";
import { type Conversation, close, type Setup, say, setUp, setupOf, start, useConversations } from "./store";
import { Thread } from "./Thread";
import type { Part } from "./wire";
import "./TalkPage.css";

const route = getRouteApi("/talk");
const draft = "";

/** TalkPage talks to agents as a caller: conversations on the left, the frames of the chosen one on the right. */
export function TalkPage() {
  const talks = useQuery(query);
  const refusal = useActRefusal();
  if (refusal) {
    return (
      <Page title="Talk">
        <EmptyState title="You may not talk to agents">{refusal}</EmptyState>
      </Page>
    );
  }
  if (talks.error) {
    return (
      <Page title="Talk">
        <ErrorBox error={talks.error} retry={() => void talks.refetch()} />
      </Page>
    );
  }
  if (!talks.data) {
    return (
      <Page title="Talk" fixed>
        <p className="talk-loading muted">Loading…</p>
      </Page>
    );
  }
  if (!talks.data.available) {
    return (
      <Page title="Talk">
        <EmptyState title="This process serves no agents">
          It does not have the role api. Open the console of a process that has it.
        </EmptyState>
      </Page>
    );
  }
  return <Talk talks={talks.data} />;
}

function Talk({ talks }: { talks: Talks }) {
  const search = route.useSearch();
  // A link may bring words to send.
  const words = one(search, "say");
  const all = useConversations();
  const [chosen, setChosen] = useState<string>(() => (words ? draft : (all[0]?.id ?? draft)));
  const [setup, setSetup] = useState<Setup>(() => setupOf(talks, search));
  const [side, setSide] = useState<"talk" | "wire">("talk");
  const [wire, setWire] = useState(true);
  const narrow = useMedia("(max-width: 1080px)");

  const from = useRef({ taskId: one(search, "task"), contextId: one(search, "context") });
  useEffect(() => {
    const { taskId, contextId } = from.current;
    from.current = { taskId: undefined, contextId: undefined };
    if (taskId || contextId) setChosen(start(setup, { ...(taskId ? { taskId } : {}), ...(contextId ? { contextId } : {}) }));
  }, [setup]);

  const c = all.find((one) => one.id === chosen);
  const fresh = () => {
    if (c) setSetup(c.setup);
    setChosen(draft);
    setSide("talk");
  };
  useShortcut("n", "New conversation", "Talk", fresh);
  useShortcut("w", "Show or hide the wire", "Talk", () =>
    narrow ? setSide(side === "talk" ? "wire" : "talk") : setWire(!wire),
  );

  const send = (parts: Part[]) => {
    if (c) return void say(c.id, parts);
    const id = start(setup);
    setChosen(id);
    void say(id, parts);
  };
  const change = (some: Partial<Setup>) => (c ? setUp(c.id, some) : setSetup({ ...setup, ...some }));
  const showsWire = narrow ? side === "wire" : wire;

  return (
    <Page
      title="Talk"
      fixed
      actions={
        <>
          <Button
            kind="ghost"
            aria-pressed={showsWire}
            onClick={() => (narrow ? setSide(side === "talk" ? "wire" : "talk") : setWire(!wire))}
          >
            Wire{c && c.frames.length + c.dropped > 0 ? ` · ${c.frames.length + c.dropped}` : ""}
          </Button>
          <Button kind="primary" onClick={fresh} disabled={!c}>
            New conversation
          </Button>
        </>
      }
    >
      <div className="talks" data-wire={(!narrow && wire) || undefined} data-side={narrow ? side : undefined}>
        <List all={all} chosen={chosen} choose={setChosen} />
        {(!narrow || side === "talk") && (
          <Thread key={chosen} c={c} setup={c?.setup ?? setup} talks={talks} words={words} onSetup={change} onSend={send} />
        )}
        {showsWire && <Frames c={c} target={targetOf(talks, (c?.setup ?? setup).agent)} />}
      </div>
    </Page>
  );
}

function List({ all, chosen, choose }: { all: Conversation[]; chosen: string; choose: (id: string) => void }) {
  const ordered = useMemo(() => [...all].sort((a, b) => b.began - a.began), [all]);
  return (
    <nav className="talk-list" aria-label="Conversations">
      {ordered.length === 0 ? (
        <p className="muted">Your conversations of this tab will be here. Their tasks are stored, and outlive the tab.</p>
      ) : (
        <ul>
          {ordered.map((c) => (
            <li key={c.id} className="talks-item" data-chosen={c.id === chosen || undefined}>
              <button
                type="button"
                className="talk-open"
                aria-current={c.id === chosen || undefined}
                onClick={() => choose(c.id)}
              >
                <span className="talk-item-title truncate">{c.title || c.taskId || "New conversation"}</span>
                <span className="talk-item-more truncate">
                  {c.setup.agent} · {c.setup.caller.subject || "anonymous"} · {c.setup.speech.version}
                </span>
                {c.state && <Badge state={c.state} />}
              </button>
              <button
                type="button"
                className="talk-close"
                aria-label={`Close ${c.title || "the conversation"}`}
                onClick={() => {
                  if (c.id === chosen) choose(ordered.find((o) => o.id !== c.id)?.id ?? draft);
                  close(c.id);
                }}
              >
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
    </nav>
  );
}
