-- Creating, continuing, canceling and reading tasks.
--
-- Lock order everywhere: the slots of limits (00002_queue), the tasks row, then its task_queue row, then its
-- push_cursors. TaskRename locks a task that has ended before the slots of its successor. Only QueueClaim and
-- TimersFire start at the queue; they wait for no lock.
--
-- Open tasks have their own partition. A statement about an open task has a condition on the state,
-- so its plan uses only this partition. The condition is state NOT IN (…), because no index can
-- serve it. With state < 5, a plan made for the empty partition would scan a whole index on the
-- state instead of looking up an id.
--
-- The UPDATE that ends a task also moves it. A statement that waited for its lock, or began before
-- the move was committed, gets a serialization failure (40001), and the store retries it.

-- name: TaskCreate :many
-- Creates any number of tasks in one commit: task, first message and queue row. Each input becomes a row, or all fail:
-- the server makes the ids, and has sent inputs of which another request may have made a task through TaskAdmit. An
-- input with a worker is claimed in the same statement (attempt 1). A remote worker has a lease (not zero), as in
-- QueueClaim. stream_base is not zero for a task that has taken over a name (TaskRename). forwarded has the sealed
-- headers of the request, or nothing. audits is one JSON array for all.
--
-- Each part takes its columns from the parameters, because joins and copies of rows cost more than all that is written.
WITH created AS (
    INSERT INTO holdfast.tasks (id, client_id, agent, tenant, owner, context_id, state, last_seq, status_seq, attempt,
                                runs, worker_id, claimed_at, posted, dialect, metadata, pushes, lineage, stream_base,
                                traceparent)
    SELECT i.id, nullif(i.client_id, ''), i.agent, i.tenant, i.owner, i.context_id, 1, 1, 1,
           CASE WHEN i.worker_id IS NULL THEN 0 ELSE 1 END, CASE WHEN i.worker_id IS NULL THEN 0 ELSE 1 END,
           i.worker_id, CASE WHEN i.worker_id IS NOT NULL THEN now() END, i.lease > '0', i.dialect,
           nullif(i.metadata, '')::json, i.pushes, i.called, nullif(i.stream_base, 0), nullif(i.traceparent, '')
      FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@client_ids::text[]) AS client_id,
                   unnest(@agents::text[]) AS agent, unnest(@tenants::text[]) AS tenant,
                   unnest(@owners::text[]) AS owner, unnest(@context_ids::text[]) AS context_id,
                   unnest(@dialects::text[]) AS dialect, unnest(@metadatas::text[]) AS metadata,
                   unnest(@traceparents::text[]) AS traceparent, unnest(@pushes::boolean[]) AS pushes,
                   unnest(@called::boolean[]) AS called, unnest(@stream_bases::bigint[]) AS stream_base,
                   unnest(@leases::interval[]) AS lease,
                   nullif(unnest(@workers::uuid[]), '00000000-0000-0000-0000-000000000000') AS worker_id) i
    RETURNING id, created_at
), queued AS (
    INSERT INTO holdfast.task_queue (id, agent, worker_id, lease_until, look_at, message_seq, tries, message_bytes,
                                     forwarded)
    SELECT i.id, i.agent, i.worker_id, now() + nullif(i.lease, '0'), now() + nullif(i.look, '0'), 1,
           CASE WHEN i.worker_id IS NULL THEN 0 ELSE 1 END, i.message_bytes,
           CASE WHEN i.forwarded <> '' THEN jsonb_build_object('1', i.forwarded) END
      FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@agents::text[]) AS agent, unnest(@leases::interval[]) AS lease,
                   unnest(@looks::interval[]) AS look, unnest(@message_bytes::integer[]) AS message_bytes,
                   unnest(@forwarded::text[]) AS forwarded,
                   nullif(unnest(@workers::uuid[]), '00000000-0000-0000-0000-000000000000') AS worker_id) i
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, attempt, payload)
    SELECT i.id, 1, 1, 0, i.payload::json
      FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@payloads::text[]) AS payload) i
)
SELECT id, created_at,
       coalesce((SELECT holdfast.audit(nullif(@audits::text, '')) FROM (SELECT count(*) FROM created) c),
                0)::bigint AS audited
  FROM created;

-- name: TaskAdmit :many
-- Decides which inputs become tasks, before TaskCreate in its transaction: those with an idempotency key, an id that
-- the client has chosen, or a limit (0: none), those that an agent has called, and those of which an earlier try may
-- have been committed (@repeated). It writes the key and the name. An input that exceeds a limit is refused. An input
-- without a row is taken: its key, its name or its task exists; the caller looks up which.
--
-- A called task is created only once, and only if its caller still waits for it (call_begin). It has no key and no id
-- of the client.
WITH inp AS MATERIALIZED (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@client_ids::text[]) AS client_id, unnest(@agents::text[]) AS agent,
           unnest(@tenants::text[]) AS tenant, unnest(@owners::text[]) AS owner, unnest(@keys::text[]) AS key,
           unnest(@request_hashes::bytea[]) AS request_hash, unnest(@called::boolean[]) AS called,
           unnest(@live_limits::integer[]) AS live_limit, unnest(@queue_limits::integer[]) AS queue_limit
), new AS MATERIALIZED (
    SELECT i.* FROM inp i
     WHERE (i.client_id = ''
            OR (SELECT count(*) FROM holdfast.task_names x
                 WHERE x.tenant = i.tenant AND x.owner = i.owner AND x.agent = i.agent
                   AND x.client_id = i.client_id) = 0)
       AND (i.key = ''
            OR (SELECT count(*) FROM holdfast.idempotency_keys k
                 WHERE k.tenant = i.tenant AND k.owner = i.owner AND k.key = i.key) = 0)
       AND NOT (@repeated::boolean AND holdfast.task_exists(i.id))
), beyond AS MATERIALIZED (
    SELECT x.id
      FROM (SELECT array_agg(id) AS ids, array_agg(tenant) AS tenants, array_agg(owner) AS owners,
                   array_agg(agent) AS agents, array_agg(live_limit) AS limits FROM new WHERE live_limit > 0) n
     CROSS JOIN LATERAL holdfast.beyond_live(n.ids, n.tenants, n.owners, n.agents, n.limits) AS x (id)
), late AS MATERIALIZED (
    SELECT x.id
      FROM (SELECT array_agg(id) AS ids, array_agg(agent) AS agents, array_agg(queue_limit) AS limits
              FROM new WHERE queue_limit > 0 AND id NOT IN (SELECT id FROM beyond)) n
     CROSS JOIN LATERAL holdfast.beyond_queue(n.ids, n.agents, n.limits) AS x (id)
), keyed AS (
    -- Near midnight a key counts on two days: both must be free.
    INSERT INTO holdfast.idempotency_keys (day, tenant, owner, key, request_hash, task)
    SELECT d.day, n.tenant, n.owner, n.key, n.request_hash, n.id
      FROM new n CROSS JOIN holdfast.key_days(now()) AS d (day)
     WHERE n.key <> '' AND n.id NOT IN (SELECT id FROM beyond UNION ALL SELECT id FROM late)
     ORDER BY d.day, n.tenant, n.owner, n.key
    ON CONFLICT DO NOTHING
    RETURNING task
), free AS MATERIALIZED (
    SELECT n.* FROM new n
     WHERE n.id NOT IN (SELECT id FROM beyond UNION ALL SELECT id FROM late)
       AND CASE WHEN n.called THEN holdfast.call_begin(n.id) ELSE n.key = '' OR n.id IN (
               SELECT task FROM keyed
                GROUP BY task HAVING count(*) = (SELECT count(*) FROM holdfast.key_days(now()))) END
), named AS (
    -- In the order of the index, so that two batches with the same names do not deadlock.
    INSERT INTO holdfast.task_names (tenant, owner, agent, client_id, task)
    SELECT tenant, owner, agent, client_id, id FROM free WHERE client_id <> ''
     ORDER BY tenant, owner, agent, client_id
    ON CONFLICT DO NOTHING
    RETURNING task
)
SELECT id::uuid AS id, 0::integer AS refused FROM free WHERE client_id = '' OR id IN (SELECT task FROM named)
 UNION ALL SELECT id, 1 FROM beyond
 UNION ALL SELECT id, 2 FROM late;

-- name: TaskRename :one
-- Gives the id that a client has chosen for a task that has ended (@old, by primary key) to a new one, before
-- TaskCreate in its transaction. The old task keeps its server-made id. Stream ids continue after those of the old
-- task. No row: the id no longer belongs to the old task, for example because an earlier try was committed.
WITH lck AS MATERIALIZED (
    SELECT t.id, coalesce(t.stream_base, 0) + t.last_seq AS stream_base
      FROM holdfast.tasks t
     WHERE t.id = @old AND t.client_id = @client_id::text AND t.tenant = @tenant AND t.owner = @owner
       AND t.agent = @agent AND t.state >= 5
       FOR NO KEY UPDATE
), released AS MATERIALIZED (
    SELECT stream_base FROM lck WHERE holdfast.task_unname(id)
), renamed AS (
    INSERT INTO holdfast.task_names AS n (tenant, owner, agent, client_id, task)
    SELECT @tenant, @owner, @agent, @client_id::text, @id::uuid FROM released
    ON CONFLICT (tenant, owner, agent, client_id) DO UPDATE SET task = excluded.task
)
SELECT stream_base::bigint AS stream_base FROM released;

-- name: MessageAppend :one
-- Adds a user's message to a task that has not ended. A parked task becomes submitted and
-- is queued; one that has a run keeps it, and the message waits (pending) unless the agent
-- refuses that (@enqueue false), or @most_pending messages (0: any number) wait already. A message ends an
-- interruptible wait, unless its time is over: then the turn of the timer comes first. No row: ended,
-- busy, full or unknown; the caller reads which.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.agent, t.kept, t.last_seq, t.turns, t.state >= 3 AS parked, t.pushes,
           coalesce(t.interruptible AND t.wakes_at > now(), false) AS interrupts
      FROM holdfast.tasks t
     WHERE t.id = @id AND t.state NOT IN (5, 6, 7, 8)
       AND (t.state >= 3 OR t.interruptible AND t.wakes_at > now()
            OR @enqueue::boolean AND (@most_pending::integer = 0 OR t.pending < @most_pending::integer))
       FOR NO KEY UPDATE
), keyed AS (
    INSERT INTO holdfast.idempotency_keys (day, tenant, owner, key, request_hash, task)
    SELECT d.day, @tenant, @owner, @key::text, @request_hash::bytea, lck.id
      FROM lck CROSS JOIN holdfast.key_days(now()) AS d (day)
     WHERE @key::text <> ''
       AND NOT EXISTS (SELECT FROM holdfast.idempotency_keys k
                        WHERE k.tenant = @tenant AND k.owner = @owner AND k.key = @key::text)
     ORDER BY d.day
    ON CONFLICT DO NOTHING
    RETURNING task
), ok AS MATERIALIZED (
    SELECT lck.* FROM lck
     WHERE @key::text = '' OR (SELECT count(*) FROM keyed) = (SELECT count(*) FROM holdfast.key_days(now()))
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = ok.last_seq + CASE WHEN ok.parked THEN 2 ELSE 1 END,
           -- The turn of the timer becomes that of the message.
           turns = CASE WHEN ok.interrupts THEN ok.turns ELSE ok.turns + 1 END,
           state = CASE WHEN ok.parked THEN 1 ELSE t.state END,
           status_seq = CASE WHEN ok.parked THEN ok.last_seq + 2 ELSE t.status_seq END,
           status_at = CASE WHEN ok.parked THEN now() ELSE t.status_at END,
           pending = CASE WHEN ok.parked THEN 0 WHEN ok.interrupts THEN t.pending ELSE t.pending + 1 END,
           wakes_at = CASE WHEN ok.interrupts THEN NULL ELSE t.wakes_at END,
           cancel_requested = CASE WHEN ok.parked THEN false ELSE t.cancel_requested END,
           cancel_requested_at = CASE WHEN ok.parked THEN NULL ELSE t.cancel_requested_at END
      FROM ok WHERE t.id = @id AND t.id = ok.id AND t.state NOT IN (5, 6, 7, 8)
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, state, attempt, payload, request_id)
    SELECT ok.id, ok.last_seq + 1, 1, ok.kept, NULL::smallint, 0, CAST(@payload::text AS json), @request_id::uuid
      FROM ok
     UNION ALL
    SELECT ok.id, ok.last_seq + 2, 2, ok.kept, 1::smallint, 0, NULL, NULL FROM ok WHERE ok.parked
), queued AS (
    INSERT INTO holdfast.task_queue (id, agent, message_seq, turn, message_bytes, forwarded)
    SELECT ok.id, ok.agent, ok.last_seq + 1, ok.turns + 1, octet_length(@payload::text),
           CASE WHEN @forwarded::text <> '' THEN jsonb_build_object((ok.last_seq + 1)::text, @forwarded::text) END
      FROM ok WHERE ok.parked
)
SELECT (ok.last_seq + 1)::bigint AS seq, ok.parked::boolean AS parked, now()::timestamptz AS at,
       (CASE WHEN ok.interrupts THEN holdfast.wait_interrupt(ok.id, ok.last_seq + 1, octet_length(@payload::text))
             ELSE 0 END)::integer AS interrupted,
       (CASE WHEN @forwarded::text <> '' AND NOT ok.parked
             THEN holdfast.forward(ok.id, ok.last_seq + 1, @forwarded::text)
             ELSE 0 END)::integer AS forwards,
       (CASE WHEN ok.parked AND ok.pushes
             THEN holdfast.push_mark(ARRAY[ok.id], ARRAY[ok.last_seq + 2], ARRAY[ok.last_seq + 2])
             ELSE 0 END)::integer AS marked,
       coalesce(holdfast.audit(nullif(@audit::text, '')), 0)::bigint AS audited
  FROM ok;

-- name: MessageFind :one
-- Finds the message of a call whose answer was lost with its connection (by the index on task and
-- request_id). The seq is the last that the call wrote: that of the status after the message if the
-- message resumed a parked task. No other submitted status has attempt 0.
SELECT coalesce(s.seq, m.seq)::bigint AS seq
  FROM holdfast.task_events m
  LEFT JOIN holdfast.task_events s
    ON s.task = m.task AND s.seq = m.seq + 1 AND s.kind = 2 AND s.state = 1 AND s.attempt = 0
 WHERE m.task = @task AND m.request_id = @request_id::uuid AND m.kind = 1;

-- name: ResumeState :one
-- What a resume URL of a turn can still do: the reasons for which TaskResume finds no row. By primary key.
SELECT t.agent, t.state, (t.turns - t.pending)::integer AS turn, (t.resumed_seq IS NOT NULL)::boolean AS kept,
       (t.resume_until IS NOT NULL)::boolean AS asked, coalesce(t.resume_until <= now(), false)::boolean AS expired
  FROM holdfast.tasks t WHERE t.id = @id;

-- name: TaskResume :one
-- Begins the next turn of a task that asks for input with its resume URL valid. If the run of that turn
-- has not parked yet, the resume is kept until it does; another one is refused. No row: the URL is used,
-- expired or of another turn, or the task has ended or is unknown; the caller reads which.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.agent, t.kept, t.last_seq, t.turns, t.state >= 3 AS parked, t.pushes
      FROM holdfast.tasks t
     WHERE t.id = @id AND t.state NOT IN (5, 6, 7, 8) AND t.turns - t.pending = @turn
       AND (t.state >= 3 AND t.resume_until > now() OR t.state < 3 AND t.resumed_seq IS NULL)
       FOR NO KEY UPDATE
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = lck.last_seq + CASE WHEN lck.parked THEN 2 ELSE 1 END,
           turns = CASE WHEN lck.parked THEN lck.turns + 1 ELSE lck.turns END,
           state = CASE WHEN lck.parked THEN 1 ELSE t.state END,
           status_seq = CASE WHEN lck.parked THEN lck.last_seq + 2 ELSE t.status_seq END,
           status_at = CASE WHEN lck.parked THEN now() ELSE t.status_at END,
           resumed_seq = CASE WHEN NOT lck.parked THEN lck.last_seq + 1 END
      FROM lck WHERE t.id = @id AND t.id = lck.id AND t.state NOT IN (5, 6, 7, 8)
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, state, attempt, payload, request_id)
    SELECT lck.id, lck.last_seq + 1, 4, lck.kept, NULL::smallint, 0, CAST(@payload::text AS json), @request_id::uuid
      FROM lck
     UNION ALL
    SELECT lck.id, lck.last_seq + 2, 2, lck.kept, 1::smallint, 0, NULL, NULL FROM lck WHERE lck.parked
), queued AS (
    INSERT INTO holdfast.task_queue (id, agent, message_seq, input_seq, turn, message_bytes)
    SELECT lck.id, lck.agent, holdfast.message_last(lck.id), lck.last_seq + 1, lck.turns + 1,
           octet_length(@payload::text)
      FROM lck
     WHERE lck.parked
)
SELECT lck.agent, (lck.last_seq + 1)::bigint AS seq, lck.parked::boolean AS parked, now()::timestamptz AS at,
       (CASE WHEN lck.parked AND lck.pushes
             THEN holdfast.push_mark(ARRAY[lck.id], ARRAY[lck.last_seq + 2], ARRAY[lck.last_seq + 2])
             ELSE 0 END)::integer AS marked,
       coalesce(holdfast.audit(nullif(@audit::text, '')), 0)::bigint AS audited
  FROM lck;

-- name: ResumeFind :one
-- Finds the resume of a call whose answer was lost with its connection (by the index on task and
-- request_id).
SELECT t.agent, t.last_seq FROM holdfast.task_events e JOIN holdfast.tasks t ON t.id = e.task
 WHERE e.task = @task AND e.request_id = @request_id::uuid AND e.kind = 4;

-- name: TaskCancel :one
-- Ends a task that no worker runs, or asks the worker of a running one to end it. It deletes the
-- queue row only if no worker owns or is claiming it. Metadata of the request is in the payload of the
-- status, or of a run note if there is a run; that of a second request to the same run is dropped. With
-- @notice the agent is told if it has been started for this task. No row: the task has ended or is
-- unknown, or a claim is taking it from the queue; the caller reads which.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.agent, t.kept, t.last_seq, t.attempt, t.worker_id, t.state >= 3 AS parked, t.pushes, t.lineage,
           t.cancel_requested, t.cancel_requested_at
      FROM holdfast.tasks t
     WHERE t.id = @id AND t.state NOT IN (5, 6, 7, 8)
       FOR NO KEY UPDATE
), free AS MATERIALIZED (
    -- The scalar subquery makes PostgreSQL lock the task before it reads the queue row.
    SELECT q.id FROM holdfast.task_queue q
     WHERE q.id = (SELECT lck.id FROM lck) AND coalesce(q.worker_id IS NULL, false) -- not by index task_queue_ready
       FOR UPDATE SKIP LOCKED
), unqueued AS (
    DELETE FROM holdfast.task_queue q WHERE q.id = (SELECT free.id FROM free)
), eff AS MATERIALIZED (
    SELECT x.*, x.idle OR @metadata::text <> '' AND NOT x.cancel_requested AS logs FROM (
        SELECT lck.id, lck.agent, lck.kept, lck.last_seq, lck.attempt, lck.worker_id, lck.pushes, lck.lineage,
               lck.parked OR EXISTS (SELECT FROM free) AS idle, cancel_requested, cancel_requested_at FROM lck) x
     WHERE x.idle OR x.worker_id IS NOT NULL
), upd AS (
    UPDATE holdfast.tasks t
       SET state = CASE WHEN eff.idle THEN 7 ELSE t.state END,
           last_seq = CASE WHEN eff.logs THEN eff.last_seq + 1 ELSE t.last_seq END,
           status_seq = CASE WHEN eff.idle THEN eff.last_seq + 1 ELSE t.status_seq END,
           status_at = CASE WHEN eff.idle THEN now() ELSE t.status_at END,
           pending = CASE WHEN eff.idle THEN 0 ELSE t.pending END,
           -- The locked row has no worker, but the version in this statement's snapshot may have
           -- one, and the CHECKs are first tested on that version.
           worker_id = CASE WHEN eff.idle THEN NULL ELSE t.worker_id END,
           wakes_at = CASE WHEN eff.idle THEN NULL ELSE t.wakes_at END,
           cancel_requested = true,
           cancel_requested_at = coalesce(t.cancel_requested_at, now())
      FROM eff WHERE t.id = @id AND t.id = eff.id AND t.state NOT IN (5, 6, 7, 8)
), looked AS (
    -- A replica looks at the run of a remote worker, which may not answer. The row is free: all statements that lock it
    -- for long lock the task before.
    UPDATE holdfast.task_queue q SET look_at = now()
     WHERE q.id = (SELECT eff.id FROM eff WHERE NOT eff.idle) AND q.look_at IS NOT NULL
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, state, attempt, payload)
    SELECT eff.id, eff.last_seq + 1, CASE WHEN eff.idle THEN 2 ELSE 4 END, eff.kept, CASE WHEN eff.idle THEN 7 END, 0,
           CASE WHEN NOT eff.idle
                THEN json_build_object('outcome', 'cancel', 'cancel', CAST(nullif(@metadata::text, '') AS json))
                WHEN @metadata::text <> ''
                THEN json_build_object('cancel', CAST(nullif(@metadata::text, '') AS json)) END
      FROM eff WHERE eff.logs
), noticed AS (
    INSERT INTO holdfast.cancel_notices (task, agent, reason)
    SELECT eff.id, eff.agent, 'canceled' FROM eff WHERE @notice::boolean AND eff.attempt > 0
    ON CONFLICT DO NOTHING
)
SELECT eff.idle::boolean AS ended, eff.logs::boolean AS logged, (eff.last_seq + 1)::bigint AS seq,
       now()::timestamptz AS at,
       coalesce(extract(epoch FROM now() - eff.cancel_requested_at), -1)::float8 AS cancel_seconds,
       (CASE WHEN eff.idle AND eff.pushes
             THEN holdfast.push_mark(ARRAY[eff.id], ARRAY[eff.last_seq + 1], ARRAY[eff.last_seq + 1])
             ELSE 0 END)::integer AS marked,
       (CASE WHEN eff.idle AND eff.lineage THEN holdfast.call_settled(eff.id, eff.last_seq + 1)
             ELSE 0 END)::integer AS kin,
       coalesce(holdfast.audit(nullif(@audit::text, '')), 0)::bigint AS audited
  FROM eff;

-- name: TaskByID :one
-- By primary key, for the server's own use; the caller must check the owner.
SELECT * FROM holdfast.tasks WHERE id = @id;

-- name: TaskYields :one
-- Reports whether a message ends the wait of a task's agent, as MessageAppend does. By primary key.
SELECT coalesce(interruptible AND wakes_at > now(), false)::boolean FROM holdfast.tasks
 WHERE id = @id;

-- name: TaskFind :one
-- A task by the id that the server made for it, if the caller may see it. By primary key.
SELECT * FROM holdfast.tasks
 WHERE id = @id AND client_id IS NULL AND tenant = @tenant AND (owner = @owner OR @tenant_wide::boolean)
   AND agent = @agent;

-- name: TaskRead :many
-- TaskFind and the first page of EventsOf in one statement. The task's columns come with its first event
-- only, in one column: repeated in each row of a long log they would cost too much.
SELECT l.seq, l.kind, l.state, l.append, l.artifact_id, l.payload, l.created_at,
       CAST(CASE WHEN l.seq = 1 THEN json_build_object(
           'Owner', l.owner, 'ContextID', l.context_id, 'Dialect', l.dialect, 'Metadata', l.metadata,
           'CreatedAt', l.task_created_at, 'StreamBase', coalesce(l.stream_base, 0),
           'LastSeq', l.last_seq) END AS json) AS header
  FROM holdfast.callers_log l
 WHERE l.task = @id AND l.client_id IS NULL AND l.tenant = @tenant AND (l.owner = @owner OR @tenant_wide::boolean)
   AND l.agent = @agent
   AND (l.kind <> 3 OR @with_artifacts::boolean) AND l.seq <= @upto;

-- name: TaskWitness :many
-- TaskRead for a task that this process has read before: only the events that show that its log is still the same, and
-- the task's columns with the last of them.
SELECT l.seq, l.created_at,
       CAST(CASE WHEN l.seq = l.last_seq THEN json_build_object(
           'Owner', l.owner, 'ContextID', l.context_id, 'Dialect', l.dialect, 'Metadata', l.metadata,
           'CreatedAt', l.task_created_at, 'StreamBase', coalesce(l.stream_base, 0),
           'LastSeq', l.last_seq) END AS json) AS header
  FROM holdfast.callers_log l
 WHERE l.task = @id AND l.client_id IS NULL AND l.tenant = @tenant AND (l.owner = @owner OR @tenant_wide::boolean)
   AND l.agent = @agent
   AND l.seq = ANY(@seqs::bigint[]);

-- name: TaskNamed :one
-- The task of a name, if the caller may see it. By primary key.
SELECT * FROM holdfast.tasks
 WHERE id = @id AND client_id = @client_id::text AND tenant = @tenant AND (owner = @owner OR @tenant_wide::boolean)
   AND agent = @agent;

-- name: NameGet :one
-- The task with a client-chosen id. By primary key. A separate statement, so that the read of the
-- task knows its partition from the id.
SELECT task
  FROM holdfast.task_names
 WHERE tenant = @tenant AND owner = @owner AND agent = @agent AND client_id = @client_id;

-- name: NameGetOfTenant :one
-- For agents whose tasks are visible to the whole tenant: the caller's own task, or else the newest
-- of others. Index task_names_of_tenant.
SELECT task FROM holdfast.task_names
 WHERE tenant = @tenant AND agent = @agent AND client_id = @client_id
 ORDER BY owner = @owner DESC, task DESC LIMIT 1;

-- name: NameForget :execrows
-- Frees a name whose task was deleted: retention removes the task first. A name is written in the
-- commit of its task, so a name without a task never gets one later.
DELETE FROM holdfast.task_names n
 WHERE n.tenant = @tenant AND n.owner = @owner AND n.agent = @agent AND n.client_id = @client_id
   AND NOT holdfast.task_exists(n.task);

-- name: TaskOwners :many
-- The owners of a tenant's tasks in states up to a given one, with one lookup in index tasks_listed
-- of each partition for each owner. The index serves statements that compare the owner.
WITH RECURSIVE o AS (
    (SELECT t.owner
       FROM holdfast.tasks t
      WHERE t.tenant = @tenant AND t.owner >= '' AND t.state <= @highest_state
      ORDER BY t.owner LIMIT 1)
    UNION ALL
    SELECT (SELECT t.owner
              FROM holdfast.tasks t
             WHERE t.tenant = @tenant AND t.owner > o.owner AND t.state <= @highest_state
             ORDER BY t.owner LIMIT 1)
      FROM o WHERE o.owner IS NOT NULL
)
SELECT owner::text AS owner FROM o WHERE owner IS NOT NULL;

-- name: TaskSeqs :many
-- The last seq of the logs of many tasks, for the hub's poll. A deleted task has no row. The lowest
-- and the highest id prune the partitions that hold none of them.
SELECT t.id, t.last_seq
  FROM unnest(@ids::uuid[]) AS i (id)
 CROSS JOIN LATERAL (SELECT x.id, x.last_seq
                       FROM holdfast.tasks x
                      WHERE x.id = i.id AND x.id BETWEEN @lowest AND @highest OFFSET 0) t;

-- name: TaskSeen :one
-- A task by its id, if the caller may see it, whether a client or the server made its public id.
SELECT * FROM holdfast.tasks WHERE id = @id AND tenant = @tenant AND (owner = @owner OR @tenant_wide::boolean);

-- name: IdempotencyGet :many
-- A key belongs to its owner, even if its task belongs to another one. Near midnight there may be
-- two rows, one of them without a task.
SELECT task, request_hash FROM holdfast.idempotency_keys WHERE tenant = @tenant AND owner = @owner AND key = @key;

-- name: IdempotencyForget :execrows
-- Frees a key whose task was never created (another create took its id at the same moment) or was
-- deleted. A key is written in the commit of its task and never changes, so a key without a task
-- never gets one later.
DELETE FROM holdfast.idempotency_keys k
 WHERE k.tenant = @tenant AND k.owner = @owner AND k.key = @key
   AND NOT holdfast.task_exists(k.task);

-- name: TaskRetried :exec
-- Notes the task that a retry has made of another, unless it has made a later one: a repeated request may find an
-- earlier one. By primary key.
UPDATE holdfast.tasks SET retried_as = @again::uuid
 WHERE id = @id AND coalesce(retried_as < @again::uuid, true);
