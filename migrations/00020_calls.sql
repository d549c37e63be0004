-- Calls: a run ends, and its task waits for tasks of other agents that it has called (decision 0053).
--
-- A task that waits for calls has a queue row without a worker, like one with a timer, whose wakes_at is infinity. task_calls
-- says what it waits for. The statement that ends or parks a called task writes a row of task_settled and locks nothing of its
-- caller; a duty joins it to the caller.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.tasks ADD COLUMN lineage boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN holdfast.tasks.lineage IS 'A task has called it, or it has called one: the statement that ends or parks it writes to task_settled.';
COMMENT ON COLUMN holdfast.tasks.wakes_at IS 'When the wait of its agent ends; infinity: with the results of its calls; null: it does not wait. The next claim sets it to null.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer, the results of calls or a resume URL.';
COMMENT ON COLUMN holdfast.task_queue.wakes_at IS 'When its timer fires; infinity: its turn begins with the results of calls; null: neither. No process claims it before.';
COMMENT ON COLUMN holdfast.task_queue.input_seq IS 'The run note with the wait or the calls that this turn follows, or with the resume that began it; null for a turn that only a message began.';

CREATE TABLE holdfast.task_calls (
    parent     uuid        NOT NULL,
    seq        bigint      NOT NULL,
    nth        integer     NOT NULL,
    call_id    text        NOT NULL,
    agent      text        NOT NULL,
    child      uuid        NOT NULL,
    answers    boolean     NOT NULL,
    root       uuid        NOT NULL,
    callers    text[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    after_seq  bigint      NOT NULL DEFAULT 0,
    settled_at timestamptz,
    state      smallint,
    child_seq  bigint,
    error      text,
    CONSTRAINT task_calls_pkey PRIMARY KEY (parent, seq, nth),
    CONSTRAINT task_calls_settled CHECK ((settled_at IS NULL) = (state IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX task_calls_child ON holdfast.task_calls (child);
CREATE INDEX task_calls_new ON holdfast.task_calls (created_at, parent, seq, nth) WHERE started_at IS NULL AND settled_at IS NULL;

COMMENT ON TABLE holdfast.task_calls IS 'The calls of agents: which task has called which. They are deleted with the caller.';
COMMENT ON COLUMN holdfast.task_calls.parent IS 'The task that has called.';
COMMENT ON COLUMN holdfast.task_calls.seq IS 'The run note of the caller with the calls.';
COMMENT ON COLUMN holdfast.task_calls.nth IS 'Place in that note, from 1.';
COMMENT ON COLUMN holdfast.task_calls.call_id IS 'The name that the caller gave it.';
COMMENT ON COLUMN holdfast.task_calls.agent IS 'The agent that is called.';
COMMENT ON COLUMN holdfast.task_calls.child IS 'The task that is called. It does not exist before started_at.';
COMMENT ON COLUMN holdfast.task_calls.answers IS 'The call is a message to a task of an earlier call.';
COMMENT ON COLUMN holdfast.task_calls.root IS 'The caller that nothing has called.';
COMMENT ON COLUMN holdfast.task_calls.callers IS 'The agents of the callers, from that of the root to that of the parent.';
COMMENT ON COLUMN holdfast.task_calls.started_at IS 'When the child was created, or got the message.';
COMMENT ON COLUMN holdfast.task_calls.after_seq IS 'Events of the child up to this one are no result: they came before the message.';
COMMENT ON COLUMN holdfast.task_calls.settled_at IS 'When the call got its result; null: it has none yet.';
COMMENT ON COLUMN holdfast.task_calls.state IS 'The state of the child that is the result; 8 with an error for a call that was refused.';
COMMENT ON COLUMN holdfast.task_calls.child_seq IS 'The status of the child with that state.';
COMMENT ON COLUMN holdfast.task_calls.error IS 'Why the call was refused.';

CREATE TABLE holdfast.task_settled (
    task uuid   NOT NULL,
    seq  bigint NOT NULL,
    CONSTRAINT task_settled_pkey PRIMARY KEY (task, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

COMMENT ON TABLE holdfast.task_settled IS 'Tasks with a lineage that have ended or parked, until the duty calls has told their callers and ended what they called.';
COMMENT ON COLUMN holdfast.task_settled.seq IS 'The status that ended or parked it; of a deleted task, one more than its last event.';

-- Only duties read and write them, so the role for callers has no grant on them. The policies are for a role that gets one.
ALTER TABLE holdfast.task_calls ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_calls USING (holdfast.task_exists(parent));
ALTER TABLE holdfast.task_settled ENABLE ROW LEVEL SECURITY;
CREATE POLICY callers ON holdfast.task_settled USING (holdfast.task_exists(task));

-- +goose StatementBegin
CREATE FUNCTION holdfast.calls_open(of uuid, note bigint, payload json) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    own holdfast.task_calls;
BEGIN
    SELECT * INTO own FROM holdfast.task_calls c WHERE c.child = of AND NOT c.answers LIMIT 1;
    INSERT INTO holdfast.task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers)
    SELECT of, note, c.n, c.call ->> 'id', coalesce(c.call ->> 'agent', ''), (c.call ->> 'task')::uuid,
           coalesce((c.call ->> 'answers')::boolean, false), coalesce(own.root, of),
           coalesce(own.callers, '{}') || (SELECT t.agent FROM holdfast.tasks t WHERE t.id = of AND t.state NOT IN (5, 6, 7, 8))
      FROM json_array_elements(payload -> 'calls') WITH ORDINALITY c(call, n);
    RETURN 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.calls_open IS 'Records the calls of a run note. The caller has locked the task and writes the note.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.call_begin(of uuid) RETURNS boolean VOLATILE LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION holdfast.call_begin IS 'Whether the caller may create this called task, which it then must: the call has not begun, and its caller has not given it up.';

-- The row is only a reason to look, so any login may write one: the duty reads the state from the log.
-- +goose StatementBegin
CREATE FUNCTION holdfast.call_settled(of uuid, at bigint) RETURNS integer VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.task_settled (task, seq) VALUES (of, at) ON CONFLICT DO NOTHING;
    RETURN 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.call_settled IS 'Records that a task with a lineage has ended or parked.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.settled_state(of uuid, at bigint) RETURNS smallint STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN coalesce(
        (SELECT e.state FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 2 AND e.state >= 3),
        CASE WHEN NOT holdfast.task_exists(of) THEN 7 END);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.settled_state IS 'The state in which a status ended or parked a task; canceled for a deleted task, null if it did neither.';

-- Looking at the rows of one task from within a statement about many, as task_exists does.
-- +goose StatementBegin
CREATE FUNCTION holdfast.call_settle(of uuid, at bigint) RETURNS boolean VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    became smallint := holdfast.settled_state(of, at);
BEGIN
    UPDATE holdfast.task_calls c SET settled_at = now(), state = became, child_seq = at
     WHERE c.child = of AND c.started_at IS NOT NULL AND c.settled_at IS NULL AND c.after_seq < at AND became IS NOT NULL;
    RETURN FOUND;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.call_settle IS 'Gives the calls that wait for a task their result, if this status ended or parked it.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.settled_drop(of uuid, at bigint) RETURNS boolean VOLATILE LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.task_settled s
     WHERE s.task = of AND s.seq = at
       AND NOT EXISTS (SELECT FROM holdfast.task_calls c WHERE c.child = of AND c.started_at IS NULL AND c.settled_at IS NULL);
    RETURN FOUND;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.settled_drop IS 'Forgets the end of a task, unless a message to it has not begun: its result may be this end.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.calls_settled(of uuid, note bigint) RETURNS boolean STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM holdfast.task_calls c WHERE c.parent = of AND c.seq = note AND c.settled_at IS NULL);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.calls_settled IS 'Whether all calls of a run note have their result.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.caller_ended(of uuid) RETURNS boolean STABLE LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.task_calls c WHERE c.parent = of)
       AND NOT EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = of AND t.state NOT IN (5, 6, 7, 8));
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.caller_ended IS 'Whether a task has called others, and has ended or was deleted.';

COMMENT ON COLUMN holdfast.v_tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer, the results of calls or a resume URL.';

CREATE OR REPLACE VIEW holdfast.v_runs AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       r.run,
       r.attempt,
       r.turn,
       r.worker_id AS worker,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = r.worker_id) AS worker_name,
       r.claimed_at AS started_at,
       r.ended_at,
       coalesce(r.ended_at, now()) - r.claimed_at AS duration,
       CASE WHEN r.seq IS NULL THEN 'running'
            WHEN r.kind = 4 THEN (r.payload -> 'outcome') #>> '{}'
            WHEN r.state = 1 THEN 'continued'
            ELSE holdfast.state_name(r.state) END AS outcome,
       CASE WHEN r.kind = 4 THEN (r.payload -> 'error') #>> '{}'
            WHEN r.state IN (6, 8) THEN coalesce((r.payload -> 'cause') #>> '{}', (
                SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
                  FROM json_array_elements(r.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n))) END AS error,
       r.seq
  FROM holdfast.tasks t
 CROSS JOIN LATERAL (
    SELECT x.*,
           row_number() OVER (ORDER BY x.seq) AS run,
           1 + count(*) FILTER (WHERE x.kind = 2 OR (x.payload -> 'outcome') #>> '{}' IN ('waits', 'calls'))
               OVER (ORDER BY x.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS turn
      FROM (SELECT e.seq, e.kind, e.state, e.attempt, e.worker_id, e.claimed_at, e.created_at AS ended_at, e.payload
              FROM holdfast.task_events e
             WHERE e.task = t.id AND e.attempt > 0
               AND (e.kind = 2 AND e.state <> 2
                    OR e.kind = 4 AND (e.payload -> 'outcome') #>> '{}' IN ('lost', 'retry', 'returned', 'away', 'waits', 'calls'))
             UNION ALL
            SELECT NULL, NULL, NULL, t.attempt, t.worker_id, t.claimed_at, NULL, NULL
             WHERE t.worker_id IS NOT NULL) x
 ) r;
COMMENT ON COLUMN holdfast.v_runs.outcome IS 'running; the state that it left the task in (completed, failed, canceled, rejected, input-required, auth-required); continued (it asked for input that was already there); waits (a timer begins the next turn); calls (the results of calls begin it); or retry (it failed and is retried), away (the agent was away and did not begin it), returned (its server stopped and gave it back), lost (its process stopped renewing its lease).';

CREATE OR REPLACE VIEW holdfast.v_queue AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       q.agent, t.tenant, t.owner, t.context_id,
       CASE WHEN q.worker_id IS NOT NULL THEN 'running' WHEN q.wakes_at = 'infinity' THEN 'calls' WHEN q.wakes_at IS NOT NULL THEN 'timer' WHEN q.available_at > now() THEN 'delayed' ELSE 'waiting' END AS phase,
       q.available_at,
       CASE WHEN q.worker_id IS NULL AND q.wakes_at IS NULL THEN greatest(now() - q.available_at, interval '0') END AS waiting,
       q.worker_id AS worker,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = q.worker_id) AS worker_name,
       CASE WHEN q.worker_id IS NOT NULL THEN t.claimed_at END AS started_at,
       q.turn,
       q.tries,
       t.cancel_requested,
       q.away_since
  FROM holdfast.task_queue q
  JOIN holdfast.tasks t ON t.id = q.id AND t.state < 3;
COMMENT ON COLUMN holdfast.v_queue.phase IS 'running (a worker has it), waiting (a worker may claim it, or its agent is away: see v_outages), delayed (a retry that is due at available_at), timer (its agent waits until available_at) or calls (its agent waits for tasks that it has called: see v_lineage).';
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly, in a wait or in calls, a checkpoint, the metadata of a cancel, or a resume; clients do not see these).';

CREATE VIEW holdfast.v_lineage AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       holdfast.state_name(t.state) AS state,
       c.parent, c.root, cardinality(c.callers) AS depth,
       c.call_id AS call,
       c.started_at AS called_at
  FROM holdfast.task_calls c JOIN holdfast.tasks t ON t.id = c.child
 WHERE NOT c.answers AND c.started_at IS NOT NULL;
COMMENT ON VIEW holdfast.v_lineage IS 'The tasks that other tasks have called, with their callers.';
COMMENT ON COLUMN holdfast.v_lineage.parent IS 'The task that has called it.';
COMMENT ON COLUMN holdfast.v_lineage.root IS 'The task at the beginning of the calls, which a client has created.';
COMMENT ON COLUMN holdfast.v_lineage.depth IS 'How many calls lead from the root to it, from 1.';
COMMENT ON COLUMN holdfast.v_lineage.call IS 'The id that its caller gave the call.';
COMMENT ON COLUMN holdfast.v_lineage.called_at IS 'When the call created it.';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.5' $$;

-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE (SELECT string_agg(format('COMMENT ON COLUMN holdfast.v_lineage.%I IS %L', a.attname, col_description('holdfast.v_tasks'::regclass, t.attnum)), ';')
               FROM pg_attribute a JOIN pg_attribute t ON t.attrelid = 'holdfast.v_tasks'::regclass AND t.attname = a.attname
              WHERE a.attrelid = 'holdfast.v_lineage'::regclass AND a.attname IN ('task', 'task_id', 'agent', 'tenant', 'owner', 'context_id', 'state'));
    GRANT SELECT ON holdfast.v_lineage TO holdfast_reader;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN
    NULL; -- as in 00006
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
-- A task that waits for calls is due at once.
UPDATE holdfast.task_queue SET wakes_at = NULL, available_at = now() WHERE wakes_at = 'infinity';
UPDATE holdfast.tasks SET wakes_at = NULL WHERE wakes_at = 'infinity' AND state < 5;
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.4' $$;
DROP VIEW holdfast.v_lineage;
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly or in a wait, a checkpoint, the metadata of a cancel, or a resume; clients do not see these).';
CREATE OR REPLACE VIEW holdfast.v_queue AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       q.agent, t.tenant, t.owner, t.context_id,
       CASE WHEN q.worker_id IS NOT NULL THEN 'running' WHEN q.wakes_at IS NOT NULL THEN 'timer' WHEN q.available_at > now() THEN 'delayed' ELSE 'waiting' END AS phase,
       q.available_at,
       CASE WHEN q.worker_id IS NULL AND q.wakes_at IS NULL THEN greatest(now() - q.available_at, interval '0') END AS waiting,
       q.worker_id AS worker,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = q.worker_id) AS worker_name,
       CASE WHEN q.worker_id IS NOT NULL THEN t.claimed_at END AS started_at,
       q.turn,
       q.tries,
       t.cancel_requested,
       q.away_since
  FROM holdfast.task_queue q
  JOIN holdfast.tasks t ON t.id = q.id AND t.state < 3;
COMMENT ON COLUMN holdfast.v_queue.phase IS 'running (a worker has it), waiting (a worker may claim it, or its agent is away: see v_outages), delayed (a retry that is due at available_at) or timer (its agent waits until available_at).';

CREATE OR REPLACE VIEW holdfast.v_runs AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       r.run,
       r.attempt,
       r.turn,
       r.worker_id AS worker,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = r.worker_id) AS worker_name,
       r.claimed_at AS started_at,
       r.ended_at,
       coalesce(r.ended_at, now()) - r.claimed_at AS duration,
       CASE WHEN r.seq IS NULL THEN 'running'
            WHEN r.kind = 4 THEN (r.payload -> 'outcome') #>> '{}'
            WHEN r.state = 1 THEN 'continued'
            ELSE holdfast.state_name(r.state) END AS outcome,
       CASE WHEN r.kind = 4 THEN (r.payload -> 'error') #>> '{}'
            WHEN r.state IN (6, 8) THEN coalesce((r.payload -> 'cause') #>> '{}', (
                SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
                  FROM json_array_elements(r.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n))) END AS error,
       r.seq
  FROM holdfast.tasks t
 CROSS JOIN LATERAL (
    SELECT x.*,
           row_number() OVER (ORDER BY x.seq) AS run,
           1 + count(*) FILTER (WHERE x.kind = 2 OR (x.payload -> 'outcome') #>> '{}' = 'waits')
               OVER (ORDER BY x.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS turn
      FROM (SELECT e.seq, e.kind, e.state, e.attempt, e.worker_id, e.claimed_at, e.created_at AS ended_at, e.payload
              FROM holdfast.task_events e
             WHERE e.task = t.id AND e.attempt > 0
               AND (e.kind = 2 AND e.state <> 2
                    OR e.kind = 4 AND (e.payload -> 'outcome') #>> '{}' IN ('lost', 'retry', 'returned', 'away', 'waits'))
             UNION ALL
            SELECT NULL, NULL, NULL, t.attempt, t.worker_id, t.claimed_at, NULL, NULL
             WHERE t.worker_id IS NOT NULL) x
 ) r;
COMMENT ON COLUMN holdfast.v_runs.outcome IS 'running; the state that it left the task in (completed, failed, canceled, rejected, input-required, auth-required); continued (it asked for input that was already there); waits (a timer begins the next turn); or retry (it failed and is retried), away (the agent was away and did not begin it), returned (its server stopped and gave it back), lost (its process stopped renewing its lease).';
COMMENT ON COLUMN holdfast.v_tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer or a resume URL.';
DROP FUNCTION holdfast.caller_ended;
DROP FUNCTION holdfast.calls_settled;
DROP FUNCTION holdfast.settled_drop;
DROP FUNCTION holdfast.call_settle;
DROP FUNCTION holdfast.settled_state;
DROP FUNCTION holdfast.call_settled;
DROP FUNCTION holdfast.call_begin;
DROP FUNCTION holdfast.calls_open;
DROP TABLE holdfast.task_settled;
DROP TABLE holdfast.task_calls;
COMMENT ON COLUMN holdfast.task_queue.input_seq IS 'The run note with the wait that this turn follows, or with the resume that began it; null for a turn that only a message began.';
COMMENT ON COLUMN holdfast.task_queue.wakes_at IS 'When its timer fires; null: it has none. No process claims it before.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer or a resume URL.';
COMMENT ON COLUMN holdfast.tasks.wakes_at IS 'When the wait of its agent ends; null: it does not wait. The next claim sets it to null.';
ALTER TABLE holdfast.tasks DROP COLUMN lineage;
