-- Webhooks of a task whose id has passed to a new one (protocol.v01_reopen_terminal).

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.push_configs ADD COLUMN public_id text;

COMMENT ON COLUMN holdfast.push_configs.public_id IS 'What the receiver knows the task by, where the task has lost that name since: the client_id that has passed to a new one. Null: what the task is called.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.push_configs DROP COLUMN public_id;
