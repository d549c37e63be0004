import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { get, post } from "../api/client";
import type { Attempt, Webhook } from "../api/schema";
import { Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { Confirm } from "../components/Confirm";
import { Copy } from "../components/Copy";
import { type Column, DataTable, rowsOf } from "../components/DataTable";
import { Dialog } from "../components/Dialog";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import { Choice, Facts, Hover, List, Text, Tiles } from "../components/Panel";
import { Time } from "../components/Time";
import { toast } from "../components/Toast";
import { useActRefusal, useMe } from "../layout/me";
import { count, plural, upTo } from "../lib/amounts";
import { refresh } from "../lib/refresh";
import { one, type Search } from "../lib/search";
import { visible } from "../lib/text";
import { duration } from "../lib/time";
import { Receivers } from "./receivers";
import "./webhooks.css";

const shows = [
  ["failing", "Failing"],
  ["due", "Due"],
  ["disabled", "Disabled"],
  ["all", "All"],
] as const;
type Show = (typeof shows)[number][0];

const empties: Record<Show, [title: string, text: string]> = {
  failing: [
    "No webhook fails",
    "Webhooks appear here when their receiver did not accept the last delivery. The server tries again with backoff.",
  ],
  due: ["Nothing waits for delivery", "Every receiver has what it wants."],
  disabled: [
    "No webhook is disabled",
    "The server disables a webhook whose receiver refuses it, or fails for too long; an operator may, too. Events are kept until it is enabled.",
  ],
  all: ["No task has a webhook", "A client sets one with its message, or later with CreateTaskPushNotificationConfig."],
};

export function WebhooksPage() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const show = shows.find(([id]) => id === one(search, "show"))?.[0] ?? "failing";
  const filter = { agent: one(search, "agent") || undefined, host: one(search, "host") || undefined };
  const to = (next: Search) => navigate({ to: "/webhooks", search: { ...search, ...next }, replace: true });
  const [open, setOpen] = useState<Webhook | undefined>();

  const list = useInfiniteQuery({
    queryKey: ["webhooks", show, filter],
    queryFn: ({ signal, pageParam }) =>
      get("/webhooks", {
        query: { ...filter, ...(show === "all" ? {} : { [show]: true }), before: pageParam || undefined, limit: 100 },
        signal,
      }),
    initialPageParam: "",
    getNextPageParam: (last) => last.next,
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) > 1 ? false : refresh.soon),
  });
  const rows = useMemo(() => list.data?.pages.flatMap((p) => p.webhooks) ?? [], [list.data]);
  const { hasNextPage, isFetching, fetchNextPage } = list;
  // A page passes over a bounded number of webhooks, so one may be empty and still have a next one. A few are read at once.
  const pages = list.data?.pages.length ?? 0;
  useEffect(() => {
    if (rows.length === 0 && hasNextPage && !isFetching && pages < 5) fetchNextPage();
  }, [rows.length, hasNextPage, isFetching, pages, fetchNextPage]);

  const columns = useMemo<Column<Webhook>[]>(
    () => [
      { id: "state", header: "State", width: "92px", narrow: true, cell: (w) => <PushState state={w.state} /> },
      { id: "host", header: "Receiver", width: "minmax(130px, 1.2fr)", narrow: true, cell: (w) => w.host },
      { id: "agent", header: "Agent", width: "minmax(80px, 0.7fr)", cell: (w) => w.agent },
      {
        id: "task",
        header: "Task",
        width: "minmax(90px, 0.8fr)",
        cell: (w) => (
          <Link to="/tasks/$id" params={{ id: w.id }} className="mono">
            {w.task_id === w.id ? `…${w.id.slice(-8)}` : visible(w.task_id)}
          </Link>
        ),
      },
      { id: "behind", header: "Behind", width: "64px", end: true, narrow: true, cell: (w) => count(w.behind) },
      { id: "failures", header: "Failures", width: "64px", end: true, cell: (w) => count(w.failures) },
      { id: "since", header: "Lags since", width: "96px", cell: (w) => <Time at={w.failing_since ?? w.due_since} /> },
      { id: "due", header: "Next try", width: "96px", cell: (w) => <Time at={w.disabled_at ? undefined : w.due_at} /> },
      {
        id: "error",
        header: "Why",
        width: "minmax(140px, 2fr)",
        cell: (w) => <Hover text={w.disabled_for || w.last_error} />,
      },
    ],
    [],
  );
  const [title, text] = empties[show];
  const filtered = filter.agent || filter.host;
  return (
    <Page
      title="Webhooks"
      fixed
      actions={<Choice label="Which webhooks" values={shows} value={show} onChange={(next) => to({ show: next })} />}
    >
      <div className="webhooks-head">
        <Lags host={filter.host} onHost={(host) => to({ host })} />
        <form
          className="webhooks-filter"
          onSubmit={(event) => {
            event.preventDefault();
            const form = new FormData(event.currentTarget);
            to({ agent: String(form.get("agent")) || undefined, host: String(form.get("host")) || undefined });
          }}
        >
          <input
            key={`a${filter.agent}`}
            className="input"
            name="agent"
            defaultValue={filter.agent}
            placeholder="Agent"
            aria-label="Agent"
          />
          <input
            key={`h${filter.host}`}
            className="input"
            name="host"
            defaultValue={filter.host}
            placeholder="Receiver, as example.com:443"
            aria-label="Receiver: host and port"
          />
          <Button type="submit">Filter</Button>
          {filtered && <Button onClick={() => to({ agent: undefined, host: undefined })}>Clear</Button>}
        </form>
        {list.error && <ErrorBox error={list.error} retry={() => list.refetch()} />}
      </div>
      {list.data && rows.length === 0 ? (
        <div className="page-body">
          <EmptyState
            guide="webhooks"
            title={filtered ? "No webhook matches" : title}
            action={
              hasNextPage ? (
                <Button busy={isFetching} onClick={() => fetchNextPage()}>
                  Look further back
                </Button>
              ) : filtered ? (
                <Button onClick={() => to({ agent: undefined, host: undefined })}>Show those of all receivers</Button>
              ) : undefined
            }
          >
            {hasNextPage
              ? "None among the newest webhooks; there are older ones."
              : filtered
                ? "No such webhook has this state."
                : text}
          </EmptyState>
        </div>
      ) : (
        <DataTable
          label="Webhooks"
          columns={columns}
          rows={rowsOf(rows, (w) => `${w.id}/${w.config_id}`)}
          loading={list.isPending}
          onOpen={setOpen}
          footer={
            hasNextPage && (
              <Button busy={isFetching} onClick={() => fetchNextPage()}>
                Older ones
              </Button>
            )
          }
        />
      )}
      <Dialog open={open !== undefined} onClose={() => setOpen(undefined)} title="Webhook" wide>
        {open && <Detail webhook={rows.find((w) => w.id === open.id && w.config_id === open.config_id) ?? open} />}
      </Dialog>
    </Page>
  );
}

/** Lags says how many webhooks lag, and which receivers have most of them. */
function Lags({ host, onHost }: { host?: string; onHost: (host: string | undefined) => void }) {
  const { data: me } = useMe();
  const whole = me?.all_tenants === true;
  const lags = useQuery({
    queryKey: ["lags"],
    queryFn: ({ signal }) => get("/webhooks/lags", { signal }),
    refetchInterval: refresh.soon,
    enabled: whole,
  });
  if (!whole) return null;
  if (lags.error) return <ErrorBox error={lags.error} retry={() => lags.refetch()} title="The summary could not be read" />;
  const l = lags.data;
  if (!l) return null;
  return (
    <>
      <Tiles
        tiles={[
          { name: "Due", value: upTo(l.due, l.bound), note: "have something to deliver" },
          {
            name: "Oldest waits",
            value: l.oldest_seconds >= 1 ? duration(l.oldest_seconds * 1000) : "–",
            tone: l.oldest_seconds > 300 ? "warn" : undefined,
          },
          {
            name: "Failing",
            value: upTo(l.failing, l.bound),
            note: "and not disabled",
            tone: l.failing > 0 ? "bad" : undefined,
          },
          { name: "Disabled", value: upTo(l.disabled, l.bound), note: "deliver nothing" },
        ]}
      />
      <Receivers hosts={l.hosts} chosen={host} onHost={onHost} />
    </>
  );
}

function PushState({ state }: { state: Webhook["state"] }) {
  const tones = { disabled: "neutral", delivering: "info", failing: "bad", due: "warn", idle: "good" } as const;
  return <Tag tone={tones[state]}>{state}</Tag>;
}

type Action = "redeliver" | "disable" | "enable";

function Detail({ webhook: w }: { webhook: Webhook }) {
  const [acting, setActing] = useState<Action | undefined>();
  const [from, setFrom] = useState("");
  const refusal = useActRefusal();
  const client = useQueryClient();
  const attempts = useQuery({
    queryKey: ["attempts", w.id, w.config_id],
    queryFn: ({ signal }) =>
      get("/tasks/{id}/attempts", { path: { id: w.id }, query: { config: w.config_id, limit: 20 }, signal }),
    refetchInterval: refresh.soon,
  });
  const act = async (reason: string) => {
    const path = { id: w.id, config: w.config_id };
    const done =
      acting === "redeliver"
        ? await post("/tasks/{id}/webhooks/{config}/redeliver", {
            path,
            body: { reason, ...(from ? { from: Number(from) } : {}) },
          })
        : acting === "disable"
          ? await post("/tasks/{id}/webhooks/{config}/disable", { path, body: { reason } })
          : await post("/tasks/{id}/webhooks/{config}/enable", { path, body: { reason } });
    toast(outcomes[done.outcome] ?? done.outcome);
    for (const key of ["webhooks", "attempts", "lags"]) await client.invalidateQueries({ queryKey: [key] });
  };
  const titles: Record<Action, string> = {
    redeliver: "Deliver again?",
    disable: "Disable the webhook?",
    enable: "Enable the webhook?",
  };
  return (
    <div className="webhook">
      <Facts
        facts={[
          [
            "URL",
            <span key="url">
              <code>{visible(w.url)}</code> <Copy text={w.url} label="Copy the URL" />
            </span>,
          ],
          ["State", <PushState key="state" state={w.state} />],
          [
            "Task",
            <Link key="task" to="/tasks/$id" params={{ id: w.id }} className="mono">
              {visible(w.task_id)}
            </Link>,
          ],
          ["Webhook id", <code key="id">{visible(w.config_id)}</code>],
          [
            "Delivered",
            w.delivered_seq > 0
              ? `up to event ${w.delivered_seq}; ${plural(w.behind, "event")} behind`
              : `nothing yet; ${plural(w.behind, "event")} behind`,
          ],
          ...(w.disabled_for
            ? ([["Disabled because", <Text key="for">{w.disabled_for}</Text>]] as [string, React.ReactNode][])
            : []),
          ...(w.last_error ? ([["Last error", <Text key="error">{w.last_error}</Text>]] as [string, React.ReactNode][]) : []),
        ]}
      />
      <div className="webhook-actions">
        <Button disabled={refusal !== ""} title={refusal || undefined} onClick={() => setActing("redeliver")}>
          Redeliver
        </Button>
        {w.disabled_at ? (
          <Button kind="primary" disabled={refusal !== ""} title={refusal || undefined} onClick={() => setActing("enable")}>
            Enable
          </Button>
        ) : (
          <Button disabled={refusal !== ""} title={refusal || undefined} onClick={() => setActing("disable")}>
            Disable
          </Button>
        )}
      </div>
      <h3>Attempts</h3>
      {attempts.error && <ErrorBox error={attempts.error} retry={() => attempts.refetch()} />}
      {attempts.data?.attempts.length === 0 && <p className="muted">None yet, or retention has removed them.</p>}
      {(attempts.data?.attempts.length ?? 0) > 0 && (
        <List<Attempt>
          label="Attempts to deliver"
          rows={attempts.data?.attempts ?? []}
          id={(a) => a.at + a.delivery_id + a.attempt}
          fields={[
            { name: "When", cell: (a) => <Time at={a.at} /> },
            { name: "Events", cell: (a) => (a.from_seq === a.to_seq ? a.from_seq : `${a.from_seq}–${a.to_seq}`) },
            {
              name: "Outcome",
              cell: (a) => <Tag tone={a.error ? "bad" : "good"}>{a.status ? `${a.class} ${a.status}` : a.class}</Tag>,
            },
            { name: "Took", end: true, cell: (a) => duration(a.took_ms) },
            { name: "Error", wrap: true, cell: (a) => (a.error ? <Text>{a.error}</Text> : "") },
          ]}
        />
      )}
      <Confirm
        open={acting !== undefined}
        onClose={() => setActing(undefined)}
        title={acting ? titles[acting] : ""}
        verb={acting === "redeliver" ? "Redeliver" : acting === "disable" ? "Disable" : "Enable"}
        danger={acting === "disable"}
        ready={/^\d*$/.test(from)}
        act={act}
      >
        {acting === "redeliver" && (
          <>
            <p>
              The server delivers what <b>{visible(w.host ?? "")}</b> does not have yet at once, without waiting for the
              backoff. A receiver must bear repeated events.
              {w.disabled_at && " The webhook is disabled: nothing is sent before you enable it."}
            </p>
            <label className="dialog-field">
              From event
              <input
                className="input"
                inputMode="numeric"
                value={from}
                onChange={(event) => setFrom(event.target.value.trim())}
                placeholder={`${w.delivered_seq + 1}, the first undelivered one`}
              />
              <span className="muted">An earlier one delivers again from there on; 1 is the first event.</span>
            </label>
          </>
        )}
        {acting === "disable" && (
          <p>
            Nothing more is delivered to <b>{visible(w.host ?? "")}</b> for this task. Its events are kept, and delivered when
            you enable it again. The client can read your reason.
          </p>
        )}
        {acting === "enable" && (
          <p>
            Deliveries go on where they stopped: {plural(w.behind, "event")} for <b>{visible(w.host ?? "")}</b>.
          </p>
        )}
      </Confirm>
    </div>
  );
}

const outcomes: Record<string, string> = {
  due: "The delivery begins now",
  nothing: "There is nothing to deliver",
  disabled: "The webhook is disabled",
  enabled: "The webhook is enabled; there is nothing to deliver",
};
