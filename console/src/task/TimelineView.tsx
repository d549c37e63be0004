import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useMemo, useState } from "react";
import { get } from "../api/client";
import type { Call, Lineage, Run, State, TaskDetail } from "../api/schema";
import { Badge, Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { ErrorBox } from "../components/ErrorBox";
import { Scroll } from "../components/Scroll";
import { Time } from "../components/Time";
import { isFinal, stateNames } from "../lib/states";
import { line } from "../lib/text";
import { duration } from "../lib/time";
import { SeqLink } from "./ConversationView";
import { type Entry, outcomes, spans, timeline } from "./timeline";
import type { Live, useStory } from "./useTask";
import "./Timeline.css";

export function useRuns(id: string) {
  return useQuery({
    queryKey: ["task", id, "runs"],
    queryFn: ({ signal }) => get("/tasks/{id}/runs", { path: { id }, signal }),
  });
}

export function useLineage(id: string) {
  return useQuery({
    queryKey: ["task", id, "lineage"],
    queryFn: ({ signal }) => get("/tasks/{id}/lineage", { path: { id }, signal }),
  });
}

export function TimelineView({
  task,
  story,
  live,
  runs,
  lineage,
  toSeq,
}: {
  task: TaskDetail;
  story: ReturnType<typeof useStory>;
  live: Live;
  runs: ReturnType<typeof useRuns>;
  lineage: ReturnType<typeof useLineage>;
  toSeq: (seq: number) => void;
}) {
  const entries = useMemo(
    () => timeline(story.events, runs.data?.runs ?? [], lineage.data?.calls ?? []),
    [story.events, runs.data, lineage.data],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: each tick moves the end
  const bar = useMemo(
    () => (story.whole ? spans(task.created_at, story.events, Date.now(), isFinal(task.state)) : []),
    [story.whole, story.events, task.created_at, task.state, live.tick],
  );
  return (
    <div className="timeline">
      <Bar bar={bar} />
      <Waiting task={task} />
      {runs.error && <ErrorBox error={runs.error} retry={() => runs.refetch()} title="The attempts cannot be read" />}
      <Runs runs={runs.data?.runs} more={runs.data?.more} toSeq={toSeq} />
      <section>
        <h2>What happened</h2>
        {story.query.hasNextPage && (
          <Button busy={story.query.isFetchingNextPage} onClick={() => story.query.fetchNextPage()}>
            Load earlier events
          </Button>
        )}
        <ol className="timeline-list">
          {entries.map((e) => (
            <li key={keyOf(e)} data-type={e.type} data-state={e.type === "state" ? e.state : undefined}>
              <EntryView entry={e} toSeq={toSeq} />
            </li>
          ))}
        </ol>
        {runs.isSuccess && entries.length === 0 && <p className="muted">Nothing yet: the task was just created.</p>}
      </section>
      <Tree task={task} lineage={lineage.data} />
    </div>
  );
}

function keyOf(e: Entry): string {
  switch (e.type) {
    case "run":
      return `run ${e.run.run}`;
    case "call":
      return `call ${e.call.id}`;
    default:
      return `${e.type} ${e.seq}`;
  }
}

/** Bar shows how long each state lasted. */
function Bar({ bar }: { bar: ReturnType<typeof spans> }) {
  const total = bar.reduce((n, s) => n + s.to - s.from, 0);
  if (bar.length < 2 || total <= 0) return null;
  return (
    <figure className="span-bar">
      <div role="img" aria-label={`States: ${bar.map((s) => `${stateNames[s.state]} ${duration(s.to - s.from)}`).join(", ")}`}>
        {bar.slice(0, 200).map((s) => (
          <span
            key={s.seq}
            className="span-part"
            data-state={s.state}
            title={`${stateNames[s.state]} ${duration(s.to - s.from)}`}
            style={{ flexGrow: (s.to - s.from) / total }}
          />
        ))}
      </div>
      <figcaption>
        {sums(bar).map(([state, ms]) => (
          <span key={state} className="span-key" data-state={state}>
            {stateNames[state]} {duration(ms)}
          </span>
        ))}
        <span>in all {duration(total)}</span>
      </figcaption>
    </figure>
  );
}

function sums(bar: ReturnType<typeof spans>): [State, number][] {
  const by = new Map<State, number>();
  for (const s of bar) if (s.to > s.from) by.set(s.state, (by.get(s.state) ?? 0) + s.to - s.from);
  return [...by.entries()];
}

/** Waiting says what an open task waits for. */
export function Waiting({ task }: { task: TaskDetail }) {
  const q = task.queue;
  let text: ReactNode;
  if (task.cancel_requested_at && !isFinal(task.state)) {
    text = (
      <>
        Its cancel was asked for <Time at={task.cancel_requested_at} />. The run has not ended yet.
      </>
    );
  } else if (q) {
    const again = q.tries > 0 ? `, after ${q.tries} failed ${q.tries === 1 ? "try" : "tries"}` : "";
    const phases: Record<typeof q.phase, ReactNode> = {
      running: (
        <>
          It runs on <strong>{line(q.worker_name || q.worker || "a worker", 80)}</strong> since <Time at={task.claimed_at} />
          {again}.
        </>
      ),
      waiting: (
        <>
          It waits for a free worker of agent {line(task.agent, 80)} since <Time at={q.available_at} />
          {again}.
        </>
      ),
      delayed: (
        <>
          Its next attempt is due <Time at={q.available_at} />
          {again}.
        </>
      ),
      timer: (
        <>
          It waits for a time: <Time at={q.available_at} />.
        </>
      ),
      calls: <>It waits for the tasks that it has called.</>,
    };
    text = (
      <>
        {phases[q.phase]}{" "}
        {q.away_since && (
          <span className="timeline-away">
            Its agent is away since <Time at={q.away_since} />.
          </span>
        )}
      </>
    );
  } else if (task.state === "input-required") text = "It waits for an answer of its client.";
  else if (task.state === "auth-required") text = "It waits until its client has authenticated.";
  else return null;
  return <p className="timeline-now">{text}</p>;
}

function Runs({ runs, more, toSeq }: { runs: readonly Run[] | undefined; more?: boolean; toSeq: (seq: number) => void }) {
  if (!runs || runs.length === 0) return null;
  return (
    <section>
      <h2>Attempts</h2>
      <Scroll className="runs" label="Attempts">
        <table>
          <thead>
            <tr>
              <th scope="col">Run</th>
              <th scope="col">Turn</th>
              <th scope="col">Attempt</th>
              <th scope="col">Worker</th>
              <th scope="col">Began</th>
              <th scope="col">Took</th>
              <th scope="col">Outcome</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {runs.map((r) => {
              const known = outcomes[r.outcome];
              return (
                <tr key={r.run}>
                  <td>{r.run}</td>
                  <td>{r.turn}</td>
                  <td>{r.attempt}</td>
                  <td>{line(r.worker_name || r.worker || "–", 60)}</td>
                  <td>
                    <Time at={r.started_at} />
                  </td>
                  <td>{r.started_at && r.ended_at ? duration(Date.parse(r.ended_at) - Date.parse(r.started_at)) : "–"}</td>
                  <td>
                    <Tag tone={known?.tone}>{r.outcome}</Tag>
                  </td>
                  <td className="runs-why">
                    {r.error ? <Why text={r.error} /> : <span className="muted">{known?.text}</span>}{" "}
                    {r.seq ? <SeqLink seq={r.seq} toSeq={toSeq} /> : null}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      {more && <p className="muted">The task has more runs; the log has them.</p>}
    </section>
  );
}

/** Why is an error message, which may be long. */
export function Why({ text }: { text: string }) {
  const [all, setAll] = useState(false);
  const short = line(text, 240);
  const long = text.length > 240 || text.includes("\n");
  return (
    <>
      <span className="why">{all ? line(text.replaceAll("\n", " ⏎ "), 16_000) : short}</span>
      {long && (
        <button type="button" className="link-button" onClick={() => setAll(!all)}>
          {all ? "less" : "more"}
        </button>
      )}
    </>
  );
}

function EntryView({ entry, toSeq }: { entry: Entry; toSeq: (seq: number) => void }) {
  switch (entry.type) {
    case "state":
      return (
        <>
          <Badge state={entry.state} />
          {entry.cause && <span className="why">{line(entry.cause, 240)}</span>}
          <span className="timeline-at">
            <Time at={entry.at} />
            <SeqLink seq={entry.seq} toSeq={toSeq} />
          </span>
        </>
      );
    case "run": {
      const known = outcomes[entry.run.outcome];
      return (
        <>
          <span>
            Run {entry.run.run}
            {entry.run.worker_name && <span className="muted"> on {line(entry.run.worker_name, 60)}</span>}
            {entry.run.started_at && entry.run.ended_at && (
              <span className="muted">, {duration(Date.parse(entry.run.ended_at) - Date.parse(entry.run.started_at))}</span>
            )}
            : {known?.text ?? line(entry.run.outcome, 60)}
          </span>
          {entry.run.error && <span className="why">{line(entry.run.error, 240)}</span>}
          <span className="timeline-at">
            <Time at={entry.at} />
            {entry.run.seq ? <SeqLink seq={entry.run.seq} toSeq={toSeq} /> : null}
          </span>
        </>
      );
    }
    case "wait":
      return (
        <>
          <span>
            Waits{" "}
            {entry.until && (
              <>
                until <Time at={entry.until} />
              </>
            )}
            {entry.over && <span className="muted"> (waited {duration(Date.parse(entry.over) - Date.parse(entry.at))})</span>}
            {entry.interruptible && <span className="muted"> or for a message</span>}
          </span>
          <span className="timeline-at">
            <Time at={entry.at} />
            <SeqLink seq={entry.seq} toSeq={toSeq} />
          </span>
        </>
      );
    case "call":
      return (
        <>
          <CallView call={entry.call} />
          <span className="timeline-at">
            <Time at={entry.at} />
          </span>
        </>
      );
  }
}

function CallView({ call }: { call: Call }) {
  return (
    <span className="timeline-call">
      Calls <strong>{line(call.agent || "an agent", 60)}</strong>
      {call.result && <Badge state={call.result as State} />}
      <Link to="/tasks/$id" params={{ id: call.task }} className="mono">
        {short(call.task)}
      </Link>
      {call.error && <span className="why">{line(call.error, 240)}</span>}
    </span>
  );
}

function short(id: string): string {
  return `${id.slice(0, 8)}…${id.slice(-4)}`;
}

const mostAncestors = 20;

/** Tree shows the task with those that called it and those that it has called. Branches open when the reader asks. */
function Tree({ task, lineage }: { task: TaskDetail; lineage: Lineage | undefined }) {
  const up = useQuery({
    queryKey: ["task", task.id, "ancestors", lineage?.called_by ?? ""],
    queryFn: async ({ signal }) => {
      const found: { id: string; agent?: string; state?: State }[] = [];
      let next = lineage?.called_by;
      while (next && found.length < mostAncestors) {
        const id: string = next;
        const [detail, above] = await Promise.all([
          get("/tasks/{id}", { path: { id }, signal }).catch(() => undefined),
          get("/tasks/{id}/lineage", { path: { id }, signal }).catch(() => undefined),
        ]);
        found.unshift({ id, agent: detail?.agent, state: detail?.state });
        next = above?.called_by;
      }
      return found;
    },
    enabled: lineage?.called_by !== undefined,
  });
  if (!lineage || (!lineage.called_by && lineage.calls.length === 0)) return null;
  return (
    <section>
      <h2>Callers and calls</h2>
      <ul className="tree">
        {(up.data ?? []).map((a, depth) => (
          <li key={a.id} style={{ paddingLeft: depth * 18 }}>
            <Node id={a.id} agent={a.agent} state={a.state} />
          </li>
        ))}
        <li style={{ paddingLeft: (up.data?.length ?? 0) * 18 }}>
          <span className="tree-node">
            <strong>{line(task.agent, 60)}</strong> <Badge state={task.state} /> <span className="muted">this task</span>
          </span>
          <Branch calls={lineage.calls} depth={(up.data?.length ?? 0) + 1} />
        </li>
      </ul>
    </section>
  );
}

function Branch({ calls, depth }: { calls: readonly Call[]; depth: number }) {
  const [shown, setShown] = useState(50);
  const details = useQueries({
    queries: calls.slice(0, shown).map((c) => ({
      queryKey: ["task", c.task],
      queryFn: ({ signal }: { signal: AbortSignal }) => get("/tasks/{id}", { path: { id: c.task }, signal }),
    })),
  });
  if (calls.length === 0) return null;
  return (
    <ul className="tree">
      {calls.slice(0, shown).map((c, i) => (
        <li key={c.id}>
          <Child call={c} detail={details[i]?.data} depth={depth} />
        </li>
      ))}
      {calls.length > shown && (
        <li>
          <button type="button" className="link-button" onClick={() => setShown(shown + 50)}>
            {calls.length - shown} more calls
          </button>
        </li>
      )}
    </ul>
  );
}

function Child({ call, detail, depth }: { call: Call; detail: TaskDetail | undefined; depth: number }) {
  const [open, setOpen] = useState(false);
  const below = useQuery({
    queryKey: ["task", call.task, "lineage"],
    queryFn: ({ signal }) => get("/tasks/{id}/lineage", { path: { id: call.task }, signal }),
    enabled: open,
  });
  return (
    <>
      <Node
        id={call.task}
        agent={call.agent || detail?.agent}
        state={detail?.state ?? (call.result as State | undefined)}
        error={call.error}
      />
      {depth < 30 && (
        <button type="button" className="link-button tree-more" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "hide its calls" : "its calls"}
        </button>
      )}
      {open && below.isSuccess && below.data.calls.length === 0 && <span className="muted"> none</span>}
      {open && below.data && <Branch calls={below.data.calls} depth={depth + 1} />}
    </>
  );
}

function Node({ id, agent, state, error }: { id: string; agent?: string; state?: State; error?: string }) {
  return (
    <span className="tree-node">
      <strong>{line(agent || "an agent", 60)}</strong> {state && <Badge state={state} />}{" "}
      <Link to="/tasks/$id" params={{ id }} className="mono">
        {short(id)}
      </Link>
      {error && <span className="why">{line(error, 200)}</span>}
    </span>
  );
}
