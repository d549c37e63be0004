-- The queue: tasks that want or have a run, the limits on them, and the processes that run them.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- One small row per task that wants or has a run, so that claims never look at finished tasks.
--
-- A task that waits for a timer or for calls is working, has a row and no worker (decision 0045). wakes_at is on both
-- rows: the one of the task decides under its lock whether a message ends the wait, the one of the queue keeps the row
-- out of claims until the timer fires.
--
-- Headers of clients that are forwarded to agents are beside the messages of the turns that have not ended. So
-- they go with the row when a turn parks or ends the task. The statement that begins another turn after it
-- removes those of its message.
--
-- The lease of a remote worker's run is on the clock of the database (decision 0068). A heartbeat changes
-- lease_until, which no index has. look_at is when a replica must look at the run: it is moved at most once per lease.
CREATE TABLE holdfast.task_queue (
    id            uuid        NOT NULL,
    agent         text        NOT NULL,
    available_at  timestamptz NOT NULL DEFAULT now(),
    worker_id     uuid,
    message_seq   bigint      NOT NULL,
    message_bytes integer     NOT NULL DEFAULT 0,
    forwarded     jsonb,
    turn          integer     NOT NULL DEFAULT 1,
    tries         integer     NOT NULL DEFAULT 0,
    spared        integer     NOT NULL DEFAULT 0,
    suspect       boolean     NOT NULL DEFAULT false,
    away_since    timestamptz,
    wakes_at      timestamptz,
    input_seq     bigint,
    interrupted   boolean     NOT NULL DEFAULT false,
    lease_until   timestamptz,
    look_at       timestamptz,
    CONSTRAINT task_queue_pkey PRIMARY KEY (id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

-- Rows with a timer may be many and wait for long. Claims and limits pass over none of them.
CREATE INDEX task_queue_ready
    ON holdfast.task_queue (agent, available_at, id)
    WHERE worker_id IS NULL AND wakes_at IS NULL;
CREATE INDEX task_queue_suspects ON holdfast.task_queue (available_at, id) WHERE suspect AND worker_id IS NULL;
CREATE INDEX task_queue_timers ON holdfast.task_queue (wakes_at) WHERE wakes_at IS NOT NULL;
CREATE INDEX task_queue_owned ON holdfast.task_queue (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX task_queue_leases
    ON holdfast.task_queue (look_at)
    WHERE look_at IS NOT NULL AND worker_id IS NOT NULL;

COMMENT ON TABLE holdfast.task_queue IS
    'Tasks that wait for a run (worker_id is null) or have one. The row is deleted when the run parks or ends the '
    'task.';
COMMENT ON COLUMN holdfast.task_queue.available_at IS
    'When it is due; no process claims it earlier. A retry is due after its backoff.';
COMMENT ON COLUMN holdfast.task_queue.message_seq IS 'The newest message that a run has answered or answers.';
COMMENT ON COLUMN holdfast.task_queue.message_bytes IS
    'Size of the message that the run answers, as text. A worker claims as many messages as its memory allows.';
COMMENT ON COLUMN holdfast.task_queue.forwarded IS
    'Headers of the requests with its messages, by the seq of the message: sealed (internal/secrets), in base64. Null: '
    'none.';
COMMENT ON COLUMN holdfast.task_queue.turn IS 'Number of the turn, from 1.';
COMMENT ON COLUMN holdfast.task_queue.tries IS 'How many tries this turn has had.';
COMMENT ON COLUMN holdfast.task_queue.spared IS
    'How many of its tries were lost with a process that also lost other runs.';
COMMENT ON COLUMN holdfast.task_queue.suspect IS
    'Its last run was lost with its process and may have been the reason. A process starts one such run at a time.';
COMMENT ON COLUMN holdfast.task_queue.away_since IS
    'Since when the agent has not begun this run: it was away, or too busy; null otherwise.';
COMMENT ON COLUMN holdfast.task_queue.wakes_at IS
    'When its timer fires; infinity: its turn begins with the results of calls; null: neither. No process claims it '
    'before.';
COMMENT ON COLUMN holdfast.task_queue.input_seq IS
    'The run note with the wait or the calls that this turn follows, or with the resume that began it; null for a '
    'turn that only a message began.';
COMMENT ON COLUMN holdfast.task_queue.interrupted IS
    'With input_seq: a message ended the wait. The run answers that message.';
COMMENT ON COLUMN holdfast.task_queue.lease_until IS
    'While a remote worker has the run: when its lease ends unless the worker renews it. Null for runs of server '
    'processes.';
COMMENT ON COLUMN holdfast.task_queue.look_at IS
    'While a remote worker has the run: when a server process checks its lease, its timeouts and its cancel.';

-- A function has a snapshot of its own, so it sees the queue row as it is while the caller holds the lock of the task.
-- The caller's snapshot may be older than the wait.
-- +goose StatementBegin
CREATE FUNCTION holdfast.wait_interrupt(of uuid, message bigint, bytes integer) RETURNS integer
VOLATILE LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.task_queue q
       SET wakes_at = NULL, available_at = now(), interrupted = true, message_seq = message, message_bytes = bytes
     WHERE q.id = of AND q.worker_id IS NULL AND q.input_seq IS NOT NULL;
    RETURN 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.wait_interrupt IS
    'Ends the wait of a task for a message, whose task the caller has locked.';

-- As wait_interrupt: the queue row may be newer than the caller's snapshot.
-- +goose StatementBegin
CREATE FUNCTION holdfast.forward(of uuid, message bigint, sealed text) RETURNS integer
VOLATILE STRICT LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.task_queue q
       SET forwarded = coalesce(q.forwarded, '{}') || jsonb_build_object(message::text, sealed)
     WHERE q.id = of;
    RETURN 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.forward IS
    'Keeps the headers of a message for its turn. The caller has locked the task, which is queued or has a run.';

-- Limits that hold over all replicas: a caller's tasks that have not ended, and tasks that wait for an agent.
--
-- Counting is exact because a statement that creates tasks under a limit first takes the lock of the limit's slot,
-- until its commit, and then counts in a snapshot of that moment: a function has one of its own, a part of a statement
-- has not. A statement takes its slots in ascending order, those of live_tasks first. 64 of them bound what a statement
-- locks.

-- +goose StatementBegin
CREATE FUNCTION holdfast.limit_slot(VARIADIC names text[]) RETURNS integer
IMMUTABLE LANGUAGE sql AS $$
    SELECT hashtext(array_to_string(names, chr(31))) & 63
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.limit_slot IS 'The slot of the limit with these names, which selects its advisory lock.';

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
COMMENT ON FUNCTION holdfast.live_tasks IS
    'How many open tasks a caller has with an agent, up to a bound. Locks the limit until the commit, so that no '
    'other statement creates a task under it.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.waiting_tasks(slot integer, of_agent text, bound integer)
RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1212566834, slot);
    -- Index task_queue_ready.
    RETURN (SELECT count(*) FROM (
        SELECT FROM holdfast.task_queue q
         WHERE q.agent = of_agent AND q.worker_id IS NULL AND q.wakes_at IS NULL
         ORDER BY q.available_at, q.id LIMIT bound
    ) n);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.waiting_tasks IS
    'How many tasks wait for an agent, up to a bound. Locks the limit until the commit, so that no other statement '
    'queues a task under it.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.beyond_live(ids uuid[], tenants text[], owners text[], agents text[], limits integer[])
RETURNS SETOF uuid VOLATILE STRICT LANGUAGE plpgsql AS $$
DECLARE
    g record;
BEGIN
    FOR g IN
        SELECT holdfast.limit_slot(i.tenant, i.owner, i.agent) AS slot, i.tenant, i.owner, i.agent,
               min(i.most) AS most, array_agg(i.id ORDER BY i.id) AS ids
          FROM unnest(ids, tenants, owners, agents, limits) AS i (id, tenant, owner, agent, most)
         GROUP BY i.tenant, i.owner, i.agent
         ORDER BY slot, i.tenant, i.owner, i.agent
    LOOP
        RETURN QUERY
            SELECT unnest(g.ids[1 + g.most - holdfast.live_tasks(g.slot, g.tenant, g.owner, g.agent, g.most):]);
    END LOOP;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.beyond_live IS
    'The new tasks that would exceed the limit of their caller''s open tasks. Locks the limits until the commit.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.beyond_queue(ids uuid[], agents text[], limits integer[])
RETURNS SETOF uuid VOLATILE STRICT LANGUAGE plpgsql AS $$
DECLARE
    g record;
BEGIN
    FOR g IN
        SELECT holdfast.limit_slot(i.agent) AS slot, i.agent, min(i.most) AS most, array_agg(i.id ORDER BY i.id) AS ids
          FROM unnest(ids, agents, limits) AS i (id, agent, most)
         GROUP BY i.agent
         ORDER BY slot, i.agent
    LOOP
        RETURN QUERY SELECT unnest(g.ids[1 + g.most - holdfast.waiting_tasks(g.slot, g.agent, g.most):]);
    END LOOP;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.beyond_queue IS
    'The new tasks that would exceed the limit of tasks that wait for their agent. Locks the limits until the commit.';

-- Processes: who is alive, who ever was, and who has a duty that one process has at a time.

CREATE TABLE holdfast.workers (
    id          uuid        NOT NULL,
    name        text        NOT NULL,
    version     text        NOT NULL,
    roles       text        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz NOT NULL,
    agents      jsonb       NOT NULL DEFAULT '{}',
    CONSTRAINT workers_pkey PRIMARY KEY (id)
) WITH (fillfactor = 50);

COMMENT ON TABLE holdfast.workers IS
    'The processes that are alive. When one stops renewing its lease, the process that notices first deletes the row '
    'and rescues the runs.';
COMMENT ON COLUMN holdfast.workers.lease_until IS
    'When the lease ends, by the database''s clock, unless the process renews it.';
COMMENT ON COLUMN holdfast.workers.agents IS
    'The agents of its configuration, by name: tries of a message (tries), runs at once (slots; none: remote workers '
    'run it).';

CREATE TABLE holdfast.processes (
    id         uuid        NOT NULL,
    name       text        NOT NULL,
    version    text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT processes_pkey PRIMARY KEY (id)
);
CREATE INDEX processes_started ON holdfast.processes (started_at);

COMMENT ON TABLE holdfast.processes IS
    'Every process that ever registered, for the names of workers in the log. Retention removes old rows.';

CREATE TABLE holdfast.leases (
    name   text        NOT NULL,
    holder uuid        NOT NULL,
    until  timestamptz NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

COMMENT ON TABLE holdfast.leases IS 'The duties that one process has at a time, such as creating partitions.';

CREATE TABLE holdfast.remote_workers (
    id         uuid        NOT NULL,
    name       text        NOT NULL DEFAULT '',
    version    text        NOT NULL DEFAULT '',
    sdk        text        NOT NULL DEFAULT '',
    agents     text[]      NOT NULL DEFAULT '{}',
    replica    text        NOT NULL DEFAULT '',
    first_seen timestamptz NOT NULL DEFAULT now(),
    last_seen  timestamptz NOT NULL DEFAULT now(),
    left_at    timestamptz,
    retired_at timestamptz,
    CONSTRAINT remote_workers_pkey PRIMARY KEY (id)
);
CREATE INDEX remote_workers_seen ON holdfast.remote_workers (last_seen);
CREATE INDEX remote_workers_retired ON holdfast.remote_workers (retired_at) WHERE retired_at IS NOT NULL;

COMMENT ON TABLE holdfast.remote_workers IS
    'Workers that have connected through the worker API. A replica writes about its workers every few seconds, not '
    'with each request.';
COMMENT ON COLUMN holdfast.remote_workers.id IS 'Chosen by the worker, new at each start.';
COMMENT ON COLUMN holdfast.remote_workers.name IS 'As the worker says, such as the name of its host.';
COMMENT ON COLUMN holdfast.remote_workers.version IS 'Of the code of its agents, as the worker says.';
COMMENT ON COLUMN holdfast.remote_workers.sdk IS 'The SDK and the language, as the worker says.';
COMMENT ON COLUMN holdfast.remote_workers.agents IS 'The agents of its last claim.';
COMMENT ON COLUMN holdfast.remote_workers.replica IS 'The server process that answered it last.';
COMMENT ON COLUMN holdfast.remote_workers.last_seen IS
    'When it last sent a request or had one open, to within a minute.';
COMMENT ON COLUMN holdfast.remote_workers.left_at IS
    'When it said that it stops, or when its connection broke without a new one; null: neither.';
COMMENT ON COLUMN holdfast.remote_workers.retired_at IS
    'When an operator told it to claim no more; null: it may claim.';

CREATE TABLE holdfast.agent_outages (
    agent     text        NOT NULL,
    since     timestamptz NOT NULL DEFAULT now(),
    last_at   timestamptz NOT NULL DEFAULT now(),
    error     text        NOT NULL,
    worker_id uuid        NOT NULL,
    CONSTRAINT agent_outages_pkey PRIMARY KEY (agent)
) WITH (fillfactor = 50);

COMMENT ON TABLE holdfast.agent_outages IS
    'Agents that are away. A worker writes the row when the agent does not begin a run, and deletes it when the agent '
    'begins one.';
COMMENT ON COLUMN holdfast.agent_outages.last_at IS
    'The last time that a worker tried. Without a try for a minute the outage is over.';
