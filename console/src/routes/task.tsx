import { useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { ApiError } from "../api/client";
import type { LiveState } from "../api/live";
import type { Call, TaskDetail } from "../api/schema";
import { Badge, Tag } from "../components/Badge";
import { Copy, write } from "../components/Copy";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import type { MenuItem } from "../components/Menu";
import { Page } from "../components/Page";
import { Text } from "../components/Panel";
import { StatusLine } from "../components/StatusLine";
import { Tabs } from "../components/Tabs";
import { toast } from "../components/Toast";
import { useMedia } from "../lib/media";
import { one, type Search } from "../lib/search";
import { useShortcut } from "../lib/shortcuts";
import { isFinal } from "../lib/states";
import { line, visible } from "../lib/text";
import { duration } from "../lib/time";
import { useStable } from "../lib/useStable";
import { copyAs, talks, targetOf } from "../talk/copy";
import { about } from "../talk/wire";
import { type Action, ActionButtons, possible, ResultBar, useActions, useRefusal } from "../task/Actions";
import { ArtifactsView } from "../task/ArtifactsView";
import { Compare, type Sides } from "../task/Compare";
import { ConversationView } from "../task/ConversationView";
import { Facts } from "../task/Facts";
import { LogView } from "../task/LogView";
import type { Cut } from "../task/log";
import { Replay } from "../task/Replay";
import { Trail } from "../task/Trail";
import { type Live, useArtifacts, useDetail, useFeed, useLineage, useRuns, useStory } from "../task/useTask";
import { Waterfall } from "../task/Waterfall";
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
          <EmptyState guide="retention" title="There is no such task">
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

const tabs = ["conversation", "timeline", "log", "artifacts", "webhooks", "compare"] as const;
type TabName = (typeof tabs)[number];

const none: readonly Call[] = [];

/** shortId returns the client's id, or the end of a UUID: those of one minute begin alike. */
function shortId(task: TaskDetail): string {
  return task.task_id === task.id || task.task_id.length > 40 ? `…${task.id.slice(-8)}` : visible(task.task_id);
}

function Known({ task, gone, error }: { task: TaskDetail; gone: boolean; error: unknown }) {
  const search = route.useSearch() as Search;
  const navigate = useNavigate();
  const client = useQueryClient();
  const hash = Number(/^#?seq-(\d+)$/.exec(location.hash)?.[1] ?? 0);
  const asked = Number(one(search, "seq") ?? (hash || 0));
  const seq = Number.isInteger(asked) && asked > 0 ? Math.min(asked, task.last_seq) : undefined;
  const tab: TabName = tabs.find((t) => t === one(search, "tab")) ?? (seq ? "log" : "conversation");
  const go = (next: { tab?: string; seq?: number; sides?: Sides }) =>
    navigate({
      to: "/tasks/$id",
      params: { id: task.id },
      search: {
        // Always named: without it, a hash such as #seq-12 leads to the log.
        tab: next.tab,
        seq: next.seq === undefined ? undefined : String(next.seq),
        left: next.sides?.left || undefined,
        right: next.sides?.right || undefined,
      },
      replace: next.tab === tab,
      hash: "",
    });
  const toSeq = useStable((n: number) => void go({ tab: "log", seq: n }));

  const live = useFeed(task);
  const story = useStory(task, live);
  const artifacts = useArtifacts(task, live);
  const runs = useRuns(task.id);
  const calls = useLineage(task.id).data?.calls ?? none;
  const webhooks = useWebhooks(task);
  const actions = useActions(task);
  const answer = useStable(actions.answer);
  const words = task.said ?? "";
  const refused = useRefusal();
  const wide = useMedia("(min-width: 1180px)");

  const hooks = useMemo(() => webhooks.data?.pages.flatMap((p) => p.webhooks) ?? [], [webhooks.data]);
  const broken = failing(hooks);
  const away = gone || live.feed.log.ended === "deleted";

  const begin = (action: Action) => {
    if (action !== "answer") return actions.begin(action);
    // The question has what answers it.
    void Promise.resolve(go({ tab: "conversation" })).then(() =>
      requestAnimationFrame(() =>
        document.querySelector<HTMLElement>(".inline-answer :is(input, select, textarea, button)")?.focus(),
      ),
    );
  };
  const [replays, setReplays] = useState(false);
  const more: MenuItem[] = [
    {
      name: "Replay",
      run: () => {
        setReplays(true);
        void go({ tab: "conversation" });
      },
    },
    {
      name: "Open in Talk",
      run: () => {
        const { agent, owner, tenant } = task;
        void navigate({
          to: "/talk",
          search: { agent, task: task.id, subject: owner || undefined, tenant: tenant || undefined },
        });
      },
    },
    {
      name: "Copy as curl",
      // Only who may act learns how clients call an agent.
      disabled: refused("retry") !== "",
      run: () => void copyRequest(),
    },
    {
      name: "Compare",
      // What most readers want to compare: with its retry, or the last two runs.
      run: () =>
        void go({
          tab: "compare",
          sides: task.retried_as
            ? { left: "", right: task.retried_as }
            : { left: String(Math.max(1, task.runs - 1)), right: String(Math.max(1, task.runs)) },
        }),
    },
  ];

  /** copyRequest copies the request GetTask of A2A as a command. */
  const copyRequest = async () => {
    try {
      const request = about({ version: "1.0", binding: "rest" }, "get", task.task_id);
      await write(copyAs("curl", request, targetOf(await client.fetchQuery(talks), task.agent)));
      toast("Copied as curl");
    } catch (error) {
      toast("Not copied", visible(error instanceof Error ? error.message : String(error)));
    }
  };

  useTabKeys(tab, (next) => void go({ tab: next }));
  const last = runs.data?.runs.findLast((r) => r.outcome === "failed" || r.outcome === "rejected" || r.error);
  const failure = task.state === "failed" || task.state === "rejected" ? last?.error : undefined;

  return (
    <Page
      fixed
      name={`${task.agent}${words ? ` · ${line(words, 40)}` : ` ${shortId(task)}`}`}
      crumbs={
        <Trail
          id={task.id}
          onRetry={
            !away && refused("retry") === "" && possible(task).includes("retry") ? () => actions.begin("retry") : undefined
          }
        />
      }
      title={
        <span className="task-title">
          <Badge state={task.state} />
          <span className="task-name" dir="auto">
            {line(task.agent, 60)}
            {words && ` · “${line(words, 80)}”`}
          </span>
          {isFinal(task.state) && (
            <span className="task-id">{duration(Date.parse(task.status_at) - Date.parse(task.created_at))}</span>
          )}
          <span className="task-id">{shortId(task)}</span>
          <Copy text={task.id} label="Copy the id" />
          {task.held_at && <Tag tone="warn">held</Tag>}
          {task.cancel_requested_at && task.state === "working" && <Tag tone="warn">cancel requested</Tag>}
          <LiveTag live={live} />
        </span>
      }
      actions={!away && <ActionButtons task={task} begin={begin} more={more} />}
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
      {!away && (
        <div className="task-status">
          <StatusLine task={task} />
        </div>
      )}
      <CutLine cuts={live.feed.log.cuts} state={live.state} />
      {failure && last && (
        <div className="task-banner" data-tone="bad">
          {task.state === "failed" ? "Failed" : "Rejected"} in run {last.run}
          {last.worker_name ? ` on ${line(last.worker_name, 60)}` : ""}: <Text>{failure}</Text>
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
          <Facts task={task} events={story.events} artifacts={artifacts.list} />
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
                name: "Conversation",
                content: replays ? (
                  <Replay task={task} close={() => setReplays(false)}>
                    {(now) => <ConversationView {...now} calls={calls} toSeq={toSeq} />}
                  </Replay>
                ) : (
                  <ConversationView
                    task={task}
                    live={live}
                    story={story}
                    artifacts={artifacts}
                    calls={calls}
                    error={failure}
                    toSeq={toSeq}
                    answer={refused("answer") === "" && !away ? answer : undefined}
                  />
                ),
              },
              {
                id: "timeline",
                name: "Timeline",
                content: (
                  <Waterfall
                    task={task}
                    live={live}
                    story={story}
                    artifacts={artifacts.list}
                    webhooks={webhooks}
                    error={failure}
                    toSeq={toSeq}
                  />
                ),
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
              ...(tab === "compare"
                ? [
                    {
                      id: "compare",
                      name: "Compare",
                      content: (
                        <Compare
                          task={task}
                          sides={{ left: one(search, "left") ?? "", right: one(search, "right") ?? "" }}
                          choose={(sides) => void go({ tab: "compare", sides })}
                        />
                      ),
                    },
                  ]
                : []),
            ]}
          />
        </div>
        {wide && (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it
          <aside className="task-facts" aria-label="Facts" tabIndex={0}>
            <Facts task={task} events={story.events} artifacts={artifacts.list} />
          </aside>
        )}
      </div>
      {actions.dialog}
    </Page>
  );
}

function Count({ n, bad }: { n: number; bad?: boolean }) {
  return n === 0 ? null : <Tag tone={bad ? "bad" : "neutral"}>{n > 499 ? "500+" : n}</Tag>;
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
