import { expect, test } from "vitest";
import { entriesOf, who } from "./audit";

test("a row is as many entries as it names, and a webhook of a new task is one more", () => {
  const got = entriesOf([
    {
      at: "2026-11-26T00:00:00Z",
      chain: 3,
      n: 7,
      login: "holdfast",
      entries: [
        { action: "task.created", task: "t1", subject: "ada", tenant: "acme", webhook: "c" },
        { action: "task.held", method: "operator", reason: "<b>why</b>", subject: 7 },
      ],
    },
  ]);
  expect(got.map((e) => [e.key, e.action, e.object, e.reason, who(e)])).toEqual([
    ["3.7.0", "task.created", "", "", "ada (acme)"],
    ["3.7.0w", "push.set", "c", "", "ada (acme)"],
    ["3.7.1", "task.held", "", "<b>why</b>", "an operator"],
  ]);
});
