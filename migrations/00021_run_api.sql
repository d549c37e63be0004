-- The run API: an agent posts the events of its run to any replica (decision 0050).
--
-- The worker of a run counts its own events in run_ordinal. Posted events have a count of their own, so that both may write at
-- the same time and each can be repeated. The count belongs to an attempt: a claim need not reset it.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.tasks
    ADD COLUMN posted         bigint  NOT NULL DEFAULT 0,
    ADD COLUMN posted_attempt integer NOT NULL DEFAULT 0,
    ADD COLUMN heard_at       timestamptz;
COMMENT ON COLUMN holdfast.tasks.posted IS 'How many events posted_attempt has taken through the run API, so that a repeated upload writes nothing twice.';
COMMENT ON COLUMN holdfast.tasks.posted_attempt IS 'The newest attempt whose agent has called the run API.';
COMMENT ON COLUMN holdfast.tasks.heard_at IS 'When it last sent events or a heartbeat there.';

-- +goose Down
ALTER TABLE holdfast.tasks DROP COLUMN posted, DROP COLUMN posted_attempt, DROP COLUMN heard_at;
