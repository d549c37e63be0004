-- Writing and reading the log.

-- name: EventsAppend :many
-- Writes the events of any number of runs in one commit. The server has counted: a run has n events, of which the
-- status_rn-th sets its state (asked; 0: none does), and the shown_rn-th is the last one that webhooks show. rn is an
-- event's place in its run, and run is the place of its run among the runs. ordinal is the number of events that the
-- run wrote before its first one here. A run writes only while its attempt is the task's and was claimed at the same
-- time (a failover that loses a claim lets the next one draw the same attempt), it has a worker, and its ordinal fits.
-- A statement has one claim of each attempt. A run without a row in the result was fenced, another session has locked
-- its task, or this is a retry of a committed statement; RunStates tells which.
--
-- A run has one writer: its worker, or the run API (posts). after is the ordinal with these events: a posted
-- event may be none in the log, or two. With after 0 the server writes the status working of a run that it hands to a
-- remote worker, once. With the ordinal -1 it ends the run, whatever its writer has written.
--
-- A run that parks while a message is already waiting does not park. The task goes back to submitted for that message,
-- with the run's status message. A run that parks after the client asked to cancel it is canceled instead. A run that
-- parks may ask for its resume URL to be valid for some seconds (resume). If a resume has come already (resumed_seq),
-- the run does not park: the next turn is that of the resume, before those of waiting messages.
--
-- Statements that follow in the same transaction write what few runs do: TurnsNext begins the next turn of a run that
-- did not park, so its task keeps the worker until then. TurnsWait writes the last event of a run that waits.
--
-- Webhooks are marked last, by a function with its own snapshot, and only for tasks that have webhooks. Another
-- function records the end of a task that was called or has called. metadata is that of all statuses of a run.
--
-- With a few runs, PostgreSQL spends most of its time on the start of a statement, and each part of it costs.
-- LATERAL and OFFSET 0 look up each run by its id, and the rest looks up an array of ids. On a quiet system ANALYZE
-- sees an empty queue; a join planned then would read the whole queue, or all open tasks, at every append.
WITH run AS MATERIALIZED (
    SELECT unnest(@tasks::uuid[]) AS id, generate_subscripts(@tasks::uuid[], 1) AS nth,
           unnest(@attempts::integer[]) AS attempt, unnest(@claims::timestamptz[]) AS claimed_at,
           unnest(@ordinals::bigint[]) AS ordinal, unnest(@afters::bigint[]) AS after, unnest(@posts::bool[]) AS post,
           unnest(@counts::bigint[]) AS n, unnest(@asked::smallint[]) AS asked, unnest(@directs::boolean[]) AS direct,
           unnest(@status_rns::bigint[]) AS status_rn, unnest(@shown_rns::bigint[]) AS shown_rn,
           unnest(@artifact_sizes::bigint[]) AS artifact_bytes, unnest(@listings::boolean[]) AS listing,
           unnest(@resumes::float8[]) AS resume, unnest(@metadatas::text[]) AS metadata
), lck AS MATERIALIZED (
    SELECT r.*, t.kept, t.last_seq, t.worker_id, t.pushes, t.lineage, t.cancel_requested_at,
           t.last_seq + nullif(r.status_rn, 0) AS status_seq,
           CASE WHEN r.asked NOT IN (3, 4) THEN nullif(r.asked, 0)
                WHEN t.cancel_requested THEN 7::smallint
                WHEN t.pending > 0 OR r.resume > 0 AND t.resumed_seq IS NOT NULL THEN 1::smallint
                ELSE r.asked END AS state
      FROM run r CROSS JOIN LATERAL (
        SELECT x.kept, x.last_seq, x.worker_id, x.pushes, x.lineage, x.pending, x.resumed_seq, x.cancel_requested,
               x.cancel_requested_at
          FROM holdfast.tasks x
         WHERE x.id = r.id AND x.attempt = r.attempt AND x.claimed_at = r.claimed_at
           AND (r.ordinal = -1 OR x.run_ordinal = r.ordinal AND x.posted = r.post) AND x.worker_id IS NOT NULL
           AND (r.after <> 0 OR r.asked <> 2 OR x.state = 1) AND x.state NOT IN (3, 4, 5, 6, 7, 8)
        OFFSET 0 FOR NO KEY UPDATE OF x SKIP LOCKED) t
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = l.last_seq + l.n, state = coalesce(l.state, t.state),
           run_ordinal = CASE WHEN l.after < 0 THEN t.run_ordinal + (NOT t.posted)::int * l.n ELSE l.after END,
           heard_at = CASE WHEN l.post THEN now() ELSE t.heard_at END,
           status_seq = coalesce(l.status_seq, t.status_seq),
           status_at = CASE WHEN l.status_seq IS NULL THEN t.status_at ELSE now() END,
           direct = t.direct OR l.direct, artifact_bytes = t.artifact_bytes + l.artifact_bytes,
           artifacts_seq = CASE WHEN l.listing THEN l.status_seq ELSE t.artifacts_seq END,
           agent_metadata = CASE WHEN l.metadata = '' THEN t.agent_metadata
                                 ELSE holdfast.merged(t.agent_metadata, nullif(l.metadata, '')::json) END,
           worker_id = CASE WHEN l.state >= 3 THEN NULL ELSE t.worker_id END,
           resume_until = CASE WHEN l.state IN (3, 4) AND l.resume > 0 THEN now() + l.resume * interval '1 second' END,
           resumed_seq = CASE WHEN l.state >= 3 THEN NULL ELSE t.resumed_seq END
      FROM lck l WHERE t.id = ANY(@tasks::uuid[]) AND t.id = l.id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), done AS (
    DELETE FROM holdfast.task_queue q WHERE q.id = ANY(ARRAY(SELECT id FROM lck WHERE state >= 3))
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, state, attempt, append, last, artifact_id, payload,
                                      worker_id, claimed_at)
    SELECT l.id, l.last_seq + e.rn, e.kind, l.kept,
           CASE WHEN e.rn = l.status_rn THEN l.state ELSE nullif(e.state, 0) END, l.attempt, e.append, e.last,
           nullif(e.artifact_id, ''), nullif(e.payload, '')::json,
           CASE WHEN e.rn = l.status_rn AND l.asked >= 3 THEN l.worker_id END,
           CASE WHEN e.rn = l.status_rn AND l.asked >= 3 THEN l.claimed_at END
      FROM (SELECT unnest(@runs::integer[]) AS run, unnest(@rns::bigint[]) AS rn, unnest(@kinds::smallint[]) AS kind,
                   unnest(@states::smallint[]) AS state, unnest(@appends::boolean[]) AS append,
                   unnest(@lasts::boolean[]) AS last, unnest(@artifact_ids::text[]) AS artifact_id,
                   unnest(@payloads::text[]) AS payload) e JOIN lck l ON l.nth = e.run
)
SELECT id::uuid AS id, attempt::integer AS attempt, last_seq::bigint AS base, coalesce(state, 0)::smallint AS state,
       now()::timestamptz AS at, coalesce(extract(epoch FROM CASE WHEN state >= 5 THEN now() - cancel_requested_at END),
                                          -1)::float8 AS cancel_seconds,
       coalesce(CASE WHEN lineage AND state >= 3 THEN holdfast.call_settled(id, status_seq) END, 0)::integer AS kin,
       coalesce((SELECT holdfast.push_mark(array_agg(id), array_agg(status_seq), array_agg(last_seq + shown_rn))
                   FROM (SELECT * FROM lck WHERE pushes AND shown_rn > 0 ORDER BY id) l), 0)::integer AS marked
  FROM lck;

-- name: TurnsNext :many
-- Begins the next turn of runs that wanted to park, which their append has not let: of the resume that came, or else of
-- the first message that waits. Only for runs whose row this transaction has written: not if their append was refused.
WITH run AS MATERIALIZED (
    SELECT t.id, t.turns, t.pending, CASE WHEN r.resumes THEN t.resumed_seq END AS resumed_seq
      FROM (SELECT unnest(@tasks::uuid[]) AS id, unnest(@attempts::integer[]) AS attempt,
                   unnest(@claims::timestamptz[]) AS claimed_at, unnest(@resumes::boolean[]) AS resumes) r
      JOIN holdfast.tasks t ON t.id = r.id AND t.attempt = r.attempt AND t.claimed_at = r.claimed_at
       AND t.xmin = pg_current_xact_id()::xid
     WHERE t.id = ANY(@tasks::uuid[]) AND t.state NOT IN (2, 3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
), upd AS (
    UPDATE holdfast.tasks t
       SET worker_id = NULL, resumed_seq = NULL,
           turns = CASE WHEN r.resumed_seq IS NULL THEN r.turns ELSE r.turns + 1 END,
           pending = CASE WHEN r.resumed_seq IS NULL THEN r.pending - 1 ELSE r.pending END
      FROM run r WHERE t.id = ANY(@tasks::uuid[]) AND t.id = r.id AND t.state NOT IN (2, 3, 4, 5, 6, 7, 8)
)
UPDATE holdfast.task_queue q
   SET worker_id = NULL, available_at = now(), tries = 0, turn = q.turn + 1, input_seq = r.resumed_seq,
       interrupted = false,
       message_seq = CASE WHEN r.resumed_seq IS NULL THEN holdfast.message_after(q.id, q.message_seq)
                          ELSE q.message_seq END,
       message_bytes = coalesce(octet_length(CASE WHEN r.resumed_seq IS NULL
           THEN holdfast.message_at(q.id, holdfast.message_after(q.id, q.message_seq))
           ELSE holdfast.note_at(q.id, r.resumed_seq) END::text), 0),
       forwarded = nullif(q.forwarded - q.message_seq::text, '{}')
  FROM run r WHERE q.id = ANY(@tasks::uuid[]) AND q.id = r.id
RETURNING q.id;

-- name: TurnsWait :many
-- Ends runs with a wait: their last event is the run note with it, which names a time (until) or a number of seconds
-- (for). The task keeps its state and its queue row, which no worker claims before its timer fires. If the wait is
-- interruptible and a message waits already, or if the client asked to cancel the task, the next turn is due at once. A
-- run note with calls is such a wait without an end (infinity): the duty calls wakes the task when all calls have their
-- results. Only for runs whose row this transaction has written: not if their append was refused.
WITH run AS MATERIALIZED (
    SELECT t.id, t.kept, t.attempt, t.last_seq, t.turns, t.pending, t.worker_id, t.claimed_at, t.cancel_requested,
           r.note, r.note ->> 'outcome' = 'calls' AS calls,
           -- Not before the present: claims may pass over what is due for longer than they look back.
           CASE WHEN r.note ->> 'outcome' = 'calls' THEN 'infinity'::timestamptz
                ELSE greatest(now(), coalesce((r.note ->> 'until')::timestamptz,
                                              now() + (r.note ->> 'for')::float8 * interval '1 second'))
           END AS wakes_at,
           coalesce((r.note ->> 'interruptible')::boolean, false) AS interruptible,
           coalesce((r.note ->> 'interruptible')::boolean AND t.pending > 0
                    AND NOT t.cancel_requested, false) AS interrupted
      FROM (SELECT unnest(@tasks::uuid[]) AS id, unnest(@attempts::integer[]) AS attempt,
                   unnest(@claims::timestamptz[]) AS claimed_at, unnest(@notes::text[])::json AS note) r
      JOIN holdfast.tasks t ON t.id = r.id AND t.attempt = r.attempt AND t.claimed_at = r.claimed_at
       AND t.xmin = pg_current_xact_id()::xid
     WHERE t.id = ANY(@tasks::uuid[]) AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
), upd AS (
    UPDATE holdfast.tasks t
       SET worker_id = NULL, resumed_seq = NULL, interruptible = r.interruptible, lineage = t.lineage OR r.calls,
           turns = CASE WHEN r.interrupted THEN r.turns ELSE r.turns + 1 END,
           pending = CASE WHEN r.interrupted THEN r.pending - 1 ELSE r.pending END,
           wakes_at = CASE WHEN NOT r.interrupted AND NOT r.cancel_requested THEN r.wakes_at END
      FROM run r WHERE t.id = ANY(@tasks::uuid[]) AND t.id = r.id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), waiting AS (
    UPDATE holdfast.task_queue q
       SET worker_id = NULL, tries = 0, turn = q.turn + 1, away_since = NULL, suspect = false, spared = 0,
           input_seq = r.last_seq, interrupted = r.interrupted,
           wakes_at = CASE WHEN NOT r.interrupted AND NOT r.cancel_requested THEN r.wakes_at END,
           available_at = CASE WHEN NOT r.interrupted AND NOT r.cancel_requested AND NOT r.calls THEN r.wakes_at
                               ELSE now() END,
           message_seq = CASE WHEN r.interrupted THEN holdfast.message_after(q.id, q.message_seq)
                              ELSE q.message_seq END,
           message_bytes = CASE WHEN r.interrupted THEN coalesce(octet_length(
               holdfast.message_at(q.id, holdfast.message_after(q.id, q.message_seq))::text), 0) ELSE 0 END,
           forwarded = nullif(q.forwarded - q.message_seq::text, '{}')
      FROM run r WHERE q.id = ANY(@tasks::uuid[]) AND q.id = r.id
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, attempt, payload, worker_id, claimed_at)
    SELECT id, last_seq, 4, kept, attempt,
           CASE WHEN calls THEN note
                ELSE json_build_object('outcome', 'waits', 'until', wakes_at, 'interruptible', interruptible) END,
           worker_id, claimed_at
      FROM run
)
SELECT id, (interrupted OR cancel_requested)::boolean AS again,
       coalesce(CASE WHEN NOT calls THEN wakes_at END, now())::timestamptz AS wakes_at,
       (CASE WHEN calls AND NOT cancel_requested THEN holdfast.calls_open(id, last_seq, note)
             ELSE 0 END)::integer AS kin
  FROM run;

-- name: RunStates :many
-- Tells a fenced run from one whose task another session has locked, and from one whose append was
-- committed before its connection died.
SELECT t.* FROM unnest(@ids::uuid[]) AS i (id)
 CROSS JOIN LATERAL (
    SELECT x.id, x.attempt, x.claimed_at, x.run_ordinal, x.posted, x.state, x.last_seq, x.pushes,
           (x.worker_id IS NOT NULL)::boolean AS owned
      FROM holdfast.tasks x
     WHERE x.id = i.id AND x.id BETWEEN @lowest AND @highest OFFSET 0
 ) t;

-- name: EventsAfter :many
-- A reader's next page of one log, by primary key. before_at is when the reader's last event was
-- committed, in microseconds, with the event that follows it; otherwise, or if that event was
-- deleted, 0.
SELECT sqlc.embed(e),
       coalesce(CASE WHEN e.seq - 1 = sqlc.arg(after)::bigint THEN (
           SELECT extract(epoch FROM p.created_at) * 1000000
             FROM holdfast.task_events p
            WHERE p.task = @task AND p.seq = sqlc.arg(after)::bigint
       ) END, 0)::bigint AS before_at
  FROM holdfast.task_events e
 WHERE e.task = @task AND e.seq > sqlc.arg(after)::bigint
 ORDER BY e.seq LIMIT @max_rows;

-- name: EventsOf :many
-- A page of the part of a log that a response shows: messages and statuses, and artifacts if wanted. A column
-- that it does not show would cost a tenth of the time of a long log. The rows of each partition come in order, by
-- the primary key. There is no ORDER BY, because a join would then sort, and a sort writes a long log to disk.
SELECT l.seq, l.kind, l.state, l.append, l.artifact_id, l.payload, l.created_at
  FROM holdfast.callers_log l
 WHERE l.task = @task AND l.seq > @after AND l.seq <= @upto AND (l.kind <> 3 OR @with_artifacts::boolean);

-- name: EventsCatchUp :many
-- The hub's read for many topics at once. For a topic with more events than the limit, the hub
-- reads again. The lowest and the highest id prune the partitions that hold none of them. before_at
-- is as in EventsAfter.
SELECT e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload, e.created_at,
       coalesce(CASE WHEN e.seq = h.after + 1 THEN (
           SELECT extract(epoch FROM p.created_at) * 1000000 FROM holdfast.task_events p
            WHERE p.task = h.task AND p.seq = h.after AND p.task BETWEEN @lowest AND @highest
       ) END, 0)::bigint AS before_at
  FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@afters::bigint[]) AS after) h
 CROSS JOIN LATERAL (
    SELECT * FROM holdfast.task_events x
     WHERE x.task = h.task AND x.seq > h.after AND x.task BETWEEN @lowest AND @highest
     ORDER BY x.seq LIMIT @max_rows
 ) e;

-- name: EventAt :one
-- When an event of a task that the caller sees was committed, by primary key.
SELECT l.created_at FROM holdfast.callers_log l WHERE l.task = @task AND l.seq = @seq;

-- name: ArtifactIDs :many
-- The artifacts of a task in the order of their first appearance, for a run that continues it: those
-- that the newest listing names, and those of the chunks after it. An artifact may be in both. By
-- primary keys.
WITH listing AS MATERIALIZED (
    SELECT e.seq, e.payload -> 'artifacts' AS ids
      FROM holdfast.task_events e
     WHERE e.task = @task AND e.kind = 2
       AND e.seq = (SELECT t.artifacts_seq FROM holdfast.tasks t WHERE t.id = @task AND t.state NOT IN (5, 6, 7, 8))
)
SELECT x.artifact_id::text AS artifact_id
  FROM (SELECT i.artifact_id, 0 AS first_seq, i.nth
          FROM listing l, json_array_elements_text(l.ids) WITH ORDINALITY AS i (artifact_id, nth)
         UNION ALL
        SELECT e.artifact_id, min(e.seq), 0 FROM holdfast.task_events e
         WHERE e.task = @task AND e.kind = 3 AND e.seq > coalesce((SELECT l.seq FROM listing l), 0)
         GROUP BY e.artifact_id) x
 ORDER BY x.first_seq, x.nth;
