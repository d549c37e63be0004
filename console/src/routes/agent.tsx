import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { ApiError, get, post } from "../api/client";
import type { AgentDetail, FailureGroup, Worker } from "../api/schema";
import { Badge, Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { Chart } from "../components/Chart";
import { Confirm } from "../components/Confirm";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { GuideLink } from "../components/GuideLink";
import { JsonView } from "../components/JsonView";
import { Page } from "../components/Page";
import { Facts, List, Panel, Text, type Tile, Tiles } from "../components/Panel";
import { Tabs } from "../components/Tabs";
import { Since, Time } from "../components/Time";
import { toast } from "../components/Toast";
import { useActRefusal, useMe } from "../layout/me";
import { count, money, percent, plural, rate, short } from "../lib/amounts";
import { over, usedBy } from "../lib/home";
import { refresh } from "../lib/refresh";
import { one, type Search } from "../lib/search";
import { failuresOf, summarise, timesOf, type Window, windowOf, windowSeconds } from "../lib/stats";
import { visible } from "../lib/text";
import { duration } from "../lib/time";
import { Health, Signature, Spans, useStats } from "./agents";

const route = getRouteApi("/agents/$name");

export function AgentPage() {
  const { name } = route.useParams();
  const search = route.useSearch() as Search;
  const navigate = useNavigate();
  const window = windowOf(one(search, "window"));
  const tab = one(search, "tab") ?? "overview";
  const to = (next: Search) =>
    navigate({ to: "/agents/$name", params: { name }, search: { ...search, ...next }, replace: true });
  const agent = useQuery({
    queryKey: ["agent", name],
    queryFn: ({ signal }) => get("/agents/{name}", { path: { name }, signal }),
    refetchInterval: refresh.soon,
  });
  const { data: me } = useMe();
  const workers = agent.data?.kind === "worker" && me?.all_tenants;
  return (
    <Page
      name={name}
      title={
        <span className="agent-title">
          <span>
            <Link to="/agents" search={{ window }}>
              Agents
            </Link>{" "}
            / {visible(name)}
          </span>
          {agent.data && (
            <>
              <Health agent={agent.data} />
              <Tag>{agent.data.kind}</Tag>
              {agent.data.default && <Tag tone="info">default</Tag>}
            </>
          )}
        </span>
      }
      actions={
        <>
          <Spans value={window} onChange={(next) => to({ window: next })} />
          <Link to="/talk" search={{ agent: name }} className="button button-primary">
            Talk
          </Link>
        </>
      }
    >
      {agent.error && (
        <ErrorBox
          error={agent.error}
          retry={() => agent.refetch()}
          title={isUnknown(agent.error) ? "There is no such agent" : undefined}
        />
      )}
      {agent.isPending && <p className="muted">Loading…</p>}
      {agent.data && (
        <>
          {agent.data.health !== "healthy" && agent.data.health !== "unknown" && <Sick agent={agent.data} />}
          <Tabs
            label="About the agent"
            value={tab}
            onChange={(next) => to({ tab: next })}
            tabs={[
              { id: "overview", name: "Overview", content: <Overview agent={agent.data} window={window} /> },
              { id: "failures", name: "Failures", content: <Failures name={name} window={window} /> },
              ...(workers ? [{ id: "workers", name: "Workers", content: <Workers name={name} /> }] : []),
              { id: "card", name: "Card", content: <CardOf agent={agent.data} /> },
            ]}
          />
        </>
      )}
    </Page>
  );
}

function isUnknown(error: unknown): boolean {
  return error instanceof ApiError && error.problem.reason === "not_found";
}

/** advice says what brings an agent of this kind back. */
function adviceFor(kind: string): string {
  switch (kind) {
    case "worker":
      return "Start a worker of this agent, and look at its log.";
    case "http":
      return "Check that the agent's process runs at the URL of executor.http, and that this server can reach it.";
    case "command":
      return "Check that the program of executor.command exists on every replica, and that it may run.";
    case "a2a":
      return "Check that the other A2A server runs at the URL of executor.a2a, and that its credential is valid.";
    case "openai":
      return "Check the key and the quota of the model's API.";
    default:
      return "Look at the server's log.";
  }
}

/** Sick says why runs of an agent do not begin, or do not end well. */
function Sick({ agent }: { agent: AgentDetail }) {
  return (
    <div className="notice" role="status">
      <strong>
        {agent.health.charAt(0).toUpperCase() + agent.health.slice(1)}
        {agent.health_since && (
          <>
            {" "}
            for <Since at={agent.health_since} />
          </>
        )}
      </strong>
      {agent.health_reason && <Text>{agent.health_reason}</Text>}
      <span className="muted">
        {agent.health === "failing"
          ? "See the reasons at Failures."
          : `Its tasks wait, and begin by themselves. ${adviceFor(agent.kind)}`}
      </span>
      <GuideLink guide="stuck" />
    </div>
  );
}

function Overview({ agent, window }: { agent: AgentDetail; window: Window }) {
  const stats = useStats(window, agent.name);
  const row = stats.data?.agents[0];
  const sum = useMemo(() => (row ? summarise(row) : undefined), [row]);
  const times = useMemo(() => (stats.data ? timesOf(stats.data) : []), [stats.data]);
  const failed = useMemo(() => (row ? failuresOf(row) : []), [row]);
  const { data: me } = useMe();
  const newest = useQuery({
    queryKey: ["tasks", "agent", agent.name],
    queryFn: ({ signal }) => get("/tasks", { query: { agent: [agent.name], limit: 100 }, signal }),
    refetchInterval: refresh.seldom,
  });
  const used = usedBy(newest.data?.tasks ?? [])[0];
  const tiles: Tile[] = [];
  const q = agent.queue;
  if (q) {
    tiles.push(
      {
        name: "Waiting",
        value: count(q.waiting),
        note: q.oldest_seconds >= 1 ? `oldest: ${duration(q.oldest_seconds * 1000)}` : "nothing is late",
        tone: q.oldest_seconds > 60 ? "warn" : undefined,
        search: { agent: agent.name, state: ["submitted"] },
      },
      {
        name: "Running",
        value: count(q.running),
        note: agent.concurrency ? `${agent.concurrency} at a time per replica` : "as many as its workers take",
        search: { agent: agent.name, state: ["working"] },
      },
      {
        name: "Parked",
        value: count(q.parked ?? 0),
        note: "wait for their client",
        search: { agent: agent.name, state: ["input-required", "auth-required"] },
      },
      { name: "Timers and calls", value: count((q.timers ?? 0) + (q.calls ?? 0)), note: "go on by themselves" },
    );
  }
  if (sum) {
    tiles.push(
      {
        name: `Ended, ${window}`,
        value: count(sum.ended),
        note: rate(sum.ended, windowSeconds[window]),
        search: { agent: agent.name, state: ["completed", "failed", "canceled", "rejected"], since: window },
      },
      {
        name: "Failed",
        value: percent(sum.failed, sum.ended),
        note: plural(sum.failed, "task"),
        tone: sum.failed > 0 ? "bad" : undefined,
        search: { agent: agent.name, state: ["failed", "rejected"], since: window },
      },
      {
        name: "Run, median",
        value: sum.p50 === undefined ? "–" : duration(sum.p50 * 1000),
        note: sum.p95 === undefined ? "nothing ran" : `95%: ${duration(sum.p95 * 1000)}`,
        search: sum.p95 === undefined ? undefined : { agent: agent.name, duration: `>${over(sum.p95)}`, since: window },
      },
    );
  }
  if (used) {
    tiles.push({
      name: "Tokens",
      value: short(used.tokens),
      note: `${used.cost > 0 ? `${money(used.cost, me?.currency)} ` : ""}of ${plural(used.tasks, "task")} among its newest 100`,
    });
  }
  return (
    <div className="panels-stack">
      <Tiles tiles={tiles} />
      {stats.error && <ErrorBox error={stats.error} retry={() => stats.refetch()} title="The charts could not be read" />}
      {sum?.ended === 0 && (
        <EmptyState
          title="No task has ended in this span"
          command={`holdfast send --agent '${agent.name.replaceAll("'", "")}' hello`}
        >
          Send the agent a message, or choose a longer span.
        </EmptyState>
      )}
      {row && sum && sum.ended > 0 && (
        <>
          {row.counted_since && (
            <p className="muted">
              So many tasks have ended that only those since <Time at={row.counted_since} /> are counted.
            </p>
          )}
          <div className="panels agent-panels">
            <Panel title="Throughput" note="tasks that ended">
              <Chart
                label={`Tasks that ended: ${count(sum.ended)} in ${window}`}
                times={times}
                sync="agent"
                series={[{ name: "ended", colour: "--accent", values: row.ended, bars: true }]}
              />
            </Panel>
            <Panel title="Failures" note="failed or rejected">
              <Chart
                label={`Tasks that failed or were rejected: ${count(sum.failed)} of ${count(sum.ended)}`}
                times={times}
                sync="agent"
                series={[{ name: "failed", colour: "--state-failed", values: failed, bars: true }]}
              />
            </Panel>
            <Panel title="Duration of runs" note="of the last run of each task">
              <Chart
                label={`Duration of runs: median ${sum.p50 === undefined ? "unknown" : duration(sum.p50 * 1000)}, 95th percentile ${sum.p95 === undefined ? "unknown" : duration(sum.p95 * 1000)}`}
                times={times}
                unit="seconds"
                sync="agent"
                series={[
                  { name: "p95", colour: "--state-auth-required", values: row.run_p95 ?? [], fill: true },
                  { name: "median", colour: "--state-completed", values: row.run_p50 ?? [] },
                ]}
              />
            </Panel>
            <Panel title="From creation to end" note="with the time in the queue and parked">
              <Chart
                label="Time from the creation of tasks to their end, median and 95th percentile"
                times={times}
                unit="seconds"
                sync="agent"
                series={[
                  { name: "p95", colour: "--state-auth-required", values: row.took_p95 ?? [], fill: true },
                  { name: "median", colour: "--state-completed", values: row.took_p50 ?? [] },
                ]}
              />
            </Panel>
          </div>
          {sum.failed > 0 && <Failures name={agent.name} window={window} most={3} />}
        </>
      )}
    </div>
  );
}

function Failures({ name, window, most }: { name: string; window: Window; most?: number }) {
  const failures = useQuery({
    queryKey: ["failures", name, window],
    queryFn: ({ signal }) => get("/agents/{name}/failures", { path: { name }, query: { window }, signal }),
    refetchInterval: refresh.later,
    placeholderData: keepPreviousData,
  });
  if (failures.error) return <ErrorBox error={failures.error} retry={() => failures.refetch()} />;
  if (!failures.data) return <p className="muted">Loading…</p>;
  if (failures.data.groups.length === 0) {
    return (
      <EmptyState title={`Nothing failed in the last ${window}`}>
        Failed tasks appear here, grouped by their reason: the cause that the agent gave, which clients do not read.
      </EmptyState>
    );
  }
  return (
    <Panel
      title="Why tasks failed"
      note={
        <>
          {failures.data.more && "the newest "}
          {plural(failures.data.tasks, "task")} since <Time at={failures.data.since} />
        </>
      }
      actions={
        <Link to="/tasks" search={{ agent: name, state: ["failed", "rejected"] }} className="button button-plain">
          Show all of them
        </Link>
      }
    >
      <List<FailureGroup>
        label="Reasons of failures"
        rows={failures.data.groups.slice(0, most)}
        id={(g) => g.state + g.reason}
        fields={[
          { name: "Tasks", end: true, cell: (g) => <b>{count(g.tasks)}</b> },
          { name: "State", cell: (g) => <Badge state={g.state} /> },
          {
            name: "Reason",
            wrap: true,
            cell: (g) => (g.reason ? <Text>{g.reason}</Text> : <span className="muted">none given</span>),
          },
          { name: "Latest", cell: (g) => <Time at={g.last_at} /> },
          {
            name: "Newest tasks",
            cell: (g) => (
              <span className="failure-examples">
                {g.examples.map((e) => (
                  <Link key={e.id} to="/tasks/$id" params={{ id: e.id }} className="mono">
                    …{e.id.slice(-8)}
                  </Link>
                ))}
              </span>
            ),
          },
          {
            name: "Group",
            cell: (g) => (
              <Link to="/tasks" search={{ agent: name, state: [g.state], reason: g.reason }}>
                Show the tasks
              </Link>
            ),
          },
        ]}
      />
    </Panel>
  );
}

export function useWorkers(agent?: string, connected?: boolean) {
  return useQuery({
    queryKey: ["workers", agent, connected],
    queryFn: ({ signal }) => get("/workers", { query: { agent, connected, limit: 200 }, signal }),
    refetchInterval: refresh.soon,
  });
}

function Workers({ name }: { name: string }) {
  const workers = useWorkers(name);
  if (workers.error) return <ErrorBox error={workers.error} retry={() => workers.refetch()} />;
  if (!workers.data) return <p className="muted">Loading…</p>;
  if (workers.data.workers.length === 0) {
    return (
      <EmptyState
        guide="workers"
        title="No worker has connected"
        command="pip install holdfast-agent   # or npm install @holdfast-a2a/agent"
      >
        This agent runs in processes of its own, which connect to any replica. Start one with the SDK for Python, TypeScript or
        Go, and the name <code>{visible(name)}</code>.
      </EmptyState>
    );
  }
  return (
    <Panel title="Workers" note="those that were seen last first">
      <WorkerList workers={workers.data.workers} />
    </Panel>
  );
}

/** Cut shows what a worker says of itself, which may be long. */
function Cut({ text }: { text: string }) {
  return text ? (
    <span className="cut" title={visible(text)}>
      {visible(text)}
    </span>
  ) : (
    <span className="muted">–</span>
  );
}

/** WorkerList shows workers, and retires them. */
export function WorkerList({ workers, agents }: { workers: Worker[]; agents?: boolean }) {
  const [retiring, setRetiring] = useState<Worker | undefined>();
  const refusal = useActRefusal();
  const client = useQueryClient();
  return (
    <>
      <List<Worker>
        label="Workers"
        rows={workers}
        id={(w) => w.id}
        fields={[
          { name: "Worker", cell: (w) => <Cut text={w.name || w.id} /> },
          {
            name: "State",
            cell: (w) => (
              <Tag tone={w.state === "connected" ? "good" : w.state === "retired" ? "warn" : "neutral"}>{w.state}</Tag>
            ),
          },
          { name: "Runs", end: true, cell: (w) => count(w.running) },
          { name: "Version", cell: (w) => <Cut text={w.version} /> },
          { name: "SDK", cell: (w) => <Cut text={w.sdk} /> },
          ...(agents ? [{ name: "Agents", cell: (w: Worker) => <Cut text={w.agents.join(", ")} /> }] : []),
          { name: "Replica", cell: (w) => w.replica },
          { name: "Seen", cell: (w) => <Time at={w.last_seen} /> },
          {
            name: <span className="visually-hidden">Actions</span>,
            end: true,
            cell: (w) =>
              w.state === "connected" && (
                <Button onClick={() => setRetiring(w)} disabled={refusal !== ""} title={refusal || undefined}>
                  Retire
                </Button>
              ),
          },
        ]}
      />
      <Confirm
        open={retiring !== undefined}
        onClose={() => setRetiring(undefined)}
        title={`Retire ${visible(retiring?.name || retiring?.id || "")}?`}
        verb="Retire the worker"
        act={async (reason) => {
          await post("/workers/{id}/retire", { path: { id: retiring?.id ?? "" }, body: { reason } });
          toast("The worker is retired", "It finishes its runs and exits.");
          await client.invalidateQueries({ queryKey: ["workers"] });
        }}
      >
        <p>
          It claims no more, finishes {retiring?.running ? `its ${plural(retiring.running, "run")}` : "what it runs"}, and
          exits. This cannot be undone; a worker that starts later is not retired.
        </p>
      </Confirm>
    </>
  );
}

interface Skill {
  id?: unknown;
  name?: unknown;
  description?: unknown;
}

const word = (v: unknown) => (typeof v === "string" ? v : "");

function CardOf({ agent }: { agent: AgentDetail }) {
  const card = agent.card as Record<string, unknown> | undefined;
  if (!card) {
    return (
      <EmptyState title="This process serves no cards">
        It has not the role api. Open the console at a replica that has it.
      </EmptyState>
    );
  }
  const skills = Array.isArray(card.skills) ? (card.skills as Skill[]) : [];
  const s = agent.signature;
  return (
    <div className="panels-stack">
      <div className="panels">
        <Panel title="What clients read" actions={<Signature agent={agent} />}>
          <Facts
            facts={[
              ["Name", word(card.name)],
              ["Description", word(card.description)],
              ["Version", word(card.version)],
              ["URL", <code key="url">{visible(word(card.url))}</code>],
              ...(s?.key_id
                ? ([["Signed by", <code key="key">{`${s.algorithm ?? ""} ${s.key_id}`}</code>]] as [string, React.ReactNode][])
                : []),
              ...(s?.detail
                ? ([[s.status === "unsigned" ? "Unsigned because" : "Signature", s.detail]] as [string, React.ReactNode][])
                : []),
            ]}
          />
        </Panel>
        <Panel title="Skills" note={plural(skills.length, "skill")}>
          <ul className="skills">
            {skills.map((skill, i) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a card may repeat an id
              <li key={i}>
                <h3>{visible(word(skill.name) || word(skill.id))}</h3>
                <p className="muted">{visible(word(skill.description))}</p>
              </li>
            ))}
          </ul>
        </Panel>
      </div>
      <Panel title="The whole card">
        <JsonView value={card} />
      </Panel>
    </div>
  );
}
