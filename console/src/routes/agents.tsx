import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { get } from "../api/client";
import type { Agent, AgentStats, Stats } from "../api/schema";
import { Tag } from "../components/Badge";
import { Chart } from "../components/Chart";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import { Choice } from "../components/Panel";
import { Since } from "../components/Time";
import { count, percent, rate } from "../lib/amounts";
import { refresh } from "../lib/refresh";
import { one } from "../lib/search";
import { failuresOf, summarise, timesOf, type Window, windowOf, windowSeconds, windows } from "../lib/stats";
import { visible } from "../lib/text";
import { duration } from "../lib/time";
import "./agents.css";

export function useAgents() {
  return useQuery({ queryKey: ["agents"], queryFn: ({ signal }) => get("/agents", { signal }), refetchInterval: refresh.soon });
}

export function useStats(window: Window, agent?: string) {
  return useQuery({
    queryKey: ["stats", window, agent],
    queryFn: ({ signal }) => get("/stats", { query: { window, agent }, signal }),
    refetchInterval: window === "1h" ? refresh.soon : window === "7d" ? refresh.seldom : refresh.later,
    placeholderData: keepPreviousData,
  });
}

/** Spans chooses how far back charts go. */
export function Spans({ value, onChange }: { value: Window; onChange: (value: Window) => void }) {
  return <Choice label="Span of the charts" values={windows.map((w) => [w, w] as const)} value={value} onChange={onChange} />;
}

export function AgentsPage() {
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const window = windowOf(one(search, "window"));
  const agents = useAgents();
  const stats = useStats(window);
  const all = agents.data?.agents ?? [];
  return (
    <Page
      title="Agents"
      actions={
        <Spans
          value={window}
          onChange={(next) => navigate({ to: "/agents", search: { ...search, window: next }, replace: true })}
        />
      }
    >
      {agents.error && <ErrorBox error={agents.error} retry={() => agents.refetch()} />}
      {stats.error && <ErrorBox error={stats.error} retry={() => stats.refetch()} title="The charts could not be read" />}
      {agents.data && all.length === 0 && (
        <EmptyState
          guide="agents"
          title="No agent is configured"
          command={"agents:\n  - name: hello\n    default: true\n    executor: {kind: worker}"}
        >
          An agent answers messages. Put one into the configuration and start the server again; its worker then connects by
          itself.
        </EmptyState>
      )}
      <ul className="agents">
        {all.map((agent) => (
          <li key={agent.name}>
            <Card
              agent={agent}
              stats={stats.data}
              row={stats.data?.agents.find((r) => r.agent === agent.name)}
              window={window}
            />
          </li>
        ))}
      </ul>
    </Page>
  );
}

function Card({ agent, stats, row, window }: { agent: Agent; stats?: Stats; row?: AgentStats; window: Window }) {
  const sum = useMemo(() => (row ? summarise(row) : undefined), [row]);
  const times = useMemo(() => (stats ? timesOf(stats) : []), [stats]);
  const failed = useMemo(() => (row ? failuresOf(row) : []), [row]);
  const seconds = windowSeconds[window];
  return (
    <article className="agent">
      <header className="agent-head">
        <h2 className="truncate">
          <Link to="/agents/$name" params={{ name: agent.name }} search={{ window }} className="agent-link">
            {agent.name}
          </Link>
        </h2>
        <span className="agent-tags">
          <Health agent={agent} />
          <Tag>{agent.kind}</Tag>
          {agent.default && <Tag tone="info">default</Tag>}
          <Signature agent={agent} />
        </span>
      </header>
      {agent.health !== "healthy" && agent.health !== "unknown" && (
        <p className="agent-away">
          {agent.health_since && (
            <span>
              {agent.health} for <Since at={agent.health_since} />:
            </span>
          )}{" "}
          {visible(agent.health_reason ?? "")}
        </p>
      )}
      <p className="agent-links">
        <Link to="/talk" search={{ agent: agent.name }}>
          Talk
        </Link>
        <Link to="/tasks" search={{ agent: agent.name }}>
          Recent tasks
        </Link>
        {sum !== undefined && sum.failed > 0 && (
          <Link to="/tasks" search={{ agent: agent.name, state: ["failed", "rejected"], since: window }}>
            Failures
          </Link>
        )}
      </p>
      {agent.description && <p className="agent-says muted">{visible(agent.description)}</p>}
      <dl className="agent-queue">
        {agent.queue && (
          <>
            <Amount
              name="waiting"
              value={count(agent.queue.waiting)}
              tone={agent.queue.oldest_seconds > 60 ? "warn" : undefined}
            />
            <Amount name="running" value={agent.concurrency ? `${agent.queue.running}` : count(agent.queue.running)} />
            <Amount name="parked" value={count(agent.queue.parked ?? 0)} />
            {agent.queue.oldest_seconds >= 1 && (
              <Amount name="oldest waits" value={duration(agent.queue.oldest_seconds * 1000)} />
            )}
          </>
        )}
        {agent.workers !== undefined && (
          <Amount name="workers" value={count(agent.workers)} tone={agent.workers === 0 ? "bad" : undefined} />
        )}
      </dl>
      {sum && row && (
        <div className="agent-charts">
          <Small name="Ended" value={rate(sum.ended, seconds)}>
            <Chart
              small
              label={`Tasks of ${agent.name} that ended: ${count(sum.ended)} in ${window}`}
              times={times}
              series={[{ name: "ended", colour: "--accent", values: row.ended, bars: true }]}
            />
          </Small>
          <Small name="Run, p95" value={sum.p95 === undefined ? "–" : duration(sum.p95 * 1000)}>
            <Chart
              small
              unit="seconds"
              label={`Duration of runs of ${agent.name}, 95th percentile: ${sum.p95 === undefined ? "nothing ran" : duration(sum.p95 * 1000)}`}
              times={times}
              series={[{ name: "p95", colour: "--state-auth-required", values: row.run_p95 ?? [], fill: true }]}
            />
          </Small>
          <Small name="Failed" value={percent(sum.failed, sum.ended)} tone={sum.failed > 0 ? "bad" : undefined}>
            <Chart
              small
              label={`Tasks of ${agent.name} that failed: ${count(sum.failed)} of ${count(sum.ended)}`}
              times={times}
              series={[{ name: "failed", colour: "--state-failed", values: failed, bars: true }]}
            />
          </Small>
        </div>
      )}
    </article>
  );
}

function Amount({ name, value, tone }: { name: string; value: string; tone?: "warn" | "bad" }) {
  return (
    <div data-tone={tone}>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function Small({ name, value, tone, children }: { name: string; value: string; tone?: "bad"; children: React.ReactNode }) {
  return (
    <div className="agent-chart">
      <div className="agent-chart-head" data-tone={tone}>
        <span className="muted">{name}</span>
        <b>{value}</b>
      </div>
      {children}
    </div>
  );
}

const tones: Record<Agent["health"], "good" | "warn" | "bad" | "neutral"> = {
  healthy: "good",
  unknown: "neutral",
  draining: "warn",
  failing: "bad",
  away: "bad",
  "no worker": "bad",
};

/** Health says whether runs of an agent begin and end well. */
export function Health({ agent }: { agent: Agent }) {
  return (
    <span title={agent.health_reason && visible(agent.health_reason)}>
      <Tag tone={tones[agent.health]}>{agent.health}</Tag>
    </span>
  );
}

/** Signature says whether clients can verify the card. */
export function Signature({ agent }: { agent: Agent }) {
  switch (agent.signature?.status) {
    case "verified":
      return <Tag tone="good">card signed</Tag>;
    case "invalid":
      return <Tag tone="bad">signature invalid</Tag>;
    case "unsigned":
      return <Tag>card unsigned</Tag>;
    default:
      return null;
  }
}
