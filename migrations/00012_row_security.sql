-- Callers see their own: what the predicates of every look-up say, the database says again.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Statements for one caller run as role holdfast_api, with holdfast.caller set until the end of their transaction. For
-- everybody else nothing changes, who may read the tables: the policies are for that role, and name it in words so that
-- they do not need it to exist. What the role may not even touch it was not granted: it never changes an event.
--
-- Settings stand in subqueries, which are evaluated once for each statement. One that was never set is null, or empty
-- after it was: both are nobody.
ALTER TABLE holdfast.tasks ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.tasks USING (
    current_user <> 'holdfast_api'
    OR tenant = (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'tenant')
       AND (owner = (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'owner')
            OR (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'tenant_wide') = 'true')
);

ALTER TABLE holdfast.idempotency_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.idempotency_keys USING (
    current_user <> 'holdfast_api'
    OR tenant = (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'tenant')
       AND owner = (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'owner')
);

-- The rest is its task's, by primary key and under the policy of tasks.
ALTER TABLE holdfast.task_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_events USING (
    current_user <> 'holdfast_api' OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = task)
);
ALTER TABLE holdfast.task_queue ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_queue USING (
    current_user <> 'holdfast_api' OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = task_queue.id)
);
ALTER TABLE holdfast.push_configs ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.push_configs USING (
    current_user <> 'holdfast_api' OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = task)
);
ALTER TABLE holdfast.push_cursors ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.push_cursors USING (
    current_user <> 'holdfast_api' OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = task)
);

-- Roles belong to the whole cluster, and not everybody may create one. Who may can do it later, and call this again.
-- +goose StatementBegin
CREATE FUNCTION holdfast.admit_callers() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_api') THEN
        BEGIN
            CREATE ROLE holdfast_api NOLOGIN NOINHERIT;
        EXCEPTION
            WHEN insufficient_privilege THEN RETURN false;
            WHEN duplicate_object OR unique_violation THEN NULL; -- another database's migration created it in this moment
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'holdfast_api',
                       CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            GRANT holdfast_api TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- somebody else's, who has to grant it
        END;
    END IF;
    GRANT USAGE ON SCHEMA holdfast TO holdfast_api;
    GRANT SELECT, INSERT, UPDATE ON holdfast.tasks TO holdfast_api;
    GRANT SELECT, INSERT ON holdfast.task_events TO holdfast_api;
    GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.task_queue, holdfast.push_configs, holdfast.push_cursors TO holdfast_api;
    GRANT SELECT, INSERT, DELETE ON holdfast.idempotency_keys TO holdfast_api;
    IF to_regprocedure('holdfast.audit(text)') IS NOT NULL THEN -- of the migration behind this one
        GRANT EXECUTE ON FUNCTION holdfast.audit(text) TO holdfast_api;
    END IF;
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN false;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.admit_callers IS 'Makes the role holdfast_api, if it may, and gives it what statements for callers need. It may be called again.';
SELECT holdfast.admit_callers();

-- Where all of a tenant see its tasks, an id that a client chose is looked for among all of them.
CREATE INDEX tasks_named ON holdfast.tasks (client_id, tenant, agent) WHERE client_id IS NOT NULL;

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP INDEX holdfast.tasks_named;
DROP FUNCTION holdfast.admit_callers;
DROP POLICY callers ON holdfast.tasks;
DROP POLICY callers ON holdfast.idempotency_keys;
DROP POLICY callers ON holdfast.task_events;
DROP POLICY callers ON holdfast.task_queue;
DROP POLICY callers ON holdfast.push_configs;
DROP POLICY callers ON holdfast.push_cursors;
ALTER TABLE holdfast.tasks DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.idempotency_keys DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_events DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_queue DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.push_configs DISABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.push_cursors DISABLE ROW LEVEL SECURITY;
-- The role stays: it belongs to the cluster, where other databases may use it. Here it may do nothing any more.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_api') THEN
        REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM holdfast_api;
        REVOKE ALL ON SCHEMA holdfast FROM holdfast_api;
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END
$$;
-- +goose StatementEnd
