-- The tasks, their log and the queue: what design calls the engine.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE SCHEMA IF NOT EXISTS holdfast;

-- The projection of each task's log that is needed to claim, fence and list it.
-- last_seq and run_ordinal change with every chunk and are in no index, so that
-- those updates stay heap-only.
CREATE TABLE holdfast.tasks (
    id               uuid        NOT NULL,
    client_id        text,
    agent            text        NOT NULL,
    tenant           text        NOT NULL DEFAULT '',
    owner            text        NOT NULL DEFAULT '',
    context_id       text        NOT NULL,
    state            smallint    NOT NULL,
    last_seq         bigint      NOT NULL,
    status_seq       bigint      NOT NULL,
    status_at        timestamptz NOT NULL DEFAULT now(),
    attempt          integer     NOT NULL DEFAULT 0,
    run_ordinal      bigint      NOT NULL DEFAULT 0,
    runs             integer     NOT NULL DEFAULT 0,
    turns            integer     NOT NULL DEFAULT 1,
    pending          integer     NOT NULL DEFAULT 0,
    worker_id        uuid,
    cancel_requested boolean     NOT NULL DEFAULT false,
    direct           boolean     NOT NULL DEFAULT false,
    dialect          text        NOT NULL,
    metadata         json,
    traceparent      text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tasks_pkey PRIMARY KEY (id),
    CONSTRAINT tasks_state_known CHECK (state IN (1, 2, 3, 4, 5, 6, 7, 8)),
    CONSTRAINT tasks_seq_order CHECK (status_seq BETWEEN 1 AND last_seq),
    CONSTRAINT tasks_worker_runs CHECK (worker_id IS NULL OR state < 3),
    CONSTRAINT tasks_counts CHECK (attempt >= 0 AND run_ordinal >= 0 AND runs >= 0 AND turns >= 1 AND pending >= 0)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- Only ids that a client chose (A2A 0.1) are looked up by name; the others are the primary key.
CREATE UNIQUE INDEX tasks_client_id ON holdfast.tasks (tenant, owner, agent, client_id) WHERE client_id IS NOT NULL;
CREATE INDEX tasks_recent ON holdfast.tasks (tenant, owner, status_at DESC, id DESC);
CREATE INDEX tasks_context ON holdfast.tasks (context_id, status_at DESC, id DESC);
CREATE INDEX tasks_open ON holdfast.tasks (state, status_at DESC, id DESC) WHERE state < 5;

COMMENT ON TABLE holdfast.tasks IS 'Where each task stands: the projection of its log in task_events.';
COMMENT ON COLUMN holdfast.tasks.id IS 'UUIDv7 made by the server; also the public id unless client_id is set.';
COMMENT ON COLUMN holdfast.tasks.client_id IS 'The public id when the client chose it (A2A 0.1).';
COMMENT ON COLUMN holdfast.tasks.state IS '1 submitted, 2 working, 3 input-required, 4 auth-required, 5 completed, 6 failed, 7 canceled, 8 rejected.';
COMMENT ON COLUMN holdfast.tasks.last_seq IS 'Sequence number of the newest event in task_events; they count from 1 without a gap.';
COMMENT ON COLUMN holdfast.tasks.status_seq IS 'The event that set the present state.';
COMMENT ON COLUMN holdfast.tasks.attempt IS 'Fencing token: raised by each claim and each rescue; a write with an older one is refused.';
COMMENT ON COLUMN holdfast.tasks.run_ordinal IS 'How many events the present attempt has written; makes a repeated append harmless.';
COMMENT ON COLUMN holdfast.tasks.runs IS 'How often an executor was started for this task.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many messages the client has sent.';
COMMENT ON COLUMN holdfast.tasks.pending IS 'Messages that arrived while a run was wanted or under way and still wait for their own run.';
COMMENT ON COLUMN holdfast.tasks.worker_id IS 'The process that runs it at present.';
COMMENT ON COLUMN holdfast.tasks.direct IS 'The agent answered with a bare Message; lists leave such tasks out.';
COMMENT ON COLUMN holdfast.tasks.dialect IS 'The A2A version of the request that created it.';

-- One small row per task that wants or has a run, so that claims never look at finished tasks.
CREATE TABLE holdfast.task_queue (
    id           uuid        NOT NULL,
    agent        text        NOT NULL,
    available_at timestamptz NOT NULL DEFAULT now(),
    worker_id    uuid,
    message_seq  bigint      NOT NULL,
    turn         integer     NOT NULL DEFAULT 1,
    tries        integer     NOT NULL DEFAULT 0,
    CONSTRAINT task_queue_pkey PRIMARY KEY (id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);

CREATE INDEX task_queue_ready ON holdfast.task_queue (agent, available_at, id) WHERE worker_id IS NULL;
CREATE INDEX task_queue_owned ON holdfast.task_queue (worker_id) WHERE worker_id IS NOT NULL;

COMMENT ON TABLE holdfast.task_queue IS 'Tasks that want a run (worker_id is null) or have one; deleted when the run ends.';
COMMENT ON COLUMN holdfast.task_queue.available_at IS 'Not to be claimed before this moment (retries wait here).';
COMMENT ON COLUMN holdfast.task_queue.message_seq IS 'The message event that the run answers.';
COMMENT ON COLUMN holdfast.task_queue.turn IS 'Which of the task''s messages that is, from 1.';
COMMENT ON COLUMN holdfast.task_queue.tries IS 'How many attempts this message has had.';

-- The log: append-only, the truth about every task. No foreign keys: they would take
-- a share lock on the task row for each event.
CREATE TABLE holdfast.task_events (
    task        uuid        NOT NULL,
    seq         bigint      NOT NULL,
    kind        smallint    NOT NULL,
    state       smallint,
    attempt     integer     NOT NULL,
    append      boolean     NOT NULL DEFAULT false,
    last        boolean     NOT NULL DEFAULT false,
    artifact_id text,
    payload     json,
    request_id  uuid,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT task_events_pkey PRIMARY KEY (task, seq),
    CONSTRAINT task_events_kind_known CHECK (kind IN (1, 2, 3, 4)),
    CONSTRAINT task_events_state_of_status CHECK ((kind = 2) = (state IS NOT NULL)),
    CONSTRAINT task_events_artifact_named CHECK ((kind = 3) = (artifact_id IS NOT NULL))
) PARTITION BY RANGE (task);

-- Three times the insert speed of the default for large payloads. Some builds of PostgreSQL
-- come without it, and do without it.
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE holdfast.task_events ALTER COLUMN payload SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;
-- +goose StatementEnd

-- A client's write that is repeated after a lost connection meets its own first copy here.
CREATE UNIQUE INDEX task_events_request ON holdfast.task_events (task, request_id) WHERE request_id IS NOT NULL;

-- The partition behind the monthly ones: events land here if nobody created theirs in time.
CREATE TABLE holdfast.task_events_default PARTITION OF holdfast.task_events DEFAULT;

COMMENT ON TABLE holdfast.task_events IS 'The log of every task, partitioned by the time in the UUIDv7 task id.';
COMMENT ON COLUMN holdfast.task_events.kind IS '1 message, 2 status, 3 artifact chunk, 4 run (not shown to clients).';
COMMENT ON COLUMN holdfast.task_events.attempt IS 'The attempt that wrote it; 0 for a client''s write.';
COMMENT ON COLUMN holdfast.task_events.append IS 'Artifact chunk: its parts continue those before it.';
COMMENT ON COLUMN holdfast.task_events.last IS 'Artifact chunk: the artifact is complete.';
COMMENT ON COLUMN holdfast.task_events.payload IS 'Canonical JSON, see the package comment of internal/store.';
COMMENT ON COLUMN holdfast.task_events.request_id IS 'The client call that wrote a message to an existing task.';

-- Reading one event from within a statement about many tasks. As joins, these would make every
-- execution of the statement open every partition; PL/pgSQL plans them apart, by the task's id.
-- +goose StatementBegin
CREATE FUNCTION holdfast.message_at(of uuid, at bigint) RETURNS json STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.payload FROM holdfast.task_events e WHERE e.task = of AND e.seq = at);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holdfast.message_after(of uuid, at bigint) RETURNS bigint STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    -- A message that was committed while the caller waited for the task's lock is invisible to its
    -- snapshot. Nothing but messages can have come in between, so the oldest of them follows what
    -- is visible.
    RETURN coalesce(
        (SELECT e.seq FROM holdfast.task_events e WHERE e.task = of AND e.seq > at AND e.kind = 1 ORDER BY e.seq LIMIT 1),
        (SELECT max(e.seq) + 1 FROM holdfast.task_events e WHERE e.task = of));
END
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION holdfast.message_at IS 'The payload of an event.';
COMMENT ON FUNCTION holdfast.message_after IS 'The seq of the first message behind another one, which must exist.';

CREATE TABLE holdfast.idempotency_keys (
    tenant       text        NOT NULL,
    owner        text        NOT NULL,
    key          text        NOT NULL,
    request_hash bytea       NOT NULL,
    task         uuid        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant, owner, key)
);
CREATE INDEX idempotency_keys_age ON holdfast.idempotency_keys USING brin (created_at);

COMMENT ON TABLE holdfast.idempotency_keys IS 'Idempotency-Key headers seen, with the hash of the request and the task that it led to.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.idempotency_keys;
DROP FUNCTION holdfast.message_after;
DROP FUNCTION holdfast.message_at;
DROP TABLE holdfast.task_events;
DROP TABLE holdfast.task_queue;
DROP TABLE holdfast.tasks;
