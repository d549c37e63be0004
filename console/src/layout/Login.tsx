import { type FormEvent, useId, useState } from "react";
import { ApiError, loginWithKey } from "../api/client";
import type { Login as LoginWays } from "../api/schema";
import { Button } from "../components/Button";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import "./Login.css";

/** Login is shown in place of a page, whose address stays, so the operator is there after the login. */
export function Login({ ways, issuerLogout }: { ways: LoginWays | undefined; issuerLogout: string }) {
  const here = `${window.location.pathname}${window.location.search}${window.location.hash}`;
  return (
    <Page title="Log in">
      <div className="login">
        {ways?.url && (
          <section>
            <a className="button button-primary" href={`${ways.url}?return_to=${encodeURIComponent(here)}`}>
              Log in with {hostOf(ways.issuer)}
            </a>
          </section>
        )}
        {ways?.key_url && <KeyForm url={ways.key_url} other={Boolean(ways.url)} />}
        {!ways && (
          <p>
            Browsers cannot log in here: the server accepts neither API keys nor an issuer for operators. Set{" "}
            <code>admin.schemes</code> and <code>admin.login</code>.
          </p>
        )}
        {issuerLogout && (
          <p className="muted">
            You have logged out here. <a href={issuerLogout}>Log out at the issuer, too</a>.
          </p>
        )}
      </div>
    </Page>
  );
}

function hostOf(issuer: string | undefined): string {
  try {
    return new URL(issuer ?? "").host;
  } catch {
    return "the issuer";
  }
}

/** KeyForm sends an API key to the server, which keeps the session in a cookie. The page stores nothing. */
function KeyForm({ url, other }: { url: string; other: boolean }) {
  const id = useId();
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const key = String(new FormData(event.currentTarget).get("key") ?? "").trim();
    setBusy(true);
    try {
      await loginWithKey(url, key);
      window.location.reload();
    } catch (cause) {
      setError(cause);
      setBusy(false);
    }
  };
  return (
    <form className="login-key" onSubmit={submit}>
      <label htmlFor={id}>{other ? "Or an API key" : "API key"}</label>
      <div>
        <input id={id} name="key" type="password" autoComplete="off" spellCheck={false} required placeholder="hfk_…" />
        <Button type="submit" kind={other ? "plain" : "primary"} busy={busy}>
          Log in
        </Button>
      </div>
      <p className="muted">
        Make one with <code>holdfast api-keys create --scope admin:view</code>. The browser keeps a session, not the key.
      </p>
      {error !== undefined && <ErrorBox error={error} title={titleOf(error)} />}
    </form>
  );
}

function titleOf(error: unknown): string | undefined {
  if (!(error instanceof ApiError)) return undefined;
  if (error.problem.status === 401) return "The server does not accept this key";
  if (error.problem.status === 403) return "This key has no scope for operators";
  return undefined;
}
