-- Creating, continuing, canceling and reading tasks.
--
-- Lock order everywhere: the tasks row, then its task_queue row. The two statements that
-- start at the queue (QueueClaim, TaskCancel) lock only rows without an owner, which no
-- statement that starts at the task ever waits for.

-- name: TaskCreate :many
-- Creates any number of tasks in one commit: idempotency key, task, first message and queue
-- row. An input whose key or client id is taken yields no row; the caller looks up why.
-- An input with a worker is claimed in the same breath (attempt 1). An id that is already
-- there is left alone, which makes the statement safe to repeat.
WITH inp AS MATERIALIZED (
    SELECT unnest(@ids::uuid[]) AS id,
           unnest(@client_ids::text[]) AS client_id,
           unnest(@agents::text[]) AS agent,
           unnest(@tenants::text[]) AS tenant,
           unnest(@owners::text[]) AS owner,
           unnest(@context_ids::text[]) AS context_id,
           unnest(@dialects::text[]) AS dialect,
           unnest(@metadatas::text[]) AS metadata,
           unnest(@payloads::text[]) AS payload,
           unnest(@keys::text[]) AS key,
           unnest(@request_hashes::bytea[]) AS request_hash,
           unnest(@workers::uuid[]) AS worker_id
), fresh AS (
    SELECT i.* FROM inp i
     WHERE i.client_id = ''
        OR NOT EXISTS (SELECT FROM holdfast.tasks x
                        WHERE x.tenant = i.tenant AND x.owner = i.owner AND x.agent = i.agent
                          AND x.client_id = i.client_id)
), keyed AS (
    INSERT INTO holdfast.idempotency_keys (tenant, owner, key, request_hash, task)
    SELECT tenant, owner, key, request_hash, id FROM fresh WHERE key <> ''
     ORDER BY tenant, owner, key
    ON CONFLICT DO NOTHING
    RETURNING task
), created AS (
    INSERT INTO holdfast.tasks (id, client_id, agent, tenant, owner, context_id, state, last_seq, status_seq,
                                attempt, runs, worker_id, dialect, metadata)
    SELECT f.id, nullif(f.client_id, ''), f.agent, f.tenant, f.owner, f.context_id, 1, 1, 1,
           CASE WHEN f.worker_id = '00000000-0000-0000-0000-000000000000' THEN 0 ELSE 1 END,
           CASE WHEN f.worker_id = '00000000-0000-0000-0000-000000000000' THEN 0 ELSE 1 END,
           nullif(f.worker_id, '00000000-0000-0000-0000-000000000000'), f.dialect, nullif(f.metadata, '')::json
      FROM fresh f
     WHERE f.key = '' OR f.id IN (SELECT task FROM keyed)
     ORDER BY f.id
    ON CONFLICT DO NOTHING
    RETURNING id, agent, worker_id, runs, created_at
), queued AS (
    INSERT INTO holdfast.task_queue (id, agent, worker_id, message_seq, tries)
    SELECT id, agent, worker_id, 1, runs FROM created
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, attempt, payload)
    SELECT c.id, 1, 1, 0, i.payload::json FROM created c JOIN inp i ON i.id = c.id
)
SELECT id, created_at FROM created;

-- name: MessageAppend :one
-- Adds a user's message to a task that has not ended. A parked task becomes submitted and
-- is queued; one that has a run keeps it, and the message waits (pending) unless the agent
-- refuses that (@enqueue false). No row: ended, busy or unknown; the caller reads which.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.agent, t.last_seq, t.turns, t.state >= 3 AS parked
      FROM holdfast.tasks t
     WHERE t.id = @id AND t.state < 5 AND (t.state >= 3 OR @enqueue::boolean)
       FOR NO KEY UPDATE
), keyed AS (
    INSERT INTO holdfast.idempotency_keys (tenant, owner, key, request_hash, task)
    SELECT @tenant, @owner, @key::text, @request_hash::bytea, lck.id FROM lck WHERE @key::text <> ''
    ON CONFLICT (tenant, owner, key) DO UPDATE SET task = excluded.task, request_hash = excluded.request_hash
     WHERE NOT EXISTS (SELECT FROM holdfast.tasks x WHERE x.id = idempotency_keys.task)
    RETURNING task
), ok AS MATERIALIZED (
    SELECT lck.* FROM lck WHERE @key::text = '' OR EXISTS (SELECT FROM keyed)
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = ok.last_seq + CASE WHEN ok.parked THEN 2 ELSE 1 END,
           turns = ok.turns + 1,
           state = CASE WHEN ok.parked THEN 1 ELSE t.state END,
           status_seq = CASE WHEN ok.parked THEN ok.last_seq + 2 ELSE t.status_seq END,
           status_at = CASE WHEN ok.parked THEN now() ELSE t.status_at END,
           pending = CASE WHEN ok.parked THEN 0 ELSE t.pending + 1 END,
           cancel_requested = CASE WHEN ok.parked THEN false ELSE t.cancel_requested END
      FROM ok WHERE t.id = ok.id
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, payload, request_id)
    SELECT ok.id, ok.last_seq + 1, 1, NULL::smallint, 0, CAST(@payload::text AS json), @request_id::uuid FROM ok
     UNION ALL
    SELECT ok.id, ok.last_seq + 2, 2, 1::smallint, 0, NULL, NULL FROM ok WHERE ok.parked
), queued AS (
    INSERT INTO holdfast.task_queue (id, agent, message_seq, turn)
    SELECT ok.id, ok.agent, ok.last_seq + 1, ok.turns + 1 FROM ok WHERE ok.parked
)
SELECT (ok.last_seq + 1)::bigint AS seq, ok.parked::boolean AS parked, now()::timestamptz AS at FROM ok;

-- name: MessageFind :one
-- Finds the message that a call wrote whose outcome was lost with its connection
-- (unique index task_events_request).
SELECT seq FROM holdfast.task_events WHERE task = @task AND request_id = @request_id::uuid;

-- name: TaskCancel :one
-- Ends a task that no worker runs, or asks the worker of a running one to end it. The queue
-- row goes first and only if nobody owns it (see the lock order above); counting the deleted
-- rows in WHERE makes that happen before the task is locked. No row: ended or unknown.
WITH unqueued AS (
    DELETE FROM holdfast.task_queue q WHERE q.id = @id AND q.worker_id IS NULL RETURNING q.id
), lck AS MATERIALIZED (
    SELECT t.id, t.last_seq, (t.state >= 3 OR EXISTS (SELECT FROM unqueued)) AS idle
      FROM holdfast.tasks t
     WHERE t.id = @id AND t.state < 5 AND (SELECT count(*) FROM unqueued) >= 0
       FOR NO KEY UPDATE
), upd AS (
    UPDATE holdfast.tasks t
       SET state = CASE WHEN lck.idle THEN 7 ELSE t.state END,
           last_seq = CASE WHEN lck.idle THEN lck.last_seq + 1 ELSE t.last_seq END,
           status_seq = CASE WHEN lck.idle THEN lck.last_seq + 1 ELSE t.status_seq END,
           status_at = CASE WHEN lck.idle THEN now() ELSE t.status_at END,
           pending = CASE WHEN lck.idle THEN 0 ELSE t.pending END,
           cancel_requested = true
      FROM lck WHERE t.id = lck.id
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, state, attempt)
    SELECT lck.id, lck.last_seq + 1, 2, 7, 0 FROM lck WHERE lck.idle
)
SELECT lck.idle::boolean AS ended, (lck.last_seq + 1)::bigint AS seq, now()::timestamptz AS at FROM lck;

-- name: TaskByID :one
-- By primary key, for the server's own use; the caller checks whose it is.
SELECT * FROM holdfast.tasks WHERE id = @id;

-- name: TaskByClientID :one
-- Index tasks_client_id.
SELECT * FROM holdfast.tasks
 WHERE tenant = @tenant AND owner = @owner AND agent = @agent AND client_id = @client_id::text;

-- name: TaskSeqs :many
-- How far the logs of many tasks have come: the hub's poll behind its hints.
SELECT id, last_seq FROM holdfast.tasks WHERE id = ANY(@ids::uuid[]);

-- name: IdempotencyGet :one
SELECT k.task, k.request_hash FROM holdfast.idempotency_keys k
  JOIN holdfast.tasks t ON t.id = k.task
 WHERE k.tenant = @tenant AND k.owner = @owner AND k.key = @key;
