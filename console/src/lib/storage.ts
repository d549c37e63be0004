// The partitions as periods: tables of one family and span are dropped together.
import type { Partition } from "../api/schema";

export interface Period {
  family: string;
  from: string;
  to: string;
  bytes: number;
  /** rows is -1 if PostgreSQL has not estimated one of the tables. */
  rows: number;
  /** drops_at is when the first of its tables goes. */
  drops_at?: string;
  detaching: boolean;
  tables: string[];
  current: boolean;
  ahead: boolean;
}

export const families: Record<string, string> = {
  tasks: "Tasks and logs",
  artifacts: "Artifacts",
  idempotency_keys: "Idempotency keys",
  delivery_attempts: "Attempts to deliver",
  audit: "Audit log",
};

/** periodsOf joins the tables of each period, the newest period first within its family. */
export function periodsOf(partitions: readonly Partition[], now: number): Period[] {
  const periods = new Map<string, Period>();
  for (const p of partitions) {
    // Artifacts may have a shorter retention than the rest of their task.
    const family = p.parent === "events_artifacts" ? "artifacts" : p.family;
    const key = `${family} ${p.from} ${p.to}`;
    let period = periods.get(key);
    if (!period) {
      const from = Date.parse(p.from);
      period = {
        family,
        from: p.from,
        to: p.to,
        bytes: 0,
        rows: 0,
        detaching: false,
        tables: [],
        current: from <= now && now < Date.parse(p.to),
        ahead: from > now,
      };
      periods.set(key, period);
    }
    period.bytes += p.bytes;
    period.rows = period.rows < 0 || p.rows < 0 ? -1 : period.rows + p.rows;
    period.detaching ||= p.detaching === true;
    period.tables.push(p.table);
    if (p.drops_at && (!period.drops_at || p.drops_at < period.drops_at)) period.drops_at = p.drops_at;
  }
  const order = Object.keys(families);
  return [...periods.values()].sort((a, b) => order.indexOf(a.family) - order.indexOf(b.family) || (a.from < b.from ? 1 : -1));
}
