-- A run that continues a task reads the ids of its artifacts from one row instead of from all chunks.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Null for the tasks that exist: their next run reads their chunks. A server of the version before this one leaves it as
-- it is, and what it names stays true: readers add the chunks after it.
ALTER TABLE holdfast.tasks ADD COLUMN artifacts_seq bigint;
COMMENT ON COLUMN holdfast.tasks.artifacts_seq IS 'The newest status that lists the ids of all artifacts before it, in their order.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.tasks DROP COLUMN artifacts_seq;
