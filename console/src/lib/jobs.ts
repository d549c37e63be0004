import type { Job } from "../api/schema";
import { fromJob, fromSearch, toSearch } from "./filter";
import type { Search } from "./search";

/** isOver says whether a job has ended. */
export function isOver(job: Job): boolean {
  return job.state === "done" || job.state === "canceled";
}

/** jobWord is the state of a job as people read it. */
export function jobWord(job: Job): string {
  return { waiting: "Waiting", running: "Running", canceling: "Stopping", canceled: "Stopped", done: "Done" }[job.state];
}

export function jobTone(job: Job): "neutral" | "good" | "warn" | "bad" | "info" {
  if (job.state === "done") return job.failed > 0 ? "warn" : "good";
  return job.state === "canceled" ? "neutral" : "info";
}

/** jobFilter returns the filter of a job for an address. */
export function jobFilter(job: Job): Search {
  return toSearch(fromSearch(fromJob(job.filter)));
}
