-- Servers whose role owns nothing: the owner migrates and admits their role. The role reads and writes rows, and asks the
-- owner's functions for partitions, the only tables that come and go while servers run.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- The policy servers of each table names the admitted roles, so it is also the list of them. As before, the policy callers
-- does not apply to the owner. This view states both itself.
CREATE OR REPLACE VIEW holdfast.callers_log WITH (security_barrier) AS
SELECT t.id, e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload, e.created_at,
       t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.dialect, t.metadata, t.created_at AS task_created_at, t.stream_base, t.last_seq
  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
 WHERE (t.tenant, t.owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR t.tenant = (SELECT (holdfast.caller())[3])
    OR (SELECT pg_has_role(current_user, c.relowner, 'USAGE')
            OR EXISTS (SELECT FROM pg_catalog.pg_policy p CROSS JOIN unnest(p.polroles) r
                        WHERE p.polrelid = c.oid AND p.polname = 'servers' AND pg_has_role(current_user, r, 'USAGE'))
          FROM pg_catalog.pg_class c WHERE c.oid = 'holdfast.tasks'::regclass);

CREATE FUNCTION holdfast.server_roles() RETURNS SETOF name STABLE LANGUAGE sql AS $$
    SELECT r.rolname FROM pg_catalog.pg_policy p JOIN pg_catalog.pg_roles r ON r.oid = ANY (p.polroles)
     WHERE p.polrelid = 'holdfast.tasks'::regclass AND p.polname = 'servers' ORDER BY 1
$$;
COMMENT ON FUNCTION holdfast.server_roles IS 'The roles of servers that the owner has admitted.';

CREATE FUNCTION holdfast.partition_of(child text) RETURNS text IMMUTABLE STRICT LANGUAGE sql
RETURN CASE substring(child FROM '^([a-z]+)_\d{8}(?:_\d{4,6})?$')
    WHEN 'tasks' THEN 'tasks_dated' WHEN 'events' THEN 'events_log' WHEN 'artifacts' THEN 'events_artifacts'
    WHEN 'keys' THEN 'idempotency_keys' WHEN 'attempts' THEN 'push_attempts' WHEN 'audit' THEN 'audit_log' END;
COMMENT ON FUNCTION holdfast.partition_of IS 'The table that a partition of this name belongs to; null if it is not the name of a partition.';

-- These functions run as the owner, for the roles that it admitted. They touch tables with names of partitions only.
-- +goose StatementBegin
CREATE FUNCTION holdfast.partition_add(child text, lower_bound text, upper_bound text) RETURNS void VOLATILE STRICT
SECURITY DEFINER SET search_path = pg_catalog, pg_temp LANGUAGE plpgsql AS $$
DECLARE
    parent text := holdfast.partition_of(child);
    server name;
BEGIN
    IF parent IS NULL THEN
        RAISE EXCEPTION '% is not the name of a partition', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Build a separate table and attach it: CREATE TABLE … PARTITION OF would lock out all readers and writers.
    EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.%I INCLUDING ALL)', child,
        CASE parent WHEN 'tasks_dated' THEN 'tasks_kept' WHEN 'events_log' THEN 'events_kept' WHEN 'events_artifacts' THEN 'events_kept' ELSE parent END);
    IF parent = 'audit_log' THEN -- the triggers of the partitioned table do not guard it
        EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.%I FOR EACH STATEMENT EXECUTE FUNCTION holdfast.audit_refuse()', child);
        EXECUTE format('ALTER TABLE holdfast.%I ENABLE ALWAYS TRIGGER append_only', child);
    END IF;
    FOR server IN SELECT holdfast.server_roles() LOOP
        EXECUTE format('GRANT SELECT ON holdfast.%I TO %I', child, server);
    END LOOP;
    EXECUTE format('ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I FOR VALUES FROM (%L) TO (%L)', parent, child, lower_bound, upper_bound);
END
$$;

-- A function cannot detach CONCURRENTLY, so this waits for all statements on the table and they wait for it. It gives up
-- before a writer that waits does.
CREATE FUNCTION holdfast.partition_detach(child text) RETURNS void VOLATILE STRICT
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' LANGUAGE plpgsql AS $$
DECLARE
    parent text := holdfast.partition_of(child);
    pending boolean;
    upper_bound text;
BEGIN
    SELECT i.inhdetachpending, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''([^'']*)''\)') INTO pending, upper_bound
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhrelid = to_regclass(format('holdfast.%I', child)) AND i.inhparent = to_regclass('holdfast.' || parent);
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not a partition', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- A thief of a server's password cannot remove the records of what he does now.
    IF parent = 'audit_log' AND upper_bound::timestamptz > now() THEN
        RAISE EXCEPTION 'the audit log is append-only: % is not over', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('ALTER TABLE holdfast.%I DETACH PARTITION holdfast.%I', parent, child) || CASE WHEN pending THEN ' FINALIZE' ELSE '' END;
END
$$;

CREATE FUNCTION holdfast.partition_drop(child text) RETURNS void VOLATILE STRICT
SECURITY DEFINER SET search_path = pg_catalog, pg_temp LANGUAGE plpgsql AS $$
BEGIN
    IF holdfast.partition_of(child) IS NULL OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = to_regclass(format('holdfast.%I', child))) THEN
        RAISE EXCEPTION '% is not a detached partition', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS holdfast.%I', child);
END
$$;

-- The owner calls this with a new role, and without one after each migration, for new tables.
CREATE FUNCTION holdfast.admit_servers(newcomer name DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    api text := holdfast.api_role();
    settable boolean := current_setting('server_version_num')::integer >= 160000;
    server name;
    t record;
BEGIN
    FOR server IN SELECT holdfast.server_roles() UNION SELECT newcomer WHERE newcomer IS NOT NULL LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA holdfast TO %I', server);
        FOR t IN SELECT c.oid, c.relname, c.relkind, c.relrowsecurity FROM pg_class c
                  WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') ORDER BY c.relname LOOP
            EXECUTE format('GRANT %s ON holdfast.%I TO %I', CASE
                WHEN t.relkind = 'S' THEN 'USAGE'
                -- audit() writes the audit log. Rows are written through the partitioned tables.
                WHEN t.relkind = 'v' OR t.relname IN ('schema_version', 'audit_log') OR holdfast.partition_of(t.relname) IS NOT NULL THEN 'SELECT'
                WHEN t.relname = 'audit_chains' THEN 'SELECT, UPDATE'
                ELSE 'SELECT, INSERT, UPDATE, DELETE' END, t.relname, server);
            IF NOT t.relrowsecurity THEN
                CONTINUE;
            ELSIF NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = t.oid AND p.polname = 'servers') THEN
                EXECUTE format('CREATE POLICY servers ON holdfast.%I TO %I USING (true)', t.relname, server);
            ELSIF NOT EXISTS (SELECT FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles)
                               WHERE p.polrelid = t.oid AND p.polname = 'servers' AND r.rolname = server) THEN
                EXECUTE format('ALTER POLICY servers ON holdfast.%I TO %s, %I', t.relname,
                    (SELECT string_agg(quote_ident(r.rolname), ', ') FROM pg_policy p JOIN pg_roles r ON r.oid = ANY (p.polroles)
                      WHERE p.polrelid = t.oid AND p.polname = 'servers'), server);
            END IF;
        END LOOP;
        EXECUTE format('GRANT EXECUTE ON FUNCTION holdfast.audit(text), holdfast.partition_add(text, text, text),
            holdfast.partition_detach(text), holdfast.partition_drop(text) TO %I', server);
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = api)
           AND NOT pg_has_role(server, api, CASE WHEN settable THEN 'SET' ELSE 'MEMBER' END) THEN
            EXECUTE format('GRANT %I TO %I', api, server) || CASE WHEN settable THEN ' WITH INHERIT FALSE, SET TRUE' ELSE '' END;
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.partition_add IS 'Creates a partition. For servers whose role owns nothing.';
COMMENT ON FUNCTION holdfast.partition_detach IS 'Detaches a partition. For servers whose role owns nothing.';
COMMENT ON FUNCTION holdfast.partition_drop IS 'Drops a detached partition. For servers whose role owns nothing.';
COMMENT ON FUNCTION holdfast.admit_servers IS 'Grants the roles of servers what they need, and admits one more. It may be called again.';
REVOKE ALL ON FUNCTION holdfast.partition_add, holdfast.partition_detach, holdfast.partition_drop, holdfast.admit_servers FROM PUBLIC;

-- +goose Down
SET LOCAL lock_timeout = '5s';
-- The roles stay: they belong to the cluster. Here they lose their grants.
-- +goose StatementBegin
DO $$
DECLARE
    server name;
    t text;
BEGIN
    FOR server IN SELECT holdfast.server_roles() LOOP
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM %I', server);
        EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA holdfast FROM %I', server);
        EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM %I', server);
        EXECUTE format('REVOKE ALL ON SCHEMA holdfast FROM %I', server);
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = holdfast.api_role()) THEN
            EXECUTE format('REVOKE %I FROM %I', holdfast.api_role(), server);
        END IF;
    END LOOP;
    FOR t IN SELECT p.polrelid::regclass FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
              WHERE c.relnamespace = 'holdfast'::regnamespace AND p.polname = 'servers' LOOP
        EXECUTE format('DROP POLICY servers ON %s', t);
    END LOOP;
END
$$;
-- +goose StatementEnd
DROP FUNCTION holdfast.admit_servers;
DROP FUNCTION holdfast.partition_drop;
DROP FUNCTION holdfast.partition_detach;
DROP FUNCTION holdfast.partition_add;
DROP FUNCTION holdfast.partition_of;
DROP FUNCTION holdfast.server_roles;
CREATE OR REPLACE VIEW holdfast.callers_log WITH (security_barrier) AS
SELECT t.id, e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload, e.created_at,
       t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.dialect, t.metadata, t.created_at AS task_created_at, t.stream_base, t.last_seq
  FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id
 WHERE (t.tenant, t.owner) = (SELECT (holdfast.caller())[1], (holdfast.caller())[2])
    OR t.tenant = (SELECT (holdfast.caller())[3])
    OR (SELECT pg_has_role(current_user, c.relowner, 'USAGE') FROM pg_catalog.pg_class c WHERE c.oid = 'holdfast.tasks'::regclass);
