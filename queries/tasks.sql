-- Creating, continuing, canceling and reading tasks.
--
-- Lock order everywhere: the slots of limits (00010_limits), the tasks row, then its task_queue row, then its push_cursors. QueueClaim alone starts at
-- the queue, and it waits for neither.

-- name: TaskCreate :many
-- Creates any number of tasks in one commit: idempotency key, task, first message, queue
-- row, and webhook configurations. An input whose key or client id is taken yields no row; the caller looks up why.
-- An input with a worker is claimed in the same breath (attempt 1). An id that is already
-- there is left alone, which makes the statement safe to repeat.
--
-- An input with limits (0: none) comes back as refused when it would go past one. Repetitions
-- are let through, to find the task that they repeat.
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
           unnest(@workers::uuid[]) AS worker_id,
           unnest(@pushes::boolean[]) AS pushes,
           unnest(@live_limits::integer[]) AS live_limit,
           unnest(@queue_limits::integer[]) AS queue_limit,
           unnest(@audits::text[]) AS audit
), new AS MATERIALIZED (
    SELECT i.* FROM inp i
     WHERE i.client_id = ''
        OR NOT EXISTS (SELECT FROM holdfast.tasks x
                        WHERE x.tenant = i.tenant AND x.owner = i.owner AND x.agent = i.agent
                          AND x.client_id = i.client_id)
), there AS MATERIALIZED (
    SELECT x.id FROM holdfast.tasks x WHERE x.id = ANY(ARRAY(SELECT id FROM new WHERE live_limit > 0 OR queue_limit > 0))
), bounded AS MATERIALIZED (
    -- In the order in which slots are taken. A limit's count is made once, beside its first input.
    SELECT n.id, n.tenant, n.owner, n.agent, n.worker_id, n.live_limit, n.queue_limit,
           holdfast.limit_slot(n.tenant, n.owner, n.agent) AS slot,
           row_number() OVER (PARTITION BY holdfast.limit_slot(n.tenant, n.owner, n.agent), n.tenant, n.owner, n.agent ORDER BY n.id) AS nth
      FROM new n
     WHERE (n.live_limit > 0 OR n.queue_limit > 0)
       AND n.id NOT IN (SELECT id FROM there)
       AND (n.key = '' OR (SELECT count(*) FROM holdfast.idempotency_keys k
                            WHERE k.tenant = n.tenant AND k.owner = n.owner AND k.key = n.key) = 0)
), live AS MATERIALIZED (
    SELECT b.*, CASE WHEN b.nth = 1 AND b.live_limit > 0
                     THEN holdfast.live_tasks(b.slot, b.tenant, b.owner, b.agent, b.live_limit) END AS n
      FROM bounded b
), waits AS MATERIALIZED (
    SELECT y.id, y.agent, y.queue_limit, y.beyond, holdfast.limit_slot(y.agent) AS slot,
           row_number() OVER (PARTITION BY holdfast.limit_slot(y.agent), y.agent, y.beyond, y.waits ORDER BY y.id) AS nth,
           NOT y.beyond AND y.waits AS waits
      FROM (SELECT l.id, l.agent, l.queue_limit,
                   l.live_limit > 0 AND l.nth + max(l.n) OVER (PARTITION BY l.tenant, l.owner, l.agent) > l.live_limit AS beyond,
                   l.queue_limit > 0 AND l.worker_id = '00000000-0000-0000-0000-000000000000' AS waits
              FROM live l) y
), waiting AS MATERIALIZED (
    SELECT w.*, CASE WHEN w.nth = 1 AND w.waits THEN holdfast.waiting_tasks(w.slot, w.agent, w.queue_limit) END AS n
      FROM waits w
), refused AS MATERIALIZED (
    SELECT z.id, CASE WHEN z.beyond THEN 1 ELSE 2 END AS by_limit
      FROM (SELECT q.id, q.beyond, q.waits AND q.nth + max(q.n) OVER (PARTITION BY q.agent) > q.queue_limit AS late FROM waiting q) z
     WHERE z.beyond OR z.late
), fresh AS MATERIALIZED (
    SELECT n.* FROM new n WHERE n.id NOT IN (SELECT id FROM refused)
), keyed AS (
    INSERT INTO holdfast.idempotency_keys (tenant, owner, key, request_hash, task)
    SELECT tenant, owner, key, request_hash, id FROM fresh WHERE key <> ''
     ORDER BY tenant, owner, key
    ON CONFLICT DO NOTHING
    RETURNING task
), created AS (
    INSERT INTO holdfast.tasks (id, client_id, agent, tenant, owner, context_id, state, last_seq, status_seq,
                                attempt, runs, worker_id, claimed_at, dialect, metadata, pushes)
    SELECT f.id, nullif(f.client_id, ''), f.agent, f.tenant, f.owner, f.context_id, 1, 1, 1,
           CASE WHEN f.worker_id = '00000000-0000-0000-0000-000000000000' THEN 0 ELSE 1 END,
           CASE WHEN f.worker_id = '00000000-0000-0000-0000-000000000000' THEN 0 ELSE 1 END,
           nullif(f.worker_id, '00000000-0000-0000-0000-000000000000'),
           CASE WHEN f.worker_id <> '00000000-0000-0000-0000-000000000000' THEN now() END, f.dialect, nullif(f.metadata, '')::json, f.pushes
      FROM fresh f
     WHERE f.key = '' OR f.id IN (SELECT task FROM keyed)
     -- In the order of the unique index, so that two batches with the same ids do not wait for
     -- each other.
     ORDER BY f.tenant, f.owner, f.agent, f.client_id, f.id
    ON CONFLICT DO NOTHING
    RETURNING id, agent, tenant, owner, worker_id, runs, created_at
), queued AS (
    INSERT INTO holdfast.task_queue (id, agent, worker_id, message_seq, tries)
    SELECT id, agent, worker_id, 1, runs FROM created
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, attempt, payload)
    SELECT c.id, 1, 1, 0, i.payload::json FROM created c JOIN inp i ON i.id = c.id
), push AS MATERIALIZED (
    SELECT p.*, c.tenant, c.owner
      FROM (SELECT unnest(@push_tasks::uuid[]) AS task,
                   unnest(@push_ids::text[]) AS config_id,
                   unnest(@push_dialects::text[]) AS dialect,
                   unnest(@push_urls::text[]) AS url,
                   unnest(@push_hosts::text[]) AS host,
                   unnest(@push_schemes::text[]) AS schemes,
                   unnest(@push_secrets::bytea[]) AS secrets,
                   unnest(@push_artifacts::boolean[]) AS artifacts) p
      JOIN created c ON c.id = p.task
), configured AS (
    INSERT INTO holdfast.push_configs (task, config_id, dialect, url, schemes, secrets)
    SELECT task, config_id, dialect, url, schemes::json, secrets FROM push
), placed AS (
    INSERT INTO holdfast.push_cursors (task, config_id, host, caller, artifacts)
    SELECT task, config_id, host, holdfast.push_caller(tenant, owner), artifacts FROM push
), audited AS MATERIALIZED (
    SELECT holdfast.audit('[' || string_agg(i.audit, ',') || ']') AS n FROM created c JOIN inp i ON i.id = c.id WHERE i.audit <> ''
)
SELECT id, created_at, 0::integer AS refused, coalesce((SELECT n FROM audited), 0)::bigint AS audited FROM created
 UNION ALL
SELECT id, now()::timestamptz, by_limit, 0::bigint FROM refused;

-- name: TaskReopen :one
-- Creates a task that takes over the id that a client chose from one of its own that has ended (@old, by primary key), which
-- keeps the one that it has beside it. Stream ids go on behind those of the old one. No row: the key is taken, or the id is not the old task's any
-- more, as after an earlier copy of this statement. What webhooks of the old one are still to be told names it as before.
-- Limits are as in TaskCreate.
WITH free AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM holdfast.tasks x WHERE x.id = @old AND x.client_id = @client_id::text)
       AND (@key::text = '' OR NOT EXISTS (SELECT FROM holdfast.idempotency_keys k
                                            WHERE k.tenant = @tenant AND k.owner = @owner AND k.key = @key::text)) AS new
), refused AS MATERIALIZED (
    SELECT CASE
           WHEN NOT f.new THEN 0
           WHEN @live_limit::integer > 0
                AND holdfast.live_tasks(holdfast.limit_slot(@tenant::text, @owner::text, @agent::text), @tenant, @owner, @agent, @live_limit::integer)
                    >= @live_limit::integer THEN 1
           WHEN @queue_limit::integer > 0
                AND holdfast.waiting_tasks(holdfast.limit_slot(@agent::text), @agent, @queue_limit::integer) >= @queue_limit::integer THEN 2
           ELSE 0 END AS by_limit
      FROM free f
), lck AS MATERIALIZED (
    SELECT t.id, coalesce(t.stream_base, 0) + t.last_seq AS stream_base
      FROM holdfast.tasks t
     WHERE t.id = @old AND t.client_id = @client_id::text AND t.tenant = @tenant AND t.owner = @owner AND t.agent = @agent
       AND t.state + 0 >= 5 AND (SELECT by_limit FROM refused) = 0
       FOR NO KEY UPDATE
), keyed AS (
    INSERT INTO holdfast.idempotency_keys (tenant, owner, key, request_hash, task)
    SELECT @tenant, @owner, @key::text, @request_hash::bytea, @id::uuid FROM lck WHERE @key::text <> ''
    ON CONFLICT DO NOTHING
    RETURNING task
), released AS (
    UPDATE holdfast.tasks t SET client_id = NULL
      FROM lck WHERE t.id = lck.id AND (@key::text = '' OR EXISTS (SELECT FROM keyed))
    RETURNING lck.stream_base
), told AS (
    UPDATE holdfast.push_configs c SET public_id = @client_id::text
     WHERE c.task = @old AND EXISTS (SELECT FROM released)
), created AS (
    -- Each row comes out of the update that frees its name.
    INSERT INTO holdfast.tasks (id, client_id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect, metadata, stream_base)
    SELECT @id::uuid, @client_id::text, @agent, @tenant, @owner, @context_id, 1, 1, 1, @dialect, nullif(@metadata::text, '')::json, r.stream_base
      FROM released r
    RETURNING id, agent, created_at, stream_base
), queued AS (
    INSERT INTO holdfast.task_queue (id, agent, message_seq) SELECT id, agent, 1 FROM created
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, attempt, payload)
    SELECT id, 1, 1, 0, CAST(@payload::text AS json) FROM created
)
SELECT created_at, stream_base::bigint AS stream_base, 0::integer AS refused,
       coalesce(holdfast.audit(nullif(@audit::text, '')), 0)::bigint AS audited
  FROM created
 UNION ALL
SELECT now()::timestamptz, 0, by_limit, 0 FROM refused WHERE by_limit > 0;

-- name: MessageAppend :one
-- Adds a user's message to a task that has not ended. A parked task becomes submitted and
-- is queued; one that has a run keeps it, and the message waits (pending) unless the agent
-- refuses that (@enqueue false). No row: ended, busy or unknown; the caller reads which.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.agent, t.last_seq, t.turns, t.state >= 3 AS parked, t.pushes
      FROM holdfast.tasks t
     WHERE t.id = @id AND t.state + 0 < 5 AND (t.state >= 3 OR @enqueue::boolean) -- not by index tasks_open
       FOR NO KEY UPDATE
), keyed AS (
    INSERT INTO holdfast.idempotency_keys (tenant, owner, key, request_hash, task)
    SELECT @tenant, @owner, @key::text, @request_hash::bytea, lck.id FROM lck WHERE @key::text <> ''
    ON CONFLICT DO NOTHING
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
           cancel_requested = CASE WHEN ok.parked THEN false ELSE t.cancel_requested END,
           cancel_requested_at = CASE WHEN ok.parked THEN NULL ELSE t.cancel_requested_at END
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
SELECT (ok.last_seq + 1)::bigint AS seq, ok.parked::boolean AS parked, now()::timestamptz AS at,
       (CASE WHEN ok.parked AND ok.pushes
             THEN holdfast.push_mark(ARRAY[ok.id], ARRAY[ok.last_seq + 2], ARRAY[ok.last_seq + 2]) ELSE 0 END)::integer AS marked,
       coalesce(holdfast.audit(nullif(@audit::text, '')), 0)::bigint AS audited
  FROM ok;

-- name: MessageFind :one
-- Finds the message that a call wrote whose outcome was lost with its connection
-- (unique index task_events_request). The seq is the last that the call wrote: that of the
-- status behind the message if it woke a parked task; no other submitted status is of attempt 0.
SELECT coalesce(s.seq, m.seq)::bigint AS seq
  FROM holdfast.task_events m
  LEFT JOIN holdfast.task_events s
    ON s.task = m.task AND s.seq = m.seq + 1 AND s.kind = 2 AND s.state = 1 AND s.attempt = 0
 WHERE m.task = @task AND m.request_id = @request_id::uuid;

-- name: TaskCancel :one
-- Ends a task that no worker runs, or asks the worker of a running one to end it. The queue
-- row is taken only if nobody owns or is claiming it. Neither ended nor owned: ask again, for
-- the row was in somebody's hands or is newer than the snapshot. No row: ended or unknown.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.last_seq, t.worker_id, t.state >= 3 AS parked, t.pushes
      FROM holdfast.tasks t
     WHERE t.id = @id AND t.state + 0 < 5 -- not by index tasks_open
       FOR NO KEY UPDATE
), free AS MATERIALIZED (
    -- The scalar subquery has the task locked before its queue row is looked at.
    SELECT q.id FROM holdfast.task_queue q
     WHERE q.id = (SELECT lck.id FROM lck) AND q.worker_id IS NULL
       FOR UPDATE SKIP LOCKED
), unqueued AS (
    DELETE FROM holdfast.task_queue q WHERE q.id = (SELECT free.id FROM free)
), eff AS MATERIALIZED (
    SELECT lck.id, lck.last_seq, lck.worker_id IS NULL AS unowned, (lck.parked OR EXISTS (SELECT FROM free)) AS idle, lck.pushes FROM lck
), upd AS (
    UPDATE holdfast.tasks t
       SET state = CASE WHEN eff.idle THEN 7 ELSE t.state END,
           last_seq = CASE WHEN eff.idle THEN eff.last_seq + 1 ELSE t.last_seq END,
           status_seq = CASE WHEN eff.idle THEN eff.last_seq + 1 ELSE t.status_seq END,
           status_at = CASE WHEN eff.idle THEN now() ELSE t.status_at END,
           pending = CASE WHEN eff.idle THEN 0 ELSE t.pending END,
           -- Nobody's already; but the version that this statement's snapshot saw may have a worker,
           -- and the CHECKs are first tried on that one.
           worker_id = CASE WHEN eff.idle THEN NULL ELSE t.worker_id END,
           cancel_requested = true,
           cancel_requested_at = coalesce(t.cancel_requested_at, now())
      FROM eff WHERE t.id = eff.id
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, state, attempt)
    SELECT eff.id, eff.last_seq + 1, 2, 7, 0 FROM eff WHERE eff.idle
)
SELECT eff.idle::boolean AS ended, eff.unowned::boolean AS unowned, (eff.last_seq + 1)::bigint AS seq, now()::timestamptz AS at,
       (CASE WHEN eff.idle AND eff.pushes
             THEN holdfast.push_mark(ARRAY[eff.id], ARRAY[eff.last_seq + 1], ARRAY[eff.last_seq + 1]) ELSE 0 END)::integer AS marked,
       coalesce(holdfast.audit(CASE WHEN eff.idle OR NOT eff.unowned THEN nullif(@audit::text, '') END), 0)::bigint AS audited
  FROM eff;

-- name: TaskByID :one
-- By primary key, for the server's own use; the caller checks whose it is.
SELECT * FROM holdfast.tasks WHERE id = @id;

-- name: TaskFind :one
-- A task by the id that the server made for it, if the caller may see it. By primary key.
SELECT * FROM holdfast.tasks
 WHERE id = @id AND client_id IS NULL AND tenant = @tenant AND (owner = @owner OR @tenant_wide::boolean) AND agent = @agent;

-- name: TaskRead :many
-- TaskFind and EventsOf at once. What is the task's stands beside its first event, in one column: those of long logs count.
SELECT l.task, l.seq, l.kind, l.state, l.attempt, l.append, l.last, l.artifact_id, l.payload, l.created_at,
       CAST(CASE WHEN l.seq = 1 THEN json_build_object(
           'Owner', l.owner, 'ContextID', l.context_id, 'Dialect', l.dialect, 'Metadata', l.metadata,
           'CreatedAt', l.task_created_at, 'StreamBase', coalesce(l.stream_base, 0), 'LastSeq', l.last_seq) END AS json) AS header
  FROM holdfast.callers_log l
 WHERE l.task = @id AND l.client_id IS NULL AND l.tenant = @tenant AND (l.owner = @owner OR @tenant_wide::boolean) AND l.agent = @agent
   AND (l.kind <> 3 OR @with_artifacts::boolean);

-- name: TaskByClientID :one
-- Index tasks_client_id.
SELECT * FROM holdfast.tasks
 WHERE tenant = @tenant AND owner = @owner AND agent = @agent AND client_id = @client_id::text;

-- name: TaskByClientIDOfTenant :one
-- Where a tenant sees all of its tasks: the caller's own before those of others, of these the newest. Index tasks_named.
SELECT * FROM holdfast.tasks
 WHERE tenant = @tenant AND agent = @agent AND client_id = @client_id::text
 ORDER BY owner = @owner DESC, id DESC LIMIT 1;

-- name: TaskOwners :many
-- The owners of a tenant's tasks, each with one look at index tasks_listed.
WITH RECURSIVE o AS (
    (SELECT t.owner FROM holdfast.tasks t WHERE t.tenant = @tenant ORDER BY t.owner LIMIT 1)
    UNION ALL
    SELECT (SELECT t.owner FROM holdfast.tasks t WHERE t.tenant = @tenant AND t.owner > o.owner ORDER BY t.owner LIMIT 1)
      FROM o WHERE o.owner IS NOT NULL
)
SELECT owner::text AS owner FROM o WHERE owner IS NOT NULL;

-- name: TaskSeqs :many
-- How far the logs of many tasks have come: the hub's poll behind its hints.
SELECT id, last_seq FROM holdfast.tasks WHERE id = ANY(@ids::uuid[]);

-- name: IdempotencyGet :one
-- A key is its owner's, also where its task may be another's.
SELECT k.task, k.request_hash FROM holdfast.idempotency_keys k
  JOIN holdfast.tasks t ON t.id = k.task AND t.tenant = k.tenant AND (t.owner = k.owner OR @tenant_wide::boolean)
 WHERE k.tenant = @tenant AND k.owner = @owner AND k.key = @key;

-- name: IdempotencyForget :execrows
-- Frees a key whose task never came to be (its id was taken by another create at the same
-- moment) or is gone. Keys are written in the same commit as their task and never changed,
-- so a key that this statement sees without its task will not get one.
DELETE FROM holdfast.idempotency_keys k
 WHERE k.tenant = @tenant AND k.owner = @owner AND k.key = @key
   AND NOT EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = k.task);
