-- A role for callers' statements in each database: roles belong to the whole cluster, and a role that several databases
-- share lets the server of one read the tables of another.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Names of roles have at most 63 bytes.
CREATE FUNCTION holdfast.api_role() RETURNS text STABLE PARALLEL SAFE LANGUAGE sql
RETURN 'holdfast_api_' || CASE WHEN octet_length(current_database()) <= 50 THEN current_database()::text ELSE md5(current_database()) END;
COMMENT ON FUNCTION holdfast.api_role IS 'The name of the role for callers'' statements in this database.';

-- Policies do not apply to the owner of the tables, which is the server. All other roles see a caller's rows, or none.
ALTER POLICY callers ON holdfast.tasks USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
);
ALTER POLICY callers ON holdfast.task_names USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
);
ALTER POLICY callers ON holdfast.idempotency_keys USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
);
ALTER POLICY callers ON holdfast.task_events USING (holdfast.task_exists(task));
ALTER POLICY callers ON holdfast.task_queue USING (holdfast.task_exists(id));
ALTER POLICY callers ON holdfast.push_configs USING (holdfast.task_exists(task));
ALTER POLICY callers ON holdfast.push_cursors USING (holdfast.task_exists(task));

-- The view states the policy of tasks itself, and that it does not apply to the owner.
CREATE OR REPLACE VIEW holdfast.callers_log WITH (security_barrier) AS
SELECT t.id, e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload, e.created_at,
       t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.dialect, t.metadata, t.created_at AS task_created_at, t.stream_base, t.last_seq
  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
 WHERE (t.tenant, t.owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR t.tenant = (SELECT (holdfast.caller())[3])
    OR (SELECT pg_has_role(current_user, c.relowner, 'USAGE') FROM pg_catalog.pg_class c WHERE c.oid = 'holdfast.tasks'::regclass);

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
COMMENT ON FUNCTION holdfast.admit_callers IS 'Creates the role of this database for callers'' statements, if the login may, and grants it what they need. It may be called again.';
SELECT holdfast.admit_callers();

-- +goose Down
SET LOCAL lock_timeout = '5s';
-- The role stays without grants; 00006 made the one that follows.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = holdfast.api_role()) THEN
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM %I', holdfast.api_role());
        EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM %I', holdfast.api_role());
        EXECUTE format('REVOKE ALL ON SCHEMA holdfast FROM %I', holdfast.api_role());
    END IF;
END
$$;
CREATE OR REPLACE FUNCTION holdfast.admit_callers() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_api') THEN
        BEGIN
            CREATE ROLE holdfast_api NOLOGIN NOINHERIT;
        EXCEPTION
            WHEN insufficient_privilege THEN RETURN false;
            WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'holdfast_api',
                       CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
        BEGIN
            GRANT holdfast_api TO CURRENT_USER;
        EXCEPTION WHEN insufficient_privilege THEN
            NULL;
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
CREATE OR REPLACE VIEW holdfast.callers_log WITH (security_barrier) AS
SELECT t.id, e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload, e.created_at,
       t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.dialect, t.metadata, t.created_at AS task_created_at, t.stream_base, t.last_seq
  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
 WHERE (t.tenant, t.owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR t.tenant = (SELECT (holdfast.caller())[3])
    OR current_user <> 'holdfast_api';
ALTER POLICY callers ON holdfast.tasks USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
    OR current_user <> 'holdfast_api'
);
ALTER POLICY callers ON holdfast.task_names USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
    OR current_user <> 'holdfast_api'
);
ALTER POLICY callers ON holdfast.idempotency_keys USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR current_user <> 'holdfast_api'
);
ALTER POLICY callers ON holdfast.task_events USING ((SELECT current_user <> 'holdfast_api') OR holdfast.task_exists(task));
ALTER POLICY callers ON holdfast.task_queue USING (current_user <> 'holdfast_api' OR holdfast.task_exists(id));
ALTER POLICY callers ON holdfast.push_configs USING (current_user <> 'holdfast_api' OR holdfast.task_exists(task));
ALTER POLICY callers ON holdfast.push_cursors USING (current_user <> 'holdfast_api' OR holdfast.task_exists(task));
SELECT holdfast.admit_callers();
DROP FUNCTION holdfast.api_role;
