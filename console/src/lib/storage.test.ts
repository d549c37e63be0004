import { expect, test } from "vitest";
import type { Partition } from "../api/schema";
import { periodsOf } from "./storage";

const one = (table: string, parent: string, from: string, to: string, more: Partial<Partition> = {}): Partition => ({
  family: "tasks",
  table,
  parent,
  from,
  to,
  bytes: 10,
  rows: 5,
  ...more,
});

test("tables of a period are one line, and artifacts are another", () => {
  const now = Date.parse("2026-11-15T00:00:00Z");
  const [nov, dec, jan] = ["2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"] as const;
  const got = periodsOf(
    [
      one("tasks_20261101", "tasks_dated", nov, dec, { drops_at: "2027-03-01T00:00:00Z" }),
      one("events_20261101", "events_log", nov, dec, { drops_at: "2027-02-01T00:00:00Z", rows: -1 }),
      one("artifacts_20261101", "events_artifacts", nov, dec),
      one("tasks_20261201", "tasks_dated", dec, jan),
    ],
    now,
  );
  expect(got.map((p) => [p.family, p.from, p.bytes, p.rows, p.drops_at, p.current, p.ahead])).toEqual([
    ["tasks", dec, 10, 5, undefined, false, true],
    ["tasks", nov, 20, -1, "2027-02-01T00:00:00Z", true, false],
    ["artifacts", nov, 10, 5, undefined, true, false],
  ]);
});
