// What the home page says of the statistics: the newest hour beside the hours before, and what needs attention.
import type { Agent, AgentStats, Stats, Task } from "../api/schema";
import { percent } from "./amounts";
import type { Search } from "./search";
import { duration } from "./time";

export interface Span {
  ended: number;
  failed: number;
  /** p95 is in seconds, from the creation to the end, weighted by the tasks of each interval. */
  p95: number | undefined;
}

/** spanOf adds up intervals from one to before another. */
export function spanOf(rows: readonly AgentStats[], from: number, to: number): Span {
  let ended = 0;
  let failed = 0;
  let weight = 0;
  let sum = 0;
  for (const row of rows) {
    for (let i = from; i < to; i++) {
      const n = row.ended[i] ?? 0;
      const took = row.took_p95[i];
      ended += n;
      failed += (row.failed[i] ?? 0) + (row.rejected[i] ?? 0);
      if (took != null) {
        weight += n;
        sum += took * n;
      }
    }
  }
  return { ended, failed, p95: weight > 0 ? sum / weight : undefined };
}

/** hour returns the index of the interval with which the newest hour begins. */
export function hour(stats: Stats): number {
  return Math.max(0, stats.buckets - Math.round(3600 / stats.width_seconds));
}

/** usedBy adds up what tasks report of tokens, by agent, the largest first. */
export function usedBy(tasks: readonly Task[]): { agent: string; tasks: number; tokens: number; cost: number }[] {
  const by = new Map<string, ReturnType<typeof usedBy>[number]>();
  for (const t of tasks) {
    if (!t.tokens) continue;
    const sum = by.get(t.agent) ?? { agent: t.agent, tasks: 0, tokens: 0, cost: 0 };
    by.set(t.agent, { ...sum, tasks: sum.tasks + 1, tokens: sum.tokens + t.tokens, cost: sum.cost + (t.cost ?? 0) });
  }
  return [...by.values()].sort((a, b) => b.cost - a.cost || b.tokens - a.tokens);
}

export interface Remark {
  /** of is the agent. */
  of: string;
  text: string;
  tone: "bad" | "warn";
  search?: Search;
}

const few = 5;

/** changes says what of an agent is worse in the newest hour than in the hours before. */
export function changes(stats: Stats): Remark[] {
  const from = hour(stats);
  return stats.agents.flatMap((row): Remark[] => {
    const now = spanOf([row], from, stats.buckets);
    const before = spanOf([row], 0, from);
    const out: Remark[] = [];
    const failed = { agent: row.agent, state: ["failed", "rejected"], since: "1h" };
    const was = before.ended > 0 ? before.failed / before.ended : 0;
    if (now.failed > 0 && now.ended >= few && now.failed / now.ended > 2 * was + 0.02) {
      out.push({
        of: row.agent,
        text: `${percent(now.failed, now.ended)} of its tasks failed in the last hour, ${percent(before.failed, before.ended)} before`,
        tone: now.failed / now.ended > 0.2 ? "bad" : "warn",
        search: failed,
      });
    }
    if (now.p95 !== undefined && before.p95 !== undefined && now.ended >= few && now.p95 > 2 * before.p95 && now.p95 > 1) {
      out.push({
        of: row.agent,
        text: `its tasks take ${duration(now.p95 * 1000)} (p95), ${duration(before.p95 * 1000)} before`,
        tone: "warn",
        search: { agent: row.agent, since: "1h", duration: `>${over(before.p95)}` },
      });
    }
    return out;
  });
}

/** over writes seconds as the bound of a filter. */
export function over(seconds: number): string {
  return `${Math.max(0.1, Math.floor(seconds * 10) / 10)}s`;
}

/** attention says which agents cannot work, or lag. */
export function attention(agents: readonly Agent[]): Remark[] {
  return agents.flatMap((a): Remark[] => {
    const waiting = a.queue?.waiting ?? 0;
    const open = { agent: a.name, state: ["submitted"] };
    const waits = waiting > 0 ? `; ${waiting} of its tasks wait` : "";
    if (a.health === "away" || a.health === "failing" || (a.health === "no worker" && waiting > 0)) {
      return [{ of: a.name, text: `${a.health}: ${a.health_reason || "no answer"}${waits}`, tone: "bad", search: open }];
    }
    const oldest = a.queue?.oldest_seconds ?? 0;
    if (oldest > 60) {
      return [{ of: a.name, text: `has tasks that wait for ${duration(oldest * 1000)}`, tone: "warn", search: open }];
    }
    return [];
  });
}

/** beside says how a number differs from that of a time before. */
export function beside(now: number, before: number): string {
  if (before === 0) return now === 0 ? "as before" : "none before";
  const ratio = now / before - 1;
  if (Math.abs(ratio) < 0.05) return "as before";
  return `${ratio > 0 ? "▲" : "▼"} ${Math.abs(ratio) < 10 ? `${Math.round(Math.abs(ratio) * 100)}%` : `×${Math.round(ratio + 1)}`}`;
}
