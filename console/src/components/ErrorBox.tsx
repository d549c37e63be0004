import { ApiError } from "../api/client";
import type { Problem } from "../api/schema";
import type { Guide } from "../lib/guides";
import { visible } from "../lib/text";
import { Button } from "./Button";
import { GuideLink } from "./GuideLink";
import "./ErrorBox.css";

/** advice says what a reader can do about a problem. */
export function advice(p: Problem): string {
  switch (p.reason) {
    case "unauthenticated":
      return "Sign in, or send a credential of admin.schemes.";
    case "forbidden":
      return "Ask an administrator of this server for the scope, or use an account that has it.";
    case "not_found":
      return "Check the name. A task may also be purged, or belong to another tenant.";
    case "invalid":
      return "Change the value and try again.";
    case "conflict":
      return "It has changed in the meantime. Read it again, then decide.";
    case "too_large":
      return "Send less at once.";
    case "busy":
      return "Too many requests at once. Wait a few seconds and try again.";
    case "unavailable":
      return p.status === 0
        ? ""
        : "The server or its database is away. Try again in a few seconds; /readyz says which check fails.";
    case "method":
      return "The page and the server have different versions. Reload the page.";
    default:
      return "The log of the server has the cause.";
  }
}

/** guideTo returns the document about a problem. */
function guideTo(p: Problem): Guide | undefined {
  switch (p.reason) {
    case "unauthenticated":
      return "credentials";
    case "forbidden":
      return "scopes";
    case "busy":
      return "busy";
    case "unavailable":
    case "internal":
      return p.status > 0 ? "failing" : undefined;
    default:
      return undefined;
  }
}

/** ErrorBox says what failed and what to do. */
export function ErrorBox({ error, retry, title }: { error: unknown; retry?: () => void; title?: string }) {
  const p: Problem =
    error instanceof ApiError
      ? error.problem
      : {
          title: "The page has a fault",
          status: -1,
          reason: "internal",
          detail: error instanceof Error ? error.message : String(error),
        };
  // The bar above all pages says it already, and the page reads again by itself.
  if (p.status === 0 && retry) return <p className="muted">Nothing to show until the server answers.</p>;
  const help = error instanceof ApiError ? advice(p) : "Reload the page. If it happens again, report it with this text.";
  const guide = guideTo(p);
  return (
    <div className="error-box" role="alert">
      <div>
        <strong>{title ?? p.title}</strong>
        {p.detail && <p>{visible(p.detail)}</p>}
        {help && <p className="muted">{help}</p>}
        {guide && <GuideLink guide={guide} />}
      </div>
      {retry && p.reason !== "not_found" && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}
