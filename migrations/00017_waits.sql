-- Timers: a run ends, and its task waits for a time or a message without a process (decision 0045).
--
-- A task that waits is working, has a queue row and no worker. wakes_at is on both rows: the one of the task decides under its
-- lock whether a message ends the wait, the one of the queue keeps the row out of claims until the timer fires.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.tasks
    ADD COLUMN wakes_at      timestamptz,
    ADD COLUMN interruptible boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN holdfast.tasks.wakes_at IS 'When the wait of its agent ends; null: it does not wait. The next claim sets it to null.';
COMMENT ON COLUMN holdfast.tasks.interruptible IS 'With wakes_at: a message of the client ends the wait.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer.';

ALTER TABLE holdfast.task_queue
    ADD COLUMN wakes_at    timestamptz,
    ADD COLUMN input_seq   bigint,
    ADD COLUMN interrupted boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN holdfast.task_queue.wakes_at IS 'When its timer fires; null: it has none. No process claims it before.';
COMMENT ON COLUMN holdfast.task_queue.input_seq IS 'The run note with the wait that this turn follows; null for a turn that follows none.';
COMMENT ON COLUMN holdfast.task_queue.interrupted IS 'With input_seq: a message ended the wait. The run answers that message.';
COMMENT ON COLUMN holdfast.task_queue.message_seq IS 'The newest message that a run has answered or answers.';
COMMENT ON COLUMN holdfast.task_queue.turn IS 'Number of the turn, from 1.';
COMMENT ON COLUMN holdfast.task_queue.tries IS 'How many tries this turn has had.';

CREATE INDEX task_queue_timers ON holdfast.task_queue (wakes_at) WHERE wakes_at IS NOT NULL;
-- Rows with a timer may be many and wait for long. Claims and limits pass over none of them.
DROP INDEX holdfast.task_queue_ready;
CREATE INDEX task_queue_ready ON holdfast.task_queue (agent, available_at, id) WHERE worker_id IS NULL AND wakes_at IS NULL;

-- +goose StatementBegin
CREATE FUNCTION holdfast.note_at(of uuid, at bigint) RETURNS json STABLE STRICT LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT e.payload FROM holdfast.task_events e WHERE e.task = of AND e.seq = at AND e.kind = 4);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.note_at IS 'The payload of a run note, by primary key.';

-- A function has a snapshot of its own, so it sees the queue row as it is while the caller holds the lock of the task. The
-- caller's snapshot may be older than the wait.
-- +goose StatementBegin
CREATE FUNCTION holdfast.wait_interrupt(of uuid, message bigint, bytes integer) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.task_queue q
       SET wakes_at = NULL, available_at = now(), interrupted = true, message_seq = message, message_bytes = bytes
     WHERE q.id = of AND q.worker_id IS NULL AND q.input_seq IS NOT NULL;
    RETURN 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.wait_interrupt IS 'Ends the wait of a task for a message, whose task the caller has locked.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.waiting_tasks(slot integer, of_agent text, bound integer)
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

COMMENT ON COLUMN holdfast.v_tasks.turns IS 'How many turns it has: a message of the client begins one, as does a timer.';
COMMENT ON COLUMN holdfast.v_tasks.pending IS 'How many messages wait behind the turn that is queued, runs or waits.';

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
COMMENT ON COLUMN holdfast.v_runs.turn IS 'Which turn of the task it was, from 1. More than one run of a turn means a retry.';

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
COMMENT ON COLUMN holdfast.v_queue.waiting IS 'How long it has been due and unclaimed; null while it runs or its timer does.';
COMMENT ON COLUMN holdfast.v_queue.turn IS 'Which turn of the task its run is, from 1.';
COMMENT ON COLUMN holdfast.v_queue.tries IS 'How many tries that turn has had, including the current run.';
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly or in a wait, or a checkpoint; clients do not see these).';

-- +goose Down
SET LOCAL lock_timeout = '5s';
-- A task that waits is due at once.
UPDATE holdfast.task_queue SET available_at = now() WHERE wakes_at IS NOT NULL;
CREATE OR REPLACE VIEW holdfast.v_queue AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       q.agent, t.tenant, t.owner, t.context_id,
       CASE WHEN q.worker_id IS NOT NULL THEN 'running' WHEN q.available_at > now() THEN 'delayed' ELSE 'waiting' END AS phase,
       q.available_at,
       CASE WHEN q.worker_id IS NULL THEN greatest(now() - q.available_at, interval '0') END AS waiting,
       q.worker_id AS worker,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = q.worker_id) AS worker_name,
       CASE WHEN q.worker_id IS NOT NULL THEN t.claimed_at END AS started_at,
       q.turn,
       q.tries,
       t.cancel_requested,
       q.away_since
  FROM holdfast.task_queue q
  JOIN holdfast.tasks t ON t.id = q.id AND t.state < 3;
COMMENT ON COLUMN holdfast.v_queue.phase IS 'running (a worker has it), waiting (a worker may claim it, or its agent is away: see v_outages) or delayed (a retry that is due at available_at).';
COMMENT ON COLUMN holdfast.v_queue.waiting IS 'How long it has been due and unclaimed; null while it runs.';
COMMENT ON COLUMN holdfast.v_queue.turn IS 'Which of the client''s messages its run answers, from 1.';
COMMENT ON COLUMN holdfast.v_queue.tries IS 'How many tries that message has had, including the current run.';

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
           1 + count(*) FILTER (WHERE x.kind = 2)
               OVER (ORDER BY x.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS turn
      FROM (SELECT e.seq, e.kind, e.state, e.attempt, e.worker_id, e.claimed_at, e.created_at AS ended_at, e.payload
              FROM holdfast.task_events e
             WHERE e.task = t.id AND e.attempt > 0
               AND (e.kind = 2 AND e.state <> 2
                    OR e.kind = 4 AND (e.payload -> 'outcome') #>> '{}' IN ('lost', 'retry', 'returned', 'away'))
             UNION ALL
            SELECT NULL, NULL, NULL, t.attempt, t.worker_id, t.claimed_at, NULL, NULL
             WHERE t.worker_id IS NOT NULL) x
 ) r;
COMMENT ON COLUMN holdfast.v_runs.outcome IS 'running; the state that it left the task in (completed, failed, canceled, rejected, input-required, auth-required); continued (it asked for input that was already there); or retry (it failed and is retried), away (the agent was away and did not begin it), returned (its server stopped and gave it back), lost (its process stopped renewing its lease).';
COMMENT ON COLUMN holdfast.v_runs.turn IS 'Which of the client''s messages it answered, from 1. More than one run of a turn means a retry.';

COMMENT ON COLUMN holdfast.v_tasks.turns IS 'How many messages the client has sent.';
COMMENT ON COLUMN holdfast.v_tasks.pending IS 'How many of them wait behind the one that is queued or running.';
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly, or a checkpoint; clients do not see these).';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION holdfast.waiting_tasks(slot integer, of_agent text, bound integer)
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
DROP FUNCTION holdfast.wait_interrupt;
DROP FUNCTION holdfast.note_at;
DROP INDEX holdfast.task_queue_timers;
DROP INDEX holdfast.task_queue_ready;
CREATE INDEX task_queue_ready ON holdfast.task_queue (agent, available_at, id) WHERE worker_id IS NULL;
COMMENT ON COLUMN holdfast.task_queue.message_seq IS 'The message event that the run answers.';
COMMENT ON COLUMN holdfast.task_queue.turn IS 'Number of that message among the client''s messages, from 1.';
COMMENT ON COLUMN holdfast.task_queue.tries IS 'How many tries this message has had.';
COMMENT ON COLUMN holdfast.tasks.turns IS 'How many messages the client has sent.';
ALTER TABLE holdfast.task_queue DROP COLUMN wakes_at, DROP COLUMN input_seq, DROP COLUMN interrupted;
ALTER TABLE holdfast.tasks DROP COLUMN wakes_at, DROP COLUMN interruptible;
