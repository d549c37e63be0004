import { type FormEvent, type ReactNode, useEffect, useId, useState } from "react";
import { ApiError, logIn } from "../api/client";
import type { Login as LoginWays } from "../api/schema";
import { Button } from "../components/Button";
import { Command } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";

const whys = {
  new: "Log in to see the tasks of this server.",
  ended: "Your session has ended. Log in to go on where you were.",
  left: "You have logged out.",
} as const;

/** Login is a card of its own in place of the page, whose address stays, so the operator is there after the login. */
export function Login({
  ways,
  why,
  issuerLogout,
}: {
  ways: LoginWays | undefined;
  why: keyof typeof whys;
  issuerLogout: string;
}) {
  const here = `${window.location.pathname}${window.location.search}${window.location.hash}`;
  useEffect(() => {
    document.title = "Log in · Holdfast";
  }, []);
  return (
    <main className="login">
      <div className="login-card">
        <header className="login-head">
          <img src={`${import.meta.env.BASE_URL}icon.svg`} alt="" width="36" height="36" />
          <h1>Log in</h1>
          <p className="muted">
            Holdfast at <strong>{window.location.host}</strong>
          </p>
        </header>
        <p role="status">{whys[why]}</p>
        {ways?.url && (
          <a className="button button-primary" href={`${ways.url}?return_to=${encodeURIComponent(here)}`}>
            Log in with {hostOf(ways.issuer)}
          </a>
        )}
        {ways?.password_url && (
          <Typed
            label="Password"
            primary={!ways.url}
            refused="The server does not accept this user and password"
            logIn={(form) => logIn(ways.password_url ?? "", { user: text(form, "user"), password: text(form, "password") })}
          >
            <Input label="User" name="user" autoComplete="username" />
            <Input label="Password" name="password" type="password" autoComplete="current-password" />
          </Typed>
        )}
        {ways?.key_url && (
          <>
            <Typed
              label="API key"
              primary={!ways.url && !ways.password_url}
              refused="The server does not accept this key"
              logIn={(form) => logIn(ways.key_url ?? "", { key: text(form, "key").trim() })}
            >
              <Input label="API key" name="key" type="password" autoComplete="off" placeholder="hfk_…" />
            </Typed>
            <details className="login-help">
              <summary>How to make a key</summary>
              <Command text="holdfast api-keys create --subject YOUR-NAME --scope admin:view" />
              <p className="muted">
                Run it where the server runs. <code>admin:act</code> also acts, <code>admin:administer</code> does everything.
              </p>
            </details>
          </>
        )}
        {!ways && (
          <p>
            Browsers cannot log in here: the server accepts neither API keys nor passwords nor an issuer for operators. Set{" "}
            <code>admin.schemes</code> and <code>admin.login</code>.
          </p>
        )}
        {issuerLogout && (
          <p className="muted">
            <a href={issuerLogout}>Log out at the issuer, too</a>.
          </p>
        )}
        {(ways?.key_url || ways?.password_url) && (
          <p className="muted">The browser keeps a session, and neither key nor password.</p>
        )}
      </div>
    </main>
  );
}

function hostOf(issuer: string | undefined): string {
  try {
    return new URL(issuer ?? "").host;
  } catch {
    return "the issuer";
  }
}

function text(form: FormData, name: string): string {
  return String(form.get(name) ?? "");
}

function Input({ label, ...rest }: { label: string } & React.ComponentProps<"input">) {
  const id = useId();
  return (
    <label htmlFor={id}>
      {label}
      <input id={id} className="input" spellCheck={false} required {...rest} />
    </label>
  );
}

/** Typed sends what the operator has typed to the server, which keeps the session in a cookie. The page stores nothing. */
function Typed({
  label,
  primary,
  refused,
  logIn,
  children,
}: {
  label: string;
  primary: boolean;
  /** refused is the title of a refusal. */
  refused: string;
  logIn: (form: FormData) => Promise<void>;
  children: ReactNode;
}) {
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setBusy(true);
    try {
      await logIn(new FormData(event.currentTarget));
      window.location.reload();
    } catch (cause) {
      setError(cause);
      setBusy(false);
    }
  };
  const status = error instanceof ApiError ? error.problem.status : 0;
  return (
    <form className="login-form" aria-label={label} onSubmit={submit}>
      {children}
      <Button type="submit" kind={primary ? "primary" : "plain"} busy={busy}>
        Log in
      </Button>
      {error !== undefined &&
        (status === 401 ? (
          <p className="login-refused" role="alert">
            {refused}.
          </p>
        ) : (
          <ErrorBox error={error} title={status === 403 ? "You have no scope for operators" : undefined} />
        ))}
    </form>
  );
}
