import { type ReactNode, useEffect } from "react";
import "./Page.css";

/** Page is the frame of a page: its title, what belongs beside it, and the rest, which scrolls. */
export function Page({
  crumbs,
  title,
  name,
  actions,
  children,
  fixed,
}: {
  /** crumbs lead to what the page is a part of. */
  crumbs?: ReactNode;
  title: ReactNode;
  /** name is the title for the tab of the browser, if title is no text. */
  name?: string;
  actions?: ReactNode;
  children: ReactNode;
  /** A fixed page does not scroll as a whole: a table in it does. */
  fixed?: boolean;
}) {
  const shown = name ?? (typeof title === "string" ? title : "");
  useEffect(() => {
    document.title = shown ? `${shown} · Holdfast` : "Holdfast";
  }, [shown]);
  return (
    <main className={fixed ? "page page-fixed" : "page"} id="main" tabIndex={-1}>
      <header className="page-head">
        {crumbs}
        <h1>{title}</h1>
        {actions && <div className="page-actions">{actions}</div>}
      </header>
      {fixed ? children : <div className="page-body">{children}</div>}
    </main>
  );
}
