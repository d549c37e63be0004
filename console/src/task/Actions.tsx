import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useId, useRef, useState } from "react";
import { post } from "../api/client";
import type { Acted, TaskDetail, Webhook } from "../api/schema";
import { Button } from "../components/Button";
import { Confirm } from "../components/Confirm";
import { Menu, type MenuItem } from "../components/Menu";
import type { Answer } from "../conversation/form";
import { Parts } from "../conversation/Parts";
import { partOf } from "../conversation/types";
import { useActRefusal, useMe } from "../layout/me";
import { isFinal } from "../lib/states";
import "./Actions.css";

export type Action = "cancel" | "retry" | "answer" | "hold" | "release" | "purge" | "redeliver" | "disable" | "enable";

/** said tells what came of an action. */
const said: Record<string, string> = {
  canceled: "The task is canceled.",
  requested: "Its worker was asked to end the run. The state changes when the run has ended.",
  ended: "The task had ended already. Nothing was done.",
  hurried: "The next attempt is due now.",
  sent: "The message was sent again, as a new task.",
  held: "The task is held: retention and purges leave it.",
  released: "The hold is over.",
  purged: "The task is deleted.",
  answered: "The answer was sent. The task continues.",
  due: "The webhook is due now.",
  nothing: "There was nothing to deliver.",
  disabled: "The webhook is disabled.",
  enabled: "The webhook continues.",
  none: "There was nothing to do.",
};

export interface Result {
  text: string;
  task?: string;
}

/** possible returns the actions that a task in its state allows, the most useful one first. */
export function possible(task: Pick<TaskDetail, "state" | "held_at" | "status_line" | "cancel_requested_at">): Action[] {
  const out: Action[] = [];
  if (task.state === "input-required" || task.state === "auth-required") out.push("answer");
  if (task.state === "failed" || task.state === "rejected" || task.state === "canceled") out.push("retry");
  if (["retrying", "delayed", "sleeping"].includes(task.status_line?.situation ?? "")) out.push("retry");
  if (!isFinal(task.state)) out.push("cancel");
  out.push(task.held_at ? "release" : "hold", "purge");
  return out;
}

const names: Record<Action, string> = {
  cancel: "Cancel",
  retry: "Retry",
  answer: "Answer",
  hold: "Hold",
  release: "Release",
  purge: "Purge",
  redeliver: "Redeliver",
  disable: "Disable",
  enable: "Enable",
};

/** refusal says why the operator may not do an action, or "". */
export function useRefusal(): (action: Action) => string {
  const { data: me } = useMe();
  const refusal = useActRefusal();
  return (action) =>
    refusal || (action === "purge" && me && me.right !== "administer" ? "Purging needs the scope to administer." : "");
}

/** useActions has the dialog of the actions of a task, and the result of the newest one. */
export function useActions(task: TaskDetail | undefined) {
  const [open, setOpen] = useState<{ action: Action; webhook?: Webhook; answer?: Answer[] }>();
  const [result, setResult] = useState<Result>();
  const client = useQueryClient();
  const done = (acted: Acted) => {
    setResult({ text: said[acted.outcome] ?? acted.outcome, task: acted.new_task });
    void client.invalidateQueries({ queryKey: ["task", task?.id], predicate: (q) => q.queryKey[2] !== "story" });
    void client.invalidateQueries({ queryKey: ["tasks"] });
  };
  const dialog = task && open && (
    <ActionDialog
      key={`${open.action} ${open.webhook?.config_id ?? ""}`}
      task={task}
      action={open.action}
      webhook={open.webhook}
      answer={open.answer ?? []}
      onClose={() => setOpen(undefined)}
      done={done}
    />
  );
  return {
    begin: (action: Action, webhook?: Webhook) => setOpen({ action, webhook }),
    answer: (answer: Answer[]) => setOpen({ action: "answer", answer }),
    dialog,
    result,
    dismiss: () => setResult(undefined),
  };
}

function ActionDialog({
  task,
  action,
  webhook,
  answer,
  onClose,
  done,
}: {
  task: TaskDetail;
  action: Action;
  webhook?: Webhook;
  answer: Answer[];
  onClose: () => void;
  done: (acted: Acted) => void;
}) {
  const path = { id: task.id };
  const config = webhook ? { id: task.id, config: webhook.config_id } : undefined;
  const [last, setLast] = useState(false);
  const [from, setFrom] = useState(webhook && webhook.state === "idle" ? String(webhook.delivered_seq) : "");
  // The same key for each try: an answer that was lost must not send twice.
  const key = useRef(randomKey());
  const field = useId();
  const again = isFinal(task.state);
  const details: Record<
    Action,
    { title: string; danger?: boolean; ready?: boolean; body: ReactNode; act: (reason: string) => Promise<Acted> }
  > = {
    cancel: {
      title: "Cancel the task",
      danger: true,
      body: <p>The task ends as canceled. A run that is under way is asked to end; its agent is told.</p>,
      act: (reason) => post("/tasks/{id}/cancel", { path, body: { reason } }),
    },
    retry: {
      title: again ? "Send it again as a new task" : "Run the next attempt now",
      body: again ? (
        <>
          <p>A task that has ended cannot run again. A new task gets a copy of the client’s message and refers to this one.</p>
          <fieldset className="action-choice">
            <legend>Which message</legend>
            <label>
              <input type="radio" name={field} checked={!last} onChange={() => setLast(false)} /> the first, which makes sense
              alone
            </label>
            <label>
              <input type="radio" name={field} checked={last} onChange={() => setLast(true)} /> the last
            </label>
          </fieldset>
        </>
      ) : (
        <p>The task does not wait any longer: its next attempt is due at once.</p>
      ),
      act: (reason) =>
        post("/tasks/{id}/retry", { path, body: last && again ? { reason, last } : { reason }, idempotencyKey: key.current }),
    },
    answer: {
      title: "Answer in the client’s name",
      body: <Parts parts={answer.map(partOf)} />,
      act: (reason) =>
        post("/tasks/{id}/answer", {
          path,
          body: { reason, parts: answer.map((a) => (a.kind === "text" ? { text: a.text } : { data: a.data })) },
          idempotencyKey: key.current,
        }),
    },
    hold: {
      title: "Hold the task",
      body: <p>Retention and purges leave it until it is released.</p>,
      act: (reason) => post("/tasks/{id}/hold", { path, body: { reason } }),
    },
    release: {
      title: "Release the task",
      body: <p>Retention deletes it when its period is over.</p>,
      act: (reason) => post("/tasks/{id}/release", { path, body: { reason } }),
    },
    purge: {
      title: "Purge the task",
      danger: true,
      body: (
        <p>
          The task, its log and its artifacts are deleted for good. Nobody can bring them back.{" "}
          {task.held_at && "It is held, so it stays."}
        </p>
      ),
      act: (reason) => post("/tasks/{id}/purge", { path, body: { reason } }),
    },
    redeliver: {
      title: "Deliver the webhook again",
      body: (
        <label className="dialog-field" htmlFor={field}>
          From event
          <input
            id={field}
            className="input"
            inputMode="numeric"
            pattern="[0-9]*"
            placeholder={`the first undelivered one${webhook ? `, ${webhook.delivered_seq + 1}` : ""}`}
            value={from}
            onChange={(e) => setFrom(e.target.value)}
          />
          <span className="muted">
            The receiver gets the events from this seq on, and may get some twice. Leave it empty to continue.
          </span>
        </label>
      ),
      act: (reason) =>
        post("/tasks/{id}/webhooks/{config}/redeliver", {
          path: config ?? { id: task.id, config: "" },
          body: from ? { reason, from: Number(from) } : { reason },
        }),
    },
    disable: {
      title: "Disable the webhook",
      danger: true,
      body: <p>No event is delivered until it is enabled. Nothing is lost: it then continues where it stopped.</p>,
      act: (reason) =>
        post("/tasks/{id}/webhooks/{config}/disable", { path: config ?? { id: task.id, config: "" }, body: { reason } }),
    },
    enable: {
      title: "Enable the webhook",
      body: <p>It continues where it stopped.</p>,
      act: (reason) =>
        post("/tasks/{id}/webhooks/{config}/enable", { path: config ?? { id: task.id, config: "" }, body: { reason } }),
    },
  };
  const d = details[action];
  return (
    <Confirm
      open
      onClose={onClose}
      title={d.title}
      verb={action === "cancel" ? "Cancel the task" : action === "retry" ? (again ? "Send again" : "Run now") : names[action]}
      danger={d.danger}
      ready={d.ready ?? true}
      act={async (reason) => done(await d.act(reason))}
    >
      {d.body}
    </Confirm>
  );
}

function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** rare are the actions in the menu: few tasks need them. */
const rare: Action[] = ["hold", "release", "purge"];

/** ActionButtons are the buttons of a task, and a menu of the rarer actions and of more. One that the operator may not use says why. */
export function ActionButtons({ task, begin, more }: { task: TaskDetail; begin: (action: Action) => void; more: MenuItem[] }) {
  const refused = useRefusal();
  const why = (action: Action) =>
    refused(action) ||
    (action === "purge" && task.held_at ? "The task is held. Release it first." : "") ||
    (action === "cancel" && task.cancel_requested_at ? "It was asked for already." : "");
  const all = possible(task);
  return (
    <>
      {all
        .filter((action) => !rare.includes(action))
        .map((action, i) => (
          <Button
            key={action}
            kind={i === 0 && ((action === "retry" && !task.retried_as) || action === "answer") ? "primary" : "plain"}
            disabled={why(action) !== ""}
            title={why(action) || undefined}
            onClick={() => begin(action)}
          >
            {action !== "retry"
              ? names[action]
              : !isFinal(task.state)
                ? "Run now"
                : task.retried_as
                  ? "Retry again"
                  : names.retry}
          </Button>
        ))}
      <Menu
        items={[
          ...more,
          ...all
            .filter((action) => rare.includes(action))
            .map((action) => ({
              name: (
                <>
                  {names[action]} {why(action) && <span className="muted">{why(action)}</span>}
                </>
              ),
              danger: action === "purge",
              disabled: why(action) !== "",
              run: () => begin(action),
            })),
        ]}
      >
        More
      </Menu>
    </>
  );
}

/** ResultBar says what came of the newest action. */
export function ResultBar({ result, dismiss }: { result: Result | undefined; dismiss: () => void }) {
  return (
    <div role="status" className="result" hidden={!result}>
      {result && (
        <>
          <span>
            {result.text}{" "}
            {result.task && (
              <Link to="/tasks/$id" params={{ id: result.task }}>
                Open the new task
              </Link>
            )}
          </span>
          <button type="button" className="link-button" onClick={dismiss} aria-label="Close">
            ×
          </button>
        </>
      )}
    </div>
  );
}
