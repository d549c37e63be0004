import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import type { TaskDetail, Webhook } from "../api/schema";
import { Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Text } from "../components/Panel";
import { Scroll } from "../components/Scroll";
import { Time } from "../components/Time";
import { SeqLink } from "../conversation/SeqLink";
import { isFinal } from "../lib/states";
import { line } from "../lib/text";
import { duration } from "../lib/time";
import { type Action, useRefusal } from "./Actions";
import "./Webhooks.css";

export function useWebhooks(task: TaskDetail) {
  return useInfiniteQuery({
    queryKey: ["task", task.id, "webhooks"],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      get("/tasks/{id}/webhooks", { path: { id: task.id }, query: { before: pageParam, limit: 50 }, signal }),
    getNextPageParam: (last) => last.next,
    // A delivery changes no event of the log.
    refetchInterval: (query) =>
      query.state.data?.pages.some((p) => p.webhooks.some((w) => w.state !== "idle" && w.state !== "disabled")) ||
      !isFinal(task.state)
        ? 3000
        : false,
  });
}

const tones = { disabled: "warn", delivering: "info", failing: "bad", due: "info", idle: "good" } as const;
const says = {
  disabled: "disabled",
  delivering: "delivers now",
  failing: "fails",
  due: "due",
  idle: "delivered",
} as const;

/** failing counts the webhooks that need somebody. */
export function failing(webhooks: readonly Webhook[]): number {
  return webhooks.filter((w) => w.state === "failing" || w.state === "disabled").length;
}

export function WebhooksView({
  task,
  webhooks,
  begin,
  toSeq,
}: {
  task: TaskDetail;
  webhooks: ReturnType<typeof useWebhooks>;
  begin: (action: Action, webhook: Webhook) => void;
  toSeq: (seq: number) => void;
}) {
  const list = webhooks.data?.pages.flatMap((p) => p.webhooks) ?? [];
  if (webhooks.error && list.length === 0) {
    return <ErrorBox error={webhooks.error} retry={() => webhooks.refetch()} title="The webhooks cannot be read" />;
  }
  if (webhooks.isSuccess && list.length === 0) {
    return (
      <EmptyState guide="webhooks" title="No webhooks">
        A client that gives a push notification URL gets the events of its task by HTTP. The client of this task gave none.
      </EmptyState>
    );
  }
  return (
    <div className="task-webhooks">
      {list.map((w) => (
        <Card key={w.config_id} task={task} webhook={w} begin={begin} toSeq={toSeq} />
      ))}
      {webhooks.hasNextPage && (
        <Button busy={webhooks.isFetchingNextPage} onClick={() => webhooks.fetchNextPage()}>
          More webhooks
        </Button>
      )}
    </div>
  );
}

function Card({
  task,
  webhook: w,
  begin,
  toSeq,
}: {
  task: TaskDetail;
  webhook: Webhook;
  begin: (action: Action, webhook: Webhook) => void;
  toSeq: (seq: number) => void;
}) {
  const refused = useRefusal();
  const why = refused("redeliver");
  const [limit, setLimit] = useState(10);
  const attempts = useQuery({
    queryKey: ["task", task.id, "attempts", w.config_id, limit, w.delivered_seq, w.failures, w.state],
    queryFn: ({ signal }) =>
      get("/tasks/{id}/attempts", { path: { id: task.id }, query: { config: w.config_id, limit }, signal }),
    placeholderData: (old) => old,
  });
  return (
    <section className="task-webhook" aria-label={`Webhook ${line(w.config_id, 60)}`}>
      <header>
        <Tag tone={tones[w.state]}>{says[w.state]}</Tag>
        <strong className="task-webhook-url">{line(w.url, 300)}</strong>
        <span className="task-webhook-buttons">
          <Button
            disabled={why !== "" || w.state === "disabled"}
            title={why || (w.state === "disabled" ? "Enable it first." : undefined)}
            onClick={() => begin("redeliver", w)}
          >
            Redeliver
          </Button>
          {w.state === "disabled" ? (
            <Button kind="primary" disabled={why !== ""} title={why || undefined} onClick={() => begin("enable", w)}>
              Enable
            </Button>
          ) : (
            <Button disabled={why !== ""} title={why || undefined} onClick={() => begin("disable", w)}>
              Disable
            </Button>
          )}
        </span>
      </header>
      <p className="muted task-webhook-facts">
        <span className="mono">{line(w.config_id, 60)}</span>
        {w.delivered_seq > 0 ? (
          <span>
            delivered up to <SeqLink seq={w.delivered_seq} toSeq={toSeq} />
          </span>
        ) : (
          <span>nothing delivered yet</span>
        )}
        {w.behind > 0 && <span>{w.behind.toLocaleString("en")} events behind</span>}
        {w.failing_since && (
          <span>
            fails since <Time at={w.failing_since} />
          </span>
        )}
        {w.state !== "idle" && w.due_at && (
          <span>
            next try <Time at={w.due_at} />
          </span>
        )}
      </p>
      {w.last_error && w.state !== "idle" && (
        <div className="task-webhook-error">
          <Text>{w.last_error}</Text>
        </div>
      )}
      {w.disabled_at && (
        <p className="task-webhook-error">
          Disabled <Time at={w.disabled_at} />
          {w.disabled_for ? `: ${line(w.disabled_for, 300)}` : ""}
        </p>
      )}
      {attempts.error && (
        <ErrorBox error={attempts.error} retry={() => attempts.refetch()} title="The attempts cannot be read" />
      )}
      {attempts.data && attempts.data.attempts.length > 0 && (
        <Scroll className="runs" label="Attempts to deliver">
          <table>
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">Events</th>
                <th scope="col">Try</th>
                <th scope="col">Outcome</th>
                <th scope="col">Status</th>
                <th scope="col">Took</th>
                <th scope="col">Why</th>
              </tr>
            </thead>
            <tbody>
              {attempts.data.attempts.map((a) => (
                <tr key={`${a.delivery_id} ${a.attempt} ${a.at}`}>
                  <td>
                    <Time at={a.at} />
                  </td>
                  <td>{a.from_seq === a.to_seq ? a.from_seq : `${a.from_seq}–${a.to_seq}`}</td>
                  <td>{a.attempt}</td>
                  <td>
                    <Tag tone={a.class === "delivered" ? "good" : "bad"}>{line(a.class, 40)}</Tag>
                  </td>
                  <td>{a.status ?? "–"}</td>
                  <td>{duration(a.took_ms)}</td>
                  <td className="runs-why">
                    {a.error === w.last_error && w.state !== "idle" && a.error ? (
                      <span className="muted">the error above</span>
                    ) : (
                      a.error && <Text>{a.error}</Text>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {attempts.data && attempts.data.attempts.length === 0 && <p className="muted">No attempt to deliver yet.</p>}
      {attempts.data && attempts.data.attempts.length >= limit && limit < 500 && (
        <button type="button" className="link-button" onClick={() => setLimit(Math.min(500, limit * 5))}>
          older attempts
        </button>
      )}
    </section>
  );
}
