-- Metadata is merged by key, as the official SDKs do: that of statuses into the task's, that of an artifact's chunks into the
-- artifact's.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE FUNCTION holdfast.merged(VARIADIC objects json[]) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('{' || string_agg(to_json(m.key) || ':' || m.value, ',' ORDER BY m.place) || '}')::json
      FROM (SELECT m.key, (array_agg(m.value ORDER BY o.n DESC, m.n DESC))[1] AS value, min(ARRAY[o.n, m.n]) AS place
              FROM unnest(objects) WITH ORDINALITY o(object, n), json_each(CASE json_typeof(o.object) WHEN 'object' THEN o.object END) WITH ORDINALITY m(key, value, n)
             GROUP BY m.key) m
$$;
COMMENT ON FUNCTION holdfast.merged IS 'The members of all objects; of those with one name the last one.';

ALTER TABLE holdfast.tasks ADD COLUMN agent_metadata json;
COMMENT ON COLUMN holdfast.tasks.agent_metadata IS 'The metadata of its statuses, merged. Clients see it in that of the task.';

CREATE OR REPLACE VIEW holdfast.v_tasks AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       holdfast.state_name(t.state) AS state,
       t.state < 5 AS open,
       t.created_at,
       t.status_at,
       CASE WHEN t.state >= 5 THEN t.status_at END AS ended_at,
       CASE WHEN t.state >= 5 THEN t.status_at - t.created_at END AS duration,
       (SELECT e.payload -> 'message' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.seq = t.status_seq AND e.kind = 2) AS status_message,
       (SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.seq = t.status_seq AND e.kind = 2) AS status_text,
       t.turns, t.pending, t.runs, t.attempt,
       t.worker_id AS worker,
       t.cancel_requested, t.cancel_requested_at, t.direct, t.dialect, t.client_id, t.last_seq, t.metadata,
       t.held_at,
       CASE WHEN t.state IN (3, 4) THEN t.resume_until END AS resume_until,
       substr(t.traceparent, 4, 32) AS trace_id,
       t.agent_metadata
  FROM holdfast.tasks t;
COMMENT ON COLUMN holdfast.v_tasks.agent_metadata IS 'Metadata of its statuses, merged by key. Clients see both in the metadata of the task.';

-- As in 00005, but for metadata and extensions.
CREATE OR REPLACE VIEW holdfast.v_artifacts AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       a.artifact_id,
       a.index,
       (SELECT (e.payload -> 'name') #>> '{}' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'name' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS name,
       (SELECT (e.payload -> 'description') #>> '{}' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'description' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS description,
       (SELECT string_agg((p.value -> 'text') #>> '{}', '' ORDER BY e.seq, p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base) AS text,
       (SELECT json_agg(p.value ORDER BY e.seq, p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base) AS parts,
       (SELECT CASE WHEN count(*) > 1 THEN holdfast.merged(VARIADIC array_agg(e.payload -> 'metadata' ORDER BY e.seq))
                    ELSE (array_agg(e.payload -> 'metadata'))[1] END
          FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'metadata' IS NOT NULL) AS metadata,
       (SELECT json_agg(x.uri ORDER BY x.place)
          FROM (SELECT u.uri, min(ARRAY[e.seq, u.n]) AS place
                  FROM holdfast.task_events e, json_array_elements_text(e.payload -> 'extensions') WITH ORDINALITY u(uri, n)
                 WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
                 GROUP BY u.uri) x) AS extensions,
       a.chunks,
       (SELECT sum(octet_length(e.payload::text)) FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base)::bigint AS bytes,
       a.complete,
       a.first_seq, a.last_seq, a.first_at, a.last_at
  FROM holdfast.tasks t
 CROSS JOIN LATERAL (
    SELECT e.artifact_id, e.base,
           row_number() OVER (ORDER BY min(e.seq)) - 1 AS index,
           count(*) FILTER (WHERE e.seq >= e.base) AS chunks,
           bool_or(e.last) FILTER (WHERE e.seq >= e.base) AS complete,
           min(e.seq) AS first_seq, max(e.seq) AS last_seq,
           min(e.created_at) AS first_at, max(e.created_at) AS last_at
      FROM (SELECT x.artifact_id, x.seq, x.last, x.created_at,
                   coalesce(max(x.seq) FILTER (WHERE NOT x.append) OVER (PARTITION BY x.artifact_id), 0) AS base
              FROM holdfast.task_events x
             WHERE x.task = t.id AND x.kind = 3) e
     GROUP BY e.artifact_id, e.base
 ) a;
COMMENT ON COLUMN holdfast.v_artifacts.metadata IS 'Its metadata: that of its chunks, merged by key.';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.9' $$;

-- +goose Down
SET LOCAL lock_timeout = '5s';
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.8' $$;
CREATE OR REPLACE VIEW holdfast.v_artifacts AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       a.artifact_id,
       a.index,
       (SELECT (e.payload -> 'name') #>> '{}' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'name' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS name,
       (SELECT (e.payload -> 'description') #>> '{}' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'description' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS description,
       (SELECT string_agg((p.value -> 'text') #>> '{}', '' ORDER BY e.seq, p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base) AS text,
       (SELECT json_agg(p.value ORDER BY e.seq, p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base) AS parts,
       (SELECT e.payload -> 'metadata' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'metadata' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS metadata,
       (SELECT e.payload -> 'extensions' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'extensions' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS extensions,
       a.chunks,
       (SELECT sum(octet_length(e.payload::text)) FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base)::bigint AS bytes,
       a.complete,
       a.first_seq, a.last_seq, a.first_at, a.last_at
  FROM holdfast.tasks t
 CROSS JOIN LATERAL (
    SELECT e.artifact_id, e.base,
           row_number() OVER (ORDER BY min(e.seq)) - 1 AS index,
           count(*) FILTER (WHERE e.seq >= e.base) AS chunks,
           bool_or(e.last) FILTER (WHERE e.seq >= e.base) AS complete,
           min(e.seq) AS first_seq, max(e.seq) AS last_seq,
           min(e.created_at) AS first_at, max(e.created_at) AS last_at
      FROM (SELECT x.artifact_id, x.seq, x.last, x.created_at,
                   coalesce(max(x.seq) FILTER (WHERE NOT x.append) OVER (PARTITION BY x.artifact_id), 0) AS base
              FROM holdfast.task_events x
             WHERE x.task = t.id AND x.kind = 3) e
     GROUP BY e.artifact_id, e.base
 ) a;
COMMENT ON COLUMN holdfast.v_artifacts.metadata IS 'Its metadata, unchanged.';
-- As in 00019: a view loses a column only with its comments and its grant.
-- +goose StatementBegin
DO $$
DECLARE
    comments text := (SELECT string_agg(format('COMMENT ON COLUMN holdfast.v_tasks.%I IS %L', a.attname, col_description(a.attrelid, a.attnum)), ';')
                        FROM pg_attribute a WHERE a.attrelid = 'holdfast.v_tasks'::regclass AND a.attnum > 0 AND a.attname <> 'agent_metadata');
BEGIN
    DROP VIEW holdfast.v_tasks;
    CREATE VIEW holdfast.v_tasks AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       holdfast.state_name(t.state) AS state,
       t.state < 5 AS open,
       t.created_at,
       t.status_at,
       CASE WHEN t.state >= 5 THEN t.status_at END AS ended_at,
       CASE WHEN t.state >= 5 THEN t.status_at - t.created_at END AS duration,
       (SELECT e.payload -> 'message' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.seq = t.status_seq AND e.kind = 2) AS status_message,
       (SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.seq = t.status_seq AND e.kind = 2) AS status_text,
       t.turns, t.pending, t.runs, t.attempt,
       t.worker_id AS worker,
       t.cancel_requested, t.cancel_requested_at, t.direct, t.dialect, t.client_id, t.last_seq, t.metadata,
       t.held_at,
       CASE WHEN t.state IN (3, 4) THEN t.resume_until END AS resume_until,
       substr(t.traceparent, 4, 32) AS trace_id
  FROM holdfast.tasks t;
    COMMENT ON VIEW holdfast.v_tasks IS 'Every task in its current state.';
    EXECUTE comments;
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
BEGIN
    GRANT SELECT ON holdfast.v_tasks TO holdfast_reader;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN
    NULL; -- as in 00006
END
$$;
-- +goose StatementEnd
ALTER TABLE holdfast.tasks DROP COLUMN agent_metadata;
DROP FUNCTION holdfast.merged;
