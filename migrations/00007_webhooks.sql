-- Webhooks: what deliveries need, kept so that a task without any costs its writers nothing.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Writers look at this alone to know that there is nobody to tell.
ALTER TABLE holdfast.tasks ADD COLUMN pushes boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN holdfast.tasks.pushes IS 'It has webhook configurations.';

-- Nothing has written the three tables yet. The view over them comes back below.
DROP VIEW holdfast.v_push;

ALTER TABLE holdfast.push_configs
    DROP COLUMN payload,
    ADD COLUMN url text NOT NULL,
    ADD COLUMN schemes json NOT NULL,
    ADD COLUMN secrets bytea;

COMMENT ON COLUMN holdfast.push_configs.config_id IS 'Unique within its task; the task''s public id for the default one.';
COMMENT ON COLUMN holdfast.push_configs.dialect IS 'The A2A version of the request that set it: decides bodies and headers.';
COMMENT ON COLUMN holdfast.push_configs.schemes IS 'Of the receiver''s authentication, the one that it prefers first.';
COMMENT ON COLUMN holdfast.push_configs.secrets IS 'Token and credentials, sealed (internal/seal); null for neither.';

ALTER TABLE holdfast.push_cursors
    ADD COLUMN host text NOT NULL,
    ADD COLUMN artifacts boolean NOT NULL,
    ADD COLUMN due_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN due_since timestamptz,
    ADD COLUMN failing_since timestamptz,
    ADD COLUMN claim uuid,
    ADD COLUMN disabled_at timestamptz,
    ADD COLUMN disabled_for text,
    ADD CONSTRAINT push_cursors_claimed CHECK ((claim IS NULL) = (locked_until IS NULL) AND (claim IS NULL) = (worker_id IS NULL)),
    SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX push_cursors_disabled_at ON holdfast.push_cursors (disabled_at) WHERE disabled_at IS NOT NULL;

COMMENT ON COLUMN holdfast.push_cursors.host IS 'Of the URL, with its port: what deliveries are bounded by.';
COMMENT ON COLUMN holdfast.push_cursors.artifacts IS 'Artifact events are delivered, too.';
COMMENT ON COLUMN holdfast.push_cursors.next_seq IS 'The first event that has not been delivered or passed over.';
COMMENT ON COLUMN holdfast.push_cursors.due_seq IS 'The newest event that has to be delivered; set by the commit that writes it. 0: none yet.';
COMMENT ON COLUMN holdfast.push_cursors.due_at IS 'When somebody has to look: the next attempt, or the end of a claim. Null: nothing to deliver, or disabled.';
COMMENT ON COLUMN holdfast.push_cursors.due_since IS 'Since when there has been something to deliver.';
COMMENT ON COLUMN holdfast.push_cursors.attempts IS 'Failed attempts since the last success.';
COMMENT ON COLUMN holdfast.push_cursors.claim IS 'Fencing token of the process that delivers at present; each claim makes a new one.';
COMMENT ON COLUMN holdfast.push_cursors.disabled_at IS 'Since when nothing is delivered, for the reason in disabled_for. Events go on to be marked.';

ALTER TABLE holdfast.push_attempts
    DROP CONSTRAINT push_attempts_pkey,
    ADD COLUMN id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    ADD COLUMN delivery_id text NOT NULL,
    ADD COLUMN class text NOT NULL,
    ADD COLUMN worker_id uuid,
    ADD CONSTRAINT push_attempts_pkey PRIMARY KEY (id);
CREATE INDEX push_attempts_of ON holdfast.push_attempts (task, config_id, id);

COMMENT ON COLUMN holdfast.push_attempts.delivery_id IS 'The jti of the request: the same for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.push_attempts.attempt IS 'Which try of the delivery it was, from 1.';
COMMENT ON COLUMN holdfast.push_attempts.class IS 'What came of it, as the metrics call it.';
COMMENT ON COLUMN holdfast.push_attempts.status IS 'The HTTP status; null if there was no answer.';

-- A statement that has waited for a task's lock may have begun before the commit of a configuration that the task has got
-- meanwhile. Here it looks again: what a volatile function asks, it asks with a snapshot of its own.
--
-- The mark is set whatever the row says, since whoever records a delivery at the same moment decides by it whether the
-- configuration is due again: the later of the two sees the other's value. Tasks come in the order of their ids.
-- +goose StatementBegin
CREATE FUNCTION holdfast.push_mark(tasks uuid[], statuses bigint[], newest bigint[]) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    marked integer := 0;
    n integer;
BEGIN
    FOR i IN 1 .. cardinality(tasks) LOOP
        UPDATE holdfast.push_cursors k
           SET due_seq = CASE WHEN k.artifacts THEN newest[i] ELSE statuses[i] END,
               due_at = CASE WHEN k.disabled_at IS NULL THEN coalesce(k.due_at, now()) END,
               due_since = coalesce(k.due_since, now())
         WHERE k.task = tasks[i] AND (statuses[i] IS NOT NULL OR k.artifacts);
        GET DIAGNOSTICS n = ROW_COUNT;
        marked := marked + n;
    END LOOP;
    RETURN marked;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_mark IS 'Marks the webhooks of tasks as due: for the newest status (null: none), or the newest event for those that want artifacts. The caller has locked the tasks.';

INSERT INTO holdfast.secrets (name, value)
VALUES ('push', decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));
COMMENT ON COLUMN holdfast.secrets.name IS
    'page_token: signs the page tokens of lists; a new value voids the tokens that are about. push: seals the secrets of webhooks where the environment has no key.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.1' $$;
-- +goose StatementEnd

CREATE VIEW holdfast.v_push AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       c.config_id,
       c.url,
       c.dialect,
       c.created_at,
       k.next_seq - 1 AS delivered_seq,
       greatest(k.due_seq - k.next_seq + 1, 0) AS behind,
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
       k.claim IS NOT NULL AND k.locked_until >= now() AS in_flight,
       a.class AS last_class
  FROM holdfast.push_configs c
  JOIN holdfast.tasks t ON t.id = c.task
  JOIN holdfast.push_cursors k ON k.task = c.task AND k.config_id = c.config_id
  LEFT JOIN LATERAL (
    SELECT x.started_at, x.status, x.class FROM holdfast.push_attempts x
     WHERE x.task = c.task AND x.config_id = c.config_id
     ORDER BY x.id DESC LIMIT 1
  ) a ON true;

COMMENT ON VIEW holdfast.v_push IS 'Webhook configurations and how far each has been delivered.';
COMMENT ON COLUMN holdfast.v_push.config_id IS 'The id of the configuration within its task.';
COMMENT ON COLUMN holdfast.v_push.url IS 'Where to. Tokens and credentials are not shown.';
COMMENT ON COLUMN holdfast.v_push.dialect IS 'The A2A version that the webhook speaks.';
COMMENT ON COLUMN holdfast.v_push.created_at IS 'When it was set.';
COMMENT ON COLUMN holdfast.v_push.delivered_seq IS 'The newest event that was delivered or passed over; 0 for none.';
COMMENT ON COLUMN holdfast.v_push.behind IS 'How many events of the log lie between that and the newest that has to be delivered; 0: nothing to send.';
COMMENT ON COLUMN holdfast.v_push.due_at IS 'When the next attempt is due, or when the one in flight counts as lost; null if there is nothing to send, or it is disabled.';
COMMENT ON COLUMN holdfast.v_push.failures IS 'Failed attempts since the last success.';
COMMENT ON COLUMN holdfast.v_push.last_error IS 'Why the last one failed.';
COMMENT ON COLUMN holdfast.v_push.last_attempt_at IS 'When the last attempt was made.';
COMMENT ON COLUMN holdfast.v_push.last_status IS 'The HTTP status that it got; null if it got none.';
COMMENT ON COLUMN holdfast.v_push.host IS 'Host and port of the URL.';
COMMENT ON COLUMN holdfast.v_push.artifacts IS 'Artifact events are delivered, too.';
COMMENT ON COLUMN holdfast.v_push.due_since IS 'Since when there has been something to send; null: nothing.';
COMMENT ON COLUMN holdfast.v_push.failing_since IS 'When the first of those failed attempts was recorded.';
COMMENT ON COLUMN holdfast.v_push.disabled_at IS 'Since when nothing is sent; null: it is live.';
COMMENT ON COLUMN holdfast.v_push.disabled_for IS 'Why.';
COMMENT ON COLUMN holdfast.v_push.in_flight IS 'A process is delivering at this moment.';
COMMENT ON COLUMN holdfast.v_push.last_class IS 'What came of the last attempt, as the metrics call it.';

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

COMMENT ON VIEW holdfast.v_push_attempts IS 'What came of each attempt to deliver, for as long as attempts are kept.';
COMMENT ON COLUMN holdfast.v_push_attempts.config_id IS 'The id of the configuration within its task.';
COMMENT ON COLUMN holdfast.v_push_attempts.attempt_id IS 'Counts up, over all tasks.';
COMMENT ON COLUMN holdfast.v_push_attempts.started_at IS 'When the request was made.';
COMMENT ON COLUMN holdfast.v_push_attempts.from_seq IS 'The first event that it stood for.';
COMMENT ON COLUMN holdfast.v_push_attempts.to_seq IS 'The last one.';
COMMENT ON COLUMN holdfast.v_push_attempts.delivery_id IS 'The jti that the receiver got: the same for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.v_push_attempts.attempt IS 'Which try of the delivery it was, from 1.';
COMMENT ON COLUMN holdfast.v_push_attempts.class IS 'What came of it, as the metrics call it.';
COMMENT ON COLUMN holdfast.v_push_attempts.status IS 'The HTTP status; null if there was no answer.';
COMMENT ON COLUMN holdfast.v_push_attempts.error IS 'What went wrong; null if nothing did.';
COMMENT ON COLUMN holdfast.v_push_attempts.duration IS 'How long it took.';
COMMENT ON COLUMN holdfast.v_push_attempts.worker_name IS 'The process that made it.';

-- As 00004_views has it for the others.
-- +goose StatementBegin
DO $$
DECLARE
    v text;
BEGIN
    FOREACH v IN ARRAY ARRAY['v_push', 'v_push_attempts']
    LOOP
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.task IS %L', v, 'The task''s UUID, a UUIDv7: joins the views, and the fastest way to one task.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.task_id IS %L', v, 'What clients call the task. Find it by task = holdfast.task_uuid(…).');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.agent IS %L', v, 'The agent''s name in the configuration.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.tenant IS %L', v, 'The tenant of who created the task; empty without identity.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.owner IS %L', v, 'Who created the task; empty without identity.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.context_id IS %L', v, 'The conversation that the task belongs to (sessionId in A2A 0.1).');
    END LOOP;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_reader') THEN
        GRANT SELECT ON holdfast.v_push, holdfast.v_push_attempts TO holdfast_reader;
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL; -- the schema is somebody else's, who has to grant its use
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP VIEW holdfast.v_push, holdfast.v_push_attempts;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.0' $$;
-- +goose StatementEnd
DELETE FROM holdfast.secrets WHERE name = 'push';
DROP FUNCTION holdfast.push_mark;
-- An older server does not deliver, and cannot read what these hold.
DELETE FROM holdfast.push_attempts;
DELETE FROM holdfast.push_cursors;
DELETE FROM holdfast.push_configs;
DROP INDEX holdfast.push_attempts_of;
ALTER TABLE holdfast.push_attempts
    DROP CONSTRAINT push_attempts_pkey, DROP COLUMN id, DROP COLUMN delivery_id, DROP COLUMN class, DROP COLUMN worker_id,
    ADD CONSTRAINT push_attempts_pkey PRIMARY KEY (task, config_id, started_at);
DROP INDEX holdfast.push_cursors_disabled_at;
ALTER TABLE holdfast.push_cursors
    DROP CONSTRAINT push_cursors_claimed,
    DROP COLUMN host, DROP COLUMN artifacts, DROP COLUMN due_seq, DROP COLUMN due_since, DROP COLUMN failing_since,
    DROP COLUMN claim, DROP COLUMN disabled_at, DROP COLUMN disabled_for,
    RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay);
ALTER TABLE holdfast.push_configs
    DROP COLUMN url, DROP COLUMN schemes, DROP COLUMN secrets, ADD COLUMN payload json NOT NULL;
ALTER TABLE holdfast.tasks DROP COLUMN pushes;
CREATE VIEW holdfast.v_push AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       c.config_id,
       (c.payload -> 'url') #>> '{}' AS url,
       c.dialect,
       c.created_at,
       k.next_seq - 1 AS delivered_seq,
       t.last_seq - k.next_seq + 1 AS behind,
       k.due_at,
       k.attempts AS failures,
       k.last_error,
       a.started_at AS last_attempt_at,
       a.status AS last_status
  FROM holdfast.push_configs c
  JOIN holdfast.tasks t ON t.id = c.task
  LEFT JOIN holdfast.push_cursors k ON k.task = c.task AND k.config_id = c.config_id
  LEFT JOIN LATERAL (
    SELECT x.started_at, x.status FROM holdfast.push_attempts x
     WHERE x.task = c.task AND x.config_id = c.config_id
     ORDER BY x.started_at DESC LIMIT 1
  ) a ON true;
COMMENT ON VIEW holdfast.v_push IS 'Webhook configurations and how far each has been delivered.';
