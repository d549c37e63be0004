import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { get } from "../api/client";
import { Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { type Column, DataTable, rowsOf } from "../components/DataTable";
import { Dialog } from "../components/Dialog";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { JsonView } from "../components/JsonView";
import { Page } from "../components/Page";
import { Facts, Hover, Text } from "../components/Panel";
import { Time } from "../components/Time";
import { Whole } from "../components/Whole";
import { useMe } from "../layout/me";
import { count, plural } from "../lib/amounts";
import { actions, type Entry, entriesOf, who } from "../lib/audit";
import { refresh } from "../lib/refresh";
import { one, type Search } from "../lib/search";
import { visible } from "../lib/text";
import "./audit.css";

export function AuditPage() {
  const { data: me } = useMe();
  // A page that scrolls its table has a frame of its own.
  if (me?.all_tenants && me.right === "administer") return <Log />;
  return (
    <Page title="Audit">
      <Whole right="administer">{null}</Whole>
    </Page>
  );
}

const names = ["action", "task", "agent", "subject", "tenant", "method", "object", "since", "until"] as const;
type Filter = Partial<Record<(typeof names)[number], string>>;

function Log() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const [open, setOpen] = useState<Entry | undefined>();
  const [verifying, setVerifying] = useState(false);
  const filter = useMemo(() => {
    // Clients create most entries, and are seldom who a reader looks for.
    const out: Filter = Object.keys(search).length === 0 ? { method: "operator" } : {};
    for (const name of names) {
      const value = one(search, name);
      if (value) out[name] = value;
    }
    return out;
  }, [search]);
  const to = (next: Filter) => navigate({ to: "/audit", search: next });
  const list = useInfiniteQuery({
    queryKey: ["audit", filter],
    queryFn: ({ signal, pageParam }) =>
      get("/audit", { query: { ...filter, before: pageParam || undefined, limit: 100 }, signal }),
    initialPageParam: "",
    getNextPageParam: (last) => last.next,
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) > 1 ? false : refresh.later),
  });
  const entries = useMemo(() => {
    const all = entriesOf(list.data?.pages.flatMap((p) => p.rows) ?? []);
    // A row matches if one of its entries does.
    return filter.action || filter.task
      ? all.filter((e) => (!filter.action || e.action === filter.action) && (!filter.task || e.task === filter.task))
      : all;
  }, [list.data, filter]);
  const { hasNextPage, isFetching, fetchNextPage } = list;
  const pages = list.data?.pages.length ?? 0;
  useEffect(() => {
    if (entries.length === 0 && hasNextPage && !isFetching && pages < 5) fetchNextPage();
  }, [entries.length, hasNextPage, isFetching, pages, fetchNextPage]);

  const columns = useMemo<Column<Entry>[]>(
    () => [
      { id: "at", header: "When", width: "96px", narrow: true, cell: (e) => <Time at={e.at} /> },
      { id: "action", header: "Action", width: "132px", narrow: true, cell: (e) => <Action name={e.action} /> },
      {
        id: "who",
        header: "Who",
        width: "minmax(110px, 1fr)",
        narrow: true,
        cell: (e) => <span title={visible(e.credential ?? "") || undefined}>{visible(who(e))}</span>,
      },
      { id: "method", header: "By", width: "76px", cell: (e) => e.method },
      {
        id: "task",
        header: "Task",
        width: "96px",
        cell: (e) =>
          e.task && (
            <Link to="/tasks/$id" params={{ id: e.task }} className="mono">
              …{e.task.slice(-8)}
            </Link>
          ),
      },
      { id: "object", header: "Object", width: "minmax(90px, 0.8fr)", cell: (e) => e.object },
      { id: "reason", header: "Reason", width: "minmax(140px, 2fr)", cell: (e) => <Hover text={e.reason} /> },
      { id: "address", header: "From", width: "minmax(90px, 0.7fr)", cell: (e) => e.address },
    ],
    [],
  );
  const filtered = Object.keys(filter).length > 0;
  return (
    <Page title="Audit" fixed actions={<Button onClick={() => setVerifying(true)}>Verify the log</Button>}>
      <form
        className="audit-filter"
        key={JSON.stringify(filter)}
        onSubmit={(event) => {
          event.preventDefault();
          const form = new FormData(event.currentTarget);
          const next: Filter = {};
          for (const name of names) {
            const value = String(form.get(name) ?? "").trim();
            if (value || name === "method") next[name] = name === "since" || name === "until" ? timeOf(value) : value;
          }
          to(next);
        }}
      >
        <input
          className="input"
          name="action"
          list="audit-actions"
          defaultValue={filter.action}
          placeholder="Action"
          aria-label="Action"
        />
        <datalist id="audit-actions">
          {actions.map((a) => (
            <option key={a} value={a} />
          ))}
        </datalist>
        <input
          className="input audit-task"
          name="task"
          defaultValue={filter.task}
          placeholder="Task (UUID)"
          aria-label="Task"
        />
        <input
          className="input"
          name="subject"
          defaultValue={filter.subject}
          placeholder="Who"
          aria-label="Who: a subject or a credential"
        />
        <input className="input" name="agent" defaultValue={filter.agent} placeholder="Agent" aria-label="Agent" />
        <input
          className="input"
          name="object"
          defaultValue={filter.object}
          placeholder="Webhook, key or job"
          aria-label="Object: a webhook, key, worker or job"
        />
        <select className="input" name="method" defaultValue={filter.method ?? ""} aria-label="Who acts">
          <option value="">Everybody</option>
          <option value="operator">Operators</option>
          <option value="api_key">Callers with API keys</option>
          <option value="jwt">Callers with tokens</option>
          <option value="mtls">Callers with certificates</option>
          <option value="basic">Callers with passwords</option>
        </select>
        <input className="input" name="since" defaultValue={filter.since} placeholder="Since 2026-01-31" aria-label="Since" />
        <input className="input" name="until" defaultValue={filter.until} placeholder="Until 2026-02-01" aria-label="Until" />
        <Button type="submit">Filter</Button>
        {filtered && <Button onClick={() => to({ method: "" })}>Everybody’s</Button>}
      </form>
      {list.error && (
        <div className="page-body">
          <ErrorBox error={list.error} retry={() => list.refetch()} />
        </div>
      )}
      {list.data && entries.length === 0 ? (
        <div className="page-body">
          <EmptyState
            guide="audit"
            title={filtered ? "No entry matches" : "The audit log is empty"}
            action={
              hasNextPage ? (
                <Button busy={isFetching} onClick={() => fetchNextPage()}>
                  Look further back
                </Button>
              ) : undefined
            }
          >
            {hasNextPage
              ? "None among the newest entries; there are older ones."
              : filtered
                ? "Change the filter, or clear it."
                : "It records who creates, continues and cancels tasks, and what operators do."}
          </EmptyState>
        </div>
      ) : (
        <DataTable
          label="Entries of the audit log"
          columns={columns}
          rows={rowsOf(entries, (e) => e.key)}
          onOpen={setOpen}
          onVisible={(_first, last) => {
            if (last >= entries.length - 20 && hasNextPage && !isFetching) fetchNextPage();
          }}
          loading={isFetching}
          footer={!hasNextPage && entries.length > 0 && "This is the beginning of the log."}
        />
      )}
      <Dialog open={open !== undefined} onClose={() => setOpen(undefined)} title={open?.action ?? ""} wide>
        {open && <Detail entry={open} />}
      </Dialog>
      <Dialog open={verifying} onClose={() => setVerifying(false)} title="Verify the audit log">
        {verifying && <Verify />}
      </Dialog>
    </Page>
  );
}

/** timeOf completes a date to a time of the API. */
function timeOf(text: string): string {
  const at = new Date(/^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00:00` : text);
  return Number.isNaN(at.getTime()) ? text : at.toISOString();
}

function Action({ name }: { name: string }) {
  const tone = /purged|revoked|disabled|deleted|canceled|retired/.test(name)
    ? "warn"
    : /^(key|job|push\.(enabled|redelivered))/.test(name)
      ? "info"
      : "neutral";
  return <Tag tone={tone}>{name}</Tag>;
}

function Detail({ entry: e }: { entry: Entry }) {
  const facts: [string, React.ReactNode][] = [
    ["When", <Time key="at" at={e.at} />],
    ["Who", who(e)],
  ];
  if (e.reason) facts.push(["Reason", <Text key="reason">{e.reason}</Text>]);
  if (e.method) facts.push(["Authenticated by", e.credential ? `${e.method}, ${e.credential}` : e.method]);
  if (e.address) facts.push(["From", e.address]);
  if (e.task) {
    facts.push([
      "Task",
      <Link key="task" to="/tasks/$id" params={{ id: e.task }} className="mono">
        {e.task}
      </Link>,
    ]);
  }
  if (e.agent) facts.push(["Agent", e.agent]);
  if (e.object) facts.push(["Object", e.object]);
  facts.push(["Place in the log", `chain ${e.row.chain}, row ${count(e.row.n)}, written by the login ${e.row.login}`]);
  return (
    <div className="dialog-form">
      <Facts facts={facts} />
      <JsonView value={e.row} />
    </div>
  );
}

function Verify() {
  const verified = useQuery({
    queryKey: ["verify"],
    queryFn: ({ signal }) => get("/audit/verify", { signal }),
    staleTime: 0,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
  });
  if (verified.error) return <ErrorBox error={verified.error} retry={() => verified.refetch()} />;
  const v = verified.data;
  if (!v || verified.isFetching) return <p role="status">The server recomputes the hash of every row…</p>;
  return (
    <div className="dialog-form" role="status">
      {v.status === "intact" ? (
        <>
          <p>
            <Tag tone="good">intact</Tag>
          </p>
          <p>
            {plural(v.rows, "row")} in {plural(v.chains, "chain")}: each has the hash of the one before it.
          </p>
          <p className="muted">
            The owner of the database could rewrite whole chains. Against that, keep the output of{" "}
            <code>holdfast audit verify -o json</code> elsewhere, and compare it with <code>--against</code>.
          </p>
        </>
      ) : (
        <>
          <p>
            <Tag tone="bad">broken</Tag> Somebody has changed the log.
          </p>
          <ul>
            {v.broken.map((b) => (
              <li key={b.chain}>
                Chain {b.chain}, row {count(b.row)}: {b.problem}
              </li>
            ))}
          </ul>
          <p className="muted">Restore a backup beside this database and compare the rows of these chains.</p>
        </>
      )}
    </div>
  );
}
