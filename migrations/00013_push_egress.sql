-- A webhook whose receiver has never accepted a delivery is given up early.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Webhooks that exist already count as accepted: they keep the time that they were promised.
ALTER TABLE holdfast.push_cursors ADD COLUMN accepted boolean NOT NULL DEFAULT true;
ALTER TABLE holdfast.push_cursors ALTER COLUMN accepted SET DEFAULT false;
COMMENT ON COLUMN holdfast.push_cursors.accepted IS 'Its receiver has accepted a delivery at this URL.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.push_cursors DROP COLUMN accepted;
