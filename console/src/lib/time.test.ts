import { expect, test } from "vitest";
import { absolute, duration, exact, relative } from "./time";

const now = Date.parse("2026-11-26T12:00:00Z");
const before = (seconds: number) => new Date(now - seconds * 1000);

test("times are relative in one unit", () => {
  expect([0, 5, 59, 60, 3599, 3600, 90_000, 40 * 86_400, 800 * 86_400].map((s) => relative(before(s), now))).toEqual(
    "now,5s ago,59s ago,1m ago,59m ago,1h ago,1d ago,1mo ago,2y ago".split(","),
  );
  expect(relative(before(-90), now)).toBe("in 1m");
});

test("absolute times have a date, and exact ones a zone", () => {
  expect(absolute(before(10), "utc")).toBe("2026-11-26 11:59:50");
  expect(exact(new Date(now + 7), "utc")).toBe("2026-11-26 12:00:00.007 UTC");
});

test("durations have two units at most", () => {
  expect([7, 1500, 200_000, 3_700_000, 100_000_000].map(duration)).toEqual(["7ms", "1.5s", "3m 20s", "1h 1m", "1d 3h"]);
});
