-- Views: what operators read. They are a contract (docs/sql.md) and do not change with the tables below them.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- +goose StatementBegin
CREATE FUNCTION holdfast.sql_contract_version() RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT '1.12' $$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.sql_contract_version IS
    'Version of the views as major.minor. A minor version adds columns at the end, views and functions; a major '
    'version may change anything.';

-- A helper of the views: the name of a state that is stored as a smallint.
-- +goose StatementBegin
CREATE FUNCTION holdfast.state_name(state smallint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (ARRAY['submitted', 'working', 'input-required', 'auth-required',
                  'completed', 'failed', 'canceled', 'rejected'])[$1]
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.state_name IS 'The name of a stored state. For the views; not part of the contract.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.uuid_at(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM $1) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.uuid_at IS
    'The lowest task UUID of a moment. task >= holdfast.uuid_at(now() - interval ''1 day'') reads the tasks created '
    'in the last day by index and skips older partitions.';

CREATE VIEW holdfast.v_tasks AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       holdfast.state_name(t.state) AS state,
       t.state < 5 AS open,
       t.created_at,
       t.status_at,
       CASE WHEN t.state >= 5 THEN t.status_at END AS ended_at,
       CASE WHEN t.state >= 5 THEN t.status_at - t.created_at END AS duration,
       (SELECT e.payload -> 'message' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.seq = t.status_seq AND e.kind = 2) AS status_message,
       (SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
          FROM holdfast.task_events e,
               json_array_elements(e.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.seq = t.status_seq AND e.kind = 2) AS status_text,
       t.turns, t.pending, t.runs, t.attempt,
       t.worker_id AS worker,
       t.cancel_requested, t.cancel_requested_at, t.direct, t.dialect, t.client_id, t.last_seq, t.metadata,
       t.held_at,
       CASE WHEN t.state IN (3, 4) THEN t.resume_until END AS resume_until,
       substr(t.traceparent, 4, 32) AS trace_id,
       t.agent_metadata,
       t.retried_as
  FROM holdfast.tasks t;

COMMENT ON VIEW holdfast.v_tasks IS 'Every task in its current state.';
COMMENT ON COLUMN holdfast.v_tasks.state IS
    'submitted, working, input-required, auth-required, completed, failed, canceled or rejected.';
COMMENT ON COLUMN holdfast.v_tasks.open IS
    'The task has not ended. A condition on it reads only the small table of open tasks.';
COMMENT ON COLUMN holdfast.v_tasks.created_at IS
    'When the task was stored. It has no index: select by task and holdfast.uuid_at(…).';
COMMENT ON COLUMN holdfast.v_tasks.status_at IS 'When its newest status was stored, also one that repeats the state.';
COMMENT ON COLUMN holdfast.v_tasks.ended_at IS 'When it ended; null while it is open.';
COMMENT ON COLUMN holdfast.v_tasks.duration IS 'From created_at to ended_at; null while it is open.';
COMMENT ON COLUMN holdfast.v_tasks.status_message IS 'The message of the current status: id, role, parts, metadata.';
COMMENT ON COLUMN holdfast.v_tasks.status_text IS 'Its text: why the task failed, or what a parked task asks for.';
COMMENT ON COLUMN holdfast.v_tasks.turns IS
    'How many turns it has: messages, timers, results of calls and resume URLs begin one.';
COMMENT ON COLUMN holdfast.v_tasks.pending IS 'How many messages wait behind the current turn.';
COMMENT ON COLUMN holdfast.v_tasks.runs IS
    'How often an executor was started, without runs that a stopping server returned.';
COMMENT ON COLUMN holdfast.v_tasks.attempt IS 'Fencing token of the newest attempt; it may be higher than runs.';
COMMENT ON COLUMN holdfast.v_tasks.worker IS 'The process that runs it now.';
COMMENT ON COLUMN holdfast.v_tasks.cancel_requested IS 'A client asked to cancel it.';
COMMENT ON COLUMN holdfast.v_tasks.cancel_requested_at IS 'When a client first asked.';
COMMENT ON COLUMN holdfast.v_tasks.direct IS 'The agent answered with a bare message, and the client saw no task.';
COMMENT ON COLUMN holdfast.v_tasks.dialect IS 'The A2A version of the request that created it.';
COMMENT ON COLUMN holdfast.v_tasks.client_id IS 'task_id if the client chose it (A2A 0.1), else null.';
COMMENT ON COLUMN holdfast.v_tasks.last_seq IS 'How many events its log has.';
COMMENT ON COLUMN holdfast.v_tasks.metadata IS 'Metadata of the request that created it.';
COMMENT ON COLUMN holdfast.v_tasks.held_at IS
    'When an operator put it on hold, which exempts it from retention; else null.';
COMMENT ON COLUMN holdfast.v_tasks.resume_until IS
    'While parked: until when its resume URL is valid; null: it has none.';
COMMENT ON COLUMN holdfast.v_tasks.trace_id IS 'The trace of the request that created it; null without tracing.';
COMMENT ON COLUMN holdfast.v_tasks.agent_metadata IS
    'Metadata of its statuses, merged by key. Clients see it in the metadata of the task.';
COMMENT ON COLUMN holdfast.v_tasks.retried_as IS 'The task that an operator''s newest retry made of it; null: none.';

CREATE VIEW holdfast.v_events AS
SELECT e.task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       e.seq,
       (ARRAY['message', 'status', 'artifact', 'run'])[e.kind] AS kind,
       e.created_at AS at,
       e.attempt,
       holdfast.state_name(e.state) AS state,
       e.artifact_id, e.append, e.last,
       e.payload
  FROM holdfast.task_events e
  JOIN holdfast.tasks t ON t.id = e.task;

COMMENT ON VIEW holdfast.v_events IS 'The log, from which the other views are derived.';
COMMENT ON COLUMN holdfast.v_events.seq IS
    'Place in the log, from 1 without a gap. The id of the event on a stream begins with it.';
COMMENT ON COLUMN holdfast.v_events.kind IS
    'message (of the client), status, artifact (a chunk) or run (a note about an attempt, a cancel or a resume, '
    'which clients do not see).';
COMMENT ON COLUMN holdfast.v_events.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_events.attempt IS 'The attempt that wrote it; 0 for a client.';
COMMENT ON COLUMN holdfast.v_events.state IS 'Status: the state that it sets or repeats.';
COMMENT ON COLUMN holdfast.v_events.artifact_id IS 'Artifact: the one that the chunk belongs to.';
COMMENT ON COLUMN holdfast.v_events.append IS 'Artifact: the parts continue it. If false, they start or replace it.';
COMMENT ON COLUMN holdfast.v_events.last IS 'Artifact: this chunk completes it.';
COMMENT ON COLUMN holdfast.v_events.payload IS 'Content as stored. Its members (internal/store/doc.go) may change.';

CREATE VIEW holdfast.v_transitions AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       s.seq,
       holdfast.state_name(s.state) AS state,
       holdfast.state_name(s.before) AS previous_state,
       holdfast.state_name(s.after) AS next_state,
       s.at AS entered_at,
       s.until AS left_at,
       CASE WHEN s.state < 5 THEN coalesce(s.until, now()) - s.at END AS duration,
       s.attempt,
       s.payload -> 'message' AS message,
       (SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
          FROM json_array_elements(s.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)) AS text
  FROM holdfast.tasks t
 CROSS JOIN LATERAL (
    SELECT c.*, lead(c.state) OVER w AS after, lead(c.at) OVER w AS until
      FROM (SELECT e.seq, coalesce(e.state, 1::smallint) AS state, e.created_at AS at, e.attempt,
                   CASE WHEN e.kind = 2 THEN e.payload END AS payload,
                   lag(coalesce(e.state, 1::smallint)) OVER (ORDER BY e.seq) AS before
              FROM holdfast.task_events e
             WHERE e.task = t.id AND (e.kind = 2 OR e.seq = 1)) c
     WHERE c.before IS DISTINCT FROM c.state
    WINDOW w AS (ORDER BY c.seq)
 ) s;

COMMENT ON VIEW holdfast.v_transitions IS
    'The states of each task, in order. Progress, which repeats the state, has no row.';
COMMENT ON COLUMN holdfast.v_transitions.seq IS 'The event that set the state.';
COMMENT ON COLUMN holdfast.v_transitions.state IS 'The state, as in v_tasks.';
COMMENT ON COLUMN holdfast.v_transitions.previous_state IS 'The state before; null for the first one.';
COMMENT ON COLUMN holdfast.v_transitions.next_state IS 'The state after; null for the current one.';
COMMENT ON COLUMN holdfast.v_transitions.entered_at IS 'When the task entered the state.';
COMMENT ON COLUMN holdfast.v_transitions.left_at IS 'When the task left the state; null for the current one.';
COMMENT ON COLUMN holdfast.v_transitions.duration IS
    'Time in the state, up to now for the current one; null for a terminal state.';
COMMENT ON COLUMN holdfast.v_transitions.attempt IS 'The attempt that set the state; 0 for a client.';
COMMENT ON COLUMN holdfast.v_transitions.message IS 'The message of that event: id, role, parts, metadata.';
COMMENT ON COLUMN holdfast.v_transitions.text IS 'The text of that message.';

CREATE VIEW holdfast.v_history AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       m.position,
       m.turn,
       m.seq,
       m.at,
       (m.message -> 'role') #>> '{}' AS role,
       (SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
          FROM json_array_elements(m.message -> 'parts') WITH ORDINALITY p(value, n)) AS text,
       m.message -> 'parts' AS parts,
       (m.message -> 'id') #>> '{}' AS message_id,
       m.message -> 'metadata' AS metadata,
       holdfast.state_name(m.state) AS state,
       m.kind = 2 AND m.seq = t.status_seq AS in_status,
       m.attempt
  FROM holdfast.tasks t
 CROSS JOIN LATERAL (
    SELECT e.seq, e.kind, e.state, e.attempt, e.created_at AS at,
           CASE e.kind WHEN 1 THEN e.payload ELSE e.payload -> 'message' END AS message,
           row_number() OVER (ORDER BY e.seq) AS position,
           count(*) FILTER (WHERE e.kind = 1) OVER (ORDER BY e.seq) AS turn
      FROM holdfast.task_events e
     WHERE e.task = t.id AND (e.kind = 1 OR e.kind = 2 AND e.payload -> 'message' IS NOT NULL)
 ) m;

COMMENT ON VIEW holdfast.v_history IS 'The messages of client and agent. The results of the agent are in v_artifacts.';
COMMENT ON COLUMN holdfast.v_history.position IS 'Place in the conversation, from 1.';
COMMENT ON COLUMN holdfast.v_history.turn IS 'How many messages the client had sent by then.';
COMMENT ON COLUMN holdfast.v_history.seq IS 'The event that holds it.';
COMMENT ON COLUMN holdfast.v_history.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_history.role IS 'user or agent.';
COMMENT ON COLUMN holdfast.v_history.text IS 'Its text parts on lines; null if it has none.';
COMMENT ON COLUMN holdfast.v_history.parts IS
    'All parts: text, raw (base64), url or data, with filename, media_type and metadata.';
COMMENT ON COLUMN holdfast.v_history.message_id IS 'The id that its sender gave it.';
COMMENT ON COLUMN holdfast.v_history.metadata IS 'Its metadata, unchanged.';
COMMENT ON COLUMN holdfast.v_history.state IS 'The state that it was sent with; null for a client.';
COMMENT ON COLUMN holdfast.v_history.in_status IS
    'It is the message of the current status, which A2A does not show in the history.';
COMMENT ON COLUMN holdfast.v_history.attempt IS 'The attempt that sent it; 0 for a client.';

-- The fold of internal/task: a chunk that does not append replaces the artifact, and only its place stays. What is
-- computed from content is a subquery of its own, so that it costs nothing unless it is asked for.
CREATE VIEW holdfast.v_artifacts AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       a.artifact_id,
       a.index,
       (SELECT (e.payload -> 'name') #>> '{}' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'name' IS NOT NULL
         ORDER BY e.seq DESC LIMIT 1) AS name,
       (SELECT (e.payload -> 'description') #>> '{}' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'description' IS NOT NULL
         ORDER BY e.seq DESC LIMIT 1) AS description,
       (SELECT string_agg((p.value -> 'text') #>> '{}', '' ORDER BY e.seq, p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base) AS text,
       (SELECT json_agg(p.value ORDER BY e.seq, p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base) AS parts,
       (SELECT CASE WHEN count(*) > 1 THEN holdfast.merged(VARIADIC array_agg(e.payload -> 'metadata' ORDER BY e.seq))
                    ELSE (array_agg(e.payload -> 'metadata'))[1] END
          FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'metadata' IS NOT NULL) AS metadata,
       (SELECT json_agg(x.uri ORDER BY x.place)
          FROM (SELECT u.uri, min(ARRAY[e.seq, u.n]) AS place
                  FROM holdfast.task_events e,
                       json_array_elements_text(e.payload -> 'extensions') WITH ORDINALITY u(uri, n)
                 WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
                 GROUP BY u.uri) x) AS extensions,
       a.chunks,
       (SELECT sum(octet_length(e.payload::text)) FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base)::bigint AS bytes,
       a.complete,
       a.first_seq, a.last_seq, a.first_at, a.last_at
  FROM holdfast.tasks t
 CROSS JOIN LATERAL (
    SELECT e.artifact_id, e.base,
           row_number() OVER (ORDER BY min(e.seq)) - 1 AS index,
           count(*) FILTER (WHERE e.seq >= e.base) AS chunks,
           bool_or(e.last) FILTER (WHERE e.seq >= e.base) AS complete,
           min(e.seq) AS first_seq, max(e.seq) AS last_seq,
           min(e.created_at) AS first_at, max(e.created_at) AS last_at
      FROM (SELECT x.artifact_id, x.seq, x.last, x.created_at,
                   coalesce(max(x.seq) FILTER (WHERE NOT x.append) OVER (PARTITION BY x.artifact_id), 0) AS base
              FROM holdfast.task_events x
             WHERE x.task = t.id AND x.kind = 3) e
     GROUP BY e.artifact_id, e.base
 ) a;

COMMENT ON VIEW holdfast.v_artifacts IS 'The artifacts of each task, as clients see them.';
COMMENT ON COLUMN holdfast.v_artifacts.artifact_id IS 'The id that the agent gave it.';
COMMENT ON COLUMN holdfast.v_artifacts.index IS 'Place by first appearance, from 0.';
COMMENT ON COLUMN holdfast.v_artifacts.name IS 'Its name, if any.';
COMMENT ON COLUMN holdfast.v_artifacts.description IS 'Its description, if any.';
COMMENT ON COLUMN holdfast.v_artifacts.text IS 'Its text parts joined; null if it has none.';
COMMENT ON COLUMN holdfast.v_artifacts.parts IS 'All parts, as in v_history.';
COMMENT ON COLUMN holdfast.v_artifacts.metadata IS 'Metadata of its chunks, merged by key.';
COMMENT ON COLUMN holdfast.v_artifacts.extensions IS 'The extensions that it names.';
COMMENT ON COLUMN holdfast.v_artifacts.chunks IS 'How many chunks it has, without replaced ones.';
COMMENT ON COLUMN holdfast.v_artifacts.bytes IS 'Their size as JSON.';
COMMENT ON COLUMN holdfast.v_artifacts.complete IS 'The agent marked it as complete.';
COMMENT ON COLUMN holdfast.v_artifacts.first_seq IS 'The event that began it.';
COMMENT ON COLUMN holdfast.v_artifacts.last_seq IS 'Its newest event.';
COMMENT ON COLUMN holdfast.v_artifacts.first_at IS 'When the first chunk was stored, even if it was replaced later.';
COMMENT ON COLUMN holdfast.v_artifacts.last_at IS 'When the newest chunk was stored.';

-- A status may hold its cause for operators, which clients do not see.
CREATE VIEW holdfast.v_runs AS
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
                  FROM json_array_elements(r.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)))
            END AS error,
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
                    OR e.kind = 4 AND (e.payload -> 'outcome') #>> '{}'
                       IN ('lost', 'retry', 'returned', 'away', 'waits', 'calls'))
             UNION ALL
            SELECT NULL, NULL, NULL, t.attempt, t.worker_id, t.claimed_at, NULL, NULL
             WHERE t.worker_id IS NOT NULL) x
 ) r;

COMMENT ON VIEW holdfast.v_runs IS 'Every run: which process had it, how long, and how it ended.';
COMMENT ON COLUMN holdfast.v_runs.run IS 'Number of the run within its task, from 1.';
COMMENT ON COLUMN holdfast.v_runs.attempt IS 'Its fencing token, as in v_events and the logs.';
COMMENT ON COLUMN holdfast.v_runs.turn IS 'Which turn of the task, from 1. Several runs of a turn are retries.';
COMMENT ON COLUMN holdfast.v_runs.worker IS 'The process that ran it.';
COMMENT ON COLUMN holdfast.v_runs.worker_name IS 'The name of that process, even after its end.';
COMMENT ON COLUMN holdfast.v_runs.started_at IS 'When the process claimed it.';
COMMENT ON COLUMN holdfast.v_runs.ended_at IS
    'When it ended; for a lost run, when that was noticed; null while it runs.';
COMMENT ON COLUMN holdfast.v_runs.duration IS 'From started_at to ended_at, or to now.';
COMMENT ON COLUMN holdfast.v_runs.outcome IS
    'running; the state that it left the task in; continued (it asked for input that was there); waits (for a '
    'timer); calls (for results of calls); retry (it failed); away (the agent did not begin it); returned (its '
    'server stopped); lost (its lease expired).';
COMMENT ON COLUMN holdfast.v_runs.error IS
    'Why it failed, was rejected or is retried, with the cause that clients do not see.';
COMMENT ON COLUMN holdfast.v_runs.seq IS 'The event that ended it; null while it runs.';

CREATE VIEW holdfast.v_queue AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       q.agent, t.tenant, t.owner, t.context_id,
       CASE WHEN q.worker_id IS NOT NULL THEN 'running'
            WHEN q.wakes_at = 'infinity' THEN 'calls'
            WHEN q.wakes_at IS NOT NULL THEN 'timer'
            WHEN q.available_at > now() THEN 'delayed'
            ELSE 'waiting' END AS phase,
       q.available_at,
       CASE WHEN q.worker_id IS NULL AND q.wakes_at IS NULL
            THEN greatest(now() - q.available_at, interval '0') END AS waiting,
       q.worker_id AS worker,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = q.worker_id) AS worker_name,
       CASE WHEN q.worker_id IS NOT NULL THEN t.claimed_at END AS started_at,
       q.turn,
       q.tries,
       t.cancel_requested,
       q.away_since
  FROM holdfast.task_queue q
  JOIN holdfast.tasks t ON t.id = q.id AND t.state < 3;

COMMENT ON VIEW holdfast.v_queue IS 'Tasks that wait for a run or have one.';
COMMENT ON COLUMN holdfast.v_queue.phase IS
    'running, waiting (a worker may claim it, or its agent is away), delayed (a retry, due at available_at), timer '
    '(until available_at) or calls (for tasks that it has called: see v_lineage).';
COMMENT ON COLUMN holdfast.v_queue.available_at IS 'When it was or will be due.';
COMMENT ON COLUMN holdfast.v_queue.waiting IS 'How long it has been due and unclaimed; null while it or a timer runs.';
COMMENT ON COLUMN holdfast.v_queue.worker IS 'The process that runs it.';
COMMENT ON COLUMN holdfast.v_queue.worker_name IS 'The name of that process.';
COMMENT ON COLUMN holdfast.v_queue.started_at IS 'When that process claimed it.';
COMMENT ON COLUMN holdfast.v_queue.turn IS 'Which turn of the task, from 1.';
COMMENT ON COLUMN holdfast.v_queue.tries IS 'How many tries that turn has had, with the current run.';
COMMENT ON COLUMN holdfast.v_queue.cancel_requested IS 'A client asked to cancel it.';
COMMENT ON COLUMN holdfast.v_queue.away_since IS
    'Since when its agent, away or too busy, has not begun this run; null otherwise, and for tasks behind it.';

CREATE VIEW holdfast.v_lineage AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       holdfast.state_name(t.state) AS state,
       c.parent,
       c.root,
       cardinality(c.callers) AS depth,
       c.call_id AS call,
       c.started_at AS called_at
  FROM holdfast.task_calls c
  JOIN holdfast.tasks t ON t.id = c.child
 WHERE NOT c.answers AND c.started_at IS NOT NULL;

COMMENT ON VIEW holdfast.v_lineage IS 'The tasks that other tasks have called, with their callers.';
COMMENT ON COLUMN holdfast.v_lineage.state IS 'As in v_tasks.';
COMMENT ON COLUMN holdfast.v_lineage.parent IS 'The task that has called it.';
COMMENT ON COLUMN holdfast.v_lineage.root IS 'The task at the beginning of the calls, which a client created.';
COMMENT ON COLUMN holdfast.v_lineage.depth IS 'How many calls lead from the root to it.';
COMMENT ON COLUMN holdfast.v_lineage.call IS 'The id that its caller gave the call.';
COMMENT ON COLUMN holdfast.v_lineage.called_at IS 'When the call created it.';

CREATE VIEW holdfast.v_states AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       'task'::text AS scope,
       s.version,
       s.value,
       octet_length(s.value::text) AS bytes,
       s.updated_at
  FROM holdfast.task_states s
  JOIN holdfast.tasks t ON t.id = s.task
 WHERE s.value IS NOT NULL
 UNION ALL
SELECT s.task,
       coalesce((SELECT t.client_id FROM holdfast.tasks t WHERE t.id = s.task), s.task::text) AS task_id,
       s.agent, s.tenant, s.owner, s.context_id,
       'context'::text AS scope,
       s.version,
       s.value,
       octet_length(s.value::text) AS bytes,
       s.updated_at
  FROM holdfast.context_states s
 WHERE s.value IS NOT NULL;

COMMENT ON VIEW holdfast.v_states IS 'The values that agents stored for a task or a context.';
COMMENT ON COLUMN holdfast.v_states.scope IS
    'task, or context: that of this owner and agent, and task is the one that wrote it last.';
COMMENT ON COLUMN holdfast.v_states.version IS 'How often it was written.';
COMMENT ON COLUMN holdfast.v_states.value IS 'The value, as the agent wrote it.';
COMMENT ON COLUMN holdfast.v_states.bytes IS 'Size of the value.';
COMMENT ON COLUMN holdfast.v_states.updated_at IS 'When it was last written.';

CREATE VIEW holdfast.v_steps AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       e.seq,
       e.attempt,
       (e.payload -> 'checkpoint' -> 'kind') #>> '{}' AS kind,
       (e.payload -> 'checkpoint' -> 'name') #>> '{}' AS name,
       ((e.payload -> 'checkpoint' -> 'nth') #>> '{}')::integer AS nth,
       e.created_at AS ended_at,
       make_interval(secs => ((e.payload -> 'checkpoint' -> 'took') #>> '{}')::double precision) AS took,
       coalesce(((e.payload -> 'checkpoint' -> 'tries') #>> '{}')::integer, 1) AS tries,
       e.payload -> 'checkpoint' -> 'data' AS data,
       coalesce((e.payload -> 'checkpoint' -> 'error' -> 'message') #>> '{}',
                (e.payload -> 'checkpoint' -> 'error' -> 'type') #>> '{}') AS error
  FROM holdfast.tasks t
  JOIN holdfast.task_events e ON e.task = t.id AND e.kind = 4 AND (e.payload -> 'outcome') #>> '{}' = 'record';

COMMENT ON VIEW holdfast.v_steps IS 'The records of durable runs.';
COMMENT ON COLUMN holdfast.v_steps.seq IS 'Its event.';
COMMENT ON COLUMN holdfast.v_steps.attempt IS 'The run that recorded it, as in v_runs.';
COMMENT ON COLUMN holdfast.v_steps.kind IS
    'step; ask or auth (the answer); call (its result); sleep (when it was over); message (that the task began '
    'with); value (the time, a random number and the like); wait (the run ended: data says what it waits for).';
COMMENT ON COLUMN holdfast.v_steps.name IS 'The name that the program gives it.';
COMMENT ON COLUMN holdfast.v_steps.nth IS 'Which one of this name, from 1.';
COMMENT ON COLUMN holdfast.v_steps.ended_at IS 'When it was recorded.';
COMMENT ON COLUMN holdfast.v_steps.took IS 'How long it took, with all its tries; null if the agent did not say.';
COMMENT ON COLUMN holdfast.v_steps.tries IS 'How often it was tried.';
COMMENT ON COLUMN holdfast.v_steps.data IS 'The result; null: it raised an error.';
COMMENT ON COLUMN holdfast.v_steps.error IS 'The error that it raised; null: it did not.';

CREATE VIEW holdfast.v_cancels AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       n.reason,
       CASE WHEN n.delivered THEN 'delivered' WHEN n.ended_at IS NOT NULL THEN 'failed' ELSE 'pending' END AS phase,
       n.requested_at,
       n.tries,
       CASE WHEN n.ended_at IS NULL THEN n.due_at END AS due_at,
       n.ended_at,
       nullif(n.error, '') AS error,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = n.worker_id) AS worker_name
  FROM holdfast.cancel_notices n
  JOIN holdfast.tasks t ON t.id = n.task;

COMMENT ON VIEW holdfast.v_cancels IS 'Notices of cancels to agents that worked on the tasks.';
COMMENT ON COLUMN holdfast.v_cancels.reason IS 'canceled, or expired (it was parked for too long).';
COMMENT ON COLUMN holdfast.v_cancels.phase IS
    'pending, delivered (the agent accepted it) or failed (it refused, or unreachable_for is over).';
COMMENT ON COLUMN holdfast.v_cancels.requested_at IS 'When the cancel was requested.';
COMMENT ON COLUMN holdfast.v_cancels.tries IS 'How many tries it has had.';
COMMENT ON COLUMN holdfast.v_cancels.due_at IS 'When the next try is due; null once it is delivered or failed.';
COMMENT ON COLUMN holdfast.v_cancels.ended_at IS 'When it was delivered or failed.';
COMMENT ON COLUMN holdfast.v_cancels.error IS 'The error of the newest try that failed.';
COMMENT ON COLUMN holdfast.v_cancels.worker_name IS 'The name of the process that made the newest try.';

CREATE VIEW holdfast.v_push AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       c.config_id,
       c.url,
       c.dialect,
       c.created_at,
       k.next_seq - 1 AS delivered_seq,
       greatest(k.due_seq - k.next_seq + 1, 0) AS behind,
       k.due_at,
       k.attempts AS failures,
       k.last_error,
       a.started_at AS last_attempt_at,
       a.status AS last_status,
       k.host,
       k.artifacts,
       k.due_since,
       k.failing_since,
       k.disabled_at,
       k.disabled_for,
       k.claim IS NOT NULL AND k.locked_until >= now() AS in_flight,
       a.class AS last_class
  FROM holdfast.push_configs c
  JOIN holdfast.tasks t ON t.id = c.task
  JOIN holdfast.push_cursors k ON k.task = c.task AND k.config_id = c.config_id
  LEFT JOIN LATERAL (
    SELECT x.started_at, x.status, x.class FROM holdfast.push_attempts x
     WHERE x.task = c.task AND x.config_id = c.config_id
     ORDER BY x.id DESC LIMIT 1
  ) a ON true;

COMMENT ON VIEW holdfast.v_push IS 'The webhooks, and how far each has been delivered.';
COMMENT ON COLUMN holdfast.v_push.config_id IS 'The id of the webhook within its task.';
COMMENT ON COLUMN holdfast.v_push.url IS 'The URL. Tokens and credentials are not shown.';
COMMENT ON COLUMN holdfast.v_push.dialect IS 'The A2A version of its deliveries.';
COMMENT ON COLUMN holdfast.v_push.created_at IS 'When it was set.';
COMMENT ON COLUMN holdfast.v_push.delivered_seq IS 'The newest event that was delivered or skipped; 0 for none.';
COMMENT ON COLUMN holdfast.v_push.behind IS 'How many events of the log follow it, up to the newest one to deliver.';
COMMENT ON COLUMN holdfast.v_push.due_at IS
    'When the next attempt is due, or the one in flight counts as lost; null: nothing to deliver, or disabled.';
COMMENT ON COLUMN holdfast.v_push.failures IS 'Failed attempts since the last success.';
COMMENT ON COLUMN holdfast.v_push.last_error IS 'The reason of the last failure.';
COMMENT ON COLUMN holdfast.v_push.last_attempt_at IS 'When the last attempt was made.';
COMMENT ON COLUMN holdfast.v_push.last_status IS 'The HTTP status of its answer; null: no answer.';
COMMENT ON COLUMN holdfast.v_push.host IS 'Host and port of the URL.';
COMMENT ON COLUMN holdfast.v_push.artifacts IS 'Artifact events are delivered, too.';
COMMENT ON COLUMN holdfast.v_push.due_since IS 'Since when there has been something to deliver; else null.';
COMMENT ON COLUMN holdfast.v_push.failing_since IS 'When the first failure since the last success was recorded.';
COMMENT ON COLUMN holdfast.v_push.disabled_at IS 'When it was disabled; else null.';
COMMENT ON COLUMN holdfast.v_push.disabled_for IS 'Why it was disabled.';
COMMENT ON COLUMN holdfast.v_push.in_flight IS 'A process is delivering now.';
COMMENT ON COLUMN holdfast.v_push.last_class IS 'The outcome of that attempt: a class of holdfast_push_attempts_total.';

CREATE VIEW holdfast.v_push_attempts AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       a.config_id,
       a.id AS attempt_id,
       a.started_at,
       a.from_seq,
       a.to_seq,
       a.delivery_id,
       a.attempt,
       a.class,
       a.status,
       a.error,
       a.duration,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = a.worker_id) AS worker_name,
       a.host
  FROM holdfast.push_attempts a
  JOIN holdfast.tasks t ON t.id = a.task;

COMMENT ON VIEW holdfast.v_push_attempts IS 'The attempts to deliver, for as long as retention keeps them.';
COMMENT ON COLUMN holdfast.v_push_attempts.config_id IS 'The id of the webhook within its task.';
COMMENT ON COLUMN holdfast.v_push_attempts.attempt_id IS 'A number that grows over all tasks.';
COMMENT ON COLUMN holdfast.v_push_attempts.started_at IS 'When the request was made.';
COMMENT ON COLUMN holdfast.v_push_attempts.from_seq IS 'The first event that it covers.';
COMMENT ON COLUMN holdfast.v_push_attempts.to_seq IS 'The last event that it covers.';
COMMENT ON COLUMN holdfast.v_push_attempts.delivery_id IS
    'The jti that the receiver got, equal for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.v_push_attempts.attempt IS 'Number of the attempt within its delivery, from 1.';
COMMENT ON COLUMN holdfast.v_push_attempts.class IS 'The outcome: a class of holdfast_push_attempts_total.';
COMMENT ON COLUMN holdfast.v_push_attempts.status IS 'The HTTP status; null: no answer.';
COMMENT ON COLUMN holdfast.v_push_attempts.error IS 'Error message; null after a success.';
COMMENT ON COLUMN holdfast.v_push_attempts.duration IS 'How long the attempt took.';
COMMENT ON COLUMN holdfast.v_push_attempts.worker_name IS 'The process that made it.';
COMMENT ON COLUMN holdfast.v_push_attempts.host IS
    'Host and port of the URL, also of a deleted webhook; null: an older server made the attempt.';

CREATE VIEW holdfast.v_keys AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, k.tenant, k.owner, t.context_id,
       k.key,
       k.created_at AS used_at
  FROM holdfast.idempotency_keys k
  JOIN holdfast.tasks t ON t.id = k.task
 -- Near midnight a key has two rows.
 WHERE k.day = ((k.created_at - interval '5 minutes') AT TIME ZONE 'UTC')::date;

COMMENT ON VIEW holdfast.v_keys IS 'The Idempotency-Key headers of requests, and the task of each.';
COMMENT ON COLUMN holdfast.v_keys.key IS 'The key. An index has tenant, owner and key.';
COMMENT ON COLUMN holdfast.v_keys.used_at IS 'When it was first used.';

CREATE VIEW holdfast.v_usage AS
SELECT u.task, u.task_id, u.agent, u.tenant, u.owner, u.context_id,
       u.seq, u.at, u.attempt,
       CASE WHEN json_typeof(u.usage -> 'inputTokens') = 'number'
            THEN (u.usage ->> 'inputTokens')::numeric END AS input_tokens,
       CASE WHEN json_typeof(u.usage -> 'outputTokens') = 'number'
            THEN (u.usage ->> 'outputTokens')::numeric END AS output_tokens,
       CASE WHEN json_typeof(u.usage -> 'totalTokens') = 'number'
            THEN (u.usage ->> 'totalTokens')::numeric END AS total_tokens,
       u.usage
  FROM (SELECT e.task, coalesce(t.client_id, t.id::text) AS task_id, t.agent, t.tenant, t.owner, t.context_id,
               e.seq, e.created_at AS at, e.attempt,
               CASE e.kind WHEN 2 THEN e.payload -> 'message' -> 'metadata' -> 'usage'
                    ELSE coalesce(e.payload -> 'event_metadata' -> 'usage', e.payload -> 'metadata' -> 'usage')
                    END AS usage
          FROM holdfast.task_events e
          JOIN holdfast.tasks t ON t.id = e.task
         WHERE e.kind IN (2, 3) AND e.attempt > 0) u
 WHERE json_typeof(u.usage) = 'object';

COMMENT ON VIEW holdfast.v_usage IS 'The object usage that agents report in metadata. Retried attempts count, too.';
COMMENT ON COLUMN holdfast.v_usage.seq IS 'The event that reports it.';
COMMENT ON COLUMN holdfast.v_usage.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_usage.attempt IS 'The attempt that wrote it.';
COMMENT ON COLUMN holdfast.v_usage.input_tokens IS 'usage.inputTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.output_tokens IS 'usage.outputTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.total_tokens IS 'usage.totalTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.usage IS 'The whole object, as the agent wrote it.';

-- What keeps runs of an agent from beginning. For the views; not part of the contract.
CREATE VIEW holdfast.agent_supply AS
SELECT n.agent, n.remote, n.tries, n.slots,
       CASE WHEN n.remote THEN w.ready END AS workers,
       CASE WHEN n.remote AND w.ready = 0 AND w.retired > 0 THEN 'draining'
            WHEN n.remote AND w.ready = 0 THEN 'no worker'
            WHEN n.remote THEN NULL
            WHEN n.slots IS NULL THEN 'no worker'
            WHEN o.agent IS NOT NULL THEN 'away' END AS problem,
       CASE WHEN n.remote AND w.ready = 0 AND w.retired > 0 THEN 'all its workers are retired'
            WHEN n.remote AND w.ready = 0 THEN 'none of its workers is connected'
            WHEN n.remote THEN NULL
            WHEN n.slots IS NULL THEN 'no process with the role worker has it'
            ELSE left(split_part(o.error, E'\n', 1), 300) END AS reason,
       CASE WHEN NOT n.remote OR w.ready = 0 THEN o.since END AS since
  FROM (SELECT a.agent,
               bool_or(a.facts -> 'slots' IS NULL) AS remote,
               max((a.facts ->> 'tries')::integer) AS tries,
               sum((a.facts ->> 'slots')::integer)
                   FILTER (WHERE 'worker' = ANY(string_to_array(p.roles, ',')))::integer AS slots
          FROM holdfast.workers p
         CROSS JOIN LATERAL jsonb_each(p.agents) AS a (agent, facts)
         WHERE p.lease_until >= now()
         GROUP BY a.agent) n
  LEFT JOIN holdfast.agent_outages o ON o.agent = n.agent AND o.last_at > now() - interval '1 minute'
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE r.retired_at IS NULL) AS ready,
           count(*) FILTER (WHERE r.retired_at IS NOT NULL) AS retired
      FROM holdfast.remote_workers r
     WHERE n.remote AND n.agent = ANY(r.agents) AND r.left_at IS NULL AND r.last_seen > now() - interval '90 seconds'
 ) w;

-- +goose StatementBegin
CREATE FUNCTION holdfast.agent_verdict(completed bigint, failed bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN $2 > 0 AND $1 = 0 OR $2 >= 3 AND $2 * 5 >= $1 + $2 THEN 'failing'
                WHEN $1 > 0 THEN 'healthy'
                ELSE 'unknown' END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.agent_verdict IS
    'What the newest tasks of an agent that can begin runs say about it. For the views; not part of the contract.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.agent_evidence(completed bigint, failed bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE holdfast.agent_verdict($1, $2)
                WHEN 'unknown' THEN 'no task of it has completed yet'
                WHEN 'failing' THEN format('%s of its newest %s tasks failed', $2, $1 + $2) END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.agent_evidence IS
    'Why agent_verdict says so; null: healthy. For the views; not part of the contract.';

-- The newest tasks are found by index tasks_ended_at.
CREATE VIEW holdfast.v_agents AS
SELECT s.agent,
       coalesce(s.problem, holdfast.agent_verdict(e.completed, e.failed)) AS health,
       s.since,
       CASE WHEN s.problem IS NULL THEN holdfast.agent_evidence(e.completed, e.failed) ELSE s.reason END AS reason,
       s.workers,
       s.slots AS concurrency,
       e.completed,
       e.failed
  FROM holdfast.agent_supply s
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE x.state = 5) AS completed, count(*) FILTER (WHERE x.state = 6) AS failed
      FROM (SELECT t.state FROM holdfast.tasks t
             WHERE t.state >= 5 AND t.agent COLLATE "C" = s.agent
             ORDER BY t.status_at DESC, t.id DESC LIMIT 20) x
 ) e;

COMMENT ON VIEW holdfast.v_agents IS
    'The agents of the configurations of live server processes, and whether their runs begin and end well.';
COMMENT ON COLUMN holdfast.v_agents.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_agents.health IS
    'no worker (nothing can run it now), draining (all its workers are retired), away (its runs do not begin), failing '
    '(at least 3 and a fifth of its newest 20 tasks failed, or all of them), healthy (a task has completed) or '
    'unknown (none has).';
COMMENT ON COLUMN holdfast.v_agents.since IS 'Since when it is away or without a worker; null: not known.';
COMMENT ON COLUMN holdfast.v_agents.reason IS 'Why it is not healthy; null: it is.';
COMMENT ON COLUMN holdfast.v_agents.workers IS
    'How many workers are connected that may claim its runs; null: server processes run it.';
COMMENT ON COLUMN holdfast.v_agents.concurrency IS
    'How many runs all server processes start at once; null: workers run it, or no process with the role worker.';
COMMENT ON COLUMN holdfast.v_agents.completed IS 'How many of its newest 20 ended tasks have completed.';
COMMENT ON COLUMN holdfast.v_agents.failed IS 'How many of its newest 20 ended tasks have failed.';

-- The first row whose condition holds is the line: PostgreSQL computes the rows in their order and stops there. f has
-- expressions, which cost nothing in rows that do not use them.
CREATE VIEW holdfast.v_status AS
SELECT t.id AS task,
       coalesce(t.client_id, t.id::text) AS task_id,
       t.agent, t.tenant, t.owner, t.context_id,
       s.situation, s.text, s.since, s.next, s.next_at, s.turn_of
  FROM holdfast.tasks t
  LEFT JOIN holdfast.task_queue q ON q.id = t.id AND t.state < 3
  LEFT JOIN LATERAL (
    SELECT x.agent, x.remote, x.tries, x.slots, x.problem, x.reason, x.since
      FROM holdfast.agent_supply x
     WHERE x.agent = q.agent AND q.id IS NOT NULL -- otherwise it is not read
    OFFSET 0
  ) a ON true
 CROSS JOIN LATERAL (
    SELECT coalesce((SELECT p.name FROM holdfast.processes p WHERE p.id = q.worker_id), q.worker_id::text) AS worker,
           concat_ws(' of ', 'try ' || q.tries, a.tries) AS try,
           CASE WHEN q.lease_until IS NOT NULL THEN q.lease_until >= now()
                ELSE EXISTS (SELECT FROM holdfast.workers w WHERE w.id = q.worker_id AND w.lease_until >= now())
                END AS alive,
           greatest(q.available_at, q.wakes_at) AS due_since,
           (SELECT e.created_at FROM holdfast.task_events e
             WHERE e.task = t.id AND e.seq = q.input_seq AND e.kind = 4) AS waits_since,
           (SELECT left(split_part(coalesce((e.payload -> 'cause') #>> '{}', (
                    SELECT string_agg((p.value -> 'text') #>> '{}', E'\n' ORDER BY p.n)
                      FROM json_array_elements(e.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n))),
                    E'\n', 1), 300)
              FROM holdfast.task_events e
             WHERE e.task = t.id AND e.seq = t.status_seq AND e.kind = 2) AS reason,
           concat_ws(': ', 'Agent ' || t.agent || ' is away', a.reason) AS away,
           CASE WHEN t.retried_as IS NOT NULL THEN 'Retried as ' || t.retried_as
                WHEN t.held_at IS NOT NULL THEN 'Kept: an operator holds it' END AS kept
 ) f
 CROSS JOIN LATERAL (
    SELECT 'completed'::text AS situation, 'Completed'::text AS text, t.status_at::timestamptz AS since,
           f.kept::text AS next, NULL::timestamptz AS next_at, 'nobody'::text AS turn_of
     WHERE t.state = 5
     UNION ALL
    SELECT 'canceled', 'Canceled', t.status_at, f.kept, NULL, 'nobody'
     WHERE t.state = 7
     UNION ALL
    SELECT 'failed', concat_ws(': ', 'Failed', f.reason), t.status_at, f.kept, NULL, 'nobody'
     WHERE t.state = 6
     UNION ALL
    SELECT 'rejected', concat_ws(': ', 'Rejected', f.reason), t.status_at, f.kept, NULL, 'nobody'
     WHERE t.state = 8
     UNION ALL
    SELECT 'asks', 'Waits for the client''s answer or a request to its resume URL', t.status_at,
           'The resume URL expires', t.resume_until, 'client'
     WHERE t.state = 3 AND t.resume_until > now()
     UNION ALL
    SELECT 'asks', 'Waits for the client''s answer', t.status_at, NULL, NULL, 'client'
     WHERE t.state = 3
     UNION ALL
    SELECT 'authenticates', 'Waits until the client has authenticated', t.status_at, NULL, NULL, 'client'
     WHERE t.state = 4
     UNION ALL
    SELECT 'not queued', 'Is not in the queue: no worker will run it', t.status_at, 'See holdfast doctor', NULL,
           'operator'
     WHERE q.id IS NULL
     UNION ALL
    SELECT 'lost', f.worker || ' is gone with the run', coalesce(q.lease_until, t.claimed_at),
           'Another worker takes it over', NULL, 'nobody'
     WHERE q.worker_id IS NOT NULL AND NOT f.alive
     UNION ALL
    SELECT 'ending', 'Ends on ' || f.worker || ': its cancel was requested', t.cancel_requested_at,
           'Canceled when the run has ended', NULL, 'agent'
     WHERE q.worker_id IS NOT NULL AND t.cancel_requested
     UNION ALL
    SELECT 'away', f.away, a.since, 'Holdfast tries it now', NULL, 'operator'
     WHERE q.worker_id IS NOT NULL AND a.problem = 'away' AND q.away_since IS NOT NULL
     UNION ALL
    SELECT 'running', 'Running on ' || f.worker || ', ' || f.try, t.claimed_at,
           CASE WHEN t.pending > 0 THEN 'The client''s next message begins a turn' END, NULL, 'agent'
     WHERE q.worker_id IS NOT NULL
     UNION ALL
    SELECT 'calls', (
               SELECT format('Waits for %s of %s called tasks', count(*) FILTER (WHERE c.settled_at IS NULL), count(*))
                 FROM holdfast.task_calls c
                WHERE c.parent = t.id AND c.seq = q.input_seq),
           f.waits_since, 'Their results begin the next turn', NULL, 'agent'
     WHERE q.wakes_at = 'infinity'
     UNION ALL
    SELECT 'sleeping', 'Sleeps', f.waits_since,
           CASE WHEN t.interruptible THEN 'A message wakes it, or the time' ELSE 'It wakes' END, q.wakes_at, 'nobody'
     WHERE q.wakes_at > now()
     UNION ALL
    SELECT 'retrying', 'Waits to try again: ' || f.try || ' failed', (
               SELECT e.created_at FROM holdfast.task_events e WHERE e.task = t.id AND e.seq = t.last_seq),
           concat_ws(' of ', 'Try ' || q.tries + 1, a.tries) || ' begins', q.available_at, 'nobody'
     WHERE q.available_at > now() AND q.tries > 0
     UNION ALL
    SELECT 'delayed', 'Waits until it is due', NULL, 'A worker takes it', q.available_at, 'nobody'
     WHERE q.available_at > now()
     UNION ALL
    SELECT 'no server', 'Waits for a server: no process is alive', f.due_since, 'Start a server', NULL, 'operator'
     WHERE a.agent IS NULL AND NOT EXISTS (SELECT FROM holdfast.workers w WHERE w.lease_until >= now())
     UNION ALL
    SELECT 'no server', 'Waits for a server that has agent ' || t.agent, f.due_since,
           'Start one whose configuration has it', NULL, 'operator'
     WHERE a.agent IS NULL
     UNION ALL
    SELECT 'away', f.away, a.since, 'Holdfast tries it again', NULL, 'operator'
     WHERE a.problem = 'away'
     UNION ALL
    SELECT a.problem, 'Waits for a worker of agent ' || t.agent || ': ' || a.reason, coalesce(a.since, f.due_since),
           'Start a worker', NULL, 'operator'
     WHERE a.problem IS NOT NULL
     UNION ALL
    SELECT 'busy', 'Agent ' || t.agent || ' is too busy to begin it', q.away_since, 'Holdfast tries it again', NULL,
           'agent'
     WHERE q.away_since IS NOT NULL
     UNION ALL
    SELECT 'suspect', 'Waits to run alone: its last run ended with its process', f.due_since,
           'A process starts one such run at a time', NULL, 'nobody'
     WHERE q.suspect
     UNION ALL
    SELECT 'full', 'Waits for one of the ' || a.slots || ' places of agent ' || t.agent, f.due_since,
           'A run of the agent ends', NULL, 'nobody'
     WHERE a.slots <= (
        SELECT count(*)
          FROM holdfast.workers w
          JOIN holdfast.task_queue r ON r.worker_id = w.id
         WHERE r.agent = q.agent)
     UNION ALL
    SELECT 'large', 'Waits for a worker with memory for its message of ' || round(q.message_bytes / 1048576.0, 1)
           || ' MiB', f.due_since, 'A worker takes it', NULL, 'nobody'
     WHERE q.message_bytes > 1048576
     UNION ALL
    SELECT 'waiting', 'Waits for a worker of agent ' || t.agent, f.due_since, 'A worker takes it', NULL, 'nobody'
     LIMIT 1
 ) s;

COMMENT ON VIEW holdfast.v_status IS
    'One line about each task: what it does or waits for. The console, the command line and the admin API show it.';
COMMENT ON COLUMN holdfast.v_status.situation IS
    'One word for the line: completed, failed, canceled, rejected, asks, authenticates, running, ending, lost, calls, '
    'sleeping, retrying, delayed, away, no worker, draining, no server, busy, suspect, full, large, waiting or not '
    'queued.';
COMMENT ON COLUMN holdfast.v_status.text IS 'The task runs, waits or has ended: this says how.';
COMMENT ON COLUMN holdfast.v_status.since IS 'Since when; null: not known.';
COMMENT ON COLUMN holdfast.v_status.next IS 'The next step; null: none is known.';
COMMENT ON COLUMN holdfast.v_status.next_at IS 'When that happens; null: not known.';
COMMENT ON COLUMN holdfast.v_status.turn_of IS 'The one who has to act: agent, client, operator or nobody.';

-- The columns that all views of tasks have.
-- +goose StatementBegin
DO $$
DECLARE
    v text;
BEGIN
    FOREACH v IN ARRAY ARRAY[
        'v_tasks', 'v_events', 'v_transitions', 'v_history', 'v_artifacts', 'v_runs', 'v_queue', 'v_lineage',
        'v_states', 'v_steps', 'v_cancels', 'v_push', 'v_push_attempts', 'v_keys', 'v_usage', 'v_status'
    ] LOOP
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.task IS %L', v,
            'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.task_id IS %L', v,
            'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.agent IS %L', v,
            'The agent''s name in the configuration.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.tenant IS %L', v,
            'The tenant of the caller that created the task; empty without identity.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.owner IS %L', v,
            'The caller that created the task; empty without identity.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.context_id IS %L', v,
            'The conversation that the task belongs to (sessionId in A2A 0.1).');
    END LOOP;
END
$$;
-- +goose StatementEnd

CREATE VIEW holdfast.v_names AS
SELECT n.task, n.client_id AS task_id, n.agent, n.tenant, n.owner
  FROM holdfast.task_names n;

COMMENT ON VIEW holdfast.v_names IS 'The ids that clients chose (A2A 0.1), and the task that now has each id.';
COMMENT ON COLUMN holdfast.v_names.task IS 'The task''s UUID, which joins the other views.';
COMMENT ON COLUMN holdfast.v_names.task_id IS 'The id that the client chose. An index finds it.';
COMMENT ON COLUMN holdfast.v_names.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_names.tenant IS 'The tenant of the caller that chose it.';
COMMENT ON COLUMN holdfast.v_names.owner IS 'The caller that chose it.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_uuid(task_id text) RETURNS uuid
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    found uuid[];
BEGIN
    IF $1 ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN
        SELECT array_agg(v.task) INTO found FROM holdfast.v_tasks v WHERE v.task = $1::uuid;
    END IF;
    IF found IS NULL THEN
        SELECT array_agg(v.task ORDER BY v.task) INTO found FROM holdfast.v_names v WHERE v.task_id = $1;
    END IF;
    IF cardinality(found) > 1 THEN
        RAISE EXCEPTION 'several tasks have the id %; name one by its UUID: %', $1, array_to_string(found, ', ')
            USING ERRCODE = 'cardinality_violation';
    END IF;
    RETURN found[1];
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.task_uuid IS
    'The UUID of the task with the id that clients use. Null if there is no such task; an error if several owners '
    'chose the same id.';

CREATE VIEW holdfast.v_workers AS
SELECT w.id AS worker, w.name, w.version, w.roles, w.started_at, w.lease_until,
       w.lease_until >= now() AS alive,
       (SELECT count(*) FROM holdfast.task_queue q WHERE q.worker_id = w.id) AS running,
       (SELECT array_agg(l.name ORDER BY l.name) FROM holdfast.leases l
         WHERE l.holder = w.id AND l.until >= now()) AS duties
  FROM holdfast.workers w;

COMMENT ON VIEW holdfast.v_workers IS 'The server processes that are registered now.';
COMMENT ON COLUMN holdfast.v_workers.worker IS 'The id of the process, new at each start.';
COMMENT ON COLUMN holdfast.v_workers.name IS 'Its host name and process id.';
COMMENT ON COLUMN holdfast.v_workers.version IS 'The version of Holdfast that it runs.';
COMMENT ON COLUMN holdfast.v_workers.roles IS 'Its roles, as configured.';
COMMENT ON COLUMN holdfast.v_workers.started_at IS 'When it registered.';
COMMENT ON COLUMN holdfast.v_workers.lease_until IS 'When its lease ends.';
COMMENT ON COLUMN holdfast.v_workers.alive IS 'Its lease has not expired.';
COMMENT ON COLUMN holdfast.v_workers.running IS 'How many runs it has.';
COMMENT ON COLUMN holdfast.v_workers.duties IS 'The duties whose lease it has; null for none.';

CREATE VIEW holdfast.v_remote_workers AS
SELECT w.id AS worker, w.name, w.version, w.sdk, w.agents, w.replica, w.first_seen, w.last_seen,
       w.last_seen > now() - interval '90 seconds' AND w.left_at IS NULL AS connected,
       w.retired_at,
       (SELECT count(*) FROM holdfast.task_queue q WHERE q.worker_id = w.id) AS running
  FROM holdfast.remote_workers w;

COMMENT ON VIEW holdfast.v_remote_workers IS 'The workers of agents with executor.kind worker.';
COMMENT ON COLUMN holdfast.v_remote_workers.worker IS 'The id of the worker, new at each of its starts.';
COMMENT ON COLUMN holdfast.v_remote_workers.name IS 'As the worker says, such as its host.';
COMMENT ON COLUMN holdfast.v_remote_workers.version IS 'Of the code of its agents, as the worker says.';
COMMENT ON COLUMN holdfast.v_remote_workers.sdk IS 'The SDK and the language.';
COMMENT ON COLUMN holdfast.v_remote_workers.agents IS 'The agents whose runs it claims.';
COMMENT ON COLUMN holdfast.v_remote_workers.replica IS 'The server process that answered it last.';
COMMENT ON COLUMN holdfast.v_remote_workers.first_seen IS 'When it connected first.';
COMMENT ON COLUMN holdfast.v_remote_workers.last_seen IS 'When it last sent a request or had one open, to a minute.';
COMMENT ON COLUMN holdfast.v_remote_workers.connected IS
    'It was seen within 90 seconds, and has not stopped or lost its connection since.';
COMMENT ON COLUMN holdfast.v_remote_workers.retired_at IS 'When an operator told it to claim no more; else null.';
COMMENT ON COLUMN holdfast.v_remote_workers.running IS 'How many runs it has.';

CREATE VIEW holdfast.v_outages AS
SELECT o.agent, o.since, o.last_at, o.error,
       (SELECT p.name FROM holdfast.processes p WHERE p.id = o.worker_id) AS worker_name,
       (SELECT count(*) FROM holdfast.task_queue q
         WHERE q.agent = o.agent AND q.worker_id IS NULL AND q.available_at <= now()) AS waiting
  FROM holdfast.agent_outages o
 WHERE o.last_at > now() - interval '1 minute';

COMMENT ON VIEW holdfast.v_outages IS 'Agents that are away: workers tried to start their runs, and none began.';
COMMENT ON COLUMN holdfast.v_outages.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_outages.since IS 'When a worker first found it away.';
COMMENT ON COLUMN holdfast.v_outages.last_at IS 'When a worker last tried.';
COMMENT ON COLUMN holdfast.v_outages.error IS 'The error of the newest try.';
COMMENT ON COLUMN holdfast.v_outages.worker_name IS 'The name of that worker''s process.';
COMMENT ON COLUMN holdfast.v_outages.waiting IS 'How many tasks wait for it.';

CREATE VIEW holdfast.v_api_keys AS
SELECT k.key_id, k.name, k.tenant, k.subject, k.scopes, k.created_at, k.expires_at, k.revoked_at, k.last_used_at
  FROM holdfast.api_keys k;

COMMENT ON VIEW holdfast.v_api_keys IS 'The API keys, without their secrets.';
COMMENT ON COLUMN holdfast.v_api_keys.key_id IS 'The public part of the key.';
COMMENT ON COLUMN holdfast.v_api_keys.name IS 'The operator''s name for it.';
COMMENT ON COLUMN holdfast.v_api_keys.tenant IS 'The tenant of callers with the key.';
COMMENT ON COLUMN holdfast.v_api_keys.subject IS 'The subject of callers with the key.';
COMMENT ON COLUMN holdfast.v_api_keys.scopes IS 'The scopes of callers with the key.';
COMMENT ON COLUMN holdfast.v_api_keys.created_at IS 'When it was created.';
COMMENT ON COLUMN holdfast.v_api_keys.expires_at IS 'When it expires; null: never.';
COMMENT ON COLUMN holdfast.v_api_keys.revoked_at IS 'When it was revoked; else null.';
COMMENT ON COLUMN holdfast.v_api_keys.last_used_at IS 'When it was last used, to five minutes; null: never.';

CREATE VIEW holdfast.v_audit AS
SELECT l.at,
       x.action,
       nullif(e.entry ->> 'task', '')::uuid AS task,
       coalesce(e.entry ->> 'agent', '') AS agent,
       coalesce(e.entry ->> 'tenant', '') AS tenant,
       coalesce(e.entry ->> 'subject', '') AS subject,
       coalesce(e.entry ->> 'method', '') AS method,
       coalesce(e.entry ->> 'credential', '') AS credential,
       coalesce(e.entry ->> 'address', '') AS address,
       coalesce(x.object, '') AS object,
       l.login,
       l.chain::integer AS chain,
       l.n,
       coalesce(e.entry ->> 'reason', '') AS reason,
       regexp_replace(coalesce(e.entry ->> 'address', ''), '^(?:\[(.*)\]|([^:]*)):\d+$', '\1\2') AS ip
  FROM holdfast.audit_log l
 CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY AS e (entry, ord)
 CROSS JOIN LATERAL (
    SELECT 1 AS nth, e.entry ->> 'action' AS action, e.entry ->> 'object' AS object
     UNION ALL
    SELECT 2, 'push.set', e.entry ->> 'webhook' WHERE e.entry ->> 'webhook' IS NOT NULL
 ) x;

COMMENT ON VIEW holdfast.v_audit IS 'One row per audited action and its caller. ORDER BY at, chain, n sorts by time.';
COMMENT ON COLUMN holdfast.v_audit.at IS 'When, by the database''s clock.';
COMMENT ON COLUMN holdfast.v_audit.action IS 'The action, one of those in docs/audit.md.';
COMMENT ON COLUMN holdfast.v_audit.task IS
    'The task''s UUID, which joins the other views; null if the entry is about no task.';
COMMENT ON COLUMN holdfast.v_audit.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_audit.tenant IS 'The tenant of the caller.';
COMMENT ON COLUMN holdfast.v_audit.subject IS
    'The caller''s name; for an operator, the account on the machine; empty without identity.';
COMMENT ON COLUMN holdfast.v_audit.method IS
    'How the caller authenticated: api_key, basic, jwt, mtls, operator (command line and admin API), or empty.';
COMMENT ON COLUMN holdfast.v_audit.credential IS 'The scheme, and the id of the credential.';
COMMENT ON COLUMN holdfast.v_audit.address IS
    'The address of the connection, or the operator''s machine; empty if unknown.';
COMMENT ON COLUMN holdfast.v_audit.object IS 'Another object of the action: the id of a webhook or a key.';
COMMENT ON COLUMN holdfast.v_audit.login IS 'The database login that wrote the entry.';
COMMENT ON COLUMN holdfast.v_audit.chain IS 'The chain that holds the entry.';
COMMENT ON COLUMN holdfast.v_audit.n IS 'The row of that chain; entries may share one.';
COMMENT ON COLUMN holdfast.v_audit.reason IS 'Why the operator acted.';
COMMENT ON COLUMN holdfast.v_audit.ip IS 'The address without its port.';

-- The role that reads the views and nothing else. Without the right to create it the views are there all the same, and
-- docs/sql.md says what to do. A step that adds a view grants it to the role in the same way.
-- +goose StatementBegin
DO $$
DECLARE
    v text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_reader') THEN
        BEGIN
            CREATE ROLE holdfast_reader NOLOGIN;
        EXCEPTION
            WHEN insufficient_privilege THEN RETURN;
            WHEN duplicate_object OR unique_violation THEN NULL; -- another database's migration created it now
        END;
    END IF;
    GRANT USAGE ON SCHEMA holdfast TO holdfast_reader;
    FOR v IN SELECT viewname FROM pg_views WHERE schemaname = 'holdfast' AND viewname LIKE 'v\_%' LOOP
        EXECUTE format('GRANT SELECT ON holdfast.%I TO holdfast_reader', v);
    END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
    NULL; -- another login owns the schema and has to grant its use
END
$$;
-- +goose StatementEnd
