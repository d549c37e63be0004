import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo } from "react";
import { ApiError } from "../api/client";
import type { LiveState } from "../api/live";
import type { TaskDetail } from "../api/schema";
import { Badge, Tag } from "../components/Badge";
import { Copy } from "../components/Copy";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import { Tabs } from "../components/Tabs";
import { useMedia } from "../lib/media";
import { one, type Search } from "../lib/search";
import { useShortcut } from "../lib/shortcuts";
import { duration } from "../lib/time";
import { useStable } from "../lib/useStable";
import { ActionButtons, ResultBar, useActions, useRefusal } from "../task/Actions";
import { ArtifactsView } from "../task/ArtifactsView";
import { ConversationView } from "../task/ConversationView";
import { Facts } from "../task/Facts";
import { LogView } from "../task/LogView";
import type { Cut } from "../task/log";
import { TimelineView, useLineage, useRuns, Why } from "../task/TimelineView";
import { type Live, useArtifacts, useDetail, useFeed, useStory } from "../task/useTask";
import { failing, useWebhooks, WebhooksView } from "../task/WebhooksView";
import "./task.css";

const route = getRouteApi("/tasks/$id");

export function TaskPage() {
  const { id } = route.useParams();
  const detail = useDetail(id);
  if (detail.data) return <Known key={detail.data.id} task={detail.data} gone={isGone(detail.error)} error={detail.error} />;
  if (detail.error) {
    return (
      <Page title="Task" name={id}>
        {isGone(detail.error) ? (
          <EmptyState title="There is no such task">
            It may be purged or past its retention, belong to another tenant, or have another id: {id.slice(0, 100)}
          </EmptyState>
        ) : (
          <ErrorBox error={detail.error} retry={() => detail.refetch()} title="The task cannot be read" />
        )}
      </Page>
    );
  }
  return (
    <Page title="Task" name={id}>
      <p className="muted">Loading…</p>
    </Page>
  );
}

function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.problem.status === 404;
}

const tabs = ["conversation", "timeline", "log", "artifacts", "webhooks"] as const;
type TabName = (typeof tabs)[number];

function Known({ task, gone, error }: { task: TaskDetail; gone: boolean; error: unknown }) {
  const search = route.useSearch() as Search;
  const navigate = useNavigate();
  const hash = Number(/^#?seq-(\d+)$/.exec(location.hash)?.[1] ?? 0);
  const asked = Number(one(search, "seq") ?? (hash || 0));
  const seq = Number.isInteger(asked) && asked > 0 ? Math.min(asked, task.last_seq) : undefined;
  const tab: TabName = tabs.find((t) => t === one(search, "tab")) ?? (seq ? "log" : "conversation");
  const go = (next: { tab?: string; seq?: number }) =>
    navigate({
      to: "/tasks/$id",
      params: { id: task.id },
      search: {
        // Always named: without it, a hash such as #seq-12 leads to the log.
        tab: next.tab,
        seq: next.seq === undefined ? undefined : String(next.seq),
      },
      replace: next.tab === tab,
      hash: "",
    });
  const toSeq = useStable((n: number) => void go({ tab: "log", seq: n }));

  const live = useFeed(task);
  const story = useStory(task, live);
  const artifacts = useArtifacts(task, live);
  const runs = useRuns(task.id);
  const lineage = useLineage(task.id);
  const webhooks = useWebhooks(task);
  const actions = useActions(task);
  const answer = useStable(() => actions.begin("answer"));
  const refused = useRefusal();
  const wide = useMedia("(min-width: 1180px)");
  const narrow = useMedia("(max-width: 720px)");

  const hooks = useMemo(() => webhooks.data?.pages.flatMap((p) => p.webhooks) ?? [], [webhooks.data]);
  const broken = failing(hooks);
  const away = gone || live.feed.log.ended === "deleted";

  useTabKeys(tab, (next) => void go({ tab: next }));
  const last = runs.data?.runs.findLast((r) => r.outcome === "failed" || r.outcome === "rejected" || r.error);

  return (
    <Page
      fixed
      name={`${task.agent} ${task.id.slice(0, 8)}`}
      title={
        <span className="task-title">
          <Badge state={task.state} />
          <span className="task-id">
            {task.task_id === task.id || task.task_id.length > 40
              ? `${task.id.slice(0, 8)}…${task.id.slice(-4)}`
              : task.task_id}
          </span>
          <Copy text={task.id} label="Copy the id" />
          {task.held_at && <Tag tone="warn">held</Tag>}
          {task.cancel_requested_at && task.state === "working" && <Tag tone="warn">cancel requested</Tag>}
          <LiveTag live={live} />
        </span>
      }
      actions={!away && <ActionButtons task={task} begin={actions.begin} />}
    >
      <ResultBar result={actions.result} dismiss={actions.dismiss} />
      {away && (
        <div className="task-banner" role="alert">
          The task was deleted. What is shown here is what the page had read.
        </div>
      )}
      {!away && error !== null && (
        <div className="task-banner">
          <ErrorBox error={error} title="The newest facts cannot be read" />
        </div>
      )}
      <CutLine cuts={live.feed.log.cuts} state={live.state} />
      {(task.state === "failed" || task.state === "rejected") && last?.error && (
        <div className="task-banner" data-tone="bad">
          <span>
            {task.state === "failed" ? "Failed" : "Rejected"} in run {last.run}
            {last.worker_name ? ` on ${last.worker_name.slice(0, 60)}` : ""}: <Why text={last.error} />
          </span>
        </div>
      )}
      {broken > 0 && tab !== "webhooks" && (
        <div className="task-banner" data-tone="bad">
          <span>
            {broken === 1 ? "A webhook of this task is" : `${broken} webhooks of this task are`} not delivered.{" "}
            <button type="button" className="link-button" onClick={() => void go({ tab: "webhooks" })}>
              See why
            </button>
          </span>
        </div>
      )}
      {!wide && (
        <details className="task-facts-closed">
          <summary>Facts: {task.agent.slice(0, 40)}</summary>
          <Facts task={task} events={story.events} />
        </details>
      )}
      <div className="task">
        <div className="task-main">
          <Tabs
            label="What to see of the task"
            value={tab}
            onChange={(next) => void go({ tab: next })}
            tabs={[
              {
                id: "conversation",
                name: narrow ? "Talk" : "Conversation",
                content: (
                  <ConversationView
                    task={task}
                    live={live}
                    story={story}
                    artifacts={artifacts}
                    calls={lineage.data?.calls ?? []}
                    toSeq={toSeq}
                    answer={refused("answer") === "" && !away ? answer : undefined}
                  />
                ),
              },
              {
                id: "timeline",
                name: "Timeline",
                content: <TimelineView task={task} live={live} story={story} runs={runs} lineage={lineage} toSeq={toSeq} />,
              },
              { id: "log", name: "Log", content: <LogView task={task} live={live} seq={seq} onSeq={toSeq} /> },
              {
                id: "artifacts",
                name: (
                  <>
                    Artifacts <Count n={artifacts.list.length} />
                  </>
                ),
                content: <ArtifactsView task={task} live={live} artifacts={artifacts} toSeq={toSeq} />,
              },
              {
                id: "webhooks",
                name: (
                  <>
                    Webhooks <Count n={hooks.length} bad={broken > 0} />
                  </>
                ),
                content: <WebhooksView task={task} webhooks={webhooks} begin={actions.begin} toSeq={toSeq} />,
              },
            ]}
          />
        </div>
        {wide && (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
          <aside className="task-facts" aria-label="Facts" tabIndex={0}>
            <Facts task={task} events={story.events} />
          </aside>
        )}
      </div>
      {actions.dialog}
    </Page>
  );
}

function Count({ n, bad }: { n: number; bad?: boolean }) {
  return n === 0 ? null : (
    <span className="task-count" data-bad={bad || undefined}>
      {n > 499 ? "500+" : n}
    </span>
  );
}

/** useTabKeys binds 1 to 5 to the tabs. */
function useTabKeys(tab: TabName, go: (tab: TabName) => void): void {
  useShortcut("1", "Conversation", "Task", () => go("conversation"));
  useShortcut("2", "Timeline", "Task", () => go("timeline"));
  useShortcut("3", "Log", "Task", () => go("log"));
  useShortcut("4", "Artifacts", "Task", () => go("artifacts"));
  useShortcut("5", "Webhooks", "Task", () => go("webhooks"));
  // biome-ignore lint/correctness/useExhaustiveDependencies: each change of the tab
  useEffect(() => {
    document
      .querySelector<HTMLElement>(`.tabs-tab[aria-selected="true"]`)
      ?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [tab]);
}

const live: Record<LiveState, { text: string; tone: "good" | "warn" | "info" | "neutral" } | undefined> = {
  connecting: { text: "connecting", tone: "neutral" },
  live: { text: "live", tone: "good" },
  cut: { text: "cut off, trying again", tone: "warn" },
  paused: { text: "paused", tone: "neutral" },
  ended: undefined,
};

function LiveTag({ live: now }: { live: Live }) {
  const known = live[now.state];
  return (
    <span role="status" className="task-live" data-live={now.state}>
      {known && <Tag tone={known.tone}>{known.text}</Tag>}
    </span>
  );
}

/** CutLine says that the stream was cut, and that it went on without a gap. */
function CutLine({ cuts, state }: { cuts: readonly Cut[]; state: LiveState }) {
  const cut = cuts.at(-1);
  if (!cut || (cut.resumedAt === undefined && state === "ended")) return null;
  return (
    <div className="task-banner" data-tone={cut.missed ? "bad" : cut.resumedAt === undefined ? "warn" : "good"} role="status">
      {cut.resumedAt === undefined
        ? `The stream was cut after event ${cut.after}. The page asks again and goes on from there.`
        : `The stream was cut after event ${cut.after} and went on ${duration(cut.resumedAt - cut.at)} later. ${missed(cut)}`}
      {cuts.length > 1 && ` It was cut ${cuts.length} times.`}
    </div>
  );
}

function missed(cut: Cut): string {
  if (cut.missed === undefined) return "No event has come since.";
  return cut.missed > 0 ? `${cut.missed} events are missing; reload the page.` : "No event is missing or doubled.";
}
