// What the statistics of an agent say together.
import type { AgentStats, Stats } from "../api/schema";

export interface Summary {
  ended: number;
  failed: number;
  /** p50 and p95 are in seconds, weighted by the tasks of each interval. Undefined: nothing ran. */
  p50?: number;
  p95?: number;
}

/** summarise adds up the intervals. A percentile of the whole span is not known; the weighted mean of those of the intervals is near. */
export function summarise(row: AgentStats): Summary {
  let ended = 0;
  let failed = 0;
  let weight = 0;
  let p50 = 0;
  let p95 = 0;
  for (let i = 0; i < row.ended.length; i++) {
    const n = row.ended[i] ?? 0;
    ended += n;
    failed += (row.failed[i] ?? 0) + (row.rejected[i] ?? 0);
    const half = row.run_p50[i];
    const most = row.run_p95[i];
    if (half != null && most != null) {
      weight += n;
      p50 += half * n;
      p95 += most * n;
    }
  }
  return weight > 0 ? { ended, failed, p50: p50 / weight, p95: p95 / weight } : { ended, failed };
}

/** timesOf returns the beginning of each interval, in seconds. */
export function timesOf(stats: Stats): number[] {
  const since = new Date(stats.since).getTime() / 1000;
  return Array.from({ length: stats.buckets }, (_, i) => since + i * stats.width_seconds);
}

/** failures adds failed and rejected tasks. */
export function failuresOf(row: AgentStats): number[] {
  return row.failed.map((n, i) => n + (row.rejected[i] ?? 0));
}

export const windows = ["1h", "6h", "24h", "7d"] as const;
export type Window = (typeof windows)[number];
export const windowSeconds: Record<Window, number> = { "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800 };

export function windowOf(text: string | undefined): Window {
  return windows.find((w) => w === text) ?? "1h";
}
