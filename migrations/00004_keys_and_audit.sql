-- Keys that replicas share, keys that clients show, and the audit log.
--
-- audit_log ── audit_20261101 … by time; the server creates the partitions and removes old ones (retention.audit).

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE TABLE holdfast.secrets (
    name       text        NOT NULL,
    value      bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT secrets_pkey PRIMARY KEY (name)
);
INSERT INTO holdfast.secrets (name, value)
SELECT name, decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')
  FROM unnest('{page_token,push,memory}'::text[]) AS name;

COMMENT ON TABLE holdfast.secrets IS 'Secret: keys that all replicas share.';
COMMENT ON COLUMN holdfast.secrets.name IS
    'page_token: signs the page tokens of lists; a new value invalidates the tokens in use. push: seals the secrets '
    'of webhooks, and what comes by resume URLs, and signs these URLs, if the environment has no key. memory: makes '
    'the keys under which agents keep memory; with a new value they lose it.';

-- The newest active key signs. The others are only published: future ones so that everybody has them when they begin
-- to sign, past ones for what they have signed.
CREATE TABLE holdfast.signing_keys (
    key_id      text        NOT NULL,
    algorithm   text        NOT NULL,
    private_key bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    active_at   timestamptz NOT NULL,
    CONSTRAINT signing_keys_pkey PRIMARY KEY (key_id),
    CONSTRAINT signing_keys_algorithm_known CHECK (algorithm = 'ES256')
);

COMMENT ON TABLE holdfast.signing_keys IS
    'Secret: the keys that replicas sign cards and webhooks with. Deleting a row withdraws the key within a minute.';
COMMENT ON COLUMN holdfast.signing_keys.key_id IS
    'The kid of signatures and of the published set: RFC 7638 thumbprint.';
COMMENT ON COLUMN holdfast.signing_keys.private_key IS 'PKCS #8.';
COMMENT ON COLUMN holdfast.signing_keys.active_at IS 'When it starts to sign. It signs until a later key starts.';

CREATE TABLE holdfast.api_keys (
    key_id       text        NOT NULL,
    key_hash     bytea       NOT NULL,
    name         text        NOT NULL,
    tenant       text        NOT NULL,
    subject      text        NOT NULL,
    scopes       text[]      NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (key_id),
    CONSTRAINT api_keys_hash_is_sha256 CHECK (octet_length(key_hash) = 32),
    CONSTRAINT api_keys_subject_given CHECK (subject <> '')
);
CREATE INDEX api_keys_listed ON holdfast.api_keys (created_at, key_id);

COMMENT ON TABLE holdfast.api_keys IS
    'API keys of clients. The table has no secrets: a key is shown once, when it is created.';
COMMENT ON COLUMN holdfast.api_keys.key_id IS 'The public part of the key.';
COMMENT ON COLUMN holdfast.api_keys.key_hash IS
    'SHA-256 of the whole key. It holds 256 random bits, so a slow hash would protect nothing.';
COMMENT ON COLUMN holdfast.api_keys.name IS 'The operator''s name for it.';
COMMENT ON COLUMN holdfast.api_keys.tenant IS 'With subject, the caller of requests that have the key.';
COMMENT ON COLUMN holdfast.api_keys.last_used_at IS 'Accurate to five minutes.';

-- The audit log: who did what, in chains of hashes that only grow at one end; retention removes whole partitions at
-- the other.
--
-- A writer continues whichever chain nobody holds at that moment, and holds it until its commit: writers do not wait
-- for each other, and no chain ends with its process. There are as many chains as are ever held at once.
--
-- The key has the length, so that a writer finds the present version of a chain first. While another session keeps an
-- old snapshot, vacuum cannot remove the versions before it.
CREATE TABLE holdfast.audit_chains (
    chain        smallint NOT NULL,
    length       bigint   NOT NULL DEFAULT 0,
    head         bytea    NOT NULL DEFAULT '\x',
    removed      bigint   NOT NULL DEFAULT 0,
    removed_head bytea    NOT NULL DEFAULT '\x',
    CONSTRAINT audit_chains_pkey PRIMARY KEY (chain, length),
    CONSTRAINT audit_chains_order CHECK (removed BETWEEN 0 AND length)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
INSERT INTO holdfast.audit_chains (chain) SELECT generate_series(1, 64);

COMMENT ON TABLE holdfast.audit_chains IS
    'Where each chain of audit_log begins and ends, so that the removal of rows is noticed.';
COMMENT ON COLUMN holdfast.audit_chains.length IS 'How many rows the chain has had.';
COMMENT ON COLUMN holdfast.audit_chains.head IS 'The hash of the last row.';
COMMENT ON COLUMN holdfast.audit_chains.removed IS
    'The last row that retention removed; it removes all rows before it, too. 0: none.';
COMMENT ON COLUMN holdfast.audit_chains.removed_head IS 'The hash of that row: the next one continues it.';

CREATE TABLE holdfast.audit_log (
    chain   smallint    NOT NULL,
    n       bigint      NOT NULL,
    at      timestamptz NOT NULL,
    login   text        NOT NULL,
    entries json        NOT NULL,
    hash    bytea       NOT NULL,
    CONSTRAINT audit_log_pkey PRIMARY KEY (chain, n, at)
) PARTITION BY RANGE (at);
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

COMMENT ON TABLE holdfast.audit_log IS 'Audited actions, each written in the commit of the action. Append-only.';
COMMENT ON COLUMN holdfast.audit_log.n IS 'Place in the chain, from 1 without a gap.';
COMMENT ON COLUMN holdfast.audit_log.login IS 'The database login that wrote it.';
COMMENT ON COLUMN holdfast.audit_log.entries IS
    'What happened, as an array: one row names all tasks that one statement created.';
COMMENT ON COLUMN holdfast.audit_log.hash IS 'SHA-256 of the hash before it and of the row: docs/audit.md.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.audit_refuse() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only: % of % is refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holdfast.audit_advance() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.chain = OLD.chain AND NEW.length = OLD.length + 1
       AND NEW.removed = OLD.removed AND NEW.removed_head = OLD.removed_head THEN
        RETURN NEW;
    END IF;
    -- Retention moves the beginning to a row that is there, and changes nothing else.
    IF NEW.chain = OLD.chain AND NEW.length = OLD.length AND NEW.head = OLD.head AND NEW.removed > OLD.removed
       AND EXISTS (SELECT FROM holdfast.audit_log l
                    WHERE l.chain = NEW.chain AND l.n = NEW.removed AND l.hash = NEW.removed_head) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only: chain % can only grow', OLD.chain
        USING ERRCODE = 'insufficient_privilege';
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

-- The last thing that a transaction does: it holds a chain until the commit. If all of them are held it waits for one,
-- whose holder waits for nobody any more.
--
-- The newest version of a chain is read first, whatever ANALYZE counts: it counts the 64 present versions and not those
-- that vacuum cannot remove while another session keeps an old snapshot. PostgreSQL would then read all versions of a
-- chain, by a bitmap, and sort them.
-- +goose StatementBegin
CREATE FUNCTION holdfast.audit(entries text) RETURNS bigint
VOLATILE STRICT SECURITY DEFINER LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_bitmapscan = off
SET enable_seqscan = off AS $$
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
            SELECT * INTO c FROM holdfast.audit_chains a
             WHERE a.chain = k AND a.length = newest
               FOR NO KEY UPDATE SKIP LOCKED;
            EXIT taken WHEN FOUND;
        END LOOP;
        -- All are held. The commit that releases this one changes its length, so the search begins again.
        SELECT a.length INTO newest FROM holdfast.audit_chains a
         WHERE a.chain = 1 + pg_backend_pid() % 64
         ORDER BY a.length DESC LIMIT 1;
        SELECT * INTO c FROM holdfast.audit_chains a
         WHERE a.chain = 1 + pg_backend_pid() % 64 AND a.length = newest
           FOR NO KEY UPDATE;
        EXIT taken WHEN FOUND;
    END LOOP;
    at := clock_timestamp();
    hash := sha256(c.head || convert_to(concat_ws(' ',
        c.chain, c.length + 1, (extract(epoch FROM at) * 1000000)::bigint, session_user, entries), 'UTF8'));
    INSERT INTO holdfast.audit_log VALUES (c.chain, c.length + 1, at, session_user, entries::json, hash);
    UPDATE holdfast.audit_chains a
       SET length = c.length + 1, head = hash
     WHERE a.chain = c.chain AND a.length = c.length;
    RETURN c.length + 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.audit IS
    'Appends entries, a JSON array, to the audit log. Call it last in a transaction, because it holds a chain until '
    'the commit.';
REVOKE ALL ON FUNCTION holdfast.audit FROM PUBLIC;
