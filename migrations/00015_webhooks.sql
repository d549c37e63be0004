-- Webhooks: names that a task has lost, and shares of who sets them.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.push_configs ADD COLUMN public_id text;

COMMENT ON COLUMN holdfast.push_configs.public_id IS 'What the receiver knows the task by, where the task has lost that name since: the client_id that has passed to a new one. Null: what the task is called.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.push_caller(tenant text, owner text) RETURNS bigint IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE WHEN tenant = '' AND owner = '' THEN 0 ELSE hashtextextended(tenant || chr(31) || owner, 0) END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_caller IS 'Who set a webhook, as a number: it bounds what one of them has under way. 0: nobody, where the server asks nobody.';

ALTER TABLE holdfast.push_cursors ADD COLUMN caller bigint NOT NULL DEFAULT 0;
UPDATE holdfast.push_cursors k SET caller = holdfast.push_caller(t.tenant, t.owner) FROM holdfast.tasks t WHERE t.id = k.task;

COMMENT ON COLUMN holdfast.push_cursors.caller IS 'push_caller of the task''s tenant and owner.';

-- A lane is what one caller has for one host. Behind thousands of webhooks of a host that takes no more, or of a caller that
-- may have no more, the others are found by going from lane to lane.
CREATE INDEX push_cursors_lanes ON holdfast.push_cursors (caller, host, due_at) WHERE due_at IS NOT NULL;

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP INDEX holdfast.push_cursors_lanes;
ALTER TABLE holdfast.push_cursors DROP COLUMN caller;
DROP FUNCTION holdfast.push_caller;
ALTER TABLE holdfast.push_configs DROP COLUMN public_id;
