-- Isolation: what callers may see, stated a second time by row-level security, and the roles that read.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Statements for one caller run as role holdfast_api, with holdfast.caller set until the end of their transaction. For all
-- other roles with grants on the tables nothing changes: the policies apply to that role alone, and name it by a string so
-- that it need not exist. The role has no other grants: it never changes an event.

-- A setting that was never made is null, or empty after it was: both mean no caller, and every row is hidden.
CREATE FUNCTION holdfast.caller() RETURNS text[] STABLE PARALLEL SAFE LANGUAGE sql
RETURN nullif(current_setting('holdfast.caller', true), '')::text[];
COMMENT ON FUNCTION holdfast.caller IS 'The caller of the transaction: tenant, owner, and the tenant again if it sees all of the tenant''s tasks. Null: no caller.';

-- Subqueries are evaluated once for each statement. The role comes last: a caller's own rows need no look at it.
ALTER TABLE holdfast.tasks ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.tasks USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
    OR current_user <> 'holdfast_api'
);
ALTER TABLE holdfast.task_names ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_names USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
    OR current_user <> 'holdfast_api'
);
ALTER TABLE holdfast.idempotency_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.idempotency_keys USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR current_user <> 'holdfast_api'
);

-- The rest belongs to its task, found by primary key and under the policy of tasks.
ALTER TABLE holdfast.task_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_events USING (
    (SELECT current_user <> 'holdfast_api') OR holdfast.task_exists(task)
);
ALTER TABLE holdfast.task_queue ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_queue USING (
    current_user <> 'holdfast_api' OR holdfast.task_exists(id)
);
ALTER TABLE holdfast.push_configs ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.push_configs USING (
    current_user <> 'holdfast_api' OR holdfast.task_exists(task)
);
ALTER TABLE holdfast.push_cursors ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.push_cursors USING (
    current_user <> 'holdfast_api' OR holdfast.task_exists(task)
);

-- Through its table, each event would look up its task, which only writes can bear. Callers read logs here: a join, which
-- looks at the task once. The view runs as its owner, so it states the policy of tasks itself.
CREATE VIEW holdfast.callers_log WITH (security_barrier) AS
SELECT t.id, e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload, e.created_at,
       t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.dialect, t.metadata, t.created_at AS task_created_at, t.stream_base, t.last_seq
  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
 WHERE (t.tenant, t.owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR t.tenant = (SELECT (holdfast.caller())[3])
    OR current_user <> 'holdfast_api';
COMMENT ON VIEW holdfast.callers_log IS 'The events of the tasks that the caller sees, with their task. For the server; readers have v_events.';

-- Roles belong to the whole cluster, and not every login may create one. A login that may can do it later and call this again.
-- +goose StatementBegin
CREATE FUNCTION holdfast.admit_callers() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_api') THEN
        BEGIN
            CREATE ROLE holdfast_api NOLOGIN NOINHERIT;
        EXCEPTION
            WHEN insufficient_privilege THEN RETURN false;
            WHEN duplicate_object OR unique_violation THEN NULL; -- another database's migration created it at this moment
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'holdfast_api',
                       CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            GRANT holdfast_api TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- another login owns the role and has to grant it
        END;
    END IF;
    GRANT USAGE ON SCHEMA holdfast TO holdfast_api;
    GRANT SELECT, INSERT, UPDATE ON holdfast.tasks TO holdfast_api;
    GRANT SELECT, INSERT ON holdfast.task_events TO holdfast_api;
    GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.task_queue, holdfast.push_configs, holdfast.push_cursors TO holdfast_api;
    GRANT SELECT, INSERT, DELETE ON holdfast.idempotency_keys TO holdfast_api;
    GRANT SELECT, DELETE ON holdfast.task_names TO holdfast_api;
    GRANT SELECT ON holdfast.callers_log TO holdfast_api;
    GRANT EXECUTE ON FUNCTION holdfast.caller(), holdfast.task_exists(uuid) TO holdfast_api;
    GRANT EXECUTE ON FUNCTION holdfast.audit(text) TO holdfast_api;
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN false;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.admit_callers IS 'Creates the role holdfast_api, if the login may, and grants it what statements for callers need. It may be called again.';
SELECT holdfast.admit_callers();

-- The role that reads the views and nothing else. Without the right to create it the views are there all the same, and
-- docs/sql.md says what to do.
-- +goose StatementBegin
DO $$
DECLARE
    v text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_reader') THEN
        BEGIN
            CREATE ROLE holdfast_reader NOLOGIN;
        EXCEPTION
            WHEN insufficient_privilege THEN RETURN;
            WHEN duplicate_object OR unique_violation THEN NULL; -- another database's migration created it at this moment
        END;
    END IF;
    GRANT USAGE ON SCHEMA holdfast TO holdfast_reader;
    FOR v IN SELECT viewname FROM pg_views WHERE schemaname = 'holdfast' AND viewname LIKE 'v\_%' LOOP
        EXECUTE format('GRANT SELECT ON holdfast.%I TO holdfast_reader', v);
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    NULL; -- another login owns the schema and has to grant its use
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
-- The roles stay: they belong to the cluster, where other databases may use them. Here they lose their grants.
-- +goose StatementBegin
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['holdfast_api', 'holdfast_reader'] LOOP
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = r) THEN
            EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM %I', r);
            EXECUTE format('REVOKE ALL ON SCHEMA holdfast FROM %I', r);
        END IF;
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END
$$;
-- +goose StatementEnd
DROP FUNCTION holdfast.admit_callers;
DROP VIEW holdfast.callers_log;
DROP POLICY callers ON holdfast.tasks;
DROP POLICY callers ON holdfast.task_names;
DROP POLICY callers ON holdfast.idempotency_keys;
DROP POLICY callers ON holdfast.task_events;
DROP POLICY callers ON holdfast.task_queue;
DROP POLICY callers ON holdfast.push_configs;
DROP POLICY callers ON holdfast.push_cursors;
ALTER TABLE holdfast.tasks DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_names DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.idempotency_keys DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_events DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_queue DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.push_configs DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.push_cursors DISABLE ROW LEVEL SECURITY;
DROP FUNCTION holdfast.caller;
