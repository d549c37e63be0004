-- Who did what: a log that only grows, in chains of hashes.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- A writer continues whichever chain nobody holds at that moment, and holds it until its commit: writers do not wait for
-- each other, and no process has a chain that ends with it. There are as many as are ever held at once; one that is
-- missing was removed.
CREATE TABLE holdfast.audit_chains (
    chain  smallint NOT NULL,
    length bigint   NOT NULL DEFAULT 0,
    head   bytea    NOT NULL DEFAULT '\x',
    CONSTRAINT audit_chains_pkey PRIMARY KEY (chain)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
INSERT INTO holdfast.audit_chains (chain) SELECT generate_series(1, 64);

CREATE TABLE holdfast.audit_log (
    chain   smallint    NOT NULL,
    n       bigint      NOT NULL,
    at      timestamptz NOT NULL,
    login   text        NOT NULL,
    entries json        NOT NULL,
    hash    bytea       NOT NULL,
    CONSTRAINT audit_log_pkey PRIMARY KEY (chain, n)
);
-- As the payloads of events.
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE holdfast.audit_log ALTER COLUMN entries SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;
-- +goose StatementEnd
CREATE INDEX audit_log_at ON holdfast.audit_log USING brin (at);

COMMENT ON TABLE holdfast.audit_chains IS 'Where each chain of audit_log ends, so that its last rows cannot go unnoticed.';
COMMENT ON COLUMN holdfast.audit_chains.length IS 'How many rows the chain has.';
COMMENT ON COLUMN holdfast.audit_chains.head IS 'The hash of the last one.';
COMMENT ON TABLE holdfast.audit_log IS 'Who did what, in the commit that did it. Append-only.';
COMMENT ON COLUMN holdfast.audit_log.n IS 'Place in the chain, from 1 without a gap.';
COMMENT ON COLUMN holdfast.audit_log.login IS 'The database login that wrote it.';
COMMENT ON COLUMN holdfast.audit_log.entries IS 'What happened, an array: all tasks that were created by one statement are one row.';
COMMENT ON COLUMN holdfast.audit_log.hash IS 'SHA-256 of the hash before it and of the row: docs/audit.md.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION holdfast.audit_advance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.chain <> OLD.chain OR NEW.length <> OLD.length + 1 THEN
        RAISE EXCEPTION 'the chains of the audit log only grow' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.audit_refuse();
CREATE TRIGGER grow_only BEFORE UPDATE ON holdfast.audit_chains
    FOR EACH ROW EXECUTE FUNCTION holdfast.audit_advance();
CREATE TRIGGER all_there BEFORE INSERT OR DELETE OR TRUNCATE ON holdfast.audit_chains
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.audit_refuse();
ALTER TABLE holdfast.audit_log ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE holdfast.audit_chains ENABLE ALWAYS TRIGGER grow_only, ENABLE ALWAYS TRIGGER all_there;

-- The last thing that a transaction does: it holds a chain until the commit. Were all of them held, it would wait for one,
-- whose holder waits for nobody any more.
-- +goose StatementBegin
CREATE FUNCTION holdfast.audit(entries text) RETURNS bigint VOLATILE STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp
LANGUAGE plpgsql AS $$
DECLARE
    c holdfast.audit_chains;
    at timestamptz;
    hash bytea;
BEGIN
    SELECT * INTO c FROM holdfast.audit_chains ORDER BY chain LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT * INTO STRICT c FROM holdfast.audit_chains WHERE chain = 1 + pg_backend_pid() % 64 FOR NO KEY UPDATE;
    END IF;
    at := clock_timestamp();
    hash := sha256(c.head || convert_to(concat_ws(' ', c.chain, c.length + 1, (extract(epoch FROM at) * 1000000)::bigint, session_user, entries), 'UTF8'));
    INSERT INTO holdfast.audit_log VALUES (c.chain, c.length + 1, at, session_user, entries::json, hash);
    UPDATE holdfast.audit_chains a SET length = c.length + 1, head = hash WHERE a.chain = c.chain;
    RETURN c.length + 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.audit IS 'Appends entries, a JSON array, to the audit log, as the last thing that a transaction does.';
REVOKE ALL ON FUNCTION holdfast.audit FROM PUBLIC;
SELECT holdfast.admit_callers();

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.2' $$;
-- +goose StatementEnd

CREATE VIEW holdfast.v_audit AS
SELECT l.at,
       e.entry ->> 'action' AS action,
       nullif(e.entry ->> 'task', '')::uuid AS task,
       coalesce(e.entry ->> 'agent', '') AS agent,
       coalesce(e.entry ->> 'tenant', '') AS tenant,
       coalesce(e.entry ->> 'subject', '') AS subject,
       coalesce(e.entry ->> 'method', '') AS method,
       coalesce(e.entry ->> 'credential', '') AS credential,
       coalesce(e.entry ->> 'address', '') AS address,
       coalesce(e.entry ->> 'object', '') AS object,
       l.login,
       l.chain::integer AS chain,
       l.n
  FROM holdfast.audit_log l
 CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY AS e (entry, ord)
 ORDER BY l.at, l.chain, l.n, e.ord;

COMMENT ON VIEW holdfast.v_audit IS 'Who did what, in the order of time.';
COMMENT ON COLUMN holdfast.v_audit.at IS 'When, by the database''s clock.';
COMMENT ON COLUMN holdfast.v_audit.action IS 'What: docs/audit.md lists them.';
COMMENT ON COLUMN holdfast.v_audit.task IS 'The task''s UUID, which joins the other views; null if it is about none.';
COMMENT ON COLUMN holdfast.v_audit.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_audit.tenant IS 'The tenant of who did it.';
COMMENT ON COLUMN holdfast.v_audit.subject IS 'Who did it; empty without identity. Of an operator, the account on the machine.';
COMMENT ON COLUMN holdfast.v_audit.method IS 'How they showed who they are: api_key, basic, jwt, mtls; operator for the command line; empty for not at all.';
COMMENT ON COLUMN holdfast.v_audit.credential IS 'The scheme and the id of the credential, as far as it has one.';
COMMENT ON COLUMN holdfast.v_audit.address IS 'Where the connection came from, or the operator''s machine; empty where it is not known.';
COMMENT ON COLUMN holdfast.v_audit.object IS 'What beside the task: the id of a webhook''s configuration, or of a key.';
COMMENT ON COLUMN holdfast.v_audit.login IS 'The database login that wrote it down.';
COMMENT ON COLUMN holdfast.v_audit.chain IS 'The chain that it stands in.';
COMMENT ON COLUMN holdfast.v_audit.n IS 'The row of that chain; several entries may share one.';

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_reader') THEN
        GRANT SELECT ON holdfast.v_audit TO holdfast_reader;
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL; -- the schema is somebody else's, who has to grant its use
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP VIEW holdfast.v_audit;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.1' $$;
-- +goose StatementEnd
DROP FUNCTION holdfast.audit;
DROP TABLE holdfast.audit_log;
DROP TABLE holdfast.audit_chains;
DROP FUNCTION holdfast.audit_advance;
DROP FUNCTION holdfast.audit_refuse;
