-- Remote workers (decisions 0068 to 0070): processes that connect and claim runs over the worker API.
--
-- The lease of a run is in its queue row, on the clock of the database. A heartbeat changes lease_until, which no index has.
-- look_at is when a replica must look at the run: it is moved at most once per lease.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.task_queue
    ADD COLUMN lease_until timestamptz,
    ADD COLUMN look_at     timestamptz;
COMMENT ON COLUMN holdfast.task_queue.lease_until IS 'While a remote worker has the run: when its lease ends unless the worker renews it. Null for runs of server processes.';
COMMENT ON COLUMN holdfast.task_queue.look_at IS 'While a remote worker has the run: when a server process checks its lease, its timeouts and its cancel.';

CREATE INDEX task_queue_leases ON holdfast.task_queue (look_at) WHERE look_at IS NOT NULL AND worker_id IS NOT NULL;

CREATE TABLE holdfast.remote_workers (
    id         uuid        NOT NULL,
    name       text        NOT NULL DEFAULT '',
    version    text        NOT NULL DEFAULT '',
    sdk        text        NOT NULL DEFAULT '',
    agents     text[]      NOT NULL DEFAULT '{}',
    replica    text        NOT NULL DEFAULT '',
    first_seen timestamptz NOT NULL DEFAULT now(),
    last_seen  timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz,
    CONSTRAINT remote_workers_pkey PRIMARY KEY (id)
);
CREATE INDEX remote_workers_seen ON holdfast.remote_workers (last_seen);
CREATE INDEX remote_workers_retired ON holdfast.remote_workers (retired_at) WHERE retired_at IS NOT NULL;

COMMENT ON TABLE holdfast.remote_workers IS 'Workers that have connected through the worker API. A replica writes about its workers every few seconds, not with each request.';
COMMENT ON COLUMN holdfast.remote_workers.id IS 'Chosen by the worker, new at each start.';
COMMENT ON COLUMN holdfast.remote_workers.name IS 'As the worker says, such as the name of its host.';
COMMENT ON COLUMN holdfast.remote_workers.version IS 'Of the code of its agents, as the worker says.';
COMMENT ON COLUMN holdfast.remote_workers.sdk IS 'The SDK and the language, as the worker says.';
COMMENT ON COLUMN holdfast.remote_workers.agents IS 'The agents of its last claim.';
COMMENT ON COLUMN holdfast.remote_workers.replica IS 'The server process that answered it last.';
COMMENT ON COLUMN holdfast.remote_workers.last_seen IS 'When it last sent a request or had one open, to within a minute.';
COMMENT ON COLUMN holdfast.remote_workers.retired_at IS 'When an operator told it to claim no more; null: it may claim.';

CREATE VIEW holdfast.v_remote_workers AS
SELECT w.id AS worker, w.name, w.version, w.sdk, w.agents, w.replica, w.first_seen, w.last_seen,
       w.last_seen > now() - interval '90 seconds' AS connected,
       w.retired_at,
       (SELECT count(*) FROM holdfast.task_queue q WHERE q.worker_id = w.id) AS running
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
COMMENT ON COLUMN holdfast.v_remote_workers.connected IS 'It was seen within the last 90 seconds.';
COMMENT ON COLUMN holdfast.v_remote_workers.retired_at IS 'When an operator told it to claim no more; null: it may claim.';
COMMENT ON COLUMN holdfast.v_remote_workers.running IS 'How many runs it has.';

-- +goose StatementBegin
DO $$
BEGIN
    GRANT SELECT ON holdfast.v_remote_workers TO holdfast_reader;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN
    NULL; -- as in 00006
END
$$;
-- +goose StatementEnd

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.6' $$;

-- +goose Down
SET LOCAL lock_timeout = '5s';
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.5' $$;
DROP VIEW holdfast.v_remote_workers;
DROP TABLE holdfast.remote_workers;
DROP INDEX holdfast.task_queue_leases;
ALTER TABLE holdfast.task_queue DROP COLUMN look_at, DROP COLUMN lease_until;
