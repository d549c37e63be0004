-- What agents are told about canceled tasks.

-- name: NoticesClaim :many
-- Claims up to slots[i] notices of agents[i] that are due, for as long as @lease. A task with a run that has not ended
-- yet is looked at again after a second. A task that ended in another way was not canceled, so its notice goes. Locks
-- no task. Index cancel_notices_due.
WITH due AS MATERIALIZED (
    SELECT ARRAY(
        SELECT x.task
          FROM (SELECT unnest(@agents::text[]) AS agent, unnest(@slots::integer[]) AS slots) a
         CROSS JOIN LATERAL (
            SELECT n.task FROM holdfast.cancel_notices n
             WHERE n.agent = a.agent AND n.ended_at IS NULL AND n.due_at <= now()
             ORDER BY n.due_at LIMIT a.slots
               FOR UPDATE SKIP LOCKED
         ) x
    ) AS tasks
), seen AS MATERIALIZED (
    SELECT i.id, holdfast.task_state(i.id) AS state FROM unnest((SELECT tasks FROM due)::uuid[]) AS i (id)
), moot AS (
    DELETE FROM holdfast.cancel_notices n
     WHERE n.task = ANY(ARRAY(SELECT id FROM seen WHERE state IS NULL OR state IN (5, 6, 8)))
), early AS (
    UPDATE holdfast.cancel_notices n
       SET due_at = now() + interval '1 second'
     WHERE n.task = ANY(ARRAY(SELECT id FROM seen WHERE state < 5))
)
UPDATE holdfast.cancel_notices n SET tries = n.tries + 1, due_at = now() + @lease::interval, worker_id = @worker::uuid
 WHERE n.task = ANY(ARRAY(SELECT id FROM seen WHERE state = 7))
RETURNING n.task, n.agent, n.reason, n.tries, (now() - n.requested_at)::interval AS age;

-- name: NoticeRecord :execrows
-- Records the result of a try: the notice has ended (@ended), or is due again after @delay. It changes nothing if a
-- later try has begun. By primary key.
UPDATE holdfast.cancel_notices n
   SET ended_at = CASE WHEN @ended::boolean THEN now() END, delivered = @delivered, error = @error,
       due_at = now() + @delay::interval
 WHERE n.task = @task AND n.tries = @try AND n.ended_at IS NULL;

-- name: NoticeDrop :execrows
-- Deletes the notice of a task whose agent wants none. By primary key.
DELETE FROM holdfast.cancel_notices n WHERE n.task = @task;

-- name: NoticeFacts :one
-- Finds the newest run that the agent has begun in a part of a log: its attempt (0: none), and how many
-- turns ended before it; how many turns end in the part; the newest checkpoint; and the metadata of the request that
-- canceled the task. By primary key. v_runs counts turns in the same way.
WITH log AS MATERIALIZED (
    SELECT e.seq, e.kind, e.state, e.attempt,
           CASE WHEN e.kind = 4 THEN (e.payload -> 'outcome') #>> '{}' END AS outcome,
           CASE WHEN e.attempt = 0 THEN e.payload -> 'cancel' END AS cancel
      FROM holdfast.task_events e
     WHERE e.task = @task AND e.seq > sqlc.arg(after)::bigint AND e.seq <= @upto::bigint AND e.kind IN (2, 4)
), ends AS MATERIALIZED (
    SELECT seq, attempt, kind = 2 OR outcome IN ('waits', 'calls') AS turn
      FROM log
     WHERE attempt > 0
       AND (kind = 2 AND state <> 2 OR kind = 4 AND outcome IN ('lost', 'retry', 'returned', 'waits', 'calls'))
), newest AS MATERIALIZED (
    SELECT seq, attempt FROM ends ORDER BY seq DESC LIMIT 1
)
SELECT coalesce((SELECT attempt FROM newest), 0)::integer AS attempt,
       (SELECT count(*) FROM ends WHERE turn AND seq < (SELECT seq FROM newest))::bigint AS before,
       (SELECT count(*) FROM ends WHERE turn)::bigint AS turns,
       (SELECT e.payload -> 'checkpoint' FROM holdfast.task_events e
         WHERE e.task = @task
           AND e.seq = (SELECT max(seq) FROM log WHERE kind = 4 AND outcome = 'checkpoint'))::json AS checkpoint,
       (SELECT cancel FROM log WHERE cancel IS NOT NULL ORDER BY seq DESC LIMIT 1)::json AS metadata;
