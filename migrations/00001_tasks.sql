-- Tasks, their log, and what must be unique among them.
--
-- Legend of the numbers:
--   tasks.state        1 submitted, 2 working, 3 input-required, 4 auth-required: open
--                      5 completed, 6 failed, 7 canceled, 8 rejected: ended
--   task_events.kind   1 message, 2 status, 3 artifact chunk, 4 run note (clients do not see it)
--
-- Everything that grows is partitioned by time, so that old rows go by dropping a table and nobody vacuums what has
-- come to rest. The server creates the partitions ahead (internal/pg/partition); none of them is here. No table has
-- a default partition: PostgreSQL could then neither attach nor detach one without locking out everybody else.
--
--   tasks ─┬─ tasks_open                     state 1 to 4: small, updated all the time
--          └─ tasks_ended ─┬─ tasks_kept     outlived their period: held, or ended late
--                          └─ tasks_dated ── tasks_20261101 …      by id
--   task_events ─┬─ events_kept              the logs of tasks that outlived their period
--                └─ events_dated ─┬─ events_log ──────── events_20261101 …      messages, statuses, run notes; by task
--                                 └─ events_artifacts ── artifacts_20261101 …   artifact chunks; by task
--   idempotency_keys ── keys_20261101 …      by day
--
-- A task's id is a UUIDv7, so its leading 48 bits are the time of its creation and decide the period. The period of a
-- task and of its log are the same.
--
-- Primary keys belong to the partitions. One of a partitioned table would have to contain the columns that it is
-- partitioned by, and those may change: an id is unique because a task moves from one partition to another in one
-- UPDATE.

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
    dialect             text        NOT NULL,
    metadata            json,
    traceparent         text,
    created_at          timestamptz NOT NULL DEFAULT now(),

    state               smallint    NOT NULL,
    direct              boolean     NOT NULL DEFAULT false,
    last_seq            bigint      NOT NULL,
    status_seq          bigint      NOT NULL,
    status_at           timestamptz NOT NULL DEFAULT now(),
    agent_metadata      json,
    artifacts_seq       bigint,
    artifact_bytes      bigint      NOT NULL DEFAULT 0,
    stream_base         bigint,

    turns               integer     NOT NULL DEFAULT 1,
    pending             integer     NOT NULL DEFAULT 0,
    runs                integer     NOT NULL DEFAULT 0,
    attempt             integer     NOT NULL DEFAULT 0,
    run_ordinal         bigint      NOT NULL DEFAULT 0,
    worker_id           uuid,
    claimed_at          timestamptz,
    posted              boolean     NOT NULL DEFAULT false,
    heard_at            timestamptz,

    wakes_at            timestamptz,
    interruptible       boolean     NOT NULL DEFAULT false,
    resume_until        timestamptz,
    resumed_seq         bigint,
    cancel_requested    boolean     NOT NULL DEFAULT false,
    cancel_requested_at timestamptz,
    lineage             boolean     NOT NULL DEFAULT false,
    pushes              boolean     NOT NULL DEFAULT false,

    kept                boolean     NOT NULL DEFAULT false,
    held_at             timestamptz,
    retried_as          uuid,
    CONSTRAINT tasks_seq_order CHECK (status_seq BETWEEN 1 AND last_seq),
    CONSTRAINT tasks_worker_runs CHECK (worker_id IS NULL OR state < 3),
    CONSTRAINT tasks_counts CHECK (attempt >= 0 AND run_ordinal >= 0 AND runs >= 0 AND turns >= 1 AND pending >= 0)
) PARTITION BY LIST (state);

COMMENT ON TABLE holdfast.tasks IS 'The current state of each task: the projection of its log in task_events.';
COMMENT ON COLUMN holdfast.tasks.id IS 'UUIDv7 made by the server; also the public id unless client_id is set.';
COMMENT ON COLUMN holdfast.tasks.client_id IS
    'The public id when the client chose it (A2A 0.1). Unique through task_names.';
COMMENT ON COLUMN holdfast.tasks.dialect IS 'The A2A version of the request that created it.';
COMMENT ON COLUMN holdfast.tasks.traceparent IS
    'W3C Trace Context of the span that created it; null: it was not traced.';
COMMENT ON COLUMN holdfast.tasks.state IS
    '1 submitted, 2 working, 3 input-required, 4 auth-required, 5 completed, 6 failed, 7 canceled, 8 rejected.';
COMMENT ON COLUMN holdfast.tasks.direct IS 'The agent answered with a bare Message; lists leave such tasks out.';
COMMENT ON COLUMN holdfast.tasks.last_seq IS
    'Sequence number of the newest event in task_events; they count from 1 without a gap.';
COMMENT ON COLUMN holdfast.tasks.status_seq IS 'The event that set the current status.';
COMMENT ON COLUMN holdfast.tasks.status_at IS 'When that event was written; of an ended task, when it ended.';
COMMENT ON COLUMN holdfast.tasks.agent_metadata IS
    'The metadata of its statuses, merged. Clients see it in that of the task.';
COMMENT ON COLUMN holdfast.tasks.artifacts_seq IS
    'The newest status that lists the ids of all artifacts before it, in their order.';
COMMENT ON COLUMN holdfast.tasks.artifact_bytes IS
    'Bytes of all artifact chunks that its runs have written, including replaced ones.';
COMMENT ON COLUMN holdfast.tasks.stream_base IS
    'How many events the earlier tasks with its client_id had; null for the first one. A stream id is this plus seq, '
    'so the stream ids of one public id only grow.';
COMMENT ON COLUMN holdfast.tasks.turns IS
    'How many turns it has: a message of the client begins one, as does a timer, the results of calls or a resume URL.';
COMMENT ON COLUMN holdfast.tasks.pending IS 'Messages that wait behind the one that is queued or running.';
COMMENT ON COLUMN holdfast.tasks.runs IS 'How often an executor was started for this task.';
COMMENT ON COLUMN holdfast.tasks.attempt IS
    'Fencing token: each claim and each rescue raises it; a write with an older one is refused.';
COMMENT ON COLUMN holdfast.tasks.run_ordinal IS
    'How many events the writer of the current attempt has written, so that a retried append writes nothing twice.';
COMMENT ON COLUMN holdfast.tasks.worker_id IS 'The process that runs it now.';
COMMENT ON COLUMN holdfast.tasks.claimed_at IS 'When the newest attempt was claimed.';
COMMENT ON COLUMN holdfast.tasks.posted IS
    'The writer of the current attempt is the run API, to which its agent posts; otherwise it is the worker.';
COMMENT ON COLUMN holdfast.tasks.heard_at IS 'When its agent last sent events or a heartbeat to the run API.';
COMMENT ON COLUMN holdfast.tasks.wakes_at IS
    'When the wait of its agent ends; infinity: with the results of its calls; null: it does not wait. The next claim '
    'sets it to null.';
COMMENT ON COLUMN holdfast.tasks.interruptible IS 'With wakes_at: a message of the client ends the wait.';
COMMENT ON COLUMN holdfast.tasks.resume_until IS
    'Parked: until when the resume URL of its turn is valid; null: its agent has not asked for that.';
COMMENT ON COLUMN holdfast.tasks.resumed_seq IS
    'The run note of a resume that came before the run has parked; null: none came.';
COMMENT ON COLUMN holdfast.tasks.cancel_requested IS 'A client asked to cancel it.';
COMMENT ON COLUMN holdfast.tasks.cancel_requested_at IS 'When cancel_requested was first set.';
COMMENT ON COLUMN holdfast.tasks.lineage IS
    'A task has called it, or it has called one: the statement that ends or parks it writes to task_settled.';
COMMENT ON COLUMN holdfast.tasks.pushes IS
    'It has webhook configurations. If it has none, writers skip the tables of webhooks.';
COMMENT ON COLUMN holdfast.tasks.kept IS
    'Its rows have moved, or are moving, out of their period, so that the period can be dropped.';
COMMENT ON COLUMN holdfast.tasks.held_at IS
    'When an operator put it on hold, which exempts it from retention; null: no hold.';
COMMENT ON COLUMN holdfast.tasks.retried_as IS
    'The task that the newest retry by an operator has made of it; null: none.';

-- The order of lists. With the state before the time, any state is a merge of a few short scans, and a
-- rare one is found without passing over the others.
--
-- No look-up by id may take these indexes, which contain the id behind other columns. Beside an old
-- snapshot of another session, vacuum may count at most one open task while the indexes have many dead entries.
-- PostgreSQL then expects any scan of an index to read one page. From version 17 on it expects one scan for an array of
-- ids behind other columns, and several in the primary key. So appends and claims would read all dead entries. The
-- predicates are always true, but PostgreSQL uses such an index only for statements that compare the owner, or the
-- context.
CREATE INDEX tasks_listed
    ON holdfast.tasks (tenant, owner, agent, direct, state, status_at DESC, id DESC)
    WHERE owner IS NOT NULL;
CREATE INDEX tasks_of_context
    ON holdfast.tasks (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC)
    WHERE context_id IS NOT NULL;

-- Each task is inserted, updated and moved out within its life, so this table is all dead rows every few seconds.
CREATE TABLE holdfast.tasks_open
    PARTITION OF holdfast.tasks (CONSTRAINT tasks_open_pkey PRIMARY KEY (id))
    FOR VALUES IN (1, 2, 3, 4)
    WITH (
        fillfactor = 70,
        autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0
    );
-- Tasks that wait for a client, for expire_parked_after.
CREATE INDEX tasks_open_parked ON holdfast.tasks_open (agent, status_at) WHERE state IN (3, 4);

CREATE TABLE holdfast.tasks_ended
    PARTITION OF holdfast.tasks
    FOR VALUES IN (5, 6, 7, 8)
    PARTITION BY LIST (kept);
-- When tasks ended, by agent: retention. In a collation of its own, so that no other statement can use it: on a
-- partition that is still empty the planner would take it for lists, and keep the plan.
CREATE INDEX tasks_ended_at ON holdfast.tasks_ended (agent COLLATE "C", status_at, id);
CREATE INDEX tasks_held ON holdfast.tasks_ended (id) WHERE held_at IS NOT NULL;
-- The model of the dated partitions, too.
CREATE TABLE holdfast.tasks_kept
    PARTITION OF holdfast.tasks_ended (CONSTRAINT tasks_kept_pkey PRIMARY KEY (id))
    FOR VALUES IN (true);
CREATE TABLE holdfast.tasks_dated
    PARTITION OF holdfast.tasks_ended
    FOR VALUES IN (false)
    PARTITION BY RANGE (id);

-- The ids that clients chose, which no partition can keep unique. Written in the commit of their task; a name whose
-- task is gone is free (NameForget).
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

-- The log: append-only, the truth about every task. No foreign keys: they would take a share lock on the task row for
-- each event.
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
COMMENT ON COLUMN holdfast.task_events.seq IS
    'Place in the task''s log, from 1 without a gap. Retention may remove artifact chunks.';
COMMENT ON COLUMN holdfast.task_events.kind IS
    '1 message, 2 status, 3 artifact chunk, 4 run note (clients do not see it).';
COMMENT ON COLUMN holdfast.task_events.kept IS
    'The row is outside of its period: tasks.kept was set when it was written, or it was moved later.';
COMMENT ON COLUMN holdfast.task_events.attempt IS 'The attempt that wrote it; 0 for a client''s write.';
COMMENT ON COLUMN holdfast.task_events.append IS 'Artifact chunk: its parts continue those before it.';
COMMENT ON COLUMN holdfast.task_events.last IS 'Artifact chunk: the artifact is complete.';
COMMENT ON COLUMN holdfast.task_events.payload IS 'Canonical JSON, see the package comment of internal/store.';
COMMENT ON COLUMN holdfast.task_events.request_id IS 'The client call that wrote a message to an existing task.';
COMMENT ON COLUMN holdfast.task_events.worker_id IS 'On the event that ends an attempt: the process that had it.';
COMMENT ON COLUMN holdfast.task_events.claimed_at IS 'On the event that ends an attempt: when it was claimed.';

-- The model of the dated partitions, too.
CREATE TABLE holdfast.events_kept
    PARTITION OF holdfast.task_events (CONSTRAINT events_kept_pkey PRIMARY KEY (task, seq))
    FOR VALUES IN (true);
-- A client's write that is repeated after a lost connection meets its own first copy here.
CREATE UNIQUE INDEX events_kept_request ON holdfast.events_kept (task, request_id) WHERE request_id IS NOT NULL;
-- Payloads of up to a page stay in their rows. With the default, a row that is larger than 2 kB after
-- compression moves its payload to another table, in pieces of 2 kB with an index entry each. It would move a long id
-- of an artifact before the payload is compressed, so both columns change.
ALTER TABLE holdfast.events_kept
    ALTER COLUMN payload SET STORAGE MAIN,
    ALTER COLUMN artifact_id SET STORAGE MAIN;
CREATE TABLE holdfast.events_dated
    PARTITION OF holdfast.task_events
    FOR VALUES IN (false)
    PARTITION BY LIST (kind);
CREATE TABLE holdfast.events_log
    PARTITION OF holdfast.events_dated
    FOR VALUES IN (1, 2, 4)
    PARTITION BY RANGE (task);
CREATE TABLE holdfast.events_artifacts
    PARTITION OF holdfast.events_dated
    FOR VALUES IN (3)
    PARTITION BY RANGE (task);

-- A day's keys are unique within their partition. A key is written on the day that its statement began, and within
-- five minutes of midnight on both days: two requests that race across midnight meet in one of them. Earlier days are
-- read.
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

COMMENT ON TABLE holdfast.idempotency_keys IS
    'Idempotency-Key headers seen, with the hash of the request and the task that it led to.';
COMMENT ON COLUMN holdfast.idempotency_keys.day IS
    'The day (UTC) that the key was used on; near midnight there is a row for each of the two days.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.key_days(at timestamptz) RETURNS SETOF date
IMMUTABLE LANGUAGE sql AS $$
    SELECT ((at - interval '5 minutes') AT TIME ZONE 'UTC')::date
     UNION
    SELECT ((at + interval '5 minutes') AT TIME ZONE 'UTC')::date
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.key_days IS
    'The days (UTC) on which an idempotency key is written: two within five minutes of midnight, otherwise one.';

-- Looking at one row from within a statement about many tasks. As joins or subqueries, these would make every
-- execution of the statement open every partition; PL/pgSQL plans them apart, by the task's id.

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_exists(of uuid) RETURNS boolean
STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.task_exists IS 'Whether the current role sees the task.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_state(of uuid) RETURNS smallint
STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT t.state FROM holdfast.tasks t WHERE t.id = of);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.task_state IS 'The state of a task, by primary key; null: there is no such task.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.message_at(of uuid, at bigint) RETURNS json
STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.payload FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 1);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.message_at IS 'The payload of a message event.';

-- Between the caller's snapshot and its lock, messages and a resume may have been committed. A volatile function has a
-- snapshot of its own, and sees them.
-- +goose StatementBegin
CREATE FUNCTION holdfast.message_after(of uuid, at bigint) RETURNS bigint
VOLATILE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.seq FROM holdfast.task_events e
             WHERE e.task = of AND e.seq > at AND e.kind = 1
             ORDER BY e.seq LIMIT 1);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.message_after IS
    'The seq of the first message after seq at. There must be such a message.';

-- The newest message is before the events of the newest run.
-- +goose StatementBegin
CREATE FUNCTION holdfast.message_last(of uuid) RETURNS bigint
STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.seq FROM holdfast.task_events e WHERE e.task = of AND e.kind = 1 ORDER BY e.seq DESC LIMIT 1);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.message_last IS 'The seq of the newest message of a task.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.note_at(of uuid, at bigint) RETURNS json
STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.payload FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 4);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.note_at IS 'The payload of a run note, by primary key.';

-- Updates of tasks that may have ended. As parts of a statement they would open every partition, whatever the id;
-- EXECUTE makes a plan for this one.

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_unname(of uuid) RETURNS boolean
VOLATILE STRICT LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    EXECUTE 'UPDATE holdfast.tasks SET client_id = NULL WHERE id = $1 AND state >= 5' USING of;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n > 0;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.task_unname IS
    'Removes the id that the client chose from a task that has ended. Returns whether there was such a task.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_has_pushes(of uuid, any_pushes boolean) RETURNS boolean
VOLATILE STRICT LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'UPDATE holdfast.tasks SET pushes = $2 WHERE id = $1 AND pushes <> $2' USING of, any_pushes;
    RETURN any_pushes;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.task_has_pushes IS 'Sets tasks.pushes.';

-- Metadata is merged by key, as the official SDKs do: that of statuses into the task's, that of an artifact's chunks
-- into the artifact's.
-- +goose StatementBegin
CREATE FUNCTION holdfast.merged(VARIADIC objects json[]) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('{' || string_agg(to_json(m.key) || ':' || m.value, ',' ORDER BY m.place) || '}')::json
      FROM (SELECT m.key,
                   (array_agg(m.value ORDER BY o.n DESC, m.n DESC))[1] AS value,
                   min(ARRAY[o.n, m.n]) AS place
              FROM unnest(objects) WITH ORDINALITY o(object, n),
                   json_each(CASE json_typeof(o.object) WHEN 'object' THEN o.object END)
                       WITH ORDINALITY m(key, value, n)
             GROUP BY m.key) m
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.merged IS 'The members of all objects; of those with one name the last one.';
