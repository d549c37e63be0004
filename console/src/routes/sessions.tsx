import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { get, post } from "../api/client";
import type { Session } from "../api/schema";
import { Button } from "../components/Button";
import { Confirm } from "../components/Confirm";
import { type Column, DataTable, rowsOf } from "../components/DataTable";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Hover } from "../components/Panel";
import { Time } from "../components/Time";
import { toast } from "../components/Toast";
import { useMe } from "../layout/me";
import { refresh } from "../lib/refresh";
import { visible } from "../lib/text";

/** Sessions are the browsers that are signed in. */
export function Sessions() {
  const { data: me } = useMe();
  const client = useQueryClient();
  const [ending, setEnding] = useState<Session | undefined>();
  const list = useQuery({
    queryKey: ["sessions"],
    queryFn: ({ signal }) => get("/sessions", { query: { limit: 500 }, signal }),
    refetchInterval: refresh.seldom,
  });
  const refusal = me?.read_only ?? "";
  const columns = useMemo<Column<Session>[]>(
    () => [
      {
        id: "subject",
        header: "Who",
        width: "minmax(110px, 1.2fr)",
        narrow: true,
        cell: (s) => <Hover text={s.tenant ? `${s.subject} (${s.tenant})` : s.subject} />,
      },
      {
        id: "scheme",
        header: "Signed in by",
        width: "minmax(90px, 0.8fr)",
        cell: (s) => <Hover text={s.key ? `${s.scheme}, key ${s.key}` : s.scheme} />,
      },
      { id: "scopes", header: "Scopes", width: "minmax(120px, 1.6fr)", cell: (s) => <Hover text={s.scopes.join(" ")} /> },
      { id: "address", header: "From", width: "minmax(90px, 0.8fr)", cell: (s) => s.address },
      { id: "created", header: "Begun", width: "92px", cell: (s) => <Time at={s.created_at} /> },
      { id: "expires", header: "Ends", width: "92px", narrow: true, cell: (s) => <Time at={s.expires_at} /> },
      {
        id: "end",
        header: <span className="visually-hidden">Actions</span>,
        width: "60px",
        end: true,
        narrow: true,
        cell: (s) => (
          <Button kind="ghost" onClick={() => setEnding(s)} disabled={refusal !== ""} title={refusal || undefined}>
            End
          </Button>
        ),
      },
    ],
    [refusal],
  );
  return (
    <>
      {list.error && (
        <div className="page-body">
          <ErrorBox error={list.error} retry={() => list.refetch()} />
        </div>
      )}
      {list.data?.sessions.length === 0 ? (
        <div className="page-body">
          <EmptyState guide="credentials" title="No browser is signed in">
            A session begins when an operator signs in. Scripts that send a key or a token with each request have none.
          </EmptyState>
        </div>
      ) : (
        <DataTable
          label="Sessions"
          columns={columns}
          rows={rowsOf(list.data?.sessions, (s) => s.id)}
          loading={list.isPending}
        />
      )}
      <Confirm
        open={ending !== undefined}
        onClose={() => setEnding(undefined)}
        title={`End the session of ${visible(ending?.subject ?? "")}?`}
        verb="End the session"
        danger
        act={async (reason) => {
          await post("/sessions/{id}/end", { path: { id: ending?.id ?? "" }, body: { reason } });
          toast("The session has ended", "Its streams end, too.");
          await client.invalidateQueries({ queryKey: ["sessions"] });
        }}
      >
        <p>
          The browser must sign in again, on every replica. To keep the operator out, also revoke the key or disable the
          account.
        </p>
      </Confirm>
    </>
  );
}
