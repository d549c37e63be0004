-- What agents have beside the log: state, notices of cancels, and calls of other agents.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- State: a value that an agent stores for a task or for a context. A removed value leaves its row, with the version: a
-- writer that has read the value before notices that it is another.
CREATE TABLE holdfast.task_states (
    task       uuid        NOT NULL,
    version    bigint      NOT NULL,
    value      json,
    request_id uuid        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT task_states_pkey PRIMARY KEY (task),
    CONSTRAINT task_states_version CHECK (version > 0)
) WITH (fillfactor = 70);

COMMENT ON TABLE holdfast.task_states IS 'The value that an agent has stored for a task. It ends with the task.';
COMMENT ON COLUMN holdfast.task_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.task_states.value IS 'Null: the agent has removed it.';
COMMENT ON COLUMN holdfast.task_states.request_id IS
    'The write that stored it, which may be repeated after a lost connection.';

CREATE TABLE holdfast.context_states (
    tenant     text        NOT NULL,
    owner      text        NOT NULL,
    agent      text        NOT NULL,
    context_id text        NOT NULL,
    task       uuid        NOT NULL,
    version    bigint      NOT NULL,
    value      json,
    request_id uuid        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT context_states_pkey PRIMARY KEY (tenant, owner, agent, context_id),
    CONSTRAINT context_states_version CHECK (version > 0)
) WITH (fillfactor = 70);
-- For retention, which goes by the age of tasks.
CREATE INDEX context_states_task ON holdfast.context_states (task);

COMMENT ON TABLE holdfast.context_states IS
    'The value that an agent has stored for a context of an owner. It ends with the last task of the context.';
COMMENT ON COLUMN holdfast.context_states.task IS 'The task whose run wrote it last.';
COMMENT ON COLUMN holdfast.context_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.context_states.value IS 'Null: the agent has removed it.';
COMMENT ON COLUMN holdfast.context_states.request_id IS
    'The write that stored it, which may be repeated after a lost connection.';

-- Notices of cancels: what an agent is told when its task was canceled. A row is written in the commit
-- that cancels a task, or that asks its run to end. A worker delivers it after the task has ended as canceled.
CREATE TABLE holdfast.cancel_notices (
    task         uuid        NOT NULL,
    agent        text        NOT NULL,
    reason       text        NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    due_at       timestamptz NOT NULL DEFAULT now(),
    tries        integer     NOT NULL DEFAULT 0,
    worker_id    uuid,
    ended_at     timestamptz,
    delivered    boolean     NOT NULL DEFAULT false,
    error        text        NOT NULL DEFAULT '',
    CONSTRAINT cancel_notices_pkey PRIMARY KEY (task)
) WITH (fillfactor = 70);
-- A worker that looks for work finds only what is not delivered.
CREATE INDEX cancel_notices_due ON holdfast.cancel_notices (agent, due_at) WHERE ended_at IS NULL;

COMMENT ON TABLE holdfast.cancel_notices IS
    'What agents are told about canceled tasks that they have worked on. A row ends with its task.';
COMMENT ON COLUMN holdfast.cancel_notices.reason IS
    'canceled (by a client or an operator) or expired (it was parked for too long).';
COMMENT ON COLUMN holdfast.cancel_notices.requested_at IS 'When the cancel was requested.';
COMMENT ON COLUMN holdfast.cancel_notices.due_at IS
    'When the next try is due. During a try: when the claim on it ends.';
COMMENT ON COLUMN holdfast.cancel_notices.tries IS
    'How many tries it has had. A try records its result only if no later one has begun.';
COMMENT ON COLUMN holdfast.cancel_notices.worker_id IS 'The process that made the newest try.';
COMMENT ON COLUMN holdfast.cancel_notices.ended_at IS
    'When it was delivered or given up; null: a try is due or under way.';
COMMENT ON COLUMN holdfast.cancel_notices.delivered IS 'With ended_at: the agent has accepted it.';
COMMENT ON COLUMN holdfast.cancel_notices.error IS 'The error of the newest try that failed.';

-- Calls: a run ends, and its task waits for tasks of other agents that it has called (decision 0053).
--
-- A task that waits for calls has a queue row without a worker, like one with a timer, whose wakes_at is infinity.
-- task_calls says what it waits for. The statement that ends or parks a called task writes a row of task_settled and
-- locks nothing of its caller; a duty joins it to the caller.
--
-- A caller that waits shows the progress of the tasks that it has called. The cursor is in the row of
-- the call, so the statement that writes to the log of the caller also moves it. Tasks that are called without relay
-- have nothing to write and nothing to read.
CREATE TABLE holdfast.task_calls (
    parent      uuid        NOT NULL,
    seq         bigint      NOT NULL,
    nth         integer     NOT NULL,
    call_id     text        NOT NULL,
    agent       text        NOT NULL,
    child       uuid        NOT NULL,
    answers     boolean     NOT NULL,
    root        uuid        NOT NULL,
    callers     text[]      NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    started_at  timestamptz,
    after_seq   bigint      NOT NULL DEFAULT 0,
    relay       boolean     NOT NULL DEFAULT false,
    relayed_seq bigint      NOT NULL DEFAULT 0,
    relayed_at  timestamptz,
    settled_at  timestamptz,
    state       smallint,
    child_seq   bigint,
    error       text,
    CONSTRAINT task_calls_pkey PRIMARY KEY (parent, seq, nth),
    CONSTRAINT task_calls_settled CHECK ((settled_at IS NULL) = (state IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX task_calls_child ON holdfast.task_calls (child);
CREATE INDEX task_calls_new
    ON holdfast.task_calls (created_at, parent, seq, nth)
    WHERE started_at IS NULL AND settled_at IS NULL;
-- Only calls that wait are in it. A relay changes no column of it.
CREATE INDEX task_calls_relays
    ON holdfast.task_calls (parent, seq, nth)
    WHERE relay AND started_at IS NOT NULL AND settled_at IS NULL;

COMMENT ON TABLE holdfast.task_calls IS
    'The calls of agents: which task has called which. They are deleted with the caller.';
COMMENT ON COLUMN holdfast.task_calls.parent IS 'The task that has called.';
COMMENT ON COLUMN holdfast.task_calls.seq IS 'The run note of the caller with the calls.';
COMMENT ON COLUMN holdfast.task_calls.nth IS 'Place in that note, from 1.';
COMMENT ON COLUMN holdfast.task_calls.call_id IS 'The name that the caller gave it.';
COMMENT ON COLUMN holdfast.task_calls.agent IS 'The agent that is called.';
COMMENT ON COLUMN holdfast.task_calls.child IS 'The task that is called. It does not exist before started_at.';
COMMENT ON COLUMN holdfast.task_calls.answers IS 'The call is a message to a task of an earlier call.';
COMMENT ON COLUMN holdfast.task_calls.root IS 'The caller that nothing has called.';
COMMENT ON COLUMN holdfast.task_calls.callers IS
    'The agents of the callers, from that of the root to that of the parent.';
COMMENT ON COLUMN holdfast.task_calls.started_at IS 'When the child was created, or got the message.';
COMMENT ON COLUMN holdfast.task_calls.after_seq IS
    'Events of the child up to this one are no result: they came before the message.';
COMMENT ON COLUMN holdfast.task_calls.relay IS
    'The caller shows the progress of the child while it waits for this call.';
COMMENT ON COLUMN holdfast.task_calls.relayed_seq IS
    'The statuses of the child up to this one have been relayed, or newer ones instead.';
COMMENT ON COLUMN holdfast.task_calls.relayed_at IS 'When a status of the child was last relayed; null: never.';
COMMENT ON COLUMN holdfast.task_calls.settled_at IS 'When the call got its result; null: it has none yet.';
COMMENT ON COLUMN holdfast.task_calls.state IS
    'The state of the child that is the result; 8 with an error for a call that was refused.';
COMMENT ON COLUMN holdfast.task_calls.child_seq IS 'The status of the child with that state.';
COMMENT ON COLUMN holdfast.task_calls.error IS 'Why the call was refused.';

CREATE TABLE holdfast.task_settled (
    task uuid   NOT NULL,
    seq  bigint NOT NULL,
    CONSTRAINT task_settled_pkey PRIMARY KEY (task, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

COMMENT ON TABLE holdfast.task_settled IS
    'Tasks with a lineage that have ended or parked, until the duty calls has told their callers and ended what they '
    'called.';
COMMENT ON COLUMN holdfast.task_settled.seq IS
    'The status that ended or parked it; of a deleted task, one more than its last event.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.calls_open(of uuid, note bigint, payload json) RETURNS integer
VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    own holdfast.task_calls;
BEGIN
    SELECT * INTO own FROM holdfast.task_calls c WHERE c.child = of AND NOT c.answers LIMIT 1;
    INSERT INTO holdfast.task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers, relay)
    SELECT of, note, c.n,
           c.call ->> 'id',
           coalesce(c.call ->> 'agent', ''),
           (c.call ->> 'task')::uuid,
           coalesce((c.call ->> 'answers')::boolean, false),
           coalesce(own.root, of),
           coalesce(own.callers, '{}')
               || (SELECT t.agent FROM holdfast.tasks t WHERE t.id = of AND t.state NOT IN (5, 6, 7, 8)),
           coalesce((c.call ->> 'relay')::boolean, false)
      FROM json_array_elements(payload -> 'calls') WITH ORDINALITY c(call, n);
    RETURN 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.calls_open IS
    'Records the calls of a run note. The caller has locked the task and writes the note.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.call_begin(of uuid) RETURNS boolean
VOLATILE LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.task_calls c SET started_at = now()
     WHERE (c.parent, c.seq, c.nth) IN (
        SELECT x.parent, x.seq, x.nth FROM holdfast.task_calls x
         WHERE x.child = of AND NOT x.answers AND x.started_at IS NULL AND x.settled_at IS NULL
           FOR UPDATE SKIP LOCKED);
    RETURN FOUND;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.call_begin IS
    'Whether the caller may create this called task, which it then must: the call has not begun, and its caller has '
    'not given it up.';

-- The row is only a reason to look, so any login may write one: the duty reads the state from the log.
-- +goose StatementBegin
CREATE FUNCTION holdfast.call_settled(of uuid, at bigint) RETURNS integer
VOLATILE SECURITY DEFINER LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO holdfast.task_settled (task, seq) VALUES (of, at) ON CONFLICT DO NOTHING;
    RETURN 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.call_settled IS 'Records that a task with a lineage has ended or parked.';

-- These look at the rows of one task from within a statement about many, as task_exists does.

-- +goose StatementBegin
CREATE FUNCTION holdfast.settled_state(of uuid, at bigint) RETURNS smallint
STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(
        (SELECT e.state FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 2 AND e.state >= 3),
        CASE WHEN NOT holdfast.task_exists(of) THEN 7 END);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.settled_state IS
    'The state in which a status ended or parked a task; canceled for a deleted task, null if it did neither.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.call_settle(of uuid, at bigint) RETURNS boolean
VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    became smallint := holdfast.settled_state(of, at);
BEGIN
    UPDATE holdfast.task_calls c
       SET settled_at = now(), state = became, child_seq = at
     WHERE c.child = of AND c.started_at IS NOT NULL AND c.settled_at IS NULL
       AND c.after_seq < at AND became IS NOT NULL;
    RETURN FOUND;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.call_settle IS
    'Gives the calls that wait for a task their result, if this status ended or parked it.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.settled_drop(of uuid, at bigint) RETURNS boolean
VOLATILE LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.task_settled s
     WHERE s.task = of AND s.seq = at
       AND NOT EXISTS (SELECT FROM holdfast.task_calls c
                        WHERE c.child = of AND c.started_at IS NULL AND c.settled_at IS NULL);
    RETURN FOUND;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.settled_drop IS
    'Forgets the end of a task, unless a message to it has not begun: its result may be this end.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.calls_settled(of uuid, note bigint) RETURNS boolean
STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM holdfast.task_calls c
                        WHERE c.parent = of AND c.seq = note AND c.settled_at IS NULL);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.calls_settled IS 'Whether all calls of a run note have their result.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.caller_ended(of uuid) RETURNS boolean
STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.task_calls c WHERE c.parent = of)
       AND NOT EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state NOT IN (5, 6, 7, 8));
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.caller_ended IS 'Whether a task has called others, and has ended or was deleted.';
