import { href } from "../api/client";
import type { TaskDetail } from "../api/schema";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Artifact } from "../conversation/Artifact";
import { Metadata } from "../conversation/Parts";
import { SeqLink } from "../conversation/SeqLink";
import type { Known } from "./feed";
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
  return (
    <Artifact
      name={artifact?.name || id}
      description={artifact?.description}
      parts={artifact?.parts}
      chunks={known?.chunks}
      grows={live.state !== "ended" && !(artifact?.complete ?? known?.complete ?? false)}
      files={files}
      place={known && <SeqLink seq={known.firstSeq} toSeq={toSeq} />}
    >
      {query.error && !artifact && (
        <ErrorBox error={query.error} retry={() => query.refetch()} title="The artifact cannot be read" />
      )}
      {!artifact && !query.error && <p className="muted">Loading…</p>}
      {artifact?.partial && (
        <p className="part-tools">
          <span className="muted">It is large: the page shows its beginning.</span>
          <a className="link-button" href={files(Math.max(0, artifact.parts.length - 1))} download>
            download the last part that is shown
          </a>
        </p>
      )}
      <Metadata value={artifact?.metadata} />
    </Artifact>
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
