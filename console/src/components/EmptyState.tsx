import type { ReactNode } from "react";
import type { Guide } from "../lib/guides";
import { Copy } from "./Copy";
import { GuideLink } from "./GuideLink";
import "./EmptyState.css";

/** EmptyState says why there is nothing, and what makes the first one. */
export function EmptyState({
  title,
  children,
  command,
  action,
  guide,
}: {
  title: string;
  children?: ReactNode;
  command?: string;
  action?: ReactNode;
  /** guide is the document that helps. */
  guide?: Guide;
}) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children && <div className="empty-text">{children}</div>}
      {command && <Command text={command} />}
      {action}
      {guide && <GuideLink guide={guide} />}
    </div>
  );
}

/** Command is a line for a shell, to copy. */
export function Command({ text }: { text: string }) {
  return (
    <div className="command">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard must reach it */}
      <pre tabIndex={0}>{text}</pre>
      <Copy text={text} label="Copy the command" />
    </div>
  );
}
