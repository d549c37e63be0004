import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { get } from "../api/client";
import { formatJson } from "../api/json";
import type { Event, ModelUsage, TaskDetail } from "../api/schema";
import { Copy } from "../components/Copy";
import { JsonView } from "../components/JsonView";
import { Time } from "../components/Time";
import { isDict } from "../conversation/types";
import { useMe } from "../layout/me";
import { money } from "../lib/amounts";
import { isFinal } from "../lib/states";
import { hostOf, line, size } from "../lib/text";
import { duration } from "../lib/time";
import { traceHref, traces } from "./conversation";
import type { Known } from "./feed";
import { pace } from "./rows";
import { stored } from "./useTask";
import "./Facts.css";

/** Facts are the short facts of a task, beside its tabs. */
export function Facts({
  task,
  events,
  artifacts,
}: {
  task: TaskDetail;
  events: readonly Event[];
  artifacts: readonly Known[];
}) {
  const { data: me } = useMe();
  const ids = useMemo(() => {
    const found = traces(events);
    // A long task's first message may not be among the events.
    return task.trace_id && !found.includes(task.trace_id) ? [...found, task.trace_id] : found;
  }, [events, task.trace_id]);
  const ended = isFinal(task.state);
  return (
    <dl className="task-fact-list">
      <Fact name="Id">
        <span className="mono" title={task.id}>
          {task.id.slice(0, 13)}…{task.id.slice(-6)}
        </span>
        <Copy text={task.id} label="Copy the id" />
      </Fact>
      {task.task_id !== task.id && (
        <Fact name="Client’s id">
          <span className="mono">{line(task.task_id, 100)}</span>
        </Fact>
      )}
      <Fact name="Agent">
        <Link to="/agents/$name" params={{ name: task.agent }}>
          {line(task.agent, 80)}
        </Link>
      </Fact>
      <Fact name="Context">
        <Link to="/tasks" search={{ context: task.context_id }} className="mono">
          {task.context_id.length > 24
            ? `${line(task.context_id.slice(0, 13), 13)}…${line(task.context_id.slice(-6), 6)}`
            : line(task.context_id, 24)}
        </Link>
      </Fact>
      {task.tenant && <Fact name="Tenant">{line(task.tenant, 80)}</Fact>}
      {task.owner && <Fact name="Owner">{line(task.owner, 80)}</Fact>}
      <Fact name="A2A">{line(task.dialect, 20)}</Fact>
      <Fact name="Created">
        <Time at={task.created_at} />
      </Fact>
      <Fact name={ended ? "Ended" : "State since"}>
        <Time at={task.status_at} />
        {ended && <span className="muted"> after {duration(Date.parse(task.status_at) - Date.parse(task.created_at))}</span>}
      </Fact>
      <Fact name="Work">
        {task.turns} {task.turns === 1 ? "turn" : "turns"}, {task.runs} {task.runs === 1 ? "run" : "runs"}
      </Fact>
      {task.pending > 0 && <Fact name="Waiting messages">{task.pending}</Fact>}
      {task.artifact_bytes > 0 && <Fact name="Artifacts">{size(task.artifact_bytes)}</Fact>}
      {task.held_at && (
        <Fact name="Held">
          <Time at={task.held_at} />
        </Fact>
      )}
      {task.retried_as && (
        <Fact name="Retried as">
          <Link to="/tasks/$id" params={{ id: task.retried_as }} className="mono">
            {task.retried_as}
          </Link>
        </Fact>
      )}
      <Cost task={task} artifacts={artifacts} />
      {ids.slice(0, 5).map((id) => (
        <Fact key={id} name="Trace">
          <Trace id={id} address={me?.trace_url} />
          <Copy text={id} label="Copy the id of the trace" />
        </Fact>
      ))}
      {isDict(task.metadata) && Object.keys(task.metadata).length > 0 && (
        <div className="task-fact-wide">
          <dt>Metadata</dt>
          <dd>
            <JsonView value={task.metadata} open={2} />
          </dd>
        </div>
      )}
    </dl>
  );
}

/** Trace shows the id of a trace, as a link if operators have a tracing tool. */
function Trace({ id, address }: { id: string; address: string | undefined }) {
  const short = <span className="mono">{id.slice(0, 12)}…</span>;
  const href = traceHref(address, id);
  if (!href) return short;
  return (
    <a href={href} target="_blank" rel="noreferrer noopener" title={`Trace ${id} at ${hostOf(href)}`}>
      {short}
    </a>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="task-fact">
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Cost shows the tokens that the agent reports, and how fast its chunks came. */
function Cost({ task, artifacts }: { task: TaskDetail; artifacts: readonly Known[] }) {
  const none = artifacts.length === 0;
  const first = useQuery({ ...stored(task.id, Math.min(...artifacts.map((a) => a.firstSeq))), enabled: !none });
  // The last chunk of a task that works changes all the time.
  const over = !none && isFinal(task.state);
  const last = useQuery({ ...stored(task.id, Math.max(...artifacts.map((a) => a.seq))), enabled: over });
  const { data: me } = useMe();
  const { data } = useQuery({
    queryKey: ["task", task.id, "usage"],
    queryFn: ({ signal }) => get("/tasks/{id}/usage", { path: { id: task.id }, signal }),
  });
  const output = (data?.models ?? []).reduce((sum, m) => sum + Number(m.output_tokens), 0);
  const { wait, speed } = pace(task, first.data, over ? last.data : undefined, output);
  return (
    <>
      {wait !== undefined && <Fact name="First chunk">after {duration(wait)}</Fact>}
      {speed !== undefined && <Fact name="Speed">{Number(speed.toPrecision(3)).toLocaleString("en")} tokens per second</Fact>}
      {data && data.models.length > 0 && <Tokens models={data.models} currency={me?.currency} />}
    </>
  );
}

function Tokens({ models, currency }: { models: readonly ModelUsage[]; currency: string | undefined }) {
  const cost = models.reduce((sum, m) => sum + (m.cost ?? 0), 0);
  return (
    <div className="task-fact-wide">
      <dt>Tokens</dt>
      <dd>
        <table className="task-fact-cost">
          <thead>
            <tr>
              <th scope="col">Model</th>
              <th scope="col">In</th>
              <th scope="col">Out</th>
              <th scope="col">All</th>
              {cost > 0 && <th scope="col">Cost</th>}
            </tr>
          </thead>
          <tbody>
            {models.map((m) => (
              <tr key={m.model ?? ""}>
                <td>{m.model ? line(m.model, 60) : <span className="muted">not said</span>}</td>
                <td>{count(m.input_tokens)}</td>
                <td>{count(m.output_tokens)}</td>
                <td>{count(m.total_tokens)}</td>
                {cost > 0 && <td>{m.cost ? money(m.cost, currency) : "–"}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </dd>
    </div>
  );
}

function count(n: unknown): string {
  return formatJson(n, 0).replace(/\B(?=(\d{3})+$)/g, ",");
}
