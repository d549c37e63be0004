import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useCallback, useMemo } from "react";
import { get } from "../api/client";
import type { Job } from "../api/schema";
import { Tag } from "../components/Badge";
import { type Column, DataTable, rowsOf } from "../components/DataTable";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Page } from "../components/Page";
import { Hover } from "../components/Panel";
import { Time } from "../components/Time";
import { actions } from "../lib/actions";
import { describe, fromSearch } from "../lib/filter";
import { jobFilter, jobTone, jobWord } from "../lib/jobs";

export function JobsPage() {
  const navigate = useNavigate();
  const { data, error, fetchNextPage, hasNextPage, isFetching, isPending, refetch } = useInfiniteQuery({
    queryKey: ["jobs"],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => get("/jobs", { query: { before: pageParam, limit: 100 }, signal }),
    getNextPageParam: (page) => page.next,
    refetchInterval: 3_000,
  });
  const jobs = useMemo(() => data?.pages.flatMap((page) => page.jobs) ?? [], [data]);
  const rows = useMemo(() => rowsOf(jobs, (job) => job.id), [jobs]);
  const open = useCallback((job: Job) => void navigate({ to: "/jobs/$id", params: { id: job.id } }), [navigate]);
  const visible = useCallback(
    (_: number, last: number) => {
      if (hasNextPage && !isFetching && last >= jobs.length - 20) void fetchNextPage();
    },
    [hasNextPage, isFetching, jobs.length, fetchNextPage],
  );
  return (
    <Page title="Jobs" fixed>
      {error && !data ? (
        <div className="page-body">
          <ErrorBox error={error} retry={() => void refetch()} title="The jobs were not read" />
        </div>
      ) : data && jobs.length === 0 ? (
        <EmptyState guide="jobs" title="No jobs yet" action={<Link to="/tasks">Go to the tasks</Link>}>
          A job acts on all tasks that a filter selects, on the server. Filter the tasks, select one, choose “Select all that
          match”, and then what to do. A dry run counts them first.
        </EmptyState>
      ) : (
        <DataTable label="Jobs" columns={columns} rows={rows} loading={isPending} onOpen={open} onVisible={visible} />
      )}
    </Page>
  );
}

const columns: Column<Job>[] = [
  {
    id: "action",
    header: "Job",
    width: "minmax(120px, 0.8fr)",
    narrow: true,
    cell: (job) => (
      <Link to="/jobs/$id" params={{ id: job.id }}>
        {actions[job.action].verb}
        {job.dry_run && <span className="muted"> · dry run</span>}
      </Link>
    ),
  },
  { id: "state", header: "State", width: "84px", narrow: true, cell: (job) => <Tag tone={jobTone(job)}>{jobWord(job)}</Tag> },
  { id: "filter", header: "Tasks", width: "minmax(140px, 1.4fr)", cell: (job) => describe(fromSearch(jobFilter(job))) },
  { id: "matched", header: "Matched", width: "76px", end: true, cell: (job) => job.matched.toLocaleString("en") },
  {
    id: "done",
    header: "Done",
    width: "76px",
    end: true,
    narrow: true,
    cell: (job) => (job.dry_run ? "–" : job.done.toLocaleString("en")),
  },
  {
    id: "failed",
    header: "Failed",
    width: "64px",
    end: true,
    cell: (job) => (job.dry_run ? "–" : job.failed.toLocaleString("en")),
  },
  { id: "reason", header: "Reason", width: "minmax(120px, 1.2fr)", cell: (job) => <Hover text={job.reason} muted /> },
  { id: "actor", header: "By", width: "minmax(80px, 0.8fr)", cell: (job) => <Hover text={job.actor || "–"} muted /> },
  { id: "created", header: "Created", width: "92px", end: true, cell: (job) => <Time at={job.created_at} /> },
];
