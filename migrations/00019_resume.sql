-- Resume URLs: a request from outside begins the next turn of a task that asks for input (decision 0052).
--
-- A resume is a run note with attempt 0. Its content is sealed. One that comes before the run has parked is kept, and the
-- statement that parks the task finds it.

-- +goose Up
SET LOCAL lock_timeout = '5s';

COMMENT ON COLUMN holdfast.secrets.name IS
    'page_token: signs the page tokens of lists; a new value invalidates the tokens in use. push: seals the secrets of webhooks, and what comes by resume URLs, and signs these URLs, if the environment has no key.';

ALTER TABLE holdfast.tasks
    ADD COLUMN resume_until timestamptz,
    ADD COLUMN resumed_seq  bigint;
COMMENT ON COLUMN holdfast.tasks.resume_until IS 'Parked: until when the resume URL of its turn is valid; null: its agent has not asked for that.';
COMMENT ON COLUMN holdfast.tasks.resumed_seq IS 'The run note of a resume that came before the run has parked; null: none came.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer or a resume URL.';
COMMENT ON COLUMN holdfast.task_queue.input_seq IS 'The run note with the wait that this turn follows, or with the resume that began it; null for a turn that only a message began.';

-- The newest message is before the events of the newest run.
-- +goose StatementBegin
CREATE FUNCTION holdfast.message_last(of uuid) RETURNS bigint STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.seq FROM holdfast.task_events e WHERE e.task = of AND e.kind = 1 ORDER BY e.seq DESC LIMIT 1);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.message_last IS 'The seq of the newest message of a task.';

-- Between the caller's snapshot and its lock, messages and a resume may have been committed. A volatile function has a
-- snapshot of its own, and sees them.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.message_after(of uuid, at bigint) RETURNS bigint VOLATILE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.seq FROM holdfast.task_events e WHERE e.task = of AND e.seq > at AND e.kind = 1 ORDER BY e.seq LIMIT 1);
END
$$;
-- +goose StatementEnd

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
       CASE WHEN t.state IN (3, 4) THEN t.resume_until END AS resume_until
  FROM holdfast.tasks t;
COMMENT ON COLUMN holdfast.v_tasks.resume_until IS 'Parked: until when the resume URL of its turn is valid; null: its agent has not asked for that.';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.4' $$;

COMMENT ON COLUMN holdfast.v_tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer or a resume URL.';
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly or in a wait, a checkpoint, the metadata of a cancel, or a resume; clients do not see these).';

-- +goose Down
SET LOCAL lock_timeout = '5s';
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly or in a wait, a checkpoint, or the metadata of a cancel; clients do not see these).';
COMMENT ON COLUMN holdfast.v_tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer.';
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.message_after(of uuid, at bigint) RETURNS bigint STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    -- A message that was committed while the caller waited for the task's lock is invisible to its snapshot. Nothing but
    -- messages can have come in between, so the oldest of them follows what is visible.
    RETURN coalesce(
        (SELECT e.seq FROM holdfast.task_events e WHERE e.task = of AND e.seq > at AND e.kind = 1 ORDER BY e.seq LIMIT 1),
        (SELECT max(e.seq) + 1 FROM holdfast.task_events e WHERE e.task = of));
END
$$;
-- +goose StatementEnd
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.3' $$;
-- A view loses a column only with its comments and its grant.
-- +goose StatementBegin
DO $$
DECLARE
    comments text := (SELECT string_agg(format('COMMENT ON COLUMN holdfast.v_tasks.%I IS %L', a.attname, col_description(a.attrelid, a.attnum)), ';')
                        FROM pg_attribute a WHERE a.attrelid = 'holdfast.v_tasks'::regclass AND a.attnum > 0 AND a.attname <> 'resume_until');
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
       t.held_at
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
DROP FUNCTION holdfast.message_last;
COMMENT ON COLUMN holdfast.task_queue.input_seq IS 'The run note with the wait that this turn follows; null for a turn that follows none.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer.';
ALTER TABLE holdfast.tasks DROP COLUMN resume_until, DROP COLUMN resumed_seq;
COMMENT ON COLUMN holdfast.secrets.name IS
    'page_token: signs the page tokens of lists; a new value invalidates the tokens in use. push: seals the secrets of webhooks if the environment has no key.';
