import type { State } from "../api/schema";

/** states are those of tasks, in the order in which they are shown. */
export const states: State[] = [
  "working",
  "submitted",
  "input-required",
  "auth-required",
  "failed",
  "rejected",
  "completed",
  "canceled",
];

/** stateNames are the states as people read them. */
export const stateNames: Record<State, string> = {
  submitted: "Submitted",
  working: "Working",
  "input-required": "Input required",
  "auth-required": "Auth required",
  completed: "Completed",
  failed: "Failed",
  canceled: "Canceled",
  rejected: "Rejected",
};

/** isFinal says whether a task has ended. */
export function isFinal(state: State): boolean {
  return state === "completed" || state === "failed" || state === "canceled" || state === "rejected";
}
