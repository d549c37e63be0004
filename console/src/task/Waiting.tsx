import type { ReactNode } from "react";
import type { TaskDetail } from "../api/schema";
import { Time } from "../components/Time";
import { isFinal } from "../lib/states";
import { line } from "../lib/text";

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
