-- Who runs: one row per process, and the holders of singleton duties.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE TABLE holdfast.workers (
    id          uuid        NOT NULL,
    name        text        NOT NULL,
    version     text        NOT NULL,
    roles       text        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz NOT NULL,
    CONSTRAINT workers_pkey PRIMARY KEY (id)
) WITH (fillfactor = 50);

COMMENT ON TABLE holdfast.workers IS 'The processes that are alive. One that stops renewing is deleted by whichever notices first, and its tasks are rescued.';
COMMENT ON COLUMN holdfast.workers.lease_until IS 'Renewed by the process; judged by the database''s clock alone.';

CREATE TABLE holdfast.leases (
    name   text        NOT NULL,
    holder uuid        NOT NULL,
    until  timestamptz NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

COMMENT ON TABLE holdfast.leases IS 'Duties that one process has at a time, such as creating partitions.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.leases;
DROP TABLE holdfast.workers;
