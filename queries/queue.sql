-- Claiming runs and giving them back.

-- name: QueueClaim :many
-- Takes up to slots[i] due tasks of agents[i] for a worker and raises their attempt. The
-- ids are gathered in an array first: an IN or a join is planned as if LIMIT were unknown
-- and reads the whole queue. since[i] skips the dead prefix of the index that an old
-- snapshot elsewhere keeps from being vacuumed. Index task_queue_ready.
--
-- It waits for nobody: a task whose row somebody has locked at this moment (a message, a
-- cancel, a write that is about to be fenced) is left for the next claim. So it can begin at
-- the queue, where everybody else begins at the task, without a deadlock.
WITH c AS MATERIALIZED (
    SELECT ARRAY(
        SELECT x.id
          FROM (SELECT unnest(@agents::text[]) AS agent, unnest(@slots::integer[]) AS slots,
                       unnest(@since::timestamptz[]) AS since) a
         CROSS JOIN LATERAL (
            SELECT q.id FROM holdfast.task_queue q
             WHERE q.agent = a.agent AND q.worker_id IS NULL
               AND q.available_at >= a.since AND q.available_at <= now()
             ORDER BY q.available_at, q.id
             LIMIT a.slots
               FOR UPDATE SKIP LOCKED
         ) x
    ) AS ids
), l AS MATERIALIZED (
    SELECT ARRAY(
        SELECT x.id FROM holdfast.tasks x
         WHERE x.id = ANY((SELECT ids FROM c)::uuid[]) AND x.state + 0 < 3 -- not by index tasks_open
           FOR NO KEY UPDATE SKIP LOCKED
    ) AS ids
), q AS (
    UPDATE holdfast.task_queue SET worker_id = @worker::uuid, tries = tries + 1
     WHERE id = ANY((SELECT ids FROM l)::uuid[])
    RETURNING id, message_seq, turn, tries, available_at
), t AS (
    UPDATE holdfast.tasks t
       SET worker_id = @worker::uuid, attempt = t.attempt + 1, runs = t.runs + 1, run_ordinal = 0,
           claimed_at = now()
      FROM q
     WHERE t.id = ANY((SELECT ids FROM l)::uuid[]) AND t.id = q.id
    RETURNING t.id, t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.state, t.last_seq, t.attempt,
              t.cancel_requested, t.dialect, t.metadata, t.created_at, t.artifact_bytes,
              q.message_seq, q.turn, q.tries, q.available_at
)
SELECT t.id, t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.state, t.last_seq, t.attempt,
       t.cancel_requested, t.dialect, t.metadata, t.created_at, t.artifact_bytes,
       t.message_seq, t.turn, t.tries, t.available_at, now()::timestamptz AS claimed_at,
       holdfast.message_at(t.id, t.message_seq) AS payload
  FROM t;

-- name: RunRequeue :one
-- Ends an attempt without ending the task: the queue row waits for @delay and the log says
-- why. @uncount takes the attempt back (a worker that shuts down is not the task's fault).
-- Fenced like EventsAppend. No row: the run was no longer this worker's.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.last_seq, t.attempt, t.cancel_requested, t.worker_id, t.claimed_at FROM holdfast.tasks t
     WHERE t.id = @id AND t.attempt = @attempt AND t.state + 0 < 3 AND t.worker_id IS NOT NULL
       FOR NO KEY UPDATE
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = lck.last_seq + 1, worker_id = NULL,
           runs = CASE WHEN @uncount::boolean THEN t.runs - 1 ELSE t.runs END
      FROM lck WHERE t.id = lck.id
), queued AS (
    UPDATE holdfast.task_queue q
       SET worker_id = NULL,
           -- Whoever claims a task that was asked to end only writes that down: no reason to wait.
           available_at = CASE WHEN lck.cancel_requested THEN now() ELSE now() + @delay::interval END,
           tries = CASE WHEN @uncount::boolean THEN q.tries - 1 ELSE q.tries END
      FROM lck WHERE q.id = @id AND q.id = lck.id
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, attempt, payload, worker_id, claimed_at)
    SELECT lck.id, lck.last_seq + 1, 4, lck.attempt, CAST(@payload::text AS json), lck.worker_id, lck.claimed_at FROM lck
)
SELECT (lck.last_seq + 1)::bigint AS seq, now()::timestamptz AS at FROM lck;

-- name: QueueHurry :one
-- Makes a run due that waits for its next attempt. Locks the task, then its queue row. No row:
-- the task wants no run.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.worker_id FROM holdfast.tasks t
     WHERE t.id = @id AND t.state < 3
       FOR NO KEY UPDATE
), due AS (
    UPDATE holdfast.task_queue q SET available_at = now()
     WHERE q.id = (SELECT lck.id FROM lck) AND q.worker_id IS NULL AND q.available_at > now()
    RETURNING q.id
)
SELECT (lck.worker_id IS NOT NULL)::boolean AS owned, EXISTS (SELECT FROM due)::boolean AS hurried FROM lck;

-- name: RunsOwned :many
-- What the database believes a worker runs: the poll behind the cancel hint, and how a
-- worker finds a claim whose answer was lost with its connection. Index task_queue_owned.
SELECT t.id, t.attempt, t.cancel_requested
  FROM holdfast.task_queue q JOIN holdfast.tasks t ON t.id = q.id
 WHERE q.worker_id = @worker::uuid;

-- name: RunsCanceled :many
-- Which of some tasks a worker runs and was asked to end: what it looks at when it is told so. By primary key.
SELECT id, attempt FROM holdfast.tasks
 WHERE id = ANY(@ids::uuid[]) AND worker_id = @worker::uuid AND cancel_requested;

-- name: QueueDepth :many
-- For metrics: what waits and what runs, by agent.
SELECT agent,
       count(*) FILTER (WHERE worker_id IS NULL)::bigint AS waiting,
       count(*) FILTER (WHERE worker_id IS NOT NULL)::bigint AS running,
       coalesce(extract(epoch FROM now() - min(available_at) FILTER (WHERE worker_id IS NULL AND available_at <= now())), 0)::float8
           AS oldest_seconds
  FROM holdfast.task_queue GROUP BY agent;
