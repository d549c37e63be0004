-- Isolation: what callers may see, stated a second time by row-level security, and roles of servers that own nothing.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Statements for one caller run as a role of their own, with holdfast.caller set until the end of their transaction
-- (decision 0030). Roles belong to the whole cluster, so each database has another one: a role that several databases
-- share lets the server of one read the tables of another. The role has no other grants: it never
-- changes an event.

-- Names of roles have at most 63 bytes.
CREATE FUNCTION holdfast.api_role() RETURNS text
STABLE PARALLEL SAFE LANGUAGE sql
RETURN 'holdfast_api_' || CASE
    WHEN octet_length(current_database()) <= 50 THEN current_database()::text
    ELSE md5(current_database())
END;
COMMENT ON FUNCTION holdfast.api_role IS 'The name of the role for callers'' statements in this database.';

-- A setting that was never made is null, or empty after it was: both mean no caller, and every row is hidden.
CREATE FUNCTION holdfast.caller() RETURNS text[]
STABLE PARALLEL SAFE LANGUAGE sql
RETURN nullif(current_setting('holdfast.caller', true), '')::text[];
COMMENT ON FUNCTION holdfast.caller IS
    'The caller of the transaction: tenant, owner, and the tenant again if it sees all of the tenant''s tasks. Null: '
    'no caller.';

-- Policies do not apply to the owner of the tables, which may be the server. All other roles see a caller's rows, or
-- none. Subqueries are evaluated once for each statement.
ALTER TABLE holdfast.tasks ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.tasks USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
);
ALTER TABLE holdfast.task_names ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_names USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
);
ALTER TABLE holdfast.idempotency_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.idempotency_keys USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
);

-- The rest belongs to its task, found by primary key and under the policy of tasks.
ALTER TABLE holdfast.task_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_events USING (holdfast.task_exists(task));
ALTER TABLE holdfast.task_queue ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_queue USING (holdfast.task_exists(id));
ALTER TABLE holdfast.push_configs ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.push_configs USING (holdfast.task_exists(task));
ALTER TABLE holdfast.push_cursors ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.push_cursors USING (holdfast.task_exists(task));
-- A caller's cancel writes a row for its own task, and reads none.
ALTER TABLE holdfast.cancel_notices ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.cancel_notices USING (holdfast.task_exists(task));

-- Only runs and duties read and write these, so the role has no grant on them. The policies are for a role that gets
-- one.
ALTER TABLE holdfast.task_states ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_states USING (holdfast.task_exists(task));
ALTER TABLE holdfast.context_states ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.context_states USING (
    (tenant, owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR tenant = (SELECT (holdfast.caller())[3])
);
ALTER TABLE holdfast.task_calls ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_calls USING (holdfast.task_exists(parent));
ALTER TABLE holdfast.task_settled ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_settled USING (holdfast.task_exists(task));

-- Through its table, each event would look up its task, which only writes can bear. Callers read logs here: a join,
-- which looks at the task once. The view runs as its owner, so it states the policy of tasks itself, and for whom it
-- does not apply: the owner and the roles of servers.
CREATE VIEW holdfast.callers_log WITH (security_barrier) AS
SELECT t.id,
       e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload, e.created_at,
       t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.dialect, t.metadata,
       t.created_at AS task_created_at,
       t.stream_base, t.last_seq
  FROM holdfast.tasks t
  JOIN holdfast.task_events e ON e.task = t.id
 WHERE (t.tenant, t.owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR t.tenant = (SELECT (holdfast.caller())[3])
    OR (SELECT pg_has_role(current_user, c.relowner, 'USAGE')
            OR EXISTS (SELECT FROM pg_catalog.pg_policy p CROSS JOIN unnest(p.polroles) r
                        WHERE p.polrelid = c.oid AND p.polname = 'servers' AND pg_has_role(current_user, r, 'USAGE'))
          FROM pg_catalog.pg_class c
         WHERE c.oid = 'holdfast.tasks'::regclass);
COMMENT ON VIEW holdfast.callers_log IS
    'The events of the tasks that the caller sees, with their task. For the server; readers have v_events.';

-- Not every login may create a role. A login that may can do it later and call this again.
-- +goose StatementBegin
CREATE FUNCTION holdfast.admit_callers() RETURNS boolean
LANGUAGE plpgsql AS $$
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
            EXECUTE format('GRANT %I TO CURRENT_USER', api)
                || CASE WHEN settable THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- another login owns the role and has to grant it
        END;
    END IF;
    -- A database that was renamed, cloned or restored has grants to the role of its origin.
    FOR todo IN
        SELECT DISTINCT format('%s FROM %I', granted.what, r.rolname)
          FROM (SELECT 'SCHEMA holdfast', nspacl
                  FROM pg_namespace WHERE nspname = 'holdfast'
                 UNION ALL
                SELECT 'TABLE ' || oid::regclass, relacl
                  FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace
                 UNION ALL
                SELECT 'FUNCTION ' || oid::regprocedure, proacl
                  FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace) granted (what, acl),
               aclexplode(granted.acl) a
          JOIN pg_roles r ON r.oid = a.grantee
         WHERE r.rolname ~ '^holdfast_api_' AND r.rolname <> api
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
COMMENT ON FUNCTION holdfast.admit_callers IS
    'Creates the role of this database for callers'' statements, if the login may, and grants it what they need. It '
    'may be called again.';
SELECT holdfast.admit_callers();

-- Servers whose role owns nothing (decision 0091): the owner migrates and admits their role. The role reads and writes
-- rows, and asks the owner's functions for partitions, the only tables that come and go while servers run.

-- The policy servers of each table names the admitted roles, so it is also the list of them.
CREATE FUNCTION holdfast.server_roles() RETURNS SETOF name
STABLE LANGUAGE sql AS $$
    SELECT r.rolname
      FROM pg_catalog.pg_policy p
      JOIN pg_catalog.pg_roles r ON r.oid = ANY (p.polroles)
     WHERE p.polrelid = 'holdfast.tasks'::regclass AND p.polname = 'servers'
     ORDER BY 1
$$;
COMMENT ON FUNCTION holdfast.server_roles IS 'The roles of servers that the owner has admitted.';

CREATE FUNCTION holdfast.partition_of(child text) RETURNS text
IMMUTABLE STRICT LANGUAGE sql
RETURN CASE substring(child FROM '^([a-z]+)_\d{8}(?:_\d{4,6})?$')
    WHEN 'tasks' THEN 'tasks_dated'
    WHEN 'events' THEN 'events_log'
    WHEN 'artifacts' THEN 'events_artifacts'
    WHEN 'keys' THEN 'idempotency_keys'
    WHEN 'attempts' THEN 'push_attempts'
    WHEN 'audit' THEN 'audit_log'
END;
COMMENT ON FUNCTION holdfast.partition_of IS
    'The table that a partition of this name belongs to; null if it is not the name of a partition.';

-- These functions run as the owner, for the roles that it admitted. They touch tables with names of partitions only.

-- +goose StatementBegin
CREATE FUNCTION holdfast.partition_add(child text, lower_bound text, upper_bound text) RETURNS void
VOLATILE STRICT SECURITY DEFINER LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parent text := holdfast.partition_of(child);
    server name;
BEGIN
    IF parent IS NULL THEN
        RAISE EXCEPTION '% is not the name of a partition', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Build a separate table and attach it: CREATE TABLE … PARTITION OF would lock out all readers and writers.
    EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.%I INCLUDING ALL)', child, CASE parent
        WHEN 'tasks_dated' THEN 'tasks_kept'
        WHEN 'events_log' THEN 'events_kept'
        WHEN 'events_artifacts' THEN 'events_kept'
        ELSE parent
    END);
    IF parent = 'audit_log' THEN -- the triggers of the partitioned table do not guard it
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.%I
            FOR EACH STATEMENT EXECUTE FUNCTION holdfast.audit_refuse()', child);
        EXECUTE format('ALTER TABLE holdfast.%I ENABLE ALWAYS TRIGGER append_only', child);
    END IF;
    FOR server IN SELECT holdfast.server_roles() LOOP
        EXECUTE format('GRANT SELECT ON holdfast.%I TO %I', child, server);
    END LOOP;
    EXECUTE format('ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)',
        parent, child, lower_bound, upper_bound);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.partition_add IS 'Creates a partition. For servers whose role owns nothing.';

-- A function cannot detach CONCURRENTLY, so this waits for all statements on the table and they wait for it. It gives
-- up before a writer that waits does.
-- +goose StatementBegin
CREATE FUNCTION holdfast.partition_detach(child text) RETURNS void
VOLATILE STRICT SECURITY DEFINER LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '50ms' AS $$
DECLARE
    parent text := holdfast.partition_of(child);
    pending boolean;
    upper_bound text;
BEGIN
    SELECT i.inhdetachpending, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''([^'']*)''\)')
      INTO pending, upper_bound
      FROM pg_inherits i
      JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhrelid = to_regclass(format('holdfast.%I', child)) AND i.inhparent = to_regclass('holdfast.' || parent);
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not a partition', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- A thief of a server's password cannot remove the records of what he does now.
    IF parent = 'audit_log' AND upper_bound::timestamptz > now() THEN
        RAISE EXCEPTION 'the audit log is append-only: % is not over', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I', parent, child)
        || CASE WHEN pending THEN ' FINALIZE' ELSE '' END;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.partition_detach IS 'Detaches a partition. For servers whose role owns nothing.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.partition_drop(child text) RETURNS void
VOLATILE STRICT SECURITY DEFINER LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF holdfast.partition_of(child) IS NULL
       OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = to_regclass(format('holdfast.%I', child))) THEN
        RAISE EXCEPTION '% is not a detached partition', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS holdfast.%I', child);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.partition_drop IS 'Drops a detached partition. For servers whose role owns nothing.';

-- The owner calls this with a new role, and without one after each migration, for new tables.
-- +goose StatementBegin
CREATE FUNCTION holdfast.admit_servers(newcomer name DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    api text := holdfast.api_role();
    settable boolean := current_setting('server_version_num')::integer >= 160000;
    server name;
    t record;
BEGIN
    FOR server IN SELECT holdfast.server_roles() UNION SELECT newcomer WHERE newcomer IS NOT NULL LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA holdfast TO %I', server);
        FOR t IN
            SELECT c.oid, c.relname, c.relkind, c.relrowsecurity
              FROM pg_class c
             WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
             ORDER BY c.relname
        LOOP
            EXECUTE format('GRANT %s ON holdfast.%I TO %I', CASE
                WHEN t.relkind = 'S' THEN 'USAGE'
                -- audit() writes the audit log. Rows are written through the partitioned tables.
                WHEN t.relkind = 'v' OR t.relname IN ('schema_steps', 'audit_log')
                  OR holdfast.partition_of(t.relname) IS NOT NULL THEN 'SELECT'
                WHEN t.relname = 'audit_chains' THEN 'SELECT, UPDATE'
                ELSE 'SELECT, INSERT, UPDATE, DELETE'
            END, t.relname, server);
            IF NOT t.relrowsecurity THEN
                CONTINUE;
            ELSIF NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = t.oid AND p.polname = 'servers') THEN
                EXECUTE format('CREATE POLICY servers ON holdfast.%I TO %I USING (true)', t.relname, server);
            ELSIF NOT EXISTS (SELECT FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles)
                               WHERE p.polrelid = t.oid AND p.polname = 'servers' AND r.rolname = server) THEN
                EXECUTE format('ALTER POLICY servers ON holdfast.%I TO %s, %I', t.relname,
                    (SELECT string_agg(quote_ident(r.rolname), ', ')
                       FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles)
                      WHERE p.polrelid = t.oid AND p.polname = 'servers'), server);
            END IF;
        END LOOP;
        EXECUTE format('GRANT EXECUTE ON FUNCTION holdfast.audit(text), holdfast.partition_add(text, text, text),
            holdfast.partition_detach(text), holdfast.partition_drop(text) TO %I', server);
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = api)
           AND NOT pg_has_role(server, api, CASE WHEN settable THEN 'SET' ELSE 'MEMBER' END) THEN
            EXECUTE format('GRANT %I TO %I', api, server)
                || CASE WHEN settable THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.admit_servers IS
    'Grants the roles of servers what they need, and admits one more. It may be called again.';
REVOKE ALL ON FUNCTION
    holdfast.partition_add,
    holdfast.partition_detach,
    holdfast.partition_drop,
    holdfast.admit_servers
    FROM PUBLIC;
