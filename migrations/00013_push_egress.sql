-- A webhook whose receiver has never accepted a delivery is given up early. Parking skips dead index entries.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- Webhooks that exist already count as accepted: they keep the time that they were promised.
ALTER TABLE holdfast.push_cursors ADD COLUMN accepted boolean NOT NULL DEFAULT true;
ALTER TABLE holdfast.push_cursors ALTER COLUMN accepted SET DEFAULT false;
COMMENT ON COLUMN holdfast.push_cursors.accepted IS 'Its receiver has accepted a delivery at this URL.';

-- As in 00003, from a due time on. The version before this one does not give it.
DROP FUNCTION holdfast.push_park(integer, text[], bigint[]);
-- +goose StatementBegin
CREATE FUNCTION holdfast.push_park(window_rows integer, busy_hosts text[], busy_callers bigint[], since timestamptz DEFAULT '-infinity') RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    UPDATE holdfast.push_cursors k SET parked = true
     WHERE k.ctid = ANY (ARRAY(
        SELECT h.ctid FROM holdfast.push_cursors h
         WHERE h.ctid = ANY (ARRAY(
            SELECT w.place
              FROM (SELECT d.ctid AS place, d.host, d.caller FROM holdfast.push_cursors d
                     WHERE NOT d.parked AND d.due_at >= since AND d.due_at <= now() ORDER BY d.due_at LIMIT window_rows) w
             WHERE w.host = ANY (busy_hosts) OR w.caller = ANY (busy_callers)
         )) AND NOT h.parked AND coalesce(h.due_at <= now(), false) -- not by index push_cursors_due
           FOR NO KEY UPDATE SKIP LOCKED
     ));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_park IS 'Parks the deliveries for these hosts and callers, among those that have been due for longest since then, and returns how many it parked.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP FUNCTION holdfast.push_park(integer, text[], bigint[], timestamptz);
-- +goose StatementBegin
CREATE FUNCTION holdfast.push_park(window_rows integer, busy_hosts text[], busy_callers bigint[]) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    UPDATE holdfast.push_cursors k SET parked = true
     WHERE k.ctid = ANY (ARRAY(
        SELECT h.ctid FROM holdfast.push_cursors h
         WHERE h.ctid = ANY (ARRAY(
            SELECT w.place
              FROM (SELECT d.ctid AS place, d.host, d.caller FROM holdfast.push_cursors d
                     WHERE NOT d.parked AND d.due_at <= now() ORDER BY d.due_at LIMIT window_rows) w
             WHERE w.host = ANY (busy_hosts) OR w.caller = ANY (busy_callers)
         )) AND NOT h.parked AND coalesce(h.due_at <= now(), false) -- not by index push_cursors_due
           FOR NO KEY UPDATE SKIP LOCKED
     ));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_park IS 'Parks the deliveries for these hosts and callers, among those that have been due for longest, and returns how many it parked.';
ALTER TABLE holdfast.push_cursors DROP COLUMN accepted;
