import { useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState } from "react";
import { get, post } from "../api/client";
import { Tag } from "../components/Badge";
import { Button } from "../components/Button";
import { Confirm } from "../components/Confirm";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import { Progress } from "../components/Progress";
import { Time } from "../components/Time";
import { useActRefusal } from "../layout/me";
import { actions, tasksOf } from "../lib/actions";
import { describe, fromSearch } from "../lib/filter";
import { isOver, jobFilter, jobTone, jobWord } from "../lib/jobs";
import { visible } from "../lib/text";
import "./job.css";

const route = getRouteApi("/jobs/$id");

export function JobPage() {
  const { id } = route.useParams();
  const queries = useQueryClient();
  const refusal = useActRefusal();
  const [stopping, setStopping] = useState(false);
  const {
    data: job,
    error,
    refetch,
  } = useQuery({
    queryKey: ["job", id],
    queryFn: ({ signal }) => get("/jobs/{id}", { path: { id }, signal }),
    refetchInterval: (query) => (query.state.data && isOver(query.state.data) ? false : 700),
  });
  if (!job) {
    return (
      <Page title="Job">{error && <ErrorBox error={error} retry={() => void refetch()} title="The job was not read" />}</Page>
    );
  }
  const text = actions[job.action];
  const handled = job.done + job.skipped + job.failed;
  return (
    <Page
      title={
        <>
          <Link to="/jobs" className="muted">
            Jobs
          </Link>{" "}
          / {job.dry_run ? `Dry run: ${text.verb.toLowerCase()}` : text.verb} <Tag tone={jobTone(job)}>{jobWord(job)}</Tag>
        </>
      }
      name={`Job: ${text.verb}`}
      actions={
        !isOver(job) &&
        !refusal && (
          <Button onClick={() => setStopping(true)} disabled={job.state === "canceling"}>
            Stop
          </Button>
        )
      }
    >
      {error && <ErrorBox error={error} title="The job was not read again" />}
      <section className="job-progress" aria-label="Progress">
        {job.dry_run ? (
          <p className="job-big" role="status">
            {tasksOf(job.matched)} {isOver(job) ? (job.matched === 1 ? "matches" : "match") : "so far"}
          </p>
        ) : (
          <>
            <p className="job-big" role="status">
              {handled.toLocaleString("en")} <span className="muted">{handled === 1 ? "task" : "tasks"} handled</span>
            </p>
            <dl className="job-numbers">
              <div>
                <dt>
                  <span className="job-dot" data-tone="good" /> {text.done}
                </dt>
                <dd>{job.done.toLocaleString("en")}</dd>
              </div>
              <div title="There was nothing to do for them, or they have changed">
                <dt>
                  <span className="job-dot" data-tone="neutral" /> skipped
                </dt>
                <dd>{job.skipped.toLocaleString("en")}</dd>
              </div>
              <div>
                <dt>
                  <span className="job-dot" data-tone="bad" /> failed
                </dt>
                <dd>{job.failed.toLocaleString("en")}</dd>
              </div>
            </dl>
          </>
        )}
        <Progress
          label="Progress"
          total={isOver(job) ? Math.max(handled, 1) : handled > 0 ? Math.max(job.matched, handled) : undefined}
          parts={
            job.dry_run && isOver(job)
              ? [{ name: "counted", value: 1, tone: "good" }]
              : [
                  { name: text.done, value: job.done, tone: "good" },
                  { name: "skipped", value: job.skipped, tone: "neutral" },
                  { name: "failed", value: job.failed, tone: "bad" },
                ]
          }
        />
      </section>
      <dl className="job-facts">
        <div>
          <dt>Tasks</dt>
          <dd>
            <Link to="/tasks" search={jobFilter(job)}>
              {describe(fromSearch(jobFilter(job)))}
            </Link>
          </dd>
        </div>
        <div>
          <dt>Reason</dt>
          <dd>{visible(job.reason)}</dd>
        </div>
        <div>
          <dt>By</dt>
          <dd>
            {visible(job.actor || "an operator on this machine")}
            {job.tenant && ` of ${visible(job.tenant)}`}
          </dd>
        </div>
        <div>
          <dt>Created</dt>
          <dd>
            <Time at={job.created_at} />
          </dd>
        </div>
        {job.ended_at && (
          <div>
            <dt>Ended</dt>
            <dd>
              <Time at={job.ended_at} />
            </dd>
          </div>
        )}
        {job.worker_name && !isOver(job) && (
          <div>
            <dt>Replica</dt>
            <dd className="mono">{visible(job.worker_name)}</dd>
          </div>
        )}
      </dl>
      {job.failures.length > 0 && (
        <section aria-label="Failures">
          <h2>The newest failures</h2>
          <ul className="job-failures">
            {job.failures.map((f) => (
              <li key={f.task + f.error}>
                <Link to="/tasks/$id" params={{ id: f.task }} className="mono">
                  {f.task}
                </Link>
                <span>{visible(f.error)}</span>
              </li>
            ))}
          </ul>
        </section>
      )}
      <Confirm
        open={stopping}
        onClose={() => setStopping(false)}
        title="Stop the job"
        verb="Stop"
        danger
        act={async (reason) => {
          queries.setQueryData(["job", id], await post("/jobs/{id}/cancel", { path: { id }, body: { reason } }));
        }}
      >
        <p>It ends after the tasks that are under way. What it has done stays done.</p>
      </Confirm>
    </Page>
  );
}
