-- A mark writes an index entry less: only what is put aside is in the index by lanes.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- What is due for a host or a caller that takes no more is in the way of the others. Claims that meet too much of it put it
-- aside; only what is aside is in the index by lanes.
ALTER TABLE holdfast.push_cursors ADD COLUMN aside boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN holdfast.push_cursors.aside IS 'It is due, and was put out of the way of others when its host or its caller took no more.';

DROP INDEX holdfast.push_cursors_due, holdfast.push_cursors_lanes;
CREATE INDEX push_cursors_due ON holdfast.push_cursors (due_at) WHERE due_at IS NOT NULL AND NOT aside;
CREATE INDEX push_cursors_lanes ON holdfast.push_cursors (caller, host, due_at) WHERE aside AND due_at IS NOT NULL;

-- Rows are sought by where they lie, which takes one step for each however many there are. One that somebody writes at the same
-- moment is left to the next call.
-- +goose StatementBegin
CREATE FUNCTION holdfast.push_aside(window_rows integer, busy_hosts text[], busy_callers bigint[]) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    UPDATE holdfast.push_cursors k SET aside = true
     WHERE k.ctid = ANY (ARRAY(
        SELECT h.ctid FROM holdfast.push_cursors h
         WHERE h.ctid = ANY (ARRAY(
            SELECT w.place
              FROM (SELECT d.ctid AS place, d.host, d.caller FROM holdfast.push_cursors d
                     WHERE NOT d.aside AND d.due_at <= now() ORDER BY d.due_at LIMIT window_rows) w
             WHERE w.host = ANY (busy_hosts) OR w.caller = ANY (busy_callers)
         )) AND NOT h.aside AND coalesce(h.due_at <= now(), false) -- not by index push_cursors_due
           FOR NO KEY UPDATE SKIP LOCKED
     ));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_aside IS 'Puts aside what is due for these hosts and callers, among the webhooks that are due for longest, and returns how many that were.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP FUNCTION holdfast.push_aside;
DROP INDEX holdfast.push_cursors_due, holdfast.push_cursors_lanes;
ALTER TABLE holdfast.push_cursors DROP COLUMN aside;
CREATE INDEX push_cursors_due ON holdfast.push_cursors (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX push_cursors_lanes ON holdfast.push_cursors (caller, host, due_at) WHERE due_at IS NOT NULL;
