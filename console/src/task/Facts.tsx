import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { get } from "../api/client";
import { formatJson } from "../api/json";
import type { Event, TaskDetail } from "../api/schema";
import { Copy } from "../components/Copy";
import { JsonView } from "../components/JsonView";
import { Time } from "../components/Time";
import { isDict } from "../conversation/types";
import { useMe } from "../layout/me";
import { isFinal } from "../lib/states";
import { hostOf, line, size } from "../lib/text";
import { duration } from "../lib/time";
import { traceHref, traces } from "./conversation";
import "./Facts.css";

/** Facts are the short facts of a task, beside its tabs. */
export function Facts({ task, events }: { task: TaskDetail; events: readonly Event[] }) {
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
      <Cost task={task} />
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

/** Cost shows the tokens that the agent reports. */
function Cost({ task }: { task: TaskDetail }) {
  const { data } = useQuery({
    queryKey: ["task", task.id, "usage"],
    queryFn: ({ signal }) => get("/tasks/{id}/usage", { path: { id: task.id }, signal }),
  });
  if (!data || data.models.length === 0) return null;
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
            </tr>
          </thead>
          <tbody>
            {data.models.map((m) => (
              <tr key={m.model ?? ""}>
                <td>{m.model ? line(m.model, 60) : <span className="muted">not said</span>}</td>
                <td>{count(m.input_tokens)}</td>
                <td>{count(m.output_tokens)}</td>
                <td>{count(m.total_tokens)}</td>
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
