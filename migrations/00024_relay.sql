-- Relayed statuses: a caller that waits shows the progress of the tasks that it has called (decision 0060).
--
-- The cursor is in the row of the call, so the statement that writes to the log of the caller also moves it. Tasks that are
-- called without relay have nothing to write and nothing to read.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.task_calls
    ADD COLUMN relay       boolean NOT NULL DEFAULT false,
    ADD COLUMN relayed_seq bigint  NOT NULL DEFAULT 0,
    ADD COLUMN relayed_at  timestamptz;
COMMENT ON COLUMN holdfast.task_calls.relay IS 'The caller shows the progress of the child while it waits for this call.';
COMMENT ON COLUMN holdfast.task_calls.relayed_seq IS 'The statuses of the child up to this one have been relayed, or newer ones instead.';
COMMENT ON COLUMN holdfast.task_calls.relayed_at IS 'When a status of the child was last relayed; null: never.';

-- Only calls that wait are in it. A relay changes no column of it.
CREATE INDEX task_calls_relays ON holdfast.task_calls (parent, seq, nth) WHERE relay AND started_at IS NOT NULL AND settled_at IS NULL;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.calls_open(of uuid, note bigint, payload json) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    own holdfast.task_calls;
BEGIN
    SELECT * INTO own FROM holdfast.task_calls c WHERE c.child = of AND NOT c.answers LIMIT 1;
    INSERT INTO holdfast.task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers, relay)
    SELECT of, note, c.n, c.call ->> 'id', coalesce(c.call ->> 'agent', ''), (c.call ->> 'task')::uuid,
           coalesce((c.call ->> 'answers')::boolean, false), coalesce(own.root, of),
           coalesce(own.callers, '{}') || (SELECT t.agent FROM holdfast.tasks t WHERE t.id = of AND t.state NOT IN (5, 6, 7, 8)),
           coalesce((c.call ->> 'relay')::boolean, false)
      FROM json_array_elements(payload -> 'calls') WITH ORDINALITY c(call, n);
    RETURN 1;
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.calls_open(of uuid, note bigint, payload json) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    own holdfast.task_calls;
BEGIN
    SELECT * INTO own FROM holdfast.task_calls c WHERE c.child = of AND NOT c.answers LIMIT 1;
    INSERT INTO holdfast.task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers)
    SELECT of, note, c.n, c.call ->> 'id', coalesce(c.call ->> 'agent', ''), (c.call ->> 'task')::uuid,
           coalesce((c.call ->> 'answers')::boolean, false), coalesce(own.root, of),
           coalesce(own.callers, '{}') || (SELECT t.agent FROM holdfast.tasks t WHERE t.id = of AND t.state NOT IN (5, 6, 7, 8))
      FROM json_array_elements(payload -> 'calls') WITH ORDINALITY c(call, n);
    RETURN 1;
END
$$;
-- +goose StatementEnd
DROP INDEX holdfast.task_calls_relays;
ALTER TABLE holdfast.task_calls DROP COLUMN relayed_at, DROP COLUMN relayed_seq, DROP COLUMN relay;
