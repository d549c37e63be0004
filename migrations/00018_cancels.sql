-- Notices of cancels: what an agent is told when its task was canceled (decision 0051).
--
-- A row is written in the commit that cancels a task, or that asks its run to end. A worker delivers it after the task has
-- ended as canceled.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE TABLE holdfast.cancel_notices (
    task         uuid        NOT NULL,
    agent        text        NOT NULL,
    reason       text        NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    due_at       timestamptz NOT NULL DEFAULT now(),
    tries        integer     NOT NULL DEFAULT 0,
    worker_id    uuid,
    ended_at     timestamptz,
    delivered    boolean     NOT NULL DEFAULT false,
    error        text        NOT NULL DEFAULT '',
    CONSTRAINT cancel_notices_pkey PRIMARY KEY (task)
) WITH (fillfactor = 70);
-- A worker that looks for work finds only what is not delivered.
CREATE INDEX cancel_notices_due ON holdfast.cancel_notices (agent, due_at) WHERE ended_at IS NULL;

COMMENT ON TABLE holdfast.cancel_notices IS 'What agents are told about canceled tasks that they have worked on. A row ends with its task.';
COMMENT ON COLUMN holdfast.cancel_notices.reason IS 'canceled (by a client or an operator) or expired (it was parked for too long).';
COMMENT ON COLUMN holdfast.cancel_notices.requested_at IS 'When the cancel was requested.';
COMMENT ON COLUMN holdfast.cancel_notices.due_at IS 'When the next try is due. During a try: when the claim on it ends.';
COMMENT ON COLUMN holdfast.cancel_notices.tries IS 'How many tries it has had. A try records its result only if no later one has begun.';
COMMENT ON COLUMN holdfast.cancel_notices.worker_id IS 'The process that made the newest try.';
COMMENT ON COLUMN holdfast.cancel_notices.ended_at IS 'When it was delivered or given up; null: a try is due or under way.';
COMMENT ON COLUMN holdfast.cancel_notices.delivered IS 'With ended_at: the agent has accepted it.';
COMMENT ON COLUMN holdfast.cancel_notices.error IS 'The error of the newest try that failed.';

-- A caller's cancel writes a row for its own task, and reads none.
ALTER TABLE holdfast.cancel_notices ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.cancel_notices USING (holdfast.task_exists(task));

-- As task_exists: looking at one task from within a statement about many.
-- +goose StatementBegin
CREATE FUNCTION holdfast.task_state(of uuid) RETURNS smallint STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT t.state FROM holdfast.tasks t WHERE t.id = of);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.task_state IS 'The state of a task, by primary key; null: there is no such task.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.admit_callers() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    api text := holdfast.api_role();
    settable boolean := current_setting('server_version_num')::integer >= 160000;
    todo text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = api) THEN
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN NOINHERIT', api);
        EXCEPTION
            WHEN insufficient_privilege THEN RETURN false;
            WHEN duplicate_object OR unique_violation THEN NULL; -- another replica created it at this moment
        END;
    END IF;
    IF NOT pg_has_role(current_user, api, CASE WHEN settable THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            EXECUTE format('GRANT %I TO CURRENT_USER', api) || CASE WHEN settable THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- another login owns the role and has to grant it
        END;
    END IF;
    -- A database that was renamed, cloned or restored has grants to the role of its origin.
    FOR todo IN
        SELECT DISTINCT format('%s FROM %I', granted.what, r.rolname)
          FROM (SELECT 'SCHEMA holdfast', nspacl FROM pg_namespace WHERE nspname = 'holdfast'
                UNION ALL
                SELECT 'TABLE ' || oid::regclass, relacl FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace
                UNION ALL
                SELECT 'FUNCTION ' || oid::regprocedure, proacl FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace) granted (what, acl),
               aclexplode(granted.acl) a JOIN pg_roles r ON r.oid = a.grantee
         WHERE r.rolname ~ '^holdfast_api(_|$)' AND r.rolname <> api
    LOOP
        EXECUTE 'REVOKE ALL ON ' || todo;
    END LOOP;
    FOREACH todo IN ARRAY ARRAY[
        'USAGE ON SCHEMA holdfast',
        'SELECT, INSERT, UPDATE ON holdfast.tasks',
        'SELECT, INSERT ON holdfast.task_events',
        'SELECT, INSERT, UPDATE, DELETE ON holdfast.task_queue, holdfast.push_configs, holdfast.push_cursors',
        'SELECT, INSERT, DELETE ON holdfast.idempotency_keys',
        'SELECT, DELETE ON holdfast.task_names',
        'INSERT ON holdfast.cancel_notices',
        'SELECT ON holdfast.callers_log',
        'EXECUTE ON FUNCTION holdfast.caller(), holdfast.api_role(), holdfast.task_exists(uuid), holdfast.audit(text)'
    ] LOOP
        EXECUTE format('GRANT %s TO %I', todo, api);
    END LOOP;
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN false;
END
$$;
-- +goose StatementEnd
SELECT holdfast.admit_callers();

CREATE VIEW holdfast.v_cancels AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       n.reason,
       CASE WHEN n.delivered THEN 'delivered' WHEN n.ended_at IS NOT NULL THEN 'failed' ELSE 'pending' END AS phase,
       n.requested_at,
       n.tries,
       CASE WHEN n.ended_at IS NULL THEN n.due_at END AS due_at,
       n.ended_at,
       nullif(n.error, '') AS error,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = n.worker_id) AS worker_name
  FROM holdfast.cancel_notices n
  JOIN holdfast.tasks t ON t.id = n.task;

COMMENT ON VIEW holdfast.v_cancels IS 'Notices of canceled tasks to the agents that have worked on them and want to know.';
COMMENT ON COLUMN holdfast.v_cancels.reason IS 'canceled (by a client or an operator) or expired (it was parked for too long).';
COMMENT ON COLUMN holdfast.v_cancels.phase IS 'pending (a try is due or under way, or the run has not ended yet), delivered (the agent has accepted it) or failed (the agent refused it, or unreachable_for is over).';
COMMENT ON COLUMN holdfast.v_cancels.requested_at IS 'When the cancel was requested.';
COMMENT ON COLUMN holdfast.v_cancels.tries IS 'How many tries it has had.';
COMMENT ON COLUMN holdfast.v_cancels.due_at IS 'When the next try is due; null once it is delivered or failed.';
COMMENT ON COLUMN holdfast.v_cancels.ended_at IS 'When it was delivered or failed.';
COMMENT ON COLUMN holdfast.v_cancels.error IS 'The error of the newest try that failed.';
COMMENT ON COLUMN holdfast.v_cancels.worker_name IS 'The name of the process that made the newest try.';

COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly or in a wait, a checkpoint, or the metadata of a cancel; clients do not see these).';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.3' $$;

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE (SELECT string_agg(format('COMMENT ON COLUMN holdfast.v_cancels.%I IS %L', a.attname, col_description('holdfast.v_tasks'::regclass, t.attnum)), ';')
               FROM pg_attribute a JOIN pg_attribute t ON t.attrelid = 'holdfast.v_tasks'::regclass AND t.attname = a.attname
              WHERE a.attrelid = 'holdfast.v_cancels'::regclass AND a.attname IN ('task', 'task_id', 'agent', 'tenant', 'owner', 'context_id'));
    GRANT SELECT ON holdfast.v_cancels TO holdfast_reader;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN
    NULL; -- as in 00006
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.2' $$;
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly or in a wait, or a checkpoint; clients do not see these).';
DROP VIEW holdfast.v_cancels;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.admit_callers() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    api text := holdfast.api_role();
    settable boolean := current_setting('server_version_num')::integer >= 160000;
    todo text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = api) THEN
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN NOINHERIT', api);
        EXCEPTION
            WHEN insufficient_privilege THEN RETURN false;
            WHEN duplicate_object OR unique_violation THEN NULL; -- another replica created it at this moment
        END;
    END IF;
    IF NOT pg_has_role(current_user, api, CASE WHEN settable THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            EXECUTE format('GRANT %I TO CURRENT_USER', api) || CASE WHEN settable THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- another login owns the role and has to grant it
        END;
    END IF;
    -- A database that was renamed, cloned or restored has grants to the role of its origin.
    FOR todo IN
        SELECT DISTINCT format('%s FROM %I', granted.what, r.rolname)
          FROM (SELECT 'SCHEMA holdfast', nspacl FROM pg_namespace WHERE nspname = 'holdfast'
                UNION ALL
                SELECT 'TABLE ' || oid::regclass, relacl FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace
                UNION ALL
                SELECT 'FUNCTION ' || oid::regprocedure, proacl FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace) granted (what, acl),
               aclexplode(granted.acl) a JOIN pg_roles r ON r.oid = a.grantee
         WHERE r.rolname ~ '^holdfast_api(_|$)' AND r.rolname <> api
    LOOP
        EXECUTE 'REVOKE ALL ON ' || todo;
    END LOOP;
    FOREACH todo IN ARRAY ARRAY[
        'USAGE ON SCHEMA holdfast',
        'SELECT, INSERT, UPDATE ON holdfast.tasks',
        'SELECT, INSERT ON holdfast.task_events',
        'SELECT, INSERT, UPDATE, DELETE ON holdfast.task_queue, holdfast.push_configs, holdfast.push_cursors',
        'SELECT, INSERT, DELETE ON holdfast.idempotency_keys',
        'SELECT, DELETE ON holdfast.task_names',
        'SELECT ON holdfast.callers_log',
        'EXECUTE ON FUNCTION holdfast.caller(), holdfast.api_role(), holdfast.task_exists(uuid), holdfast.audit(text)'
    ] LOOP
        EXECUTE format('GRANT %s TO %I', todo, api);
    END LOOP;
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN false;
END
$$;
-- +goose StatementEnd
DROP FUNCTION holdfast.task_state;
DROP TABLE holdfast.cancel_notices;
