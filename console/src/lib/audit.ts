// The audit log as entries: one row of the log names all tasks that one statement created.
import type { AuditRow } from "../api/schema";

export interface Entry {
  key: string;
  at: string;
  action: string;
  task: string;
  agent: string;
  tenant: string;
  subject: string;
  method: string;
  credential: string;
  address: string;
  object: string;
  reason: string;
  row: AuditRow;
}

const word = (v: unknown) => (typeof v === "string" ? v : "");

/** entriesOf returns the entries of rows, in their order. An entry with a webhook is two, as in the view v_audit. */
export function entriesOf(rows: readonly AuditRow[]): Entry[] {
  return rows.flatMap((row) =>
    row.entries.flatMap((raw, i) => {
      const e = raw as Record<string, unknown>;
      const entry: Entry = {
        key: `${row.chain}.${row.n}.${i}`,
        at: row.at,
        action: word(e.action),
        task: word(e.task),
        agent: word(e.agent),
        tenant: word(e.tenant),
        subject: word(e.subject),
        method: word(e.method),
        credential: word(e.credential),
        address: word(e.address),
        object: word(e.object),
        reason: word(e.reason),
        row,
      };
      const webhook = word(e.webhook);
      return webhook ? [entry, { ...entry, key: `${entry.key}w`, action: "push.set", object: webhook }] : [entry];
    }),
  );
}

/** who says who acted, as people read it. */
export function who(e: Entry): string {
  const name = e.subject || (e.method === "operator" ? "an operator" : "unnamed caller");
  return e.tenant ? `${name} (${e.tenant})` : name;
}

/** actions are those of docs/audit.md. */
export const actions = [
  "task.created",
  "task.continued",
  "task.resumed",
  "task.canceled",
  "task.hurried",
  "task.held",
  "task.released",
  "task.expired",
  "task.purged",
  "push.set",
  "push.deleted",
  "push.disabled",
  "push.enabled",
  "push.redelivered",
  "push.rekeyed",
  "push.tested",
  "key.created",
  "key.revoked",
  "job.created",
  "job.canceled",
  "worker.retired",
];
