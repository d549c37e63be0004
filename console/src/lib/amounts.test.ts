import { expect, test } from "vitest";
import { days, money, percent, plural, rate, upTo } from "./amounts";

test("rates are by the minute, the hour or the day", () => {
  expect([rate(120, 60), rate(5, 3600), rate(1, 604_800), rate(0, 60)]).toEqual(["120/min", "5/h", "0.14/day", "0/min"]);
});

test("costs have three digits", () => {
  expect([money(0.0042187, "USD"), money(1234.5, "EUR"), money(2)]).toEqual(["0.00422 USD", "1,230 EUR", "2"]);
});

test("percentages", () => {
  expect([percent(0, 5), percent(1, 100_000), percent(1, 60), percent(1, 3), percent(1, 0)]).toEqual([
    "0%",
    "<0.1%",
    "1.7%",
    "33%",
    "0%",
  ]);
});

test("counts", () => {
  expect([plural(1, "task"), plural(12_345, "task"), upTo(10_000, 10_000), upTo(7, 10_000)]).toEqual([
    "1 task",
    "12,345 tasks",
    "10,000+",
    "7",
  ]);
  expect([days(0.2), days(1), days(45), days(100), days(800), days(99_999)]).toEqual([
    "5 h",
    "1 day",
    "45 days",
    "3 months",
    "2 years",
    "more than 100 years",
  ]);
});
