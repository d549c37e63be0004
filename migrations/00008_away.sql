-- Agents that are away, and the causes of failures.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.task_queue
    ADD COLUMN away_since timestamptz,
    ADD COLUMN suspect    boolean NOT NULL DEFAULT false,
    ADD COLUMN spared     integer NOT NULL DEFAULT 0;
CREATE INDEX task_queue_suspects ON holdfast.task_queue (available_at, id) WHERE suspect AND worker_id IS NULL;

COMMENT ON COLUMN holdfast.task_queue.away_since IS 'Since when the agent has not begun this run: it was away, or too busy; null otherwise.';
COMMENT ON COLUMN holdfast.task_queue.suspect IS 'Its last run was lost with its process and may have been the reason. A process starts one such run at a time.';
COMMENT ON COLUMN holdfast.task_queue.spared IS 'How many of its tries were lost with a process that also lost other runs.';

CREATE TABLE holdfast.agent_outages (
    agent     text        NOT NULL,
    since     timestamptz NOT NULL DEFAULT now(),
    last_at   timestamptz NOT NULL DEFAULT now(),
    error     text        NOT NULL,
    worker_id uuid        NOT NULL,
    CONSTRAINT agent_outages_pkey PRIMARY KEY (agent)
) WITH (fillfactor = 50);

COMMENT ON TABLE holdfast.agent_outages IS 'Agents that are away. A worker writes the row when the agent does not begin a run, and deletes it when the agent begins one.';
COMMENT ON COLUMN holdfast.agent_outages.last_at IS 'The last time that a worker tried. Without a try for a minute the outage is over.';

-- A status may hold its cause for operators, which clients do not see.
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
COMMENT ON COLUMN holdfast.v_runs.error IS 'Why it failed, was rejected or is retried, with the cause that the client does not read.';

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
COMMENT ON COLUMN holdfast.v_queue.away_since IS 'Since when its agent has not begun this run: it is away or too busy; null otherwise, and for tasks behind it.';

CREATE VIEW holdfast.v_outages AS
SELECT o.agent, o.since, o.last_at, o.error,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = o.worker_id) AS worker_name,
       (SELECT count(*) FROM holdfast.task_queue q WHERE q.agent = o.agent AND q.worker_id IS NULL AND q.available_at <= now()) AS waiting
  FROM holdfast.agent_outages o
 WHERE o.last_at > now() - interval '1 minute';

COMMENT ON VIEW holdfast.v_outages IS 'Agents that are away now: workers have tried to start their runs, and no run began.';
COMMENT ON COLUMN holdfast.v_outages.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_outages.since IS 'When a worker first found it away.';
COMMENT ON COLUMN holdfast.v_outages.last_at IS 'When a worker last tried.';
COMMENT ON COLUMN holdfast.v_outages.error IS 'The error of the newest try.';
COMMENT ON COLUMN holdfast.v_outages.worker_name IS 'The name of that worker''s process.';
COMMENT ON COLUMN holdfast.v_outages.waiting IS 'How many tasks wait for it.';

CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.1' $$;

-- +goose StatementBegin
DO $$
BEGIN
    GRANT SELECT ON holdfast.v_outages TO holdfast_reader;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN
    NULL; -- as in 00006
END
$$;
-- +goose StatementEnd

-- +goose Down
SET LOCAL lock_timeout = '5s';
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
            WHEN r.state IN (6, 8) THEN (
                SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
                  FROM json_array_elements(r.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)) END AS error,
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
                    OR e.kind = 4 AND (e.payload -> 'outcome') #>> '{}' IN ('lost', 'retry', 'returned'))
             UNION ALL
            SELECT NULL, NULL, NULL, t.attempt, t.worker_id, t.claimed_at, NULL, NULL
             WHERE t.worker_id IS NOT NULL) x
 ) r;
COMMENT ON COLUMN holdfast.v_runs.outcome IS 'running; the state that it left the task in (completed, failed, canceled, rejected, input-required, auth-required); continued (it asked for input that was already there); or retry (it failed and is retried), returned (its server stopped and gave it back), lost (its process stopped renewing its lease).';
COMMENT ON COLUMN holdfast.v_runs.error IS 'Why it failed, was rejected or is retried.';
DROP VIEW holdfast.v_outages;
DROP VIEW holdfast.v_queue;
CREATE VIEW holdfast.v_queue AS
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
       t.cancel_requested
  FROM holdfast.task_queue q
  JOIN holdfast.tasks t ON t.id = q.id AND t.state < 3;
COMMENT ON VIEW holdfast.v_queue IS 'Tasks that wait for a run or have one. Small, however large the history is.';
COMMENT ON COLUMN holdfast.v_queue.phase IS 'running (a worker has it), waiting (a worker may claim it) or delayed (a retry that is due at available_at).';
COMMENT ON COLUMN holdfast.v_queue.available_at IS 'When it was or will be due.';
COMMENT ON COLUMN holdfast.v_queue.waiting IS 'How long it has been due and unclaimed; null while it runs.';
COMMENT ON COLUMN holdfast.v_queue.worker IS 'The process that runs it.';
COMMENT ON COLUMN holdfast.v_queue.worker_name IS 'The name of that process.';
COMMENT ON COLUMN holdfast.v_queue.started_at IS 'When that process claimed it.';
COMMENT ON COLUMN holdfast.v_queue.turn IS 'Which of the client''s messages its run answers, from 1.';
COMMENT ON COLUMN holdfast.v_queue.tries IS 'How many tries that message has had, including the current run.';
COMMENT ON COLUMN holdfast.v_queue.cancel_requested IS 'A client asked to cancel it.';
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE (SELECT string_agg(format('COMMENT ON COLUMN holdfast.v_queue.%I IS %L', a.attname, col_description('holdfast.v_tasks'::regclass, t.attnum)), ';')
               FROM pg_attribute a JOIN pg_attribute t ON t.attrelid = 'holdfast.v_tasks'::regclass AND t.attname = a.attname
              WHERE a.attrelid = 'holdfast.v_queue'::regclass AND a.attname IN ('task', 'task_id', 'agent', 'tenant', 'owner', 'context_id'));
    GRANT SELECT ON holdfast.v_queue TO holdfast_reader;
EXCEPTION WHEN insufficient_privilege OR undefined_object THEN
    NULL;
END
$$;
-- +goose StatementEnd
CREATE OR REPLACE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.0' $$;
DROP TABLE holdfast.agent_outages;
DROP INDEX holdfast.task_queue_suspects;
ALTER TABLE holdfast.task_queue DROP COLUMN away_since, DROP COLUMN suspect, DROP COLUMN spared;
