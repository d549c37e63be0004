-- What callers may see is found out once for each statement, and for each task and not for each event.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Who asks: tenant, owner, and the tenant again if the caller sees all of it. A setting that was never made is null, or
-- empty after it was: both are nobody. An array is read in a fraction of the time that json takes.
CREATE FUNCTION holdfast.caller() RETURNS text[] STABLE PARALLEL SAFE LANGUAGE sql
RETURN nullif(current_setting('holdfast.caller', true), '')::text[];
COMMENT ON FUNCTION holdfast.caller IS 'For whom the transaction asks: tenant, owner, and the tenant again if all of its tasks are seen. Null: nobody.';

-- Subqueries are evaluated once for each statement. The role comes last: a caller's own rows need no look at it.
ALTER POLICY callers ON holdfast.tasks USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
    OR current_user <> 'holdfast_api'
);
ALTER POLICY callers ON holdfast.idempotency_keys USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR current_user <> 'holdfast_api'
);
ALTER POLICY callers ON holdfast.task_events USING (
    (SELECT current_user <> 'holdfast_api') OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = task)
);

-- By its table each event is looked up the task of, which is what a write or two can bear. Logs are read here: a join,
-- which looks at the task once. It runs as its owner, so it says itself what the policy of tasks does.
CREATE VIEW holdfast.callers_log WITH (security_barrier) AS
SELECT e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload, e.created_at,
       t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.dialect, t.metadata, t.created_at AS task_created_at, t.stream_base, t.last_seq
  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
 WHERE (t.tenant, t.owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR t.tenant = (SELECT (holdfast.caller())[3])
    OR current_user <> 'holdfast_api';
COMMENT ON VIEW holdfast.callers_log IS 'The events of the tasks that the caller sees, with their task. For the server; readers have v_events.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.admit_callers() RETURNS boolean LANGUAGE plpgsql AS $$
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
    GRANT EXECUTE ON FUNCTION holdfast.caller() TO holdfast_api;
    GRANT SELECT ON holdfast.callers_log TO holdfast_api;
    GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.task_queue, holdfast.push_configs, holdfast.push_cursors TO holdfast_api;
    GRANT SELECT, INSERT, DELETE ON holdfast.idempotency_keys TO holdfast_api;
    GRANT EXECUTE ON FUNCTION holdfast.audit(text) TO holdfast_api;
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN false;
END
$$;
-- +goose StatementEnd
SELECT holdfast.admit_callers();

-- +goose Down
SET LOCAL lock_timeout = '5s';
-- +goose StatementBegin
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
    IF to_regprocedure('holdfast.audit(text)') IS NOT NULL THEN
        GRANT EXECUTE ON FUNCTION holdfast.audit(text) TO holdfast_api;
    END IF;
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN false;
END
$$;
-- +goose StatementEnd
DROP VIEW holdfast.callers_log;
ALTER POLICY callers ON holdfast.tasks USING (
    current_user <> 'holdfast_api'
    OR tenant = (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'tenant')
       AND (owner = (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'owner')
            OR (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'tenant_wide') = 'true')
);
ALTER POLICY callers ON holdfast.idempotency_keys USING (
    current_user <> 'holdfast_api'
    OR tenant = (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'tenant')
       AND owner = (SELECT nullif(current_setting('holdfast.caller', true), '')::json ->> 'owner')
);
ALTER POLICY callers ON holdfast.task_events USING (
    current_user <> 'holdfast_api' OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = task)
);
DROP FUNCTION holdfast.caller;
