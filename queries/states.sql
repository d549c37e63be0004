-- The values that agents store for a task or a context.

-- name: TaskStateGet :one
-- By primary key.
SELECT s.version, s.value::text AS value FROM holdfast.task_states s WHERE s.task = @task AND s.value IS NOT NULL;

-- name: ContextStateGet :one
-- By primary key.
SELECT s.version, s.value::text AS value FROM holdfast.context_states s
 WHERE s.tenant = @tenant AND s.owner = @owner AND s.agent = @agent AND s.context_id = @context_id
   AND s.value IS NOT NULL;

-- name: TaskStateSet :one
-- Stores or (null) removes the state of a task, if its version is the given one: 0 for none, -1 for any.
-- Fenced like EventsAppend. The share lock lets no rescue and no end of the run come between the fence
-- and the commit. A repetition, with the same request id, finds its own first copy and changes nothing.
-- It locks the task, then the state.
WITH run AS MATERIALIZED (
    SELECT t.id FROM holdfast.tasks t
     WHERE t.id = @task AND t.attempt = @attempt AND t.claimed_at = @claimed_at::timestamptz
       AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
       FOR SHARE
), put AS (
    INSERT INTO holdfast.task_states AS s (task, version, value, request_id)
    SELECT run.id, 1, sqlc.narg('value')::text::json, @request_id::uuid FROM run
     WHERE (@version::bigint <= 0 AND sqlc.narg('value')::text IS NOT NULL)
        OR EXISTS (SELECT FROM holdfast.task_states x WHERE x.task = run.id)
    ON CONFLICT (task) DO UPDATE
       SET version = s.version + (s.request_id <> excluded.request_id)::integer, value = excluded.value,
           request_id = excluded.request_id, updated_at = now()
     WHERE @version::bigint = CASE WHEN s.value IS NULL THEN 0 ELSE s.version END OR @version::bigint = -1
        OR s.request_id = excluded.request_id
    RETURNING s.version
)
SELECT EXISTS (SELECT FROM run)::boolean AS runs, EXISTS (SELECT FROM put)::boolean AS put,
       coalesce((SELECT version FROM put), 0)::bigint AS version,
       EXISTS (SELECT FROM holdfast.task_states x WHERE x.task = @task AND x.value IS NOT NULL)::boolean AS existed;

-- name: ContextStateSet :one
-- TaskStateSet for the state of the task's context.
WITH run AS MATERIALIZED (
    SELECT t.id, t.tenant, t.owner, t.agent, t.context_id FROM holdfast.tasks t
     WHERE t.id = @task AND t.attempt = @attempt AND t.claimed_at = @claimed_at::timestamptz
       AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
       FOR SHARE
), stored AS MATERIALIZED (
    SELECT x.value IS NULL AS removed FROM holdfast.context_states x
     WHERE x.tenant = (SELECT tenant FROM run) AND x.owner = (SELECT owner FROM run)
       AND x.agent = (SELECT agent FROM run)
       AND x.context_id = (SELECT context_id FROM run)
), put AS (
    INSERT INTO holdfast.context_states AS s (tenant, owner, agent, context_id, task, version, value, request_id)
    SELECT run.tenant, run.owner, run.agent, run.context_id, run.id, 1, sqlc.narg('value')::text::json,
           @request_id::uuid
      FROM run
     WHERE (@version::bigint <= 0 AND sqlc.narg('value')::text IS NOT NULL) OR EXISTS (SELECT FROM stored)
    ON CONFLICT (tenant, owner, agent, context_id) DO UPDATE
       SET version = s.version + (s.request_id <> excluded.request_id)::integer, value = excluded.value,
           task = excluded.task, request_id = excluded.request_id, updated_at = now()
     WHERE @version::bigint = CASE WHEN s.value IS NULL THEN 0 ELSE s.version END OR @version::bigint = -1
        OR s.request_id = excluded.request_id
    RETURNING s.version
)
SELECT EXISTS (SELECT FROM run)::boolean AS runs, EXISTS (SELECT FROM put)::boolean AS put,
       coalesce((SELECT version FROM put), 0)::bigint AS version,
       EXISTS (SELECT FROM stored WHERE NOT removed)::boolean AS existed;
