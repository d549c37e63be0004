-- Retention: ends tasks that were parked for too long, moves data that outlives its period, and
-- deletes old data.
--
-- Every statement here works on a small batch and skips rows that others have locked. If the
-- process is killed between two of them, nothing is lost: the next round finds the same work again.

-- name: ParkedAgents :many
-- The agents with parked tasks, with one lookup in index tasks_open_parked for each.
WITH RECURSIVE a AS (
    (SELECT t.agent FROM holdfast.tasks t WHERE t.state IN (3, 4) ORDER BY t.agent LIMIT 1)
     UNION ALL
    SELECT (SELECT t.agent FROM holdfast.tasks t WHERE t.state IN (3, 4) AND t.agent > a.agent ORDER BY t.agent LIMIT 1)
      FROM a WHERE a.agent IS NOT NULL
)
SELECT agent::text AS agent FROM a WHERE agent IS NOT NULL;

-- name: ParkedExpire :many
-- Cancels tasks of an agent that have been parked for longer than @after, with a status message.
-- With @notice the agent is told. Index tasks_open_parked.
WITH due AS MATERIALIZED (
    SELECT t.id, t.kept, t.last_seq, t.pushes, t.lineage FROM holdfast.tasks t
     WHERE t.state IN (3, 4) AND t.agent = @agent AND t.status_at < now() - @after::interval AND t.held_at IS NULL
     ORDER BY t.status_at LIMIT @max_rows
       FOR NO KEY UPDATE SKIP LOCKED
), upd AS (
    UPDATE holdfast.tasks t
       SET state = 7, last_seq = due.last_seq + 1, status_seq = due.last_seq + 1, status_at = now(), pending = 0
      FROM due WHERE t.id = ANY(ARRAY(SELECT id FROM due)) AND t.id = due.id AND t.state < 5
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, state, attempt, payload)
    SELECT due.id, due.last_seq + 1, 2, due.kept, 7, 0,
           json_build_object('message', json_build_object('id', 'expired-' || due.id, 'role', 'agent',
                             'parts', json_build_array(json_build_object('text', @reason::text))))
      FROM due
), noticed AS (
    INSERT INTO holdfast.cancel_notices (task, agent, reason)
    SELECT due.id, @agent, 'expired'
      FROM due
     WHERE @notice::boolean
    ON CONFLICT DO NOTHING
), hooked AS MATERIALIZED (
    SELECT array_agg(id ORDER BY id) AS tasks, array_agg(last_seq + 1 ORDER BY id) AS seqs FROM due WHERE pushes
), audited AS MATERIALIZED (
    SELECT holdfast.audit(json_agg(json_build_object('action', 'task.expired', 'task', due.id, 'agent', @agent::text,
                                                     'method', 'operator'))::text) AS n
      FROM due HAVING count(*) > 0
)
SELECT due.id, (due.last_seq + 1)::bigint AS seq, now()::timestamptz AS at,
       (SELECT CASE WHEN hooked.tasks IS NULL THEN 0 ELSE holdfast.push_mark(hooked.tasks, hooked.seqs, hooked.seqs) END
          FROM hooked)::integer AS marked,
       (CASE WHEN due.lineage THEN holdfast.call_settled(due.id, due.last_seq + 1) ELSE 0 END)::integer AS kin,
       coalesce((SELECT n FROM audited), 0)::bigint AS audited
  FROM due;

-- name: EndedAgents :many
-- The agents with ended tasks among these ids, with one lookup in index tasks_ended_at for each.
WITH RECURSIVE a AS (
    (SELECT t.agent COLLATE "C" AS agent FROM holdfast.tasks t
      WHERE t.state >= 5 AND t.kept = @kept AND t.id >= @lowest AND t.id < @highest
      ORDER BY t.agent COLLATE "C" LIMIT 1)
     UNION ALL
    SELECT (SELECT t.agent COLLATE "C" FROM holdfast.tasks t
             WHERE t.state >= 5 AND t.kept = @kept AND t.id >= @lowest AND t.id < @highest
               AND t.agent COLLATE "C" > a.agent
             ORDER BY t.agent COLLATE "C" LIMIT 1)
      FROM a WHERE a.agent IS NOT NULL
)
SELECT agent::text AS agent FROM a WHERE agent IS NOT NULL;

-- name: EndedBefore :many
-- A page of an agent's tasks that ended before a time and are not held, the oldest first. Index
-- tasks_ended_at.
SELECT * FROM holdfast.tasks
 WHERE state >= 5 AND kept = @kept AND id >= @lowest AND id < @highest AND agent COLLATE "C" = @agent::text
   AND held_at IS NULL
   AND status_at < @before AND (status_at, id) > (@after_at::timestamptz, @after_id::uuid)
 ORDER BY status_at, id LIMIT @max_rows;

-- name: OpenKeep :one
-- Marks open tasks of a period as kept: their new events go outside of it. Returns how many it
-- marked, and how many are left because they were locked.
WITH mine AS MATERIALIZED (
    SELECT t.id FROM holdfast.tasks t
     WHERE t.state < 5 AND NOT t.kept AND t.id >= @lowest AND t.id < @highest
     ORDER BY t.id LIMIT @max_rows
       FOR NO KEY UPDATE SKIP LOCKED
), upd AS (
    UPDATE holdfast.tasks t SET kept = true WHERE t.id = ANY(ARRAY(SELECT id FROM mine)) AND t.state < 5
    RETURNING t.id
)
SELECT (SELECT count(*) FROM upd)::bigint AS moved,
       ((SELECT count(*) FROM holdfast.tasks t WHERE t.state < 5 AND NOT t.kept AND t.id >= @lowest AND t.id < @highest)
        - (SELECT count(*) FROM upd))::bigint AS remaining;

-- name: EndedKeep :execrows
-- Moves ended tasks that must outlive their period out of it: those of an agent that ended at
-- @since or later, and (@held) held tasks. Index tasks_ended_at, tasks_held.
UPDATE holdfast.tasks t SET kept = true
 WHERE t.state >= 5 AND NOT t.kept AND t.id >= @lowest AND t.id < @highest
   AND t.id = ANY(ARRAY(
        SELECT x.id FROM holdfast.tasks x
         WHERE x.state >= 5 AND NOT x.kept AND x.id >= @lowest AND x.id < @highest
           AND NOT @held::boolean AND x.agent COLLATE "C" = @agent::text AND x.status_at >= @since
         ORDER BY x.status_at LIMIT @max_rows)
      || ARRAY(
        SELECT x.id FROM holdfast.tasks x
         WHERE x.state >= 5 AND NOT x.kept AND x.id >= @lowest AND x.id < @highest AND @held::boolean
           AND x.held_at IS NOT NULL
         ORDER BY x.id LIMIT @max_rows));

-- name: KeptUnmoved :many
-- Kept tasks of a period that still have events in it.
SELECT x.id FROM (
    SELECT t.id FROM holdfast.tasks t WHERE t.state < 5 AND t.kept AND t.id >= @lowest AND t.id < @highest
     UNION ALL
    SELECT t.id FROM holdfast.tasks t WHERE t.state >= 5 AND t.kept AND t.id >= @lowest AND t.id < @highest
) x
 WHERE holdfast.has_dated_events(x.id, false)
 LIMIT @max_rows;

-- name: EventsKeep :execrows
-- Moves some events of a task out of their period; of all kinds, or (@artifacts) only artifact
-- chunks. A reader sees each of them in exactly one place.
UPDATE holdfast.task_events e SET kept = true
 WHERE e.task = @task AND NOT e.kept AND (e.kind = 3 OR NOT @artifacts::boolean)
   AND e.seq = ANY(ARRAY(
        SELECT x.seq FROM holdfast.task_events x
         WHERE x.task = @task AND NOT x.kept AND (x.kind = 3 OR NOT @artifacts::boolean)
         ORDER BY x.seq LIMIT @max_rows));

-- name: ArtifactsUnmoved :many
-- Ended tasks of an agent whose artifacts must outlive their period: the tasks ended at @since or
-- later, or are held. Index tasks_ended_at, tasks_held.
(SELECT t.id FROM holdfast.tasks t
  WHERE t.state >= 5 AND t.id >= @lowest AND t.id < @highest AND t.agent COLLATE "C" = @agent::text
    AND t.status_at >= @since
    AND holdfast.has_dated_events(t.id, true)
  ORDER BY t.status_at LIMIT @max_rows)
 UNION
(SELECT t.id FROM holdfast.tasks t
  WHERE t.state >= 5 AND t.id >= @lowest AND t.id < @highest AND t.agent COLLATE "C" = @agent::text
    AND t.held_at IS NOT NULL
    AND holdfast.has_dated_events(t.id, true)
  ORDER BY t.id LIMIT @max_rows);

-- name: ArtifactsErase :execrows
-- Deletes the newest artifact chunks of a task. The rest of an artifact is always its beginning.
DELETE FROM holdfast.task_events e
 WHERE e.task = @task AND e.kind = 3
   AND e.seq = ANY(ARRAY(SELECT x.seq
                           FROM holdfast.task_events x
                          WHERE x.task = @task AND x.kind = 3
                          ORDER BY x.seq DESC LIMIT @max_rows));

-- name: NamesGone :execrows
-- Deletes the names of tasks that are dropped with their period: neither open nor kept. Index
-- task_names_task.
DELETE FROM holdfast.task_names n
 WHERE n.task = ANY(ARRAY(
    SELECT x.task FROM holdfast.task_names x
     WHERE x.task >= @lowest AND x.task < @highest AND NOT holdfast.task_stays(x.task)
     ORDER BY x.task LIMIT @max_rows));

-- name: PushesGone :execrows
-- Deletes the webhooks of the same tasks as NamesGone. By primary key.
WITH gone AS MATERIALIZED (
    SELECT DISTINCT x.task FROM (
        SELECT c.task FROM holdfast.push_configs c
         WHERE c.task >= @lowest AND c.task < @highest AND NOT holdfast.task_stays(c.task)
         ORDER BY c.task LIMIT @max_rows) x
), cursors AS (
    DELETE FROM holdfast.push_cursors k WHERE k.task = ANY(ARRAY(SELECT task FROM gone))
)
DELETE FROM holdfast.push_configs c WHERE c.task = ANY(ARRAY(SELECT task FROM gone));

-- name: TaskStatesGone :execrows
-- Deletes the states of the same tasks as NamesGone. By primary key.
DELETE FROM holdfast.task_states s
 WHERE s.task = ANY(ARRAY(
    SELECT x.task FROM holdfast.task_states x
     WHERE x.task >= @lowest AND x.task < @highest AND NOT holdfast.task_stays(x.task)
     ORDER BY x.task LIMIT @max_rows));

-- name: NoticesGone :execrows
-- Deletes the notices of the same tasks as NamesGone. By primary key.
DELETE FROM holdfast.cancel_notices n
 WHERE n.task = ANY(ARRAY(
    SELECT x.task FROM holdfast.cancel_notices x
     WHERE x.task >= @lowest AND x.task < @highest AND NOT holdfast.task_stays(x.task)
     ORDER BY x.task LIMIT @max_rows));

-- name: CallsGone :execrows
-- Deletes the calls of the same tasks as NamesGone. By primary key.
DELETE FROM holdfast.task_calls c
 WHERE c.parent = ANY(ARRAY(
    SELECT x.parent FROM holdfast.task_calls x
     WHERE x.parent >= @lowest AND x.parent < @highest AND NOT holdfast.task_stays(x.parent)
     ORDER BY x.parent LIMIT @max_rows));

-- name: ContextStatesGone :many
-- Deletes the states of contexts all of whose tasks are dropped with the periods before an id. A page of
-- the states that tasks of these periods wrote, after a task. A context has more tasks than those that
-- wrote its state, so each round looks at the states of all older periods again. Index context_states_task.
WITH page AS MATERIALIZED (
    SELECT x.task, x.tenant, x.owner, x.agent, x.context_id FROM holdfast.context_states x
     WHERE x.task > @after AND x.task < @highest ORDER BY x.task LIMIT @max_rows
), gone AS (
    DELETE FROM holdfast.context_states s
     USING page
     WHERE s.tenant = page.tenant AND s.owner = page.owner AND s.agent = page.agent AND s.context_id = page.context_id
       AND s.task = page.task
       AND NOT holdfast.context_stays(page.tenant, page.owner, page.agent, page.context_id, @highest)
)
SELECT task FROM page ORDER BY task;

-- name: TasksLock :many
-- Locks those of the given tasks that are not held and that no other session has locked. Later statements of the
-- transaction see all that was written for these tasks.
SELECT t.id FROM holdfast.tasks t
 WHERE t.id = ANY(@ids::uuid[]) AND t.id BETWEEN @lowest AND @highest AND t.held_at IS NULL
 ORDER BY t.id
   FOR UPDATE SKIP LOCKED;

-- name: PushCursorsLock :exec
-- After TasksLock. Later statements of the transaction see all attempts of these tasks' webhooks, and none follows.
SELECT k.task FROM holdfast.push_cursors k WHERE k.task = ANY(@ids::uuid[]) ORDER BY k.task, k.config_id FOR UPDATE;

-- name: TasksErase :many
-- After TasksLock: a statement that locked the tasks itself would not see, and leave behind, what was committed for
-- them between its snapshot and its locks, such as the queue row of an answer. Deletes tasks with all their data,
-- except long logs and the logs of open tasks, which go into table erasures. After the commit nobody sees the tasks,
-- and their runs are fenced.
WITH gone AS (
    DELETE FROM holdfast.tasks t WHERE t.id = ANY(@ids::uuid[]) AND t.id BETWEEN @lowest AND @highest
    RETURNING t.id, t.tenant, t.owner, t.agent, t.context_id, t.state, t.last_seq, t.lineage
), states AS (
    DELETE FROM holdfast.task_states s WHERE s.task = ANY(ARRAY(SELECT id FROM gone))
), contexts AS (
    DELETE FROM holdfast.context_states s
     USING (SELECT DISTINCT tenant, owner, agent, context_id FROM gone) g
     WHERE s.tenant = g.tenant AND s.owner = g.owner AND s.agent = g.agent AND s.context_id = g.context_id
       AND NOT holdfast.context_has_other(g.tenant, g.owner, g.agent, g.context_id, ARRAY(SELECT id FROM gone))
), notices AS (
    DELETE FROM holdfast.cancel_notices n WHERE n.task = ANY(ARRAY(SELECT id FROM gone))
), settled AS (
    -- For the tasks that wait for it, and for those that it has called.
    INSERT INTO holdfast.task_settled (task, seq) SELECT id, last_seq + 1 FROM gone WHERE lineage
    ON CONFLICT DO NOTHING
), queue AS (
    DELETE FROM holdfast.task_queue q WHERE q.id = ANY(ARRAY(SELECT id FROM gone WHERE state < 5))
), names AS (
    DELETE FROM holdfast.task_names n WHERE n.task = ANY(ARRAY(SELECT id FROM gone))
), cursors AS (
    DELETE FROM holdfast.push_cursors k WHERE k.task = ANY(ARRAY(SELECT id FROM gone))
), configs AS (
    DELETE FROM holdfast.push_configs c WHERE c.task = ANY(ARRAY(SELECT id FROM gone))
), attempts AS (
    DELETE FROM holdfast.push_attempts a WHERE @with_traces::boolean AND a.task = ANY(ARRAY(SELECT id FROM gone))
), keys AS (
    DELETE FROM holdfast.idempotency_keys k
     WHERE @with_traces::boolean AND k.tenant = ANY(ARRAY(SELECT tenant FROM gone))
       AND k.owner = ANY(ARRAY(SELECT owner FROM gone))
       AND k.task = ANY(ARRAY(SELECT id FROM gone))
), logs AS (
    DELETE FROM holdfast.task_events e
     WHERE e.task = ANY(ARRAY(SELECT id FROM gone WHERE state >= 5 AND last_seq <= @inline::bigint))
       AND e.task BETWEEN @lowest AND @highest
), later AS (
    INSERT INTO holdfast.erasures (task) SELECT id FROM gone WHERE state < 5 OR last_seq > @inline::bigint
    ON CONFLICT DO NOTHING
), audited AS MATERIALIZED (
    SELECT holdfast.audit(nullif(@audit::text, '')) AS n FROM gone HAVING count(*) > 0
)
SELECT gone.id, (gone.state < 5)::boolean AS open, coalesce((SELECT n FROM audited), 0)::bigint AS audited FROM gone;

-- name: Erasures :many
SELECT task FROM holdfast.erasures ORDER BY task LIMIT @max_rows;

-- name: EventsErase :execrows
-- Deletes some events of a deleted task.
DELETE FROM holdfast.task_events e
 WHERE e.task = @task
   AND e.seq = ANY(ARRAY(SELECT x.seq
                           FROM holdfast.task_events x
                          WHERE x.task = @task
                          ORDER BY x.seq DESC LIMIT @max_rows));

-- name: ErasureDone :exec
DELETE FROM holdfast.erasures WHERE task = @task;

-- name: TaskHold :one
-- Holds a task: exempts it from retention, or (@held false) ends the hold. A name that retention
-- has already removed is restored if it is free.
WITH t AS (
    UPDATE holdfast.tasks SET held_at = CASE WHEN @held::boolean THEN coalesce(held_at, now()) END WHERE id = @id
    RETURNING id, client_id, tenant, owner, agent, held_at
), named AS (
    INSERT INTO holdfast.task_names (tenant, owner, agent, client_id, task)
    SELECT tenant, owner, agent, client_id, id FROM t WHERE client_id IS NOT NULL AND held_at IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT held_at FROM t;

-- name: ProgressGet :one
SELECT at, task FROM holdfast.retention_progress WHERE job = @job;

-- name: ProgressSet :exec
INSERT INTO holdfast.retention_progress (job, at, task) VALUES (@job, @at, @task)
ON CONFLICT (job) DO UPDATE SET at = excluded.at, task = excluded.task;

-- name: ProgressForget :exec
-- For a dropped partition.
DELETE FROM holdfast.retention_progress WHERE split_part(job, '/', 2) = @partition::text;

-- name: KeysForget :execrows
-- Deletes idempotency keys of an age that whole days cannot express. Index idempotency_keys_age.
DELETE FROM holdfast.idempotency_keys
 WHERE created_at <= (SELECT max(x.created_at) FROM (
        SELECT k.created_at FROM holdfast.idempotency_keys k
         WHERE k.created_at < now() - @keep::interval ORDER BY k.created_at LIMIT @max_rows) x);

-- name: ProcessesForget :execrows
-- Deletes the names of processes that ended long ago. Index processes_started.
DELETE FROM holdfast.processes p
 WHERE p.id = ANY(ARRAY(
    SELECT x.id FROM holdfast.processes x
     WHERE x.started_at < now() - @keep::interval AND NOT EXISTS (SELECT FROM holdfast.workers w WHERE w.id = x.id)
     ORDER BY x.started_at LIMIT @max_rows));

-- name: AuditRemoved :execrows
-- Records for one chain that the rows of a period are removed: the next row continues the hash of
-- the last of them.
UPDATE holdfast.audit_chains c SET removed = l.n, removed_head = l.hash
  FROM (SELECT x.n, x.hash FROM holdfast.audit_log x
         WHERE x.chain = @chain AND x.at >= @from_at AND x.at < @to_at ORDER BY x.n DESC LIMIT 1) l
 WHERE c.chain = @chain AND l.n > c.removed;

-- name: RetentionCounts :one
-- For a plan: counts an agent's tasks among these ids that ended before a time. Index
-- tasks_ended_at, if planned for these ids.
SELECT count(*)::bigint AS tasks, coalesce(sum(t.last_seq), 0)::bigint AS events,
       coalesce(sum(t.artifact_bytes), 0)::bigint AS artifact_bytes,
       count(*) FILTER (WHERE t.held_at IS NOT NULL)::bigint AS held
  FROM holdfast.tasks t
 WHERE t.state >= 5 AND t.kept = @kept AND t.id >= @lowest AND t.id < @highest AND t.agent COLLATE "C" = @agent::text
   AND t.status_at < @before;
