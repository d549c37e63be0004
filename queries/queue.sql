-- Claiming runs and giving them back.

-- name: QueueClaim :many
-- Claims up to slots[i] due tasks of agents[i] for a worker and raises their attempt. The ids are
-- collected in an array first: PostgreSQL plans an IN or a join as if LIMIT were unknown, and reads
-- the whole queue. since[i] skips the dead prefix of the index, which vacuum cannot remove while
-- another session has an old snapshot. Index task_queue_ready.
--
-- It never waits for a lock: it leaves a task with a locked row for the next claim. A message, a
-- cancel, or a write that is about to be fenced may hold the lock. So it can start at the queue
-- without a deadlock, although all other statements start at the task. No task that it is about to
-- lock has moved: the commit that ends a task deletes its queue row, and this statement has either
-- locked that row before or does not find it.
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
         WHERE x.id = ANY((SELECT ids FROM c)::uuid[]) AND x.state NOT IN (3, 4, 5, 6, 7, 8)
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
     WHERE t.id = ANY((SELECT ids FROM l)::uuid[]) AND t.id = q.id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
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
-- Ends an attempt without ending the task: the queue row becomes due after @delay, and the log
-- records why. @uncount does not count the attempt (a worker's shutdown is not the task's fault).
-- Fenced like EventsAppend. No row: the run no longer belongs to this worker.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.kept, t.last_seq, t.attempt, t.cancel_requested, t.worker_id, t.claimed_at FROM holdfast.tasks t
     WHERE t.id = @id AND t.attempt = @attempt AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
       FOR NO KEY UPDATE
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = lck.last_seq + 1, worker_id = NULL,
           runs = CASE WHEN @uncount::boolean THEN t.runs - 1 ELSE t.runs END
      FROM lck WHERE t.id = @id AND t.id = lck.id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), queued AS (
    UPDATE holdfast.task_queue q
       SET worker_id = NULL,
           -- The next claim of a canceled task only records its end, so there is no reason to wait.
           available_at = CASE WHEN lck.cancel_requested THEN now() ELSE now() + @delay::interval END,
           tries = CASE WHEN @uncount::boolean THEN q.tries - 1 ELSE q.tries END
      FROM lck WHERE q.id = @id AND q.id = lck.id
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, attempt, payload, worker_id, claimed_at)
    SELECT lck.id, lck.last_seq + 1, 4, lck.kept, lck.attempt, CAST(@payload::text AS json), lck.worker_id, lck.claimed_at FROM lck
)
SELECT (lck.last_seq + 1)::bigint AS seq, now()::timestamptz AS at FROM lck;

-- name: QueueHurry :one
-- Makes the next attempt of a task due now. Locks the task, then its queue row. No row: the task is
-- not queued.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.worker_id FROM holdfast.tasks t
     WHERE t.id = @id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
       FOR NO KEY UPDATE
), due AS (
    UPDATE holdfast.task_queue q SET available_at = now()
     WHERE q.id = (SELECT lck.id FROM lck) AND q.worker_id IS NULL AND q.available_at > now()
    RETURNING q.id
)
SELECT (lck.worker_id IS NOT NULL)::boolean AS owned, EXISTS (SELECT FROM due)::boolean AS hurried FROM lck;

-- name: RunsOwned :many
-- The runs that the database assigns to a worker. With it a worker finds cancels whose hint was
-- lost, and a claim whose answer was lost with its connection. Index task_queue_owned.
SELECT t.id, t.attempt, t.cancel_requested
  FROM holdfast.tasks t
 WHERE t.id = ANY(ARRAY(SELECT q.id FROM holdfast.task_queue q WHERE q.worker_id = @worker::uuid)) AND t.state NOT IN (3, 4, 5, 6, 7, 8);

-- name: RunsCanceled :many
-- Those of the given tasks that a worker runs and that were canceled. A worker asks this after a
-- cancel hint. By primary key.
SELECT id, attempt FROM holdfast.tasks
 WHERE id = ANY(@ids::uuid[]) AND state NOT IN (3, 4, 5, 6, 7, 8) AND worker_id = @worker::uuid AND cancel_requested;

-- name: QueueDepth :many
-- For metrics: queued and running tasks, by agent.
SELECT agent,
       count(*) FILTER (WHERE worker_id IS NULL)::bigint AS waiting,
       count(*) FILTER (WHERE worker_id IS NOT NULL)::bigint AS running,
       coalesce(extract(epoch FROM now() - min(available_at) FILTER (WHERE worker_id IS NULL AND available_at <= now())), 0)::float8
           AS oldest_seconds
  FROM holdfast.task_queue GROUP BY agent;
