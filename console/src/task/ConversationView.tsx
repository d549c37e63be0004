import { useCallback, useMemo, useRef } from "react";
import type { Call, TaskDetail } from "../api/schema";
import { Button } from "../components/Button";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { StatusLine } from "../components/StatusLine";
import { Conversation } from "../conversation/Conversation";
import type { Answer } from "../conversation/form";
import { ArtifactCard } from "./ArtifactsView";
import { conversation } from "./conversation";
import { InlineAnswer } from "./InlineAnswer";
import { useFollow } from "./useFollow";
import type { Live, useArtifacts, useStory } from "./useTask";
import "./ConversationView.css";

export type Story = Pick<ReturnType<typeof useStory>, "events" | "whole"> & { query?: ReturnType<typeof useStory>["query"] };

export function ConversationView({
  task,
  live,
  story,
  artifacts,
  calls,
  error,
  toSeq,
  answer,
}: {
  task: TaskDetail;
  live: Live;
  story: Story;
  artifacts: Pick<ReturnType<typeof useArtifacts>, "list">;
  calls: readonly Call[];
  /** error is what the page shows above: the conversation does not repeat it. */
  error?: string;
  toSeq: (seq: number) => void;
  answer?: (parts: Answer[]) => void;
}) {
  const items = useMemo(
    () => conversation(story.events, artifacts.list, story.whole, error),
    [story.events, artifacts.list, story.whole, error],
  );
  const scroller = useRef<HTMLDivElement>(null);
  const open = live.state !== "ended";
  const { following, follow } = useFollow(scroller, open, live.tick + items.length);
  const { query } = story;
  const { id, agent, owner, tenant } = task;
  const form = useCallback<NonNullable<Parameters<typeof Conversation>[0]["answer"]>>(
    (q) => answer && <InlineAnswer task={{ id, agent, owner, tenant }} parts={q.parts} state={q.state} onSend={answer} />,
    [id, agent, owner, tenant, answer],
  );
  if (query?.error && !query.data) {
    return <ErrorBox error={query.error} retry={() => query.refetch()} title="The conversation cannot be read" />;
  }
  return (
    <div className="conversation-frame">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it */}
      <section className="conversation" ref={scroller} tabIndex={0} aria-label="Conversation">
        {query?.hasNextPage && (
          <div className="conversation-earlier">
            <Button busy={query.isFetchingNextPage} onClick={() => query.fetchNextPage()}>
              Load earlier messages
            </Button>
          </div>
        )}
        {query?.isPending && <p className="muted conversation-note">Loading…</p>}
        {query?.isSuccess && items.length === 0 && (
          <EmptyState title="Nothing was said">The log of this task has no message. The log shows what it has.</EmptyState>
        )}
        <Conversation
          items={items}
          calls={calls}
          toSeq={toSeq}
          answer={form}
          artifact={(artifact) => (
            <ArtifactCard task={task} id={artifact} live={live} artifacts={artifacts.list} toSeq={toSeq} />
          )}
        />
        {open && <StatusLine task={task} />}
      </section>
      {open && !following && (
        <button type="button" className="follow" onClick={follow}>
          ↓ Follow
        </button>
      )}
    </div>
  );
}
