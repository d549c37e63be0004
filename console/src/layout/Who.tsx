import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, logout } from "../api/client";
import type { Me } from "../api/schema";
import { Button } from "../components/Button";
import { Dialog } from "../components/Dialog";
import { ErrorBox } from "../components/ErrorBox";
import { Time } from "../components/Time";
import "./Who.css";

const rights = { view: "may view", act: "may view and act", administer: "may do everything" } as const;

/** Who shows the name and the rights of the operator, and a button to log out. */
export function Who({ me, onLogout }: { me: Me; onLogout: (issuer: string) => void }) {
  const queries = useQueryClient();
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const name = me.subject || "This machine";
  const session = me.session;
  const leave = async () => {
    setBusy(true);
    try {
      const issuer = await logout(session?.logout_url ?? "");
      onLogout(issuer);
      setOpen(false);
      queries.removeQueries({ predicate: (one) => one.queryKey[0] !== "me" });
      await queries.resetQueries({ queryKey: ["me"] });
    } catch (cause) {
      setError(cause instanceof ApiError ? cause : new Error(String(cause)));
    }
    setBusy(false);
  };
  return (
    <>
      <button type="button" className="who" aria-haspopup="dialog" onClick={() => setOpen(true)}>
        <span className="who-name">{name}</span>
        <span className="who-right">{me.read_only ? "read only" : rights[me.right]}</span>
      </button>
      <Dialog open={open} onClose={() => setOpen(false)} title={name}>
        <dl className="who-facts">
          <dt>May</dt>
          <dd>{me.read_only ?? rights[me.right]}</dd>
          <dt>Sees</dt>
          <dd>{me.all_tenants ? "all tenants" : `tenant ${me.tenant || "(none)"}`}</dd>
          {me.all_tenants && me.tenant && (
            <>
              <dt>Tenant</dt>
              <dd>{me.tenant}</dd>
            </>
          )}
          <dt>Version</dt>
          <dd>{me.version}</dd>
          <dt>Session</dt>
          <dd>
            {session ? (
              <>
                ends <Time at={session.expires_at} />
              </>
            ) : me.subject ? (
              "none: the credential comes with each request"
            ) : (
              "none: this address needs no credential"
            )}
          </dd>
        </dl>
        {error !== undefined && <ErrorBox error={error} />}
        <div className="who-actions">
          {session && (
            <Button onClick={leave} busy={busy}>
              Log out
            </Button>
          )}
          <Button kind="ghost" onClick={() => setOpen(false)}>
            Close
          </Button>
        </div>
      </Dialog>
    </>
  );
}
