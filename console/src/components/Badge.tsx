import type { State } from "../api/schema";
import { stateNames } from "../lib/states";
import { seen } from "../lib/text";
import "./Badge.css";

/** Badge is the state of a task, as a dot and a word. */
export function Badge({ state }: { state: State }) {
  return (
    <span className="badge" data-state={state}>
      <span className="badge-dot" aria-hidden="true" />
      {stateNames[state] ?? state}
    </span>
  );
}

/** Tag is a short word in a frame, such as a phase, a role or a count. */
export function Tag({
  tone = "neutral",
  children,
}: {
  tone?: "neutral" | "good" | "warn" | "bad" | "info";
  children: React.ReactNode;
}) {
  return (
    <span className="tag" data-tone={tone}>
      {seen(children)}
    </span>
  );
}
