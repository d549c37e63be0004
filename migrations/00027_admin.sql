-- The admin API: reasons in the audit log, and jobs that act on many tasks (decision 0077).

-- +goose Up
SET LOCAL lock_timeout = '5s';

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
       coalesce(e.entry ->> 'reason', '') AS reason
  FROM holdfast.audit_log l
 CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY AS e (entry, ord)
 CROSS JOIN LATERAL (
    SELECT 1 AS nth, e.entry ->> 'action' AS action, e.entry ->> 'object' AS object
     UNION ALL
    SELECT 2, 'push.set', e.entry ->> 'webhook' WHERE e.entry ->> 'webhook' IS NOT NULL
 ) x;
COMMENT ON COLUMN holdfast.v_audit.method IS 'How the caller authenticated: api_key, basic, jwt, mtls; operator for the command line and the admin API; empty without authentication.';
COMMENT ON COLUMN holdfast.v_audit.reason IS 'Why the operator acted, as given to the admin API; otherwise empty.';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.7' $$;

-- One row for each job. A replica that works on it has claimed it for a short time, and any other one continues when that
-- is over. batch has the tasks that it acts on now: they are stored before it begins, so they are counted once.
CREATE TABLE holdfast.admin_jobs (
    id            uuid        NOT NULL,
    action        text        NOT NULL,
    dry_run       boolean     NOT NULL,
    filter        json        NOT NULL,
    options       json        NOT NULL,
    reason        text        NOT NULL,
    tenant        text,
    actor         json        NOT NULL,
    position      uuid        NOT NULL,
    batch         uuid[]      NOT NULL DEFAULT '{}',
    matched       bigint      NOT NULL DEFAULT 0,
    done          bigint      NOT NULL DEFAULT 0,
    skipped       bigint      NOT NULL DEFAULT 0,
    failed        bigint      NOT NULL DEFAULT 0,
    failures      json        NOT NULL DEFAULT '[]',
    fence         bigint      NOT NULL DEFAULT 0,
    worker_id     uuid,
    claimed_until timestamptz NOT NULL DEFAULT 'epoch',
    created_at    timestamptz NOT NULL DEFAULT now(),
    started_at    timestamptz,
    canceled_at   timestamptz,
    ended_at      timestamptz,
    CONSTRAINT admin_jobs_pkey PRIMARY KEY (id),
    CONSTRAINT admin_jobs_counts CHECK (matched >= 0 AND done >= 0 AND skipped >= 0 AND failed >= 0)
);
CREATE INDEX admin_jobs_open ON holdfast.admin_jobs (id) WHERE ended_at IS NULL;
CREATE INDEX admin_jobs_ended ON holdfast.admin_jobs (ended_at) WHERE ended_at IS NOT NULL;
COMMENT ON TABLE holdfast.admin_jobs IS 'Jobs of the admin API: an action on all tasks that a filter selects.';
COMMENT ON COLUMN holdfast.admin_jobs.dry_run IS 'The job counts the tasks and changes none.';
COMMENT ON COLUMN holdfast.admin_jobs.tenant IS 'The only tenant that its operator may see; null: all.';
COMMENT ON COLUMN holdfast.admin_jobs.actor IS 'The operator, for the audit log.';
COMMENT ON COLUMN holdfast.admin_jobs.position IS 'The tasks from this id on are done, or in batch. The job goes from the newest task to the oldest.';
COMMENT ON COLUMN holdfast.admin_jobs.batch IS 'The tasks that the job acts on now.';
COMMENT ON COLUMN holdfast.admin_jobs.failures IS 'The newest failures: task and error.';
COMMENT ON COLUMN holdfast.admin_jobs.fence IS 'Each claim raises it; a write with an older one changes nothing.';
COMMENT ON COLUMN holdfast.admin_jobs.worker_id IS 'The process that claimed it last.';
COMMENT ON COLUMN holdfast.admin_jobs.claimed_until IS 'When another process may claim it.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.admin_jobs;
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.6' $$;
-- +goose StatementBegin
DO $$
DECLARE
    comments text := (SELECT string_agg(format('COMMENT ON COLUMN holdfast.v_audit.%I IS %L', a.attname, col_description(a.attrelid, a.attnum)), ';')
                        FROM pg_attribute a WHERE a.attrelid = 'holdfast.v_audit'::regclass AND a.attnum > 0 AND a.attname <> 'reason');
    whole text := obj_description('holdfast.v_audit'::regclass);
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
           l.n
      FROM holdfast.audit_log l
     CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY AS e (entry, ord)
     CROSS JOIN LATERAL (
        SELECT 1 AS nth, e.entry ->> 'action' AS action, e.entry ->> 'object' AS object
         UNION ALL
        SELECT 2, 'push.set', e.entry ->> 'webhook' WHERE e.entry ->> 'webhook' IS NOT NULL
     ) x;
    EXECUTE comments;
    EXECUTE format('COMMENT ON VIEW holdfast.v_audit IS %L', whole);
    IF readable THEN
        GRANT SELECT ON holdfast.v_audit TO holdfast_reader;
    END IF;
END
$$;
-- +goose StatementEnd
COMMENT ON COLUMN holdfast.v_audit.method IS 'How the caller authenticated: api_key, basic, jwt, mtls; operator for the command line; empty without authentication.';
