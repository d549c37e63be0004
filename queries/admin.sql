-- Queries of the admin API. Those that read tasks run in views of operators: for an operator of one tenant as the role
-- of callers, so row-level security hides the other tenants.
--
-- Lists go by id, which is the order of creation. A page passes over a bounded number of tasks, however rare the ones
-- that it shows are (AdminWindow), and needs no index besides the primary key.

-- name: AdminTask :one
-- By primary key.
SELECT * FROM holdfast.tasks WHERE id = @id AND (NOT @bound::boolean OR tenant = @tenant::text);

-- name: AdminTaskNamed :many
-- The tasks with an id that clients chose. Index task_names_of_tenant.
SELECT task FROM holdfast.task_names
 WHERE client_id = @client_id::text AND (NOT @bound::boolean OR tenant = @tenant::text)
 ORDER BY task DESC LIMIT 20;

-- name: AdminWindow :one
-- The id where a page ends that passes over @max_rows tasks, in either order. No row: fewer are left. By primary key.
-- The server's: under the policies it would pass over the tasks of all other tenants.
(SELECT w.id FROM holdfast.tasks w
  WHERE NOT @oldest::boolean AND w.id < @before AND w.id >= @since AND w.state >= @lowest_state
    AND w.state <= @highest_state
  ORDER BY w.id DESC OFFSET @max_rows::integer LIMIT 1)
 UNION ALL
(SELECT u.id FROM holdfast.tasks u
  WHERE @oldest AND u.id < @before AND u.id >= @since AND u.state >= @lowest_state AND u.state <= @highest_state
  ORDER BY u.id OFFSET @max_rows LIMIT 1);

-- name: AdminTasks :many
-- By primary key, within a window, the newest or the oldest task first. A list that is null selects all; a task that
-- has not ended has lasted until now. One order for both would sort the whole window.
SELECT p.* FROM (
    (SELECT * FROM holdfast.tasks n
      WHERE NOT @oldest::boolean AND n.id < @before AND n.id >= @since AND n.state >= @lowest_state
        AND n.state <= @highest_state AND n.state = ANY(@states::smallint[])
        AND n.status_at < @status_before::timestamptz
        AND (n.agent = ANY(@agents::text[])) IS NOT FALSE AND (n.agent = ANY(@not_agents::text[])) IS NOT TRUE
        AND (n.tenant = ANY(@tenants::text[])) IS NOT FALSE AND (n.tenant = ANY(@not_tenants::text[])) IS NOT TRUE
        AND (n.owner = ANY(@owners::text[])) IS NOT FALSE AND (n.owner = ANY(@not_owners::text[])) IS NOT TRUE
        AND ((n.retried_as IS NOT NULL) = sqlc.narg(retried)::boolean) IS NOT FALSE
        AND (@metadata_keys::text[] IS NULL OR NOT EXISTS (
             SELECT FROM (SELECT unnest(@metadata_keys::text[]) AS k, unnest(@metadata_values::text[]) AS v) m
              WHERE (n.metadata ->> m.k) IS DISTINCT FROM m.v))
        AND CASE WHEN n.state < 5 THEN now() ELSE n.status_at END - n.created_at
            BETWEEN @min_duration::interval AND @max_duration::interval
      ORDER BY n.id DESC LIMIT @max_rows)
     UNION ALL
    (SELECT * FROM holdfast.tasks o
      WHERE @oldest AND o.id < @before AND o.id >= @since AND o.state >= @lowest_state AND o.state <= @highest_state
        AND o.state = ANY(@states::smallint[]) AND o.status_at < @status_before::timestamptz
        AND (o.agent = ANY(@agents::text[])) IS NOT FALSE AND (o.agent = ANY(@not_agents::text[])) IS NOT TRUE
        AND (o.tenant = ANY(@tenants::text[])) IS NOT FALSE AND (o.tenant = ANY(@not_tenants::text[])) IS NOT TRUE
        AND (o.owner = ANY(@owners::text[])) IS NOT FALSE AND (o.owner = ANY(@not_owners::text[])) IS NOT TRUE
        AND ((o.retried_as IS NOT NULL) = sqlc.narg(retried)::boolean) IS NOT FALSE
        AND (@metadata_keys::text[] IS NULL OR NOT EXISTS (
             SELECT FROM (SELECT unnest(@metadata_keys::text[]) AS k, unnest(@metadata_values::text[]) AS v) m
              WHERE (o.metadata ->> m.k) IS DISTINCT FROM m.v))
        AND CASE WHEN o.state < 5 THEN now() ELSE o.status_at END - o.created_at
            BETWEEN @min_duration::interval AND @max_duration::interval
      ORDER BY o.id LIMIT @max_rows)
) p;

-- name: AdminTasksOfContext :many
-- Index tasks_of_context; OFFSET keeps the planner from the primary key. The tasks are sorted in either order.
SELECT t.*
  FROM (SELECT *
          FROM holdfast.tasks c
         WHERE c.context_id = @context_id::text AND c.id < @before AND c.id >= @since AND c.state >= @lowest_state
           AND c.state <= @highest_state OFFSET 0) t
 WHERE t.state = ANY(@states::smallint[]) AND t.status_at < @status_before::timestamptz
   AND (t.agent = ANY(@agents::text[])) IS NOT FALSE AND (t.agent = ANY(@not_agents::text[])) IS NOT TRUE
   AND (t.tenant = ANY(@tenants::text[])) IS NOT FALSE AND (t.tenant = ANY(@not_tenants::text[])) IS NOT TRUE
   AND (t.owner = ANY(@owners::text[])) IS NOT FALSE AND (t.owner = ANY(@not_owners::text[])) IS NOT TRUE
   AND ((t.retried_as IS NOT NULL) = sqlc.narg(retried)::boolean) IS NOT FALSE
   AND (@metadata_keys::text[] IS NULL OR NOT EXISTS (
        SELECT FROM (SELECT unnest(@metadata_keys::text[]) AS k, unnest(@metadata_values::text[]) AS v) m
         WHERE (t.metadata ->> m.k) IS DISTINCT FROM m.v))
   AND CASE WHEN t.state < 5 THEN now() ELSE t.status_at END - t.created_at
       BETWEEN @min_duration::interval AND @max_duration::interval
 ORDER BY CASE WHEN @oldest::boolean THEN t.id END, t.id DESC LIMIT @max_rows;

-- name: AdminTasksSaying :many
-- Those of some tasks of which a message says a text, in any case: a message of the client, or one that the agent sent
-- with a status, among the first events of the log. By primary key, in the partitions between @lowest and @highest.
SELECT i.id::uuid AS id FROM unnest(@ids::uuid[]) AS i (id)
 CROSS JOIN LATERAL (
    SELECT 1 FROM holdfast.callers_log l
     CROSS JOIN LATERAL (SELECT CASE l.kind
                                     WHEN 1 THEN l.payload -> 'parts'
                                     ELSE l.payload #> '{message,parts}' END AS parts OFFSET 0) m
     CROSS JOIN LATERAL json_array_elements(CASE WHEN json_typeof(m.parts) = 'array' THEN m.parts END) AS p (part)
     WHERE l.task = i.id AND l.id = i.id AND l.seq <= @most_seq AND l.kind IN (1, 2)
       AND l.task BETWEEN @lowest AND @highest AND l.id BETWEEN @lowest AND @highest
       AND strpos(lower(p.part ->> 'text'), lower(@said::text)) > 0
     LIMIT 1 -- a semi-join would read the whole log
 ) said;

-- name: AdminCounts :many
-- Tasks by agent, state and the interval of @width seconds after @begins in which they were created (below zero:
-- before it). By primary key, within a window. extract would compute with numeric, which takes twice as long.
SELECT t.agent, t.state, count(*) AS tasks,
       floor(date_part('epoch', t.created_at - @begins::timestamptz) / @width::float8)::bigint AS bucket
  FROM holdfast.tasks t
 WHERE t.id < @before AND t.id >= @since AND t.state >= @lowest_state AND t.state <= @highest_state
   AND t.state = ANY(@states::smallint[]) AND t.status_at < @status_before::timestamptz
   AND (t.agent = ANY(@agents::text[])) IS NOT FALSE AND (t.agent = ANY(@not_agents::text[])) IS NOT TRUE
   AND (t.tenant = ANY(@tenants::text[])) IS NOT FALSE AND (t.tenant = ANY(@not_tenants::text[])) IS NOT TRUE
   AND (t.owner = ANY(@owners::text[])) IS NOT FALSE AND (t.owner = ANY(@not_owners::text[])) IS NOT TRUE
   AND ((t.retried_as IS NOT NULL) = sqlc.narg(retried)::boolean) IS NOT FALSE
   AND (@metadata_keys::text[] IS NULL OR NOT EXISTS (
        SELECT FROM (SELECT unnest(@metadata_keys::text[]) AS k, unnest(@metadata_values::text[]) AS v) m
         WHERE (t.metadata ->> m.k) IS DISTINCT FROM m.v))
   AND CASE WHEN t.state < 5 THEN now() ELSE t.status_at END - t.created_at
       BETWEEN @min_duration::interval AND @max_duration::interval
 GROUP BY t.agent, t.state, bucket;

-- name: AdminCountsOfContext :many
-- As AdminCounts, and by the index of AdminTasksOfContext.
SELECT t.agent, t.state, count(*) AS tasks,
       floor(date_part('epoch', t.created_at - @begins::timestamptz) / @width::float8)::bigint AS bucket
  FROM (SELECT *
          FROM holdfast.tasks c
         WHERE c.context_id = @context_id::text AND c.id < @before AND c.id >= @since AND c.state >= @lowest_state
           AND c.state <= @highest_state OFFSET 0) t
 WHERE t.state = ANY(@states::smallint[]) AND t.status_at < @status_before::timestamptz
   AND (t.agent = ANY(@agents::text[])) IS NOT FALSE AND (t.agent = ANY(@not_agents::text[])) IS NOT TRUE
   AND (t.tenant = ANY(@tenants::text[])) IS NOT FALSE AND (t.tenant = ANY(@not_tenants::text[])) IS NOT TRUE
   AND (t.owner = ANY(@owners::text[])) IS NOT FALSE AND (t.owner = ANY(@not_owners::text[])) IS NOT TRUE
   AND ((t.retried_as IS NOT NULL) = sqlc.narg(retried)::boolean) IS NOT FALSE
   AND (@metadata_keys::text[] IS NULL OR NOT EXISTS (
        SELECT FROM (SELECT unnest(@metadata_keys::text[]) AS k, unnest(@metadata_values::text[]) AS v) m
         WHERE (t.metadata ->> m.k) IS DISTINCT FROM m.v))
   AND CASE WHEN t.state < 5 THEN now() ELSE t.status_at END - t.created_at
       BETWEEN @min_duration::interval AND @max_duration::interval
 GROUP BY t.agent, t.state, bucket;

-- name: AdminLog :many
-- The next events of a log. By primary key.
SELECT l.seq, l.kind, l.state, l.attempt, l.append, l.last, l.artifact_id, CAST(l.payload AS json) AS payload,
       l.created_at
  FROM holdfast.callers_log l
 WHERE l.task = @task AND l.id = @task AND l.seq > @after AND l.kind = ANY(@kinds::smallint[])
 ORDER BY l.seq LIMIT @max_rows;

-- name: AdminLogBack :many
-- The events before one, the newest first. By primary key.
SELECT l.seq, l.kind, l.state, l.attempt, l.append, l.last, l.artifact_id, CAST(l.payload AS json) AS payload,
       l.created_at
  FROM holdfast.callers_log l
 WHERE l.task = @task AND l.id = @task AND l.seq < @before AND l.kind = ANY(@kinds::smallint[])
 ORDER BY l.seq DESC LIMIT @max_rows;

-- name: AdminArtifacts :many
-- The artifacts of a task, by their first event. Reads the keys of all chunks of the task. By primary key.
SELECT l.artifact_id, min(l.seq)::bigint AS first_seq, max(l.seq)::bigint AS seq,
       coalesce(max(l.seq) FILTER (WHERE NOT l.append), min(l.seq))::bigint AS base_seq,
       count(*)::bigint AS chunks, coalesce(max(l.seq) FILTER (WHERE l.last) = max(l.seq), false)::boolean AS last
  FROM holdfast.callers_log l
 WHERE l.task = @task AND l.id = @task AND l.kind = 3 AND (@artifact::text = '' OR l.artifact_id = @artifact)
 GROUP BY l.artifact_id ORDER BY first_seq LIMIT @max_rows;

-- name: AdminChunks :many
-- The next chunks of an artifact. By primary key.
SELECT l.seq, l.kind, l.state, l.attempt, l.append, l.last, l.artifact_id, CAST(l.payload AS json) AS payload,
       l.created_at
  FROM holdfast.callers_log l
 WHERE l.task = @task AND l.id = @task AND l.kind = 3 AND l.artifact_id = @artifact::text AND l.seq > @after
   AND l.seq <= @upto
 ORDER BY l.seq LIMIT @max_rows;

-- name: AdminUsage :many
-- The usage that agents report, by model, as view v_usage finds it. Values that are no counts do not count. By primary
-- key. The server's, for a task that a view has found.
SELECT u.model, count(*)::bigint AS reports, coalesce(sum(u.input), 0)::text AS input_tokens,
       coalesce(sum(u.output), 0)::text AS output_tokens,
       coalesce(sum(coalesce(u.total, u.input + u.output, u.input, u.output)), 0)::text AS total_tokens
  FROM (SELECT left(coalesce(CASE WHEN json_typeof(m.said -> 'model') = 'string' THEN m.said ->> 'model' END,
                        CASE WHEN json_typeof(m.said -> 'usage' -> 'model') = 'string'
                             THEN m.said -> 'usage' ->> 'model' END, ''), 200) AS model,
               c.input, c.output, c.total
          FROM (SELECT CASE WHEN e.kind = 2 THEN e.payload -> 'message' -> 'metadata'
                            WHEN json_typeof(e.payload -> 'event_metadata' -> 'usage') = 'object'
                            THEN e.payload -> 'event_metadata'
                            ELSE e.payload -> 'metadata' END AS said
                  FROM holdfast.task_events e
                 WHERE e.task = @task AND e.kind IN (2, 3) AND e.attempt > 0) m
         CROSS JOIN LATERAL (
            SELECT CASE WHEN (m.said -> 'usage' -> 'inputTokens')::text ~ '^[0-9]{1,15}$'
                        THEN (m.said -> 'usage' ->> 'inputTokens')::bigint END AS input,
                   CASE WHEN (m.said -> 'usage' -> 'outputTokens')::text ~ '^[0-9]{1,15}$'
                        THEN (m.said -> 'usage' ->> 'outputTokens')::bigint END AS output,
                   CASE WHEN (m.said -> 'usage' -> 'totalTokens')::text ~ '^[0-9]{1,15}$'
                        THEN (m.said -> 'usage' ->> 'totalTokens')::bigint END AS total) c
         WHERE json_typeof(m.said -> 'usage') = 'object') u
 GROUP BY u.model ORDER BY u.model LIMIT @max_rows;

-- name: AdminRuns :many
-- The events that ended runs of a task, as view v_runs has them. By primary key. The server's, for a task that a view
-- has found.
SELECT e.seq, e.attempt, e.created_at, e.worker_id, e.claimed_at,
       (CASE WHEN e.kind = 4 THEN (e.payload -> 'outcome') #>> '{}'
             WHEN e.state = 1 THEN 'continued'
             ELSE holdfast.state_name(e.state) END)::text AS outcome,
       coalesce(CASE WHEN e.kind = 4 THEN (e.payload -> 'error') #>> '{}'
                     WHEN e.state IN (6, 8) THEN coalesce((e.payload -> 'cause') #>> '{}', (
                         SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
                           FROM json_array_elements(e.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)))
                     END, '')::text AS error,
       coalesce((SELECT p.name FROM holdfast.processes p WHERE p.id = e.worker_id), '')::text AS worker_name
  FROM holdfast.task_events e
 WHERE e.task = @task AND e.seq > @after AND e.attempt > 0 AND e.kind IN (2, 4)
   AND (e.kind = 2 AND e.state <> 2
        OR e.kind = 4 AND (e.payload -> 'outcome') #>> '{}' IN ('lost', 'retry', 'returned', 'away', 'waits', 'calls'))
 ORDER BY e.seq LIMIT @max_rows;

-- name: AdminStatusLines :many
-- The line about each of some tasks, as view v_status has it. By primary keys. The server's, for tasks that a view has
-- found.
SELECT s.task, s.situation::text AS situation, s.text::text AS text,
       coalesce(s.since, 'epoch')::timestamptz AS since, coalesce(s.next, '')::text AS next,
       coalesce(s.next_at, 'epoch')::timestamptz AS next_at, s.turn_of::text AS turn_of
  FROM unnest(@ids::uuid[]) AS i (id)
 CROSS JOIN LATERAL (
    SELECT v.task, v.situation, v.text, v.since, v.next, v.next_at, v.turn_of FROM holdfast.v_status v
     WHERE v.task = i.id AND v.task BETWEEN @lowest AND @highest
    OFFSET 0
 ) s;

-- name: AdminProcesses :many
-- The registered processes, with their runs and duties. Index task_queue_owned.
SELECT w.id, w.name, w.version, w.roles, w.started_at, w.lease_until, (w.lease_until >= now())::boolean AS alive,
       (SELECT count(*) FROM holdfast.task_queue q WHERE q.worker_id = w.id)::bigint AS running,
       coalesce((SELECT array_agg(l.name ORDER BY l.name)
                   FROM holdfast.leases l
                  WHERE l.holder = w.id AND l.until >= now()), '{}')::text[] AS duties
  FROM holdfast.workers w ORDER BY w.name, w.id LIMIT @max_rows;

-- name: AgentHealth :many
-- The health of agents, as view v_agents has it. For an operator of one tenant only its own tasks are evidence, among
-- the newest 1,000 of the agent. Index tasks_ended_at.
SELECT a.agent::text AS agent,
       (CASE WHEN v.agent IS NULL THEN 'no worker'
             WHEN j.own THEN holdfast.agent_verdict(e.completed, e.failed)
             ELSE v.health END)::text AS health,
       coalesce(v.since, 'epoch')::timestamptz AS since,
       coalesce(CASE WHEN v.agent IS NULL THEN 'no process that is alive has it'
                     WHEN j.own THEN holdfast.agent_evidence(e.completed, e.failed)
                     ELSE v.reason END, '')::text AS reason,
       coalesce(v.workers, -1)::bigint AS workers
  FROM unnest(@agents::text[]) AS a (agent)
  LEFT JOIN holdfast.v_agents v ON v.agent = a.agent
 CROSS JOIN LATERAL (
    SELECT @bound::boolean AND coalesce(v.health IN ('unknown', 'healthy', 'failing'), false) AS own
 ) j
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.state = 5) AS completed, count(*) FILTER (WHERE x.state = 6) AS failed
      FROM (SELECT n.state FROM (
                SELECT t.state, t.tenant FROM holdfast.tasks t
                 WHERE j.own AND t.state >= 5 AND t.agent COLLATE "C" = a.agent
                 ORDER BY t.status_at DESC, t.id DESC LIMIT 1000) n
             WHERE n.tenant = @tenant::text LIMIT 20) x
 ) e
 ORDER BY 1;

-- name: AgentsServed :many
-- The agents of the configurations of live processes; remote ones are run by workers.
SELECT agent::text AS agent, coalesce(remote, false)::boolean AS remote FROM holdfast.agent_supply ORDER BY agent;

-- name: AdminAudit :many
-- The newest rows of the audit log before a place. Each chain is in the order of time, so each is one scan of the
-- primary key that stops at the limit; the time prunes newer partitions. The rows that are too old are dropped after
-- the limit: a scan that skips them itself would not stop before the beginning of its partition.
SELECT l.chain, l.n, l.at, l.login, l.entries
  FROM generate_series(1, 64) AS c (chain)
 CROSS JOIN LATERAL (
    SELECT * FROM holdfast.audit_log a
     WHERE a.chain = c.chain AND a.at <= @before_at
       AND (a.at, a.chain, a.n) < (@before_at::timestamptz, @before_chain::smallint, @before_n::bigint)
     ORDER BY a.n DESC LIMIT @max_rows
 ) l
 WHERE l.at >= @since::timestamptz
 ORDER BY l.at DESC, l.chain DESC, l.n DESC LIMIT @max_rows;

-- name: AdminTasksByID :many
-- The current rows of tasks that have changed, for all live lists of this replica. By primary key.
SELECT t.* FROM unnest(@ids::uuid[]) AS i (id)
 CROSS JOIN LATERAL (SELECT * FROM holdfast.tasks x WHERE x.id = i.id AND x.id BETWEEN @lowest AND @highest OFFSET 0) t;

-- name: AdminTasksSince :many
-- Tasks created after a task or a time; an id begins with its time (primary key).
SELECT * FROM holdfast.tasks WHERE id > @since ORDER BY id LIMIT @max_rows;

-- name: AdminChanged :many
-- The tasks that have changed since a time, for a live list that continues: the newest open ones, and those of the
-- agents that have ended (index tasks_ended_at). Each part stops at the limit.
SELECT p.* FROM (
    (SELECT * FROM holdfast.tasks o WHERE o.state NOT IN (5, 6, 7, 8) ORDER BY o.id DESC LIMIT @most)
     UNION ALL
    (SELECT x.* FROM unnest(@agents::text[]) AS a (agent) CROSS JOIN LATERAL (
        SELECT * FROM holdfast.tasks e
         WHERE e.state >= 5 AND e.agent COLLATE "C" = a.agent AND e.status_at >= @since
         ORDER BY e.status_at, e.id LIMIT @most) x)
) p;

-- name: JobAdd :one
-- With a worker, the process that adds the job has claimed it.
INSERT INTO holdfast.admin_jobs
       (id, action, dry_run, filter, options, reason, tenant, actor, position, worker_id, started_at, claimed_until)
SELECT @id, @action, @dry_run, @filter, @options, @reason, sqlc.narg(tenant), @actor, @position, w.id,
       CASE WHEN w.id IS NOT NULL THEN now() END, CASE WHEN w.id IS NULL THEN 'epoch' ELSE now() + @ttl::interval END
  FROM (SELECT sqlc.narg(worker)::uuid AS id) w
RETURNING *;

-- name: JobsForget :exec
-- Index admin_jobs_ended.
DELETE FROM holdfast.admin_jobs WHERE ended_at < now() - @keep::interval;

-- name: JobGet :one
-- By primary key.
SELECT sqlc.embed(j),
       coalesce((SELECT p.name FROM holdfast.processes p WHERE p.id = j.worker_id), '')::text AS worker_name
  FROM holdfast.admin_jobs j WHERE j.id = @id AND (NOT @bound::boolean OR j.tenant = @tenant::text);

-- name: Jobs :many
-- The newest first, by primary key.
SELECT sqlc.embed(j),
       coalesce((SELECT p.name FROM holdfast.processes p WHERE p.id = j.worker_id), '')::text AS worker_name
  FROM holdfast.admin_jobs j
 WHERE j.id < @before AND (NOT @bound::boolean OR j.tenant = @tenant::text)
 ORDER BY j.id DESC LIMIT @max_rows;

-- name: JobClaim :one
-- Claims the job that no process works on for the longest time. Index admin_jobs_open.
UPDATE holdfast.admin_jobs
   SET claimed_until = now() + @ttl::interval, fence = fence + 1, worker_id = @worker,
       started_at = coalesce(started_at, now())
 WHERE id = (SELECT j.id
               FROM holdfast.admin_jobs j
              WHERE j.ended_at IS NULL AND j.claimed_until < now()
              ORDER BY j.claimed_until, j.id LIMIT 1
                FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: JobPlan :one
-- Stores the next batch before the job acts on it. No row: another process has claimed the job.
UPDATE holdfast.admin_jobs
   SET batch = @batch::uuid[], position = @position, matched = matched + @matched,
       claimed_until = now() + @ttl::interval
 WHERE id = @id AND fence = @fence AND ended_at IS NULL
RETURNING (canceled_at IS NOT NULL)::boolean AS canceled;

-- name: JobRecord :one
-- Counts what was done of a batch, and keeps the rest of it. No row: another process has claimed the job.
UPDATE holdfast.admin_jobs
   SET batch = @batch::uuid[], done = done + @done, skipped = skipped + @skipped, failed = failed + @failed,
       failures = @failures, claimed_until = now() + @ttl::interval
 WHERE id = @id AND fence = @fence AND ended_at IS NULL
RETURNING (canceled_at IS NOT NULL)::boolean AS canceled;

-- name: JobEnd :execrows
UPDATE holdfast.admin_jobs
   SET ended_at = now(), claimed_until = 'epoch'
 WHERE id = @id AND fence = @fence AND ended_at IS NULL;

-- name: JobRelease :exec
-- A process gives its job back, behind the others that wait.
UPDATE holdfast.admin_jobs SET claimed_until = now() WHERE id = @id AND fence = @fence AND ended_at IS NULL;

-- name: JobCancel :one
-- The process that works on the job ends it after its batch. A second call changes nothing.
UPDATE holdfast.admin_jobs SET canceled_at = coalesce(canceled_at, now())
 WHERE id = @id AND ended_at IS NULL AND (NOT @bound::boolean OR tenant = @tenant::text)
RETURNING id;
