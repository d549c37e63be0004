-- Writing and reading the log.

-- name: EventsAppend :many
-- Writes the events of any number of runs in one commit. Inputs have one element per event; the
-- events of a run are adjacent and in order. ordinal is the number of events that the run wrote
-- before its first one here. A run writes only while its attempt is the task's and was claimed at the
-- same time (a failover that loses a claim lets the next one draw the same attempt), it has a worker,
-- and its ordinal fits. A statement has one claim of each attempt. A run without a row in the result was fenced,
-- another session has locked its task, or this is a retry of a committed statement; RunStates tells which.
--
-- A run has one writer: its worker, or the run API (posts). after is the ordinal with these events: a posted
-- event may be none in the log, or two. With the ordinal -1 the server ends the run, whatever its writer has written.
--
-- A run that parks while a message is already waiting does not park. The task goes back to
-- submitted for that message, with the run's status message. A run that parks after the client
-- asked to cancel it is canceled instead.
--
-- Rows are looked up by an array of ids. On a quiet system ANALYZE sees an empty queue; a join
-- planned then would read the whole queue, or all open tasks, at every append. eff has a join with
-- one row, of which PostgreSQL expects ten: for a few runs it would look up each one alone, in any
-- index that has the id. Beside an old snapshot it takes reading a whole index for a look-up.
--
-- A run may end in a wait: its last event is the run note with it (wait), which names a time (until)
-- or a number of seconds (for). The task keeps its state and its queue row, which no worker claims
-- before its timer fires. If the wait is interruptible and a message waits already, or if the client
-- asked to cancel the task, the next turn is due at once. A run note with calls is such a wait without an
-- end (infinity): the duty calls wakes the task when all calls have their results.
--
-- A run that parks may ask for its resume URL to be valid for some seconds (resume). If a resume has come
-- already (resumed_seq), the run does not park: the next turn is that of the resume, before those of
-- waiting messages. A resume that no run asked for is dropped with the turn.
--
-- told, at one event of a run, is the metadata of all its statuses.
--
-- The event that ends the run records its worker and its start. Headers of the client that were kept for the turn are
-- removed with it; those of waiting messages stay.
--
-- Webhooks are marked last, by a function with its own snapshot, and only for tasks that have
-- webhooks. Other functions record calls, and the end of a task that was called or has called.
WITH inp AS MATERIALIZED (
    SELECT unnest(@tasks::uuid[]) AS task,
           unnest(@attempts::integer[]) AS attempt,
           unnest(@claims::timestamptz[]) AS claimed_at,
           unnest(@ordinals::bigint[]) AS ordinal,
           unnest(@posts::boolean[]) AS post,
           unnest(@afters::bigint[]) AS after,
           unnest(@kinds::smallint[]) AS kind,
           unnest(@states::smallint[]) AS state,
           unnest(@directs::boolean[]) AS direct,
           unnest(@appends::boolean[]) AS append,
           unnest(@lasts::boolean[]) AS last,
           unnest(@waits::boolean[]) AS wait,
           unnest(@resumes::float8[]) AS resume,
           unnest(@artifact_ids::text[]) AS artifact_id,
           unnest(@payloads::text[]) AS payload,
           unnest(@tolds::text[]) AS told,
           unnest(@artifact_sizes::bigint[]) AS artifact_size,
           unnest(@listings::boolean[]) AS listing,
           generate_subscripts(@tasks::uuid[], 1) AS ord
), num AS MATERIALIZED (
    SELECT i.*, row_number() OVER (PARTITION BY i.task, i.attempt ORDER BY i.ord) AS rn FROM inp i
), run AS MATERIALIZED (
    SELECT task, attempt, claimed_at, ordinal, post, max(after) AS after, count(*) AS n,
           max(ord) FILTER (WHERE state <> 0) AS status_ord, max(payload) FILTER (WHERE wait)::json AS wait,
           max(ord) FILTER (WHERE kind IN (2, 3)) - min(ord) + 1 AS shown_rn,
           sum(artifact_size)::bigint AS artifact_bytes, nullif(max(told), '')::json AS told
      FROM inp GROUP BY task, attempt, claimed_at, ordinal, post
), lck AS MATERIALIZED (
    SELECT t.id, t.kept, t.attempt, t.last_seq, t.turns, t.pending, t.cancel_requested, t.cancel_requested_at,
           t.worker_id, t.claimed_at, t.pushes, t.lineage,
           t.resumed_seq, r.post, r.after, r.n, r.status_ord, r.wait, r.shown_rn, r.artifact_bytes, r.told
      FROM run r JOIN holdfast.tasks t ON t.id = r.task AND t.attempt = r.attempt AND t.claimed_at = r.claimed_at
       AND (r.ordinal = -1 OR r.ordinal = t.run_ordinal AND r.post = t.posted)
     WHERE t.id = ANY(ARRAY(SELECT task FROM run)) AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
     ORDER BY t.id
       FOR NO KEY UPDATE OF t SKIP LOCKED
), eff AS MATERIALIZED (
    SELECT l.id, l.kept, l.attempt, l.last_seq, l.turns, l.pending, l.worker_id, l.claimed_at, l.pushes, l.lineage,
           l.post, l.after, l.n, l.status_ord, l.shown_rn, l.artifact_bytes, l.told,
           s.rn AS status_rn, CASE WHEN s.listing THEN l.last_seq + s.rn END AS artifacts_seq,
           coalesce(s.direct, false) AS direct,
           coalesce(s.state IN (3, 4) AND (l.pending > 0 OR s.resume > 0 AND l.resumed_seq IS NOT NULL)
                    AND NOT l.cancel_requested, false) AS again,
           CASE WHEN s.state IN (3, 4) AND l.cancel_requested THEN 7::smallint
                WHEN s.state IN (3, 4) AND (l.pending > 0 OR s.resume > 0 AND l.resumed_seq IS NOT NULL)
                THEN 1::smallint
                ELSE s.state END AS state,
           CASE WHEN s.resume > 0 THEN now() + s.resume * interval '1 second' END AS resume_until,
           CASE WHEN s.state IN (3, 4) AND s.resume > 0 AND NOT l.cancel_requested
                THEN l.resumed_seq END AS resumed_seq,
           l.wait IS NOT NULL AS waits, l.cancel_requested, l.cancel_requested_at, l.wait,
           coalesce(l.wait ->> 'outcome' = 'calls', false) AS calls,
           -- Not before the present: claims may pass over what is due for longer than they look back.
           CASE WHEN l.wait ->> 'outcome' = 'calls' THEN 'infinity'::timestamptz
                ELSE greatest(now(),
                              coalesce((l.wait ->> 'until')::timestamptz,
                                       now() + (l.wait ->> 'for')::float8 * interval '1 second'))
           END AS wakes_at,
           coalesce((l.wait ->> 'interruptible')::boolean, false) AS interruptible,
           coalesce((l.wait ->> 'interruptible')::boolean AND l.pending > 0
                    AND NOT l.cancel_requested, false) AS interrupted
      FROM lck l LEFT JOIN num s ON s.ord = l.status_ord CROSS JOIN unnest(ARRAY(SELECT 1)) AS expected
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = e.last_seq + e.n,
           run_ordinal = CASE WHEN e.after < 0 THEN t.run_ordinal ELSE e.after END,
           heard_at = CASE WHEN e.post THEN now() ELSE t.heard_at END,
           state = coalesce(e.state, t.state),
           status_seq = coalesce(e.last_seq + e.status_rn, t.status_seq),
           status_at = CASE WHEN e.status_rn IS NULL THEN t.status_at ELSE now() END,
           direct = t.direct OR e.direct,
           artifact_bytes = t.artifact_bytes + e.artifact_bytes,
           agent_metadata = CASE WHEN e.told IS NULL THEN t.agent_metadata
                                 ELSE holdfast.merged(t.agent_metadata, e.told) END,
           artifacts_seq = coalesce(e.artifacts_seq, t.artifacts_seq),
           -- From the locked row: an UPDATE with an older snapshot is first computed, and its
           -- CHECKs tested, on the version in that snapshot.
           turns = CASE WHEN e.waits AND NOT e.interrupted OR e.resumed_seq IS NOT NULL THEN e.turns + 1
                        ELSE e.turns END,
           pending = CASE WHEN e.again AND e.resumed_seq IS NULL OR e.interrupted THEN e.pending - 1 ELSE e.pending END,
           worker_id = CASE WHEN e.again OR e.waits OR coalesce(e.state, t.state) >= 3 THEN NULL ELSE t.worker_id END,
           wakes_at = CASE WHEN e.waits AND NOT e.interrupted AND NOT e.cancel_requested THEN e.wakes_at END,
           interruptible = e.interruptible,
           resume_until = CASE WHEN e.state IN (3, 4) THEN e.resume_until END,
           resumed_seq = CASE WHEN e.again OR e.waits OR e.state >= 3 THEN NULL ELSE t.resumed_seq END,
           lineage = e.lineage OR e.calls
      FROM eff e WHERE t.id = ANY(ARRAY(SELECT id FROM eff)) AND t.id = e.id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
    RETURNING t.id, t.state
), done AS (
    DELETE FROM holdfast.task_queue q WHERE q.id = ANY(ARRAY(SELECT id FROM upd WHERE state >= 3))
), requeued AS (
    UPDATE holdfast.task_queue q
       SET worker_id = NULL, available_at = now(), tries = 0, turn = q.turn + 1, input_seq = e.resumed_seq,
           interrupted = false,
           message_seq = CASE WHEN e.resumed_seq IS NULL THEN holdfast.message_after(q.id, q.message_seq)
                              ELSE q.message_seq END,
           message_bytes = coalesce(octet_length(CASE WHEN e.resumed_seq IS NULL
               THEN holdfast.message_at(q.id, holdfast.message_after(q.id, q.message_seq))
               ELSE holdfast.note_at(q.id, e.resumed_seq) END::text), 0),
           forwarded = nullif(q.forwarded - q.message_seq::text, '{}')
      FROM eff e WHERE q.id = ANY(ARRAY(SELECT id FROM eff WHERE again)) AND q.id = e.id
), waiting AS (
    UPDATE holdfast.task_queue q
       SET worker_id = NULL, tries = 0, turn = q.turn + 1, away_since = NULL, suspect = false, spared = 0,
           input_seq = e.last_seq + e.n, interrupted = e.interrupted,
           wakes_at = CASE WHEN NOT e.interrupted AND NOT e.cancel_requested THEN e.wakes_at END,
           available_at = CASE WHEN NOT e.interrupted AND NOT e.cancel_requested AND NOT e.calls THEN e.wakes_at
                               ELSE now() END,
           message_seq = CASE WHEN e.interrupted THEN holdfast.message_after(q.id, q.message_seq)
                              ELSE q.message_seq END,
           message_bytes = CASE WHEN e.interrupted
               THEN coalesce(octet_length(
                   holdfast.message_at(q.id, holdfast.message_after(q.id, q.message_seq))::text), 0)
               ELSE 0 END,
           forwarded = nullif(q.forwarded - q.message_seq::text, '{}')
      FROM eff e WHERE q.id = ANY(ARRAY(SELECT id FROM eff WHERE waits)) AND q.id = e.id
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, state, attempt, append, last, artifact_id, payload,
                                      worker_id, claimed_at)
    SELECT n.task, e.last_seq + n.rn, n.kind, e.kept,
           CASE WHEN n.ord = e.status_ord THEN e.state ELSE nullif(n.state, 0) END,
           n.attempt, n.append, n.last, nullif(n.artifact_id, ''),
           CASE WHEN n.wait AND NOT e.calls
                THEN json_build_object('outcome', 'waits', 'until', e.wakes_at, 'interruptible', e.interruptible)
                ELSE nullif(n.payload, '')::json END,
           CASE WHEN n.ord = e.status_ord AND (e.again OR e.state >= 3) OR n.wait THEN e.worker_id END,
           CASE WHEN n.ord = e.status_ord AND (e.again OR e.state >= 3) OR n.wait THEN e.claimed_at END
      FROM num n JOIN eff e ON e.id = n.task AND e.attempt = n.attempt
), due AS MATERIALIZED (
    SELECT array_agg(id) AS tasks, array_agg(last_seq + status_rn) AS statuses, array_agg(last_seq + shown_rn) AS newest
      FROM (SELECT id, last_seq, status_rn, shown_rn FROM eff WHERE pushes AND shown_rn IS NOT NULL ORDER BY id) e
)
SELECT id, attempt, last_seq::bigint AS base, coalesce(state, 0)::smallint AS state,
       (again OR interrupted OR waits AND cancel_requested)::boolean AS again, now()::timestamptz AS at,
       coalesce(extract(epoch FROM CASE WHEN state >= 5 AND cancel_requested THEN now() - cancel_requested_at END),
                -1)::float8 AS cancel_seconds,
       coalesce(CASE WHEN NOT calls THEN wakes_at END, now())::timestamptz AS wakes_at,
       (CASE WHEN calls AND NOT cancel_requested THEN holdfast.calls_open(id, last_seq + n, wait)
             WHEN lineage AND state >= 3 THEN holdfast.call_settled(id, last_seq + status_rn)
             ELSE 0 END)::integer AS kin,
       (SELECT CASE WHEN due.tasks IS NULL THEN 0 ELSE holdfast.push_mark(due.tasks, due.statuses, due.newest) END
          FROM due)::integer AS marked
  FROM eff;

-- name: EventsAppendLean :many
-- EventsAppend for runs that do only ordinary things: artifacts, notes, and the states working and ended. None of their
-- events is a wait or lists artifacts. The server has counted: a run has n events, of which the
-- status_rn-th sets its state (0: none does), and the shown_rn-th is the last one that webhooks show; rn is an event's
-- place in its run, and run is the place of its run among the runs. Fences and results are those of EventsAppend.
--
-- With a few runs, PostgreSQL spends most of its time on the start of a statement, and each part of it costs.
-- LATERAL and OFFSET 0 look up each run by its id, whatever ANALYZE has seen.
WITH run AS MATERIALIZED (
    SELECT unnest(@tasks::uuid[]) AS id,
           unnest(@attempts::integer[]) AS attempt,
           unnest(@claims::timestamptz[]) AS claimed_at,
           unnest(@ordinals::bigint[]) AS ordinal,
           unnest(@posts::boolean[]) AS post,
           unnest(@afters::bigint[]) AS after,
           unnest(@counts::bigint[]) AS n,
           unnest(@run_states::smallint[]) AS state,
           unnest(@status_rns::bigint[]) AS status_rn,
           unnest(@shown_rns::bigint[]) AS shown_rn,
           unnest(@directs::boolean[]) AS direct,
           unnest(@artifact_sizes::bigint[]) AS artifact_bytes,
           unnest(@tolds::text[]) AS told,
           generate_subscripts(@tasks::uuid[], 1) AS nth
), lck AS MATERIALIZED (
    SELECT t.id, t.attempt, r.claimed_at, r.post, r.after, r.n, nullif(r.state, 0) AS state,
           nullif(r.status_rn, 0) AS status_rn, nullif(r.shown_rn, 0) AS shown_rn,
           r.direct, r.artifact_bytes, nullif(r.told, '')::json AS told, r.nth, t.kept, t.last_seq, t.worker_id,
           t.pushes, t.lineage, t.cancel_requested, t.cancel_requested_at
      FROM run r
     CROSS JOIN LATERAL (
        SELECT x.id, x.attempt, x.kept, x.last_seq, x.worker_id, x.pushes, x.lineage, x.cancel_requested,
               x.cancel_requested_at
          FROM holdfast.tasks x
         WHERE x.id = r.id AND x.attempt = r.attempt AND x.claimed_at = r.claimed_at
           AND (r.ordinal = -1 OR x.run_ordinal = r.ordinal AND x.posted = r.post)
           AND x.state NOT IN (3, 4, 5, 6, 7, 8) AND x.worker_id IS NOT NULL
        OFFSET 0 FOR NO KEY UPDATE OF x SKIP LOCKED
     ) t
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = l.last_seq + l.n,
           run_ordinal = CASE WHEN l.after < 0 THEN t.run_ordinal ELSE l.after END,
           heard_at = CASE WHEN l.post THEN now() ELSE t.heard_at END,
           state = coalesce(l.state, t.state),
           status_seq = coalesce(l.last_seq + l.status_rn, t.status_seq),
           status_at = CASE WHEN l.status_rn IS NULL THEN t.status_at ELSE now() END,
           direct = t.direct OR l.direct,
           artifact_bytes = t.artifact_bytes + l.artifact_bytes,
           agent_metadata = CASE WHEN l.told IS NULL THEN t.agent_metadata
                                 ELSE holdfast.merged(t.agent_metadata, l.told) END,
           worker_id = CASE WHEN l.state >= 3 THEN NULL ELSE t.worker_id END,
           wakes_at = NULL,
           interruptible = false,
           resume_until = NULL,
           resumed_seq = CASE WHEN l.state >= 3 THEN NULL ELSE t.resumed_seq END
      FROM lck l WHERE t.id = ANY(@tasks::uuid[]) AND t.id = l.id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), done AS (
    DELETE FROM holdfast.task_queue q WHERE q.id = ANY(ARRAY(SELECT id FROM lck WHERE state >= 3))
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, state, attempt, append, last, artifact_id, payload,
                                      worker_id, claimed_at)
    SELECT l.id, l.last_seq + e.rn, e.kind, l.kept, nullif(e.state, 0), l.attempt, e.append, e.last,
           nullif(e.artifact_id, ''), nullif(e.payload, '')::json,
           CASE WHEN e.rn = l.status_rn AND l.state >= 3 THEN l.worker_id END,
           CASE WHEN e.rn = l.status_rn AND l.state >= 3 THEN l.claimed_at END
      FROM (SELECT unnest(@runs::integer[]) AS run,
                   unnest(@rns::bigint[]) AS rn,
                   unnest(@kinds::smallint[]) AS kind,
                   unnest(@states::smallint[]) AS state,
                   unnest(@appends::boolean[]) AS append,
                   unnest(@lasts::boolean[]) AS last,
                   unnest(@artifact_ids::text[]) AS artifact_id,
                   unnest(@payloads::text[]) AS payload) e
      JOIN lck l ON l.nth = e.run
), due AS MATERIALIZED (
    SELECT array_agg(id) AS tasks, array_agg(last_seq + status_rn) AS statuses, array_agg(last_seq + shown_rn) AS newest
      FROM (SELECT id, last_seq, status_rn, shown_rn FROM lck WHERE pushes AND shown_rn IS NOT NULL ORDER BY id) l
)
SELECT id, attempt, last_seq::bigint AS base, coalesce(state, 0)::smallint AS state, false AS again,
       now()::timestamptz AS at,
       coalesce(extract(epoch FROM CASE WHEN state >= 5 AND cancel_requested THEN now() - cancel_requested_at END),
                -1)::float8 AS cancel_seconds,
       now()::timestamptz AS wakes_at,
       (CASE WHEN lineage AND state >= 3 THEN holdfast.call_settled(id, last_seq + status_rn)
             ELSE 0 END)::integer AS kin,
       (SELECT CASE WHEN due.tasks IS NULL THEN 0 ELSE holdfast.push_mark(due.tasks, due.statuses, due.newest) END
          FROM due)::integer AS marked
  FROM lck;

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
