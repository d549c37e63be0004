-- Views: what operators read. They are a contract (docs/sql.md) and do not change with the tables below them.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- +goose StatementBegin
CREATE FUNCTION holdfast.sql_contract_version() RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT '1.0' $$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.sql_contract_version() IS
    'Version of the views as major.minor. A minor version adds columns at the end, views and functions; a major version may change anything.';

-- A helper of the views: the name of a state that is stored as a smallint.
-- +goose StatementBegin
CREATE FUNCTION holdfast.state_name(state smallint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT (ARRAY['submitted', 'working', 'input-required', 'auth-required', 'completed', 'failed', 'canceled', 'rejected'])[$1] $$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.state_name(smallint) IS 'The name of a stored state. For the views; not part of the contract.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.uuid_at(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT (lpad(to_hex(floor(extract(epoch FROM $1) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid $$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.uuid_at(timestamptz) IS
    'The lowest task UUID of a moment. task >= holdfast.uuid_at(now() - interval ''1 day'') reads the tasks created in the last day by index and skips older partitions.';

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
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'message' -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.seq = t.status_seq AND e.kind = 2) AS status_text,
       t.turns, t.pending, t.runs, t.attempt,
       t.worker_id AS worker,
       t.cancel_requested, t.cancel_requested_at, t.direct, t.dialect, t.client_id, t.last_seq, t.metadata,
       t.held_at
  FROM holdfast.tasks t;

COMMENT ON VIEW holdfast.v_tasks IS 'Every task in its current state.';
COMMENT ON COLUMN holdfast.v_tasks.state IS 'submitted, working, input-required, auth-required, completed, failed, canceled or rejected.';
COMMENT ON COLUMN holdfast.v_tasks.open IS 'The task has not ended. Open tasks have a small table of their own: a condition on open reads only that.';
COMMENT ON COLUMN holdfast.v_tasks.created_at IS 'When the task was stored. To select by time, compare task with holdfast.uuid_at(…), which uses an index; this column has none.';
COMMENT ON COLUMN holdfast.v_tasks.status_at IS 'When its newest status was stored. A status that repeats the state counts, too.';
COMMENT ON COLUMN holdfast.v_tasks.ended_at IS 'When it ended; null while it is open.';
COMMENT ON COLUMN holdfast.v_tasks.duration IS 'From created_at to ended_at; null while it is open.';
COMMENT ON COLUMN holdfast.v_tasks.status_message IS 'The message of the current status, if it has one: id, role, parts, metadata.';
COMMENT ON COLUMN holdfast.v_tasks.status_text IS 'The text of that message, such as why the task failed or what a parked task asks for.';
COMMENT ON COLUMN holdfast.v_tasks.turns IS 'How many messages the client has sent.';
COMMENT ON COLUMN holdfast.v_tasks.pending IS 'How many of them wait behind the one that is queued or running.';
COMMENT ON COLUMN holdfast.v_tasks.runs IS 'How often an executor was started. Runs that a stopping server returned do not count.';
COMMENT ON COLUMN holdfast.v_tasks.attempt IS 'Fencing token of the newest attempt. Rescues raise it too, so it may be higher than runs.';
COMMENT ON COLUMN holdfast.v_tasks.worker IS 'The process that runs it now.';
COMMENT ON COLUMN holdfast.v_tasks.cancel_requested IS 'A client asked to cancel it.';
COMMENT ON COLUMN holdfast.v_tasks.cancel_requested_at IS 'When a client first asked to cancel it.';
COMMENT ON COLUMN holdfast.v_tasks.direct IS 'The agent answered with a bare message, so the client saw no task.';
COMMENT ON COLUMN holdfast.v_tasks.dialect IS 'The A2A version of the request that created it.';
COMMENT ON COLUMN holdfast.v_tasks.client_id IS 'task_id when the client chose it (A2A 0.1), else null.';
COMMENT ON COLUMN holdfast.v_tasks.last_seq IS 'How many events its log has.';
COMMENT ON COLUMN holdfast.v_tasks.metadata IS 'Metadata of the request that created it.';
COMMENT ON COLUMN holdfast.v_tasks.held_at IS 'When an operator put it on hold (holdfast tasks hold), which exempts it from retention; null: no hold.';

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
COMMENT ON COLUMN holdfast.v_events.seq IS 'Place in the task''s log, from 1 without a gap; the id of the event on a stream.';
COMMENT ON COLUMN holdfast.v_events.kind IS 'message (from the client), status, artifact (a chunk of one), or run (an attempt that ended badly, or a checkpoint; clients do not see these).';
COMMENT ON COLUMN holdfast.v_events.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_events.attempt IS 'The attempt that wrote it; 0 for an event of a client.';
COMMENT ON COLUMN holdfast.v_events.state IS 'Status: the state that it sets or repeats.';
COMMENT ON COLUMN holdfast.v_events.artifact_id IS 'Artifact: which one the chunk belongs to.';
COMMENT ON COLUMN holdfast.v_events.append IS 'Artifact: the parts continue the artifact. If false, they start or replace it.';
COMMENT ON COLUMN holdfast.v_events.last IS 'Artifact: this chunk completes it.';
COMMENT ON COLUMN holdfast.v_events.payload IS 'Content as stored. Its members are documented in internal/store/doc.go and, unlike these columns, may change.';

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

COMMENT ON VIEW holdfast.v_transitions IS 'The states of each task, in order. A status that repeats the state (progress) has no row of its own.';
COMMENT ON COLUMN holdfast.v_transitions.seq IS 'The event that set the state.';
COMMENT ON COLUMN holdfast.v_transitions.state IS 'The state, as in v_tasks.';
COMMENT ON COLUMN holdfast.v_transitions.previous_state IS 'The state before; null for the first one, which is submitted.';
COMMENT ON COLUMN holdfast.v_transitions.next_state IS 'The state after; null for the current one.';
COMMENT ON COLUMN holdfast.v_transitions.entered_at IS 'When the task entered the state.';
COMMENT ON COLUMN holdfast.v_transitions.left_at IS 'When the task left the state; null for the current one.';
COMMENT ON COLUMN holdfast.v_transitions.duration IS 'Time in the state: up to now for the current state of an open task; null for a terminal state.';
COMMENT ON COLUMN holdfast.v_transitions.attempt IS 'The attempt that set the state; 0 for a client.';
COMMENT ON COLUMN holdfast.v_transitions.message IS 'The message of that event, if it has one: id, role, parts, metadata.';
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

COMMENT ON VIEW holdfast.v_history IS 'The messages of each task: those of the client, and those that the agent sent with a status. The results of the agent are in v_artifacts.';
COMMENT ON COLUMN holdfast.v_history.position IS 'Place in the conversation, from 1.';
COMMENT ON COLUMN holdfast.v_history.turn IS 'How many messages the client had sent by then.';
COMMENT ON COLUMN holdfast.v_history.seq IS 'The event that holds it.';
COMMENT ON COLUMN holdfast.v_history.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_history.role IS 'user or agent.';
COMMENT ON COLUMN holdfast.v_history.text IS 'Its text parts, separated by line breaks; null if it has none.';
COMMENT ON COLUMN holdfast.v_history.parts IS 'All parts. Each has one of text, raw (base64), url and data, and may have filename, media_type and metadata.';
COMMENT ON COLUMN holdfast.v_history.message_id IS 'The id that its sender gave it.';
COMMENT ON COLUMN holdfast.v_history.metadata IS 'Its metadata, unchanged.';
COMMENT ON COLUMN holdfast.v_history.state IS 'The state that it was sent with; null for a client''s message.';
COMMENT ON COLUMN holdfast.v_history.in_status IS 'It is the message of the current status, which A2A shows in the status and not in the history.';
COMMENT ON COLUMN holdfast.v_history.attempt IS 'The attempt that sent it; 0 for a client''s message.';

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
           AND e.payload -> 'name' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS name,
       (SELECT (e.payload -> 'description') #>> '{}' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'description' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS description,
       (SELECT string_agg((p.value -> 'text') #>> '{}', '' ORDER BY e.seq, p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base) AS text,
       (SELECT json_agg(p.value ORDER BY e.seq, p.n)
          FROM holdfast.task_events e, json_array_elements(e.payload -> 'parts') WITH ORDINALITY p(value, n)
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base) AS parts,
       (SELECT e.payload -> 'metadata' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'metadata' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS metadata,
       (SELECT e.payload -> 'extensions' FROM holdfast.task_events e
         WHERE e.task = t.id AND e.kind = 3 AND e.artifact_id = a.artifact_id AND e.seq >= a.base
           AND e.payload -> 'extensions' IS NOT NULL ORDER BY e.seq DESC LIMIT 1) AS extensions,
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

COMMENT ON VIEW holdfast.v_artifacts IS 'The artifacts of each task, put together from their chunks as clients see them.';
COMMENT ON COLUMN holdfast.v_artifacts.artifact_id IS 'The id that the agent gave it.';
COMMENT ON COLUMN holdfast.v_artifacts.index IS 'Place among the task''s artifacts by first appearance, from 0.';
COMMENT ON COLUMN holdfast.v_artifacts.name IS 'Its name, if it has one.';
COMMENT ON COLUMN holdfast.v_artifacts.description IS 'Its description, if it has one.';
COMMENT ON COLUMN holdfast.v_artifacts.text IS 'All its text parts joined into one text; null if it has none.';
COMMENT ON COLUMN holdfast.v_artifacts.parts IS 'All parts, as in v_history.';
COMMENT ON COLUMN holdfast.v_artifacts.metadata IS 'Its metadata, unchanged.';
COMMENT ON COLUMN holdfast.v_artifacts.extensions IS 'The extensions that it names.';
COMMENT ON COLUMN holdfast.v_artifacts.chunks IS 'How many chunks it consists of. Replaced chunks do not count.';
COMMENT ON COLUMN holdfast.v_artifacts.bytes IS 'Size of those chunks as JSON, in bytes.';
COMMENT ON COLUMN holdfast.v_artifacts.complete IS 'The agent marked it as complete.';
COMMENT ON COLUMN holdfast.v_artifacts.first_seq IS 'The event that began it.';
COMMENT ON COLUMN holdfast.v_artifacts.last_seq IS 'Its newest event.';
COMMENT ON COLUMN holdfast.v_artifacts.first_at IS 'When the first chunk was stored, even if it was replaced later.';
COMMENT ON COLUMN holdfast.v_artifacts.last_at IS 'When the newest chunk was stored.';

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

COMMENT ON VIEW holdfast.v_runs IS 'Every run: which process had it, how long it took, and how it ended.';
COMMENT ON COLUMN holdfast.v_runs.run IS 'Number of the run within its task, from 1.';
COMMENT ON COLUMN holdfast.v_runs.attempt IS 'Its fencing token, as in v_events and in the server''s logs.';
COMMENT ON COLUMN holdfast.v_runs.turn IS 'Which of the client''s messages it answered, from 1. More than one run of a turn means a retry.';
COMMENT ON COLUMN holdfast.v_runs.worker IS 'The process that ran it.';
COMMENT ON COLUMN holdfast.v_runs.worker_name IS 'The name of that process, even after its end.';
COMMENT ON COLUMN holdfast.v_runs.started_at IS 'When the process claimed it.';
COMMENT ON COLUMN holdfast.v_runs.ended_at IS 'When it ended; for a lost run, when another process noticed; null while it runs.';
COMMENT ON COLUMN holdfast.v_runs.duration IS 'From started_at to ended_at, or to now.';
COMMENT ON COLUMN holdfast.v_runs.outcome IS 'running; the state that it left the task in (completed, failed, canceled, rejected, input-required, auth-required); continued (it asked for input that was already there); or retry (it failed and is retried), returned (its server stopped and gave it back), lost (its process stopped renewing its lease).';
COMMENT ON COLUMN holdfast.v_runs.error IS 'Why it failed, was rejected or is retried.';
COMMENT ON COLUMN holdfast.v_runs.seq IS 'The event that ended it; null while it runs.';

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

CREATE VIEW holdfast.v_workers AS
SELECT w.id AS worker, w.name, w.version, w.roles, w.started_at, w.lease_until,
       w.lease_until >= now() AS alive,
       (SELECT count(*) FROM holdfast.task_queue q WHERE q.worker_id = w.id) AS running,
       (SELECT array_agg(l.name ORDER BY l.name) FROM holdfast.leases l WHERE l.holder = w.id AND l.until >= now()) AS duties
  FROM holdfast.workers w;

COMMENT ON VIEW holdfast.v_workers IS 'The server processes that are registered now.';
COMMENT ON COLUMN holdfast.v_workers.worker IS 'The id of the process, new at each start.';
COMMENT ON COLUMN holdfast.v_workers.name IS 'Its host name and process id.';
COMMENT ON COLUMN holdfast.v_workers.version IS 'The version of Holdfast that it runs.';
COMMENT ON COLUMN holdfast.v_workers.roles IS 'Its roles, as configured.';
COMMENT ON COLUMN holdfast.v_workers.started_at IS 'When it registered.';
COMMENT ON COLUMN holdfast.v_workers.lease_until IS 'When its lease ends unless the process renews it.';
COMMENT ON COLUMN holdfast.v_workers.alive IS 'Its lease has not expired.';
COMMENT ON COLUMN holdfast.v_workers.running IS 'How many runs it has.';
COMMENT ON COLUMN holdfast.v_workers.duties IS 'The duties whose lease it has, such as partitions; null for none.';

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

COMMENT ON VIEW holdfast.v_push IS 'The webhook configurations, and how far each has been delivered.';
COMMENT ON COLUMN holdfast.v_push.config_id IS 'The id of the configuration within its task.';
COMMENT ON COLUMN holdfast.v_push.url IS 'The URL. Tokens and credentials are not shown.';
COMMENT ON COLUMN holdfast.v_push.dialect IS 'The A2A version of its deliveries.';
COMMENT ON COLUMN holdfast.v_push.created_at IS 'When it was set.';
COMMENT ON COLUMN holdfast.v_push.delivered_seq IS 'The newest event that was delivered or skipped; 0 for none.';
COMMENT ON COLUMN holdfast.v_push.behind IS 'How many events of the log follow it, up to the newest one to deliver; 0: nothing to deliver.';
COMMENT ON COLUMN holdfast.v_push.due_at IS 'When the next attempt is due, or when the one in flight counts as lost; null if there is nothing to deliver or the webhook is disabled.';
COMMENT ON COLUMN holdfast.v_push.failures IS 'Failed attempts since the last success.';
COMMENT ON COLUMN holdfast.v_push.last_error IS 'The reason of the last failure.';
COMMENT ON COLUMN holdfast.v_push.last_attempt_at IS 'When the last attempt was made.';
COMMENT ON COLUMN holdfast.v_push.last_status IS 'The HTTP status of its answer; null if there was no answer.';
COMMENT ON COLUMN holdfast.v_push.host IS 'Host and port of the URL.';
COMMENT ON COLUMN holdfast.v_push.artifacts IS 'Artifact events are delivered, too.';
COMMENT ON COLUMN holdfast.v_push.due_since IS 'Since when there has been something to deliver; null: nothing to deliver.';
COMMENT ON COLUMN holdfast.v_push.failing_since IS 'When the first failed attempt since the last success was recorded.';
COMMENT ON COLUMN holdfast.v_push.disabled_at IS 'When it was disabled; null: it is enabled.';
COMMENT ON COLUMN holdfast.v_push.disabled_for IS 'Why it was disabled.';
COMMENT ON COLUMN holdfast.v_push.in_flight IS 'A process is delivering at this moment.';
COMMENT ON COLUMN holdfast.v_push.last_class IS 'The outcome of the last attempt: a class of the metric holdfast_push_attempts_total.';

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
       (SELECT p.name FROM holdfast.processes p WHERE p.id = a.worker_id) AS worker_name
  FROM holdfast.push_attempts a
  JOIN holdfast.tasks t ON t.id = a.task;

COMMENT ON VIEW holdfast.v_push_attempts IS 'The attempts to deliver and their outcomes, for as long as retention keeps them.';
COMMENT ON COLUMN holdfast.v_push_attempts.config_id IS 'The id of the configuration within its task.';
COMMENT ON COLUMN holdfast.v_push_attempts.attempt_id IS 'A number that grows over all tasks.';
COMMENT ON COLUMN holdfast.v_push_attempts.started_at IS 'When the request was made.';
COMMENT ON COLUMN holdfast.v_push_attempts.from_seq IS 'The first event that it covers.';
COMMENT ON COLUMN holdfast.v_push_attempts.to_seq IS 'The last event that it covers.';
COMMENT ON COLUMN holdfast.v_push_attempts.delivery_id IS 'The jti that the receiver got: the same for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.v_push_attempts.attempt IS 'Number of the attempt within its delivery, from 1.';
COMMENT ON COLUMN holdfast.v_push_attempts.class IS 'The outcome: a class of the metric holdfast_push_attempts_total.';
COMMENT ON COLUMN holdfast.v_push_attempts.status IS 'The HTTP status; null if there was no answer.';
COMMENT ON COLUMN holdfast.v_push_attempts.error IS 'Error message; null after a success.';
COMMENT ON COLUMN holdfast.v_push_attempts.duration IS 'How long the attempt took.';
COMMENT ON COLUMN holdfast.v_push_attempts.worker_name IS 'The process that made it.';

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
SELECT u.task, u.task_id, u.agent, u.tenant, u.owner, u.context_id, u.seq, u.at, u.attempt,
       CASE WHEN json_typeof(u.usage -> 'inputTokens') = 'number' THEN (u.usage ->> 'inputTokens')::numeric END AS input_tokens,
       CASE WHEN json_typeof(u.usage -> 'outputTokens') = 'number' THEN (u.usage ->> 'outputTokens')::numeric END AS output_tokens,
       CASE WHEN json_typeof(u.usage -> 'totalTokens') = 'number' THEN (u.usage ->> 'totalTokens')::numeric END AS total_tokens,
       u.usage
  FROM (SELECT e.task, coalesce(t.client_id, t.id::text) AS task_id, t.agent, t.tenant, t.owner, t.context_id,
               e.seq, e.created_at AS at, e.attempt,
               CASE e.kind WHEN 2 THEN e.payload -> 'message' -> 'metadata' -> 'usage'
                    ELSE coalesce(e.payload -> 'event_metadata' -> 'usage', e.payload -> 'metadata' -> 'usage') END AS usage
          FROM holdfast.task_events e
          JOIN holdfast.tasks t ON t.id = e.task
         WHERE e.kind IN (2, 3) AND e.attempt > 0) u
 WHERE json_typeof(u.usage) = 'object';

COMMENT ON VIEW holdfast.v_usage IS 'The usage that agents report: the object usage in the metadata of a status message, of an artifact''s chunk, or of an artifact. Attempts that were retried count, too.';
COMMENT ON COLUMN holdfast.v_usage.seq IS 'The event that reports it.';
COMMENT ON COLUMN holdfast.v_usage.at IS 'When it was stored.';
COMMENT ON COLUMN holdfast.v_usage.attempt IS 'The attempt that wrote it.';
COMMENT ON COLUMN holdfast.v_usage.input_tokens IS 'usage.inputTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.output_tokens IS 'usage.outputTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.total_tokens IS 'usage.totalTokens, if it is a number.';
COMMENT ON COLUMN holdfast.v_usage.usage IS 'The whole object, as the agent wrote it.';

CREATE VIEW holdfast.v_names AS
SELECT n.task, n.client_id AS task_id, n.agent, n.tenant, n.owner
  FROM holdfast.task_names n;

COMMENT ON VIEW holdfast.v_names IS 'The ids that clients chose (A2A 0.1), and the task that now has each id.';
COMMENT ON COLUMN holdfast.v_names.task IS 'The task''s UUID, which joins the other views.';
COMMENT ON COLUMN holdfast.v_names.task_id IS 'The id that the client chose. An index finds it.';
COMMENT ON COLUMN holdfast.v_names.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_names.tenant IS 'The tenant of the caller that chose it.';
COMMENT ON COLUMN holdfast.v_names.owner IS 'The caller that chose it.';

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
       l.n
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
COMMENT ON COLUMN holdfast.v_audit.task IS 'The task''s UUID, which joins the other views; null if the entry is about no task.';
COMMENT ON COLUMN holdfast.v_audit.agent IS 'The agent''s name in the configuration.';
COMMENT ON COLUMN holdfast.v_audit.tenant IS 'The tenant of the caller.';
COMMENT ON COLUMN holdfast.v_audit.subject IS 'The caller''s name; empty without identity. For an operator, the account on the machine.';
COMMENT ON COLUMN holdfast.v_audit.method IS 'How the caller authenticated: api_key, basic, jwt, mtls; operator for the command line; empty without authentication.';
COMMENT ON COLUMN holdfast.v_audit.credential IS 'The scheme and the id of the credential, if it has one.';
COMMENT ON COLUMN holdfast.v_audit.address IS 'The address of the connection, or the operator''s machine; empty if unknown.';
COMMENT ON COLUMN holdfast.v_audit.object IS 'The object besides the task: the id of a webhook configuration, or of a key.';
COMMENT ON COLUMN holdfast.v_audit.login IS 'The database login that wrote the entry.';
COMMENT ON COLUMN holdfast.v_audit.chain IS 'The chain that holds the entry.';
COMMENT ON COLUMN holdfast.v_audit.n IS 'The row of that chain; several entries may share one.';

-- Comments on the columns that all views of tasks have.
-- +goose StatementBegin
DO $$
DECLARE
    v text;
BEGIN
    FOREACH v IN ARRAY ARRAY['v_tasks', 'v_events', 'v_transitions', 'v_history', 'v_artifacts', 'v_runs', 'v_queue', 'v_push', 'v_push_attempts', 'v_keys', 'v_usage']
    LOOP
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.task IS %L', v, 'The task''s UUID, a UUIDv7. It joins the views and is the fastest way to one task.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.task_id IS %L', v, 'The id that clients use for the task. To find it, compare task with holdfast.task_uuid(…).');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.agent IS %L', v, 'The agent''s name in the configuration.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.tenant IS %L', v, 'The tenant of the caller that created the task; empty without identity.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.owner IS %L', v, 'The caller that created the task; empty without identity.');
        EXECUTE format('COMMENT ON COLUMN holdfast.%I.context_id IS %L', v, 'The conversation that the task belongs to (sessionId in A2A 0.1).');
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION holdfast.task_uuid(task_id text) RETURNS uuid LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
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
COMMENT ON FUNCTION holdfast.task_uuid(text) IS
    'The UUID of the task with the id that clients use. Null if there is no such task; an error if several owners chose the same id.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP FUNCTION holdfast.task_uuid(text);
DROP VIEW holdfast.v_tasks, holdfast.v_events, holdfast.v_transitions, holdfast.v_history, holdfast.v_artifacts, holdfast.v_runs,
    holdfast.v_queue, holdfast.v_workers, holdfast.v_push, holdfast.v_push_attempts, holdfast.v_keys, holdfast.v_names, holdfast.v_usage,
    holdfast.v_audit;
DROP FUNCTION holdfast.uuid_at(timestamptz);
DROP FUNCTION holdfast.state_name(smallint);
DROP FUNCTION holdfast.sql_contract_version();
