import { Link } from "@tanstack/react-router";
import type { Task } from "../api/schema";
import { visible } from "../lib/text";
import { Tag } from "./Badge";
import { Time } from "./Time";
import "./StatusLine.css";

/** StatusLine says what a task does or waits for, in the words of the server. */
export function StatusLine({ task }: { task: Pick<Task, "agent" | "status_line"> }) {
  const line = task.status_line;
  if (!line) return null;
  return (
    <p className="status-line" data-turn={line.turn_of} data-situation={line.situation}>
      <span className="status-line-dot" aria-hidden="true" />
      <StatusText task={task} />
      {line.since && (
        <span className="muted">
          since <Time at={line.since} />
        </span>
      )}
      {line.next && (
        <span className="muted">
          {visible(line.next)} {line.next_at && <Time at={line.next_at} />}
        </span>
      )}
      {line.turn_of === "operator" && (
        <Link to="/agents/$name" params={{ name: task.agent }}>
          Agent
        </Link>
      )}
      {line.turn_of !== "nobody" && (
        <Tag tone={line.turn_of === "operator" ? "warn" : "neutral"}>{`turn: ${line.turn_of}`}</Tag>
      )}
    </p>
  );
}

/** StatusText is the line without its times. */
export function StatusText({ task }: { task: Pick<Task, "status_line"> }) {
  return <span className="status-line-text">{visible(task.status_line?.text ?? "")}</span>;
}
