-- State: a value that an agent stores for a task or for a context.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- A removed value leaves its row, with the version: a writer that has read the value before notices that it is another.
CREATE TABLE holdfast.task_states (
    task       uuid        NOT NULL,
    version    bigint      NOT NULL,
    value      json,
    request_id uuid        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT task_states_pkey PRIMARY KEY (task),
    CONSTRAINT task_states_version CHECK (version > 0)
) WITH (fillfactor = 70);

CREATE TABLE holdfast.context_states (
    tenant     text        NOT NULL,
    owner      text        NOT NULL,
    agent      text        NOT NULL,
    context_id text        NOT NULL,
    task       uuid        NOT NULL,
    version    bigint      NOT NULL,
    value      json,
    request_id uuid        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT context_states_pkey PRIMARY KEY (tenant, owner, agent, context_id),
    CONSTRAINT context_states_version CHECK (version > 0)
) WITH (fillfactor = 70);
-- For retention, which goes by the age of tasks.
CREATE INDEX context_states_task ON holdfast.context_states (task);

COMMENT ON TABLE holdfast.task_states IS 'The value that an agent has stored for a task. It ends with the task.';
COMMENT ON COLUMN holdfast.task_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.task_states.value IS 'Null: the agent has removed it.';
COMMENT ON COLUMN holdfast.task_states.request_id IS 'The write that stored it, which may be repeated after a lost connection.';
COMMENT ON TABLE holdfast.context_states IS 'The value that an agent has stored for a context of an owner. It ends with the last task of the context.';
COMMENT ON COLUMN holdfast.context_states.task IS 'The task whose run wrote it last.';
COMMENT ON COLUMN holdfast.context_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.context_states.value IS 'Null: the agent has removed it.';
COMMENT ON COLUMN holdfast.context_states.request_id IS 'The write that stored it, which may be repeated after a lost connection.';

-- Only runs read and write states, so the role for callers has no grant on them. The policies are for a role that gets one.
ALTER TABLE holdfast.task_states ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_states USING (holdfast.task_exists(task));
ALTER TABLE holdfast.context_states ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.context_states USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
);

-- Looking at the tasks of one context from within a statement about many, as task_exists does.
-- +goose StatementBegin
CREATE FUNCTION holdfast.context_has_other(of_tenant text, of_owner text, of_agent text, of_context text, besides uuid[])
RETURNS boolean STABLE STRICT COST 10000 LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t
                    WHERE t.context_id = of_context AND t.tenant = of_tenant AND t.owner = of_owner AND t.agent = of_agent
                      AND t.id <> ALL(besides));
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION holdfast.context_stays(of_tenant text, of_owner text, of_agent text, of_context text, before uuid)
RETURNS boolean STABLE STRICT COST 10000 LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t
                    WHERE t.context_id = of_context AND t.tenant = of_tenant AND t.owner = of_owner AND t.agent = of_agent
                      AND (t.state < 5 OR t.kept OR t.id >= before));
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.context_has_other IS 'Whether a context of an owner has a task that is not among these.';
COMMENT ON FUNCTION holdfast.context_stays IS 'Whether a context of an owner has a task that is open, kept, or not older than an id.';

CREATE VIEW holdfast.v_states AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       'task'::text AS scope, s.version, s.value, octet_length(s.value::text) AS bytes, s.updated_at
  FROM holdfast.task_states s JOIN holdfast.tasks t ON t.id = s.task
 WHERE s.value IS NOT NULL
 UNION ALL
SELECT s.task,
       coalesce((SELECT t.client_id FROM holdfast.tasks t WHERE t.id = s.task), s.task::text) AS task_id,
       s.agent, s.tenant, s.owner, s.context_id,
       'context'::text AS scope, s.version, s.value, octet_length(s.value::text) AS bytes, s.updated_at
  FROM holdfast.context_states s
 WHERE s.value IS NOT NULL;

COMMENT ON VIEW holdfast.v_states IS 'The values that agents have stored for a task or for a context.';
COMMENT ON COLUMN holdfast.v_states.scope IS 'task: it belongs to the task. context: it belongs to the context of this owner and agent, and task is the one that wrote it last.';
COMMENT ON COLUMN holdfast.v_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.v_states.value IS 'The value, as the agent wrote it.';
COMMENT ON COLUMN holdfast.v_states.bytes IS 'Size of the value.';
COMMENT ON COLUMN holdfast.v_states.updated_at IS 'When it was last written.';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.2' $$;

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE (SELECT string_agg(format('COMMENT ON COLUMN holdfast.v_states.%I IS %L', a.attname, col_description('holdfast.v_tasks'::regclass, t.attnum)), ';')
               FROM pg_attribute a JOIN pg_attribute t ON t.attrelid = 'holdfast.v_tasks'::regclass AND t.attname = a.attname
              WHERE a.attrelid = 'holdfast.v_states'::regclass AND a.attname IN ('task', 'task_id', 'agent', 'tenant', 'owner', 'context_id'));
    GRANT SELECT ON holdfast.v_states TO holdfast_reader;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN
    NULL; -- as in 00006
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.1' $$;
DROP VIEW holdfast.v_states;
DROP FUNCTION holdfast.context_stays;
DROP FUNCTION holdfast.context_has_other;
DROP TABLE holdfast.context_states;
DROP TABLE holdfast.task_states;
