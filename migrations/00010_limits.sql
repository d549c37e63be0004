-- Limits that hold over all replicas: tasks of one caller that have not ended, tasks that wait for an agent, and what a
-- task's artifacts may take.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.tasks ADD COLUMN artifact_bytes bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN holdfast.tasks.artifact_bytes IS 'Content of all artifact chunks that its runs have written, replaced ones too, in bytes.';

-- Counting is exact because whoever creates tasks under a limit first takes the lock of the limit's slot, until its commit,
-- and then counts in a snapshot of that moment: one of its own, which a function has and a part of a statement has not. A
-- statement takes its slots in ascending order, those of live_tasks first. 64 of them bound what a statement locks.

-- +goose StatementBegin
CREATE FUNCTION holdfast.limit_slot(VARIADIC names text[]) RETURNS integer IMMUTABLE LANGUAGE sql AS $$
    SELECT hashtext(array_to_string(names, chr(31))) & 63
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holdfast.live_tasks(slot integer, of_tenant text, of_owner text, of_agent text, bound integer)
RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1212566833, slot);
    -- Each state is a scan of its own in the order of index tasks_listed, as lists are.
    RETURN (SELECT count(*) FROM (
        SELECT FROM unnest('{1,2,3,4}'::smallint[]) AS s (state)
         CROSS JOIN LATERAL (
            SELECT FROM holdfast.tasks t
             WHERE t.tenant = of_tenant AND t.owner = of_owner AND t.agent = of_agent AND NOT t.direct AND t.state = s.state
             ORDER BY t.status_at DESC, t.id DESC LIMIT bound
         ) p
         LIMIT bound
    ) n);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holdfast.waiting_tasks(slot integer, of_agent text, bound integer)
RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1212566834, slot);
    -- Index task_queue_ready.
    RETURN (SELECT count(*) FROM (
        SELECT FROM holdfast.task_queue q
         WHERE q.agent = of_agent AND q.worker_id IS NULL
         ORDER BY q.available_at, q.id LIMIT bound
    ) n);
END
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION holdfast.limit_slot IS 'The lock that guards the limit of these names.';
COMMENT ON FUNCTION holdfast.live_tasks IS 'How many tasks of a caller with an agent have not ended, up to a bound. Keeps others from creating such until the commit.';
COMMENT ON FUNCTION holdfast.waiting_tasks IS 'How many tasks wait for an agent, up to a bound. Keeps others from adding to them, under this limit, until the commit.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP FUNCTION holdfast.waiting_tasks;
DROP FUNCTION holdfast.live_tasks;
DROP FUNCTION holdfast.limit_slot;
ALTER TABLE holdfast.tasks DROP COLUMN artifact_bytes;
