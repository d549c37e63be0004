-- The lists of the console: webhooks that fail or are disabled, and API keys (decision 0090).
--
-- Both indexes of webhooks are partial, so deliveries that succeed do not write to them.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE INDEX push_cursors_failing ON holdfast.push_cursors (task, config_id) WHERE attempts > 0;
CREATE INDEX push_cursors_disabled ON holdfast.push_cursors (task, config_id) WHERE disabled_at IS NOT NULL;
CREATE INDEX api_keys_listed ON holdfast.api_keys (created_at, key_id);

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP INDEX holdfast.api_keys_listed;
DROP INDEX holdfast.push_cursors_disabled;
DROP INDEX holdfast.push_cursors_failing;
