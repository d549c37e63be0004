import { expect, describe as group, test } from "vitest";
import type { Agent, AgentStats, Stats, Task } from "../api/schema";
import { attention, beside, changes, hour, spanOf, usedBy } from "./home";

/** row has five quiet hours and one that is given, in intervals of an hour. */
const row = (agent: string, ended: number, failed: number, took: number): AgentStats => ({
  agent,
  ended: [10, 10, 10, 10, 10, ended],
  failed: [0, 0, 0, 0, 1, failed],
  rejected: [0, 0, 0, 0, 0, 0],
  canceled: [0, 0, 0, 0, 0, 0],
  run_p50: [],
  run_p95: [],
  took_p50: [],
  took_p95: [1, 1, 1, 1, 1, took],
});
const stats = (...agents: AgentStats[]): Stats => ({ since: "2026-11-26T06:00:00Z", width_seconds: 3600, buckets: 6, agents });

group("home", () => {
  test("sums up the hour and the time before", () => {
    const all = stats(row("a", 20, 5, 3), row("b", 20, 0, 1));
    expect(hour(all)).toBe(5);
    expect(spanOf(all.agents, 5, 6)).toEqual({ ended: 40, failed: 5, p95: 2 });
    expect(spanOf([], 0, 6)).toEqual({ ended: 0, failed: 0, p95: undefined });
  });

  test("adds up tokens and their cost by agent, the dearest first", () => {
    const of = (agent: string, tokens?: number, cost?: number) => ({ agent, tokens, cost }) as Task;
    expect(usedBy([of("a", 900), of("b", 10, 0.5), of("b", 20, 0.25), of("c")])).toEqual([
      { agent: "b", tasks: 2, tokens: 30, cost: 0.75 },
      { agent: "a", tasks: 1, tokens: 900, cost: 0 },
    ]);
  });

  test("says what became worse", () => {
    expect(
      changes(stats(row("fine", 10, 0, 1.5), row("failing", 20, 5, 1), row("slow", 20, 0, 4), row("rare", 2, 1, 9))),
    ).toEqual([
      {
        of: "failing",
        text: "25% of its tasks failed in the last hour, 2% before",
        tone: "bad",
        search: { agent: "failing", state: ["failed", "rejected"], since: "1h" },
      },
      {
        of: "slow",
        text: "its tasks take 4s (p95), 1s before",
        tone: "warn",
        search: { agent: "slow", since: "1h", duration: ">1s" },
      },
    ]);
  });

  test("says which agents need attention", () => {
    const agent = (name: string, rest: Partial<Agent>) => ({ name, default: false, kind: "http", ...rest }) as Agent;
    const queue = (waiting: number, oldest: number) => ({ waiting, oldest_seconds: oldest }) as Agent["queue"];
    expect(
      attention([
        agent("ok", { queue: queue(3, 2) }),
        agent("gone", { health: "away", health_reason: "connection refused", queue: queue(4, 0) }),
        agent("idle", { health: "no worker", queue: queue(0, 0) }),
        agent("bare", { health: "no worker", health_reason: "none is connected", queue: queue(2, 5) }),
        agent("late", { queue: queue(2, 90) }),
      ]).map((r) => `${r.of} ${r.text}`),
    ).toEqual([
      "gone away: connection refused; 4 of its tasks wait",
      "bare no worker: none is connected; 2 of its tasks wait",
      "late has tasks that wait for 1m 30s",
    ]);
  });

  test("compares", () => {
    expect([beside(0, 0), beside(5, 0), beside(100, 98), beside(150, 100), beside(50, 100), beside(3000, 100)]).toEqual([
      "as before",
      "none before",
      "as before",
      "▲ 50%",
      "▼ 50%",
      "▲ ×30",
    ]);
  });
});
