-- A task knows the task that an operator's retry has made of it, so that a retry by filter does not make another.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.tasks ADD COLUMN retried_as uuid;
COMMENT ON COLUMN holdfast.tasks.retried_as IS 'The task that the newest retry by an operator has made of it; null: none.';

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
       t.agent_metadata,
       t.retried_as
  FROM holdfast.tasks t;
COMMENT ON COLUMN holdfast.v_tasks.retried_as IS 'The task that the newest retry by an operator has made of it; null: none.';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.10' $$;

-- +goose Down
SET LOCAL lock_timeout = '5s';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.9' $$;
-- As in 00019: a view loses a column only with its comments and its grant.
-- +goose StatementBegin
DO $$
DECLARE
    comments text := (SELECT string_agg(format('COMMENT ON COLUMN holdfast.v_tasks.%I IS %L', a.attname, col_description(a.attrelid, a.attnum)), ';')
                        FROM pg_attribute a WHERE a.attrelid = 'holdfast.v_tasks'::regclass AND a.attnum > 0 AND a.attname <> 'retried_as');
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
       substr(t.traceparent, 4, 32) AS trace_id,
       t.agent_metadata
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
ALTER TABLE holdfast.tasks DROP COLUMN retried_as;
