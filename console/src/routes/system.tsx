import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { get } from "../api/client";
import type { Database, Findings, Limits, Partition, Replica, Step } from "../api/schema";
import { Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import { Facts, List, Meter, Panel, Text, Tiles } from "../components/Panel";
import { Tabs } from "../components/Tabs";
import { Time } from "../components/Time";
import { Needs, Whole } from "../components/Whole";
import { useMe } from "../layout/me";
import { count, days, plural } from "../lib/amounts";
import { refresh } from "../lib/refresh";
import { one, type Search } from "../lib/search";
import { families, periodsOf } from "../lib/storage";
import { size, visible } from "../lib/text";
import { duration } from "../lib/time";
import { useWorkers, WorkerList } from "./agent";
import "./system.css";

export function SystemPage() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const tab = one(search, "tab") ?? "replicas";
  return (
    <Page title="System">
      <Whole>
        <Tabs
          label="About the system"
          value={tab}
          onChange={(next) => navigate({ to: "/system", search: { ...search, tab: next }, replace: true })}
          tabs={[
            { id: "replicas", name: "Replicas", content: <Replicas /> },
            { id: "storage", name: "Storage", content: <Storage /> },
            { id: "limits", name: "Limits", content: <LimitsOf /> },
            { id: "doctor", name: "Doctor", content: <Doctor /> },
          ]}
        />
      </Whole>
    </Page>
  );
}

function Replicas() {
  const replicas = useQuery({
    queryKey: ["replicas"],
    queryFn: ({ signal }) => get("/replicas", { signal }),
    refetchInterval: refresh.soon,
  });
  const workers = useWorkers();
  const data = replicas.data;
  const versions = new Set(data?.replicas.filter((r) => r.alive).map((r) => r.version));
  const idle = data?.duties.filter((d) => !d.held) ?? [];
  return (
    <div className="panels-stack">
      {replicas.error && <ErrorBox error={replicas.error} retry={() => replicas.refetch()} />}
      {data && (
        <>
          {versions.size > 1 && (
            <div className="notice" role="status">
              <strong>Replicas run {versions.size} versions</strong>
              <span className="muted">That is right during a rollout. Afterwards, end those of the older version.</span>
            </div>
          )}
          <Panel title="Replicas" note={plural(data.replicas.length, "process", "processes")}>
            <List<Replica>
              label="Replicas"
              rows={data.replicas}
              id={(r) => r.id}
              fields={[
                {
                  name: "Process",
                  cell: (r) => (
                    <span title={r.id}>
                      {r.name} {r.this && <Tag tone="info">answers you</Tag>}
                    </span>
                  ),
                },
                { name: "Lease", cell: (r) => (r.alive ? <Tag tone="good">alive</Tag> : <Tag tone="bad">expired</Tag>) },
                { name: "Until", cell: (r) => <Time at={r.lease_until} /> },
                { name: "Runs", end: true, cell: (r) => count(r.running) },
                { name: "Version", cell: (r) => r.version },
                { name: "Roles", cell: (r) => r.roles },
                { name: "Started", cell: (r) => <Time at={r.started_at} /> },
              ]}
            />
          </Panel>
          {idle.length > 0 && (
            <div className="notice" role="status">
              <strong>Nobody does {idle.map((d) => d.name).join(", ")}</strong>
              <span className="muted">
                One replica at a time does each of these duties for all, and another takes it over within seconds. If none does,
                look at the server's log.
              </span>
            </div>
          )}
        </>
      )}
      {workers.data && workers.data.workers.length > 0 && (
        <Panel title="Workers" note="processes of agents that connect to replicas">
          <WorkerList workers={workers.data.workers} agents />
        </Panel>
      )}
    </div>
  );
}

function Storage() {
  const database = useQuery({
    queryKey: ["database"],
    queryFn: ({ signal }) => get("/database", { signal }),
    refetchInterval: refresh.later,
  });
  const partitions = useQuery({
    queryKey: ["partitions"],
    queryFn: ({ signal }) => get("/partitions", { signal }),
    refetchInterval: refresh.later,
  });
  const plan = useQuery({
    queryKey: ["plan"],
    queryFn: ({ signal }) => get("/retention/plan", { signal }),
    refetchInterval: refresh.seldom,
  });
  return (
    <div className="panels-stack">
      {database.error && <ErrorBox error={database.error} retry={() => database.refetch()} />}
      {database.data && <Size database={database.data} />}
      {partitions.error && <ErrorBox error={partitions.error} retry={() => partitions.refetch()} />}
      {partitions.data && <Partitions partitions={partitions.data.partitions} />}
      {plan.error && <ErrorBox error={plan.error} retry={() => plan.refetch()} />}
      {plan.data && <Plan steps={plan.data.steps} />}
    </div>
  );
}

const groupNames: Record<string, string> = {
  tasks: "Tasks",
  logs: "Logs",
  artifacts: "Artifacts",
  queue: "Queue and calls",
  webhooks: "Webhooks",
  audit: "Audit log",
  idempotency_keys: "Idempotency keys",
  others: "Others",
};

function Size({ database: d }: { database: Database }) {
  const total = d.groups.reduce((sum, g) => sum + g.bytes, 0);
  const growth = d.growth;
  const runway = growth?.runway_days;
  return (
    <>
      <Tiles
        tiles={[
          { name: "Database", value: size(d.bytes), note: `PostgreSQL ${d.version.split(" ")[0]}` },
          {
            name: "Growth",
            value: growth ? `${size(growth.bytes_per_day)}/day` : "–",
            note: growth ? (
              <>
                kept since <Time at={growth.since} />
              </>
            ) : (
              "known after an hour of history"
            ),
          },
          d.disk
            ? {
                name: "Disk free",
                value: size(d.disk.free_bytes),
                note: `of ${size(d.disk.size_bytes)}`,
                tone:
                  d.disk.free_bytes < 1e9
                    ? ("bad" as const)
                    : d.disk.free_bytes < d.disk.size_bytes / 10
                      ? ("warn" as const)
                      : undefined,
              }
            : { name: "Disk free", value: "not known", note: "PostgreSQL does not tell clients" },
          {
            name: "Runway",
            value: runway === undefined ? "–" : days(runway),
            note: runway === undefined ? "needs the growth and the free space" : "if nothing is deleted",
            tone:
              runway === undefined ? undefined : runway < 7 ? ("bad" as const) : runway < 30 ? ("warn" as const) : undefined,
          },
          {
            name: "Next drop",
            value: d.next_drop ? <Time at={d.next_drop.at} /> : "never",
            note: d.next_drop
              ? `${size(d.next_drop.bytes)} of ${families[d.next_drop.what] ?? d.next_drop.what}`
              : "retention keeps everything",
          },
          {
            name: "Connections",
            value: `${d.connections} of ${d.max_connections}`,
            note: "of all clients of this PostgreSQL",
            tone:
              d.connections > d.max_connections * 0.9 ? "bad" : d.connections > d.max_connections * 0.75 ? "warn" : undefined,
          },
        ]}
      />
      <Panel
        title="What takes the space"
        note={
          d.oldest_task ? (
            <>
              the oldest task: <Time at={d.oldest_task} />
            </>
          ) : (
            "there is no task yet"
          )
        }
      >
        <div className="storage-bar" aria-hidden="true">
          {d.groups.map((g, i) => (
            <div key={g.what} data-place={i} style={{ width: `${total > 0 ? (g.bytes / total) * 100 : 0}%` }} />
          ))}
        </div>
        <ul className="storage-legend">
          {d.groups.map((g, i) => (
            <li key={g.what}>
              <span className="storage-dot" data-place={i} aria-hidden="true" />
              {groupNames[g.what] ?? g.what} <b>{size(g.bytes)}</b>
            </li>
          ))}
        </ul>
      </Panel>
    </>
  );
}

function Partitions({ partitions }: { partitions: Partition[] }) {
  const periods = useMemo(() => periodsOf(partitions, Date.now()), [partitions]);
  return (
    <Panel title="Partitions" note="retention drops whole ones; tables of one period together">
      <List
        label="Partitions"
        rows={periods}
        id={(p) => p.family + p.from}
        fields={[
          { name: "What", cell: (p) => families[p.family] ?? p.family },
          {
            name: "From",
            cell: (p) => (
              <span>
                <Time at={p.from} /> {p.current && <Tag tone="info">now</Tag>}
                {p.ahead && <Tag>ahead</Tag>}
              </span>
            ),
          },
          { name: "To", cell: (p) => <Time at={p.to} /> },
          { name: "Size", end: true, cell: (p) => size(p.bytes) },
          {
            name: "Rows",
            end: true,
            cell: (p) => (p.rows < 0 ? <span className="muted">not counted yet</span> : `about ${count(p.rows)}`),
          },
          {
            name: "Dropped",
            cell: (p) =>
              p.detaching ? (
                <Tag tone="warn">now</Tag>
              ) : p.drops_at ? (
                <Time at={p.drops_at} />
              ) : (
                <span className="muted">never</span>
              ),
          },
          { name: "Tables", wrap: true, cell: (p) => <code>{p.tables.join(", ")}</code> },
        ]}
      />
    </Panel>
  );
}

function Plan({ steps }: { steps: Step[] }) {
  return (
    <Panel title="Retention plan" note="what the next sweep deletes">
      {steps.length === 0 ? (
        <p className="muted">
          Nothing is past its retention. <code>retention.tasks</code> and the other keys of the configuration say how long what
          is kept.
        </p>
      ) : (
        <List<Step>
          label="Retention plan"
          rows={steps}
          id={(s) => [s.what, s.how, s.from, s.agent].join()}
          fields={[
            { name: "What", cell: (s) => families[s.what] ?? s.what },
            { name: "How", cell: (s) => (s.how === "drop" ? "drops the partition" : "deletes rows") },
            {
              name: "From",
              cell: (s) => (s.from ? <Time at={s.from} /> : <span className="muted">outlived their period</span>),
            },
            { name: "Agent", cell: (s) => s.agent || <span className="muted">all</span> },
            { name: "Tasks", end: true, cell: (s) => count(s.tasks) },
            { name: "Held, stay", end: true, cell: (s) => count(s.held) },
            { name: "Frees", end: true, cell: (s) => size(s.bytes) },
          ]}
        />
      )}
    </Panel>
  );
}

const limitless = (n: number) => (n > 0 ? count(n) : "no limit");
const span = (s: number) => (s > 0 ? duration(s * 1000) : "no limit");

function LimitsOf() {
  const limits = useQuery({
    queryKey: ["limits"],
    queryFn: ({ signal }) => get("/limits", { signal }),
    refetchInterval: refresh.soon,
  });
  if (limits.error) return <ErrorBox error={limits.error} retry={() => limits.refetch()} />;
  const l = limits.data;
  if (!l) return <p className="muted">Loading…</p>;
  const use = new Map(l.use.agents.map((a) => [a.agent, a]));
  return (
    <div className="panels-stack">
      <Panel title="Agents" note="all replicas together; concurrency is for each replica">
        <List<NonNullable<Limits["agents"]>[number]>
          label="Limits of agents"
          rows={l.agents ?? []}
          id={(a) => a.agent}
          fields={[
            { name: "Agent", cell: (a) => a.agent },
            {
              name: "Waiting / queue",
              end: true,
              cell: (a) => <Use used={use.get(a.agent)?.waiting ?? 0} of={a.queue ?? 0} />,
            },
            {
              name: "Running / concurrency",
              end: true,
              cell: (a) =>
                `${count(use.get(a.agent)?.running ?? 0)} / ${a.concurrency ? count(a.concurrency) : "its workers'"}`,
            },
            { name: "Live tasks of a caller", end: true, cell: (a) => limitless(a.live_tasks ?? 0) },
            { name: "Pending messages", end: true, cell: (a) => limitless(a.pending_messages ?? 0) },
            { name: "Tries", end: true, cell: (a) => limitless(a.max_attempts ?? 0) },
            { name: "Run", end: true, cell: (a) => span(a.run_seconds ?? 0) },
            { name: "Silence", end: true, cell: (a) => span(a.inactivity_seconds ?? 0) },
          ]}
        />
      </Panel>
      <div className="panels">
        <Panel title="Memory of this process" note="bytes in flight, by budget">
          {l.use.memory.map((m) => (
            <div key={m.budget}>
              <Meter label={m.budget} used={m.used} of={m.size} text={`${size(m.used)} of ${size(m.size)}`} />
              {m.refused > 0 && <p className="muted">{plural(m.refused, "request")} refused since the process started</p>}
            </div>
          ))}
          <Meter
            label="streams of consoles"
            used={l.use.admin_streams}
            of={l.use.max_admin_streams}
            text={`${count(l.use.admin_streams)} of ${count(l.use.max_admin_streams)}`}
          />
        </Panel>
        <Panel title="Requests" note="of the configuration, limits.*">
          <Facts
            facts={[
              ["Memory", l.memory_bytes > 0 ? size(l.memory_bytes) : "what the machine or its control group has (default)"],
              ["Body", l.max_body_bytes > 0 ? size(l.max_body_bytes) : "no limit"],
              ["Parts", limitless(l.max_parts)],
              ["Depth of JSON", limitless(l.max_depth)],
              ["Blocking request", span(l.max_block_seconds)],
              ["Streams", limitless(l.max_streams)],
              ["Connections", `${limitless(l.max_connections)}, of one address ${limitless(l.connections_per_address)}`],
              [
                "Of a caller",
                `${l.rate > 0 ? `${count(l.rate)}/s, burst ${count(l.burst)}` : "any rate"}; ${limitless(l.streams)} streams; ${limitless(l.live_tasks)} live tasks`,
              ],
            ]}
          />
        </Panel>
      </div>
    </div>
  );
}

function Use({ used, of }: { used: number; of: number }) {
  if (of <= 0) return <>{count(used)} / no limit</>;
  const part = used / of;
  return (
    <span className="use" data-tone={part >= 0.95 ? "bad" : part >= 0.8 ? "warn" : undefined}>
      {count(used)} / {count(of)}
    </span>
  );
}

function Doctor() {
  const { data: me } = useMe();
  const client = useQueryClient();
  const doctor = useQuery({
    queryKey: ["doctor"],
    queryFn: ({ signal }) => get("/doctor", { signal }),
    enabled: me?.right === "administer",
    staleTime: 300_000,
    refetchOnWindowFocus: false,
    retry: false,
  });
  if (me && me.right !== "administer") return <Needs right="administer" />;
  const found = doctor.data;
  const order = { fail: 0, warn: 1, ok: 2 } as const;
  const checks = [...(found?.checks ?? [])].sort((a, b) => order[a.status] - order[b.status]);
  const bad = checks.filter((c) => c.status !== "ok").length;
  return (
    <div className="panels-stack">
      <Panel
        title="Findings"
        note={
          doctor.isFetching
            ? "the checks run; this takes some seconds"
            : found
              ? `${plural(checks.length, "check")}, ${bad === 0 ? "all in order" : plural(bad, "problem")}`
              : undefined
        }
        actions={
          <Button busy={doctor.isFetching} onClick={() => client.refetchQueries({ queryKey: ["doctor"] })}>
            Run again
          </Button>
        }
      >
        {doctor.error && <ErrorBox error={doctor.error} retry={() => doctor.refetch()} title="The checks did not run" />}
        {found?.checks.length === 0 && (
          <EmptyState guide="failing" title="No check ran" command="holdfast doctor">
            Run it in a terminal at the server's configuration instead.
          </EmptyState>
        )}
        <ul className="findings">
          {checks.map((c, i) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: a check may report twice
            <li key={i} className="finding" data-status={c.status}>
              <Tag tone={tones[c.status]}>{words[c.status]}</Tag>
              <div>
                <b>{c.check}</b>{" "}
                {c.agent && (
                  <Link to="/agents/$name" params={{ name: c.agent }}>
                    {visible(c.agent)}
                  </Link>
                )}
                <Text>{c.detail}</Text>
                {c.advice && (
                  <div className="finding-advice">
                    <span className="muted">Fix: </span>
                    <Text>{c.advice}</Text>
                  </div>
                )}
              </div>
            </li>
          ))}
        </ul>
      </Panel>
    </div>
  );
}

type Status = Findings["status"];
const tones: Record<Status, "good" | "warn" | "bad"> = { ok: "good", warn: "warn", fail: "bad" };
const words: Record<Status, string> = { ok: "in order", warn: "warning", fail: "fails" };
