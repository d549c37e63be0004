import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type ReactNode, Suspense } from "react";
import { get } from "../api/client";
import { ErrorBox } from "../components/ErrorBox";
import { Histogram } from "../components/Histogram";
import { Page } from "../components/Page";
import { Facts, Panel } from "../components/Panel";
import { later } from "../layout/later";
import { useMe } from "../layout/me";
import { count, money, percent, plural, rate, short } from "../lib/amounts";
import { attention, beside, changes, hour, over, type Remark, spanOf, usedBy } from "../lib/home";
import { refresh } from "../lib/refresh";
import type { Search } from "../lib/search";
import { visible } from "../lib/text";
import { duration } from "../lib/time";
import "./home.css";

const First = later(() => import("../talk/First").then((file) => file.First));

/** sample is how many tasks the tokens of the hour are read of. */
const sample = 200;

/** HomePage says whether all is well, and what changed. Each number leads to the tasks that it counts. */
export function HomePage() {
  const { data: me } = useMe();
  const agents = useQuery({
    queryKey: ["agents"],
    queryFn: ({ signal }) => get("/agents", { signal }),
    refetchInterval: refresh.soon,
  });
  const stats = useQuery({
    queryKey: ["stats", "6h", undefined],
    queryFn: ({ signal }) => get("/stats", { query: { window: "6h" }, signal }),
    refetchInterval: refresh.later,
  });
  const day = useQuery({
    queryKey: ["counts", "home", "day"],
    queryFn: ({ signal }) =>
      get("/tasks/counts", { query: { since: new Date(Date.now() - 86_400_000).toISOString() }, signal }),
    refetchInterval: refresh.later,
  });
  const open = useQuery({
    queryKey: ["counts", "home", "open"],
    queryFn: ({ signal }) =>
      get("/tasks/counts", { query: { state: ["submitted", "working", "input-required", "auth-required"] }, signal }),
    refetchInterval: refresh.later,
  });
  const newest = useQuery({
    queryKey: ["tasks", "home"],
    queryFn: ({ signal }) =>
      get("/tasks", { query: { since: new Date(Date.now() - 3_600_000).toISOString(), limit: sample }, signal }),
    refetchInterval: refresh.seldom,
  });
  const lags = useQuery({
    queryKey: ["lags"],
    enabled: me?.all_tenants ?? false,
    queryFn: ({ signal }) => get("/webhooks/lags", { signal }),
    refetchInterval: refresh.later,
  });
  const failed = [agents, stats, day, open].find((q) => q.error);
  const known = agents.data !== undefined && stats.data !== undefined;
  const needs = attention(agents.data?.agents ?? []);
  const changed = stats.data ? changes(stats.data) : [];
  const failing = (lags.data?.failing ?? 0) - (lags.data?.disabled ?? 0);
  const problems = needs.length + changed.filter((r) => r.tone === "bad").length + (failing > 0 ? 1 : 0);

  const from = stats.data ? hour(stats.data) : 0;
  const rows = stats.data?.agents ?? [];
  const now = spanOf(rows, from, stats.data?.buckets ?? 0);
  const before = spanOf(rows, Math.max(0, 2 * from - (stats.data?.buckets ?? 0)), from);
  const queues = (agents.data?.agents ?? []).flatMap((a) => (a.queue ? [a.queue] : []));
  const oldest = Math.max(0, ...queues.map((q) => q.oldest_seconds));
  const counts = open.data?.counts ?? {};
  const asks = (counts["input-required"] ?? 0) + (counts["auth-required"] ?? 0);
  const used = usedBy(newest.data?.tasks ?? []);
  const tokens = used.reduce((sum, a) => sum + a.tokens, 0);
  const cost = used.reduce((sum, a) => sum + a.cost, 0);
  const ofWhich = newest.data?.next ? `of the newest ${sample} tasks` : "of the tasks of the last hour";
  const hourAgo: Search = { since: "1h" };
  return (
    <Page title="Home">
      {failed && <ErrorBox error={failed.error} retry={() => failed.refetch()} />}
      {known && (
        <p className="home-verdict" data-tone={problems > 0 ? "bad" : changed.length > 0 ? "warn" : "good"} role="status">
          {problems > 0
            ? `${plural(problems, "thing needs", "things need")} attention.`
            : changed.length > 0
              ? "It works, but something changed."
              : rows.length === 0
                ? "No agent is configured."
                : `All is well: ${plural(rows.length, "agent takes", "agents take")} tasks.`}
        </p>
      )}
      {(needs.length > 0 || changed.length > 0 || failing > 0) && (
        <ul className="home-remarks">
          {[...needs, ...changed].map((r) => (
            <RemarkOf key={r.of + r.text} remark={r} />
          ))}
          {failing > 0 && (
            <li data-tone="bad">
              <Link to="/webhooks">{plural(failing, "webhook fails", "webhooks fail")}</Link>
            </li>
          )}
        </ul>
      )}
      <div className="home-tiles">
        <Tile
          name="Ended"
          value={rate(now.ended, 3600)}
          note={`${beside(now.ended, before.ended)} · last hour`}
          search={{ state: ["completed", "failed", "canceled", "rejected"], ...hourAgo }}
        />
        <Tile
          name="Failed"
          value={percent(now.failed, now.ended)}
          note={`${count(now.failed)} in the last hour, ${count(before.failed)} in the one before`}
          tone={now.failed > 0 && now.failed > now.ended / 10 ? "bad" : undefined}
          search={{ state: ["failed", "rejected"], ...hourAgo }}
        />
        <Tile
          name="Duration, p95"
          value={now.p95 === undefined ? "–" : duration(now.p95 * 1000)}
          note={before.p95 === undefined ? "last hour" : `${beside(now.p95 ?? 0, before.p95)} · slower ones`}
          search={now.p95 === undefined ? hourAgo : { duration: `>${over(now.p95)}`, ...hourAgo }}
        />
        {queues.length > 0 && (
          <Tile
            name="Oldest in the queue"
            value={oldest < 1 ? "–" : duration(oldest * 1000)}
            note={`${count(counts.submitted ?? 0)} wait, ${count(counts.working ?? 0)} work`}
            tone={oldest > 60 ? "warn" : undefined}
            search={{ state: ["submitted"] }}
          />
        )}
        <Tile
          name="Wait for people"
          value={count(asks)}
          note="for input or a login"
          search={{ state: ["input-required", "auth-required"] }}
        />
        <Tile
          name="Tokens"
          value={tokens ? short(tokens) : "–"}
          note={cost > 0 ? `${money(cost, me?.currency)} ${ofWhich}` : ofWhich}
          search={hourAgo}
        />
      </div>
      {used.length > 1 && (
        <Panel title="Tokens by agent" note={ofWhich}>
          <Facts
            facts={used.map((a) => [
              visible(a.agent),
              `${short(a.tokens)} of ${plural(a.tasks, "task")}${a.cost > 0 ? `, ${money(a.cost, me?.currency)}` : ""}`,
            ])}
          />
        </Panel>
      )}
      {day.data && (
        <Panel
          title="Tasks of the last 24 hours"
          note="by when they were created and what became of them; draw to choose a span"
        >
          <DayOf counts={day.data} />
        </Panel>
      )}
    </Page>
  );
}

function DayOf({ counts }: { counts: Parameters<typeof Histogram>[0]["counts"] }) {
  const navigate = useNavigate();
  const none = Object.keys(counts.created).length === 0;
  const any = useQuery({
    queryKey: ["tasks", "any"],
    enabled: none,
    queryFn: ({ signal }) => get("/tasks", { query: { limit: 1 }, signal }),
  });
  if (none && any.data?.tasks.length === 0 && !any.data.next) {
    return (
      <Suspense>
        <First />
      </Suspense>
    );
  }
  if (none) {
    return (
      <p className="home-none">
        No task was created in that time. <Link to="/talk">Talk to an agent</Link>, or send a message in a terminal:{" "}
        <code>bin/holdfast send echo:hello</code>
      </p>
    );
  }
  return (
    <div className="home-day">
      <Histogram
        counts={counts}
        label="Tasks of the last 24 hours"
        onSpan={(since, until) => void navigate({ to: "/tasks", search: { since, until } })}
      />
    </div>
  );
}

function RemarkOf({ remark }: { remark: Remark }) {
  return (
    <li data-tone={remark.tone}>
      <Link to="/agents/$name" params={{ name: remark.of }}>
        {visible(remark.of)}
      </Link>{" "}
      {visible(remark.text)}{" "}
      {remark.search && (
        <Link to="/tasks" search={remark.search} aria-label={`Show the tasks of ${visible(remark.of)}`}>
          Show the tasks
        </Link>
      )}
    </li>
  );
}

function Tile({
  name,
  value,
  note,
  tone,
  search,
}: {
  name: string;
  value: ReactNode;
  note: string;
  tone?: "warn" | "bad";
  search: Search;
}) {
  return (
    <Link to="/tasks" search={search} className="home-tile" data-tone={tone}>
      <span className="home-name">{name}</span>
      <span className="home-value">{value}</span>
      <span className="home-note">{note}</span>
    </Link>
  );
}
