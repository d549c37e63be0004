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

COMMENT ON TABLE holdfast.workers IS 'The processes that are alive. When one stops renewing its lease, the process that notices first deletes the row and rescues the runs.';
COMMENT ON COLUMN holdfast.workers.lease_until IS 'When the lease ends, by the database''s clock, unless the process renews it.';

CREATE TABLE holdfast.processes (
    id         uuid        NOT NULL,
    name       text        NOT NULL,
    version    text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT processes_pkey PRIMARY KEY (id)
);
CREATE INDEX processes_started ON holdfast.processes (started_at);
COMMENT ON TABLE holdfast.processes IS 'Every process that ever registered, for the names of workers in the log. Retention removes old rows.';

CREATE TABLE holdfast.leases (
    name   text        NOT NULL,
    holder uuid        NOT NULL,
    until  timestamptz NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

COMMENT ON TABLE holdfast.leases IS 'The duties that one process has at a time, such as creating partitions.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.leases;
DROP TABLE holdfast.processes;
DROP TABLE holdfast.workers;
