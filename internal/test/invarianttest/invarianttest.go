// Package invarianttest checks the invariants of a whole database, which hold for every task
// between any two commits. Tests call it after they have injected their faults.
package invarianttest

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// most is the maximum number of reported violations.
const most = 20

// rules are queries that return a row for each violation. All of them see one snapshot.
var rules = []struct{ name, sql string }{
	{"the log counts from 1 to last_seq without a gap", `
		SELECT t.id::text || format(': last_seq %s, but %s events from %s to %s', t.last_seq, count(e.seq), min(e.seq), max(e.seq))
		  FROM holdfast.tasks t LEFT JOIN holdfast.task_events e ON e.task = t.id
		 GROUP BY t.id, t.last_seq
		HAVING count(e.seq) <> t.last_seq OR min(e.seq) IS DISTINCT FROM 1 OR max(e.seq) IS DISTINCT FROM t.last_seq`},
	{"every event has its task", `
		WITH orphan AS MATERIALIZED (
		    SELECT e.task, e.kept, format(': events %s to %s in %s, created %s, xmin %s, xmax %s', min(e.seq), max(e.seq), min(e.tableoid::regclass::text), min(e.created_at), min(e.xmin::text), max(e.xmax::text)) AS what
		      FROM holdfast.task_events e
		     WHERE NOT EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = e.task) GROUP BY e.task, e.kept
		)
		-- Retention deletes the task first: its log is on a list, or in a period that is going. A partition whose detach has
		-- begun is still listed, but its rows are gone.
		SELECT o.task::text || o.what FROM orphan o
		 WHERE NOT EXISTS (SELECT FROM holdfast.erasures x WHERE x.task = o.task)
		   AND (o.kept OR EXISTS (
		       SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
		              regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\) TO \(''([^'']+)''\)') AS b
		        WHERE i.inhparent = 'holdfast.tasks_dated'::regclass AND NOT i.inhdetachpending AND o.task >= b[1]::uuid AND o.task < b[2]::uuid))`},
	{"the log begins with a message", `
		SELECT task::text FROM holdfast.task_events WHERE seq = 1 AND kind <> 1`},
	{"a task that has ended has one terminal status, its last event; no other task has any", `
		SELECT t.id::text || format(': state %s, terminal events %s', t.state, array_agg(e.seq ORDER BY e.seq) FILTER (WHERE e.state >= 5))
		  FROM holdfast.tasks t LEFT JOIN holdfast.task_events e ON e.task = t.id
		 GROUP BY t.id, t.state, t.last_seq
		HAVING count(*) FILTER (WHERE e.state >= 5) <> CASE WHEN t.state >= 5 THEN 1 ELSE 0 END
		    OR (t.state >= 5 AND max(e.seq) FILTER (WHERE e.state >= 5) IS DISTINCT FROM t.last_seq)`},
	{"state and status_seq are those of the newest status", `
		SELECT t.id::text || format(': state %s from %s, but the newest status is %s from %s', t.state, t.status_seq, s.state, s.seq)
		  FROM holdfast.tasks t
		  LEFT JOIN LATERAL (SELECT e.seq, e.state FROM holdfast.task_events e
		                      WHERE e.task = t.id AND e.kind = 2 ORDER BY e.seq DESC LIMIT 1) s ON true
		 WHERE coalesce(s.state, 1) <> t.state OR coalesce(s.seq, 1) <> t.status_seq`},
	{"a queue row exists if and only if a run is wanted or under way", `
		SELECT coalesce(t.id, q.id)::text || format(': state %s, queue row %s', t.state, q.id IS NOT NULL)
		  FROM holdfast.tasks t FULL JOIN holdfast.task_queue q ON q.id = t.id
		 WHERE t.id IS NULL OR (t.state IN (1, 2)) <> (q.id IS NOT NULL)`},
	{"task and queue row name the same worker and agent", `
		SELECT t.id::text || format(': %s and %s', t.worker_id, q.worker_id)
		  FROM holdfast.tasks t JOIN holdfast.task_queue q ON q.id = t.id
		 WHERE t.worker_id IS DISTINCT FROM q.worker_id OR t.agent <> q.agent`},
	{"the queue row names a message", `
		SELECT q.id::text || format(': message_seq %s is of kind %s', q.message_seq, e.kind)
		  FROM holdfast.task_queue q LEFT JOIN holdfast.task_events e ON e.task = q.id AND e.seq = q.message_seq
		 WHERE e.kind IS DISTINCT FROM 1`},
	{"forwarded headers are of a message that has not been answered", `
		SELECT q.id::text || format(': message %s, but the turn is of %s', f.seq, q.message_seq)
		  FROM holdfast.task_queue q CROSS JOIN LATERAL jsonb_object_keys(q.forwarded) AS f (seq)
		  LEFT JOIN holdfast.task_events e ON e.task = q.id AND e.seq = f.seq::bigint AND e.kind = 1
		 WHERE e.seq IS NULL OR e.seq < q.message_seq OR e.seq = q.message_seq AND q.input_seq IS NOT NULL AND NOT q.interrupted`},
	{"turns counts the messages, the timers, the calls and the resumes", `
		SELECT t.id::text || format(': turns %s, messages %s, waits %s', t.turns, count(e.seq) FILTER (WHERE e.kind = 1), count(e.seq) FILTER (WHERE e.kind = 4))
		  FROM holdfast.tasks t
		  LEFT JOIN holdfast.task_events e ON e.task = t.id AND (e.kind = 1 OR e.kind = 4 AND e.payload ->> 'outcome' IN ('waits', 'calls', 'resume'))
		 -- A wait that a message ended has no turn of its own, nor has a resume that no run asked for.
		 GROUP BY t.id, t.turns HAVING t.turns NOT BETWEEN count(e.seq) FILTER (WHERE e.kind = 1) AND count(e.seq)`},
	{"pending counts the messages behind the one that is answered", `
		SELECT t.id::text || format(': state %s, pending %s, messages behind %s: %s', t.state, t.pending, q.message_seq, count(e.seq))
		  FROM holdfast.tasks t LEFT JOIN holdfast.task_queue q ON q.id = t.id
		  LEFT JOIN holdfast.task_events e ON e.task = t.id AND e.kind = 1 AND e.seq > q.message_seq
		 WHERE t.state < 5
		 GROUP BY t.id, t.state, t.pending, q.message_seq HAVING count(e.seq) <> t.pending`},
	{"a queue row's turn is the one before the waiting messages", `
		SELECT q.id::text || format(': turn %s, but %s turns and %s messages wait', q.turn, t.turns, t.pending)
		  FROM holdfast.task_queue q JOIN holdfast.tasks t ON t.id = q.id WHERE q.turn <> t.turns - t.pending`},
	{"a queue row's input is a wait, calls or a resume", `
		SELECT q.id::text || format(': input_seq %s is %s', q.input_seq, e.payload)
		  FROM holdfast.task_queue q LEFT JOIN holdfast.task_events e ON e.task = q.id AND e.seq = q.input_seq AND e.kind = 4
		 WHERE q.input_seq IS NOT NULL AND coalesce(e.payload ->> 'outcome', '') NOT IN ('waits', 'calls', 'resume') OR q.interrupted AND coalesce(e.payload ->> 'outcome', '') <> 'waits'`},
	{"a resume that is kept is in the log of an open task that is not parked", `
		SELECT t.id::text || format(': state %s, resumed_seq %s is %s', t.state, t.resumed_seq, e.payload ->> 'outcome')
		  FROM holdfast.tasks t LEFT JOIN holdfast.task_events e ON e.task = t.id AND e.seq = t.resumed_seq
		 WHERE t.resumed_seq IS NOT NULL AND t.state < 5 AND (t.state >= 3 OR e.kind <> 4 OR e.payload ->> 'outcome' IS DISTINCT FROM 'resume')`},
	{"each turn is resumed once", `
		SELECT e.task::text || format(': %s resumes in %s turns', count(*), t.turns)
		  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id AND e.kind = 4 AND e.payload ->> 'outcome' = 'resume'
		 GROUP BY e.task, t.turns HAVING count(*) > t.turns`},
	{"a task with a timer is working and has no worker", `
		SELECT q.id::text || format(': wakes_at %s and %s, due at %s, state %s, worker %s', q.wakes_at, t.wakes_at, q.available_at, t.state, q.worker_id)
		  FROM holdfast.task_queue q JOIN holdfast.tasks t ON t.id = q.id
		 WHERE q.wakes_at IS NOT NULL AND (t.wakes_at, t.state, q.available_at) IS DISTINCT FROM (q.wakes_at, 2::smallint, CASE WHEN q.wakes_at = 'infinity' THEN q.available_at ELSE q.wakes_at END)
		    OR t.wakes_at IS NOT NULL AND q.worker_id IS NOT NULL`},
	{"only open tasks have timers", `
		SELECT t.id::text FROM holdfast.tasks t WHERE t.wakes_at IS NOT NULL AND t.state <> 2`},
	{"a task waits for calls only as long as one of them has no result", `
		SELECT q.id::text || format(': calls of event %s', q.input_seq)
		  FROM holdfast.task_queue q
		 WHERE q.wakes_at = 'infinity'
		   AND NOT EXISTS (SELECT FROM holdfast.task_calls c WHERE c.parent = q.id AND c.seq = q.input_seq AND c.settled_at IS NULL)`},
	{"a turn after calls has the results of all of them", `
		SELECT q.id::text || format(': call %s of event %s has none', c.nth, c.seq)
		  FROM holdfast.task_queue q JOIN holdfast.task_calls c ON c.parent = q.id AND c.seq = q.input_seq AND c.settled_at IS NULL
		 WHERE q.wakes_at IS NULL`},
	{"calls are those of a run note", `
		SELECT c.parent::text || format(': call %s of event %s for %s', c.nth, c.seq, c.child)
		  FROM holdfast.task_calls c JOIN holdfast.tasks t ON t.id = c.parent
		  LEFT JOIN holdfast.task_events e ON e.task = c.parent AND e.seq = c.seq AND e.kind = 4
		 WHERE (e.payload #>> ARRAY['calls', (c.nth - 1)::text, 'task'])::uuid IS DISTINCT FROM c.child`},
	{"a called task exists if and only if its call has begun, and knows its lineage", `
		SELECT c.child::text || format(': begun at %s, task %s, lineage %s', c.started_at, t.id, t.lineage)
		  FROM holdfast.task_calls c LEFT JOIN holdfast.tasks t ON t.id = c.child
		 WHERE NOT c.answers AND (t.id IS NOT NULL AND c.started_at IS NULL OR t.lineage IS FALSE)`},
	{"the end of a called task is joined, or on the list", `
		SELECT c.child::text || format(': state %s by event %s, but call %s of %s has no result', t.state, t.status_seq, c.nth, c.parent)
		  FROM holdfast.task_calls c LEFT JOIN holdfast.tasks t ON t.id = c.child
		 WHERE c.started_at IS NOT NULL AND c.settled_at IS NULL AND (t.id IS NULL OR t.state >= 3 AND t.status_seq > c.after_seq)
		   AND NOT EXISTS (SELECT FROM holdfast.task_settled s WHERE s.task = c.child AND s.seq >= coalesce(t.status_seq, 0))`},
	{"a result is a status of the called task, after the message of the call", `
		SELECT c.child::text || format(': result %s by event %s, which is %s', c.state, c.child_seq, e.state)
		  FROM holdfast.task_calls c JOIN holdfast.tasks t ON t.id = c.child
		  LEFT JOIN holdfast.task_events e ON e.task = c.child AND e.seq = c.child_seq
		 WHERE c.child_seq IS NOT NULL AND (e.state IS DISTINCT FROM c.state OR c.child_seq <= c.after_seq)`},
	{"what an ended task has called has ended, or the task is on the list", `
		SELECT c.parent::text || format(': call %s, task %s', c.nth, c.child)
		  FROM holdfast.task_calls c LEFT JOIN holdfast.tasks t ON t.id = c.child
		 WHERE NOT EXISTS (SELECT FROM holdfast.tasks p WHERE p.id = c.parent AND p.state < 5)
		   AND (c.started_at IS NULL AND c.settled_at IS NULL OR t.state < 5 AND NOT t.cancel_requested)
		   AND NOT EXISTS (SELECT FROM holdfast.task_settled s WHERE s.task = c.parent)`},
	{"a relayed status is one of a called task, and its caller waits for it", `
		SELECT e.task::text || format(': event %s of call %s', e.seq, e.payload #> '{metadata,call,id}')
		  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
		  LEFT JOIN holdfast.task_calls c ON c.parent = e.task AND c.relay AND c.call_id = e.payload #>> '{metadata,call,id}'
		   AND c.seq = (SELECT max(n.seq) FROM holdfast.task_events n WHERE n.task = e.task AND n.attempt > 0 AND n.seq < e.seq)
		 WHERE e.kind = 2 AND e.state = 2 AND e.attempt = 0 AND e.payload #> '{metadata,call}' IS NOT NULL
		   -- Retention deletes the calls of a task that has ended, and later the task.
		   AND (c.child IS NULL AND (t.state < 5 OR EXISTS (SELECT FROM holdfast.task_calls x WHERE x.parent = e.task))
		        OR EXISTS (SELECT FROM holdfast.tasks k WHERE k.id = c.child)
		        AND NOT EXISTS (SELECT FROM holdfast.task_events k WHERE k.task = c.child AND k.kind = 2 AND k.state = 2
		                           AND k.seq > c.after_seq AND k.seq <= c.relayed_seq AND (k.payload -> 'message')::text = (e.payload -> 'message')::text))`},
	{"statuses of a call are relayed in their order, once, and at most one in a second", `
		SELECT x.task::text || format(': event %s of call %s', x.seq, x.call)
		  FROM (SELECT e.task, e.seq, e.created_at, e.payload #>> '{metadata,call,id}' AS call, k.seq AS of, lag(k.seq) OVER w AS before, lag(e.created_at) OVER w AS at_before
		          FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
		          LEFT JOIN LATERAL (
		            SELECT min(k.seq) AS seq FROM holdfast.task_events k
		             WHERE k.task = (e.payload #>> '{metadata,call,task}')::uuid AND k.kind = 2 AND k.state = 2 AND (k.payload -> 'message')::text = (e.payload -> 'message')::text
		          ) k ON true
		         WHERE e.kind = 2 AND e.state = 2 AND e.attempt = 0 AND e.payload #> '{metadata,call}' IS NOT NULL
		        WINDOW w AS (PARTITION BY e.task, e.payload #>> '{metadata,call,id}',
		                            (SELECT max(n.seq) FROM holdfast.task_events n WHERE n.task = e.task AND n.attempt > 0 AND n.seq < e.seq) ORDER BY e.seq)) x
		 WHERE x.of <= x.before OR x.created_at < x.at_before + interval '1 second'`},
	{"attempts never decrease along a log", `
		SELECT DISTINCT x.task::text FROM (
		    SELECT task, attempt, max(attempt) OVER (PARTITION BY task ORDER BY seq) AS so_far
		      FROM holdfast.task_events WHERE attempt > 0) x
		 WHERE x.attempt < x.so_far`},
	{"every event belongs to an attempt that existed", `
		SELECT DISTINCT t.id::text FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id WHERE e.attempt > t.attempt`},
	{"run_ordinal counts the events of the present attempt", `
		SELECT t.id::text || format(': attempt %s, run_ordinal %s, events %s', t.attempt, t.run_ordinal, count(e.seq))
		  FROM holdfast.tasks t
		  LEFT JOIN holdfast.task_events e ON e.task = t.id AND e.attempt = t.attempt AND t.attempt > 0
		   AND (e.kind <> 4 OR e.payload ->> 'outcome' NOT IN ('lost', 'retry', 'returned', 'away'))
		 GROUP BY t.id, t.attempt, t.run_ordinal, t.posted
		HAVING count(e.seq) <> t.run_ordinal AND NOT t.posted`},
	{"a listing names the artifacts of the chunks before it, in their order", `
		SELECT t.id::text || format(': event %s lists %s', t.artifacts_seq, e.payload -> 'artifacts')
		  FROM holdfast.tasks t LEFT JOIN holdfast.task_events e ON e.task = t.id AND e.seq = t.artifacts_seq
		 WHERE t.artifacts_seq IS NOT NULL
		   AND ARRAY(SELECT json_array_elements_text(e.payload -> 'artifacts')) IS DISTINCT FROM
		       ARRAY(SELECT c.artifact_id FROM holdfast.task_events c
		              WHERE c.task = t.id AND c.kind = 3 AND c.seq < e.seq GROUP BY c.artifact_id ORDER BY min(c.seq))`},
	{"every webhook has a cursor and a task that knows of it", `
		SELECT coalesce(c.task, k.task)::text || format(': configuration %s, cursor %s, pushes %s', c.config_id, k.config_id, t.pushes)
		  FROM holdfast.push_configs c
		  FULL JOIN holdfast.push_cursors k ON k.task = c.task AND k.config_id = c.config_id
		  LEFT JOIN holdfast.tasks t ON t.id = coalesce(c.task, k.task)
		 WHERE c.task IS NULL OR k.task IS NULL OR t.pushes IS NOT TRUE`},
	{"a cursor lies within its log", `
		SELECT k.task::text || format(' %s: next %s, due %s, but the log ends with %s', k.config_id, k.next_seq, k.due_seq, t.last_seq)
		  FROM holdfast.push_cursors k JOIN holdfast.tasks t ON t.id = k.task
		 WHERE k.next_seq > t.last_seq + 1 OR k.due_seq > t.last_seq`},
	{"what a webhook wants is marked", `
		SELECT k.task::text || format(' %s: next %s, due %s, but event %s is there', k.config_id, k.next_seq, k.due_seq, max(e.seq))
		  FROM holdfast.push_cursors k
		  JOIN holdfast.task_events e ON e.task = k.task AND e.seq >= k.next_seq AND e.seq > k.due_seq
		   AND (e.kind = 2 OR e.kind = 3 AND k.artifacts)
		 GROUP BY k.task, k.config_id, k.next_seq, k.due_seq`},
	{"a webhook is due if and only if it is behind and not disabled", `
		SELECT k.task::text || format(' %s: next %s, due %s since %s at %s, disabled at %s', k.config_id, k.next_seq, k.due_seq, k.due_since, k.due_at, k.disabled_at)
		  FROM holdfast.push_cursors k
		 WHERE (k.due_seq >= k.next_seq) <> (k.due_since IS NOT NULL)
		    OR (k.due_seq >= k.next_seq AND k.disabled_at IS NULL) <> (k.due_at IS NOT NULL)`},
	{"a webhook that is claimed is due when the claim ends", `
		SELECT k.task::text || format(' %s: due at %s, locked until %s', k.config_id, k.due_at, k.locked_until)
		  FROM holdfast.push_cursors k WHERE k.claim IS NOT NULL AND k.due_at <> k.locked_until`},
	{"a parked delivery is due", `
		SELECT k.task::text || ' ' || k.config_id FROM holdfast.push_cursors k WHERE k.parked AND (k.due_at IS NULL OR k.due_at > now())`},
	{"the disabled, and they alone, have a reason", `
		SELECT k.task::text || ' ' || k.config_id FROM holdfast.push_cursors k WHERE (k.disabled_at IS NULL) <> (k.disabled_for IS NULL)`},
	{"no attempt is of events that are not there", `
		SELECT a.task::text || format(' %s: attempt of %s to %s, but the log ends with %s', a.config_id, a.from_seq, a.to_seq, t.last_seq)
		  FROM holdfast.push_attempts a JOIN holdfast.tasks t ON t.id = a.task WHERE a.to_seq > t.last_seq`},
}

// Check returns the violations in the database behind url as an error, or nil.
func Check(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("invariants: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return CheckIn(ctx, tx)
	})
}

// CheckIn is Check in the caller's transaction, which must have one snapshot for all its
// statements.
func CheckIn(ctx context.Context, tx pgx.Tx) error {
	// As in the server's sessions. To compile a statement for dozens of partitions takes minutes, and a partition that was analyzed
	// while it was empty would be read whole for each row.
	// The locks come before the snapshot. A detach that begins and ends between snapshot and locks takes the rows of tasks away, but
	// pg_inherits still shows their partition.
	const begin = "SET LOCAL jit = off; SET LOCAL enable_seqscan = off; LOCK TABLE holdfast.tasks, holdfast.task_events IN ACCESS SHARE MODE"
	if _, err := tx.Exec(ctx, begin, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("invariants: %w", err)
	}
	var found []error
	for _, r := range rules {
		rows, err := tx.Query(ctx, r.sql)
		if err != nil {
			return fmt.Errorf("invariants: %s: %w", r.name, err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("invariants: %s: %w", r.name, err)
		}
		for _, l := range lines {
			found = append(found, fmt.Errorf("%s: %s", r.name, l))
		}
	}
	steps, err := transitions(ctx, tx)
	if err != nil {
		return fmt.Errorf("invariants: %w", err)
	}
	found = append(found, steps...)
	if len(found) > most {
		found = append(found[:most], fmt.Errorf("and %d more", len(found)-most))
	}
	return errors.Join(found...)
}

// transitions checks the statuses of every task against the table of states.
func transitions(ctx context.Context, tx pgx.Tx) ([]error, error) {
	rows, err := tx.Query(ctx, `SELECT task, seq, state FROM holdfast.task_events WHERE kind = 2 ORDER BY task, seq`) //nolint:rowserrcheck // ForEachRow does
	if err != nil {
		return nil, err
	}
	var found []error
	var id, last [16]byte
	var seq int64
	var to task.State
	from := task.StateSubmitted
	_, err = pgx.ForEachRow(rows, []any{&id, &seq, &to}, func() error {
		if id != last {
			last, from = id, task.StateSubmitted
		}
		if !from.CanBecome(to) {
			found = append(found, fmt.Errorf("states follow the table: %s: event %d makes %s out of %s", task.ID(id), seq, to, from))
		}
		from = to
		return nil
	})
	return found, err
}
