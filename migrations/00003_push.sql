-- Webhook configurations, their place in the log, and what happened to each delivery.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE TABLE holdfast.push_configs (
    task       uuid        NOT NULL,
    config_id  text        NOT NULL,
    dialect    text        NOT NULL,
    payload    json        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT push_configs_pkey PRIMARY KEY (task, config_id)
);

-- The outbox is one cursor per configuration and not a row per event.
CREATE TABLE holdfast.push_cursors (
    task         uuid        NOT NULL,
    config_id    text        NOT NULL,
    next_seq     bigint      NOT NULL DEFAULT 1,
    due_at       timestamptz,
    attempts     integer     NOT NULL DEFAULT 0,
    worker_id    uuid,
    locked_until timestamptz,
    last_error   text,
    CONSTRAINT push_cursors_pkey PRIMARY KEY (task, config_id),
    CONSTRAINT push_cursors_counts CHECK (next_seq >= 1 AND attempts >= 0)
) WITH (fillfactor = 70);
CREATE INDEX push_cursors_due ON holdfast.push_cursors (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE holdfast.push_attempts (
    task       uuid        NOT NULL,
    config_id  text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    from_seq   bigint      NOT NULL,
    to_seq     bigint      NOT NULL,
    attempt    integer     NOT NULL,
    status     integer,
    error      text,
    duration   interval,
    CONSTRAINT push_attempts_pkey PRIMARY KEY (task, config_id, started_at),
    CONSTRAINT push_attempts_range CHECK (to_seq >= from_seq)
);

COMMENT ON TABLE holdfast.push_configs IS 'Where to deliver the events of a task.';
COMMENT ON TABLE holdfast.push_cursors IS 'How far each configuration has been delivered and when it is due again.';
COMMENT ON TABLE holdfast.push_attempts IS 'Every delivery attempt and its outcome.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.push_attempts;
DROP TABLE holdfast.push_cursors;
DROP TABLE holdfast.push_configs;
