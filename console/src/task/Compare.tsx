import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { get } from "../api/client";
import type { Event, Run, TaskDetail } from "../api/schema";
import { Button } from "../components/Button";
import { EmptyState } from "../components/EmptyState";
import { ErrorBox } from "../components/ErrorBox";
import { Scroll } from "../components/Scroll";
import { outcomes } from "../lib/outcomes";
import { isFinal, stateNames } from "../lib/states";
import { line, visible } from "../lib/text";
import { duration } from "../lib/time";
import { differences, type Stretch, stretches, transcript } from "./differences";
import { loader } from "./log";
import { useRuns } from "./useTask";
import "./Compare.css";

/** mostEvents bounds what is read of a side. */
const mostEvents = 2000;
/** context is how many of the lines that are the same are shown beside those that differ. */
const context = 3;

/** Sides are what is compared: the numbers of runs of the task, or "" for the whole task; right may be the id of another task. */
export interface Sides {
  left: string;
  right: string;
}

/** Compare shows two runs of a task, or two tasks, side by side. */
export function Compare({ task, sides, choose }: { task: TaskDetail; sides: Sides; choose: (sides: Sides) => void }) {
  const runs = useRuns(task.id).data?.runs ?? [];
  const numbers = runs.map((r) => String(r.run));
  const other = sides.right !== "" && !numbers.includes(sides.right);
  const left = useSide(task.id, sides.left);
  const right = useSide(other ? sides.right : task.id, other ? "" : sides.right);
  const [id, setId] = useState(other ? sides.right : (task.retried_as ?? ""));
  const options = (
    <>
      <option value="">this task</option>
      {runs.map((r) => (
        <option key={r.run} value={r.run}>
          run {r.run}: {outcomes[r.outcome]?.text ?? r.outcome}
        </option>
      ))}
    </>
  );
  const error = left.error ?? right.error;
  return (
    <div className="compare">
      <div className="compare-bar">
        <label>
          Compare{" "}
          <select className="input" value={sides.left} onChange={(e) => choose({ ...sides, left: e.target.value })}>
            {options}
          </select>
        </label>
        <label>
          with{" "}
          <select
            className="input"
            value={other ? "other" : sides.right}
            onChange={(e) => choose({ ...sides, right: e.target.value === "other" ? id : e.target.value })}
          >
            {options}
            {(id !== "" || other) && <option value="other">another task</option>}
          </select>
        </label>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (id.trim() !== "") choose({ left: "", right: id.trim() });
          }}
        >
          <label>
            or with the task{" "}
            <input
              className="input"
              value={id}
              placeholder="its id"
              autoComplete="off"
              onChange={(event) => setId(event.target.value)}
            />
          </label>
          <Button type="submit">Compare</Button>
        </form>
      </div>
      {error && <ErrorBox error={error} title="A side cannot be read" />}
      {left.data && right.data && !error && <Beside left={left.data} right={right.data} />}
      {!error && !(left.data && right.data) && <p className="muted">Loading…</p>}
    </div>
  );
}

interface Side {
  name: string;
  facts: [name: string, value: string][];
  lines: string[];
  /** more says that only the beginning was read. */
  more: boolean;
}

function useSide(id: string, run: string) {
  return useQuery({
    queryKey: ["task", id, "side", run],
    queryFn: async ({ signal }): Promise<Side> => {
      const [task, runs, usage] = await Promise.all([
        get("/tasks/{id}", { path: { id }, signal }),
        get("/tasks/{id}/runs", { path: { id }, signal }),
        get("/tasks/{id}/usage", { path: { id }, signal }),
      ]);
      if (run === "") {
        const { events, more } = await read(task.id, 0, task.last_seq, signal);
        const tokens = usage.models.reduce((n, m) => n + Number(m.total_tokens), 0);
        const failed = runs.runs.findLast((r) => r.error);
        const took = (isFinal(task.state) ? Date.parse(task.status_at) : Date.now()) - Date.parse(task.created_at);
        return {
          name: `${line(task.agent, 60)} …${task.id.slice(-8)}`,
          facts: [
            ["Agent", task.agent],
            ["State", stateNames[task.state]],
            ["Took", duration(took)],
            ["Turns", String(task.turns)],
            ["Runs", String(task.runs)],
            ["Events", String(task.last_seq)],
            ["Tokens", tokens ? tokens.toLocaleString("en") : "–"],
            ["Error", failed?.error ?? "–"],
          ],
          lines: transcript(events),
          more,
        };
      }
      const at = runs.runs.findIndex((r) => String(r.run) === run);
      const one: Run | undefined = runs.runs[at];
      if (!one) throw new Error(`The task has no run ${run}.`);
      const { events, more } = await read(task.id, runs.runs[at - 1]?.seq ?? 0, one.seq ?? task.last_seq, signal);
      return {
        name: `Run ${one.run}`,
        facts: [
          ["Outcome", outcomes[one.outcome]?.text ?? one.outcome],
          ["Took", one.started_at && one.ended_at ? duration(Date.parse(one.ended_at) - Date.parse(one.started_at)) : "–"],
          ["Worker", one.worker_name || one.worker || "–"],
          ["Attempt", String(one.attempt)],
          ["Events", String(events.length)],
          ["Error", one.error ?? "–"],
        ],
        lines: transcript(events),
        more,
      };
    },
    retry: false,
  });
}

async function read(id: string, after: number, to: number, signal: AbortSignal): Promise<{ events: Event[]; more: boolean }> {
  const events: Event[] = [];
  let at = after;
  while (at < to && events.length < mostEvents) {
    const page = await loader(id)(at, Math.min(500, to - at), signal);
    if (page.length === 0) break;
    events.push(...page);
    at = page.at(-1)?.seq ?? to;
  }
  return { events, more: at < to };
}

function Beside({ left, right }: { left: Side; right: Side }) {
  const parts = useMemo(() => stretches(differences(left.lines, right.lines)), [left, right]);
  const names = [...new Set([...left.facts, ...right.facts].map(([name]) => name))];
  const value = (side: Side, name: string) => side.facts.find(([n]) => n === name)?.[1] ?? "–";
  const head = (
    <>
      <th scope="col">{visible(left.name)}</th>
      <th scope="col">{visible(right.name)}</th>
    </>
  );
  return (
    <>
      <Scroll className="compare-table" label="Facts">
        <table>
          <thead>
            <tr>
              <th scope="col">Fact</th>
              {head}
            </tr>
          </thead>
          <tbody>
            {names.map((name) => {
              const [a, b] = [value(left, name), value(right, name)];
              return (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <Cell text={a} mark={a === b ? undefined : "del"} />
                  <Cell text={b} mark={a === b ? undefined : "ins"} />
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      {(left.more || right.more) && <p className="muted">Of a long log, the first {mostEvents} events are compared.</p>}
      {parts.every((p) => p.same) ? (
        <EmptyState title="Both say the same">All {left.lines.length} lines are the same.</EmptyState>
      ) : (
        <Scroll className="compare-table" label="What was said">
          <table>
            <thead>
              <tr>{head}</tr>
            </thead>
            <tbody>
              {parts.map((p, i) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: stretches have no other name
                <Lines key={i} part={p} />
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </>
  );
}

function Lines({ part }: { part: Stretch }): ReactNode {
  const [all, setAll] = useState(false);
  const { pairs, same } = part;
  const folded = same && !all && pairs.length > 2 * context + 1;
  const row = (p: (typeof pairs)[number], i: number) => (
    <tr key={i}>
      <Cell text={p.left} mark={same ? undefined : "del"} />
      <Cell text={p.right} mark={same ? undefined : "ins"} />
    </tr>
  );
  if (!folded) return pairs.map(row);
  return (
    <>
      {pairs.slice(0, context).map(row)}
      <tr>
        <td colSpan={2}>
          <button type="button" className="link-button" onClick={() => setAll(true)}>
            {pairs.length - 2 * context} lines are the same
          </button>
        </td>
      </tr>
      {pairs.slice(-context).map((p, i) => row(p, pairs.length + i))}
    </>
  );
}

function Cell({ text, mark: Mark }: { text: string | undefined; mark: "del" | "ins" | undefined }) {
  if (text === undefined) return <td className="compare-none" />;
  return (
    <td dir="auto" data-mark={Mark}>
      {Mark ? <Mark>{visible(text)}</Mark> : visible(text)}
    </td>
  );
}
