-- Marking webhooks costs a statement for a commit, and not one for each of its tasks.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- As in 00007_webhooks, a row is written whatever it says. Rows are locked in the order of (task, config_id), as records of
-- deliveries lock them: an index scan for an array goes by that order, a bitmap scan would not.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.push_mark(tasks uuid[], statuses bigint[], newest bigint[]) RETURNS integer VOLATILE LANGUAGE plpgsql
SET enable_bitmapscan = off SET enable_seqscan = off AS $$
DECLARE
    marked integer;
BEGIN
    UPDATE holdfast.push_cursors k
       -- The place of a task in the array, by bisection.
       SET due_seq = (CASE WHEN k.artifacts THEN newest ELSE statuses END)[width_bucket(k.task, tasks)],
           due_at = CASE WHEN k.disabled_at IS NULL THEN coalesce(k.due_at, now()) END,
           due_since = coalesce(k.due_since, now())
     WHERE k.task = ANY (tasks) AND (k.artifacts OR statuses[width_bucket(k.task, tasks)] IS NOT NULL);
    GET DIAGNOSTICS marked = ROW_COUNT;
    RETURN marked;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_mark IS 'Marks the webhooks of tasks, which are sorted, as due: for the newest status (null: none), or the newest event for those that want artifacts. The caller has locked the tasks.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.push_mark(tasks uuid[], statuses bigint[], newest bigint[]) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    marked integer := 0;
    n integer;
BEGIN
    FOR i IN 1 .. cardinality(tasks) LOOP
        UPDATE holdfast.push_cursors k
           SET due_seq = CASE WHEN k.artifacts THEN newest[i] ELSE statuses[i] END,
               due_at = CASE WHEN k.disabled_at IS NULL THEN coalesce(k.due_at, now()) END,
               due_since = coalesce(k.due_since, now())
         WHERE k.task = tasks[i] AND (statuses[i] IS NOT NULL OR k.artifacts);
        GET DIAGNOSTICS n = ROW_COUNT;
        marked := marked + n;
    END LOOP;
    RETURN marked;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_mark IS 'Marks the webhooks of tasks as due: for the newest status (null: none), or the newest event for those that want artifacts. The caller has locked the tasks.';
