-- Retention: what is still to do after a task's row is gone, and how far each job has come.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- The row of a task goes first and takes the task out of everybody's sight; its log follows in small pieces. This is
-- the list of logs that are still to be deleted, so that a process that was killed in between leaves nothing behind.
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

COMMENT ON TABLE holdfast.retention_progress IS
    'How far each job of retention has come. A job goes through ended tasks in the order of (status_at, id).';
COMMENT ON COLUMN holdfast.retention_progress.job IS
    'artifacts/<partition>/<agent>: deletes artifacts; export/<partition>/<agent>: writes tasks to files.';

-- These look at the rows of one task or context from within a statement about many, as task_exists does.

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_stays(of uuid) RETURNS boolean
STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state < 5)
        OR EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state >= 5 AND t.kept);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.task_stays IS 'Whether a task outlives its period: it is open, or kept.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.has_dated_events(of uuid, artifacts boolean) RETURNS boolean
STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    IF artifacts THEN
        RETURN EXISTS (SELECT FROM holdfast.task_events e WHERE e.task = of AND NOT e.kept AND e.kind = 3);
    END IF;
    RETURN EXISTS (SELECT FROM holdfast.task_events e WHERE e.task = of AND NOT e.kept);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.has_dated_events IS
    'Whether events of a task, or artifact chunks alone, lie in its period.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.context_has_other(
    of_tenant text,
    of_owner text,
    of_agent text,
    of_context text,
    besides uuid[]
) RETURNS boolean STABLE STRICT COST 10000 LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t
                    WHERE t.context_id = of_context AND t.tenant = of_tenant
                      AND t.owner = of_owner AND t.agent = of_agent
                      AND t.id <> ALL(besides));
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.context_has_other IS 'Whether a context of an owner has a task that is not among these.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.context_stays(
    of_tenant text,
    of_owner text,
    of_agent text,
    of_context text,
    before uuid
) RETURNS boolean STABLE STRICT COST 10000 LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t
                    WHERE t.context_id = of_context AND t.tenant = of_tenant
                      AND t.owner = of_owner AND t.agent = of_agent
                      AND (t.state < 5 OR t.kept OR t.id >= before));
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.context_stays IS
    'Whether a context of an owner has a task that is open, kept, or not older than an id.';
