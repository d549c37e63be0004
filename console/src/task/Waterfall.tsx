import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useMemo, useState } from "react";
import { get } from "../api/client";
import type { Event, State, TaskDetail } from "../api/schema";
import { Badge } from "../components/Badge";
import { Button } from "../components/Button";
import { ErrorBox } from "../components/ErrorBox";
import { Text } from "../components/Panel";
import { Scroll } from "../components/Scroll";
import { StatusLine } from "../components/StatusLine";
import { SeqLink } from "../conversation/SeqLink";
import { isFinal } from "../lib/states";
import { line } from "../lib/text";
import { duration } from "../lib/time";
import type { Known } from "./feed";
import { artifactRow, ended, kinds, once, placed, type Row, rowsOf, type Scale, scaleOf, webhookRows } from "./rows";
import { type Live, stored, useLineage, useRuns, type useStory } from "./useTask";
import type { useWebhooks } from "./WebhooksView";
import "./Waterfall.css";

/** mostRows is how many rows are shown at first: the newest ones. */
const mostRows = 200;
/** mostOpen is how many rows below a row are shown without a click. */
const mostOpen = 12;
/** mostCalls is how many called tasks, and mostArtifacts how many artifacts, are asked for their times. */
const mostCalls = 50;
const mostArtifacts = 20;

/** Waterfall shows where the time of a task went. It is a table, whose rows have bars on one scale. */
export function Waterfall({
  task,
  story,
  live,
  artifacts,
  webhooks,
  error,
  toSeq,
}: {
  task: TaskDetail;
  story: ReturnType<typeof useStory>;
  live: Live;
  artifacts: readonly Known[];
  webhooks: ReturnType<typeof useWebhooks>;
  /** error is what the page shows above. */
  error?: string;
  toSeq: (seq: number) => void;
}) {
  const open = !isFinal(task.state);
  const now = useNow(open);
  const runs = useRuns(task.id);
  const lineage = useLineage(task.id);
  const hooks = useMemo(() => webhooks.data?.pages.flatMap((p) => p.webhooks) ?? [], [webhooks.data]);
  const attempts = useQuery({
    queryKey: ["task", task.id, "attempts", hooks.map((w) => `${w.delivered_seq} ${w.failures}`).join()],
    queryFn: ({ signal }) => get("/tasks/{id}/attempts", { path: { id: task.id }, query: { limit: 500 }, signal }),
    enabled: hooks.length > 0,
    placeholderData: (old) => old,
  });
  const written = useArtifactRows(task.id, artifacts, live);
  const rows = useCalled(
    useMemo(() => {
      const own = rowsOf(task, runs.data?.runs ?? [], story.events, lineage.data?.calls ?? [], now);
      const urls = new Map(hooks.map((w) => [w.config_id, w.url]));
      const tried = [...(attempts.data?.attempts ?? [])].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
      return [...placed(own, written), ...webhookRows(tried, urls)];
    }, [task, runs.data, story.events, lineage.data, now, hooks, attempts.data, written]),
  );
  const scale = useMemo(() => scaleOf(rows), [rows]);
  const [most, setMost] = useState(mostRows);
  const shown = useMemo(() => once(rows.slice(-most), error), [rows, most, error]);
  return (
    <div className="timeline">
      <Callers id={lineage.data?.called_by} />
      <StatusLine task={task} />
      {runs.error && <ErrorBox error={runs.error} retry={() => runs.refetch()} title="The runs cannot be read" />}
      {runs.data?.more && <p className="muted">The task has more runs; the log has them.</p>}
      {(story.query.hasNextPage || rows.length > most) && (
        <Button
          busy={story.query.isFetchingNextPage}
          onClick={() => (rows.length > most ? setMost(most * 2) : void story.query.fetchNextPage())}
        >
          Load earlier rows
        </Button>
      )}
      {rows.length > 0 && (
        <Scroll className="waterfall" label="Waterfall">
          <table onKeyDown={arrows}>
            <caption className="visually-hidden">
              Where the time of the task went, in the order of time. Times are since {task.created_at}.
            </caption>
            <thead>
              <tr>
                <th scope="col">What</th>
                <th scope="col">
                  <Axis scale={scale} />
                </th>
                <th scope="col">Took</th>
              </tr>
            </thead>
            <tbody>
              <Rows rows={shown} depth={0} scale={scale} toSeq={toSeq} />
            </tbody>
          </table>
        </Scroll>
      )}
    </div>
  );
}

/** useNow is the time, anew each second while something is open. */
function useNow(open: boolean): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!open) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [open]);
  return now;
}

/** arrows moves between the links of rows. */
function arrows(event: KeyboardEvent<HTMLTableElement>): void {
  const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  if (by === 0) return;
  const links = [...event.currentTarget.querySelectorAll<HTMLElement>(".waterfall-name a")];
  const at = links.indexOf(document.activeElement as HTMLElement);
  const next = links[at + by];
  if (at < 0 || !next) return;
  event.preventDefault();
  event.stopPropagation();
  next.focus();
}

function Axis({ scale }: { scale: Scale }) {
  return (
    <span className="waterfall-axis">
      <span className="visually-hidden">When</span>
      <span aria-hidden="true">0</span>
      {scale.cuts.map((c) => (
        <span
          key={c.at}
          className="waterfall-cut"
          style={{ left: `${100 * c.at}%` }}
          title={`Nothing worked for ${duration(c.ms)}`}
        >
          ⋯ {duration(c.ms)}
        </span>
      ))}
      <span aria-hidden="true">{duration(scale.to - scale.from)}</span>
    </span>
  );
}

interface Place {
  depth: number;
  scale: Scale;
  toSeq?: (seq: number) => void;
}

function Rows({ rows, ...place }: Place & { rows: readonly Row[] }) {
  return rows.map((row) => <One key={row.key} row={row} {...place} />);
}

function One({ row, depth, scale, toSeq }: Place & { row: Row }) {
  const children = row.children ?? [];
  const more = children.length > 0 || (row.call !== undefined && depth < 30);
  // The children may come after the row.
  const [chosen, setChosen] = useState<boolean>();
  const open = chosen ?? (children.length > 0 && children.length <= mostOpen);
  const bar = row.bars.at(-1);
  const from = row.bars[0]?.from ?? scale.from;
  const took = (bar?.to ?? from) - (row.bars.length === 2 && row.kind === "run" ? (bar?.from ?? from) : from);
  const name = `${kinds[row.kind].name === row.name || row.kind === "run" ? "" : `${kinds[row.kind].name} `}${row.name}`;
  return (
    <>
      <tr data-kind={row.kind}>
        <th scope="row">
          <div className="waterfall-name" style={{ paddingLeft: depth * 16 }}>
            {more ? (
              <button
                type="button"
                className="waterfall-more"
                aria-expanded={open}
                aria-label={`What ${name} has done`}
                onClick={() => setChosen(!open)}
              >
                {open ? "▾" : "▸"}
              </button>
            ) : (
              <span className="waterfall-more" />
            )}
            <span className="waterfall-what">
              {row.call ? (
                <Link to="/tasks/$id" params={{ id: row.call.task }} title={row.call.task}>
                  {row.name}
                </Link>
              ) : row.seq !== undefined && toSeq ? (
                <SeqLink seq={row.seq} toSeq={toSeq}>
                  {row.name}
                </SeqLink>
              ) : (
                row.name
              )}{" "}
              {row.note && <span className="waterfall-note">{row.note}</span>}
              {row.again && <span className="waterfall-note"> · the error above</span>}
            </span>
          </div>
        </th>
        <td className="waterfall-track">
          <span className="visually-hidden">
            {kinds[row.kind].name}, after {duration(from - scale.from)}
            {row.open ? ", until now" : ""}
          </span>
          <Bars row={row} scale={scale} toSeq={toSeq} />
        </td>
        <td className="waterfall-took">
          {duration(Math.max(0, took))}
          {row.open && <span className="visually-hidden"> so far</span>}
        </td>
      </tr>
      {row.error && !row.again && (
        <tr className="waterfall-error">
          <td colSpan={3} style={{ paddingLeft: 32 + depth * 16 }}>
            <Text>{row.error}</Text>
          </td>
        </tr>
      )}
      {open && children.length > 0 && <Rows rows={children} depth={depth + 1} scale={scale} toSeq={toSeq} />}
      {open && row.call && <Called id={row.call.task} error={row.error} depth={depth + 1} scale={scale} />}
    </>
  );
}

/** Bars are what a row did, drawn. The table says the same in words. */
function Bars({ row, scale, toSeq }: { row: Row; scale: Scale; toSeq?: (seq: number) => void }) {
  const { seq } = row;
  return (
    <span className="waterfall-bars" aria-hidden="true" onClick={seq !== undefined && toSeq ? () => toSeq(seq) : undefined}>
      {scale.cuts.map((c) => (
        <span key={c.at} className="waterfall-gap" style={{ left: `${100 * c.at}%` }} />
      ))}
      {row.bars.map((b, i) => (
        <span
          // biome-ignore lint/suspicious/noArrayIndexKey: bars are only appended
          key={i}
          className="waterfall-bar"
          data-kind={b.kind}
          data-tone={b.tone}
          data-open={(row.open && i === row.bars.length - 1) || undefined}
          title={`${kinds[b.kind].name} ${duration(b.to - b.from)}, after ${duration(b.from - scale.from)}`}
          style={{ left: `${100 * scale.at(b.from)}%`, width: `${100 * (scale.at(b.to) - scale.at(b.from))}%` }}
        />
      ))}
    </span>
  );
}

/** Called are the rows of a called task, on the scale of the one that called it. */
function Called({ id, error, depth, scale }: Place & { id: string; error: string | undefined }) {
  const detail = useQuery({
    queryKey: ["task", id],
    queryFn: ({ signal }) => get("/tasks/{id}", { path: { id }, signal }),
  });
  const runs = useRuns(id);
  const lineage = useLineage(id);
  const log = useQuery({
    queryKey: ["task", id, "newest"],
    queryFn: ({ signal }) =>
      get("/tasks/{id}/log", {
        path: { id },
        query: { order: "desc", limit: 200, kind: ["message", "status", "run"] },
        signal,
      }),
  });
  const rows = useCalled(
    useMemo(
      () =>
        detail.data && runs.data && lineage.data && log.data
          ? rowsOf(detail.data, runs.data.runs, log.data.events.toReversed(), lineage.data.calls, scale.to)
          : [],
      [detail.data, runs.data, lineage.data, log.data, scale.to],
    ),
  );
  if (rows.length > 0) return <Rows rows={once(rows, error)} depth={depth} scale={scale} />;
  const failed = detail.error ?? runs.error ?? lineage.error ?? log.error;
  return (
    <tr>
      <td colSpan={3} className="muted" style={{ paddingLeft: 32 + depth * 16 }}>
        {failed ? `It cannot be read: ${failed.message}` : "Loading…"}
      </td>
    </tr>
  );
}

function dataOf<T>(all: { data: T | undefined }[]): (T | undefined)[] {
  return all.map((one) => one.data);
}

/** useCalled gives the rows of called tasks their ends. */
function useCalled(rows: Row[]): Row[] {
  const ids = useMemo(
    () =>
      rows
        .flatMap((r) => [r, ...(r.children ?? [])])
        .flatMap((r) => r.call?.task ?? [])
        .slice(-mostCalls),
    [rows],
  );
  const details = useQueries({
    queries: ids.map((id) => ({
      queryKey: ["task", id],
      queryFn: ({ signal }: { signal: AbortSignal }) => get("/tasks/{id}", { path: { id }, signal }),
      refetchInterval: (query: { state: { data?: { state: State } } }) =>
        query.state.data && isFinal(query.state.data.state) ? (false as const) : 3000,
    })),
    combine: dataOf,
  });
  return useMemo(() => {
    if (ids.length === 0) return rows;
    const known = new Map(ids.map((id, i) => [id, details[i]]));
    const with_ = (r: Row): Row => (r.call ? ended(r, known.get(r.call.task)) : r);
    return rows.map((r) => with_(r.children ? { ...r, children: r.children.map(with_) } : r));
  }, [rows, ids, details]);
}

/** useArtifactRows reads when the newest artifacts were written: their first and their newest event have the times. */
function useArtifactRows(id: string, artifacts: readonly Known[], live: Live): Row[] {
  const asked = useMemo(() => artifacts.slice(-mostArtifacts), [artifacts]);
  const events = useQueries({
    // What the stream has brought is here already.
    queries: [...new Set(asked.flatMap((a) => [a.firstSeq, a.seq]))]
      .filter((seq) => !live.feed.log.at(seq))
      .map((seq) => stored(id, seq)),
    combine: dataOf,
  });
  return useMemo(() => {
    const at = (seq: number): Event | undefined => live.feed.log.at(seq) ?? events.find((e) => e?.seq === seq);
    return asked.flatMap((a) => {
      const first = at(a.firstSeq);
      const last = at(a.seq);
      return first && last ? [artifactRow(a.id, first, last, a.complete || live.state === "ended", a.chunks)] : [];
    });
  }, [asked, events, live]);
}

const mostCallers = 20;

/** Callers are the tasks that led to this one, the first one first. */
function Callers({ id }: { id: string | undefined }) {
  const up = useQuery({
    queryKey: ["task", id, "callers"],
    queryFn: async ({ signal }) => {
      const found: { id: string; agent?: string; state?: State }[] = [];
      for (let next = id; next && found.length < mostCallers; ) {
        const path = { id: next };
        const [detail, above] = await Promise.all([
          get("/tasks/{id}", { path, signal }).catch(() => undefined),
          get("/tasks/{id}/lineage", { path, signal }).catch(() => undefined),
        ]);
        found.unshift({ id: next, agent: detail?.agent, state: detail?.state });
        next = above?.called_by;
      }
      return found;
    },
    enabled: id !== undefined,
  });
  if (!up.data || up.data.length === 0) return null;
  return (
    <p className="callers">
      Called by{" "}
      {up.data.map((one) => (
        <span key={one.id}>
          <Link to="/tasks/$id" params={{ id: one.id }} title={one.id}>
            {line(one.agent ?? one.id, 60)}
          </Link>{" "}
          {one.state && <Badge state={one.state} />} ›{" "}
        </span>
      ))}
      this task
    </p>
  );
}
