-- Tasks, their log, the queue, and what must be unique among them.
--
-- Legend of the numbers:
--   tasks.state        1 submitted, 2 working, 3 input-required, 4 auth-required: open
--                      5 completed, 6 failed, 7 canceled, 8 rejected: ended
--   task_events.kind   1 message, 2 status, 3 artifact chunk, 4 run note (clients do not see it)
--
-- Everything that grows is partitioned by time, so that old rows go by dropping a table and nobody vacuums what has
-- come to rest. The server creates the partitions ahead (internal/pg/partition); none of them is here. No table has a
-- default partition: PostgreSQL could then neither attach nor detach one without locking out everybody else.
--
--   tasks ─┬─ tasks_open                     state 1 to 4: small, updated all the time
--          └─ tasks_ended ─┬─ tasks_kept     outlived their period: held, or ended late
--                          └─ tasks_dated ── tasks_20261101 …      by id
--   task_events ─┬─ events_kept              the logs of tasks that outlived their period
--                └─ events_dated ─┬─ events_log ──────── events_20261101 …      messages, statuses, run notes; by task
--                                 └─ events_artifacts ── artifacts_20261101 …   artifact chunks; by task
--   idempotency_keys ── keys_20261101 …      by day
--
-- A task's id is a UUIDv7, so its leading 48 bits are the time of its creation and decide the period. The period of a task
-- and of its log are the same.
--
-- Primary keys belong to the partitions. One of a partitioned table would have to contain the columns that it is partitioned
-- by, and those may change: an id is unique because a task moves from one partition to another in one UPDATE.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE SCHEMA IF NOT EXISTS holdfast;

-- The projection of each task's log that is needed to claim, fence and list it.
-- last_seq and run_ordinal change with every chunk and are in no index, so that those updates stay heap-only.
CREATE TABLE holdfast.tasks (
    id                  uuid        NOT NULL,
    client_id           text,
    agent               text        NOT NULL,
    tenant              text        NOT NULL DEFAULT '',
    owner               text        NOT NULL DEFAULT '',
    context_id          text        NOT NULL,
    state               smallint    NOT NULL,
    kept                boolean     NOT NULL DEFAULT false,
    held_at             timestamptz,
    last_seq            bigint      NOT NULL,
    status_seq          bigint      NOT NULL,
    status_at           timestamptz NOT NULL DEFAULT now(),
    attempt             integer     NOT NULL DEFAULT 0,
    run_ordinal         bigint      NOT NULL DEFAULT 0,
    runs                integer     NOT NULL DEFAULT 0,
    turns               integer     NOT NULL DEFAULT 1,
    pending             integer     NOT NULL DEFAULT 0,
    worker_id           uuid,
    claimed_at          timestamptz,
    cancel_requested    boolean     NOT NULL DEFAULT false,
    cancel_requested_at timestamptz,
    direct              boolean     NOT NULL DEFAULT false,
    pushes              boolean     NOT NULL DEFAULT false,
    dialect             text        NOT NULL,
    stream_base         bigint,
    artifact_bytes      bigint      NOT NULL DEFAULT 0,
    metadata            json,
    created_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tasks_state_known CHECK (state IN (1, 2, 3, 4, 5, 6, 7, 8)),
    CONSTRAINT tasks_seq_order CHECK (status_seq BETWEEN 1 AND last_seq),
    CONSTRAINT tasks_worker_runs CHECK (worker_id IS NULL OR state < 3),
    CONSTRAINT tasks_counts CHECK (attempt >= 0 AND run_ordinal >= 0 AND runs >= 0 AND turns >= 1 AND pending >= 0)
) PARTITION BY LIST (state);

COMMENT ON TABLE holdfast.tasks IS 'The current state of each task: the projection of its log in task_events.';
COMMENT ON COLUMN holdfast.tasks.id IS 'UUIDv7 made by the server; also the public id unless client_id is set.';
COMMENT ON COLUMN holdfast.tasks.client_id IS 'The public id when the client chose it (A2A 0.1). Unique through task_names.';
COMMENT ON COLUMN holdfast.tasks.state IS '1 submitted, 2 working, 3 input-required, 4 auth-required, 5 completed, 6 failed, 7 canceled, 8 rejected.';
COMMENT ON COLUMN holdfast.tasks.kept IS 'Its rows have moved, or are moving, out of their period, so that the period can be dropped.';
COMMENT ON COLUMN holdfast.tasks.held_at IS 'When an operator put it on hold, which exempts it from retention; null: no hold.';
COMMENT ON COLUMN holdfast.tasks.last_seq IS 'Sequence number of the newest event in task_events; they count from 1 without a gap.';
COMMENT ON COLUMN holdfast.tasks.status_seq IS 'The event that set the current status.';
COMMENT ON COLUMN holdfast.tasks.status_at IS 'When that event was written; of an ended task, when it ended.';
COMMENT ON COLUMN holdfast.tasks.attempt IS 'Fencing token: each claim and each rescue raises it; a write with an older one is refused.';
COMMENT ON COLUMN holdfast.tasks.run_ordinal IS 'How many events the current attempt has written, so that a retried append writes nothing twice.';
COMMENT ON COLUMN holdfast.tasks.runs IS 'How often an executor was started for this task.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many messages the client has sent.';
COMMENT ON COLUMN holdfast.tasks.pending IS 'Messages that wait behind the one that is queued or running.';
COMMENT ON COLUMN holdfast.tasks.worker_id IS 'The process that runs it now.';
COMMENT ON COLUMN holdfast.tasks.claimed_at IS 'When the newest attempt was claimed.';
COMMENT ON COLUMN holdfast.tasks.cancel_requested IS 'A client asked to cancel it.';
COMMENT ON COLUMN holdfast.tasks.cancel_requested_at IS 'When cancel_requested was first set.';
COMMENT ON COLUMN holdfast.tasks.direct IS 'The agent answered with a bare Message; lists leave such tasks out.';
COMMENT ON COLUMN holdfast.tasks.pushes IS 'It has webhook configurations. If it has none, writers skip the tables of webhooks.';
COMMENT ON COLUMN holdfast.tasks.dialect IS 'The A2A version of the request that created it.';
COMMENT ON COLUMN holdfast.tasks.stream_base IS 'How many events the earlier tasks with its client_id had; null for the first one. A stream id is this plus seq, so the stream ids of one public id only grow.';
COMMENT ON COLUMN holdfast.tasks.artifact_bytes IS 'Bytes of all artifact chunks that its runs have written, including replaced ones.';

-- The order of lists (decision 0020). With the state before the time, any state is a merge of a few short scans, and a rare
-- one is found without passing over the others.
CREATE INDEX tasks_listed ON holdfast.tasks (tenant, owner, agent, direct, state, status_at DESC, id DESC);
CREATE INDEX tasks_of_context ON holdfast.tasks (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC);

-- Each task is inserted, updated and moved out within its life, so this table is all dead rows every few seconds.
CREATE TABLE holdfast.tasks_open PARTITION OF holdfast.tasks (CONSTRAINT tasks_open_pkey PRIMARY KEY (id))
    FOR VALUES IN (1, 2, 3, 4)
    WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
-- Tasks that wait for a client, for expire_parked_after.
CREATE INDEX tasks_open_parked ON holdfast.tasks_open (agent, status_at) WHERE state IN (3, 4);

CREATE TABLE holdfast.tasks_ended PARTITION OF holdfast.tasks FOR VALUES IN (5, 6, 7, 8) PARTITION BY LIST (kept);
-- When tasks ended, by agent: retention. In a collation of its own, so that no other statement can use it: on a partition that
-- is still empty the planner would take it for lists, and keep the plan.
CREATE INDEX tasks_ended_at ON holdfast.tasks_ended (agent COLLATE "C", status_at, id);
CREATE INDEX tasks_held ON holdfast.tasks_ended (id) WHERE held_at IS NOT NULL;
-- The model of the dated partitions, too.
CREATE TABLE holdfast.tasks_kept PARTITION OF holdfast.tasks_ended (CONSTRAINT tasks_kept_pkey PRIMARY KEY (id)) FOR VALUES IN (true);
CREATE TABLE holdfast.tasks_dated PARTITION OF holdfast.tasks_ended FOR VALUES IN (false) PARTITION BY RANGE (id);

-- The ids that clients chose, which no partition can keep unique. Written in the commit of their task; a name whose task is
-- gone is free (NameForget).
CREATE TABLE holdfast.task_names (
    tenant    text NOT NULL,
    owner     text NOT NULL,
    agent     text NOT NULL,
    client_id text NOT NULL,
    task      uuid NOT NULL,
    CONSTRAINT task_names_pkey PRIMARY KEY (tenant, owner, agent, client_id)
);
-- Where all of a tenant see its tasks, a name is looked for among all of them.
CREATE INDEX task_names_of_tenant ON holdfast.task_names (client_id, tenant, agent);
CREATE INDEX task_names_task ON holdfast.task_names (task);

COMMENT ON TABLE holdfast.task_names IS 'The ids that clients chose for their tasks (A2A 0.1).';
COMMENT ON COLUMN holdfast.task_names.task IS 'The task that has the name now.';

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

COMMENT ON TABLE holdfast.task_queue IS 'Tasks that wait for a run (worker_id is null) or have one. The row is deleted when the run parks or ends the task.';
COMMENT ON COLUMN holdfast.task_queue.available_at IS 'When it is due; no process claims it earlier. A retry is due after its backoff.';
COMMENT ON COLUMN holdfast.task_queue.message_seq IS 'The message event that the run answers.';
COMMENT ON COLUMN holdfast.task_queue.turn IS 'Number of that message among the client''s messages, from 1.';
COMMENT ON COLUMN holdfast.task_queue.tries IS 'How many tries this message has had.';

-- The log: append-only, the truth about every task. No foreign keys: they would take a share lock on the task row for each
-- event.
CREATE TABLE holdfast.task_events (
    task        uuid        NOT NULL,
    seq         bigint      NOT NULL,
    kind        smallint    NOT NULL,
    kept        boolean     NOT NULL DEFAULT false,
    state       smallint,
    attempt     integer     NOT NULL,
    append      boolean     NOT NULL DEFAULT false,
    last        boolean     NOT NULL DEFAULT false,
    artifact_id text,
    payload     json,
    request_id  uuid,
    created_at  timestamptz NOT NULL DEFAULT now(),
    worker_id   uuid,
    claimed_at  timestamptz,
    CONSTRAINT task_events_kind_known CHECK (kind IN (1, 2, 3, 4)),
    CONSTRAINT task_events_state_of_status CHECK ((kind = 2) = (state IS NOT NULL)),
    CONSTRAINT task_events_artifact_named CHECK ((kind = 3) = (artifact_id IS NOT NULL))
) PARTITION BY LIST (kept);

-- Three times the insert speed of the default for large payloads. Some builds of PostgreSQL come without it, and do
-- without it.
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE holdfast.task_events ALTER COLUMN payload SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END
$$;
-- +goose StatementEnd

COMMENT ON TABLE holdfast.task_events IS 'The log of every task.';
COMMENT ON COLUMN holdfast.task_events.seq IS 'Place in the task''s log, from 1 without a gap. Retention may remove artifact chunks.';
COMMENT ON COLUMN holdfast.task_events.kind IS '1 message, 2 status, 3 artifact chunk, 4 run note (clients do not see it).';
COMMENT ON COLUMN holdfast.task_events.kept IS 'The row is outside of its period: tasks.kept was set when it was written, or it was moved later.';
COMMENT ON COLUMN holdfast.task_events.attempt IS 'The attempt that wrote it; 0 for a client''s write.';
COMMENT ON COLUMN holdfast.task_events.append IS 'Artifact chunk: its parts continue those before it.';
COMMENT ON COLUMN holdfast.task_events.last IS 'Artifact chunk: the artifact is complete.';
COMMENT ON COLUMN holdfast.task_events.payload IS 'Canonical JSON, see the package comment of internal/store.';
COMMENT ON COLUMN holdfast.task_events.request_id IS 'The client call that wrote a message to an existing task.';
COMMENT ON COLUMN holdfast.task_events.worker_id IS 'On the event that ends an attempt: the process that had it.';
COMMENT ON COLUMN holdfast.task_events.claimed_at IS 'On the event that ends an attempt: when it was claimed.';

-- The model of the dated partitions, too.
CREATE TABLE holdfast.events_kept PARTITION OF holdfast.task_events (CONSTRAINT events_kept_pkey PRIMARY KEY (task, seq)) FOR VALUES IN (true);
-- A client's write that is repeated after a lost connection meets its own first copy here.
CREATE UNIQUE INDEX events_kept_request ON holdfast.events_kept (task, request_id) WHERE request_id IS NOT NULL;
CREATE TABLE holdfast.events_dated PARTITION OF holdfast.task_events FOR VALUES IN (false) PARTITION BY LIST (kind);
CREATE TABLE holdfast.events_log PARTITION OF holdfast.events_dated FOR VALUES IN (1, 2, 4) PARTITION BY RANGE (task);
CREATE TABLE holdfast.events_artifacts PARTITION OF holdfast.events_dated FOR VALUES IN (3) PARTITION BY RANGE (task);

-- Looking at one row from within a statement about many tasks. As joins or subqueries, these would make every execution of the
-- statement open every partition; PL/pgSQL plans them apart, by the task's id.
-- +goose StatementBegin
CREATE FUNCTION holdfast.message_at(of uuid, at bigint) RETURNS json STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.payload FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 1);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holdfast.message_after(of uuid, at bigint) RETURNS bigint STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    -- A message that was committed while the caller waited for the task's lock is invisible to its snapshot. Nothing but
    -- messages can have come in between, so the oldest of them follows what is visible.
    RETURN coalesce(
        (SELECT e.seq FROM holdfast.task_events e WHERE e.task = of AND e.seq > at AND e.kind = 1 ORDER BY e.seq LIMIT 1),
        (SELECT max(e.seq) + 1 FROM holdfast.task_events e WHERE e.task = of));
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_exists(of uuid) RETURNS boolean STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of);
END
$$;
-- +goose StatementEnd

-- Updates of tasks that may have ended. As parts of a statement they would open every partition, whatever the id;
-- EXECUTE makes a plan for this one.
-- +goose StatementBegin
CREATE FUNCTION holdfast.task_unname(of uuid) RETURNS boolean VOLATILE STRICT LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    EXECUTE 'UPDATE holdfast.tasks SET client_id = NULL WHERE id = $1 AND state >= 5' USING of;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n > 0;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_has_pushes(of uuid, any_pushes boolean) RETURNS boolean VOLATILE STRICT LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'UPDATE holdfast.tasks SET pushes = $2 WHERE id = $1 AND pushes <> $2' USING of, any_pushes;
    RETURN any_pushes;
END
$$;
-- +goose StatementEnd

COMMENT ON FUNCTION holdfast.task_unname IS 'Removes the id that the client chose from a task that has ended. Returns whether there was such a task.';
COMMENT ON FUNCTION holdfast.task_has_pushes IS 'Sets tasks.pushes.';
COMMENT ON FUNCTION holdfast.task_exists IS 'Whether the current role sees the task.';
COMMENT ON FUNCTION holdfast.message_at IS 'The payload of a message event.';
COMMENT ON FUNCTION holdfast.message_after IS 'The seq of the first message after seq at. There must be such a message.';

-- A day's keys are unique within their partition. A key is written on the day that its statement began, and within
-- key_overlap of midnight on both days: two requests that race across midnight meet in one of them. Earlier days are read.
CREATE TABLE holdfast.idempotency_keys (
    day          date        NOT NULL,
    tenant       text        NOT NULL,
    owner        text        NOT NULL,
    key          text        NOT NULL,
    request_hash bytea       NOT NULL,
    task         uuid        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant, owner, key, day)
) PARTITION BY RANGE (day);
CREATE INDEX idempotency_keys_age ON holdfast.idempotency_keys (created_at);

COMMENT ON TABLE holdfast.idempotency_keys IS 'Idempotency-Key headers seen, with the hash of the request and the task that it led to.';
COMMENT ON COLUMN holdfast.idempotency_keys.day IS 'The day (UTC) that the key was used on; near midnight there is a row for each of the two days.';

-- The days that a key is written on: one, or two near midnight.
-- +goose StatementBegin
CREATE FUNCTION holdfast.key_days(at timestamptz) RETURNS SETOF date IMMUTABLE LANGUAGE sql AS $$
    SELECT ((at - interval '5 minutes') AT TIME ZONE 'UTC')::date
     UNION
    SELECT ((at + interval '5 minutes') AT TIME ZONE 'UTC')::date
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.key_days IS 'The days (UTC) on which an idempotency key is written: two within five minutes of midnight, otherwise one.';

-- Limits that hold over all replicas: a caller's tasks that have not ended, and tasks that wait for an agent.
--
-- Counting is exact because a statement that creates tasks under a limit first takes the lock of the limit's slot, until its
-- commit, and then counts in a snapshot of that moment: a function has one of its own, a part of a statement has not. A
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
             WHERE t.tenant = of_tenant AND t.owner = of_owner AND t.agent = of_agent AND NOT t.direct
               AND t.state = s.state AND t.state < 5
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

COMMENT ON FUNCTION holdfast.limit_slot IS 'The slot of the limit with these names, which selects its advisory lock.';
COMMENT ON FUNCTION holdfast.live_tasks IS 'How many open tasks a caller has with an agent, up to a bound. Locks the limit until the commit, so that no other statement creates a task under it.';
COMMENT ON FUNCTION holdfast.waiting_tasks IS 'How many tasks wait for an agent, up to a bound. Locks the limit until the commit, so that no other statement queues a task under it.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP FUNCTION holdfast.waiting_tasks;
DROP FUNCTION holdfast.live_tasks;
DROP FUNCTION holdfast.limit_slot;
DROP FUNCTION holdfast.key_days;
DROP TABLE holdfast.idempotency_keys;
DROP FUNCTION holdfast.task_has_pushes;
DROP FUNCTION holdfast.task_unname;
DROP FUNCTION holdfast.task_exists;
DROP FUNCTION holdfast.message_after;
DROP FUNCTION holdfast.message_at;
DROP TABLE holdfast.task_events;
DROP TABLE holdfast.task_queue;
DROP TABLE holdfast.task_names;
DROP TABLE holdfast.tasks;
