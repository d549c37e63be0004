-- Processes: who is alive, who ever was, and who has a duty that one process has at a time.

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

COMMENT ON TABLE holdfast.workers IS 'The processes that are alive. One that stops renewing is deleted by the process that notices first, and its tasks are rescued.';
COMMENT ON COLUMN holdfast.workers.lease_until IS 'The process renews it; the database''s clock alone judges it.';

CREATE TABLE holdfast.processes (
    id         uuid        NOT NULL,
    name       text        NOT NULL,
    version    text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT processes_pkey PRIMARY KEY (id)
);
CREATE INDEX processes_started ON holdfast.processes (started_at);
COMMENT ON TABLE holdfast.processes IS 'Every process that registered: the names of workers in the log, also when they are gone. Retention removes old ones.';

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
DROP TABLE holdfast.processes;
DROP TABLE holdfast.workers;
