import { expect, test } from "vitest";
import type { AgentStats } from "../api/schema";
import { failuresOf, summarise, timesOf, windowOf } from "./stats";

const row: AgentStats = {
  agent: "a",
  ended: [1, 0, 3],
  failed: [0, 0, 1],
  rejected: [1, 0, 0],
  canceled: [0, 0, 0],
  run_p50: [2, null, 6],
  run_p95: [4, null, 8],
  took_p50: [2, null, 6],
  took_p95: [4, null, 8],
};

test("intervals are weighted by their tasks", () => {
  expect(summarise(row)).toEqual({ ended: 4, failed: 2, p50: 5, p95: 7 });
  expect(summarise({ ...row, run_p50: [null, null, null] })).toEqual({ ended: 4, failed: 2 });
  expect(failuresOf(row)).toEqual([1, 0, 1]);
});

test("each interval has its beginning", () => {
  expect(timesOf({ since: "1970-01-01T00:01:00Z", width_seconds: 60, buckets: 3, agents: [] })).toEqual([60, 120, 180]);
});

test("an unknown span is the shortest one", () => {
  expect(windowOf("7d")).toBe("7d");
  expect(windowOf("<script>")).toBe("1h");
});
