import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useId, useMemo, useState } from "react";
import { get, post } from "../api/client";
import type { Key } from "../api/schema";
import { Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { Confirm } from "../components/Confirm";
import { Copy } from "../components/Copy";
import { type Column, DataTable, rowsOf } from "../components/DataTable";
import { Dialog } from "../components/Dialog";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import { Choice, Hover } from "../components/Panel";
import { Time } from "../components/Time";
import { toast } from "../components/Toast";
import { Needs } from "../components/Whole";
import { useMe } from "../layout/me";
import { refresh } from "../lib/refresh";
import { one, type Search } from "../lib/search";
import { visible } from "../lib/text";
import { Sessions } from "./sessions";
import "./keys.css";

export function KeysPage() {
  const { data: me, error } = useMe();
  if (error) {
    return (
      <Page title="API keys">
        <ErrorBox error={error} />
      </Page>
    );
  }
  if (me && me.right !== "administer") {
    return (
      <Page title="API keys">
        <Needs right="administer" />
      </Page>
    );
  }
  return <Access />;
}

const kinds = [
  ["keys", "API keys"],
  ["sessions", "Sessions"],
] as const;

/** Access is who comes in: with an API key, or with the session of a browser. */
function Access() {
  const search = useSearch({ strict: false }) as Search;
  const navigate = useNavigate();
  const shown = one(search, "show") === "sessions" ? "sessions" : "keys";
  const choice = (
    <Choice
      label="What to show"
      values={kinds}
      value={shown}
      onChange={(next) => navigate({ to: "/keys", search: next === "keys" ? {} : { show: next }, replace: true })}
    />
  );
  if (shown === "keys") return <Keys choice={choice} />;
  return (
    <Page title="API keys" name="Sessions" fixed actions={choice}>
      <Sessions />
    </Page>
  );
}

function Keys({ choice }: { choice: ReactNode }) {
  const { data: me } = useMe();
  const client = useQueryClient();
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState<Key | undefined>();
  const [revoking, setRevoking] = useState<Key | undefined>();
  const list = useInfiniteQuery({
    queryKey: ["keys"],
    queryFn: ({ signal, pageParam }) => get("/keys", { query: { before: pageParam || undefined, limit: 100 }, signal }),
    initialPageParam: "",
    getNextPageParam: (last) => last.next,
    refetchInterval: (query) => ((query.state.data?.pages.length ?? 0) > 1 ? false : refresh.seldom),
  });
  const keys = useMemo(() => list.data?.pages.flatMap((p) => p.keys) ?? [], [list.data]);
  const accepted = list.data?.pages[0]?.accepted ?? true;
  const refusal = me?.read_only ?? "";
  const { hasNextPage, isFetching, fetchNextPage } = list;
  const columns = useMemo<Column<Key>[]>(
    () => [
      {
        id: "state",
        header: "State",
        width: "72px",
        narrow: true,
        cell: (k) => <Tag tone={k.state === "valid" ? "good" : "neutral"}>{k.state}</Tag>,
      },
      { id: "name", header: "Name", width: "minmax(100px, 1.2fr)", cell: (k) => k.name || <span className="muted">–</span> },
      {
        id: "subject",
        header: "Acts as",
        width: "minmax(100px, 1fr)",
        narrow: true,
        cell: (k) => (k.tenant ? `${k.subject} (${k.tenant})` : k.subject),
      },
      {
        id: "scopes",
        header: "Scopes",
        width: "minmax(120px, 1.6fr)",
        cell: (k) => <Hover text={k.scopes.join(" ") || "none"} />,
      },
      { id: "created", header: "Created", width: "92px", cell: (k) => <Time at={k.created_at} /> },
      {
        id: "expires",
        header: "Expires",
        width: "92px",
        cell: (k) => (k.expires_at ? <Time at={k.expires_at} /> : <span className="muted">never</span>),
      },
      {
        id: "used",
        header: "Used",
        width: "92px",
        cell: (k) => (k.last_used_at ? <Time at={k.last_used_at} /> : <span className="muted">not yet</span>),
      },
      { id: "id", header: "Id", width: "148px", cell: (k) => <code>{k.id}</code> },
      {
        id: "revoke",
        header: <span className="visually-hidden">Actions</span>,
        width: "76px",
        end: true,
        narrow: true,
        cell: (k) =>
          k.state === "valid" && (
            <Button kind="ghost" onClick={() => setRevoking(k)} disabled={refusal !== ""} title={refusal || undefined}>
              Revoke
            </Button>
          ),
      },
    ],
    [refusal],
  );
  const create = (
    <Button kind="primary" onClick={() => setCreating(true)} disabled={refusal !== ""} title={refusal || undefined}>
      Create a key
    </Button>
  );
  return (
    <Page
      title="API keys"
      fixed
      actions={
        <>
          {choice}
          {create}
        </>
      }
    >
      {list.error && (
        <div className="page-body">
          <ErrorBox error={list.error} retry={() => list.refetch()} />
        </div>
      )}
      {!accepted && (
        <div className="page-body keys-note">
          <div className="notice">
            <strong>This server accepts no API keys</strong>
            <span className="muted">
              Add a scheme of kind <code>api_key</code> to <code>auth.schemes</code>; until then a key opens nothing.
            </span>
          </div>
        </div>
      )}
      {list.data && keys.length === 0 ? (
        <div className="page-body">
          <EmptyState
            guide="keys"
            title="There is no API key"
            command="holdfast api-keys create --subject alice --scope weather:use"
          >
            Clients and scripts authenticate with keys. A key acts as a subject of a tenant, and may do what its scopes allow.
            Create one here, or in a terminal.
          </EmptyState>
        </div>
      ) : (
        <DataTable
          label="API keys"
          columns={columns}
          rows={rowsOf(keys, (k) => k.id)}
          loading={list.isPending}
          footer={
            hasNextPage && (
              <Button busy={isFetching} onClick={() => fetchNextPage()}>
                Older ones
              </Button>
            )
          }
        />
      )}
      <Create
        open={creating}
        onClose={() => setCreating(false)}
        tenant={me?.all_tenants === false ? me.tenant : undefined}
        onMade={(key) => {
          setMade(key);
          client.invalidateQueries({ queryKey: ["keys"] });
        }}
      />
      <Dialog open={made !== undefined} onClose={() => setMade(undefined)} title="Store the key now">
        {made && (
          <div className="dialog-form">
            <p>
              This is the only time that the key is shown: the server keeps a hash of it. It acts as{" "}
              <b>{visible(made.subject)}</b>
              {made.tenant && <> of the tenant {visible(made.tenant)}</>}.
            </p>
            <div className="keys-secret">
              <code data-testid="secret">{made.key}</code>
              <Copy text={made.key ?? ""} label="Copy the key" />
            </div>
            <div className="dialog-buttons">
              <Button kind="primary" onClick={() => setMade(undefined)}>
                I have stored it
              </Button>
            </div>
          </div>
        )}
      </Dialog>
      <Confirm
        open={revoking !== undefined}
        onClose={() => setRevoking(undefined)}
        title={`Revoke the key of ${visible(revoking?.subject ?? "")}?`}
        verb="Revoke the key"
        danger
        act={async (reason) => {
          await post("/keys/{id}/revoke", { path: { id: revoking?.id ?? "" }, body: { reason } });
          toast("The key is revoked", "Servers refuse it within ten seconds.");
          await client.invalidateQueries({ queryKey: ["keys"] });
        }}
      >
        <p>
          Requests with the key {revoking?.name && <b>{visible(revoking.name)} </b>}(<code>{revoking?.id}</code>) get 401, and
          streams that it opened end. This cannot be undone.
        </p>
      </Confirm>
    </Page>
  );
}

const lives = [
  ["0", "never"],
  [String(86_400), "in a day"],
  [String(30 * 86_400), "in 30 days"],
  [String(90 * 86_400), "in 90 days"],
  [String(365 * 86_400), "in a year"],
] as const;

function Create({
  open,
  onClose,
  tenant,
  onMade,
}: {
  open: boolean;
  onClose: () => void;
  tenant?: string;
  onMade: (key: Key) => void;
}) {
  const [subject, setSubject] = useState("");
  const [name, setName] = useState("");
  const [of, setOf] = useState("");
  const [scopes, setScopes] = useState("");
  const [life, setLife] = useState<string>(String(90 * 86_400));
  const id = useId();
  return (
    <Confirm
      open={open}
      onClose={onClose}
      title="Create an API key"
      verb="Create the key"
      ready={subject.trim() !== ""}
      act={async (reason) => {
        const key = await post("/keys", {
          body: {
            reason,
            subject: subject.trim(),
            name: name.trim() || undefined,
            tenant: tenant === undefined ? of.trim() : undefined,
            scopes: scopes.split(/\s+/).filter((s) => s !== ""),
            expires_in_seconds: Number(life),
          },
        });
        setSubject("");
        setName("");
        setOf("");
        setScopes("");
        onMade(key);
      }}
    >
      <div className="keys-fields">
        <label className="dialog-field" htmlFor={`${id}s`}>
          Acts as
          <input
            id={`${id}s`}
            className="input"
            value={subject}
            onChange={(e) => setSubject(e.target.value)}
            placeholder="alice"
            maxLength={255}
            required
            autoComplete="off"
          />
        </label>
        {tenant === undefined ? (
          <label className="dialog-field" htmlFor={`${id}t`}>
            Tenant
            <input
              id={`${id}t`}
              className="input"
              value={of}
              onChange={(e) => setOf(e.target.value)}
              placeholder="none"
              maxLength={255}
              autoComplete="off"
            />
          </label>
        ) : (
          <div className="dialog-field">
            Tenant
            <span>{tenant || "none"}</span>
          </div>
        )}
        <label className="dialog-field" htmlFor={`${id}n`}>
          Name
          <input
            id={`${id}n`}
            className="input"
            value={name}
            onChange={(e) => setName(e.target.value)}
            placeholder="build server"
            maxLength={255}
            autoComplete="off"
          />
        </label>
        <label className="dialog-field" htmlFor={`${id}l`}>
          Expires
          <select id={`${id}l`} className="input" value={life} onChange={(e) => setLife(e.target.value)}>
            {lives.map(([value, text]) => (
              <option key={value} value={value}>
                {text}
              </option>
            ))}
          </select>
        </label>
      </div>
      <label className="dialog-field" htmlFor={`${id}c`}>
        Scopes
        <input
          id={`${id}c`}
          className="input"
          value={scopes}
          onChange={(e) => setScopes(e.target.value)}
          placeholder="weather:use admin:view"
          autoComplete="off"
        />
        <span className="muted">Separated by spaces. Without a scope it may only use agents that need none.</span>
      </label>
    </Confirm>
  );
}
