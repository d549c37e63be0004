-- Claims are bounded by the bytes of their messages.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.task_queue ADD COLUMN message_bytes integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN holdfast.task_queue.message_bytes IS 'Size of the message that the run answers, as text. A worker claims as many messages as its memory allows.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.task_queue DROP COLUMN message_bytes;
