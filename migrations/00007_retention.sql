-- Retention: what is still to do after a task's row is gone, and how far each job has come.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- The row of a task goes first and takes the task out of everybody's sight; its log follows in small pieces. This is the list
-- of logs that are still to be deleted, so that a process that was killed in between leaves nothing behind.
CREATE TABLE holdfast.erasures (
    task uuid        NOT NULL,
    at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT erasures_pkey PRIMARY KEY (task)
);
COMMENT ON TABLE holdfast.erasures IS 'Deleted tasks whose logs still have to be deleted.';

CREATE TABLE holdfast.retention_progress (
    job  text        NOT NULL,
    at   timestamptz NOT NULL,
    task uuid        NOT NULL,
    CONSTRAINT retention_progress_pkey PRIMARY KEY (job)
) WITH (fillfactor = 50);
COMMENT ON TABLE holdfast.retention_progress IS 'How far each job of retention has come. A job goes through ended tasks in the order of (status_at, id).';
COMMENT ON COLUMN holdfast.retention_progress.job IS 'artifacts/<partition>/<agent>: deletes artifacts; export/<partition>/<agent>: writes tasks to files.';

-- Looking at one row from within a statement about many tasks, as task_exists does.
-- +goose StatementBegin
CREATE FUNCTION holdfast.task_stays(of uuid) RETURNS boolean STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state < 5)
        OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state >= 5 AND t.kept);
END
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION holdfast.has_dated_events(of uuid, artifacts boolean) RETURNS boolean STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    IF artifacts THEN
        RETURN EXISTS (SELECT FROM holdfast.task_events e WHERE e.task = of AND NOT e.kept AND e.kind = 3);
    END IF;
    RETURN EXISTS (SELECT FROM holdfast.task_events e WHERE e.task = of AND NOT e.kept);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.task_stays IS 'Whether a task outlives its period: it is open, or kept.';
COMMENT ON FUNCTION holdfast.has_dated_events IS 'Whether events of a task, or artifact chunks alone, lie in its period.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP FUNCTION holdfast.has_dated_events;
DROP FUNCTION holdfast.task_stays;
DROP TABLE holdfast.retention_progress;
DROP TABLE holdfast.erasures;
