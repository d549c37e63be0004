// What operators do to tasks, as texts say it.
import type { JobRequest, Me } from "../api/schema";

export type Action = JobRequest["action"];

export interface ActionText {
  verb: string;
  /** done is the verb in the past, as in "3 tasks were canceled". */
  done: string;
  /** help says what happens to a task. */
  help: string;
  danger?: boolean;
  right: Me["right"];
}

export const actions: Record<Action, ActionText> = {
  retry: {
    verb: "Retry",
    done: "retried",
    help: "Makes the next attempt due. A task that has failed is sent again as a new task.",
    right: "act",
  },
  cancel: {
    verb: "Cancel",
    done: "canceled",
    help: "Ends tasks that have not ended. Workers are asked to stop their runs.",
    danger: true,
    right: "act",
  },
  hold: { verb: "Hold", done: "held", help: "Exempts tasks from retention and purges until they are released.", right: "act" },
  release: { verb: "Release", done: "released", help: "Ends the hold, so that retention may delete the tasks.", right: "act" },
  redeliver: {
    verb: "Redeliver webhooks",
    done: "redelivered",
    help: "Delivers what the webhooks of the tasks lack, now.",
    right: "act",
  },
  disable: {
    verb: "Disable webhooks",
    done: "stopped",
    help: "Stops the deliveries of the webhooks until they are enabled.",
    danger: true,
    right: "act",
  },
  enable: {
    verb: "Enable webhooks",
    done: "enabled",
    help: "Continues the deliveries of webhooks that were disabled.",
    right: "act",
  },
  purge: {
    verb: "Purge",
    done: "purged",
    help: "Deletes tasks for good, with their logs and artifacts. Held tasks stay. Nothing brings them back.",
    danger: true,
    right: "administer",
  },
};

export const actionNames = Object.keys(actions) as Action[];

/** tasksOf returns "1 task" or "1,234 tasks". */
export function tasksOf(n: number): string {
  return `${n.toLocaleString("en")} ${n === 1 ? "task" : "tasks"}`;
}
