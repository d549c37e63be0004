-- Queries of the admin API about agents, webhooks, keys and the database. As those in admin.sql, each reads a bounded
-- number of rows, however long the history is.

-- name: AgentWindows :many
-- For each agent, when the last task ended that is not among its @max_rows newest ones. No row: all fit. Index
-- tasks_ended_at. The server's: under the policies it would pass over the tasks of all other tenants.
SELECT a.agent::text AS agent, w.status_at
  FROM unnest(@agents::text[]) AS a (agent)
 CROSS JOIN LATERAL (
    SELECT e.status_at FROM holdfast.tasks e
     WHERE e.state >= 5 AND e.agent COLLATE "C" = a.agent AND e.status_at >= @since
     ORDER BY e.status_at DESC, e.id DESC OFFSET @max_rows::integer LIMIT 1
 ) w;

-- name: AgentStats :many
-- What ended in each interval of @width seconds since @since, by agent. Each agent has a beginning of its own, from
-- AgentWindows. Index tasks_ended_at.
SELECT x.agent::text AS agent, x.bucket::integer AS bucket, count(*)::bigint AS ended,
       count(*) FILTER (WHERE x.state = 6)::bigint AS failed, count(*) FILTER (WHERE x.state = 7)::bigint AS canceled,
       count(*) FILTER (WHERE x.state = 8)::bigint AS rejected, count(x.run)::bigint AS timed,
       coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY x.run), 0)::float8 AS run_p50,
       coalesce(percentile_cont(0.95) WITHIN GROUP (ORDER BY x.run), 0)::float8 AS run_p95,
       coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY x.took), 0)::float8 AS took_p50,
       coalesce(percentile_cont(0.95) WITHIN GROUP (ORDER BY x.took), 0)::float8 AS took_p95
  FROM (
    SELECT w.agent, t.state,
           floor(extract(epoch FROM t.status_at - @since::timestamptz)::float8 / @width::float8) AS bucket,
           CASE WHEN t.state IN (5, 6, 8) THEN extract(epoch FROM t.status_at - t.claimed_at)::float8 END AS run,
           extract(epoch FROM t.status_at - t.created_at)::float8 AS took
      FROM (SELECT unnest(@agents::text[]) AS agent, unnest(@froms::timestamptz[]) AS since) w
     CROSS JOIN LATERAL (
        SELECT e.state, e.status_at, e.claimed_at, e.created_at FROM holdfast.tasks e
         WHERE e.state >= 5 AND e.agent COLLATE "C" = w.agent AND e.status_at >= w.since
           AND (NOT @by_tenant::boolean OR e.tenant = @tenant::text)
        OFFSET 0
     ) t
  ) x
 GROUP BY x.agent, x.bucket;

-- name: AgentFailed :many
-- The newest tasks of an agent that failed or were rejected since a time from AgentWindows. Index tasks_ended_at.
SELECT e.id, e.client_id, e.state, e.status_at, e.status_seq FROM holdfast.tasks e
 WHERE e.state IN (6, 8) AND e.agent COLLATE "C" = @agent::text AND e.status_at >= @since
   AND (NOT @by_tenant::boolean OR e.tenant = @tenant::text)
 ORDER BY e.status_at DESC, e.id DESC LIMIT @max_rows;

-- name: StatusReasons :many
-- Why tasks failed, by their status events, as view v_runs has it. By primary key. The server's, for tasks that a view
-- has found.
SELECT w.task::uuid AS task,
       left(coalesce((e.payload -> 'cause') #>> '{}', (
            SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
              FROM json_array_elements(e.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)), ''),
                   @most::integer)::text AS reason
  FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@seqs::bigint[]) AS seq) w
 CROSS JOIN LATERAL (
    SELECT v.payload FROM holdfast.task_events v
     WHERE v.task = w.task AND v.seq = w.seq AND v.kind = 2 AND v.task BETWEEN @lowest AND @highest
    OFFSET 0
 ) e;

-- name: TaskWords :many
-- What a list says of tasks: the beginning of the client's first message, and the tokens that the last events report up
-- to the given seqs, also by model. By primary key, without payloads that are large. The server's, for tasks that a
-- view has found.
SELECT w.task::uuid AS task, coalesce(m.said, '')::text AS said, coalesce(u.tokens, 0)::bigint AS tokens,
       coalesce(u.models, '{}')::text[] AS models, coalesce(u.inputs, '{}')::bigint[] AS inputs,
       coalesce(u.outputs, '{}')::bigint[] AS outputs
  FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@seqs::bigint[]) AS seq) w
  LEFT JOIN LATERAL (
    SELECT left(coalesce((SELECT p.value ->> 'text' FROM json_array_elements(v.payload -> 'parts') p
                           WHERE p.value ->> 'text' <> '' LIMIT 1),
                         v.payload #>> '{parts,0,filename}', v.payload #>> '{parts,0,data}'), 200) AS said
      FROM holdfast.task_events v
     WHERE v.task = w.task AND v.seq = 1 AND v.kind = 1 AND v.task BETWEEN @lowest AND @highest
       AND pg_column_size(v.payload) < 65536
    OFFSET 0
 ) m ON true
  LEFT JOIN LATERAL (
    SELECT sum(coalesce(c.total, c.input + c.output, c.input, c.output)) AS tokens,
           array_agg(left(coalesce(e.model, e.usage ->> 'model', ''), 200)) AS models,
           array_agg(coalesce(c.input, 0)) AS inputs, array_agg(coalesce(c.output, 0)) AS outputs
      FROM (SELECT CASE WHEN v.kind = 2 THEN v.payload #> '{message,metadata,usage}'
                        ELSE coalesce(v.payload #> '{event_metadata,usage}', v.payload #> '{metadata,usage}')
                        END AS usage,
                   CASE WHEN v.kind = 2 THEN v.payload #>> '{message,metadata,model}'
                        ELSE coalesce(v.payload #>> '{event_metadata,model}', v.payload #>> '{metadata,model}')
                        END AS model
              FROM holdfast.task_events v
             WHERE v.task = w.task AND v.seq > w.seq - 8 AND v.kind IN (2, 3) AND v.attempt > 0
               AND v.task BETWEEN @lowest AND @highest AND pg_column_size(v.payload) < 65536
            OFFSET 0) e
     CROSS JOIN LATERAL (
        SELECT CASE WHEN (e.usage -> 'inputTokens')::text ~ '^[0-9]{1,15}$'
                    THEN (e.usage ->> 'inputTokens')::bigint END AS input,
               CASE WHEN (e.usage -> 'outputTokens')::text ~ '^[0-9]{1,15}$'
                    THEN (e.usage ->> 'outputTokens')::bigint END AS output,
               CASE WHEN (e.usage -> 'totalTokens')::text ~ '^[0-9]{1,15}$'
                    THEN (e.usage ->> 'totalTokens')::bigint END AS total) c
     WHERE json_typeof(e.usage) = 'object'
 ) u ON true;

-- name: PushWindow :one
-- The task where a page of webhooks ends that passes over @max_rows of them. No row: fewer are left. By primary key, or
-- by index push_cursors_failing or push_cursors_disabled.
SELECT k.task FROM holdfast.push_cursors k
 WHERE (k.task, k.config_id) < (@before_task::uuid, @before_id::text)
   AND (NOT @failing::boolean OR k.attempts > 0)
   AND (NOT @disabled::boolean OR k.disabled_at IS NOT NULL)
 ORDER BY k.task DESC, k.config_id DESC OFFSET @max_rows::integer LIMIT 1;

-- name: PushLags :one
-- Numbers of webhooks, each up to a bound. Indexes push_cursors_due, push_cursors_lanes, push_cursors_failing and
-- push_cursors_disabled.
WITH due AS (
    SELECT d.due_since FROM (
        (SELECT k.due_since
           FROM holdfast.push_cursors k
          WHERE k.due_at IS NOT NULL AND NOT k.parked
          ORDER BY k.due_at LIMIT @bound)
         UNION ALL
        (SELECT k.due_since
           FROM holdfast.push_cursors k
          WHERE k.parked AND k.due_at IS NOT NULL
          ORDER BY k.caller, k.host, k.due_at LIMIT @bound)
    ) d LIMIT @bound
)
SELECT (SELECT count(*) FROM due)::bigint AS due,
       coalesce((SELECT extract(epoch FROM now() - min(due_since)) FROM due), 0)::float8 AS oldest_seconds,
       (SELECT count(*) FILTER (WHERE f.disabled_at IS NULL)
          FROM (SELECT k.disabled_at FROM holdfast.push_cursors k
                 WHERE k.attempts > 0
                 ORDER BY k.task DESC, k.config_id DESC LIMIT @bound) f)::bigint AS failing,
       (SELECT count(*)
          FROM (SELECT FROM holdfast.push_cursors k
                 WHERE k.disabled_at IS NOT NULL
                 ORDER BY k.task DESC, k.config_id DESC LIMIT @bound) d)::bigint AS disabled;

-- name: PushLagsOfHosts :many
-- The receivers with most webhooks that fail, of the newest webhooks that do. Those that are disabled come last, and
-- since is of those that are not, if there are any. Index push_cursors_failing.
SELECT f.host, count(*) FILTER (WHERE f.disabled_at IS NULL)::bigint AS failing,
       count(*) FILTER (WHERE f.disabled_at IS NOT NULL)::bigint AS disabled,
       coalesce(min(f.failing_since) FILTER (WHERE f.disabled_at IS NULL), min(f.failing_since),
                now())::timestamptz AS since, left(max(f.last_error), 500)::text AS error
  FROM (SELECT k.host, k.disabled_at, k.failing_since, coalesce(k.last_error, '') AS last_error
          FROM holdfast.push_cursors k
         WHERE k.attempts > 0 ORDER BY k.task DESC, k.config_id DESC LIMIT @bound) f
 GROUP BY f.host
 ORDER BY count(*) FILTER (WHERE f.disabled_at IS NULL) DESC, count(*) DESC, f.host LIMIT @max_rows;

-- name: APIKeysPage :many
-- The newest first. Index api_keys_listed.
SELECT * FROM holdfast.api_keys k
 WHERE (k.created_at, k.key_id) < (@before_at::timestamptz, @before_id::text)
   AND (NOT @by_tenant::boolean OR k.tenant = @tenant::text)
 ORDER BY k.created_at DESC, k.key_id DESC LIMIT @max_rows;

-- name: APIKeyPlace :one
-- Where a key is in the list.
SELECT k.created_at
  FROM holdfast.api_keys k
 WHERE k.key_id = @key_id AND (NOT @by_tenant::boolean OR k.tenant = @tenant::text);

-- name: Duties :many
-- The duties that a process has or had, with the time until which it has them. They are few.
SELECT l.name, l.until, (l.until >= now())::boolean AS held,
       coalesce((SELECT w.name FROM holdfast.workers w WHERE w.id = l.holder), '')::text AS holder
  FROM holdfast.leases l ORDER BY l.name LIMIT 1000;

-- name: TableSizes :many
-- The tables with rows, with the size of each on disk and its rows as PostgreSQL estimates them (-1: not known).
SELECT c.relname::text AS name, pg_total_relation_size(c.oid)::bigint AS bytes, c.reltuples::bigint AS estimated_rows
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = 'holdfast' AND c.relkind = 'r' ORDER BY c.relname LIMIT 10000;

-- name: DatabaseBytes :one
SELECT pg_database_size(current_database())::bigint AS bytes;

-- name: TableFigures :many
-- For metrics: the tables with rows, with the size on disk and the dead rows of each. The partitions of a table count
-- with it, and those that are detached with each other. The sizes of partitions are those that vacuum or analyze found
-- last: to ask for the files of thousands of partitions and their indexes locks and opens each of them. By the catalog.
WITH tables AS MATERIALIZED (
    SELECT c.oid, c.relpages, c.reltoastrelid, c.relname ~ '_[0-9]{8}(_[0-9]{4,6})?$' AS dated,
           coalesce(i.inhparent, 0) AS parent
      FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
     WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r'
), heaps AS (
    SELECT t.oid, t.parent, t.relpages FROM tables t WHERE t.dated
     UNION ALL
    SELECT x.oid, t.parent, x.relpages FROM tables t JOIN pg_catalog.pg_class x ON x.oid = t.reltoastrelid WHERE t.dated
), sizes AS (
    SELECT h.parent AS of_table, sum(h.relpages) * current_setting('block_size')::bigint AS bytes, 0 AS dead
      FROM heaps h
     GROUP BY 1
     UNION ALL
    SELECT h.parent, sum(r.relpages) * current_setting('block_size')::bigint, 0
      FROM heaps h
      JOIN pg_catalog.pg_index n ON n.indrelid = h.oid
      JOIN pg_catalog.pg_class r ON r.oid = n.indexrelid
     GROUP BY 1
     UNION ALL
    SELECT CASE WHEN t.dated THEN t.parent ELSE t.oid END,
           sum(CASE WHEN t.dated THEN 0 ELSE pg_total_relation_size(t.oid) END),
           sum(pg_stat_get_dead_tuples(t.oid)) FROM tables t GROUP BY 1
)
SELECT coalesce(c.relname, 'detached')::text AS name, coalesce(sum(s.bytes), 0)::bigint AS bytes,
       coalesce(sum(s.dead), 0)::bigint AS dead
  FROM sizes s LEFT JOIN pg_catalog.pg_class c ON c.oid = s.of_table GROUP BY 1 ORDER BY 1;

-- name: DatabaseFacts :one
SELECT pg_database_size(current_database())::bigint AS bytes, current_setting('server_version')::text AS version,
       (SELECT count(*)
          FROM pg_catalog.pg_stat_activity a
         WHERE a.backend_type = 'client backend')::bigint AS connections,
       current_setting('max_connections')::bigint AS max_connections,
       pg_catalog.pg_postmaster_start_time()::timestamptz AS started_at,
       holdfast.sql_contract_version()::text AS contract;

-- name: OldestTask :many
-- By primary key.
SELECT t.id FROM holdfast.tasks t ORDER BY t.id LIMIT 1;

-- name: RemoteWorkersOf :many
-- The workers of an agent (empty: of all), those that were seen last first. Index remote_workers_seen.
SELECT worker, name, version, sdk, agents, replica, first_seen, last_seen,
       coalesce(connected, false)::boolean AS connected, retired_at, running
  FROM holdfast.v_remote_workers w
 WHERE (@agent::text = '' OR @agent = ANY(w.agents))
   AND (NOT @connected::boolean OR w.last_seen > now() - interval '90 seconds' AND w.connected)
 ORDER BY last_seen DESC, worker LIMIT @most::integer;
