-- Views: the host of delivery attempts, addresses without ports, API keys.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.push_attempts ADD COLUMN host text;
COMMENT ON COLUMN holdfast.push_attempts.host IS 'Host and port of the URL: clients delete configurations. Null: an older server made the attempt.';

CREATE OR REPLACE VIEW holdfast.v_push_attempts AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
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
       (SELECT p.name FROM holdfast.processes p WHERE p.id = a.worker_id) AS worker_name,
       a.host
  FROM holdfast.push_attempts a
  JOIN holdfast.tasks t ON t.id = a.task;
COMMENT ON COLUMN holdfast.v_push_attempts.host IS 'Host and port of the URL, also after the client has deleted the webhook; null: an older server made the attempt.';

CREATE OR REPLACE VIEW holdfast.v_audit AS
SELECT l.at,
       x.action,
       nullif(e.entry ->> 'task', '')::uuid AS task,
       coalesce(e.entry ->> 'agent', '') AS agent,
       coalesce(e.entry ->> 'tenant', '') AS tenant,
       coalesce(e.entry ->> 'subject', '') AS subject,
       coalesce(e.entry ->> 'method', '') AS method,
       coalesce(e.entry ->> 'credential', '') AS credential,
       coalesce(e.entry ->> 'address', '') AS address,
       coalesce(x.object, '') AS object,
       l.login,
       l.chain::integer AS chain,
       l.n,
       coalesce(e.entry ->> 'reason', '') AS reason,
       regexp_replace(coalesce(e.entry ->> 'address', ''), '^(?:\[(.*)\]|([^:]*)):\d+$', '\1\2') AS ip
  FROM holdfast.audit_log l
 CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY AS e (entry, ord)
 CROSS JOIN LATERAL (
    SELECT 1 AS nth, e.entry ->> 'action' AS action, e.entry ->> 'object' AS object
     UNION ALL
    SELECT 2, 'push.set', e.entry ->> 'webhook' WHERE e.entry ->> 'webhook' IS NOT NULL
 ) x;
COMMENT ON COLUMN holdfast.v_audit.ip IS 'The address without its port.';

CREATE VIEW holdfast.v_api_keys AS
SELECT k.key_id, k.name, k.tenant, k.subject, k.scopes, k.created_at, k.expires_at, k.revoked_at, k.last_used_at
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

-- +goose StatementBegin
DO $$
BEGIN
    GRANT SELECT ON holdfast.v_api_keys TO holdfast_reader;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN
    NULL; -- as in 00006
END
$$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.11' $$;

-- +goose Down
SET LOCAL lock_timeout = '5s';
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.10' $$;
DROP VIEW holdfast.v_api_keys;
-- As in 00019: views lose columns only with their comments and grants.
-- +goose StatementBegin
DO $$
DECLARE
    comments text := (SELECT string_agg(format('COMMENT ON COLUMN %s.%I IS %L', a.attrelid::regclass, a.attname, col_description(a.attrelid, a.attnum)), ';')
                        FROM pg_attribute a
                       WHERE a.attrelid IN ('holdfast.v_audit'::regclass, 'holdfast.v_push_attempts'::regclass)
                         AND a.attnum > 0 AND a.attname NOT IN ('ip', 'host') AND col_description(a.attrelid, a.attnum) IS NOT NULL);
    audit text := obj_description('holdfast.v_audit'::regclass);
    attempts text := obj_description('holdfast.v_push_attempts'::regclass);
    readable boolean := EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'holdfast_reader' AND has_table_privilege(r.oid, 'holdfast.v_audit', 'SELECT'));
BEGIN
    DROP VIEW holdfast.v_audit;
    CREATE VIEW holdfast.v_audit AS
    SELECT l.at,
           x.action,
           nullif(e.entry ->> 'task', '')::uuid AS task,
           coalesce(e.entry ->> 'agent', '') AS agent,
           coalesce(e.entry ->> 'tenant', '') AS tenant,
           coalesce(e.entry ->> 'subject', '') AS subject,
           coalesce(e.entry ->> 'method', '') AS method,
           coalesce(e.entry ->> 'credential', '') AS credential,
           coalesce(e.entry ->> 'address', '') AS address,
           coalesce(x.object, '') AS object,
           l.login,
           l.chain::integer AS chain,
           l.n,
           coalesce(e.entry ->> 'reason', '') AS reason
      FROM holdfast.audit_log l
     CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY AS e (entry, ord)
     CROSS JOIN LATERAL (
        SELECT 1 AS nth, e.entry ->> 'action' AS action, e.entry ->> 'object' AS object
         UNION ALL
        SELECT 2, 'push.set', e.entry ->> 'webhook' WHERE e.entry ->> 'webhook' IS NOT NULL
     ) x;
    DROP VIEW holdfast.v_push_attempts;
    CREATE VIEW holdfast.v_push_attempts AS
    SELECT t.id AS task,
           coalesce(t.client_id, t.id::text) AS task_id,
           t.agent, t.tenant, t.owner, t.context_id,
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
           (SELECT p.name FROM holdfast.processes p WHERE p.id = a.worker_id) AS worker_name
      FROM holdfast.push_attempts a
      JOIN holdfast.tasks t ON t.id = a.task;
    EXECUTE comments;
    EXECUTE format('COMMENT ON VIEW holdfast.v_audit IS %L', audit);
    EXECUTE format('COMMENT ON VIEW holdfast.v_push_attempts IS %L', attempts);
    IF readable THEN
        GRANT SELECT ON holdfast.v_audit, holdfast.v_push_attempts TO holdfast_reader;
    END IF;
END
$$;
-- +goose StatementEnd
ALTER TABLE holdfast.push_attempts DROP COLUMN host;
