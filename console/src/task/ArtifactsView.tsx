import { href } from "../api/client";
import type { TaskDetail } from "../api/schema";
import { Tag } from "../components/Badge";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { line, size } from "../lib/text";
import { SeqLink } from "./ConversationView";
import type { Known } from "./feed";
import { Metadata, Parts } from "./Parts";
import { type Live, useArtifact, type useArtifacts } from "./useTask";
import "./Artifacts.css";

/** ArtifactCard shows an artifact with its parts. It grows while the agent writes it. */
export function ArtifactCard({
  task,
  id,
  live,
  artifacts,
  toSeq,
}: {
  task: TaskDetail;
  id: string;
  live: Live;
  artifacts: readonly Known[];
  toSeq: (seq: number) => void;
}) {
  const { artifact, query } = useArtifact(task.id, id, live);
  const known = artifacts.find((a) => a.id === id);
  const files = (part: number) =>
    href("/tasks/{id}/artifacts/{artifact}/parts/{part}", { id: task.id, artifact: id, part: String(part) });
  const bytes = artifact?.parts.reduce((n, p) => n + p.bytes, 0) ?? 0;
  const writing = live.state !== "ended" && !(artifact?.complete ?? known?.complete ?? false);
  return (
    <article className="artifact">
      <header className="card-head">
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M2.5 4.5 8 1.8l5.5 2.7v7L8 14.2l-5.5-2.7zM2.5 4.5 8 7.2l5.5-2.7M8 7.2v7" />
        </svg>
        <strong>{line(artifact?.name || id, 120)}</strong>
        {writing && <Tag tone="info">grows</Tag>}
        <span className="muted">
          {artifact && bytes > 0 ? size(bytes) : ""}
          {known && known.chunks > 1 ? ` in ${known.chunks.toLocaleString("en")} chunks` : ""}
        </span>
        {known && <SeqLink seq={known.firstSeq} toSeq={toSeq} />}
      </header>
      {artifact?.description && <p className="muted">{line(artifact.description, 500)}</p>}
      {query.error && !artifact && (
        <ErrorBox error={query.error} retry={() => query.refetch()} title="The artifact cannot be read" />
      )}
      {!artifact && !query.error && <p className="muted">Loading…</p>}
      {artifact && <Parts parts={artifact.parts} markdown files={files} />}
      {artifact?.partial && (
        <p className="part-tools">
          <span className="muted">It is large: the page shows its beginning.</span>
          <a className="link-button" href={files(Math.max(0, artifact.parts.length - 1))} download>
            download the last part that is shown
          </a>
        </p>
      )}
      {artifact && artifact.parts.length === 0 && <p className="muted">It has no parts.</p>}
      <Metadata value={artifact?.metadata} />
    </article>
  );
}

export function ArtifactsView({
  task,
  live,
  artifacts,
  toSeq,
}: {
  task: TaskDetail;
  live: Live;
  artifacts: ReturnType<typeof useArtifacts>;
  toSeq: (seq: number) => void;
}) {
  if (artifacts.query.error && artifacts.list.length === 0) {
    return (
      <ErrorBox error={artifacts.query.error} retry={() => artifacts.query.refetch()} title="The artifacts cannot be read" />
    );
  }
  if (artifacts.query.isSuccess && artifacts.list.length === 0) {
    return (
      <EmptyState title="No artifacts">
        Artifacts are what an agent hands over: texts, files, data.{" "}
        {live.state === "ended" ? "This task has none." : "They appear here while the agent writes them."}
      </EmptyState>
    );
  }
  return (
    <div className="artifacts">
      {artifacts.list.map((a) => (
        <div key={a.id} className="conversation-item">
          <ArtifactCard task={task} id={a.id} live={live} artifacts={artifacts.list} toSeq={toSeq} />
        </div>
      ))}
      {artifacts.more && <p className="muted">The task has more artifacts. The page shows the first 500; the log has all.</p>}
    </div>
  );
}
