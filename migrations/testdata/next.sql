-- 00001_tasks.sql c79c043d1eadc24e962ad12c919dafc519351dc12a32d19a180d81b6c7fadbf8
-- 00002_workers.sql b5cfb901e95a10f6b2a9ddfcbc8ce3d7091f73befa82438b47cd54d7d4495814
-- 00003_webhooks.sql 6167bd9b154f4de6812dedf33057ab705a4f89fa224f074da8ab232e7f759dd4
-- 00004_keys_and_audit.sql 060bc3a3dade44e4e490cebb5db690542c34673683ed069a40880d6e3e7bc7a9
-- 00005_views.sql da939ca72a14698695f6e84aa2b75311fe86c0bb84e267461d0861002869bb16
-- 00006_isolation.sql fdaa4402cb74943f1116d202023ac00dcfb14661a14d7e93b97788a934e8c6e3
-- 00007_retention.sql 34daa205f1f5e139c8e50498f60c28490afd702b9d5262cb267397ab643aa9bc
-- 00008_away.sql d06a197dc67d9e41c12c2776c62cc37971dd7cf1f5cf74e5f79376e4288f3bd8
-- 00009_role_per_database.sql 30f5d60e846d6cfd8aff721c3bb816b31227cea916621248834eb66f38ad4563
-- 00011_message_bytes.sql 2c0c266e3482d7a4f890bdcdd2545a68e63729b04eedc7d1ed115140046c86ce
-- 00013_push_egress.sql 9027dc20638774df1d93e690e2dc8708dd4a6c18714744ddafb596b3e4e87b8b
-- 00014_artifact_listings.sql 357ea56d3d196f7e7ddfb5aafe80d82717d4cff4adfc9e157bf72c347bcc33f3
-- 00015_audit_plans.sql e5eaf58116c1fc61d06b8252929500c8925788178d8af9396bb9f5d9324bd28e
-- 00016_state.sql d112f5dc32fc9549ce7d9f0974265b0000f0dd532ee2dff5806589d3263e5083
-- 00017_waits.sql ec38cdb10678744da87c8e2debca2e946e66ba603b423db379abd43f7cb8b63b
-- 00018_cancels.sql d3353998be80a2f43e6099c355cf87e604506ca206cb5a475b1b79dd0b36bc57
-- 00019_resume.sql 5d1ea62b808d086438b5fc7b1538bcee8f23fee64d787d878c179532b73ee9e2
-- 00020_calls.sql 537d99c4c570efe02815de949cfe8eebdabe974d91318da37b7b6a59def10632
-- 00021_run_api.sql 8af5aaa9287319aca334c1bc855f1aed573bddf19836f52893d86abd1a065d8d
-- 00022_forward.sql dc119fd1741136802040a29b29361524af179be95c9774e5235928cc3c0f90e9
-- 00024_relay.sql b9ec335edecf9e01a18811938345de97fdaeab107f5709d68c5e27e85b1ea1eb
-- 00026_workers.sql 4e5c52900cd2ec19c8dc1b7c3e06f42428ab1e0069ef738a273db3354a68d9f1
-- 00027_admin.sql 1e88fe6b42dc27fc73dad822c31554e824949952b8408d575fb36298892b45bd
-- 00028_traces.sql 8734d32bf241f70427c1cd94455c9c1cd273f8a5dd5d06f810d4225d80e4a418
-- 00029_console.sql 75050b213529e41294fc039357006136c0d68f80bc5b26b5facb627809d992c9
-- 00030_admin_sessions.sql 694bcaab43a54777f1ed1ec963a1d8dcadb148bca7914123caa07c8cb210687f
-- 00031_list_indexes.sql aeb8d1cecae79c3b389bf0e394ac65b11648c997c985a690c8dce5b760f6ed10
-- 00032_servers.sql 3e005ebc5c2db6a544a23c69bdbe25b81e252e637deb8af870fba35cbf8327fb
-- 00033_payloads_in_rows.sql 99c78900f7927d16eca02e3b3a97531215adf1c6c602fe4de8894d4c242fb59a
-- 00034_memory_keys.sql 610b21e5f7bf1279eaf395042de5b3b5e7bc56e1a6611b44e1021ae1ff9d61c4
-- 00035_metadata.sql 6a674d5f87c0b7b590b4452d703e441a918835b7a14679c188c169c12f411fc7
-- 00036_workers_leave.sql e7e65ac66a13637484012b723ee0dc4ee55d1dc359ad6cadffcb908a06a14c82
-- 00037_retried.sql 5cdb1552ee90b472265465ba5dfe46c2e419d94ffc57840609b3790c1a2c7855
-- 00038_views.sql b18b789e2f0ee06a704b322a4391987f46b969bff7bf65b096371a0c8c809c07
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA holdfast;
CREATE FUNCTION holdfast.admit_callers() RETURNS boolean
    LANGUAGE plpgsql
    AS $_$
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
$_$;
COMMENT ON FUNCTION holdfast.admit_callers() IS 'Creates the role of this database for callers'' statements, if the login may, and grants it what they need. It may be called again.';
CREATE FUNCTION holdfast.admit_servers(newcomer name DEFAULT NULL::name) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
COMMENT ON FUNCTION holdfast.admit_servers(newcomer name) IS 'Grants the roles of servers what they need, and admits one more. It may be called again.';
CREATE FUNCTION holdfast.api_role() RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ('holdfast_api_'::text || CASE WHEN (octet_length((current_database())::text) <= 50) THEN (current_database())::text ELSE md5((current_database())::text) END);
COMMENT ON FUNCTION holdfast.api_role() IS 'The name of the role for callers'' statements in this database.';
CREATE FUNCTION holdfast.audit(entries text) RETURNS bigint
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    c holdfast.audit_chains;
    newest bigint;
    at timestamptz;
    hash bytea;
BEGIN
    <<taken>>
    LOOP
        FOR k IN 1..64 LOOP
            SELECT a.length INTO newest FROM holdfast.audit_chains a WHERE a.chain = k ORDER BY a.length DESC LIMIT 1;
            SELECT * INTO c FROM holdfast.audit_chains a WHERE a.chain = k AND a.length = newest FOR NO KEY UPDATE SKIP LOCKED;
            EXIT taken WHEN FOUND;
        END LOOP;
        -- All are held. The commit that releases this one changes its length, so the search begins again.
        SELECT a.length INTO newest FROM holdfast.audit_chains a WHERE a.chain = 1 + pg_backend_pid() % 64 ORDER BY a.length DESC LIMIT 1;
        SELECT * INTO c FROM holdfast.audit_chains a WHERE a.chain = 1 + pg_backend_pid() % 64 AND a.length = newest FOR NO KEY UPDATE;
        EXIT taken WHEN FOUND;
    END LOOP;
    at := clock_timestamp();
    hash := sha256(c.head || convert_to(concat_ws(' ', c.chain, c.length + 1, (extract(epoch FROM at) * 1000000)::bigint, session_user, entries), 'UTF8'));
    INSERT INTO holdfast.audit_log VALUES (c.chain, c.length + 1, at, session_user, entries::json, hash);
    UPDATE holdfast.audit_chains a SET length = c.length + 1, head = hash WHERE a.chain = c.chain AND a.length = c.length;
    RETURN c.length + 1;
END
$$;
COMMENT ON FUNCTION holdfast.audit(entries text) IS 'Appends entries, a JSON array, to the audit log. Call it last in a transaction, because it holds a chain until the commit.';
CREATE FUNCTION holdfast.audit_advance() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.chain = OLD.chain AND NEW.length = OLD.length + 1 AND NEW.removed = OLD.removed AND NEW.removed_head = OLD.removed_head THEN
        RETURN NEW;
    END IF;
    -- Retention moves the beginning to a row that is there, and changes nothing else.
    IF NEW.chain = OLD.chain AND NEW.length = OLD.length AND NEW.head = OLD.head AND NEW.removed > OLD.removed
       AND EXISTS (SELECT FROM holdfast.audit_log l WHERE l.chain = NEW.chain AND l.n = NEW.removed AND l.hash = NEW.removed_head) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only: chain % can only grow', OLD.chain USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE FUNCTION holdfast.audit_refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only: % of % is refused', TG_OP, TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE FUNCTION holdfast.call_begin(of uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE holdfast.task_calls c SET started_at = now()
     WHERE (c.parent, c.seq, c.nth) IN (
        SELECT x.parent, x.seq, x.nth FROM holdfast.task_calls x
         WHERE x.child = of AND NOT x.answers AND x.started_at IS NULL AND x.settled_at IS NULL
           FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION holdfast.call_begin(of uuid) IS 'Whether the caller may create this called task, which it then must: the call has not begun, and its caller has not given it up.';
CREATE FUNCTION holdfast.call_settle(of uuid, at bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
DECLARE
    became smallint := holdfast.settled_state(of, at);
BEGIN
    UPDATE holdfast.task_calls c SET settled_at = now(), state = became, child_seq = at
     WHERE c.child = of AND c.started_at IS NOT NULL AND c.settled_at IS NULL AND c.after_seq < at AND became IS NOT NULL;
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION holdfast.call_settle(of uuid, at bigint) IS 'Gives the calls that wait for a task their result, if this status ended or parked it.';
CREATE FUNCTION holdfast.call_settled(of uuid, at bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    INSERT INTO holdfast.task_settled (task, seq) VALUES (of, at) ON CONFLICT DO NOTHING;
    RETURN 1;
END
$$;
COMMENT ON FUNCTION holdfast.call_settled(of uuid, at bigint) IS 'Records that a task with a lineage has ended or parked.';
CREATE FUNCTION holdfast.caller() RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (NULLIF(current_setting('holdfast.caller'::text, true), ''::text))::text[];
COMMENT ON FUNCTION holdfast.caller() IS 'The caller of the transaction: tenant, owner, and the tenant again if it sees all of the tenant''s tasks. Null: no caller.';
CREATE FUNCTION holdfast.caller_ended(of uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.task_calls c WHERE c.parent = of)
       AND NOT EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state NOT IN (5, 6, 7, 8));
END
$$;
COMMENT ON FUNCTION holdfast.caller_ended(of uuid) IS 'Whether a task has called others, and has ended or was deleted.';
CREATE FUNCTION holdfast.calls_open(of uuid, note bigint, payload json) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    own holdfast.task_calls;
BEGIN
    SELECT * INTO own FROM holdfast.task_calls c WHERE c.child = of AND NOT c.answers LIMIT 1;
    INSERT INTO holdfast.task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers, relay)
    SELECT of, note, c.n, c.call ->> 'id', coalesce(c.call ->> 'agent', ''), (c.call ->> 'task')::uuid,
           coalesce((c.call ->> 'answers')::boolean, false), coalesce(own.root, of),
           coalesce(own.callers, '{}') || (SELECT t.agent FROM holdfast.tasks t WHERE t.id = of AND t.state NOT IN (5, 6, 7, 8)),
           coalesce((c.call ->> 'relay')::boolean, false)
      FROM json_array_elements(payload -> 'calls') WITH ORDINALITY c(call, n);
    RETURN 1;
END
$$;
COMMENT ON FUNCTION holdfast.calls_open(of uuid, note bigint, payload json) IS 'Records the calls of a run note. The caller has locked the task and writes the note.';
CREATE FUNCTION holdfast.calls_settled(of uuid, note bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM holdfast.task_calls c WHERE c.parent = of AND c.seq = note AND c.settled_at IS NULL);
END
$$;
COMMENT ON FUNCTION holdfast.calls_settled(of uuid, note bigint) IS 'Whether all calls of a run note have their result.';
CREATE FUNCTION holdfast.context_has_other(of_tenant text, of_owner text, of_agent text, of_context text, besides uuid[]) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT COST 10000
    AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t
                    WHERE t.context_id = of_context AND t.tenant = of_tenant AND t.owner = of_owner AND t.agent = of_agent
                      AND t.id <> ALL(besides));
END
$$;
COMMENT ON FUNCTION holdfast.context_has_other(of_tenant text, of_owner text, of_agent text, of_context text, besides uuid[]) IS 'Whether a context of an owner has a task that is not among these.';
CREATE FUNCTION holdfast.context_stays(of_tenant text, of_owner text, of_agent text, of_context text, before uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT COST 10000
    AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t
                    WHERE t.context_id = of_context AND t.tenant = of_tenant AND t.owner = of_owner AND t.agent = of_agent
                      AND (t.state < 5 OR t.kept OR t.id >= before));
END
$$;
COMMENT ON FUNCTION holdfast.context_stays(of_tenant text, of_owner text, of_agent text, of_context text, before uuid) IS 'Whether a context of an owner has a task that is open, kept, or not older than an id.';
CREATE FUNCTION holdfast.forward(of uuid, message bigint, sealed text) RETURNS integer
    LANGUAGE plpgsql STRICT
    AS $$
BEGIN
    UPDATE holdfast.task_queue q
       SET forwarded = coalesce(q.forwarded, '{}') || jsonb_build_object(message::text, sealed)
     WHERE q.id = of;
    RETURN 1;
END
$$;
COMMENT ON FUNCTION holdfast.forward(of uuid, message bigint, sealed text) IS 'Keeps the headers of a message for its turn. The caller has locked the task, which is queued or has a run.';
CREATE FUNCTION holdfast.has_dated_events(of uuid, artifacts boolean) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    IF artifacts THEN
        RETURN EXISTS (SELECT FROM holdfast.task_events e WHERE e.task = of AND NOT e.kept AND e.kind = 3);
    END IF;
    RETURN EXISTS (SELECT FROM holdfast.task_events e WHERE e.task = of AND NOT e.kept);
END
$$;
COMMENT ON FUNCTION holdfast.has_dated_events(of uuid, artifacts boolean) IS 'Whether events of a task, or artifact chunks alone, lie in its period.';
CREATE FUNCTION holdfast.key_days(at timestamp with time zone) RETURNS SETOF date
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT ((at - interval '5 minutes') AT TIME ZONE 'UTC')::date
     UNION
    SELECT ((at + interval '5 minutes') AT TIME ZONE 'UTC')::date
$$;
COMMENT ON FUNCTION holdfast.key_days(at timestamp with time zone) IS 'The days (UTC) on which an idempotency key is written: two within five minutes of midnight, otherwise one.';
CREATE FUNCTION holdfast.limit_slot(VARIADIC names text[]) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT hashtext(array_to_string(names, chr(31))) & 63
$$;
COMMENT ON FUNCTION holdfast.limit_slot(VARIADIC names text[]) IS 'The slot of the limit with these names, which selects its advisory lock.';
CREATE FUNCTION holdfast.live_tasks(slot integer, of_tenant text, of_owner text, of_agent text, bound integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1212566833, slot);
    -- Each state is a scan of its own in the order of index tasks_listed, as lists are.
    RETURN (SELECT count(*) FROM (
        SELECT FROM unnest('{1,2,3,4}'::smallint[]) AS s (state)
         CROSS JOIN LATERAL (
            SELECT FROM holdfast.tasks t
             WHERE t.tenant = of_tenant AND t.owner = of_owner AND t.agent = of_agent AND NOT t.direct
               AND t.state = s.state AND t.state < 5
             ORDER BY t.status_at DESC, t.id DESC LIMIT bound
         ) p
         LIMIT bound
    ) n);
END
$$;
COMMENT ON FUNCTION holdfast.live_tasks(slot integer, of_tenant text, of_owner text, of_agent text, bound integer) IS 'How many open tasks a caller has with an agent, up to a bound. Locks the limit until the commit, so that no other statement creates a task under it.';
CREATE FUNCTION holdfast.merged(VARIADIC objects json[]) RETURNS json
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT ('{' || string_agg(to_json(m.key) || ':' || m.value, ',' ORDER BY m.place) || '}')::json
      FROM (SELECT m.key, (array_agg(m.value ORDER BY o.n DESC, m.n DESC))[1] AS value, min(ARRAY[o.n, m.n]) AS place
              FROM unnest(objects) WITH ORDINALITY o(object, n), json_each(CASE json_typeof(o.object) WHEN 'object' THEN o.object END) WITH ORDINALITY m(key, value, n)
             GROUP BY m.key) m
$$;
COMMENT ON FUNCTION holdfast.merged(VARIADIC objects json[]) IS 'The members of all objects; of those with one name the last one.';
CREATE FUNCTION holdfast.message_after(of uuid, at bigint) RETURNS bigint
    LANGUAGE plpgsql STRICT
    AS $$
BEGIN
    RETURN (SELECT e.seq FROM holdfast.task_events e WHERE e.task = of AND e.seq > at AND e.kind = 1 ORDER BY e.seq LIMIT 1);
END
$$;
COMMENT ON FUNCTION holdfast.message_after(of uuid, at bigint) IS 'The seq of the first message after seq at. There must be such a message.';
CREATE FUNCTION holdfast.message_at(of uuid, at bigint) RETURNS json
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    RETURN (SELECT e.payload FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 1);
END
$$;
COMMENT ON FUNCTION holdfast.message_at(of uuid, at bigint) IS 'The payload of a message event.';
CREATE FUNCTION holdfast.message_last(of uuid) RETURNS bigint
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    RETURN (SELECT e.seq FROM holdfast.task_events e WHERE e.task = of AND e.kind = 1 ORDER BY e.seq DESC LIMIT 1);
END
$$;
COMMENT ON FUNCTION holdfast.message_last(of uuid) IS 'The seq of the newest message of a task.';
CREATE FUNCTION holdfast.note_at(of uuid, at bigint) RETURNS json
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    RETURN (SELECT e.payload FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 4);
END
$$;
COMMENT ON FUNCTION holdfast.note_at(of uuid, at bigint) IS 'The payload of a run note, by primary key.';
CREATE FUNCTION holdfast.partition_add(child text, lower_bound text, upper_bound text) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
COMMENT ON FUNCTION holdfast.partition_add(child text, lower_bound text, upper_bound text) IS 'Creates a partition. For servers whose role owns nothing.';
CREATE FUNCTION holdfast.partition_detach(child text) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '50ms'
    AS $$
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
COMMENT ON FUNCTION holdfast.partition_detach(child text) IS 'Detaches a partition. For servers whose role owns nothing.';
CREATE FUNCTION holdfast.partition_drop(child text) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF holdfast.partition_of(child) IS NULL OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = to_regclass(format('holdfast.%I', child))) THEN
        RAISE EXCEPTION '% is not a detached partition', child USING ERRCODE = 'insufficient_privilege';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS holdfast.%I', child);
END
$$;
COMMENT ON FUNCTION holdfast.partition_drop(child text) IS 'Drops a detached partition. For servers whose role owns nothing.';
CREATE FUNCTION holdfast.partition_of(child text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    RETURN CASE "substring"(child, '^([a-z]+)_\d{8}(?:_\d{4,6})?$'::text) WHEN 'tasks'::text THEN 'tasks_dated'::text WHEN 'events'::text THEN 'events_log'::text WHEN 'artifacts'::text THEN 'events_artifacts'::text WHEN 'keys'::text THEN 'idempotency_keys'::text WHEN 'attempts'::text THEN 'push_attempts'::text WHEN 'audit'::text THEN 'audit_log'::text ELSE NULL::text END;
COMMENT ON FUNCTION holdfast.partition_of(child text) IS 'The table that a partition of this name belongs to; null if it is not the name of a partition.';
CREATE FUNCTION holdfast.push_caller(tenant text, owner text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN tenant = '' AND owner = '' THEN 0 ELSE hashtextextended(tenant || chr(31) || owner, 0) END
$$;
COMMENT ON FUNCTION holdfast.push_caller(tenant text, owner text) IS 'The caller of a webhook, as a number. 0: no caller, where the server authenticates nobody.';
CREATE FUNCTION holdfast.push_mark(tasks uuid[], statuses bigint[], newest bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    marked integer;
BEGIN
    UPDATE holdfast.push_cursors k
       -- The place of a task in the array, by bisection.
       SET due_seq = (CASE WHEN k.artifacts THEN newest ELSE statuses END)[width_bucket(k.task, tasks)],
           due_at = CASE WHEN k.disabled_at IS NULL THEN coalesce(k.due_at, now()) END,
           due_since = coalesce(k.due_since, now())
     WHERE k.task = ANY (tasks) AND (k.artifacts OR statuses[width_bucket(k.task, tasks)] IS NOT NULL);
    GET DIAGNOSTICS marked = ROW_COUNT;
    RETURN marked;
END
$$;
COMMENT ON FUNCTION holdfast.push_mark(tasks uuid[], statuses bigint[], newest bigint[]) IS 'Marks the webhooks of tasks, which are sorted, as due: for the newest status (null: none), or the newest event for those that want artifacts. The caller has locked the tasks.';
CREATE FUNCTION holdfast.push_park(window_rows integer, busy_hosts text[], busy_callers bigint[], since timestamp with time zone DEFAULT '-infinity'::timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    n integer;
BEGIN
    UPDATE holdfast.push_cursors k SET parked = true
     WHERE k.ctid = ANY (ARRAY(
        SELECT h.ctid FROM holdfast.push_cursors h
         WHERE h.ctid = ANY (ARRAY(
            SELECT w.place
              FROM (SELECT d.ctid AS place, d.host, d.caller FROM holdfast.push_cursors d
                     WHERE NOT d.parked AND d.due_at >= since AND d.due_at <= now() ORDER BY d.due_at LIMIT window_rows) w
             WHERE w.host = ANY (busy_hosts) OR w.caller = ANY (busy_callers)
         )) AND NOT h.parked AND coalesce(h.due_at <= now(), false) -- not by index push_cursors_due
           FOR NO KEY UPDATE SKIP LOCKED
     ));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
COMMENT ON FUNCTION holdfast.push_park(window_rows integer, busy_hosts text[], busy_callers bigint[], since timestamp with time zone) IS 'Parks the deliveries for these hosts and callers, among those that have been due for longest since then, and returns how many it parked.';
CREATE FUNCTION holdfast.server_roles() RETURNS SETOF name
    LANGUAGE sql STABLE
    AS $$
    SELECT r.rolname FROM pg_catalog.pg_policy p JOIN pg_catalog.pg_roles r ON r.oid = ANY (p.polroles)
     WHERE p.polrelid = 'holdfast.tasks'::regclass AND p.polname = 'servers' ORDER BY 1
$$;
COMMENT ON FUNCTION holdfast.server_roles() IS 'The roles of servers that the owner has admitted.';
CREATE FUNCTION holdfast.settled_drop(of uuid, at bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM holdfast.task_settled s
     WHERE s.task = of AND s.seq = at
       AND NOT EXISTS (SELECT FROM holdfast.task_calls c WHERE c.child = of AND c.started_at IS NULL AND c.settled_at IS NULL);
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION holdfast.settled_drop(of uuid, at bigint) IS 'Forgets the end of a task, unless a message to it has not begun: its result may be this end.';
CREATE FUNCTION holdfast.settled_state(of uuid, at bigint) RETURNS smallint
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    RETURN coalesce(
        (SELECT e.state FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 2 AND e.state >= 3),
        CASE WHEN NOT holdfast.task_exists(of) THEN 7 END);
END
$$;
COMMENT ON FUNCTION holdfast.settled_state(of uuid, at bigint) IS 'The state in which a status ended or parked a task; canceled for a deleted task, null if it did neither.';
CREATE FUNCTION holdfast.sql_contract_version() RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT '1.11' $$;
COMMENT ON FUNCTION holdfast.sql_contract_version() IS 'Version of the views as major.minor. A minor version adds columns at the end, views and functions; a major version may change anything.';
CREATE FUNCTION holdfast.state_name(state smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$ SELECT (ARRAY['submitted', 'working', 'input-required', 'auth-required', 'completed', 'failed', 'canceled', 'rejected'])[$1] $_$;
COMMENT ON FUNCTION holdfast.state_name(state smallint) IS 'The name of a stored state. For the views; not part of the contract.';
CREATE FUNCTION holdfast.task_exists(of uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of);
END
$$;
COMMENT ON FUNCTION holdfast.task_exists(of uuid) IS 'Whether the current role sees the task.';
CREATE FUNCTION holdfast.task_has_pushes(of uuid, any_pushes boolean) RETURNS boolean
    LANGUAGE plpgsql STRICT
    AS $_$
BEGIN
    EXECUTE 'UPDATE holdfast.tasks SET pushes = $2 WHERE id = $1 AND pushes <> $2' USING of, any_pushes;
    RETURN any_pushes;
END
$_$;
COMMENT ON FUNCTION holdfast.task_has_pushes(of uuid, any_pushes boolean) IS 'Sets tasks.pushes.';
CREATE FUNCTION holdfast.task_state(of uuid) RETURNS smallint
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    RETURN (SELECT t.state FROM holdfast.tasks t WHERE t.id = of);
END
$$;
COMMENT ON FUNCTION holdfast.task_state(of uuid) IS 'The state of a task, by primary key; null: there is no such task.';
CREATE FUNCTION holdfast.task_stays(of uuid) RETURNS boolean
    LANGUAGE plpgsql STABLE STRICT
    AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state < 5)
        OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state >= 5 AND t.kept);
END
$$;
COMMENT ON FUNCTION holdfast.task_stays(of uuid) IS 'Whether a task outlives its period: it is open, or kept.';
CREATE FUNCTION holdfast.task_unname(of uuid) RETURNS boolean
    LANGUAGE plpgsql STRICT
    AS $_$
DECLARE
    n integer;
BEGIN
    EXECUTE 'UPDATE holdfast.tasks SET client_id = NULL WHERE id = $1 AND state >= 5' USING of;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n > 0;
END
$_$;
COMMENT ON FUNCTION holdfast.task_unname(of uuid) IS 'Removes the id that the client chose from a task that has ended. Returns whether there was such a task.';
CREATE FUNCTION holdfast.task_uuid(task_id text) RETURNS uuid
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    AS $_$
DECLARE
    found uuid[];
BEGIN
    IF $1 ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN
        SELECT array_agg(v.task) INTO found FROM holdfast.v_tasks v WHERE v.task = $1::uuid;
    END IF;
    IF found IS NULL THEN
        SELECT array_agg(v.task ORDER BY v.task) INTO found FROM holdfast.v_names v WHERE v.task_id = $1;
    END IF;
    IF cardinality(found) > 1 THEN
        RAISE EXCEPTION 'several tasks have the id %; name one by its UUID: %', $1, array_to_string(found, ', ')
            USING ERRCODE = 'cardinality_violation';
    END IF;
    RETURN found[1];
END
$_$;
COMMENT ON FUNCTION holdfast.task_uuid(task_id text) IS 'The UUID of the task with the id that clients use. Null if there is no such task; an error if several owners chose the same id.';
CREATE FUNCTION holdfast.uuid_at(at timestamp with time zone) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$ SELECT (lpad(to_hex(floor(extract(epoch FROM $1) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid $_$;
COMMENT ON FUNCTION holdfast.uuid_at(at timestamp with time zone) IS 'The lowest task UUID of a moment. task >= holdfast.uuid_at(now() - interval ''1 day'') reads the tasks created in the last day by index and skips older partitions.';
CREATE FUNCTION holdfast.wait_interrupt(of uuid, message bigint, bytes integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE holdfast.task_queue q
       SET wakes_at = NULL, available_at = now(), interrupted = true, message_seq = message, message_bytes = bytes
     WHERE q.id = of AND q.worker_id IS NULL AND q.input_seq IS NOT NULL;
    RETURN 1;
END
$$;
COMMENT ON FUNCTION holdfast.wait_interrupt(of uuid, message bigint, bytes integer) IS 'Ends the wait of a task for a message, whose task the caller has locked.';
CREATE FUNCTION holdfast.waiting_tasks(slot integer, of_agent text, bound integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1212566834, slot);
    -- Index task_queue_ready.
    RETURN (SELECT count(*) FROM (
        SELECT FROM holdfast.task_queue q
         WHERE q.agent = of_agent AND q.worker_id IS NULL AND q.wakes_at IS NULL
         ORDER BY q.available_at, q.id LIMIT bound
    ) n);
END
$$;
COMMENT ON FUNCTION holdfast.waiting_tasks(slot integer, of_agent text, bound integer) IS 'How many tasks wait for an agent, up to a bound. Locks the limit until the commit, so that no other statement queues a task under it.';
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE holdfast.admin_jobs (
    id uuid NOT NULL,
    action text NOT NULL,
    dry_run boolean NOT NULL,
    filter json NOT NULL,
    options json NOT NULL,
    reason text NOT NULL,
    tenant text,
    actor json NOT NULL,
    "position" uuid NOT NULL,
    batch uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    matched bigint DEFAULT 0 NOT NULL,
    done bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    failures json DEFAULT '[]'::json NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    worker_id uuid,
    claimed_until timestamp with time zone DEFAULT '1970-01-01 05:30:00+05:30'::timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    canceled_at timestamp with time zone,
    ended_at timestamp with time zone,
    CONSTRAINT admin_jobs_counts CHECK (((matched >= 0) AND (done >= 0) AND (skipped >= 0) AND (failed >= 0)))
);
COMMENT ON TABLE holdfast.admin_jobs IS 'Jobs of the admin API: an action on all tasks that a filter selects.';
COMMENT ON COLUMN holdfast.admin_jobs.dry_run IS 'The job counts the tasks and changes none.';
COMMENT ON COLUMN holdfast.admin_jobs.tenant IS 'The only tenant that its operator may see; null: all.';
COMMENT ON COLUMN holdfast.admin_jobs.actor IS 'The operator, for the audit log.';
COMMENT ON COLUMN holdfast.admin_jobs."position" IS 'The tasks from this id on are done, or in batch. The job goes from the newest task to the oldest.';
COMMENT ON COLUMN holdfast.admin_jobs.batch IS 'The tasks that the job acts on now.';
COMMENT ON COLUMN holdfast.admin_jobs.failures IS 'The newest failures: task and error.';
COMMENT ON COLUMN holdfast.admin_jobs.fence IS 'Each claim raises it; a write with an older one changes nothing.';
COMMENT ON COLUMN holdfast.admin_jobs.worker_id IS 'The process that claimed it last.';
COMMENT ON COLUMN holdfast.admin_jobs.claimed_until IS 'When another process may claim it.';
CREATE TABLE holdfast.admin_sessions (
    id uuid NOT NULL,
    secret_hash bytea NOT NULL,
    scheme text NOT NULL,
    key_id text,
    tenant text NOT NULL,
    subject text NOT NULL,
    scopes text[] NOT NULL,
    address text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
COMMENT ON TABLE holdfast.admin_sessions IS 'Sessions of operators in browsers. A session that was ended has no row.';
COMMENT ON COLUMN holdfast.admin_sessions.secret_hash IS 'SHA-256 of the secret, which only the cookie has.';
COMMENT ON COLUMN holdfast.admin_sessions.scheme IS 'The scheme that admitted the operator.';
COMMENT ON COLUMN holdfast.admin_sessions.key_id IS 'The API key that the operator showed; null: the operator came from an issuer. The session ends with it, and has its scopes.';
CREATE TABLE holdfast.agent_outages (
    agent text NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL,
    last_at timestamp with time zone DEFAULT now() NOT NULL,
    error text NOT NULL,
    worker_id uuid NOT NULL
)
WITH (fillfactor='50');
COMMENT ON TABLE holdfast.agent_outages IS 'Agents that are away. A worker writes the row when the agent does not begin a run, and deletes it when the agent begins one.';
COMMENT ON COLUMN holdfast.agent_outages.last_at IS 'The last time that a worker tried. Without a try for a minute the outage is over.';
CREATE TABLE holdfast.api_keys (
    key_id text NOT NULL,
    key_hash bytea NOT NULL,
    name text NOT NULL,
    tenant text NOT NULL,
    subject text NOT NULL,
    scopes text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    CONSTRAINT api_keys_hash_is_sha256 CHECK ((octet_length(key_hash) = 32)),
    CONSTRAINT api_keys_subject_given CHECK ((subject <> ''::text))
);
COMMENT ON TABLE holdfast.api_keys IS 'API keys of clients. The table has no secrets: a key is shown once, when it is created.';
COMMENT ON COLUMN holdfast.api_keys.key_id IS 'The public part of the key.';
COMMENT ON COLUMN holdfast.api_keys.key_hash IS 'SHA-256 of the whole key. It holds 256 random bits, so a slow hash would protect nothing.';
COMMENT ON COLUMN holdfast.api_keys.name IS 'The operator''s name for it.';
COMMENT ON COLUMN holdfast.api_keys.tenant IS 'With subject, the caller of requests that have the key.';
COMMENT ON COLUMN holdfast.api_keys.last_used_at IS 'Accurate to five minutes.';
CREATE TABLE holdfast.task_events (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
)
PARTITION BY LIST (kept);
ALTER TABLE ONLY holdfast.task_events ALTER COLUMN payload SET COMPRESSION lz4;
COMMENT ON TABLE holdfast.task_events IS 'The log of every task.';
COMMENT ON COLUMN holdfast.task_events.seq IS 'Place in the task''s log, from 1 without a gap. Retention may remove artifact chunks.';
COMMENT ON COLUMN holdfast.task_events.kind IS '1 message, 2 status, 3 artifact chunk, 4 run note (clients do not see it).';
COMMENT ON COLUMN holdfast.task_events.kept IS 'The row is outside of its period: tasks.kept was set when it was written, or it was moved later.';
COMMENT ON COLUMN holdfast.task_events.attempt IS 'The attempt that wrote it; 0 for a client''s write.';
COMMENT ON COLUMN holdfast.task_events.append IS 'Artifact chunk: its parts continue those before it.';
COMMENT ON COLUMN holdfast.task_events.last IS 'Artifact chunk: the artifact is complete.';
COMMENT ON COLUMN holdfast.task_events.payload IS 'Canonical JSON, see the package comment of internal/store.';
COMMENT ON COLUMN holdfast.task_events.request_id IS 'The client call that wrote a message to an existing task.';
COMMENT ON COLUMN holdfast.task_events.worker_id IS 'On the event that ends an attempt: the process that had it.';
COMMENT ON COLUMN holdfast.task_events.claimed_at IS 'On the event that ends an attempt: when it was claimed.';
CREATE TABLE holdfast.events_dated (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
)
PARTITION BY LIST (kind);
ALTER TABLE ONLY holdfast.events_dated ALTER COLUMN payload SET COMPRESSION lz4;
CREATE TABLE holdfast.events_artifacts (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
)
PARTITION BY RANGE (task);
ALTER TABLE ONLY holdfast.events_artifacts ALTER COLUMN payload SET COMPRESSION lz4;
CREATE TABLE holdfast.artifacts_20261101 (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
);
ALTER TABLE ONLY holdfast.artifacts_20261101 ALTER COLUMN artifact_id SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.artifacts_20261101 ALTER COLUMN payload SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.artifacts_20261101 ALTER COLUMN payload SET COMPRESSION lz4;
CREATE TABLE holdfast.artifacts_20261201 (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
);
ALTER TABLE ONLY holdfast.artifacts_20261201 ALTER COLUMN artifact_id SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.artifacts_20261201 ALTER COLUMN payload SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.artifacts_20261201 ALTER COLUMN payload SET COMPRESSION lz4;
CREATE SEQUENCE holdfast.push_attempts_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE holdfast.push_attempts (
    id bigint DEFAULT nextval('holdfast.push_attempts_id'::regclass) NOT NULL,
    task uuid NOT NULL,
    config_id text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    from_seq bigint NOT NULL,
    to_seq bigint NOT NULL,
    delivery_id text NOT NULL,
    attempt integer NOT NULL,
    class text NOT NULL,
    status integer,
    error text,
    duration interval,
    worker_id uuid,
    host text,
    CONSTRAINT push_attempts_range CHECK ((to_seq >= from_seq))
)
PARTITION BY RANGE (started_at);
COMMENT ON TABLE holdfast.push_attempts IS 'Every delivery attempt and its outcome.';
COMMENT ON COLUMN holdfast.push_attempts.delivery_id IS 'The jti of the request: the same for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.push_attempts.attempt IS 'Which try of the delivery it was, from 1.';
COMMENT ON COLUMN holdfast.push_attempts.class IS 'The outcome, as the metrics call it.';
COMMENT ON COLUMN holdfast.push_attempts.status IS 'The HTTP status; null if there was no answer.';
COMMENT ON COLUMN holdfast.push_attempts.host IS 'Host and port of the URL: clients delete configurations. Null: an older server made the attempt.';
CREATE TABLE holdfast.attempts_20261130 (
    id bigint DEFAULT nextval('holdfast.push_attempts_id'::regclass) NOT NULL,
    task uuid NOT NULL,
    config_id text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    from_seq bigint NOT NULL,
    to_seq bigint NOT NULL,
    delivery_id text NOT NULL,
    attempt integer NOT NULL,
    class text NOT NULL,
    status integer,
    error text,
    duration interval,
    worker_id uuid,
    host text,
    CONSTRAINT push_attempts_range CHECK ((to_seq >= from_seq))
);
COMMENT ON COLUMN holdfast.attempts_20261130.delivery_id IS 'The jti of the request: the same for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.attempts_20261130.attempt IS 'Which try of the delivery it was, from 1.';
COMMENT ON COLUMN holdfast.attempts_20261130.class IS 'The outcome, as the metrics call it.';
COMMENT ON COLUMN holdfast.attempts_20261130.status IS 'The HTTP status; null if there was no answer.';
COMMENT ON COLUMN holdfast.attempts_20261130.host IS 'Host and port of the URL: clients delete configurations. Null: an older server made the attempt.';
CREATE TABLE holdfast.attempts_20261201 (
    id bigint DEFAULT nextval('holdfast.push_attempts_id'::regclass) NOT NULL,
    task uuid NOT NULL,
    config_id text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    from_seq bigint NOT NULL,
    to_seq bigint NOT NULL,
    delivery_id text NOT NULL,
    attempt integer NOT NULL,
    class text NOT NULL,
    status integer,
    error text,
    duration interval,
    worker_id uuid,
    host text,
    CONSTRAINT push_attempts_range CHECK ((to_seq >= from_seq))
);
COMMENT ON COLUMN holdfast.attempts_20261201.delivery_id IS 'The jti of the request: the same for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.attempts_20261201.attempt IS 'Which try of the delivery it was, from 1.';
COMMENT ON COLUMN holdfast.attempts_20261201.class IS 'The outcome, as the metrics call it.';
COMMENT ON COLUMN holdfast.attempts_20261201.status IS 'The HTTP status; null if there was no answer.';
COMMENT ON COLUMN holdfast.attempts_20261201.host IS 'Host and port of the URL: clients delete configurations. Null: an older server made the attempt.';
CREATE TABLE holdfast.audit_log (
    chain smallint NOT NULL,
    n bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    login text NOT NULL,
    entries json NOT NULL,
    hash bytea NOT NULL
)
PARTITION BY RANGE (at);
ALTER TABLE ONLY holdfast.audit_log ALTER COLUMN entries SET COMPRESSION lz4;
COMMENT ON TABLE holdfast.audit_log IS 'Audited actions, each written in the commit of the action. Append-only.';
COMMENT ON COLUMN holdfast.audit_log.n IS 'Place in the chain, from 1 without a gap.';
COMMENT ON COLUMN holdfast.audit_log.login IS 'The database login that wrote it.';
COMMENT ON COLUMN holdfast.audit_log.entries IS 'What happened, as an array: one row names all tasks that one statement created.';
COMMENT ON COLUMN holdfast.audit_log.hash IS 'SHA-256 of the hash before it and of the row: docs/audit.md.';
CREATE TABLE holdfast.audit_20261101 (
    chain smallint NOT NULL,
    n bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    login text NOT NULL,
    entries json NOT NULL,
    hash bytea NOT NULL
);
ALTER TABLE ONLY holdfast.audit_20261101 ALTER COLUMN entries SET COMPRESSION lz4;
COMMENT ON COLUMN holdfast.audit_20261101.n IS 'Place in the chain, from 1 without a gap.';
COMMENT ON COLUMN holdfast.audit_20261101.login IS 'The database login that wrote it.';
COMMENT ON COLUMN holdfast.audit_20261101.entries IS 'What happened, as an array: one row names all tasks that one statement created.';
COMMENT ON COLUMN holdfast.audit_20261101.hash IS 'SHA-256 of the hash before it and of the row: docs/audit.md.';
CREATE TABLE holdfast.audit_20261201 (
    chain smallint NOT NULL,
    n bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    login text NOT NULL,
    entries json NOT NULL,
    hash bytea NOT NULL
);
ALTER TABLE ONLY holdfast.audit_20261201 ALTER COLUMN entries SET COMPRESSION lz4;
COMMENT ON COLUMN holdfast.audit_20261201.n IS 'Place in the chain, from 1 without a gap.';
COMMENT ON COLUMN holdfast.audit_20261201.login IS 'The database login that wrote it.';
COMMENT ON COLUMN holdfast.audit_20261201.entries IS 'What happened, as an array: one row names all tasks that one statement created.';
COMMENT ON COLUMN holdfast.audit_20261201.hash IS 'SHA-256 of the hash before it and of the row: docs/audit.md.';
CREATE TABLE holdfast.audit_chains (
    chain smallint NOT NULL,
    length bigint DEFAULT 0 NOT NULL,
    head bytea DEFAULT '\x'::bytea NOT NULL,
    removed bigint DEFAULT 0 NOT NULL,
    removed_head bytea DEFAULT '\x'::bytea NOT NULL,
    CONSTRAINT audit_chains_order CHECK (((removed >= 0) AND (removed <= length)))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0');
COMMENT ON TABLE holdfast.audit_chains IS 'Where each chain of audit_log begins and ends, so that the removal of rows is noticed.';
COMMENT ON COLUMN holdfast.audit_chains.length IS 'How many rows the chain has had.';
COMMENT ON COLUMN holdfast.audit_chains.head IS 'The hash of the last row.';
COMMENT ON COLUMN holdfast.audit_chains.removed IS 'The last row that retention removed; it removes all rows before it, too. 0: none.';
COMMENT ON COLUMN holdfast.audit_chains.removed_head IS 'The hash of that row: the next one continues it.';
CREATE TABLE holdfast.tasks (
    id uuid NOT NULL,
    client_id text,
    agent text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    owner text DEFAULT ''::text NOT NULL,
    context_id text NOT NULL,
    state smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    held_at timestamp with time zone,
    last_seq bigint NOT NULL,
    status_seq bigint NOT NULL,
    status_at timestamp with time zone DEFAULT now() NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    run_ordinal bigint DEFAULT 0 NOT NULL,
    runs integer DEFAULT 0 NOT NULL,
    turns integer DEFAULT 1 NOT NULL,
    pending integer DEFAULT 0 NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    cancel_requested_at timestamp with time zone,
    direct boolean DEFAULT false NOT NULL,
    pushes boolean DEFAULT false NOT NULL,
    dialect text NOT NULL,
    stream_base bigint,
    artifact_bytes bigint DEFAULT 0 NOT NULL,
    metadata json,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    artifacts_seq bigint,
    wakes_at timestamp with time zone,
    interruptible boolean DEFAULT false NOT NULL,
    resume_until timestamp with time zone,
    resumed_seq bigint,
    lineage boolean DEFAULT false NOT NULL,
    posted bigint DEFAULT 0 NOT NULL,
    posted_attempt integer DEFAULT 0 NOT NULL,
    heard_at timestamp with time zone,
    traceparent text,
    agent_metadata json,
    retried_as uuid,
    CONSTRAINT tasks_counts CHECK (((attempt >= 0) AND (run_ordinal >= 0) AND (runs >= 0) AND (turns >= 1) AND (pending >= 0))),
    CONSTRAINT tasks_seq_order CHECK (((status_seq >= 1) AND (status_seq <= last_seq))),
    CONSTRAINT tasks_state_known CHECK ((state = ANY (ARRAY[1, 2, 3, 4, 5, 6, 7, 8]))),
    CONSTRAINT tasks_worker_runs CHECK (((worker_id IS NULL) OR (state < 3)))
)
PARTITION BY LIST (state);
COMMENT ON TABLE holdfast.tasks IS 'The current state of each task: the projection of its log in task_events.';
COMMENT ON COLUMN holdfast.tasks.id IS 'UUIDv7 made by the server; also the public id unless client_id is set.';
COMMENT ON COLUMN holdfast.tasks.client_id IS 'The public id when the client chose it (A2A 0.1). Unique through task_names.';
COMMENT ON COLUMN holdfast.tasks.state IS '1 submitted, 2 working, 3 input-required, 4 auth-required, 5 completed, 6 failed, 7 canceled, 8 rejected.';
COMMENT ON COLUMN holdfast.tasks.kept IS 'Its rows have moved, or are moving, out of their period, so that the period can be dropped.';
COMMENT ON COLUMN holdfast.tasks.held_at IS 'When an operator put it on hold, which exempts it from retention; null: no hold.';
COMMENT ON COLUMN holdfast.tasks.last_seq IS 'Sequence number of the newest event in task_events; they count from 1 without a gap.';
COMMENT ON COLUMN holdfast.tasks.status_seq IS 'The event that set the current status.';
COMMENT ON COLUMN holdfast.tasks.status_at IS 'When that event was written; of an ended task, when it ended.';
COMMENT ON COLUMN holdfast.tasks.attempt IS 'Fencing token: each claim and each rescue raises it; a write with an older one is refused.';
COMMENT ON COLUMN holdfast.tasks.run_ordinal IS 'How many events the current attempt has written, so that a retried append writes nothing twice.';
COMMENT ON COLUMN holdfast.tasks.runs IS 'How often an executor was started for this task.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer, the results of calls or a resume URL.';
COMMENT ON COLUMN holdfast.tasks.pending IS 'Messages that wait behind the one that is queued or running.';
COMMENT ON COLUMN holdfast.tasks.worker_id IS 'The process that runs it now.';
COMMENT ON COLUMN holdfast.tasks.claimed_at IS 'When the newest attempt was claimed.';
COMMENT ON COLUMN holdfast.tasks.cancel_requested IS 'A client asked to cancel it.';
COMMENT ON COLUMN holdfast.tasks.cancel_requested_at IS 'When cancel_requested was first set.';
COMMENT ON COLUMN holdfast.tasks.direct IS 'The agent answered with a bare Message; lists leave such tasks out.';
COMMENT ON COLUMN holdfast.tasks.pushes IS 'It has webhook configurations. If it has none, writers skip the tables of webhooks.';
COMMENT ON COLUMN holdfast.tasks.dialect IS 'The A2A version of the request that created it.';
COMMENT ON COLUMN holdfast.tasks.stream_base IS 'How many events the earlier tasks with its client_id had; null for the first one. A stream id is this plus seq, so the stream ids of one public id only grow.';
COMMENT ON COLUMN holdfast.tasks.artifact_bytes IS 'Bytes of all artifact chunks that its runs have written, including replaced ones.';
COMMENT ON COLUMN holdfast.tasks.artifacts_seq IS 'The newest status that lists the ids of all artifacts before it, in their order.';
COMMENT ON COLUMN holdfast.tasks.wakes_at IS 'When the wait of its agent ends; infinity: with the results of its calls; null: it does not wait. The next claim sets it to null.';
COMMENT ON COLUMN holdfast.tasks.interruptible IS 'With wakes_at: a message of the client ends the wait.';
COMMENT ON COLUMN holdfast.tasks.resume_until IS 'Parked: until when the resume URL of its turn is valid; null: its agent has not asked for that.';
COMMENT ON COLUMN holdfast.tasks.resumed_seq IS 'The run note of a resume that came before the run has parked; null: none came.';
COMMENT ON COLUMN holdfast.tasks.lineage IS 'A task has called it, or it has called one: the statement that ends or parks it writes to task_settled.';
COMMENT ON COLUMN holdfast.tasks.posted IS 'How many events posted_attempt has taken through the run API, so that a repeated upload writes nothing twice.';
COMMENT ON COLUMN holdfast.tasks.posted_attempt IS 'The newest attempt whose agent has called the run API.';
COMMENT ON COLUMN holdfast.tasks.heard_at IS 'When it last sent events or a heartbeat there.';
COMMENT ON COLUMN holdfast.tasks.traceparent IS 'W3C Trace Context of the span that created it; null: it was not traced.';
COMMENT ON COLUMN holdfast.tasks.agent_metadata IS 'The metadata of its statuses, merged. Clients see it in that of the task.';
COMMENT ON COLUMN holdfast.tasks.retried_as IS 'The task that the newest retry by an operator has made of it; null: none.';
CREATE VIEW holdfast.callers_log WITH (security_barrier='true') AS
 SELECT t.id,
    e.task,
    e.seq,
    e.kind,
    e.state,
    e.attempt,
    e.append,
    e.last,
    e.artifact_id,
    e.payload,
    e.created_at,
    t.client_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    t.dialect,
    t.metadata,
    t.created_at AS task_created_at,
    t.stream_base,
    t.last_seq
   FROM (holdfast.tasks t
     JOIN holdfast.task_events e ON ((e.task = t.id)))
  WHERE (((t.tenant, t.owner) = ( SELECT (holdfast.caller())[1] AS caller,
            (holdfast.caller())[2] AS caller)) OR (t.tenant = ( SELECT (holdfast.caller())[3] AS caller)) OR ( SELECT (pg_has_role(CURRENT_USER, c.relowner, 'USAGE'::text) OR (EXISTS ( SELECT
                   FROM (pg_policy p
                     CROSS JOIN LATERAL unnest(p.polroles) r(r))
                  WHERE ((p.polrelid = c.oid) AND (p.polname = 'servers'::name) AND pg_has_role(CURRENT_USER, r.r, 'USAGE'::text)))))
           FROM pg_class c
          WHERE (c.oid = ('holdfast.tasks'::regclass)::oid)));
COMMENT ON VIEW holdfast.callers_log IS 'The events of the tasks that the caller sees, with their task. For the server; readers have v_events.';
CREATE TABLE holdfast.cancel_notices (
    task uuid NOT NULL,
    agent text NOT NULL,
    reason text NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    worker_id uuid,
    ended_at timestamp with time zone,
    delivered boolean DEFAULT false NOT NULL,
    error text DEFAULT ''::text NOT NULL
)
WITH (fillfactor='70');
COMMENT ON TABLE holdfast.cancel_notices IS 'What agents are told about canceled tasks that they have worked on. A row ends with its task.';
COMMENT ON COLUMN holdfast.cancel_notices.reason IS 'canceled (by a client or an operator) or expired (it was parked for too long).';
COMMENT ON COLUMN holdfast.cancel_notices.requested_at IS 'When the cancel was requested.';
COMMENT ON COLUMN holdfast.cancel_notices.due_at IS 'When the next try is due. During a try: when the claim on it ends.';
COMMENT ON COLUMN holdfast.cancel_notices.tries IS 'How many tries it has had. A try records its result only if no later one has begun.';
COMMENT ON COLUMN holdfast.cancel_notices.worker_id IS 'The process that made the newest try.';
COMMENT ON COLUMN holdfast.cancel_notices.ended_at IS 'When it was delivered or given up; null: a try is due or under way.';
COMMENT ON COLUMN holdfast.cancel_notices.delivered IS 'With ended_at: the agent has accepted it.';
COMMENT ON COLUMN holdfast.cancel_notices.error IS 'The error of the newest try that failed.';
CREATE TABLE holdfast.context_states (
    tenant text NOT NULL,
    owner text NOT NULL,
    agent text NOT NULL,
    context_id text NOT NULL,
    task uuid NOT NULL,
    version bigint NOT NULL,
    value json,
    request_id uuid NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT context_states_version CHECK ((version > 0))
)
WITH (fillfactor='70');
COMMENT ON TABLE holdfast.context_states IS 'The value that an agent has stored for a context of an owner. It ends with the last task of the context.';
COMMENT ON COLUMN holdfast.context_states.task IS 'The task whose run wrote it last.';
COMMENT ON COLUMN holdfast.context_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.context_states.value IS 'Null: the agent has removed it.';
COMMENT ON COLUMN holdfast.context_states.request_id IS 'The write that stored it, which may be repeated after a lost connection.';
CREATE TABLE holdfast.erasures (
    task uuid NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE holdfast.erasures IS 'Deleted tasks whose logs still have to be deleted.';
CREATE TABLE holdfast.events_log (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
)
PARTITION BY RANGE (task);
ALTER TABLE ONLY holdfast.events_log ALTER COLUMN payload SET COMPRESSION lz4;
CREATE TABLE holdfast.events_20261101 (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
);
ALTER TABLE ONLY holdfast.events_20261101 ALTER COLUMN artifact_id SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.events_20261101 ALTER COLUMN payload SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.events_20261101 ALTER COLUMN payload SET COMPRESSION lz4;
CREATE TABLE holdfast.events_20261201 (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
);
ALTER TABLE ONLY holdfast.events_20261201 ALTER COLUMN artifact_id SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.events_20261201 ALTER COLUMN payload SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.events_20261201 ALTER COLUMN payload SET COMPRESSION lz4;
CREATE TABLE holdfast.events_kept (
    task uuid NOT NULL,
    seq bigint NOT NULL,
    kind smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    state smallint,
    attempt integer NOT NULL,
    append boolean DEFAULT false NOT NULL,
    last boolean DEFAULT false NOT NULL,
    artifact_id text,
    payload json,
    request_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    CONSTRAINT task_events_artifact_named CHECK (((kind = 3) = (artifact_id IS NOT NULL))),
    CONSTRAINT task_events_kind_known CHECK ((kind = ANY (ARRAY[1, 2, 3, 4]))),
    CONSTRAINT task_events_state_of_status CHECK (((kind = 2) = (state IS NOT NULL)))
);
ALTER TABLE ONLY holdfast.events_kept ALTER COLUMN artifact_id SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.events_kept ALTER COLUMN payload SET STORAGE MAIN;
ALTER TABLE ONLY holdfast.events_kept ALTER COLUMN payload SET COMPRESSION lz4;
CREATE TABLE holdfast.idempotency_keys (
    day date NOT NULL,
    tenant text NOT NULL,
    owner text NOT NULL,
    key text NOT NULL,
    request_hash bytea NOT NULL,
    task uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
)
PARTITION BY RANGE (day);
COMMENT ON TABLE holdfast.idempotency_keys IS 'Idempotency-Key headers seen, with the hash of the request and the task that it led to.';
COMMENT ON COLUMN holdfast.idempotency_keys.day IS 'The day (UTC) that the key was used on; near midnight there is a row for each of the two days.';
CREATE TABLE holdfast.keys_20261130 (
    day date NOT NULL,
    tenant text NOT NULL,
    owner text NOT NULL,
    key text NOT NULL,
    request_hash bytea NOT NULL,
    task uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON COLUMN holdfast.keys_20261130.day IS 'The day (UTC) that the key was used on; near midnight there is a row for each of the two days.';
CREATE TABLE holdfast.keys_20261201 (
    day date NOT NULL,
    tenant text NOT NULL,
    owner text NOT NULL,
    key text NOT NULL,
    request_hash bytea NOT NULL,
    task uuid NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON COLUMN holdfast.keys_20261201.day IS 'The day (UTC) that the key was used on; near midnight there is a row for each of the two days.';
CREATE TABLE holdfast.leases (
    name text NOT NULL,
    holder uuid NOT NULL,
    until timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
COMMENT ON TABLE holdfast.leases IS 'The duties that one process has at a time, such as creating partitions.';
CREATE TABLE holdfast.processes (
    id uuid NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE holdfast.processes IS 'Every process that ever registered, for the names of workers in the log. Retention removes old rows.';
CREATE TABLE holdfast.push_configs (
    task uuid NOT NULL,
    config_id text NOT NULL,
    agent text NOT NULL,
    public_id text NOT NULL,
    dialect text NOT NULL,
    url text NOT NULL,
    schemes json NOT NULL,
    secrets bytea,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE holdfast.push_configs IS 'Where to deliver the events of a task.';
COMMENT ON COLUMN holdfast.push_configs.config_id IS 'Unique within its task; the task''s public id for the default one.';
COMMENT ON COLUMN holdfast.push_configs.agent IS 'As the task''s: claims look at no task.';
COMMENT ON COLUMN holdfast.push_configs.public_id IS 'The task''s public id when the configuration was set, by which the receiver knows it; another task may have that client_id since.';
COMMENT ON COLUMN holdfast.push_configs.dialect IS 'The A2A version of the request that set it: decides bodies and headers.';
COMMENT ON COLUMN holdfast.push_configs.schemes IS 'Authentication schemes of the receiver, the preferred one first.';
COMMENT ON COLUMN holdfast.push_configs.secrets IS 'Token and credentials, sealed (internal/secrets); null for neither.';
CREATE TABLE holdfast.push_cursors (
    task uuid NOT NULL,
    config_id text NOT NULL,
    host text NOT NULL,
    caller bigint DEFAULT 0 NOT NULL,
    artifacts boolean NOT NULL,
    next_seq bigint DEFAULT 1 NOT NULL,
    due_seq bigint DEFAULT 0 NOT NULL,
    due_at timestamp with time zone,
    due_since timestamp with time zone,
    parked boolean DEFAULT false NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    last_error text,
    claim uuid,
    worker_id uuid,
    locked_until timestamp with time zone,
    disabled_at timestamp with time zone,
    disabled_for text,
    accepted boolean DEFAULT false NOT NULL,
    CONSTRAINT push_cursors_claimed CHECK ((((claim IS NULL) = (locked_until IS NULL)) AND ((claim IS NULL) = (worker_id IS NULL)))),
    CONSTRAINT push_cursors_counts CHECK (((next_seq >= 1) AND (attempts >= 0)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0');
COMMENT ON TABLE holdfast.push_cursors IS 'How far each configuration has been delivered and when it is due again.';
COMMENT ON COLUMN holdfast.push_cursors.host IS 'Host and port of the URL: concurrency is bounded per host.';
COMMENT ON COLUMN holdfast.push_cursors.caller IS 'push_caller of the task''s tenant and owner: concurrency is bounded per caller.';
COMMENT ON COLUMN holdfast.push_cursors.artifacts IS 'Artifact events are delivered, too.';
COMMENT ON COLUMN holdfast.push_cursors.next_seq IS 'The first event that has not been delivered or passed over.';
COMMENT ON COLUMN holdfast.push_cursors.due_seq IS 'The newest event to deliver; set by the commit that writes it. 0: none yet.';
COMMENT ON COLUMN holdfast.push_cursors.due_at IS 'When to look next: the next attempt, or the end of a claim. Null: nothing to deliver, or disabled.';
COMMENT ON COLUMN holdfast.push_cursors.due_since IS 'Since when there has been something to deliver.';
COMMENT ON COLUMN holdfast.push_cursors.parked IS 'It is due and parked, because its host or its caller is at the concurrency limit.';
COMMENT ON COLUMN holdfast.push_cursors.attempts IS 'Failed attempts since the last success.';
COMMENT ON COLUMN holdfast.push_cursors.claim IS 'Fencing token of the process that delivers at present; each claim makes a new one.';
COMMENT ON COLUMN holdfast.push_cursors.disabled_at IS 'Since when nothing is delivered, for the reason in disabled_for. Events are still marked.';
COMMENT ON COLUMN holdfast.push_cursors.accepted IS 'Its receiver has accepted a delivery at this URL.';
CREATE TABLE holdfast.remote_workers (
    id uuid NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    version text DEFAULT ''::text NOT NULL,
    sdk text DEFAULT ''::text NOT NULL,
    agents text[] DEFAULT '{}'::text[] NOT NULL,
    replica text DEFAULT ''::text NOT NULL,
    first_seen timestamp with time zone DEFAULT now() NOT NULL,
    last_seen timestamp with time zone DEFAULT now() NOT NULL,
    retired_at timestamp with time zone,
    left_at timestamp with time zone
);
COMMENT ON TABLE holdfast.remote_workers IS 'Workers that have connected through the worker API. A replica writes about its workers every few seconds, not with each request.';
COMMENT ON COLUMN holdfast.remote_workers.id IS 'Chosen by the worker, new at each start.';
COMMENT ON COLUMN holdfast.remote_workers.name IS 'As the worker says, such as the name of its host.';
COMMENT ON COLUMN holdfast.remote_workers.version IS 'Of the code of its agents, as the worker says.';
COMMENT ON COLUMN holdfast.remote_workers.sdk IS 'The SDK and the language, as the worker says.';
COMMENT ON COLUMN holdfast.remote_workers.agents IS 'The agents of its last claim.';
COMMENT ON COLUMN holdfast.remote_workers.replica IS 'The server process that answered it last.';
COMMENT ON COLUMN holdfast.remote_workers.last_seen IS 'When it last sent a request or had one open, to within a minute.';
COMMENT ON COLUMN holdfast.remote_workers.retired_at IS 'When an operator told it to claim no more; null: it may claim.';
COMMENT ON COLUMN holdfast.remote_workers.left_at IS 'When it said that it stops, or when its connection broke without a new one; null: neither.';
CREATE TABLE holdfast.retention_progress (
    job text NOT NULL,
    at timestamp with time zone NOT NULL,
    task uuid NOT NULL
)
WITH (fillfactor='50');
COMMENT ON TABLE holdfast.retention_progress IS 'How far each job of retention has come. A job goes through ended tasks in the order of (status_at, id).';
COMMENT ON COLUMN holdfast.retention_progress.job IS 'artifacts/<partition>/<agent>: deletes artifacts; export/<partition>/<agent>: writes tasks to files.';
CREATE TABLE holdfast.schema_version (
    id integer NOT NULL,
    version_id bigint NOT NULL,
    is_applied boolean NOT NULL,
    tstamp timestamp without time zone DEFAULT now() NOT NULL
);
ALTER TABLE holdfast.schema_version ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME holdfast.schema_version_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE holdfast.secrets (
    name text NOT NULL,
    value bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE holdfast.secrets IS 'Secret: keys that all replicas share.';
COMMENT ON COLUMN holdfast.secrets.name IS 'page_token: signs the page tokens of lists; a new value invalidates the tokens in use. push: seals the secrets of webhooks, and what comes by resume URLs, and signs these URLs, if the environment has no key. memory: makes the keys under which agents keep memory; with a new value they lose it.';
CREATE TABLE holdfast.signing_keys (
    key_id text NOT NULL,
    algorithm text NOT NULL,
    private_key bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    active_at timestamp with time zone NOT NULL,
    CONSTRAINT signing_keys_algorithm_known CHECK ((algorithm = 'ES256'::text))
);
COMMENT ON TABLE holdfast.signing_keys IS 'Secret: the keys that replicas sign cards and webhooks with. Deleting a row withdraws the key within a minute.';
COMMENT ON COLUMN holdfast.signing_keys.key_id IS 'The kid of signatures and of the published set: RFC 7638 thumbprint.';
COMMENT ON COLUMN holdfast.signing_keys.private_key IS 'PKCS #8.';
COMMENT ON COLUMN holdfast.signing_keys.active_at IS 'When it starts to sign. It signs until a later key starts.';
CREATE TABLE holdfast.task_calls (
    parent uuid NOT NULL,
    seq bigint NOT NULL,
    nth integer NOT NULL,
    call_id text NOT NULL,
    agent text NOT NULL,
    child uuid NOT NULL,
    answers boolean NOT NULL,
    root uuid NOT NULL,
    callers text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    after_seq bigint DEFAULT 0 NOT NULL,
    settled_at timestamp with time zone,
    state smallint,
    child_seq bigint,
    error text,
    relay boolean DEFAULT false NOT NULL,
    relayed_seq bigint DEFAULT 0 NOT NULL,
    relayed_at timestamp with time zone,
    CONSTRAINT task_calls_settled CHECK (((settled_at IS NULL) = (state IS NULL)))
)
WITH (fillfactor='80');
COMMENT ON TABLE holdfast.task_calls IS 'The calls of agents: which task has called which. They are deleted with the caller.';
COMMENT ON COLUMN holdfast.task_calls.parent IS 'The task that has called.';
COMMENT ON COLUMN holdfast.task_calls.seq IS 'The run note of the caller with the calls.';
COMMENT ON COLUMN holdfast.task_calls.nth IS 'Place in that note, from 1.';
COMMENT ON COLUMN holdfast.task_calls.call_id IS 'The name that the caller gave it.';
COMMENT ON COLUMN holdfast.task_calls.agent IS 'The agent that is called.';
COMMENT ON COLUMN holdfast.task_calls.child IS 'The task that is called. It does not exist before started_at.';
COMMENT ON COLUMN holdfast.task_calls.answers IS 'The call is a message to a task of an earlier call.';
COMMENT ON COLUMN holdfast.task_calls.root IS 'The caller that nothing has called.';
COMMENT ON COLUMN holdfast.task_calls.callers IS 'The agents of the callers, from that of the root to that of the parent.';
COMMENT ON COLUMN holdfast.task_calls.started_at IS 'When the child was created, or got the message.';
COMMENT ON COLUMN holdfast.task_calls.after_seq IS 'Events of the child up to this one are no result: they came before the message.';
COMMENT ON COLUMN holdfast.task_calls.settled_at IS 'When the call got its result; null: it has none yet.';
COMMENT ON COLUMN holdfast.task_calls.state IS 'The state of the child that is the result; 8 with an error for a call that was refused.';
COMMENT ON COLUMN holdfast.task_calls.child_seq IS 'The status of the child with that state.';
COMMENT ON COLUMN holdfast.task_calls.error IS 'Why the call was refused.';
COMMENT ON COLUMN holdfast.task_calls.relay IS 'The caller shows the progress of the child while it waits for this call.';
COMMENT ON COLUMN holdfast.task_calls.relayed_seq IS 'The statuses of the child up to this one have been relayed, or newer ones instead.';
COMMENT ON COLUMN holdfast.task_calls.relayed_at IS 'When a status of the child was last relayed; null: never.';
CREATE TABLE holdfast.task_names (
    tenant text NOT NULL,
    owner text NOT NULL,
    agent text NOT NULL,
    client_id text NOT NULL,
    task uuid NOT NULL
);
COMMENT ON TABLE holdfast.task_names IS 'The ids that clients chose for their tasks (A2A 0.1).';
COMMENT ON COLUMN holdfast.task_names.task IS 'The task that has the name now.';
CREATE TABLE holdfast.task_queue (
    id uuid NOT NULL,
    agent text NOT NULL,
    available_at timestamp with time zone DEFAULT now() NOT NULL,
    worker_id uuid,
    message_seq bigint NOT NULL,
    turn integer DEFAULT 1 NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    away_since timestamp with time zone,
    suspect boolean DEFAULT false NOT NULL,
    spared integer DEFAULT 0 NOT NULL,
    message_bytes integer DEFAULT 0 NOT NULL,
    wakes_at timestamp with time zone,
    input_seq bigint,
    interrupted boolean DEFAULT false NOT NULL,
    forwarded jsonb,
    lease_until timestamp with time zone,
    look_at timestamp with time zone
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0');
COMMENT ON TABLE holdfast.task_queue IS 'Tasks that wait for a run (worker_id is null) or have one. The row is deleted when the run parks or ends the task.';
COMMENT ON COLUMN holdfast.task_queue.available_at IS 'When it is due; no process claims it earlier. A retry is due after its backoff.';
COMMENT ON COLUMN holdfast.task_queue.message_seq IS 'The newest message that a run has answered or answers.';
COMMENT ON COLUMN holdfast.task_queue.turn IS 'Number of the turn, from 1.';
COMMENT ON COLUMN holdfast.task_queue.tries IS 'How many tries this turn has had.';
COMMENT ON COLUMN holdfast.task_queue.away_since IS 'Since when the agent has not begun this run: it was away, or too busy; null otherwise.';
COMMENT ON COLUMN holdfast.task_queue.suspect IS 'Its last run was lost with its process and may have been the reason. A process starts one such run at a time.';
COMMENT ON COLUMN holdfast.task_queue.spared IS 'How many of its tries were lost with a process that also lost other runs.';
COMMENT ON COLUMN holdfast.task_queue.message_bytes IS 'Size of the message that the run answers, as text. A worker claims as many messages as its memory allows.';
COMMENT ON COLUMN holdfast.task_queue.wakes_at IS 'When its timer fires; infinity: its turn begins with the results of calls; null: neither. No process claims it before.';
COMMENT ON COLUMN holdfast.task_queue.input_seq IS 'The run note with the wait or the calls that this turn follows, or with the resume that began it; null for a turn that only a message began.';
COMMENT ON COLUMN holdfast.task_queue.interrupted IS 'With input_seq: a message ended the wait. The run answers that message.';
COMMENT ON COLUMN holdfast.task_queue.forwarded IS 'Headers of the requests with its messages, by the seq of the message: sealed (internal/secrets), in base64. Null: none.';
COMMENT ON COLUMN holdfast.task_queue.lease_until IS 'While a remote worker has the run: when its lease ends unless the worker renews it. Null for runs of server processes.';
COMMENT ON COLUMN holdfast.task_queue.look_at IS 'While a remote worker has the run: when a server process checks its lease, its timeouts and its cancel.';
CREATE TABLE holdfast.task_settled (
    task uuid NOT NULL,
    seq bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0');
COMMENT ON TABLE holdfast.task_settled IS 'Tasks with a lineage that have ended or parked, until the duty calls has told their callers and ended what they called.';
COMMENT ON COLUMN holdfast.task_settled.seq IS 'The status that ended or parked it; of a deleted task, one more than its last event.';
CREATE TABLE holdfast.task_states (
    task uuid NOT NULL,
    version bigint NOT NULL,
    value json,
    request_id uuid NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT task_states_version CHECK ((version > 0))
)
WITH (fillfactor='70');
COMMENT ON TABLE holdfast.task_states IS 'The value that an agent has stored for a task. It ends with the task.';
COMMENT ON COLUMN holdfast.task_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.task_states.value IS 'Null: the agent has removed it.';
COMMENT ON COLUMN holdfast.task_states.request_id IS 'The write that stored it, which may be repeated after a lost connection.';
CREATE TABLE holdfast.tasks_ended (
    id uuid NOT NULL,
    client_id text,
    agent text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    owner text DEFAULT ''::text NOT NULL,
    context_id text NOT NULL,
    state smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    held_at timestamp with time zone,
    last_seq bigint NOT NULL,
    status_seq bigint NOT NULL,
    status_at timestamp with time zone DEFAULT now() NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    run_ordinal bigint DEFAULT 0 NOT NULL,
    runs integer DEFAULT 0 NOT NULL,
    turns integer DEFAULT 1 NOT NULL,
    pending integer DEFAULT 0 NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    cancel_requested_at timestamp with time zone,
    direct boolean DEFAULT false NOT NULL,
    pushes boolean DEFAULT false NOT NULL,
    dialect text NOT NULL,
    stream_base bigint,
    artifact_bytes bigint DEFAULT 0 NOT NULL,
    metadata json,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    artifacts_seq bigint,
    wakes_at timestamp with time zone,
    interruptible boolean DEFAULT false NOT NULL,
    resume_until timestamp with time zone,
    resumed_seq bigint,
    lineage boolean DEFAULT false NOT NULL,
    posted bigint DEFAULT 0 NOT NULL,
    posted_attempt integer DEFAULT 0 NOT NULL,
    heard_at timestamp with time zone,
    traceparent text,
    agent_metadata json,
    retried_as uuid,
    CONSTRAINT tasks_counts CHECK (((attempt >= 0) AND (run_ordinal >= 0) AND (runs >= 0) AND (turns >= 1) AND (pending >= 0))),
    CONSTRAINT tasks_seq_order CHECK (((status_seq >= 1) AND (status_seq <= last_seq))),
    CONSTRAINT tasks_state_known CHECK ((state = ANY (ARRAY[1, 2, 3, 4, 5, 6, 7, 8]))),
    CONSTRAINT tasks_worker_runs CHECK (((worker_id IS NULL) OR (state < 3)))
)
PARTITION BY LIST (kept);
CREATE TABLE holdfast.tasks_dated (
    id uuid NOT NULL,
    client_id text,
    agent text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    owner text DEFAULT ''::text NOT NULL,
    context_id text NOT NULL,
    state smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    held_at timestamp with time zone,
    last_seq bigint NOT NULL,
    status_seq bigint NOT NULL,
    status_at timestamp with time zone DEFAULT now() NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    run_ordinal bigint DEFAULT 0 NOT NULL,
    runs integer DEFAULT 0 NOT NULL,
    turns integer DEFAULT 1 NOT NULL,
    pending integer DEFAULT 0 NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    cancel_requested_at timestamp with time zone,
    direct boolean DEFAULT false NOT NULL,
    pushes boolean DEFAULT false NOT NULL,
    dialect text NOT NULL,
    stream_base bigint,
    artifact_bytes bigint DEFAULT 0 NOT NULL,
    metadata json,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    artifacts_seq bigint,
    wakes_at timestamp with time zone,
    interruptible boolean DEFAULT false NOT NULL,
    resume_until timestamp with time zone,
    resumed_seq bigint,
    lineage boolean DEFAULT false NOT NULL,
    posted bigint DEFAULT 0 NOT NULL,
    posted_attempt integer DEFAULT 0 NOT NULL,
    heard_at timestamp with time zone,
    traceparent text,
    agent_metadata json,
    retried_as uuid,
    CONSTRAINT tasks_counts CHECK (((attempt >= 0) AND (run_ordinal >= 0) AND (runs >= 0) AND (turns >= 1) AND (pending >= 0))),
    CONSTRAINT tasks_seq_order CHECK (((status_seq >= 1) AND (status_seq <= last_seq))),
    CONSTRAINT tasks_state_known CHECK ((state = ANY (ARRAY[1, 2, 3, 4, 5, 6, 7, 8]))),
    CONSTRAINT tasks_worker_runs CHECK (((worker_id IS NULL) OR (state < 3)))
)
PARTITION BY RANGE (id);
CREATE TABLE holdfast.tasks_20261101 (
    id uuid NOT NULL,
    client_id text,
    agent text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    owner text DEFAULT ''::text NOT NULL,
    context_id text NOT NULL,
    state smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    held_at timestamp with time zone,
    last_seq bigint NOT NULL,
    status_seq bigint NOT NULL,
    status_at timestamp with time zone DEFAULT now() NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    run_ordinal bigint DEFAULT 0 NOT NULL,
    runs integer DEFAULT 0 NOT NULL,
    turns integer DEFAULT 1 NOT NULL,
    pending integer DEFAULT 0 NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    cancel_requested_at timestamp with time zone,
    direct boolean DEFAULT false NOT NULL,
    pushes boolean DEFAULT false NOT NULL,
    dialect text NOT NULL,
    stream_base bigint,
    artifact_bytes bigint DEFAULT 0 NOT NULL,
    metadata json,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    artifacts_seq bigint,
    wakes_at timestamp with time zone,
    interruptible boolean DEFAULT false NOT NULL,
    resume_until timestamp with time zone,
    resumed_seq bigint,
    lineage boolean DEFAULT false NOT NULL,
    posted bigint DEFAULT 0 NOT NULL,
    posted_attempt integer DEFAULT 0 NOT NULL,
    heard_at timestamp with time zone,
    traceparent text,
    agent_metadata json,
    retried_as uuid,
    CONSTRAINT tasks_counts CHECK (((attempt >= 0) AND (run_ordinal >= 0) AND (runs >= 0) AND (turns >= 1) AND (pending >= 0))),
    CONSTRAINT tasks_seq_order CHECK (((status_seq >= 1) AND (status_seq <= last_seq))),
    CONSTRAINT tasks_state_known CHECK ((state = ANY (ARRAY[1, 2, 3, 4, 5, 6, 7, 8]))),
    CONSTRAINT tasks_worker_runs CHECK (((worker_id IS NULL) OR (state < 3)))
);
CREATE TABLE holdfast.tasks_20261201 (
    id uuid NOT NULL,
    client_id text,
    agent text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    owner text DEFAULT ''::text NOT NULL,
    context_id text NOT NULL,
    state smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    held_at timestamp with time zone,
    last_seq bigint NOT NULL,
    status_seq bigint NOT NULL,
    status_at timestamp with time zone DEFAULT now() NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    run_ordinal bigint DEFAULT 0 NOT NULL,
    runs integer DEFAULT 0 NOT NULL,
    turns integer DEFAULT 1 NOT NULL,
    pending integer DEFAULT 0 NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    cancel_requested_at timestamp with time zone,
    direct boolean DEFAULT false NOT NULL,
    pushes boolean DEFAULT false NOT NULL,
    dialect text NOT NULL,
    stream_base bigint,
    artifact_bytes bigint DEFAULT 0 NOT NULL,
    metadata json,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    artifacts_seq bigint,
    wakes_at timestamp with time zone,
    interruptible boolean DEFAULT false NOT NULL,
    resume_until timestamp with time zone,
    resumed_seq bigint,
    lineage boolean DEFAULT false NOT NULL,
    posted bigint DEFAULT 0 NOT NULL,
    posted_attempt integer DEFAULT 0 NOT NULL,
    heard_at timestamp with time zone,
    traceparent text,
    agent_metadata json,
    retried_as uuid,
    CONSTRAINT tasks_counts CHECK (((attempt >= 0) AND (run_ordinal >= 0) AND (runs >= 0) AND (turns >= 1) AND (pending >= 0))),
    CONSTRAINT tasks_seq_order CHECK (((status_seq >= 1) AND (status_seq <= last_seq))),
    CONSTRAINT tasks_state_known CHECK ((state = ANY (ARRAY[1, 2, 3, 4, 5, 6, 7, 8]))),
    CONSTRAINT tasks_worker_runs CHECK (((worker_id IS NULL) OR (state < 3)))
);
CREATE TABLE holdfast.tasks_kept (
    id uuid NOT NULL,
    client_id text,
    agent text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    owner text DEFAULT ''::text NOT NULL,
    context_id text NOT NULL,
    state smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    held_at timestamp with time zone,
    last_seq bigint NOT NULL,
    status_seq bigint NOT NULL,
    status_at timestamp with time zone DEFAULT now() NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    run_ordinal bigint DEFAULT 0 NOT NULL,
    runs integer DEFAULT 0 NOT NULL,
    turns integer DEFAULT 1 NOT NULL,
    pending integer DEFAULT 0 NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    cancel_requested_at timestamp with time zone,
    direct boolean DEFAULT false NOT NULL,
    pushes boolean DEFAULT false NOT NULL,
    dialect text NOT NULL,
    stream_base bigint,
    artifact_bytes bigint DEFAULT 0 NOT NULL,
    metadata json,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    artifacts_seq bigint,
    wakes_at timestamp with time zone,
    interruptible boolean DEFAULT false NOT NULL,
    resume_until timestamp with time zone,
    resumed_seq bigint,
    lineage boolean DEFAULT false NOT NULL,
    posted bigint DEFAULT 0 NOT NULL,
    posted_attempt integer DEFAULT 0 NOT NULL,
    heard_at timestamp with time zone,
    traceparent text,
    agent_metadata json,
    retried_as uuid,
    CONSTRAINT tasks_counts CHECK (((attempt >= 0) AND (run_ordinal >= 0) AND (runs >= 0) AND (turns >= 1) AND (pending >= 0))),
    CONSTRAINT tasks_seq_order CHECK (((status_seq >= 1) AND (status_seq <= last_seq))),
    CONSTRAINT tasks_state_known CHECK ((state = ANY (ARRAY[1, 2, 3, 4, 5, 6, 7, 8]))),
    CONSTRAINT tasks_worker_runs CHECK (((worker_id IS NULL) OR (state < 3)))
);
CREATE TABLE holdfast.tasks_open (
    id uuid NOT NULL,
    client_id text,
    agent text NOT NULL,
    tenant text DEFAULT ''::text NOT NULL,
    owner text DEFAULT ''::text NOT NULL,
    context_id text NOT NULL,
    state smallint NOT NULL,
    kept boolean DEFAULT false NOT NULL,
    held_at timestamp with time zone,
    last_seq bigint NOT NULL,
    status_seq bigint NOT NULL,
    status_at timestamp with time zone DEFAULT now() NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    run_ordinal bigint DEFAULT 0 NOT NULL,
    runs integer DEFAULT 0 NOT NULL,
    turns integer DEFAULT 1 NOT NULL,
    pending integer DEFAULT 0 NOT NULL,
    worker_id uuid,
    claimed_at timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    cancel_requested_at timestamp with time zone,
    direct boolean DEFAULT false NOT NULL,
    pushes boolean DEFAULT false NOT NULL,
    dialect text NOT NULL,
    stream_base bigint,
    artifact_bytes bigint DEFAULT 0 NOT NULL,
    metadata json,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    artifacts_seq bigint,
    wakes_at timestamp with time zone,
    interruptible boolean DEFAULT false NOT NULL,
    resume_until timestamp with time zone,
    resumed_seq bigint,
    lineage boolean DEFAULT false NOT NULL,
    posted bigint DEFAULT 0 NOT NULL,
    posted_attempt integer DEFAULT 0 NOT NULL,
    heard_at timestamp with time zone,
    traceparent text,
    agent_metadata json,
    retried_as uuid,
    CONSTRAINT tasks_counts CHECK (((attempt >= 0) AND (run_ordinal >= 0) AND (runs >= 0) AND (turns >= 1) AND (pending >= 0))),
    CONSTRAINT tasks_seq_order CHECK (((status_seq >= 1) AND (status_seq <= last_seq))),
    CONSTRAINT tasks_state_known CHECK ((state = ANY (ARRAY[1, 2, 3, 4, 5, 6, 7, 8]))),
    CONSTRAINT tasks_worker_runs CHECK (((worker_id IS NULL) OR (state < 3)))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0');
CREATE VIEW holdfast.v_api_keys AS
 SELECT k.key_id,
    k.name,
    k.tenant,
    k.subject,
    k.scopes,
    k.created_at,
    k.expires_at,
    k.revoked_at,
    k.last_used_at
   FROM holdfast.api_keys k;
COMMENT ON VIEW holdfast.v_api_keys IS 'The API keys, without anything that could be used as one.';
COMMENT ON COLUMN holdfast.v_api_keys.key_id IS 'The public part of the key.';
COMMENT ON COLUMN holdfast.v_api_keys.name IS 'The operator''s name for it.';
COMMENT ON COLUMN holdfast.v_api_keys.tenant IS 'With subject, the caller of requests that have the key.';
COMMENT ON COLUMN holdfast.v_api_keys.subject IS 'With tenant, the caller of requests that have the key.';
COMMENT ON COLUMN holdfast.v_api_keys.scopes IS 'The scopes of requests that have the key.';
COMMENT ON COLUMN holdfast.v_api_keys.created_at IS 'When it was created.';
COMMENT ON COLUMN holdfast.v_api_keys.expires_at IS 'When it expires; null: never.';
COMMENT ON COLUMN holdfast.v_api_keys.revoked_at IS 'When it was revoked; null: it was not.';
COMMENT ON COLUMN holdfast.v_api_keys.last_used_at IS 'When it was last used, accurate to five minutes; null: never.';
CREATE VIEW holdfast.v_artifacts AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    a.artifact_id,
    a.index,
    ( SELECT ((e.payload -> 'name'::text) #>> '{}'::text[])
           FROM holdfast.task_events e
          WHERE ((e.task = t.id) AND (e.kind = 3) AND (e.artifact_id = a.artifact_id) AND (e.seq >= a.base) AND ((e.payload -> 'name'::text) IS NOT NULL))
          ORDER BY e.seq DESC
         LIMIT 1) AS name,
    ( SELECT ((e.payload -> 'description'::text) #>> '{}'::text[])
           FROM holdfast.task_events e
          WHERE ((e.task = t.id) AND (e.kind = 3) AND (e.artifact_id = a.artifact_id) AND (e.seq >= a.base) AND ((e.payload -> 'description'::text) IS NOT NULL))
          ORDER BY e.seq DESC
         LIMIT 1) AS description,
    ( SELECT string_agg(((p.value -> 'text'::text) #>> '{}'::text[]), ''::text ORDER BY e.seq, p.n) AS string_agg
           FROM holdfast.task_events e,
            LATERAL json_array_elements((e.payload -> 'parts'::text)) WITH ORDINALITY p(value, n)
          WHERE ((e.task = t.id) AND (e.kind = 3) AND (e.artifact_id = a.artifact_id) AND (e.seq >= a.base))) AS text,
    ( SELECT json_agg(p.value ORDER BY e.seq, p.n) AS json_agg
           FROM holdfast.task_events e,
            LATERAL json_array_elements((e.payload -> 'parts'::text)) WITH ORDINALITY p(value, n)
          WHERE ((e.task = t.id) AND (e.kind = 3) AND (e.artifact_id = a.artifact_id) AND (e.seq >= a.base))) AS parts,
    ( SELECT
                CASE
                    WHEN (count(*) > 1) THEN holdfast.merged(VARIADIC array_agg((e.payload -> 'metadata'::text) ORDER BY e.seq))
                    ELSE (array_agg((e.payload -> 'metadata'::text)))[1]
                END AS array_agg
           FROM holdfast.task_events e
          WHERE ((e.task = t.id) AND (e.kind = 3) AND (e.artifact_id = a.artifact_id) AND (e.seq >= a.base) AND ((e.payload -> 'metadata'::text) IS NOT NULL))) AS metadata,
    ( SELECT json_agg(x.uri ORDER BY x.place) AS json_agg
           FROM ( SELECT u.uri,
                    min(ARRAY[e.seq, u.n]) AS place
                   FROM holdfast.task_events e,
                    LATERAL json_array_elements_text((e.payload -> 'extensions'::text)) WITH ORDINALITY u(uri, n)
                  WHERE ((e.task = t.id) AND (e.kind = 3) AND (e.artifact_id = a.artifact_id) AND (e.seq >= a.base))
                  GROUP BY u.uri) x) AS extensions,
    a.chunks,
    ( SELECT sum(octet_length((e.payload)::text)) AS sum
           FROM holdfast.task_events e
          WHERE ((e.task = t.id) AND (e.kind = 3) AND (e.artifact_id = a.artifact_id) AND (e.seq >= a.base))) AS bytes,
    a.complete,
    a.first_seq,
    a.last_seq,
    a.first_at,
    a.last_at
   FROM (holdfast.tasks t
     CROSS JOIN LATERAL ( SELECT e.artifact_id,
            e.base,
            (row_number() OVER (ORDER BY (min(e.seq))) - 1) AS index,
            count(*) FILTER (WHERE (e.seq >= e.base)) AS chunks,
            bool_or(e.last) FILTER (WHERE (e.seq >= e.base)) AS complete,
            min(e.seq) AS first_seq,
            max(e.seq) AS last_seq,
            min(e.created_at) AS first_at,
            max(e.created_at) AS last_at
           FROM ( SELECT x.artifact_id,
                    x.seq,
                    x.last,
                    x.created_at,
                    COALESCE(max(x.seq) FILTER (WHERE (NOT x.append)) OVER (PARTITION BY x.artifact_id), (0)::bigint) AS base
                   FROM holdfast.task_events x
                  WHERE ((x.task = t.id) AND (x.kind = 3))) e
          GROUP BY e.artifact_id, e.base) a);
COMMENT ON VIEW holdfast.v_artifacts IS 'The artifacts of each task, put together from their chunks as clients see them.';
COMMENT ON COLUMN holdfast.v_artifacts.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_artifacts.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_artifacts.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_artifacts.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_artifacts.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_artifacts.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_artifacts.artifact_id IS 'The id that the agent gave it.';
COMMENT ON COLUMN holdfast.v_artifacts.index IS 'Place among the task''s artifacts by first appearance, from 0.';
COMMENT ON COLUMN holdfast.v_artifacts.name IS 'Its name, if it has one.';
COMMENT ON COLUMN holdfast.v_artifacts.description IS 'Its description, if it has one.';
COMMENT ON COLUMN holdfast.v_artifacts.text IS 'All its text parts joined into one text; null if it has none.';
COMMENT ON COLUMN holdfast.v_artifacts.parts IS 'All parts, as in v_history.';
COMMENT ON COLUMN holdfast.v_artifacts.metadata IS 'Its metadata: that of its chunks, merged by key.';
COMMENT ON COLUMN holdfast.v_artifacts.extensions IS 'The extensions that it names.';
COMMENT ON COLUMN holdfast.v_artifacts.chunks IS 'How many chunks it consists of. Replaced chunks do not count.';
COMMENT ON COLUMN holdfast.v_artifacts.bytes IS 'Size of those chunks as JSON, in bytes.';
COMMENT ON COLUMN holdfast.v_artifacts.complete IS 'The agent marked it as complete.';
COMMENT ON COLUMN holdfast.v_artifacts.first_seq IS 'The event that began it.';
COMMENT ON COLUMN holdfast.v_artifacts.last_seq IS 'Its newest event.';
COMMENT ON COLUMN holdfast.v_artifacts.first_at IS 'When the first chunk was stored, even if it was replaced later.';
COMMENT ON COLUMN holdfast.v_artifacts.last_at IS 'When the newest chunk was stored.';
CREATE VIEW holdfast.v_audit AS
 SELECT l.at,
    x.action,
    (NULLIF((e.entry ->> 'task'::text), ''::text))::uuid AS task,
    COALESCE((e.entry ->> 'agent'::text), ''::text) AS agent,
    COALESCE((e.entry ->> 'tenant'::text), ''::text) AS tenant,
    COALESCE((e.entry ->> 'subject'::text), ''::text) AS subject,
    COALESCE((e.entry ->> 'method'::text), ''::text) AS method,
    COALESCE((e.entry ->> 'credential'::text), ''::text) AS credential,
    COALESCE((e.entry ->> 'address'::text), ''::text) AS address,
    COALESCE(x.object, ''::text) AS object,
    l.login,
    (l.chain)::integer AS chain,
    l.n,
    COALESCE((e.entry ->> 'reason'::text), ''::text) AS reason,
    regexp_replace(COALESCE((e.entry ->> 'address'::text), ''::text), '^(?:\[(.*)\]|([^:]*)):\d+$'::text, '\1\2'::text) AS ip
   FROM ((holdfast.audit_log l
     CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY e(entry, ord))
     CROSS JOIN LATERAL ( SELECT 1 AS nth,
            (e.entry ->> 'action'::text) AS action,
            (e.entry ->> 'object'::text) AS object
        UNION ALL
         SELECT 2,
            'push.set'::text,
            (e.entry ->> 'webhook'::text)
          WHERE ((e.entry ->> 'webhook'::text) IS NOT NULL)) x);
COMMENT ON VIEW holdfast.v_audit IS 'One row per audited action and its caller. ORDER BY at, chain, n sorts by time.';
COMMENT ON COLUMN holdfast.v_audit.at IS 'When, by the database''s clock.';
COMMENT ON COLUMN holdfast.v_audit.action IS 'The action, one of those in docs/audit.md.';
COMMENT ON COLUMN holdfast.v_audit.task IS 'The task''s UUID, which joins the other views; null if the entry is about no task.';
COMMENT ON COLUMN holdfast.v_audit.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_audit.tenant IS 'The tenant of the caller.';
COMMENT ON COLUMN holdfast.v_audit.subject IS 'The caller''s name; empty without identity. For an operator, the account on the machine.';
COMMENT ON COLUMN holdfast.v_audit.method IS 'How the caller authenticated: api_key, basic, jwt, mtls; operator for the command line and the admin API; empty without authentication.';
COMMENT ON COLUMN holdfast.v_audit.credential IS 'The scheme and the id of the credential, if it has one.';
COMMENT ON COLUMN holdfast.v_audit.address IS 'The address of the connection, or the operator''s machine; empty if unknown.';
COMMENT ON COLUMN holdfast.v_audit.object IS 'The object besides the task: the id of a webhook configuration, or of a key.';
COMMENT ON COLUMN holdfast.v_audit.login IS 'The database login that wrote the entry.';
COMMENT ON COLUMN holdfast.v_audit.chain IS 'The chain that holds the entry.';
COMMENT ON COLUMN holdfast.v_audit.n IS 'The row of that chain; several entries may share one.';
COMMENT ON COLUMN holdfast.v_audit.reason IS 'Why the operator acted, as given to the admin API; otherwise empty.';
COMMENT ON COLUMN holdfast.v_audit.ip IS 'The address without its port.';
CREATE VIEW holdfast.v_cancels AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    n.reason,
        CASE
            WHEN n.delivered THEN 'delivered'::text
            WHEN (n.ended_at IS NOT NULL) THEN 'failed'::text
            ELSE 'pending'::text
        END AS phase,
    n.requested_at,
    n.tries,
        CASE
            WHEN (n.ended_at IS NULL) THEN n.due_at
            ELSE NULL::timestamp with time zone
        END AS due_at,
    n.ended_at,
    NULLIF(n.error, ''::text) AS error,
    ( SELECT p.name
           FROM holdfast.processes p
          WHERE (p.id = n.worker_id)) AS worker_name
   FROM (holdfast.cancel_notices n
     JOIN holdfast.tasks t ON ((t.id = n.task)));
COMMENT ON VIEW holdfast.v_cancels IS 'Notices of canceled tasks to the agents that have worked on them and want to know.';
COMMENT ON COLUMN holdfast.v_cancels.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_cancels.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_cancels.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_cancels.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_cancels.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_cancels.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_cancels.reason IS 'canceled (by a client or an operator) or expired (it was parked for too long).';
COMMENT ON COLUMN holdfast.v_cancels.phase IS 'pending (a try is due or under way, or the run has not ended yet), delivered (the agent has accepted it) or failed (the agent refused it, or unreachable_for is over).';
COMMENT ON COLUMN holdfast.v_cancels.requested_at IS 'When the cancel was requested.';
COMMENT ON COLUMN holdfast.v_cancels.tries IS 'How many tries it has had.';
COMMENT ON COLUMN holdfast.v_cancels.due_at IS 'When the next try is due; null once it is delivered or failed.';
COMMENT ON COLUMN holdfast.v_cancels.ended_at IS 'When it was delivered or failed.';
COMMENT ON COLUMN holdfast.v_cancels.error IS 'The error of the newest try that failed.';
COMMENT ON COLUMN holdfast.v_cancels.worker_name IS 'The name of the process that made the newest try.';
CREATE VIEW holdfast.v_events AS
 SELECT e.task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    e.seq,
    (ARRAY['message'::text, 'status'::text, 'artifact'::text, 'run'::text])[e.kind] AS kind,
    e.created_at AS at,
    e.attempt,
    holdfast.state_name(e.state) AS state,
    e.artifact_id,
    e.append,
    e.last,
    e.payload
   FROM (holdfast.task_events e
     JOIN holdfast.tasks t ON ((t.id = e.task)));
COMMENT ON VIEW holdfast.v_events IS 'The log, from which the other views are derived.';
COMMENT ON COLUMN holdfast.v_events.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_events.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_events.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_events.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_events.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_events.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_events.seq IS 'Place in the task''s log, from 1 without a gap; the id of the event on a stream.';
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly, in a wait or in calls, a checkpoint, the metadata of a cancel, or a resume; clients do not see these).';
COMMENT ON COLUMN holdfast.v_events.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_events.attempt IS 'The attempt that wrote it; 0 for an event of a client.';
COMMENT ON COLUMN holdfast.v_events.state IS 'Status: the state that it sets or repeats.';
COMMENT ON COLUMN holdfast.v_events.artifact_id IS 'Artifact: which one the chunk belongs to.';
COMMENT ON COLUMN holdfast.v_events.append IS 'Artifact: the parts continue the artifact. If false, they start or replace it.';
COMMENT ON COLUMN holdfast.v_events.last IS 'Artifact: this chunk completes it.';
COMMENT ON COLUMN holdfast.v_events.payload IS 'Content as stored. Its members are documented in internal/store/doc.go and, unlike these columns, may change.';
CREATE VIEW holdfast.v_history AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    m."position",
    m.turn,
    m.seq,
    m.at,
    ((m.message -> 'role'::text) #>> '{}'::text[]) AS role,
    ( SELECT string_agg(((p.value -> 'text'::text) #>> '{}'::text[]), '
'::text ORDER BY p.n) AS string_agg
           FROM json_array_elements((m.message -> 'parts'::text)) WITH ORDINALITY p(value, n)) AS text,
    (m.message -> 'parts'::text) AS parts,
    ((m.message -> 'id'::text) #>> '{}'::text[]) AS message_id,
    (m.message -> 'metadata'::text) AS metadata,
    holdfast.state_name(m.state) AS state,
    ((m.kind = 2) AND (m.seq = t.status_seq)) AS in_status,
    m.attempt
   FROM (holdfast.tasks t
     CROSS JOIN LATERAL ( SELECT e.seq,
            e.kind,
            e.state,
            e.attempt,
            e.created_at AS at,
                CASE e.kind
                    WHEN 1 THEN e.payload
                    ELSE (e.payload -> 'message'::text)
                END AS message,
            row_number() OVER (ORDER BY e.seq) AS "position",
            count(*) FILTER (WHERE (e.kind = 1)) OVER (ORDER BY e.seq) AS turn
           FROM holdfast.task_events e
          WHERE ((e.task = t.id) AND ((e.kind = 1) OR ((e.kind = 2) AND ((e.payload -> 'message'::text) IS NOT NULL))))) m);
COMMENT ON VIEW holdfast.v_history IS 'The messages of each task: those of the client, and those that the agent sent with a status. The results of the agent are in v_artifacts.';
COMMENT ON COLUMN holdfast.v_history.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_history.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_history.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_history.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_history.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_history.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_history."position" IS 'Place in the conversation, from 1.';
COMMENT ON COLUMN holdfast.v_history.turn IS 'How many messages the client had sent by then.';
COMMENT ON COLUMN holdfast.v_history.seq IS 'The event that holds it.';
COMMENT ON COLUMN holdfast.v_history.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_history.role IS 'user or agent.';
COMMENT ON COLUMN holdfast.v_history.text IS 'Its text parts, separated by line breaks; null if it has none.';
COMMENT ON COLUMN holdfast.v_history.parts IS 'All parts. Each has one of text, raw (base64), url and data, and may have filename, media_type and metadata.';
COMMENT ON COLUMN holdfast.v_history.message_id IS 'The id that its sender gave it.';
COMMENT ON COLUMN holdfast.v_history.metadata IS 'Its metadata, unchanged.';
COMMENT ON COLUMN holdfast.v_history.state IS 'The state that it was sent with; null for a client''s message.';
COMMENT ON COLUMN holdfast.v_history.in_status IS 'It is the message of the current status, which A2A shows in the status and not in the history.';
COMMENT ON COLUMN holdfast.v_history.attempt IS 'The attempt that sent it; 0 for a client''s message.';
CREATE VIEW holdfast.v_keys AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    k.tenant,
    k.owner,
    t.context_id,
    k.key,
    k.created_at AS used_at
   FROM (holdfast.idempotency_keys k
     JOIN holdfast.tasks t ON ((t.id = k.task)))
  WHERE (k.day = (((k.created_at - '00:05:00'::interval) AT TIME ZONE 'UTC'::text))::date);
COMMENT ON VIEW holdfast.v_keys IS 'The Idempotency-Key headers of requests, and the task of each.';
COMMENT ON COLUMN holdfast.v_keys.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_keys.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_keys.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_keys.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_keys.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_keys.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_keys.key IS 'The key. An index has tenant, owner and key.';
COMMENT ON COLUMN holdfast.v_keys.used_at IS 'When it was first used.';
CREATE VIEW holdfast.v_lineage AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    holdfast.state_name(t.state) AS state,
    c.parent,
    c.root,
    cardinality(c.callers) AS depth,
    c.call_id AS call,
    c.started_at AS called_at
   FROM (holdfast.task_calls c
     JOIN holdfast.tasks t ON ((t.id = c.child)))
  WHERE ((NOT c.answers) AND (c.started_at IS NOT NULL));
COMMENT ON VIEW holdfast.v_lineage IS 'The tasks that other tasks have called, with their callers.';
COMMENT ON COLUMN holdfast.v_lineage.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_lineage.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_lineage.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_lineage.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_lineage.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_lineage.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_lineage.state IS 'submitted, working, input-required, auth-required, completed, failed, canceled or rejected.';
COMMENT ON COLUMN holdfast.v_lineage.parent IS 'The task that has called it.';
COMMENT ON COLUMN holdfast.v_lineage.root IS 'The task at the beginning of the calls, which a client has created.';
COMMENT ON COLUMN holdfast.v_lineage.depth IS 'How many calls lead from the root to it, from 1.';
COMMENT ON COLUMN holdfast.v_lineage.call IS 'The id that its caller gave the call.';
COMMENT ON COLUMN holdfast.v_lineage.called_at IS 'When the call created it.';
CREATE VIEW holdfast.v_names AS
 SELECT n.task,
    n.client_id AS task_id,
    n.agent,
    n.tenant,
    n.owner
   FROM holdfast.task_names n;
COMMENT ON VIEW holdfast.v_names IS 'The ids that clients chose (A2A 0.1), and the task that now has each id.';
COMMENT ON COLUMN holdfast.v_names.task IS 'The task''s UUID, which joins the other views.';
COMMENT ON COLUMN holdfast.v_names.task_id IS 'The id that the client chose. An index finds it.';
COMMENT ON COLUMN holdfast.v_names.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_names.tenant IS 'The tenant of the caller that chose it.';
COMMENT ON COLUMN holdfast.v_names.owner IS 'The caller that chose it.';
CREATE VIEW holdfast.v_outages AS
 SELECT o.agent,
    o.since,
    o.last_at,
    o.error,
    ( SELECT p.name
           FROM holdfast.processes p
          WHERE (p.id = o.worker_id)) AS worker_name,
    ( SELECT count(*) AS count
           FROM holdfast.task_queue q
          WHERE ((q.agent = o.agent) AND (q.worker_id IS NULL) AND (q.available_at <= now()))) AS waiting
   FROM holdfast.agent_outages o
  WHERE (o.last_at > (now() - '00:01:00'::interval));
COMMENT ON VIEW holdfast.v_outages IS 'Agents that are away now: workers have tried to start their runs, and no run began.';
COMMENT ON COLUMN holdfast.v_outages.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_outages.since IS 'When a worker first found it away.';
COMMENT ON COLUMN holdfast.v_outages.last_at IS 'When a worker last tried.';
COMMENT ON COLUMN holdfast.v_outages.error IS 'The error of the newest try.';
COMMENT ON COLUMN holdfast.v_outages.worker_name IS 'The name of that worker''s process.';
COMMENT ON COLUMN holdfast.v_outages.waiting IS 'How many tasks wait for it.';
CREATE VIEW holdfast.v_push AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    c.config_id,
    c.url,
    c.dialect,
    c.created_at,
    (k.next_seq - 1) AS delivered_seq,
    GREATEST(((k.due_seq - k.next_seq) + 1), (0)::bigint) AS behind,
    k.due_at,
    k.attempts AS failures,
    k.last_error,
    a.started_at AS last_attempt_at,
    a.status AS last_status,
    k.host,
    k.artifacts,
    k.due_since,
    k.failing_since,
    k.disabled_at,
    k.disabled_for,
    ((k.claim IS NOT NULL) AND (k.locked_until >= now())) AS in_flight,
    a.class AS last_class
   FROM (((holdfast.push_configs c
     JOIN holdfast.tasks t ON ((t.id = c.task)))
     JOIN holdfast.push_cursors k ON (((k.task = c.task) AND (k.config_id = c.config_id))))
     LEFT JOIN LATERAL ( SELECT x.started_at,
            x.status,
            x.class
           FROM holdfast.push_attempts x
          WHERE ((x.task = c.task) AND (x.config_id = c.config_id))
          ORDER BY x.id DESC
         LIMIT 1) a ON (true));
COMMENT ON VIEW holdfast.v_push IS 'The webhook configurations, and how far each has been delivered.';
COMMENT ON COLUMN holdfast.v_push.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_push.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_push.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_push.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_push.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_push.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_push.config_id IS 'The id of the configuration within its task.';
COMMENT ON COLUMN holdfast.v_push.url IS 'The URL. Tokens and credentials are not shown.';
COMMENT ON COLUMN holdfast.v_push.dialect IS 'The A2A version of its deliveries.';
COMMENT ON COLUMN holdfast.v_push.created_at IS 'When it was set.';
COMMENT ON COLUMN holdfast.v_push.delivered_seq IS 'The newest event that was delivered or skipped; 0 for none.';
COMMENT ON COLUMN holdfast.v_push.behind IS 'How many events of the log follow it, up to the newest one to deliver; 0: nothing to deliver.';
COMMENT ON COLUMN holdfast.v_push.due_at IS 'When the next attempt is due, or when the one in flight counts as lost; null if there is nothing to deliver or the webhook is disabled.';
COMMENT ON COLUMN holdfast.v_push.failures IS 'Failed attempts since the last success.';
COMMENT ON COLUMN holdfast.v_push.last_error IS 'The reason of the last failure.';
COMMENT ON COLUMN holdfast.v_push.last_attempt_at IS 'When the last attempt was made.';
COMMENT ON COLUMN holdfast.v_push.last_status IS 'The HTTP status of its answer; null if there was no answer.';
COMMENT ON COLUMN holdfast.v_push.host IS 'Host and port of the URL.';
COMMENT ON COLUMN holdfast.v_push.artifacts IS 'Artifact events are delivered, too.';
COMMENT ON COLUMN holdfast.v_push.due_since IS 'Since when there has been something to deliver; null: nothing to deliver.';
COMMENT ON COLUMN holdfast.v_push.failing_since IS 'When the first failed attempt since the last success was recorded.';
COMMENT ON COLUMN holdfast.v_push.disabled_at IS 'When it was disabled; null: it is enabled.';
COMMENT ON COLUMN holdfast.v_push.disabled_for IS 'Why it was disabled.';
COMMENT ON COLUMN holdfast.v_push.in_flight IS 'A process is delivering at this moment.';
COMMENT ON COLUMN holdfast.v_push.last_class IS 'The outcome of the last attempt: a class of the metric holdfast_push_attempts_total.';
CREATE VIEW holdfast.v_push_attempts AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    a.config_id,
    a.id AS attempt_id,
    a.started_at,
    a.from_seq,
    a.to_seq,
    a.delivery_id,
    a.attempt,
    a.class,
    a.status,
    a.error,
    a.duration,
    ( SELECT p.name
           FROM holdfast.processes p
          WHERE (p.id = a.worker_id)) AS worker_name,
    a.host
   FROM (holdfast.push_attempts a
     JOIN holdfast.tasks t ON ((t.id = a.task)));
COMMENT ON VIEW holdfast.v_push_attempts IS 'The attempts to deliver and their outcomes, for as long as retention keeps them.';
COMMENT ON COLUMN holdfast.v_push_attempts.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_push_attempts.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_push_attempts.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_push_attempts.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_push_attempts.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_push_attempts.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_push_attempts.config_id IS 'The id of the configuration within its task.';
COMMENT ON COLUMN holdfast.v_push_attempts.attempt_id IS 'A number that grows over all tasks.';
COMMENT ON COLUMN holdfast.v_push_attempts.started_at IS 'When the request was made.';
COMMENT ON COLUMN holdfast.v_push_attempts.from_seq IS 'The first event that it covers.';
COMMENT ON COLUMN holdfast.v_push_attempts.to_seq IS 'The last event that it covers.';
COMMENT ON COLUMN holdfast.v_push_attempts.delivery_id IS 'The jti that the receiver got: the same for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.v_push_attempts.attempt IS 'Number of the attempt within its delivery, from 1.';
COMMENT ON COLUMN holdfast.v_push_attempts.class IS 'The outcome: a class of the metric holdfast_push_attempts_total.';
COMMENT ON COLUMN holdfast.v_push_attempts.status IS 'The HTTP status; null if there was no answer.';
COMMENT ON COLUMN holdfast.v_push_attempts.error IS 'Error message; null after a success.';
COMMENT ON COLUMN holdfast.v_push_attempts.duration IS 'How long the attempt took.';
COMMENT ON COLUMN holdfast.v_push_attempts.worker_name IS 'The process that made it.';
COMMENT ON COLUMN holdfast.v_push_attempts.host IS 'Host and port of the URL, also after the client has deleted the webhook; null: an older server made the attempt.';
CREATE VIEW holdfast.v_queue AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    q.agent,
    t.tenant,
    t.owner,
    t.context_id,
        CASE
            WHEN (q.worker_id IS NOT NULL) THEN 'running'::text
            WHEN (q.wakes_at = 'infinity'::timestamp with time zone) THEN 'calls'::text
            WHEN (q.wakes_at IS NOT NULL) THEN 'timer'::text
            WHEN (q.available_at > now()) THEN 'delayed'::text
            ELSE 'waiting'::text
        END AS phase,
    q.available_at,
        CASE
            WHEN ((q.worker_id IS NULL) AND (q.wakes_at IS NULL)) THEN GREATEST((now() - q.available_at), '00:00:00'::interval)
            ELSE NULL::interval
        END AS waiting,
    q.worker_id AS worker,
    ( SELECT p.name
           FROM holdfast.processes p
          WHERE (p.id = q.worker_id)) AS worker_name,
        CASE
            WHEN (q.worker_id IS NOT NULL) THEN t.claimed_at
            ELSE NULL::timestamp with time zone
        END AS started_at,
    q.turn,
    q.tries,
    t.cancel_requested,
    q.away_since
   FROM (holdfast.task_queue q
     JOIN holdfast.tasks t ON (((t.id = q.id) AND (t.state < 3))));
COMMENT ON VIEW holdfast.v_queue IS 'Tasks that wait for a run or have one. Small, however large the history is.';
COMMENT ON COLUMN holdfast.v_queue.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_queue.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_queue.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_queue.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_queue.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_queue.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_queue.phase IS 'running (a worker has it), waiting (a worker may claim it, or its agent is away: see v_outages), delayed (a retry that is due at available_at), timer (its agent waits until available_at) or calls (its agent waits for tasks that it has called: see v_lineage).';
COMMENT ON COLUMN holdfast.v_queue.available_at IS 'When it was or will be due.';
COMMENT ON COLUMN holdfast.v_queue.waiting IS 'How long it has been due and unclaimed; null while it runs or its timer does.';
COMMENT ON COLUMN holdfast.v_queue.worker IS 'The process that runs it.';
COMMENT ON COLUMN holdfast.v_queue.worker_name IS 'The name of that process.';
COMMENT ON COLUMN holdfast.v_queue.started_at IS 'When that process claimed it.';
COMMENT ON COLUMN holdfast.v_queue.turn IS 'Which turn of the task its run is, from 1.';
COMMENT ON COLUMN holdfast.v_queue.tries IS 'How many tries that turn has had, including the current run.';
COMMENT ON COLUMN holdfast.v_queue.cancel_requested IS 'A client asked to cancel it.';
COMMENT ON COLUMN holdfast.v_queue.away_since IS 'Since when its agent has not begun this run: it is away or too busy; null otherwise, and for tasks behind it.';
CREATE VIEW holdfast.v_remote_workers AS
 SELECT w.id AS worker,
    w.name,
    w.version,
    w.sdk,
    w.agents,
    w.replica,
    w.first_seen,
    w.last_seen,
    ((w.last_seen > (now() - '00:01:30'::interval)) AND (w.left_at IS NULL)) AS connected,
    w.retired_at,
    ( SELECT count(*) AS count
           FROM holdfast.task_queue q
          WHERE (q.worker_id = w.id)) AS running
   FROM holdfast.remote_workers w;
COMMENT ON VIEW holdfast.v_remote_workers IS 'The workers of agents with executor.kind worker that are or were connected.';
COMMENT ON COLUMN holdfast.v_remote_workers.worker IS 'The id of the worker, new at each of its starts.';
COMMENT ON COLUMN holdfast.v_remote_workers.name IS 'As the worker says, such as the name of its host.';
COMMENT ON COLUMN holdfast.v_remote_workers.version IS 'Of the code of its agents, as the worker says.';
COMMENT ON COLUMN holdfast.v_remote_workers.sdk IS 'The SDK and the language, as the worker says.';
COMMENT ON COLUMN holdfast.v_remote_workers.agents IS 'The agents whose runs it claims.';
COMMENT ON COLUMN holdfast.v_remote_workers.replica IS 'The server process that answered it last: its host name and process id.';
COMMENT ON COLUMN holdfast.v_remote_workers.first_seen IS 'When it connected first.';
COMMENT ON COLUMN holdfast.v_remote_workers.last_seen IS 'When it last sent a request or had one open, to within a minute.';
COMMENT ON COLUMN holdfast.v_remote_workers.connected IS 'It was seen within the last 90 seconds, and has not stopped or lost its connection since.';
COMMENT ON COLUMN holdfast.v_remote_workers.retired_at IS 'When an operator told it to claim no more; null: it may claim.';
COMMENT ON COLUMN holdfast.v_remote_workers.running IS 'How many runs it has.';
CREATE VIEW holdfast.v_runs AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    r.run,
    r.attempt,
    r.turn,
    r.worker_id AS worker,
    ( SELECT p.name
           FROM holdfast.processes p
          WHERE (p.id = r.worker_id)) AS worker_name,
    r.claimed_at AS started_at,
    r.ended_at,
    (COALESCE(r.ended_at, now()) - r.claimed_at) AS duration,
        CASE
            WHEN (r.seq IS NULL) THEN 'running'::text
            WHEN (r.kind = 4) THEN ((r.payload -> 'outcome'::text) #>> '{}'::text[])
            WHEN (r.state = 1) THEN 'continued'::text
            ELSE holdfast.state_name(r.state)
        END AS outcome,
        CASE
            WHEN (r.kind = 4) THEN ((r.payload -> 'error'::text) #>> '{}'::text[])
            WHEN (r.state = ANY (ARRAY[6, 8])) THEN COALESCE(((r.payload -> 'cause'::text) #>> '{}'::text[]), ( SELECT string_agg(((p.value -> 'text'::text) #>> '{}'::text[]), '
'::text ORDER BY p.n) AS string_agg
               FROM json_array_elements(((r.payload -> 'message'::text) -> 'parts'::text)) WITH ORDINALITY p(value, n)))
            ELSE NULL::text
        END AS error,
    r.seq
   FROM (holdfast.tasks t
     CROSS JOIN LATERAL ( SELECT x.seq,
            x.kind,
            x.state,
            x.attempt,
            x.worker_id,
            x.claimed_at,
            x.ended_at,
            x.payload,
            row_number() OVER (ORDER BY x.seq) AS run,
            (1 + count(*) FILTER (WHERE ((x.kind = 2) OR (((x.payload -> 'outcome'::text) #>> '{}'::text[]) = ANY (ARRAY['waits'::text, 'calls'::text])))) OVER (ORDER BY x.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS turn
           FROM ( SELECT e.seq,
                    e.kind,
                    e.state,
                    e.attempt,
                    e.worker_id,
                    e.claimed_at,
                    e.created_at AS ended_at,
                    e.payload
                   FROM holdfast.task_events e
                  WHERE ((e.task = t.id) AND (e.attempt > 0) AND (((e.kind = 2) AND (e.state <> 2)) OR ((e.kind = 4) AND (((e.payload -> 'outcome'::text) #>> '{}'::text[]) = ANY (ARRAY['lost'::text, 'retry'::text, 'returned'::text, 'away'::text, 'waits'::text, 'calls'::text])))))
                UNION ALL
                 SELECT NULL::bigint,
                    NULL::smallint,
                    NULL::smallint,
                    t.attempt,
                    t.worker_id,
                    t.claimed_at,
                    NULL::timestamp with time zone,
                    NULL::json
                  WHERE (t.worker_id IS NOT NULL)) x) r);
COMMENT ON VIEW holdfast.v_runs IS 'Every run: which process had it, how long it took, and how it ended.';
COMMENT ON COLUMN holdfast.v_runs.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_runs.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_runs.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_runs.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_runs.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_runs.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_runs.run IS 'Number of the run within its task, from 1.';
COMMENT ON COLUMN holdfast.v_runs.attempt IS 'Its fencing token, as in v_events and in the server''s logs.';
COMMENT ON COLUMN holdfast.v_runs.turn IS 'Which turn of the task it was, from 1. More than one run of a turn means a retry.';
COMMENT ON COLUMN holdfast.v_runs.worker IS 'The process that ran it.';
COMMENT ON COLUMN holdfast.v_runs.worker_name IS 'The name of that process, even after its end.';
COMMENT ON COLUMN holdfast.v_runs.started_at IS 'When the process claimed it.';
COMMENT ON COLUMN holdfast.v_runs.ended_at IS 'When it ended; for a lost run, when another process noticed; null while it runs.';
COMMENT ON COLUMN holdfast.v_runs.duration IS 'From started_at to ended_at, or to now.';
COMMENT ON COLUMN holdfast.v_runs.outcome IS 'running; the state that it left the task in (completed, failed, canceled, rejected, input-required, auth-required); continued (it asked for input that was already there); waits (a timer begins the next turn); calls (the results of calls begin it); or retry (it failed and is retried), away (the agent was away and did not begin it), returned (its server stopped and gave it back), lost (its process stopped renewing its lease).';
COMMENT ON COLUMN holdfast.v_runs.error IS 'Why it failed, was rejected or is retried, with the cause that the client does not read.';
COMMENT ON COLUMN holdfast.v_runs.seq IS 'The event that ended it; null while it runs.';
CREATE VIEW holdfast.v_states AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    'task'::text AS scope,
    s.version,
    s.value,
    octet_length((s.value)::text) AS bytes,
    s.updated_at
   FROM (holdfast.task_states s
     JOIN holdfast.tasks t ON ((t.id = s.task)))
  WHERE (s.value IS NOT NULL)
UNION ALL
 SELECT s.task,
    COALESCE(( SELECT t.client_id
           FROM holdfast.tasks t
          WHERE (t.id = s.task)), (s.task)::text) AS task_id,
    s.agent,
    s.tenant,
    s.owner,
    s.context_id,
    'context'::text AS scope,
    s.version,
    s.value,
    octet_length((s.value)::text) AS bytes,
    s.updated_at
   FROM holdfast.context_states s
  WHERE (s.value IS NOT NULL);
COMMENT ON VIEW holdfast.v_states IS 'The values that agents have stored for a task or for a context.';
COMMENT ON COLUMN holdfast.v_states.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_states.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_states.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_states.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_states.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_states.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_states.scope IS 'task: it belongs to the task. context: it belongs to the context of this owner and agent, and task is the one that wrote it last.';
COMMENT ON COLUMN holdfast.v_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.v_states.value IS 'The value, as the agent wrote it.';
COMMENT ON COLUMN holdfast.v_states.bytes IS 'Size of the value.';
COMMENT ON COLUMN holdfast.v_states.updated_at IS 'When it was last written.';
CREATE VIEW holdfast.v_tasks AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    holdfast.state_name(t.state) AS state,
    (t.state < 5) AS open,
    t.created_at,
    t.status_at,
        CASE
            WHEN (t.state >= 5) THEN t.status_at
            ELSE NULL::timestamp with time zone
        END AS ended_at,
        CASE
            WHEN (t.state >= 5) THEN (t.status_at - t.created_at)
            ELSE NULL::interval
        END AS duration,
    ( SELECT (e.payload -> 'message'::text)
           FROM holdfast.task_events e
          WHERE ((e.task = t.id) AND (e.seq = t.status_seq) AND (e.kind = 2))) AS status_message,
    ( SELECT string_agg(((p.value -> 'text'::text) #>> '{}'::text[]), '
'::text ORDER BY p.n) AS string_agg
           FROM holdfast.task_events e,
            LATERAL json_array_elements(((e.payload -> 'message'::text) -> 'parts'::text)) WITH ORDINALITY p(value, n)
          WHERE ((e.task = t.id) AND (e.seq = t.status_seq) AND (e.kind = 2))) AS status_text,
    t.turns,
    t.pending,
    t.runs,
    t.attempt,
    t.worker_id AS worker,
    t.cancel_requested,
    t.cancel_requested_at,
    t.direct,
    t.dialect,
    t.client_id,
    t.last_seq,
    t.metadata,
    t.held_at,
        CASE
            WHEN (t.state = ANY (ARRAY[3, 4])) THEN t.resume_until
            ELSE NULL::timestamp with time zone
        END AS resume_until,
    substr(t.traceparent, 4, 32) AS trace_id,
    t.agent_metadata,
    t.retried_as
   FROM holdfast.tasks t;
COMMENT ON VIEW holdfast.v_tasks IS 'Every task in its current state.';
COMMENT ON COLUMN holdfast.v_tasks.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_tasks.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_tasks.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_tasks.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_tasks.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_tasks.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_tasks.state IS 'submitted, working, input-required, auth-required, completed, failed, canceled or rejected.';
COMMENT ON COLUMN holdfast.v_tasks.open IS 'The task has not ended. Open tasks have a small table of their own: a condition on open reads only that.';
COMMENT ON COLUMN holdfast.v_tasks.created_at IS 'When the task was stored. To select by time, compare task with holdfast.uuid_at(…), which uses an index; this column has none.';
COMMENT ON COLUMN holdfast.v_tasks.status_at IS 'When its newest status was stored. A status that repeats the state counts, too.';
COMMENT ON COLUMN holdfast.v_tasks.ended_at IS 'When it ended; null while it is open.';
COMMENT ON COLUMN holdfast.v_tasks.duration IS 'From created_at to ended_at; null while it is open.';
COMMENT ON COLUMN holdfast.v_tasks.status_message IS 'The message of the current status, if it has one: id, role, parts, metadata.';
COMMENT ON COLUMN holdfast.v_tasks.status_text IS 'The text of that message, such as why the task failed or what a parked task asks for.';
COMMENT ON COLUMN holdfast.v_tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer, the results of calls or a resume URL.';
COMMENT ON COLUMN holdfast.v_tasks.pending IS 'How many messages wait behind the turn that is queued, runs or waits.';
COMMENT ON COLUMN holdfast.v_tasks.runs IS 'How often an executor was started. Runs that a stopping server returned do not count.';
COMMENT ON COLUMN holdfast.v_tasks.attempt IS 'Fencing token of the newest attempt. Rescues raise it too, so it may be higher than runs.';
COMMENT ON COLUMN holdfast.v_tasks.worker IS 'The process that runs it now.';
COMMENT ON COLUMN holdfast.v_tasks.cancel_requested IS 'A client asked to cancel it.';
COMMENT ON COLUMN holdfast.v_tasks.cancel_requested_at IS 'When a client first asked to cancel it.';
COMMENT ON COLUMN holdfast.v_tasks.direct IS 'The agent answered with a bare message, so the client saw no task.';
COMMENT ON COLUMN holdfast.v_tasks.dialect IS 'The A2A version of the request that created it.';
COMMENT ON COLUMN holdfast.v_tasks.client_id IS 'task_id when the client chose it (A2A 0.1), else null.';
COMMENT ON COLUMN holdfast.v_tasks.last_seq IS 'How many events its log has.';
COMMENT ON COLUMN holdfast.v_tasks.metadata IS 'Metadata of the request that created it.';
COMMENT ON COLUMN holdfast.v_tasks.held_at IS 'When an operator put it on hold (holdfast tasks hold), which exempts it from retention; null: no hold.';
COMMENT ON COLUMN holdfast.v_tasks.resume_until IS 'Parked: until when the resume URL of its turn is valid; null: its agent has not asked for that.';
COMMENT ON COLUMN holdfast.v_tasks.trace_id IS 'The trace of the request that created it; null: it was not traced.';
COMMENT ON COLUMN holdfast.v_tasks.agent_metadata IS 'Metadata of its statuses, merged by key. Clients see both in the metadata of the task.';
COMMENT ON COLUMN holdfast.v_tasks.retried_as IS 'The task that the newest retry by an operator has made of it; null: none.';
CREATE VIEW holdfast.v_transitions AS
 SELECT t.id AS task,
    COALESCE(t.client_id, (t.id)::text) AS task_id,
    t.agent,
    t.tenant,
    t.owner,
    t.context_id,
    s.seq,
    holdfast.state_name(s.state) AS state,
    holdfast.state_name(s.before) AS previous_state,
    holdfast.state_name(s.after) AS next_state,
    s.at AS entered_at,
    s.until AS left_at,
        CASE
            WHEN (s.state < 5) THEN (COALESCE(s.until, now()) - s.at)
            ELSE NULL::interval
        END AS duration,
    s.attempt,
    (s.payload -> 'message'::text) AS message,
    ( SELECT string_agg(((p.value -> 'text'::text) #>> '{}'::text[]), '
'::text ORDER BY p.n) AS string_agg
           FROM json_array_elements(((s.payload -> 'message'::text) -> 'parts'::text)) WITH ORDINALITY p(value, n)) AS text
   FROM (holdfast.tasks t
     CROSS JOIN LATERAL ( SELECT c.seq,
            c.state,
            c.at,
            c.attempt,
            c.payload,
            c.before,
            lead(c.state) OVER w AS after,
            lead(c.at) OVER w AS until
           FROM ( SELECT e.seq,
                    COALESCE(e.state, (1)::smallint) AS state,
                    e.created_at AS at,
                    e.attempt,
                        CASE
                            WHEN (e.kind = 2) THEN e.payload
                            ELSE NULL::json
                        END AS payload,
                    lag(COALESCE(e.state, (1)::smallint)) OVER (ORDER BY e.seq) AS before
                   FROM holdfast.task_events e
                  WHERE ((e.task = t.id) AND ((e.kind = 2) OR (e.seq = 1)))) c
          WHERE (c.before IS DISTINCT FROM c.state)
          WINDOW w AS (ORDER BY c.seq)) s);
COMMENT ON VIEW holdfast.v_transitions IS 'The states of each task, in order. A status that repeats the state (progress) has no row of its own.';
COMMENT ON COLUMN holdfast.v_transitions.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_transitions.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_transitions.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_transitions.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_transitions.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_transitions.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_transitions.seq IS 'The event that set the state.';
COMMENT ON COLUMN holdfast.v_transitions.state IS 'The state, as in v_tasks.';
COMMENT ON COLUMN holdfast.v_transitions.previous_state IS 'The state before; null for the first one, which is submitted.';
COMMENT ON COLUMN holdfast.v_transitions.next_state IS 'The state after; null for the current one.';
COMMENT ON COLUMN holdfast.v_transitions.entered_at IS 'When the task entered the state.';
COMMENT ON COLUMN holdfast.v_transitions.left_at IS 'When the task left the state; null for the current one.';
COMMENT ON COLUMN holdfast.v_transitions.duration IS 'Time in the state: up to now for the current state of an open task; null for a terminal state.';
COMMENT ON COLUMN holdfast.v_transitions.attempt IS 'The attempt that set the state; 0 for a client.';
COMMENT ON COLUMN holdfast.v_transitions.message IS 'The message of that event, if it has one: id, role, parts, metadata.';
COMMENT ON COLUMN holdfast.v_transitions.text IS 'The text of that message.';
CREATE VIEW holdfast.v_usage AS
 SELECT u.task,
    u.task_id,
    u.agent,
    u.tenant,
    u.owner,
    u.context_id,
    u.seq,
    u.at,
    u.attempt,
        CASE
            WHEN (json_typeof((u.usage -> 'inputTokens'::text)) = 'number'::text) THEN ((u.usage ->> 'inputTokens'::text))::numeric
            ELSE NULL::numeric
        END AS input_tokens,
        CASE
            WHEN (json_typeof((u.usage -> 'outputTokens'::text)) = 'number'::text) THEN ((u.usage ->> 'outputTokens'::text))::numeric
            ELSE NULL::numeric
        END AS output_tokens,
        CASE
            WHEN (json_typeof((u.usage -> 'totalTokens'::text)) = 'number'::text) THEN ((u.usage ->> 'totalTokens'::text))::numeric
            ELSE NULL::numeric
        END AS total_tokens,
    u.usage
   FROM ( SELECT e.task,
            COALESCE(t.client_id, (t.id)::text) AS task_id,
            t.agent,
            t.tenant,
            t.owner,
            t.context_id,
            e.seq,
            e.created_at AS at,
            e.attempt,
                CASE e.kind
                    WHEN 2 THEN (((e.payload -> 'message'::text) -> 'metadata'::text) -> 'usage'::text)
                    ELSE COALESCE(((e.payload -> 'event_metadata'::text) -> 'usage'::text), ((e.payload -> 'metadata'::text) -> 'usage'::text))
                END AS usage
           FROM (holdfast.task_events e
             JOIN holdfast.tasks t ON ((t.id = e.task)))
          WHERE ((e.kind = ANY (ARRAY[2, 3])) AND (e.attempt > 0))) u
  WHERE (json_typeof(u.usage) = 'object'::text);
COMMENT ON VIEW holdfast.v_usage IS 'The usage that agents report: the object usage in the metadata of a status message, of an artifact''s chunk, or of an artifact. Attempts that were retried count, too.';
COMMENT ON COLUMN holdfast.v_usage.task IS 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.';
COMMENT ON COLUMN holdfast.v_usage.task_id IS 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).';
COMMENT ON COLUMN holdfast.v_usage.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_usage.tenant IS 'The tenant of the caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_usage.owner IS 'The caller that created the task; empty without identity.';
COMMENT ON COLUMN holdfast.v_usage.context_id IS 'The conversation that the task belongs to (sessionId in A2A 0.1).';
COMMENT ON COLUMN holdfast.v_usage.seq IS 'The event that reports it.';
COMMENT ON COLUMN holdfast.v_usage.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_usage.attempt IS 'The attempt that wrote it.';
COMMENT ON COLUMN holdfast.v_usage.input_tokens IS 'usage.inputTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.output_tokens IS 'usage.outputTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.total_tokens IS 'usage.totalTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.usage IS 'The whole object, as the agent wrote it.';
CREATE TABLE holdfast.workers (
    id uuid NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    roles text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    lease_until timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
COMMENT ON TABLE holdfast.workers IS 'The processes that are alive. When one stops renewing its lease, the process that notices first deletes the row and rescues the runs.';
COMMENT ON COLUMN holdfast.workers.lease_until IS 'When the lease ends, by the database''s clock, unless the process renews it.';
CREATE VIEW holdfast.v_workers AS
 SELECT w.id AS worker,
    w.name,
    w.version,
    w.roles,
    w.started_at,
    w.lease_until,
    (w.lease_until >= now()) AS alive,
    ( SELECT count(*) AS count
           FROM holdfast.task_queue q
          WHERE (q.worker_id = w.id)) AS running,
    ( SELECT array_agg(l.name ORDER BY l.name) AS array_agg
           FROM holdfast.leases l
          WHERE ((l.holder = w.id) AND (l.until >= now()))) AS duties
   FROM holdfast.workers w;
COMMENT ON VIEW holdfast.v_workers IS 'The server processes that are registered now.';
COMMENT ON COLUMN holdfast.v_workers.worker IS 'The id of the process, new at each start.';
COMMENT ON COLUMN holdfast.v_workers.name IS 'Its host name and process id.';
COMMENT ON COLUMN holdfast.v_workers.version IS 'The version of Holdfast that it runs.';
COMMENT ON COLUMN holdfast.v_workers.roles IS 'Its roles, as configured.';
COMMENT ON COLUMN holdfast.v_workers.started_at IS 'When it registered.';
COMMENT ON COLUMN holdfast.v_workers.lease_until IS 'When its lease ends unless the process renews it.';
COMMENT ON COLUMN holdfast.v_workers.alive IS 'Its lease has not expired.';
COMMENT ON COLUMN holdfast.v_workers.running IS 'How many runs it has.';
COMMENT ON COLUMN holdfast.v_workers.duties IS 'The duties whose lease it has, such as partitions; null for none.';
ALTER TABLE ONLY holdfast.events_artifacts ATTACH PARTITION holdfast.artifacts_20261101 FOR VALUES FROM ('01a19467-e800-0000-0000-000000000000') TO ('01a22ee6-b000-0000-0000-000000000000');
ALTER TABLE ONLY holdfast.events_artifacts ATTACH PARTITION holdfast.artifacts_20261201 FOR VALUES FROM ('01a22ee6-b000-0000-0000-000000000000') TO ('01a2ce8b-d400-0000-0000-000000000000');
ALTER TABLE ONLY holdfast.push_attempts ATTACH PARTITION holdfast.attempts_20261130 FOR VALUES FROM ('2026-11-30 05:45:00+05:45') TO ('2026-12-01 05:45:00+05:45');
ALTER TABLE ONLY holdfast.push_attempts ATTACH PARTITION holdfast.attempts_20261201 FOR VALUES FROM ('2026-12-01 05:45:00+05:45') TO ('2026-12-02 05:45:00+05:45');
ALTER TABLE ONLY holdfast.audit_log ATTACH PARTITION holdfast.audit_20261101 FOR VALUES FROM ('2026-11-01 05:45:00+05:45') TO ('2026-12-01 05:45:00+05:45');
ALTER TABLE ONLY holdfast.audit_log ATTACH PARTITION holdfast.audit_20261201 FOR VALUES FROM ('2026-12-01 05:45:00+05:45') TO ('2027-01-01 05:45:00+05:45');
ALTER TABLE ONLY holdfast.events_log ATTACH PARTITION holdfast.events_20261101 FOR VALUES FROM ('01a19467-e800-0000-0000-000000000000') TO ('01a22ee6-b000-0000-0000-000000000000');
ALTER TABLE ONLY holdfast.events_log ATTACH PARTITION holdfast.events_20261201 FOR VALUES FROM ('01a22ee6-b000-0000-0000-000000000000') TO ('01a2ce8b-d400-0000-0000-000000000000');
ALTER TABLE ONLY holdfast.events_dated ATTACH PARTITION holdfast.events_artifacts FOR VALUES IN ('3');
ALTER TABLE ONLY holdfast.task_events ATTACH PARTITION holdfast.events_dated FOR VALUES IN (false);
ALTER TABLE ONLY holdfast.task_events ATTACH PARTITION holdfast.events_kept FOR VALUES IN (true);
ALTER TABLE ONLY holdfast.events_dated ATTACH PARTITION holdfast.events_log FOR VALUES IN ('1', '2', '4');
ALTER TABLE ONLY holdfast.idempotency_keys ATTACH PARTITION holdfast.keys_20261130 FOR VALUES FROM ('2026-11-30') TO ('2026-12-01');
ALTER TABLE ONLY holdfast.idempotency_keys ATTACH PARTITION holdfast.keys_20261201 FOR VALUES FROM ('2026-12-01') TO ('2026-12-02');
ALTER TABLE ONLY holdfast.tasks_dated ATTACH PARTITION holdfast.tasks_20261101 FOR VALUES FROM ('01a19467-e800-0000-0000-000000000000') TO ('01a22ee6-b000-0000-0000-000000000000');
ALTER TABLE ONLY holdfast.tasks_dated ATTACH PARTITION holdfast.tasks_20261201 FOR VALUES FROM ('01a22ee6-b000-0000-0000-000000000000') TO ('01a2ce8b-d400-0000-0000-000000000000');
ALTER TABLE ONLY holdfast.tasks_ended ATTACH PARTITION holdfast.tasks_dated FOR VALUES IN (false);
ALTER TABLE ONLY holdfast.tasks ATTACH PARTITION holdfast.tasks_ended FOR VALUES IN ('5', '6', '7', '8');
ALTER TABLE ONLY holdfast.tasks_ended ATTACH PARTITION holdfast.tasks_kept FOR VALUES IN (true);
ALTER TABLE ONLY holdfast.tasks ATTACH PARTITION holdfast.tasks_open FOR VALUES IN ('1', '2', '3', '4');
INSERT INTO holdfast.api_keys VALUES ('k1', '\x0000000000000000000000000000000000000000000000000000000000000000', '', '', 'ada', '{}', '2026-11-30 06:46:34.825213+05:45', NULL, NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 7, 3, false, NULL, 2, false, false, 'itinerary', '{"index":0,"name":"itinerary","parts":[{"text":"DY 1303, "}]}', NULL, '2026-11-30 06:46:34.620829+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 8, 3, false, NULL, 2, true, true, 'itinerary', '{"index":0,"name":"itinerary","parts":[{"text":"07:20"}]}', NULL, '2026-11-30 06:46:34.622349+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b420-7811-9589-b2e8af6d11f2', 3, 3, false, NULL, 1, false, true, 'hotel', '{"index":0,"name":"hotel","parts":[{"text":"Two nights at the harbour"}],"event_metadata":{"usage":{"inputTokens":700,"outputTokens":100,"totalTokens":800}}}', NULL, '2026-11-30 06:46:34.628457+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b42a-7c2a-af7b-696d965aa099', 5, 3, false, NULL, 3, false, true, 'itinerary', '{"index":0,"name":"itinerary","parts":[{"text":"AZ 77"}]}', NULL, '2026-11-30 06:46:34.643694+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b435-7beb-980b-f7df6b0b02b6', 3, 3, false, NULL, 1, false, false, 'guide', '{"index":0,"name":"guide","parts":[{"text":"The Forum"}]}', NULL, '2026-11-30 06:46:34.649965+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b435-7beb-980b-f7df6b0b02b6', 5, 3, false, NULL, 3, false, true, 'guide', '{"index":0,"name":"guide","parts":[{"text":"The Forum opens at nine."}]}', NULL, '2026-11-30 06:46:34.655025+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 3, 3, false, NULL, 1, false, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.659445+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 4, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.660099+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 5, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.660654+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 6, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.661266+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 7, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.661781+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 8, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.662343+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 9, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.662854+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 10, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.663361+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 11, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.663901+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 12, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.66448+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 13, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.665131+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 14, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.665671+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 15, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.666148+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 16, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.666671+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 17, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.667202+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 18, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.66779+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 19, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.668344+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 20, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.668916+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 21, 3, false, NULL, 1, true, false, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.670468+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 22, 3, false, NULL, 1, true, true, 'poem', '{"index":0,"name":"poem","parts":[{"text":"rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves rolling waves "}]}', NULL, '2026-11-30 06:46:34.671054+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b450-7993-be5c-6a23c8553e69', 3, 3, false, NULL, 1, false, true, 'haiku', '{"index":0,"name":"haiku","parts":[{"text":"old pond"}]}', NULL, '2026-11-30 06:46:34.676026+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b455-75b2-ada9-918e9118723c', 3, 3, false, NULL, 1, false, true, 'haiku', '{"index":0,"name":"haiku","parts":[{"text":"old pond"}]}', NULL, '2026-11-30 06:46:34.680508+05:45', NULL, NULL);
INSERT INTO holdfast.artifacts_20261101 VALUES ('01a229f8-b47c-7a48-a131-21b48801a7e3', 3, 3, false, NULL, 1, false, false, 'novel', '{"index":0,"name":"novel","parts":[{"text":"Chapter one"}]}', NULL, '2026-11-30 06:46:34.719566+05:45', NULL, NULL);
INSERT INTO holdfast.attempts_20261130 VALUES (1, '01a229f8-b47c-7a48-a131-21b48801a7e3', 'w1', '2026-11-30 06:46:34.724964+05:45', 2, 2, 'j-novel-1', 1, 'server', 503, '503 Service Unavailable', '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'app.example:443');
INSERT INTO holdfast.attempts_20261130 VALUES (2, '01a229f8-b47c-7a48-a131-21b48801a7e3', 'w1', '2026-11-30 06:46:34.729201+05:45', 2, 2, 'j-novel-1', 2, 'delivered', 204, NULL, '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'app.example:443');
INSERT INTO holdfast.attempts_20261130 VALUES (3, '01a229f8-b46e-7ce0-b904-28d13a2f82eb', 'w1', '2026-11-30 06:46:34.735323+05:45', 3, 3, 'j-ask-1', 1, 'server', 503, '503 Service Unavailable', '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'crm.example:443');
INSERT INTO holdfast.attempts_20261130 VALUES (4, '01a229f8-b46e-7ce0-b904-28d13a2f82eb', 'w1', '2026-11-30 06:46:34.737885+05:45', 3, 3, 'j-ask-1', 2, 'server', 503, '503 Service Unavailable', '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'crm.example:443');
INSERT INTO holdfast.attempts_20261130 VALUES (5, '01a229f8-b46e-7ce0-b904-28d13a2f82eb', 'w1', '2026-11-30 06:46:34.740424+05:45', 3, 3, 'j-ask-1', 3, 'server', 503, '503 Service Unavailable', '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'crm.example:443');
INSERT INTO holdfast.attempts_20261130 VALUES (6, '01a229f8-b472-79a9-aee3-f0cce97dd3e2', 'w1', '2026-11-30 06:46:34.746534+05:45', 3, 3, 'j-ask-2', 1, 'server', 503, '503 Service Unavailable', '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'crm.example:443');
INSERT INTO holdfast.attempts_20261130 VALUES (7, '01a229f8-b472-79a9-aee3-f0cce97dd3e2', 'w1', '2026-11-30 06:46:34.748592+05:45', 3, 3, 'j-ask-2', 2, 'server', 503, '503 Service Unavailable', '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'crm.example:443');
INSERT INTO holdfast.attempts_20261130 VALUES (8, '01a229f8-b478-7b64-83f0-fb45ac848049', 'w1', '2026-11-30 06:46:34.754517+05:45', 3, 3, 'j-ask-3', 1, 'server', 503, '503 Service Unavailable', '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'crm.example:443');
INSERT INTO holdfast.attempts_20261130 VALUES (9, '01a229f8-b459-7e6c-aa77-f6337fbf11dd', 'w1', '2026-11-30 06:46:34.760051+05:45', 3, 3, 'j-essay-1', 1, 'gone', 410, '410 Gone', '00:00:00.04', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 'old.example:443');
INSERT INTO holdfast.audit_20261101 VALUES (1, 1, '2026-11-30 06:46:34.57869+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b3e2-764d-87f7-38a31f1b0713","agent":"travel","subject":"ada"}]', '\xe3910bb74320c4645a48e5b775d663093b5b29047c284d16a15c0a6bf859fa3e');
INSERT INTO holdfast.audit_20261101 VALUES (1, 2, '2026-11-30 06:46:34.615782+05:45', 'holdfast', '[{"action":"task.continued","task":"01a229f8-b3e2-764d-87f7-38a31f1b0713","agent":"travel"}]', '\xea41b44d1095f347eb2d4a7341e30834757a0c63e32c05fd6f1a5b42a6176307');
INSERT INTO holdfast.audit_20261101 VALUES (1, 3, '2026-11-30 06:46:34.625593+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b420-7811-9589-b2e8af6d11f2","agent":"travel","subject":"ada"}]', '\x0c1bbb174734f1f5cbe34c4c2c61959b35a06a67a696d3df58636f1b96e2bfb9');
INSERT INTO holdfast.audit_20261101 VALUES (1, 4, '2026-11-30 06:46:34.631191+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b426-756d-a446-1c774048089e","agent":"travel","subject":"ben"}]', '\xd9ba5cc4a14d3a92331614e8540863256a77eb0c13a0202ca2d13bc7832ce7df');
INSERT INTO holdfast.audit_20261101 VALUES (1, 5, '2026-11-30 06:46:34.635496+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b42a-7c2a-af7b-696d965aa099","agent":"travel","subject":"ben"}]', '\xcedb0656a42c404cb5013c440f512d0af2267369a9bfd3b3d7eb376a3b11269c');
INSERT INTO holdfast.audit_20261101 VALUES (1, 6, '2026-11-30 06:46:34.646747+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b435-7beb-980b-f7df6b0b02b6","agent":"travel","subject":"ben"}]', '\x706c221f41790ad63af12fcc23d785687d02fb868aa5f14764c47ba648d95cd1');
INSERT INTO holdfast.audit_20261101 VALUES (1, 7, '2026-11-30 06:46:34.657268+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b440-7786-a9aa-97141058f44a","agent":"writer","subject":"ada"}]', '\x7a1300131fb221714c84c73ca12ab5b5ca635b25dd8a0235acba799853edba5d');
INSERT INTO holdfast.audit_20261101 VALUES (1, 8, '2026-11-30 06:46:34.673479+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b450-7993-be5c-6a23c8553e69","agent":"writer","subject":"cyd"}]', '\x0e9dd826c1e3500d103265c16139a5954e9a726016f0751781de6f41fa2aedab');
INSERT INTO holdfast.audit_20261101 VALUES (1, 9, '2026-11-30 06:46:34.678054+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b455-75b2-ada9-918e9118723c","agent":"writer","subject":"cyd"}]', '\x91511fb350b736f1b65595e8caa6441a328b8bd4971c9ef613dc33f18bb81ff2');
INSERT INTO holdfast.audit_20261101 VALUES (1, 10, '2026-11-30 06:46:34.682575+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b459-7e6c-aa77-f6337fbf11dd","agent":"writer","subject":"cyd"}]', '\x093cf2904c178e4b463cc9a6dfabd0f2b142ddb7713439f6beea0b37034c8303');
INSERT INTO holdfast.audit_20261101 VALUES (1, 11, '2026-11-30 06:46:34.68766+05:45', 'holdfast', '[{"action":"task.canceled","task":"01a229f8-b459-7e6c-aa77-f6337fbf11dd","agent":"writer"}]', '\x1dbff6412791f78b1bb1c1420989f472f0b407b39fd818c2ac134ec44f4109b8');
INSERT INTO holdfast.audit_20261101 VALUES (1, 12, '2026-11-30 06:46:34.690109+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b461-76f0-9279-641cf0b720d0","agent":"writer","subject":"cyd"}]', '\x89ea3e271d4e3b1f4e1c1ff53b29e5c05f74faf6d62e076ebbe3d3301b736035');
INSERT INTO holdfast.audit_20261101 VALUES (1, 13, '2026-11-30 06:46:34.691215+05:45', 'holdfast', '[{"action":"task.canceled","task":"01a229f8-b461-76f0-9279-641cf0b720d0","agent":"writer"}]', '\x8cdc1c3bdd32a191d719f7022e086d10775a82b957b79bd117d3758644ea8aec');
INSERT INTO holdfast.audit_20261101 VALUES (1, 14, '2026-11-30 06:46:34.692503+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b463-7d67-a040-bd71851abaa4","agent":"support","subject":"ben"}]', '\xe7bb67426672dc42a7d7f6a37245f564b48f6f80d1dae7bc90da8d07c5f34022');
INSERT INTO holdfast.audit_20261101 VALUES (1, 15, '2026-11-30 06:46:34.696403+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b467-7c65-8153-6d12b14989e9","agent":"support","subject":"ben"}]', '\xb4aedcedde37ca89b951019b919c68bfa28f528a28481924d9b6858275e720d0');
INSERT INTO holdfast.audit_20261101 VALUES (1, 16, '2026-11-30 06:46:34.699909+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b46b-7437-8de7-9f7ad5c531d1","agent":"support","subject":"cyd"}]', '\x8ed1af24c6dc27ef424c58149c6af7f15e77c050d4302e77446a64d5a32c712a');
INSERT INTO holdfast.audit_20261101 VALUES (1, 17, '2026-11-30 06:46:34.703438+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b46e-7ce0-b904-28d13a2f82eb","agent":"support","subject":"cyd"}]', '\x124d36278d6475ef5fd51b633be5b3d20fec1b1fcc758ff5f61dca1ccbcab99c');
INSERT INTO holdfast.audit_20261101 VALUES (1, 18, '2026-11-30 06:46:34.708996+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b472-79a9-aee3-f0cce97dd3e2","agent":"support","subject":"cyd"}]', '\xa17ad7a055778a65a55bfd2f05461db4f7078f9361441e597c1ee777b601ec2d');
INSERT INTO holdfast.audit_20261101 VALUES (1, 19, '2026-11-30 06:46:34.713424+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b478-7b64-83f0-fb45ac848049","agent":"support","subject":"cyd"}]', '\xdfe79de55ea25e4bdf1f997cf9c3b3873b65aa2e2b0ef9a5d46571b2c4f4370f');
INSERT INTO holdfast.audit_20261101 VALUES (1, 20, '2026-11-30 06:46:34.717288+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b47c-7a48-a131-21b48801a7e3","agent":"writer","subject":"ada"}]', '\xdae752fe098133cd13f9e05bd619d9e998c7ac7e652278f6b4b44a51c64561a8');
INSERT INTO holdfast.audit_20261101 VALUES (1, 21, '2026-11-30 06:46:34.724523+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b483-79ec-af87-a7c865994305","agent":"writer","subject":"ben"}]', '\xb3e7d83bdfd81f30ecfb30c865aa317f28d257d47f1bb64d519056cbf6642252');
INSERT INTO holdfast.audit_20261101 VALUES (1, 22, '2026-11-30 06:46:34.728043+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b487-72a5-afff-dff9f677455c","agent":"support","subject":"ben"}]', '\x31ff624c1e14d8789ab2d7c9bacdac0e7a3e600df89b37a59f527fbdb35f4dcd');
INSERT INTO holdfast.audit_20261101 VALUES (1, 23, '2026-11-30 06:46:34.733643+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b48c-7d05-94d9-b2df7143a79b","agent":"travel","subject":"ada"}]', '\xe1450d1f1c0da5606085a3cfff3e27e8dff65068e0cebffa8b617f73e2eae91d');
INSERT INTO holdfast.audit_20261101 VALUES (1, 24, '2026-11-30 06:46:34.735358+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b48e-795f-ab03-efc74dcd6925","agent":"travel","subject":"ada"}]', '\x43c1d7cdf52a2ed9ceaffaa0dd8c5c16f06c22bbe16947b193852fd9d60158dd');
INSERT INTO holdfast.audit_20261101 VALUES (1, 25, '2026-11-30 06:46:34.744417+05:45', 'holdfast', '[{"action":"push.set","task":"01a229f8-b47c-7a48-a131-21b48801a7e3","object":"w1"}]', '\xd3169c4fe76662238b141883c4569ded111a8afad004688cf29ebbbe4c8e5d21');
INSERT INTO holdfast.audit_20261101 VALUES (1, 26, '2026-11-30 06:46:34.747489+05:45', 'holdfast', '[{"action":"push.redelivered","task":"01a229f8-b47c-7a48-a131-21b48801a7e3","object":"w1"}]', '\x9773da4b36deeb138451d6cb526043c4c46700dfb8e0388749bb0b32c39fa476');
INSERT INTO holdfast.audit_20261101 VALUES (1, 27, '2026-11-30 06:46:34.771743+05:45', 'holdfast', '[{"action":"push.set","task":"01a229f8-b46e-7ce0-b904-28d13a2f82eb","object":"w1"}]', '\xb815287253e5aca7a5e2a86c234fafff547157b3bbd24cea1bdad865041c1538');
INSERT INTO holdfast.audit_20261101 VALUES (1, 28, '2026-11-30 06:46:34.772951+05:45', 'holdfast', '[{"action":"push.redelivered","task":"01a229f8-b46e-7ce0-b904-28d13a2f82eb","object":"w1"}]', '\x73ffc0d6525c70419d34ba8f469b13a1f05d9d002b703f1aaa38fe5fe90b5650');
INSERT INTO holdfast.audit_20261101 VALUES (1, 29, '2026-11-30 06:46:34.78289+05:45', 'holdfast', '[{"action":"push.set","task":"01a229f8-b472-79a9-aee3-f0cce97dd3e2","object":"w1"}]', '\x9a68f8738deb34f1867db391fd16899c7ed4a0e50b3b21fb6da3e4498d25b714');
INSERT INTO holdfast.audit_20261101 VALUES (1, 30, '2026-11-30 06:46:34.784113+05:45', 'holdfast', '[{"action":"push.redelivered","task":"01a229f8-b472-79a9-aee3-f0cce97dd3e2","object":"w1"}]', '\xf06c67845eef364752f1c1ea65a680103464888a7c17a5caa5c1e18c7f32b422');
INSERT INTO holdfast.audit_20261101 VALUES (1, 31, '2026-11-30 06:46:34.790911+05:45', 'holdfast', '[{"action":"push.set","task":"01a229f8-b478-7b64-83f0-fb45ac848049","object":"w1"}]', '\xe6a581b5497e80bb1c3502d37c40bb62963a74be697828cba30169f91bad9a31');
INSERT INTO holdfast.audit_20261101 VALUES (1, 32, '2026-11-30 06:46:34.792099+05:45', 'holdfast', '[{"action":"push.redelivered","task":"01a229f8-b478-7b64-83f0-fb45ac848049","object":"w1"}]', '\xc6b15fd2ed2628f1d55d7f9ab0617bf6cd06fe8cdd33a1f8cd5a982d8c1b040e');
INSERT INTO holdfast.audit_20261101 VALUES (1, 33, '2026-11-30 06:46:34.796723+05:45', 'holdfast', '[{"action":"push.set","task":"01a229f8-b459-7e6c-aa77-f6337fbf11dd","object":"w1"}]', '\x3594d286c25d1d97ff034de71795a6419ca656bdd7c10196b1cf16b87afcdcce');
INSERT INTO holdfast.audit_20261101 VALUES (1, 34, '2026-11-30 06:46:34.797795+05:45', 'holdfast', '[{"action":"push.redelivered","task":"01a229f8-b459-7e6c-aa77-f6337fbf11dd","object":"w1"}]', '\x23648ca9a01bb57367ab2cb3ddfe30cb832d374ff27ba60b04f09ed3f7aecca0');
INSERT INTO holdfast.audit_20261101 VALUES (1, 35, '2026-11-30 06:46:34.808814+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b4d0-7b10-80dc-a1a6330f4ca7","agent":"writer","subject":"cyd"}]', '\xb119de9b836d38022aa5db96fdf65956338536258c74e1b3a798a179f979f866');
INSERT INTO holdfast.audit_20261101 VALUES (1, 36, '2026-11-30 06:46:34.811236+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b4d9-7e39-a365-b0966cefbec5","agent":"caller","tenant":"tenant","subject":"owner"}]', '\xb23357bfd0994e3f35cdfeff88b8670972a9eaca497b6be92a6ca4f90dc48ce9');
INSERT INTO holdfast.audit_20261101 VALUES (1, 37, '2026-11-30 06:46:34.822215+05:45', 'holdfast', '[{"action":"task.created","task":"01a229f8-b4dd-715e-bf0e-62d82397895a","agent":"helper"}]', '\x87cefe8ddd66232e13ccc4e77ff841deba12d095d5864ac709729fcd62a31e90');
INSERT INTO holdfast.audit_20261101 VALUES (1, 38, '2026-11-30 06:46:34.826617+05:45', 'holdfast', '[{"action":"key.created","object":"k1"}]', '\xc8901463da73d7c859b93c3d7de649d6d98df8c24f824ce656c6802036854171');
INSERT INTO holdfast.audit_chains VALUES (2, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (3, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (4, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (5, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (6, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (7, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (8, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (9, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (10, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (11, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (12, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (13, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (14, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (15, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (16, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (17, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (18, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (19, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (20, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (21, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (22, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (23, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (24, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (25, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (26, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (27, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (28, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (29, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (30, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (31, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (32, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (33, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (34, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (35, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (36, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (37, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (38, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (39, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (40, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (41, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (42, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (43, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (44, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (45, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (46, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (47, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (48, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (49, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (50, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (51, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (52, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (53, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (54, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (55, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (56, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (57, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (58, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (59, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (60, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (61, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (62, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (63, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (64, 0, '\x', 0, '\x');
INSERT INTO holdfast.audit_chains VALUES (1, 38, '\xc8901463da73d7c859b93c3d7de649d6d98df8c24f824ce656c6802036854171', 0, '\x');
INSERT INTO holdfast.cancel_notices VALUES ('01a229f8-b459-7e6c-aa77-f6337fbf11dd', 'writer', 'canceled', '2026-11-30 06:46:34.685783+05:45', '2026-11-30 06:46:34.685783+05:45', 0, NULL, NULL, false, '');
INSERT INTO holdfast.context_states VALUES ('', 'ada', 'writer', 'c-novel', '01a229f8-b47c-7a48-a131-21b48801a7e3', 1, '{"chapter": 1}', '01a229f8-b482-7122-b64d-1a0ae1f4e037', '2026-11-30 06:46:34.722657+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"trip-1-m1","role":"user","parts":[{"text":"Book me a trip"}]}', NULL, '2026-11-30 06:46:34.569223+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.600792+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 3, 2, false, 3, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"Where to?"}],"metadata":{"usage":{"inputTokens":90,"outputTokens":10,"totalTokens":100}}}}', NULL, '2026-11-30 06:46:34.606121+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.590685+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 4, 1, false, NULL, 0, false, false, NULL, '{"id":"trip-1-m4","role":"user","parts":[{"text":"Oslo"}]}', '01a229f8-b411-7680-ba71-0c521c28a2c2', '2026-11-30 06:46:34.611111+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 5, 2, false, 1, 0, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.611111+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 6, 2, false, 2, 2, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.619881+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 9, 2, false, 5, 2, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"Booked."}],"metadata":{"usage":{"inputTokens":1000,"outputTokens":200,"totalTokens":1200}}}}', NULL, '2026-11-30 06:46:34.623107+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.618921+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b420-7811-9589-b2e8af6d11f2', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"trip-2-m1","role":"user","parts":[{"text":"And a hotel"}]}', NULL, '2026-11-30 06:46:34.624665+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b420-7811-9589-b2e8af6d11f2', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.627479+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b420-7811-9589-b2e8af6d11f2', 4, 2, false, 5, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.629451+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.626627+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b426-756d-a446-1c774048089e', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"trip-3-m1","role":"user","parts":[{"text":"Rome, today"}]}', NULL, '2026-11-30 06:46:34.630546+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b426-756d-a446-1c774048089e', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.633305+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b426-756d-a446-1c774048089e', 3, 2, false, 6, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"No seats left."}]}}', NULL, '2026-11-30 06:46:34.634102+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.632452+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b42a-7c2a-af7b-696d965aa099', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"trip-4-m1","role":"user","parts":[{"text":"Rome, tomorrow"}]}', NULL, '2026-11-30 06:46:34.634926+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b42a-7c2a-af7b-696d965aa099', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.637196+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b42a-7c2a-af7b-696d965aa099', 3, 4, false, NULL, 1, false, false, NULL, '{"outcome":"retry","error":"the fares service answered 503"}', NULL, '2026-11-30 06:46:34.638878+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.636384+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b42a-7c2a-af7b-696d965aa099', 4, 4, false, NULL, 2, false, false, NULL, '{"outcome":"retry","error":"the fares service answered 503"}', NULL, '2026-11-30 06:46:34.642198+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.641433+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b42a-7c2a-af7b-696d965aa099', 6, 2, false, 5, 3, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.644862+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.642991+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b435-7beb-980b-f7df6b0b02b6', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"trip-5-m1","role":"user","parts":[{"text":"A guide to Rome"}]}', NULL, '2026-11-30 06:46:34.646021+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b435-7beb-980b-f7df6b0b02b6', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.64912+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b435-7beb-980b-f7df6b0b02b6', 4, 4, false, NULL, 1, false, false, NULL, '{"outcome" : "lost", "worker" : "01a229f8-b3df-7dcb-971d-a417f16bd446"}', NULL, '2026-11-30 06:46:34.652307+05:45', '01a229f8-b3df-7dcb-971d-a417f16bd446', '2026-11-30 06:46:34.647954+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b435-7beb-980b-f7df6b0b02b6', 6, 2, false, 5, 3, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.655911+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.654376+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"poem-1-m1","role":"user","parts":[{"text":"A long poem"}]}', NULL, '2026-11-30 06:46:34.656613+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.658825+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 23, 2, false, 5, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"That is all."}],"metadata":{"usage":{"inputTokens":40,"outputTokens":900,"totalTokens":940}}}}', NULL, '2026-11-30 06:46:34.671959+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.658177+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b450-7993-be5c-6a23c8553e69', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"m-77","role":"user","parts":[{"text":"A haiku"}]}', NULL, '2026-11-30 06:46:34.67277+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b450-7993-be5c-6a23c8553e69', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.675278+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b450-7993-be5c-6a23c8553e69', 4, 2, false, 5, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.676724+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.674434+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b455-75b2-ada9-918e9118723c', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"m-77","role":"user","parts":[{"text":"A haiku"}]}', NULL, '2026-11-30 06:46:34.677495+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b455-75b2-ada9-918e9118723c', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.679777+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b455-75b2-ada9-918e9118723c', 4, 2, false, 5, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.681335+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.678948+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b459-7e6c-aa77-f6337fbf11dd', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"essay-1-m1","role":"user","parts":[{"text":"An essay"}]}', NULL, '2026-11-30 06:46:34.682068+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b459-7e6c-aa77-f6337fbf11dd', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.68414+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b459-7e6c-aa77-f6337fbf11dd', 3, 2, false, 7, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.688713+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.683448+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b461-76f0-9279-641cf0b720d0', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"essay-2-m1","role":"user","parts":[{"text":"A shorter one"}]}', NULL, '2026-11-30 06:46:34.689593+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b461-76f0-9279-641cf0b720d0', 2, 2, false, 7, 0, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.690964+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b463-7d67-a040-bd71851abaa4', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"help-1-m1","role":"user","parts":[{"text":"My login is broken"}]}', NULL, '2026-11-30 06:46:34.69206+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b463-7d67-a040-bd71851abaa4', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.694383+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b463-7d67-a040-bd71851abaa4', 3, 2, false, 6, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"The agent failed."}]},"cause":"exit status 1: no model is configured"}', NULL, '2026-11-30 06:46:34.695192+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.693508+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b467-7c65-8153-6d12b14989e9', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"help-2-m1","role":"user","parts":[{"text":"It still is"}]}', NULL, '2026-11-30 06:46:34.695925+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b467-7c65-8153-6d12b14989e9', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.697961+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b467-7c65-8153-6d12b14989e9', 3, 2, false, 6, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"The agent failed."}]},"cause":"exit status 1: no model is configured"}', NULL, '2026-11-30 06:46:34.698642+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.697191+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b46b-7437-8de7-9f7ad5c531d1', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"help-3-m1","role":"user","parts":[{"text":"Refund everyone"}]}', NULL, '2026-11-30 06:46:34.699394+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b46b-7437-8de7-9f7ad5c531d1', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.701453+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b46b-7437-8de7-9f7ad5c531d1', 3, 2, false, 8, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"Not without a manager."}]}}', NULL, '2026-11-30 06:46:34.702151+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.700725+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b46e-7ce0-b904-28d13a2f82eb', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"ask-1-m1","role":"user","parts":[{"text":"Help"}]}', NULL, '2026-11-30 06:46:34.702971+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b46e-7ce0-b904-28d13a2f82eb', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.704912+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b46e-7ce0-b904-28d13a2f82eb', 3, 2, false, 3, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"Which order?"}]}}', NULL, '2026-11-30 06:46:34.705656+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.704215+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b472-79a9-aee3-f0cce97dd3e2', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"ask-2-m1","role":"user","parts":[{"text":"Help"}]}', NULL, '2026-11-30 06:46:34.706752+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b472-79a9-aee3-f0cce97dd3e2', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.71095+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b472-79a9-aee3-f0cce97dd3e2', 3, 2, false, 3, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"Which order?"}]}}', NULL, '2026-11-30 06:46:34.711779+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.710015+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b478-7b64-83f0-fb45ac848049', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"ask-3-m1","role":"user","parts":[{"text":"Help"}]}', NULL, '2026-11-30 06:46:34.712931+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b478-7b64-83f0-fb45ac848049', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.715063+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b478-7b64-83f0-fb45ac848049', 3, 2, false, 3, 1, false, false, NULL, '{"message":{"id":"a","role":"agent","parts":[{"text":"Which order?"}]}}', NULL, '2026-11-30 06:46:34.715786+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.714374+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b47c-7a48-a131-21b48801a7e3', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"novel-1-m1","role":"user","parts":[{"text":"A novel"}]}', NULL, '2026-11-30 06:46:34.716788+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b47c-7a48-a131-21b48801a7e3', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.718873+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b483-79ec-af87-a7c865994305', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"novel-2-m1","role":"user","parts":[{"text":"Another novel"}]}', NULL, '2026-11-30 06:46:34.723808+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b483-79ec-af87-a7c865994305', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.726479+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b487-72a5-afff-dff9f677455c', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"help-4-m1","role":"user","parts":[{"text":"Anybody?"}]}', NULL, '2026-11-30 06:46:34.727301+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b487-72a5-afff-dff9f677455c', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.729587+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b48c-7d05-94d9-b2df7143a79b', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"trip-6-m1","role":"user","parts":[{"text":"Paris"}]}', NULL, '2026-11-30 06:46:34.733036+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b487-72a5-afff-dff9f677455c', 3, 4, false, NULL, 1, false, false, NULL, '{"outcome":"retry","error":"the model is busy"}', NULL, '2026-11-30 06:46:34.730381+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.728905+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b48e-795f-ab03-efc74dcd6925', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"trip-7-m1","role":"user","parts":[{"text":"Bergen"}]}', NULL, '2026-11-30 06:46:34.734771+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b4d9-7e39-a365-b0966cefbec5', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"m-hello","role":"user","parts":[{"text":"hello"}]}', NULL, '2026-11-30 06:46:34.81069+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b4d9-7e39-a365-b0966cefbec5', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.813219+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b4d9-7e39-a365-b0966cefbec5', 3, 4, false, NULL, 1, false, false, NULL, '{"outcome":"calls","calls":[{"id":"call-1","agent":"helper","task":"01a229f8-b4dd-715e-bf0e-62d82397895a","message":{"id":"m-for helper","role":"user","parts":[{"text":"for helper"}]}}]}', NULL, '2026-11-30 06:46:34.813219+05:45', '01a229f8-b4db-7cb4-ab86-9ef8c1a8c32d', '2026-11-30 06:46:34.812263+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b4dd-715e-bf0e-62d82397895a', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"m-for helper","role":"user","parts":[{"text":"for helper"}]}', NULL, '2026-11-30 06:46:34.820859+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b4dd-715e-bf0e-62d82397895a', 3, 2, false, 5, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.824093+05:45', '01a229f8-b4e6-7cd0-a802-e0006819c1c3', '2026-11-30 06:46:34.823244+05:45');
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b4dd-715e-bf0e-62d82397895a', 2, 2, false, 2, 1, false, false, NULL, NULL, NULL, '2026-11-30 06:46:34.824093+05:45', NULL, NULL);
INSERT INTO holdfast.events_20261101 VALUES ('01a229f8-b4d0-7b10-80dc-a1a6330f4ca7', 1, 1, false, NULL, 0, false, false, NULL, '{"id":"m-hello","role":"user","parts":[{"text":"hello"}]}', NULL, '2026-11-30 06:46:34.803848+05:45', NULL, NULL);
INSERT INTO holdfast.keys_20261130 VALUES ('2026-11-30', '', 'ada', 'k-1', '\x6b2d31', '01a229f8-b3e2-764d-87f7-38a31f1b0713', '2026-11-30 06:46:34.569223+05:45');
INSERT INTO holdfast.keys_20261130 VALUES ('2026-11-30', '', 'ada', 'k-2', '\x6b2d32', '01a229f8-b420-7811-9589-b2e8af6d11f2', '2026-11-30 06:46:34.624665+05:45');
INSERT INTO holdfast.leases VALUES ('partitions', '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 07:46:34.561201+05:45');
INSERT INTO holdfast.processes VALUES ('01a229f8-b3d1-7319-82bc-04ae3185aa73', 'web-1/1042', '1.4.0', '2026-11-30 06:46:34.558501+05:45');
INSERT INTO holdfast.processes VALUES ('01a229f8-b3df-7984-be17-1b809ce2506e', 'web-2/988', '1.4.0', '2026-11-30 06:46:34.559732+05:45');
INSERT INTO holdfast.processes VALUES ('01a229f8-b3df-7dcb-971d-a417f16bd446', 'web-2/731', '1.4.0', '2026-11-30 06:46:34.559978+05:45');
INSERT INTO holdfast.processes VALUES ('01a229f8-b4db-7cb4-ab86-9ef8c1a8c32d', 'test', '1', '2026-11-30 06:46:34.811928+05:45');
INSERT INTO holdfast.processes VALUES ('01a229f8-b4e6-7cd0-a802-e0006819c1c3', 'test', '1', '2026-11-30 06:46:34.822933+05:45');
INSERT INTO holdfast.processes VALUES ('01a229f8-b4eb-71f1-87f3-3793b7b92216', 'gpu-1', '1', '2026-11-30 06:46:34.828542+05:45');
INSERT INTO holdfast.push_configs VALUES ('01a229f8-b47c-7a48-a131-21b48801a7e3', 'w1', 'writer', 'novel-1', '0.3', 'https://app.example/hooks', '[]', NULL, '2026-11-30 06:46:34.736494+05:45');
INSERT INTO holdfast.push_configs VALUES ('01a229f8-b46e-7ce0-b904-28d13a2f82eb', 'w1', 'support', 'ask-1', '0.3', 'https://crm.example/a2a', '[]', NULL, '2026-11-30 06:46:34.769663+05:45');
INSERT INTO holdfast.push_configs VALUES ('01a229f8-b472-79a9-aee3-f0cce97dd3e2', 'w1', 'support', 'ask-2', '0.3', 'https://crm.example/a2a', '[]', NULL, '2026-11-30 06:46:34.781119+05:45');
INSERT INTO holdfast.push_configs VALUES ('01a229f8-b478-7b64-83f0-fb45ac848049', 'w1', 'support', 'ask-3', '0.3', 'https://crm.example/a2a', '[]', NULL, '2026-11-30 06:46:34.789276+05:45');
INSERT INTO holdfast.push_configs VALUES ('01a229f8-b459-7e6c-aa77-f6337fbf11dd', 'w1', 'writer', 'essay-1', '0.3', 'https://old.example/', '[]', NULL, '2026-11-30 06:46:34.795048+05:45');
INSERT INTO holdfast.push_cursors VALUES ('01a229f8-b47c-7a48-a131-21b48801a7e3', 'w1', 'app.example:443', -3445273140254271131, false, 3, 2, NULL, NULL, false, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, true);
INSERT INTO holdfast.push_cursors VALUES ('01a229f8-b46e-7ce0-b904-28d13a2f82eb', 'w1', 'crm.example:443', -8630086311603636342, false, 3, 3, '2026-11-30 07:46:34.780424+05:45', '2026-11-30 06:46:34.772274+05:45', false, 3, '2026-11-30 06:46:34.775323+05:45', '503 Service Unavailable', NULL, NULL, NULL, NULL, NULL, false);
INSERT INTO holdfast.push_cursors VALUES ('01a229f8-b472-79a9-aee3-f0cce97dd3e2', 'w1', 'crm.example:443', -8630086311603636342, false, 3, 3, '2026-11-30 07:46:34.788592+05:45', '2026-11-30 06:46:34.783398+05:45', false, 2, '2026-11-30 06:46:34.786534+05:45', '503 Service Unavailable', NULL, NULL, NULL, NULL, NULL, false);
INSERT INTO holdfast.push_cursors VALUES ('01a229f8-b478-7b64-83f0-fb45ac848049', 'w1', 'crm.example:443', -8630086311603636342, false, 3, 3, '2026-11-30 07:46:34.794517+05:45', '2026-11-30 06:46:34.79138+05:45', false, 1, '2026-11-30 06:46:34.794517+05:45', '503 Service Unavailable', NULL, NULL, NULL, NULL, NULL, false);
INSERT INTO holdfast.push_cursors VALUES ('01a229f8-b459-7e6c-aa77-f6337fbf11dd', 'w1', 'old.example:443', -8630086311603636342, false, 3, 3, NULL, '2026-11-30 06:46:34.797144+05:45', false, 1, '2026-11-30 06:46:34.800051+05:45', '410 Gone', NULL, NULL, NULL, '2026-11-30 06:46:34.800051+05:45', 'the receiver answered 410 Gone', false);
INSERT INTO holdfast.remote_workers VALUES ('01a229f8-b4eb-71f1-87f3-3793b7b92216', 'gpu-1', '1', 'test', '{writer}', 'replica', '2026-11-30 06:46:34.828542+05:45', '2026-11-30 06:46:34.828542+05:45', NULL, NULL);
INSERT INTO holdfast.schema_version VALUES (1, 0, true, '2026-11-30 01:01:33.482369');
INSERT INTO holdfast.schema_version VALUES (2, 1, true, '2026-11-30 01:01:33.490245');
INSERT INTO holdfast.schema_version VALUES (3, 2, true, '2026-11-30 01:01:33.547388');
INSERT INTO holdfast.schema_version VALUES (4, 3, true, '2026-11-30 01:01:33.561877');
INSERT INTO holdfast.schema_version VALUES (5, 4, true, '2026-11-30 01:01:33.580523');
INSERT INTO holdfast.schema_version VALUES (6, 5, true, '2026-11-30 01:01:33.604971');
INSERT INTO holdfast.schema_version VALUES (7, 6, true, '2026-11-30 01:01:33.641293');
INSERT INTO holdfast.schema_version VALUES (8, 7, true, '2026-11-30 01:01:33.651596');
INSERT INTO holdfast.schema_version VALUES (9, 8, true, '2026-11-30 01:01:33.664197');
INSERT INTO holdfast.schema_version VALUES (10, 9, true, '2026-11-30 01:01:33.67783');
INSERT INTO holdfast.schema_version VALUES (11, 11, true, '2026-11-30 01:01:33.699213');
INSERT INTO holdfast.schema_version VALUES (12, 13, true, '2026-11-30 01:01:33.7007');
INSERT INTO holdfast.schema_version VALUES (13, 14, true, '2026-11-30 01:01:33.703004');
INSERT INTO holdfast.schema_version VALUES (14, 15, true, '2026-11-30 01:01:33.704858');
INSERT INTO holdfast.schema_version VALUES (15, 16, true, '2026-11-30 01:01:33.706192');
INSERT INTO holdfast.schema_version VALUES (16, 17, true, '2026-11-30 01:01:33.726592');
INSERT INTO holdfast.schema_version VALUES (17, 18, true, '2026-11-30 01:01:33.739519');
INSERT INTO holdfast.schema_version VALUES (18, 19, true, '2026-11-30 01:01:33.766195');
INSERT INTO holdfast.schema_version VALUES (19, 20, true, '2026-11-30 01:01:33.771632');
INSERT INTO holdfast.schema_version VALUES (20, 21, true, '2026-11-30 01:01:33.794895');
INSERT INTO holdfast.schema_version VALUES (21, 22, true, '2026-11-30 01:01:33.798435');
INSERT INTO holdfast.schema_version VALUES (22, 24, true, '2026-11-30 01:01:33.80011');
INSERT INTO holdfast.schema_version VALUES (23, 26, true, '2026-11-30 01:01:33.804124');
INSERT INTO holdfast.schema_version VALUES (24, 27, true, '2026-11-30 01:01:33.818361');
INSERT INTO holdfast.schema_version VALUES (25, 28, true, '2026-11-30 01:01:33.830666');
INSERT INTO holdfast.schema_version VALUES (26, 29, true, '2026-11-30 01:01:33.833968');
INSERT INTO holdfast.schema_version VALUES (27, 30, true, '2026-11-30 01:01:33.83949');
INSERT INTO holdfast.schema_version VALUES (28, 31, true, '2026-11-30 01:01:33.847058');
INSERT INTO holdfast.schema_version VALUES (29, 32, true, '2026-11-30 01:01:33.858752');
INSERT INTO holdfast.schema_version VALUES (30, 33, true, '2026-11-30 01:01:33.86316');
INSERT INTO holdfast.schema_version VALUES (31, 34, true, '2026-11-30 01:01:33.864332');
INSERT INTO holdfast.schema_version VALUES (32, 35, true, '2026-11-30 01:01:33.86577');
INSERT INTO holdfast.schema_version VALUES (33, 36, true, '2026-11-30 01:01:33.871839');
INSERT INTO holdfast.schema_version VALUES (34, 37, true, '2026-11-30 01:01:33.87411');
INSERT INTO holdfast.schema_version VALUES (35, 38, true, '2026-11-30 01:01:33.878119');
INSERT INTO holdfast.secrets VALUES ('page_token', '\xa424dc5b3247460f9ddada72f056c94b7e1d1d9d72764a2690d63fd81f1ba740', '2026-11-30 06:46:33.580523+05:45');
INSERT INTO holdfast.secrets VALUES ('push', '\xdc8b8d6a372f4885b422328ef2193aa1e35c4e3e697f4acd928f1f70c6b8eac4', '2026-11-30 06:46:33.580523+05:45');
INSERT INTO holdfast.secrets VALUES ('memory', '\x0e234c8a520b4e9cab134d51731665846fec212e8b1c4f3984f377aaef559127', '2026-11-30 06:46:33.864332+05:45');
INSERT INTO holdfast.task_calls VALUES ('01a229f8-b4d9-7e39-a365-b0966cefbec5', 3, 1, 'call-1', 'helper', '01a229f8-b4dd-715e-bf0e-62d82397895a', false, '01a229f8-b4d9-7e39-a365-b0966cefbec5', '{caller}', '2026-11-30 06:46:34.813219+05:45', '2026-11-30 06:46:34.820859+05:45', 0, NULL, NULL, NULL, NULL, false, 0, NULL);
INSERT INTO holdfast.task_names VALUES ('', 'ada', 'travel', 'trip-1', '01a229f8-b3e2-764d-87f7-38a31f1b0713');
INSERT INTO holdfast.task_names VALUES ('', 'ada', 'travel', 'trip-2', '01a229f8-b420-7811-9589-b2e8af6d11f2');
INSERT INTO holdfast.task_names VALUES ('', 'ben', 'travel', 'trip-3', '01a229f8-b426-756d-a446-1c774048089e');
INSERT INTO holdfast.task_names VALUES ('', 'ben', 'travel', 'trip-4', '01a229f8-b42a-7c2a-af7b-696d965aa099');
INSERT INTO holdfast.task_names VALUES ('', 'ben', 'travel', 'trip-5', '01a229f8-b435-7beb-980b-f7df6b0b02b6');
INSERT INTO holdfast.task_names VALUES ('', 'ada', 'writer', 'poem-1', '01a229f8-b440-7786-a9aa-97141058f44a');
INSERT INTO holdfast.task_names VALUES ('', 'cyd', 'writer', 'haiku-1', '01a229f8-b450-7993-be5c-6a23c8553e69');
INSERT INTO holdfast.task_names VALUES ('', 'cyd', 'writer', 'haiku-2', '01a229f8-b455-75b2-ada9-918e9118723c');
INSERT INTO holdfast.task_names VALUES ('', 'cyd', 'writer', 'essay-2', '01a229f8-b461-76f0-9279-641cf0b720d0');
INSERT INTO holdfast.task_names VALUES ('', 'ben', 'support', 'help-1', '01a229f8-b463-7d67-a040-bd71851abaa4');
INSERT INTO holdfast.task_names VALUES ('', 'ben', 'support', 'help-2', '01a229f8-b467-7c65-8153-6d12b14989e9');
INSERT INTO holdfast.task_names VALUES ('', 'cyd', 'support', 'help-3', '01a229f8-b46b-7437-8de7-9f7ad5c531d1');
INSERT INTO holdfast.task_names VALUES ('', 'cyd', 'support', 'ask-1', '01a229f8-b46e-7ce0-b904-28d13a2f82eb');
INSERT INTO holdfast.task_names VALUES ('', 'cyd', 'support', 'ask-2', '01a229f8-b472-79a9-aee3-f0cce97dd3e2');
INSERT INTO holdfast.task_names VALUES ('', 'cyd', 'support', 'ask-3', '01a229f8-b478-7b64-83f0-fb45ac848049');
INSERT INTO holdfast.task_names VALUES ('', 'ada', 'writer', 'novel-1', '01a229f8-b47c-7a48-a131-21b48801a7e3');
INSERT INTO holdfast.task_names VALUES ('', 'ben', 'writer', 'novel-2', '01a229f8-b483-79ec-af87-a7c865994305');
INSERT INTO holdfast.task_names VALUES ('', 'ben', 'support', 'help-4', '01a229f8-b487-72a5-afff-dff9f677455c');
INSERT INTO holdfast.task_names VALUES ('', 'ada', 'travel', 'trip-6', '01a229f8-b48c-7d05-94d9-b2df7143a79b');
INSERT INTO holdfast.task_names VALUES ('', 'ada', 'travel', 'trip-7', '01a229f8-b48e-795f-ab03-efc74dcd6925');
INSERT INTO holdfast.task_names VALUES ('', 'cyd', 'writer', 'essay-1', '01a229f8-b4d0-7b10-80dc-a1a6330f4ca7');
INSERT INTO holdfast.task_queue VALUES ('01a229f8-b47c-7a48-a131-21b48801a7e3', 'writer', '2026-11-30 06:46:34.716788+05:45', '01a229f8-b3d1-7319-82bc-04ae3185aa73', 1, 1, 1, NULL, false, 0, 62, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO holdfast.task_queue VALUES ('01a229f8-b483-79ec-af87-a7c865994305', 'writer', '2026-11-30 06:46:34.723808+05:45', '01a229f8-b3df-7984-be17-1b809ce2506e', 1, 1, 1, NULL, false, 0, 68, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO holdfast.task_queue VALUES ('01a229f8-b487-72a5-afff-dff9f677455c', 'support', '2026-11-30 06:46:34.730381+05:45', NULL, 1, 1, 1, NULL, false, 0, 62, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO holdfast.task_queue VALUES ('01a229f8-b48c-7d05-94d9-b2df7143a79b', 'travel', '2026-11-30 06:46:34.733036+05:45', NULL, 1, 1, 0, NULL, false, 0, 59, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO holdfast.task_queue VALUES ('01a229f8-b48e-795f-ab03-efc74dcd6925', 'travel', '2026-11-30 06:46:34.734771+05:45', NULL, 1, 1, 0, NULL, false, 0, 60, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO holdfast.task_queue VALUES ('01a229f8-b4d0-7b10-80dc-a1a6330f4ca7', 'writer', '2026-11-30 06:46:34.803848+05:45', NULL, 1, 1, 0, NULL, false, 0, 57, NULL, NULL, false, NULL, NULL, NULL);
INSERT INTO holdfast.task_queue VALUES ('01a229f8-b4d9-7e39-a365-b0966cefbec5', 'caller', '2026-11-30 06:46:34.813219+05:45', NULL, 1, 2, 0, NULL, false, 0, 0, 'infinity', 3, false, NULL, NULL, NULL);
INSERT INTO holdfast.task_settled VALUES ('01a229f8-b4dd-715e-bf0e-62d82397895a', 3);
INSERT INTO holdfast.task_states VALUES ('01a229f8-b47c-7a48-a131-21b48801a7e3', 1, '{"chapter": 1}', '01a229f8-b480-72b1-913e-01ae242cd677', '2026-11-30 06:46:34.721046+05:45');
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b3e2-764d-87f7-38a31f1b0713', 'trip-1', 'travel', '', 'ada', 'c-oslo', 5, false, NULL, 9, 9, '2026-11-30 06:46:34.623107+05:45', 2, 4, 2, 2, 0, NULL, '2026-11-30 06:46:34.618921+05:45', false, NULL, false, false, '0.3', NULL, 14, NULL, '2026-11-30 06:46:34.569223+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b420-7811-9589-b2e8af6d11f2', 'trip-2', 'travel', '', 'ada', 'c-oslo', 5, false, NULL, 4, 4, '2026-11-30 06:46:34.629451+05:45', 1, 3, 1, 1, 0, NULL, '2026-11-30 06:46:34.626627+05:45', false, NULL, false, false, '0.3', NULL, 25, NULL, '2026-11-30 06:46:34.624665+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b426-756d-a446-1c774048089e', 'trip-3', 'travel', '', 'ben', 'c-rome', 6, false, NULL, 3, 3, '2026-11-30 06:46:34.634102+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.632452+05:45', false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.630546+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b42a-7c2a-af7b-696d965aa099', 'trip-4', 'travel', '', 'ben', 'c-rome', 5, false, NULL, 6, 6, '2026-11-30 06:46:34.644862+05:45', 3, 2, 3, 1, 0, NULL, '2026-11-30 06:46:34.642991+05:45', false, NULL, false, false, '0.3', NULL, 5, NULL, '2026-11-30 06:46:34.634926+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b435-7beb-980b-f7df6b0b02b6', 'trip-5', 'travel', '', 'ben', 'c-rome', 5, false, NULL, 6, 6, '2026-11-30 06:46:34.655911+05:45', 3, 2, 2, 1, 0, NULL, '2026-11-30 06:46:34.654376+05:45', false, NULL, false, false, '0.3', NULL, 33, NULL, '2026-11-30 06:46:34.646021+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b440-7786-a9aa-97141058f44a', 'poem-1', 'writer', '', 'ada', 'c-poem', 5, false, NULL, 23, 23, '2026-11-30 06:46:34.671959+05:45', 1, 22, 1, 1, 0, NULL, '2026-11-30 06:46:34.658177+05:45', false, NULL, false, false, '1.0', NULL, 5600, NULL, '2026-11-30 06:46:34.656613+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b450-7993-be5c-6a23c8553e69', 'haiku-1', 'writer', '', 'cyd', 'c-haiku', 5, false, NULL, 4, 4, '2026-11-30 06:46:34.676724+05:45', 1, 3, 1, 1, 0, NULL, '2026-11-30 06:46:34.674434+05:45', false, NULL, false, false, '0.1', NULL, 8, NULL, '2026-11-30 06:46:34.67277+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b455-75b2-ada9-918e9118723c', 'haiku-2', 'writer', '', 'cyd', 'c-haiku', 5, false, NULL, 4, 4, '2026-11-30 06:46:34.681335+05:45', 1, 3, 1, 1, 0, NULL, '2026-11-30 06:46:34.678948+05:45', false, NULL, false, false, '0.1', NULL, 8, NULL, '2026-11-30 06:46:34.677495+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b461-76f0-9279-641cf0b720d0', 'essay-2', 'writer', '', 'cyd', 'c-essay', 7, false, NULL, 2, 2, '2026-11-30 06:46:34.690964+05:45', 0, 0, 0, 1, 0, NULL, NULL, true, '2026-11-30 06:46:34.690964+05:45', false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.689593+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b463-7d67-a040-bd71851abaa4', 'help-1', 'support', '', 'ben', 'c-login', 6, false, NULL, 3, 3, '2026-11-30 06:46:34.695192+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.693508+05:45', false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.69206+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b467-7c65-8153-6d12b14989e9', 'help-2', 'support', '', 'ben', 'c-login', 6, false, NULL, 3, 3, '2026-11-30 06:46:34.698642+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.697191+05:45', false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.695925+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b46b-7437-8de7-9f7ad5c531d1', 'help-3', 'support', '', 'cyd', 'c-refund', 8, false, NULL, 3, 3, '2026-11-30 06:46:34.702151+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.700725+05:45', false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.699394+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b459-7e6c-aa77-f6337fbf11dd', NULL, 'writer', '', 'cyd', 'c-essay', 7, false, NULL, 3, 3, '2026-11-30 06:46:34.688713+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.683448+05:45', true, '2026-11-30 06:46:34.685783+05:45', false, true, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.682068+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_20261101 VALUES ('01a229f8-b4dd-715e-bf0e-62d82397895a', NULL, 'helper', 'tenant', 'owner', 'context', 5, false, NULL, 3, 3, '2026-11-30 06:46:34.824093+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.823244+05:45', false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.820859+05:45', NULL, NULL, false, NULL, NULL, true, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b46e-7ce0-b904-28d13a2f82eb', 'ask-1', 'support', '', 'cyd', 'c-ask-1', 3, false, NULL, 3, 3, '2026-11-30 06:46:34.705656+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.704215+05:45', false, NULL, false, true, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.702971+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b483-79ec-af87-a7c865994305', 'novel-2', 'writer', '', 'ben', 'c-novel-2', 2, false, NULL, 2, 2, '2026-11-30 06:46:34.726479+05:45', 1, 1, 1, 1, 0, '01a229f8-b3df-7984-be17-1b809ce2506e', '2026-11-30 06:46:34.725709+05:45', false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.723808+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b487-72a5-afff-dff9f677455c', 'help-4', 'support', '', 'ben', 'c-later', 2, false, NULL, 3, 2, '2026-11-30 06:46:34.729587+05:45', 1, 1, 1, 1, 0, NULL, '2026-11-30 06:46:34.728905+05:45', false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.727301+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b48c-7d05-94d9-b2df7143a79b', 'trip-6', 'travel', '', 'ada', 'c-paris', 1, false, NULL, 1, 1, '2026-11-30 06:46:34.733036+05:45', 0, 0, 0, 1, 0, NULL, NULL, false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.733036+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b48e-795f-ab03-efc74dcd6925', 'trip-7', 'travel', '', 'ada', 'c-bergen', 1, false, NULL, 1, 1, '2026-11-30 06:46:34.734771+05:45', 0, 0, 0, 1, 0, NULL, NULL, false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.734771+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b47c-7a48-a131-21b48801a7e3', 'novel-1', 'writer', '', 'ada', 'c-novel', 2, false, NULL, 3, 2, '2026-11-30 06:46:34.718873+05:45', 1, 2, 1, 1, 0, '01a229f8-b3d1-7319-82bc-04ae3185aa73', '2026-11-30 06:46:34.718217+05:45', false, NULL, false, true, '0.3', NULL, 11, NULL, '2026-11-30 06:46:34.716788+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b472-79a9-aee3-f0cce97dd3e2', 'ask-2', 'support', '', 'cyd', 'c-ask-2', 3, false, NULL, 3, 3, '2026-11-30 06:46:34.711779+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.710015+05:45', false, NULL, false, true, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.706752+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b478-7b64-83f0-fb45ac848049', 'ask-3', 'support', '', 'cyd', 'c-ask-3', 3, false, NULL, 3, 3, '2026-11-30 06:46:34.715786+05:45', 1, 2, 1, 1, 0, NULL, '2026-11-30 06:46:34.714374+05:45', false, NULL, false, true, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.712931+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b4d0-7b10-80dc-a1a6330f4ca7', 'essay-1', 'writer', '', 'cyd', 'context', 1, false, NULL, 1, 1, '2026-11-30 06:46:34.803848+05:45', 0, 0, 0, 1, 0, NULL, NULL, false, NULL, false, false, '0.3', 3, 0, NULL, '2026-11-30 06:46:34.803848+05:45', NULL, NULL, false, NULL, NULL, false, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.tasks_open VALUES ('01a229f8-b4d9-7e39-a365-b0966cefbec5', NULL, 'caller', 'tenant', 'owner', 'context', 2, false, NULL, 3, 2, '2026-11-30 06:46:34.813219+05:45', 1, 2, 1, 2, 0, NULL, '2026-11-30 06:46:34.812263+05:45', false, NULL, false, false, '0.3', NULL, 0, NULL, '2026-11-30 06:46:34.81069+05:45', NULL, 'infinity', false, NULL, NULL, true, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO holdfast.workers VALUES ('01a229f8-b3d1-7319-82bc-04ae3185aa73', 'web-1/1042', '1.4.0', 'api,worker', '2026-11-30 06:46:34.558501+05:45', '2026-11-30 07:46:34.558501+05:45');
INSERT INTO holdfast.workers VALUES ('01a229f8-b3df-7984-be17-1b809ce2506e', 'web-2/988', '1.4.0', 'api,worker', '2026-11-30 06:46:34.559732+05:45', '2026-11-30 07:46:34.559732+05:45');
INSERT INTO holdfast.workers VALUES ('01a229f8-b4db-7cb4-ab86-9ef8c1a8c32d', 'test', '1', 'worker', '2026-11-30 06:46:34.811928+05:45', '2026-11-30 07:46:34.811928+05:45');
INSERT INTO holdfast.workers VALUES ('01a229f8-b4e6-7cd0-a802-e0006819c1c3', 'test', '1', 'worker', '2026-11-30 06:46:34.822933+05:45', '2026-11-30 07:46:34.822933+05:45');
SELECT pg_catalog.setval('holdfast.push_attempts_id', 9, true);
SELECT pg_catalog.setval('holdfast.schema_version_id_seq', 35, true);
ALTER TABLE ONLY holdfast.admin_jobs
    ADD CONSTRAINT admin_jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.admin_sessions
    ADD CONSTRAINT admin_sessions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.agent_outages
    ADD CONSTRAINT agent_outages_pkey PRIMARY KEY (agent);
ALTER TABLE ONLY holdfast.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY holdfast.artifacts_20261101
    ADD CONSTRAINT artifacts_20261101_pkey PRIMARY KEY (task, seq);
ALTER TABLE ONLY holdfast.artifacts_20261201
    ADD CONSTRAINT artifacts_20261201_pkey PRIMARY KEY (task, seq);
ALTER TABLE ONLY holdfast.push_attempts
    ADD CONSTRAINT push_attempts_pkey PRIMARY KEY (id, started_at);
ALTER TABLE ONLY holdfast.attempts_20261130
    ADD CONSTRAINT attempts_20261130_pkey PRIMARY KEY (id, started_at);
ALTER TABLE ONLY holdfast.attempts_20261201
    ADD CONSTRAINT attempts_20261201_pkey PRIMARY KEY (id, started_at);
ALTER TABLE ONLY holdfast.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (chain, n, at);
ALTER TABLE ONLY holdfast.audit_20261101
    ADD CONSTRAINT audit_20261101_pkey PRIMARY KEY (chain, n, at);
ALTER TABLE ONLY holdfast.audit_20261201
    ADD CONSTRAINT audit_20261201_pkey PRIMARY KEY (chain, n, at);
ALTER TABLE ONLY holdfast.audit_chains
    ADD CONSTRAINT audit_chains_pkey PRIMARY KEY (chain, length);
ALTER TABLE ONLY holdfast.cancel_notices
    ADD CONSTRAINT cancel_notices_pkey PRIMARY KEY (task);
ALTER TABLE ONLY holdfast.context_states
    ADD CONSTRAINT context_states_pkey PRIMARY KEY (tenant, owner, agent, context_id);
ALTER TABLE ONLY holdfast.erasures
    ADD CONSTRAINT erasures_pkey PRIMARY KEY (task);
ALTER TABLE ONLY holdfast.events_20261101
    ADD CONSTRAINT events_20261101_pkey PRIMARY KEY (task, seq);
ALTER TABLE ONLY holdfast.events_20261201
    ADD CONSTRAINT events_20261201_pkey PRIMARY KEY (task, seq);
ALTER TABLE ONLY holdfast.events_kept
    ADD CONSTRAINT events_kept_pkey PRIMARY KEY (task, seq);
ALTER TABLE ONLY holdfast.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant, owner, key, day);
ALTER TABLE ONLY holdfast.keys_20261130
    ADD CONSTRAINT keys_20261130_pkey PRIMARY KEY (tenant, owner, key, day);
ALTER TABLE ONLY holdfast.keys_20261201
    ADD CONSTRAINT keys_20261201_pkey PRIMARY KEY (tenant, owner, key, day);
ALTER TABLE ONLY holdfast.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);
ALTER TABLE ONLY holdfast.processes
    ADD CONSTRAINT processes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.push_configs
    ADD CONSTRAINT push_configs_pkey PRIMARY KEY (task, config_id);
ALTER TABLE ONLY holdfast.push_cursors
    ADD CONSTRAINT push_cursors_pkey PRIMARY KEY (task, config_id);
ALTER TABLE ONLY holdfast.remote_workers
    ADD CONSTRAINT remote_workers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.retention_progress
    ADD CONSTRAINT retention_progress_pkey PRIMARY KEY (job);
ALTER TABLE ONLY holdfast.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.secrets
    ADD CONSTRAINT secrets_pkey PRIMARY KEY (name);
ALTER TABLE ONLY holdfast.signing_keys
    ADD CONSTRAINT signing_keys_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY holdfast.task_calls
    ADD CONSTRAINT task_calls_pkey PRIMARY KEY (parent, seq, nth);
ALTER TABLE ONLY holdfast.task_names
    ADD CONSTRAINT task_names_pkey PRIMARY KEY (tenant, owner, agent, client_id);
ALTER TABLE ONLY holdfast.task_queue
    ADD CONSTRAINT task_queue_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.task_settled
    ADD CONSTRAINT task_settled_pkey PRIMARY KEY (task, seq);
ALTER TABLE ONLY holdfast.task_states
    ADD CONSTRAINT task_states_pkey PRIMARY KEY (task);
ALTER TABLE ONLY holdfast.tasks_20261101
    ADD CONSTRAINT tasks_20261101_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.tasks_20261201
    ADD CONSTRAINT tasks_20261201_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.tasks_kept
    ADD CONSTRAINT tasks_kept_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.tasks_open
    ADD CONSTRAINT tasks_open_pkey PRIMARY KEY (id);
ALTER TABLE ONLY holdfast.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);
CREATE INDEX admin_jobs_ended ON holdfast.admin_jobs USING btree (ended_at) WHERE (ended_at IS NOT NULL);
CREATE INDEX admin_jobs_open ON holdfast.admin_jobs USING btree (id) WHERE (ended_at IS NULL);
CREATE INDEX admin_sessions_expires ON holdfast.admin_sessions USING btree (expires_at);
CREATE INDEX api_keys_listed ON holdfast.api_keys USING btree (created_at, key_id);
CREATE UNIQUE INDEX artifacts_20261101_task_request_id_idx ON holdfast.artifacts_20261101 USING btree (task, request_id) WHERE (request_id IS NOT NULL);
CREATE UNIQUE INDEX artifacts_20261201_task_request_id_idx ON holdfast.artifacts_20261201 USING btree (task, request_id) WHERE (request_id IS NOT NULL);
CREATE INDEX push_attempts_of ON ONLY holdfast.push_attempts USING btree (task, config_id, id);
CREATE INDEX attempts_20261130_task_config_id_id_idx ON holdfast.attempts_20261130 USING btree (task, config_id, id);
CREATE INDEX attempts_20261201_task_config_id_id_idx ON holdfast.attempts_20261201 USING btree (task, config_id, id);
CREATE INDEX audit_log_at ON ONLY holdfast.audit_log USING brin (at);
CREATE INDEX audit_20261101_at_idx ON holdfast.audit_20261101 USING brin (at);
CREATE INDEX audit_20261201_at_idx ON holdfast.audit_20261201 USING brin (at);
CREATE INDEX cancel_notices_due ON holdfast.cancel_notices USING btree (agent, due_at) WHERE (ended_at IS NULL);
CREATE INDEX context_states_task ON holdfast.context_states USING btree (task);
CREATE UNIQUE INDEX events_20261101_task_request_id_idx ON holdfast.events_20261101 USING btree (task, request_id) WHERE (request_id IS NOT NULL);
CREATE UNIQUE INDEX events_20261201_task_request_id_idx ON holdfast.events_20261201 USING btree (task, request_id) WHERE (request_id IS NOT NULL);
CREATE UNIQUE INDEX events_kept_request ON holdfast.events_kept USING btree (task, request_id) WHERE (request_id IS NOT NULL);
CREATE INDEX idempotency_keys_age ON ONLY holdfast.idempotency_keys USING btree (created_at);
CREATE INDEX keys_20261130_created_at_idx ON holdfast.keys_20261130 USING btree (created_at);
CREATE INDEX keys_20261201_created_at_idx ON holdfast.keys_20261201 USING btree (created_at);
CREATE INDEX processes_started ON holdfast.processes USING btree (started_at);
CREATE INDEX push_cursors_disabled ON holdfast.push_cursors USING btree (task, config_id) WHERE (disabled_at IS NOT NULL);
CREATE INDEX push_cursors_disabled_at ON holdfast.push_cursors USING btree (disabled_at) WHERE (disabled_at IS NOT NULL);
CREATE INDEX push_cursors_due ON holdfast.push_cursors USING btree (due_at) WHERE ((due_at IS NOT NULL) AND (NOT parked));
CREATE INDEX push_cursors_failing ON holdfast.push_cursors USING btree (task, config_id) WHERE (attempts > 0);
CREATE INDEX push_cursors_lanes ON holdfast.push_cursors USING btree (caller, host, due_at) WHERE (parked AND (due_at IS NOT NULL));
CREATE INDEX remote_workers_retired ON holdfast.remote_workers USING btree (retired_at) WHERE (retired_at IS NOT NULL);
CREATE INDEX remote_workers_seen ON holdfast.remote_workers USING btree (last_seen);
CREATE INDEX task_calls_child ON holdfast.task_calls USING btree (child);
CREATE INDEX task_calls_new ON holdfast.task_calls USING btree (created_at, parent, seq, nth) WHERE ((started_at IS NULL) AND (settled_at IS NULL));
CREATE INDEX task_calls_relays ON holdfast.task_calls USING btree (parent, seq, nth) WHERE (relay AND (started_at IS NOT NULL) AND (settled_at IS NULL));
CREATE INDEX task_names_of_tenant ON holdfast.task_names USING btree (client_id, tenant, agent);
CREATE INDEX task_names_task ON holdfast.task_names USING btree (task);
CREATE INDEX task_queue_leases ON holdfast.task_queue USING btree (look_at) WHERE ((look_at IS NOT NULL) AND (worker_id IS NOT NULL));
CREATE INDEX task_queue_owned ON holdfast.task_queue USING btree (worker_id) WHERE (worker_id IS NOT NULL);
CREATE INDEX task_queue_ready ON holdfast.task_queue USING btree (agent, available_at, id) WHERE ((worker_id IS NULL) AND (wakes_at IS NULL));
CREATE INDEX task_queue_suspects ON holdfast.task_queue USING btree (available_at, id) WHERE (suspect AND (worker_id IS NULL));
CREATE INDEX task_queue_timers ON holdfast.task_queue USING btree (wakes_at) WHERE (wakes_at IS NOT NULL);
CREATE INDEX tasks_ended_at ON ONLY holdfast.tasks_ended USING btree (agent COLLATE "C", status_at, id);
CREATE INDEX tasks_dated_agent_status_at_id_idx ON ONLY holdfast.tasks_dated USING btree (agent COLLATE "C", status_at, id);
CREATE INDEX tasks_20261101_agent_status_at_id_idx ON holdfast.tasks_20261101 USING btree (agent COLLATE "C", status_at, id);
CREATE INDEX tasks_of_context ON ONLY holdfast.tasks USING btree (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (context_id IS NOT NULL);
CREATE INDEX tasks_ended_context_id_tenant_owner_agent_direct_state_stat_idx ON ONLY holdfast.tasks_ended USING btree (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (context_id IS NOT NULL);
CREATE INDEX tasks_dated_context_id_tenant_owner_agent_direct_state_stat_idx ON ONLY holdfast.tasks_dated USING btree (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (context_id IS NOT NULL);
CREATE INDEX tasks_20261101_context_id_tenant_owner_agent_direct_state_s_idx ON holdfast.tasks_20261101 USING btree (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (context_id IS NOT NULL);
CREATE INDEX tasks_held ON ONLY holdfast.tasks_ended USING btree (id) WHERE (held_at IS NOT NULL);
CREATE INDEX tasks_dated_id_idx ON ONLY holdfast.tasks_dated USING btree (id) WHERE (held_at IS NOT NULL);
CREATE INDEX tasks_20261101_id_idx ON holdfast.tasks_20261101 USING btree (id) WHERE (held_at IS NOT NULL);
CREATE INDEX tasks_listed ON ONLY holdfast.tasks USING btree (tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (owner IS NOT NULL);
CREATE INDEX tasks_ended_tenant_owner_agent_direct_state_status_at_id_idx ON ONLY holdfast.tasks_ended USING btree (tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (owner IS NOT NULL);
CREATE INDEX tasks_dated_tenant_owner_agent_direct_state_status_at_id_idx ON ONLY holdfast.tasks_dated USING btree (tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (owner IS NOT NULL);
CREATE INDEX tasks_20261101_tenant_owner_agent_direct_state_status_at_id_idx ON holdfast.tasks_20261101 USING btree (tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (owner IS NOT NULL);
CREATE INDEX tasks_20261201_agent_status_at_id_idx ON holdfast.tasks_20261201 USING btree (agent COLLATE "C", status_at, id);
CREATE INDEX tasks_20261201_context_id_tenant_owner_agent_direct_state_s_idx ON holdfast.tasks_20261201 USING btree (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (context_id IS NOT NULL);
CREATE INDEX tasks_20261201_id_idx ON holdfast.tasks_20261201 USING btree (id) WHERE (held_at IS NOT NULL);
CREATE INDEX tasks_20261201_tenant_owner_agent_direct_state_status_at_id_idx ON holdfast.tasks_20261201 USING btree (tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (owner IS NOT NULL);
CREATE INDEX tasks_kept_agent_status_at_id_idx ON holdfast.tasks_kept USING btree (agent COLLATE "C", status_at, id);
CREATE INDEX tasks_kept_context_id_tenant_owner_agent_direct_state_statu_idx ON holdfast.tasks_kept USING btree (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (context_id IS NOT NULL);
CREATE INDEX tasks_kept_id_idx ON holdfast.tasks_kept USING btree (id) WHERE (held_at IS NOT NULL);
CREATE INDEX tasks_kept_tenant_owner_agent_direct_state_status_at_id_idx ON holdfast.tasks_kept USING btree (tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (owner IS NOT NULL);
CREATE INDEX tasks_open_context_id_tenant_owner_agent_direct_state_statu_idx ON holdfast.tasks_open USING btree (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (context_id IS NOT NULL);
CREATE INDEX tasks_open_parked ON holdfast.tasks_open USING btree (agent, status_at) WHERE (state = ANY (ARRAY[3, 4]));
CREATE INDEX tasks_open_tenant_owner_agent_direct_state_status_at_id_idx ON holdfast.tasks_open USING btree (tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE (owner IS NOT NULL);
ALTER INDEX holdfast.push_attempts_pkey ATTACH PARTITION holdfast.attempts_20261130_pkey;
ALTER INDEX holdfast.push_attempts_of ATTACH PARTITION holdfast.attempts_20261130_task_config_id_id_idx;
ALTER INDEX holdfast.push_attempts_pkey ATTACH PARTITION holdfast.attempts_20261201_pkey;
ALTER INDEX holdfast.push_attempts_of ATTACH PARTITION holdfast.attempts_20261201_task_config_id_id_idx;
ALTER INDEX holdfast.audit_log_at ATTACH PARTITION holdfast.audit_20261101_at_idx;
ALTER INDEX holdfast.audit_log_pkey ATTACH PARTITION holdfast.audit_20261101_pkey;
ALTER INDEX holdfast.audit_log_at ATTACH PARTITION holdfast.audit_20261201_at_idx;
ALTER INDEX holdfast.audit_log_pkey ATTACH PARTITION holdfast.audit_20261201_pkey;
ALTER INDEX holdfast.idempotency_keys_age ATTACH PARTITION holdfast.keys_20261130_created_at_idx;
ALTER INDEX holdfast.idempotency_keys_pkey ATTACH PARTITION holdfast.keys_20261130_pkey;
ALTER INDEX holdfast.idempotency_keys_age ATTACH PARTITION holdfast.keys_20261201_created_at_idx;
ALTER INDEX holdfast.idempotency_keys_pkey ATTACH PARTITION holdfast.keys_20261201_pkey;
ALTER INDEX holdfast.tasks_dated_agent_status_at_id_idx ATTACH PARTITION holdfast.tasks_20261101_agent_status_at_id_idx;
ALTER INDEX holdfast.tasks_dated_context_id_tenant_owner_agent_direct_state_stat_idx ATTACH PARTITION holdfast.tasks_20261101_context_id_tenant_owner_agent_direct_state_s_idx;
ALTER INDEX holdfast.tasks_dated_id_idx ATTACH PARTITION holdfast.tasks_20261101_id_idx;
ALTER INDEX holdfast.tasks_dated_tenant_owner_agent_direct_state_status_at_id_idx ATTACH PARTITION holdfast.tasks_20261101_tenant_owner_agent_direct_state_status_at_id_idx;
ALTER INDEX holdfast.tasks_dated_agent_status_at_id_idx ATTACH PARTITION holdfast.tasks_20261201_agent_status_at_id_idx;
ALTER INDEX holdfast.tasks_dated_context_id_tenant_owner_agent_direct_state_stat_idx ATTACH PARTITION holdfast.tasks_20261201_context_id_tenant_owner_agent_direct_state_s_idx;
ALTER INDEX holdfast.tasks_dated_id_idx ATTACH PARTITION holdfast.tasks_20261201_id_idx;
ALTER INDEX holdfast.tasks_dated_tenant_owner_agent_direct_state_status_at_id_idx ATTACH PARTITION holdfast.tasks_20261201_tenant_owner_agent_direct_state_status_at_id_idx;
ALTER INDEX holdfast.tasks_ended_at ATTACH PARTITION holdfast.tasks_dated_agent_status_at_id_idx;
ALTER INDEX holdfast.tasks_ended_context_id_tenant_owner_agent_direct_state_stat_idx ATTACH PARTITION holdfast.tasks_dated_context_id_tenant_owner_agent_direct_state_stat_idx;
ALTER INDEX holdfast.tasks_held ATTACH PARTITION holdfast.tasks_dated_id_idx;
ALTER INDEX holdfast.tasks_ended_tenant_owner_agent_direct_state_status_at_id_idx ATTACH PARTITION holdfast.tasks_dated_tenant_owner_agent_direct_state_status_at_id_idx;
ALTER INDEX holdfast.tasks_of_context ATTACH PARTITION holdfast.tasks_ended_context_id_tenant_owner_agent_direct_state_stat_idx;
ALTER INDEX holdfast.tasks_listed ATTACH PARTITION holdfast.tasks_ended_tenant_owner_agent_direct_state_status_at_id_idx;
ALTER INDEX holdfast.tasks_ended_at ATTACH PARTITION holdfast.tasks_kept_agent_status_at_id_idx;
ALTER INDEX holdfast.tasks_ended_context_id_tenant_owner_agent_direct_state_stat_idx ATTACH PARTITION holdfast.tasks_kept_context_id_tenant_owner_agent_direct_state_statu_idx;
ALTER INDEX holdfast.tasks_held ATTACH PARTITION holdfast.tasks_kept_id_idx;
ALTER INDEX holdfast.tasks_ended_tenant_owner_agent_direct_state_status_at_id_idx ATTACH PARTITION holdfast.tasks_kept_tenant_owner_agent_direct_state_status_at_id_idx;
ALTER INDEX holdfast.tasks_of_context ATTACH PARTITION holdfast.tasks_open_context_id_tenant_owner_agent_direct_state_statu_idx;
ALTER INDEX holdfast.tasks_listed ATTACH PARTITION holdfast.tasks_open_tenant_owner_agent_direct_state_status_at_id_idx;
CREATE TRIGGER all_there BEFORE INSERT OR DELETE OR TRUNCATE ON holdfast.audit_chains FOR EACH STATEMENT EXECUTE FUNCTION holdfast.audit_refuse();
ALTER TABLE holdfast.audit_chains ENABLE ALWAYS TRIGGER all_there;
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON holdfast.audit_20261101 FOR EACH STATEMENT EXECUTE FUNCTION holdfast.audit_refuse();
ALTER TABLE holdfast.audit_20261101 ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON holdfast.audit_20261201 FOR EACH STATEMENT EXECUTE FUNCTION holdfast.audit_refuse();
ALTER TABLE holdfast.audit_20261201 ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON holdfast.audit_log FOR EACH STATEMENT EXECUTE FUNCTION holdfast.audit_refuse();
ALTER TABLE holdfast.audit_log ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER grow_only BEFORE UPDATE ON holdfast.audit_chains FOR EACH ROW EXECUTE FUNCTION holdfast.audit_advance();
ALTER TABLE holdfast.audit_chains ENABLE ALWAYS TRIGGER grow_only;
CREATE POLICY callers ON holdfast.cancel_notices USING (holdfast.task_exists(task));
CREATE POLICY callers ON holdfast.context_states USING ((((tenant, owner) = ( SELECT (holdfast.caller())[1] AS caller,
    (holdfast.caller())[2] AS caller)) OR (tenant = ( SELECT (holdfast.caller())[3] AS caller))));
CREATE POLICY callers ON holdfast.idempotency_keys USING (((tenant, owner) = ( SELECT (holdfast.caller())[1] AS caller,
    (holdfast.caller())[2] AS caller)));
CREATE POLICY callers ON holdfast.push_configs USING (holdfast.task_exists(task));
CREATE POLICY callers ON holdfast.push_cursors USING (holdfast.task_exists(task));
CREATE POLICY callers ON holdfast.task_calls USING (holdfast.task_exists(parent));
CREATE POLICY callers ON holdfast.task_events USING (holdfast.task_exists(task));
CREATE POLICY callers ON holdfast.task_names USING ((((tenant, owner) = ( SELECT (holdfast.caller())[1] AS caller,
    (holdfast.caller())[2] AS caller)) OR (tenant = ( SELECT (holdfast.caller())[3] AS caller))));
CREATE POLICY callers ON holdfast.task_queue USING (holdfast.task_exists(id));
CREATE POLICY callers ON holdfast.task_settled USING (holdfast.task_exists(task));
CREATE POLICY callers ON holdfast.task_states USING (holdfast.task_exists(task));
CREATE POLICY callers ON holdfast.tasks USING ((((tenant, owner) = ( SELECT (holdfast.caller())[1] AS caller,
    (holdfast.caller())[2] AS caller)) OR (tenant = ( SELECT (holdfast.caller())[3] AS caller))));
ALTER TABLE holdfast.cancel_notices ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.context_states ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.idempotency_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.push_configs ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.push_cursors ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_calls ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_names ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_settled ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.task_states ENABLE ROW LEVEL SECURITY;
ALTER TABLE holdfast.tasks ENABLE ROW LEVEL SECURITY;
GRANT USAGE ON SCHEMA holdfast TO holdfast_reader;
REVOKE ALL ON FUNCTION holdfast.admit_servers(newcomer name) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.audit(entries text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.partition_add(child text, lower_bound text, upper_bound text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.partition_detach(child text) FROM PUBLIC;
REVOKE ALL ON FUNCTION holdfast.partition_drop(child text) FROM PUBLIC;
GRANT SELECT ON TABLE holdfast.v_api_keys TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_artifacts TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_audit TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_cancels TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_events TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_history TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_keys TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_lineage TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_names TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_outages TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_push TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_push_attempts TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_queue TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_remote_workers TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_runs TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_states TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_tasks TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_transitions TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_usage TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.v_workers TO holdfast_reader;
