import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { get, post } from "../api/client";
import type { Job, Task } from "../api/schema";
import { useActRefusal, useMe } from "../layout/me";
import { type Action, actionNames, actions, tasksOf } from "../lib/actions";
import { each } from "../lib/each";
import { describe, isPlain, type TaskFilter, toJob } from "../lib/filter";
import { Button } from "./Button";
import { Confirm } from "./Confirm";
import { Dialog } from "./Dialog";
import { ErrorBox } from "./ErrorBox";
import { Menu } from "./Menu";
import { Progress } from "./Progress";
import { Reason } from "./Reason";
import { toast } from "./Toast";
import "./BulkBar.css";

/** Selection is some tasks, or all that a filter selects. */
export interface Selection {
  tasks: ReadonlyMap<string, Task>;
  all: boolean;
  filter: TaskFilter;
}

/** BulkBar acts on the selection. */
export function BulkBar({ selection, onAll, onClear }: { selection: Selection; onAll: () => void; onClear: () => void }) {
  const { data: me } = useMe();
  const refusal = useActRefusal();
  const [chosen, setChosen] = useState<Action>();
  const { tasks, all, filter } = selection;
  const allowed = actionNames.filter((name) => actions[name].right !== "administer" || me?.right === "administer");
  const rest = allowed.filter((name) => name !== "retry" && name !== "cancel");
  return (
    <>
      <section className="bulk" aria-label="Selection">
        <strong>{all ? "All that match" : `${tasks.size.toLocaleString("en")} selected`}</strong>
        {refusal ? (
          <span className="muted">{refusal}</span>
        ) : (
          <>
            <Button onClick={() => setChosen("retry")}>Retry</Button>
            <Button onClick={() => setChosen("cancel")}>Cancel</Button>
            <Menu
              items={rest.map((name) => ({
                name: actions[name].verb,
                danger: actions[name].danger,
                run: () => setChosen(name),
              }))}
            >
              More
            </Menu>
            {!all && isPlain(filter) && (
              <Button kind="ghost" onClick={onAll}>
                Select all that match
              </Button>
            )}
          </>
        )}
        <Button kind="ghost" aria-label="Clear the selection" onClick={onClear}>
          ×
        </Button>
      </section>
      {all ? (
        <JobDialog action={chosen} filter={filter} onClose={() => setChosen(undefined)} />
      ) : (
        <EachDialog
          action={chosen}
          tasks={tasks}
          onClose={(done) => {
            setChosen(undefined);
            if (done) onClear();
          }}
        />
      )}
    </>
  );
}

/** EachDialog acts on some tasks, one request each. */
function EachDialog({
  action,
  tasks,
  onClose,
}: {
  action: Action | undefined;
  tasks: ReadonlyMap<string, Task>;
  onClose: (done: boolean) => void;
}) {
  const [shown, setShown] = useState<Action>("retry");
  const [done, setDone] = useState(0);
  if (action && action !== shown) setShown(action);
  const text = actions[shown];
  const single = shown === "redeliver" || shown === "disable" || shown === "enable";
  return (
    <Confirm
      open={action !== undefined}
      onClose={() => onClose(false)}
      title={`${text.verb}: ${tasksOf(tasks.size)}`}
      verb={`${text.verb} (${tasks.size})`}
      danger={text.danger}
      act={async (reason) => {
        setDone(0);
        await each(
          [...tasks.values()],
          (task) => task.task_id,
          (task) => actOn(shown, task, reason).finally(() => setDone((n) => n + 1)),
        );
        toast(`${tasksOf(tasks.size)} ${text.done}`);
        onClose(true);
      }}
    >
      <p>{text.help}</p>
      {single && <p className="muted">It applies to every webhook of the tasks.</p>}
      {done > 0 && <Progress label="Progress" total={tasks.size} parts={[{ name: "done", value: done, tone: "good" }]} />}
    </Confirm>
  );
}

async function actOn(action: Action, task: Task, reason: string): Promise<void> {
  const path = { id: task.id };
  switch (action) {
    case "redeliver":
    case "disable":
    case "enable": {
      const { webhooks } = await get("/tasks/{id}/webhooks", { path, query: { limit: 500 } });
      for (const hook of webhooks) {
        await post(`/tasks/{id}/webhooks/{config}/${action}`, {
          path: { id: task.id, config: hook.config_id },
          body: { reason },
        });
      }
      return;
    }
    case "retry":
      await post("/tasks/{id}/retry", { path, body: { reason }, idempotencyKey: crypto.randomUUID?.() });
      return;
    default:
      await post(`/tasks/{id}/${action}`, { path, body: { reason } });
  }
}

/** JobDialog acts on all tasks of a filter, by a job of the server: first it counts, then it asks, then it acts. */
function JobDialog({ action, filter, onClose }: { action: Action | undefined; filter: TaskFilter; onClose: () => void }) {
  const [shown, setShown] = useState<Action>("retry");
  if (action && action !== shown) setShown(action);
  return (
    <Dialog open={action !== undefined} onClose={onClose} title={`${actions[shown].verb}: all tasks that match`}>
      <JobForm key={shown} action={shown} filter={filter} onClose={onClose} />
    </Dialog>
  );
}

const over = (job: Job | undefined) => job?.state === "done" || job?.state === "canceled";

function JobForm({ action, filter, onClose }: { action: Action; filter: TaskFilter; onClose: () => void }) {
  const navigate = useNavigate();
  const text = actions[action];
  // The same filter for both jobs, although "2h" means another time a minute later.
  const [selects] = useState(() => toJob(filter, Date.now()));
  const [reason, setReason] = useState("");
  const [last, setLast] = useState(false);
  const [typed, setTyped] = useState("");
  const [trial, setTrial] = useState<Job>();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const { data: seen, error: lost } = useQuery({
    queryKey: ["job", trial?.id],
    enabled: trial !== undefined,
    queryFn: ({ signal }) => get("/jobs/{id}", { path: { id: trial?.id ?? "" }, signal }),
    refetchInterval: (query) => (over(query.state.data) ? false : 500),
  });
  const job = seen ?? trial;
  const counted = over(job);
  const matched = job?.matched ?? 0;

  const create = async (dry: boolean) => {
    setBusy(true);
    setError(undefined);
    try {
      const made = await post("/jobs", {
        body: {
          action,
          reason: reason.trim(),
          filter: selects,
          ...(dry ? { dry_run: true } : {}),
          ...(last ? { last: true } : {}),
        },
      });
      if (dry) setTrial(made);
      else {
        onClose();
        toast("The job has begun", "The replicas go on with it when you leave.");
        void navigate({ to: "/jobs/$id", params: { id: made.id } });
      }
    } catch (failed) {
      setError(failed);
    }
    setBusy(false);
  };
  const sure = action !== "purge" || typed === String(matched);

  return (
    <form
      className="dialog-form"
      onSubmit={(event) => {
        event.preventDefault();
        void create(!counted);
      }}
    >
      <p>{text.help}</p>
      <p className="bulk-filter">
        <span className="muted">Selects </span>
        {describe(filter)}
      </p>
      <Reason value={reason} onChange={setReason} />
      {action === "retry" && (
        <label className="bulk-option">
          <input type="checkbox" checked={last} onChange={(event) => setLast(event.target.checked)} />
          Send the last message of the client instead of the first
        </label>
      )}
      {job && (
        <div className="bulk-trial" role="status">
          {counted ? (
            <>
              <strong>
                {matched === 0
                  ? "No task matches now."
                  : `${text.verb} ${matched === 1 ? "this" : "these"} ${tasksOf(matched)}?`}
              </strong>
              {matched > 0 && (
                <p className="muted">
                  The dry run has counted them and done nothing. The job acts on those that still match when it reaches them,
                  the newest first, and skips those with nothing to do.
                </p>
              )}
            </>
          ) : (
            <>
              <strong>Counting: {tasksOf(matched)} so far</strong>
              <Progress label="Dry run" parts={[]} />
            </>
          )}
        </div>
      )}
      {counted && action === "purge" && matched > 0 && (
        <label className="dialog-field">
          Type {matched} to purge them
          <input
            className="input"
            inputMode="numeric"
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
            autoComplete="off"
          />
        </label>
      )}
      {(error ?? lost) != null && <ErrorBox error={error ?? lost} />}
      <div className="dialog-buttons">
        <Button onClick={onClose}>Back</Button>
        {counted ? (
          matched > 0 && (
            <Button type="submit" kind={text.danger ? "danger" : "primary"} busy={busy} disabled={!sure}>
              {text.verb} {tasksOf(matched)}
            </Button>
          )
        ) : (
          <Button type="submit" kind="primary" busy={busy || job !== undefined}>
            Dry run
          </Button>
        )}
      </div>
    </form>
  );
}
