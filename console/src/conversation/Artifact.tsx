import type { ReactNode } from "react";
import { Tag } from "../components/Badge";
import { line, size } from "../lib/text";
import { Fold } from "./Fold";
import { type Files, Parts } from "./Parts";
import type { Part } from "./types";
import "./Artifact.css";

/** Artifact is a card with the parts of an artifact. children stand below them. */
export function Artifact({
  name,
  description,
  parts,
  chunks = 1,
  grows,
  files,
  place,
  children,
}: {
  name: string;
  description?: string;
  /** parts are absent while they are read. */
  parts: readonly Part[] | undefined;
  chunks?: number;
  /** grows says that the agent still writes it. */
  grows: boolean;
  files?: Files;
  /** place leads to its event in the log. */
  place?: ReactNode;
  children?: ReactNode;
}) {
  const bytes = parts?.reduce((n, p) => n + p.bytes, 0) ?? 0;
  return (
    <article className="artifact">
      <header className="card-head">
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M2.5 4.5 8 1.8l5.5 2.7v7L8 14.2l-5.5-2.7zM2.5 4.5 8 7.2l5.5-2.7M8 7.2v7" />
        </svg>
        <strong dir="auto">{line(name, 120)}</strong>
        {grows && <Tag tone="info">grows</Tag>}
        <span className="muted">
          {bytes > 0 ? size(bytes) : ""}
          {chunks > 1 ? ` in ${chunks.toLocaleString("en")} chunks` : ""}
        </span>
        {place}
      </header>
      {description && (
        <p className="muted" dir="auto">
          {line(description, 500)}
        </p>
      )}
      {parts && parts.length > 0 && (
        <Fold grows={grows}>
          <Parts parts={parts} markdown files={files} />
        </Fold>
      )}
      {parts?.length === 0 && <p className="muted">It has no parts.</p>}
      {children}
    </article>
  );
}
