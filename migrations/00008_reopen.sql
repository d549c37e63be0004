-- The id that a client chose may pass from a task that has ended to a new one (protocol.v01_reopen_terminal).

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.tasks ADD COLUMN stream_base bigint;

COMMENT ON COLUMN holdfast.tasks.stream_base IS 'How many events the tasks had that had its client_id before; null when it is the first. Stream ids are this plus seq, so that those of one public id never go back.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.tasks DROP COLUMN stream_base;
