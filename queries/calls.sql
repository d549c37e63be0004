-- Calls of other agents: what a task waits for, and what it gets.
--
-- The statements that end or park a called task only record that (task_settled), because they hold its lock. JoinCalls
-- then locks the queue rows of the callers, and no task, and waits for no lock. So no statement waits for a task and a
-- caller of it.

-- name: CallsNew :many
-- The calls that have not begun, those that wait for longest first, after a place in that order. Index task_calls_new.
SELECT parent, seq, nth, agent, child, answers, callers, created_at FROM holdfast.task_calls
 WHERE started_at IS NULL AND settled_at IS NULL AND created_at <= now() - @older::interval
   AND (created_at, parent, seq, nth) > (@after_time::timestamptz, @after_parent::uuid, @after_seq::bigint,
                                         @after_nth::integer)
 ORDER BY created_at, parent, seq, nth LIMIT @max_rows;

-- name: CallNote :one
-- The caller of a run note's calls, the note, and the message whose request allows them: the newest that a run has
-- answered. By primary keys.
SELECT sqlc.embed(t), holdfast.note_at(t.id, @seq) AS note,
       holdfast.message_at(t.id, (SELECT q.message_seq FROM holdfast.task_queue q WHERE q.id = t.id)) AS request
  FROM holdfast.tasks t WHERE t.id = @id;

-- name: CallKnown :one
-- Whether a task has called another one in an earlier turn. Index task_calls_child.
SELECT EXISTS (SELECT FROM holdfast.task_calls c
                WHERE c.child = @child AND c.parent = @parent AND NOT c.answers AND c.started_at IS NOT NULL)::boolean;

-- name: CallRefuse :execrows
-- Gives a call that has not begun its result: it was refused.
UPDATE holdfast.task_calls SET settled_at = now(), state = 8, error = @error::text
 WHERE parent = @parent AND seq = @seq AND nth = @nth AND started_at IS NULL AND settled_at IS NULL;

-- name: CallAnswered :execrows
-- Begins a call whose message the called task has got.
UPDATE holdfast.task_calls SET started_at = now(), after_seq = @after_seq
 WHERE parent = @parent AND seq = @seq AND nth = @nth AND started_at IS NULL AND settled_at IS NULL;

-- name: SettledAdd :exec
-- Records the end of a task again.
INSERT INTO holdfast.task_settled (task, seq)
SELECT t.id, t.status_seq
  FROM holdfast.tasks t
 WHERE t.id = @task AND t.state >= 5
ON CONFLICT DO NOTHING;

-- name: SettledTake :many
SELECT task, seq FROM holdfast.task_settled
 WHERE (task, seq) > (@after_task::uuid, @after_seq::bigint)
 ORDER BY task, seq LIMIT @max_rows FOR UPDATE SKIP LOCKED;

-- name: CallersLock :many
-- Locks the open calls that wait for these tasks, and the queue rows of their callers if they wait. It skips what
-- another session has locked: the results of those tasks have to wait (not free). Index task_calls_child.
WITH open AS MATERIALIZED (
    SELECT c.parent, c.seq, c.nth, c.child FROM holdfast.task_calls c
     WHERE c.child = ANY(@tasks::uuid[]) AND c.settled_at IS NULL
), mine AS MATERIALIZED (
    SELECT c.parent, c.seq, c.nth FROM holdfast.task_calls c
     WHERE c.child = ANY(@tasks::uuid[]) AND c.settled_at IS NULL
       FOR UPDATE SKIP LOCKED
), waiting AS MATERIALIZED (
    SELECT q.id FROM holdfast.task_queue q
     WHERE q.id = ANY(ARRAY(SELECT parent FROM open))
       AND coalesce(q.wakes_at = 'infinity', false) -- not by index task_queue_timers
), held AS MATERIALIZED (
    SELECT q.id FROM holdfast.task_queue q
     WHERE q.id = ANY(ARRAY(SELECT parent FROM open)) AND coalesce(q.wakes_at = 'infinity', false)
       FOR UPDATE SKIP LOCKED
)
SELECT o.child, o.parent, (o.parent IN (SELECT id FROM held))::boolean AS waits,
       ((o.parent, o.seq, o.nth) IN (SELECT parent, seq, nth FROM mine)
           AND (o.parent IN (SELECT id FROM held) OR o.parent NOT IN (SELECT id FROM waiting)))::boolean AS free
  FROM open o;

-- name: QueueRowLock :many
SELECT q.id FROM holdfast.task_queue q WHERE q.id = @id FOR UPDATE;

-- name: CallsSettle :one
-- Gives the calls of tasks that have ended or parked their result.
SELECT count(*) FILTER (WHERE holdfast.call_settle(x.task, x.seq))
  FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@seqs::bigint[]) AS seq) x;

-- name: CallersWake :many
-- Makes the turns due whose calls all have their result. The queue rows are locked, and the snapshot is newer.
UPDATE holdfast.task_queue q SET wakes_at = NULL, available_at = now()
 WHERE q.id = ANY(@parents::uuid[])
   AND coalesce(q.worker_id IS NULL AND q.wakes_at = 'infinity', false) -- not by index task_queue_timers
   AND holdfast.calls_settled(q.id, q.input_seq)
RETURNING q.agent;

-- name: CallersEnded :many
-- Those of these tasks that have called others, and have ended or were deleted.
SELECT x.task::uuid AS task FROM (SELECT unnest(@tasks::uuid[]) AS task) x WHERE holdfast.caller_ended(x.task);

-- name: SettledDrop :one
-- Forgets what was joined.
SELECT count(*) FILTER (WHERE holdfast.settled_drop(x.task, x.seq))
  FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@seqs::bigint[]) AS seq) x;

-- name: CallsVoid :exec
-- Ends the calls of a task that have not begun.
UPDATE holdfast.task_calls
   SET settled_at = now(), state = 7
 WHERE parent = @parent AND started_at IS NULL AND settled_at IS NULL;

-- name: CallsUnended :many
-- The tasks that a task has called and that have not ended.
SELECT * FROM holdfast.tasks t
 WHERE t.id = ANY(ARRAY(SELECT c.child
                          FROM holdfast.task_calls c
                         WHERE c.parent = @parent AND c.started_at IS NOT NULL))
   AND t.state NOT IN (5, 6, 7, 8)
 ORDER BY t.id;

-- name: CallsErase :exec
-- Deletes the calls of a deleted task.
DELETE FROM holdfast.task_calls c WHERE c.parent = @parent AND NOT holdfast.task_exists(@parent);

-- name: CallResults :many
-- The calls of a run note, in their order. By primary key.
SELECT nth, call_id, agent, child, answers, coalesce(state, 0)::smallint AS state,
       coalesce(child_seq, 0)::bigint AS child_seq, coalesce(error, '')::text AS error
  FROM holdfast.task_calls WHERE parent = @parent AND seq = @seq ORDER BY nth;

-- name: CallsOf :many
-- For operators: the calls of a task, and the one that created it. By primary key, and index task_calls_child.
SELECT * FROM holdfast.task_calls c WHERE c.parent = @task
 UNION ALL
SELECT * FROM holdfast.task_calls c WHERE c.child = @task AND NOT c.answers
 ORDER BY 2, 3;

-- name: RelaysDue :many
-- Calls with relay of callers that wait, if the called task has a newer status than the last one that was looked at. A
-- call is due again a while after its last relay. If the tasks of the calling agent are visible to its tenant (shared),
-- so must be those of the called agent. Index task_calls_relays.
SELECT c.parent, c.seq, c.nth, c.call_id, c.child, t.agent,
       CAST(greatest(c.relayed_seq, c.after_seq) AS bigint) AS after, t.status_seq AS seen
  FROM holdfast.task_calls c
 CROSS JOIN LATERAL (
    SELECT x.agent, x.status_seq FROM holdfast.tasks x
     WHERE x.id = c.child AND x.state NOT IN (3, 4, 5, 6, 7, 8)
       AND x.status_seq > greatest(c.relayed_seq, c.after_seq) OFFSET 0
 ) t
 WHERE c.relay AND c.started_at IS NOT NULL AND c.settled_at IS NULL
   AND (c.relayed_at IS NULL OR c.relayed_at <= now() - @pause::interval)
   AND (c.callers[cardinality(c.callers)] = ANY(@owned::text[])
        OR c.callers[cardinality(c.callers)] = ANY(@shared::text[]) AND t.agent = ANY(@shared::text[]))
 ORDER BY c.parent, c.seq, c.nth LIMIT @max_rows;

-- name: RelayNewest :one
-- The newest status of a called task with a message; null if its payload is larger than most_bytes. It is a statement
-- about one task, so it opens one partition.
SELECT CAST(CASE WHEN octet_length(x.payload::text) <= @most_bytes::integer THEN x.payload END AS json) AS payload
  FROM holdfast.task_events x
 WHERE x.task = @task AND x.kind = 2 AND x.state = 2 AND x.seq > @after AND x.seq <= @seen
   AND x.payload -> 'message' IS NOT NULL
 ORDER BY x.seq DESC LIMIT 1;

-- name: RelaysAppend :many
-- Writes statuses of called tasks to the log of a caller, and moves the cursors of their calls in the same commit. An
-- empty payload only moves the cursor. It writes nothing once the caller has gone on or has ended, or the call has its
-- result. It locks one task, then rows of its calls, and waits for neither: what is locked is due again at the next
-- look.
WITH inp AS MATERIALIZED (
    SELECT unnest(@seqs::bigint[]) AS seq, unnest(@nths::integer[]) AS nth, unnest(@seen::bigint[]) AS seen,
           unnest(@payloads::text[]) AS payload
), lck AS MATERIALIZED (
    SELECT t.id, t.kept, t.last_seq, t.pushes, coalesce(t.client_id, t.id::text) AS public_id, t.context_id
      FROM holdfast.tasks t
     WHERE t.id = @parent AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NULL AND t.wakes_at = 'infinity'
       FOR NO KEY UPDATE SKIP LOCKED
), due AS MATERIALIZED (
    -- The scalar subquery makes PostgreSQL lock the task first.
    SELECT c.seq, c.nth, i.seen, i.payload
      FROM holdfast.task_calls c JOIN inp i ON i.seq = c.seq AND i.nth = c.nth
     WHERE c.parent = (SELECT lck.id FROM lck) AND c.relay AND c.settled_at IS NULL AND c.relayed_seq < i.seen
       AND (c.relayed_at IS NULL OR c.relayed_at <= now() - @pause::interval)
       FOR NO KEY UPDATE OF c SKIP LOCKED
), shown AS MATERIALIZED (
    SELECT d.seq, d.nth, d.payload, row_number() OVER (ORDER BY d.seq, d.nth) AS rn FROM due d WHERE d.payload <> ''
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = lck.last_seq + s.n, status_seq = lck.last_seq + s.n, status_at = now()
      FROM lck, (SELECT count(*) AS n FROM shown) s
     WHERE t.id = @parent AND t.id = lck.id AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND s.n > 0
), seen AS (
    UPDATE holdfast.task_calls c
       SET relayed_seq = d.seen, relayed_at = CASE WHEN d.payload <> '' THEN now() ELSE c.relayed_at END
      FROM due d WHERE c.parent = @parent AND c.seq = d.seq AND c.nth = d.nth
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, state, attempt, payload)
    SELECT lck.id, lck.last_seq + s.rn, 2, lck.kept, 2, 0, s.payload::json FROM shown s CROSS JOIN lck
)
SELECT s.seq AS note, s.nth, (lck.last_seq + s.rn)::bigint AS seq, now()::timestamptz AS at,
       lck.public_id::text AS public_id, lck.context_id,
       (SELECT CASE WHEN m.pushes AND m.newest > m.last_seq
                    THEN holdfast.push_mark(ARRAY[m.id], ARRAY[m.newest], ARRAY[m.newest])
                    ELSE 0 END
          FROM (SELECT l.id, l.pushes, l.last_seq, l.last_seq + (SELECT count(*) FROM shown) AS newest
                  FROM lck l) m)::integer AS marked
  FROM shown s CROSS JOIN lck
 ORDER BY s.rn;
