-- Claiming runs and giving them back.

-- name: QueueClaim :many
-- Claims up to slots[i] tasks of agents[i] for a worker, which have been due for older[i], and raises
-- their attempt; and up to @suspects runs that may have ended their process. The ids are
-- collected in an array first: PostgreSQL plans an IN or a join as if LIMIT were unknown, and reads
-- the whole queue. since[i] skips the dead prefix of the index, which vacuum cannot remove while
-- another session has an old snapshot. Index task_queue_ready.
--
-- For remote workers there are slots of theirs, and slots[i] of them for agents[i]: its runs go to the workers
-- remote_workers[j] with worker_agents[j] = agents[i], in the order of the arrays. Their lease begins now and lasts
-- leases[i] (0: none, they are not remote), a replica looks at them after looks[i], and the run API writes their
-- events.
--
-- All claimed messages larger than @small together have at most @bytes, and the others @most. With @alone
-- it claims the oldest large one even if that does not fit. Without, it passes over those that do not, so
-- that small messages need not wait for them.
--
-- It never waits for a lock: it leaves a task with a locked row for the next claim. A message, a
-- cancel, or a write that is about to be fenced may hold the lock. So it can start at the queue
-- without a deadlock, although all other statements start at the task. It counts only tasks that it
-- could lock: PostgreSQL locks a queue row, then its task, and stops at the limit. No task that it is
-- about to lock has moved: the commit that ends a task deletes its queue row, and this statement has
-- either locked that row before or does not find it.
WITH a AS MATERIALIZED (
    SELECT unnest(@agents::text[]) AS agent, unnest(@slots::integer[]) AS slots, unnest(@since::timestamptz[]) AS since,
           unnest(@older::interval[]) AS older, unnest(@leases::interval[]) AS lease, unnest(@looks::interval[]) AS look
), s AS MATERIALIZED (
    SELECT q.id, q.agent FROM holdfast.task_queue q
     WHERE q.suspect AND q.worker_id IS NULL AND q.available_at <= now() AND q.agent = ANY(@agents::text[])
       AND (q.message_bytes <= @bytes::bigint OR @alone::boolean)
       AND q.available_at <= now() - (SELECT a.older FROM a WHERE a.agent = q.agent)
     ORDER BY q.available_at, q.id
     LIMIT @suspects::integer
       FOR UPDATE SKIP LOCKED
), c AS MATERIALIZED (
    SELECT ARRAY(
        SELECT x.id
          FROM a
         CROSS JOIN LATERAL (
            SELECT r.id
              FROM (SELECT q.id FROM holdfast.task_queue q
                     WHERE q.agent = a.agent AND q.worker_id IS NULL AND q.wakes_at IS NULL AND NOT q.suspect
                       AND q.available_at >= a.since AND q.available_at <= now() - a.older
                       AND q.id <> ALL(@skip::uuid[]) AND (q.message_bytes <= @bytes::bigint OR @alone::boolean)
                     ORDER BY q.available_at, q.id
                       FOR UPDATE SKIP LOCKED) r
             CROSS JOIN LATERAL (
                SELECT y.id FROM holdfast.tasks y
                 WHERE y.id = r.id AND y.state NOT IN (3, 4, 5, 6, 7, 8)
                   FOR NO KEY UPDATE SKIP LOCKED
             ) y
             LIMIT a.slots - (SELECT count(*) FROM s WHERE s.agent = a.agent)
         ) x
    ) || ARRAY(SELECT id FROM s) AS ids
), b AS MATERIALIZED (
    SELECT ARRAY(
        SELECT x.id
          FROM (SELECT q.id, sum(q.message_bytes) OVER w AS bytes, row_number() OVER w AS nth,
                       CASE WHEN q.message_bytes > @small::bigint THEN @bytes::bigint
                            ELSE @most::bigint END AS limit_bytes
                  FROM holdfast.task_queue q WHERE q.id = ANY((SELECT ids FROM c)::uuid[])
                WINDOW w AS (PARTITION BY q.message_bytes > @small::bigint ORDER BY q.available_at, q.id)) x
         WHERE x.bytes <= x.limit_bytes OR x.nth = 1 AND @alone::boolean
    ) AS ids
), l AS MATERIALIZED (
    SELECT ARRAY(
        SELECT x.id FROM holdfast.tasks x
         WHERE x.id = ANY((SELECT ids FROM b)::uuid[]) AND x.state NOT IN (3, 4, 5, 6, 7, 8)
           FOR NO KEY UPDATE SKIP LOCKED
    ) AS ids
), slot AS MATERIALIZED (
    SELECT u.agent, u.worker, row_number() OVER (PARTITION BY u.agent ORDER BY u.ord) AS nth
      FROM (SELECT unnest(@worker_agents::text[]) AS agent, unnest(@remote_workers::uuid[]) AS worker,
                   generate_subscripts(@worker_agents::text[], 1) AS ord) u
), given AS MATERIALIZED (
    SELECT o.id, coalesce(slot.worker, @worker::uuid) AS worker, nullif(a.lease, '0') AS lease,
           nullif(a.look, '0') AS look
      FROM (SELECT q.id, q.agent, row_number() OVER (PARTITION BY q.agent ORDER BY q.available_at, q.id) AS nth
              FROM holdfast.task_queue q WHERE q.id = ANY((SELECT ids FROM l)::uuid[])) o
      JOIN a ON a.agent = o.agent
      LEFT JOIN slot ON slot.agent = o.agent AND slot.nth = o.nth
), q AS (
    UPDATE holdfast.task_queue q
       SET worker_id = (SELECT given.worker FROM given WHERE given.id = q.id), tries = q.tries + 1,
           lease_until = now() + (SELECT given.lease FROM given WHERE given.id = q.id),
           look_at = now() + (SELECT given.look FROM given WHERE given.id = q.id)
     WHERE q.id = ANY((SELECT ids FROM l)::uuid[])
    RETURNING q.id, q.message_seq, q.message_bytes, q.input_seq, q.interrupted, q.turn, q.tries, q.available_at,
              q.away_since, q.suspect, q.spared, q.forwarded ->> q.message_seq::text AS forwarded
), t AS (
    UPDATE holdfast.tasks t
       SET worker_id = (SELECT given.worker FROM given WHERE given.id = t.id), attempt = t.attempt + 1,
           runs = t.runs + 1, run_ordinal = 0, heard_at = NULL, claimed_at = now(), wakes_at = NULL,
           posted = (SELECT given.lease IS NOT NULL FROM given WHERE given.id = t.id)
     WHERE t.id = ANY((SELECT ids FROM l)::uuid[]) AND t.state NOT IN (3, 4, 5, 6, 7, 8)
    RETURNING t.id, t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.state, t.last_seq, t.attempt,
              t.cancel_requested, t.dialect, t.metadata, t.created_at, t.artifact_bytes, t.traceparent, t.worker_id
)
SELECT t.id, t.client_id, t.agent, t.tenant, t.owner, t.context_id, t.state, t.last_seq, t.attempt,
       t.cancel_requested, t.dialect, t.metadata, t.created_at, t.artifact_bytes, t.traceparent,
       t.worker_id::uuid AS worker_id,
       q.message_seq, q.message_bytes, coalesce(q.input_seq, 0)::bigint AS input_seq, q.interrupted, q.turn, q.tries,
       q.available_at, now()::timestamptz AS claimed_at,
       (q.away_since IS NOT NULL)::boolean AS away, coalesce(now() - q.away_since, interval '0')::interval AS away_for,
       q.suspect, q.spared,
       CAST(CASE WHEN q.input_seq IS NULL OR q.interrupted
                 THEN holdfast.message_at(t.id, q.message_seq) END AS json) AS payload,
       holdfast.note_at(t.id, q.input_seq) AS input, coalesce(q.forwarded, '')::text AS forwarded
  FROM t JOIN q ON q.id = t.id;

-- name: RunRequeue :one
-- Ends an attempt without ending the task: the queue row becomes due after @delay, or keeps its place
-- (@in_place), and the log records why (@logged). @uncount does not count the attempt (a worker's
-- shutdown is not the task's fault). @away says that the agent did not begin the run; in place, that it
-- is away, which agent_outages records.
-- Fenced like EventsAppend. No row: the run no longer belongs to this worker. It does not wait for a
-- task or a queue row that another session has locked (55P03): the connections of claims and leases would wait,
-- too. It leaves an outage alone that is locked.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.kept, t.last_seq, t.attempt, t.cancel_requested, t.worker_id, t.claimed_at FROM holdfast.tasks t
     WHERE t.id = @id AND t.attempt = @attempt AND t.claimed_at = @claimed_at::timestamptz
       AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
       FOR NO KEY UPDATE NOWAIT
), own AS MATERIALIZED (
    -- The scalar subquery makes PostgreSQL lock the task before the queue row.
    SELECT q.id FROM holdfast.task_queue q WHERE q.id = (SELECT lck.id FROM lck) FOR UPDATE NOWAIT
), known AS MATERIALIZED (
    SELECT o.since
      FROM holdfast.agent_outages o
     WHERE o.agent = @agent::text AND @away::boolean AND @in_place::boolean
       FOR UPDATE SKIP LOCKED
), upd AS (
    UPDATE holdfast.tasks t
       SET last_seq = CASE WHEN @logged::boolean THEN lck.last_seq + 1 ELSE lck.last_seq END, worker_id = NULL,
           runs = CASE WHEN @uncount::boolean THEN t.runs - 1 ELSE t.runs END
      FROM lck WHERE t.id = @id AND t.id = lck.id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), queued AS (
    UPDATE holdfast.task_queue q
       SET worker_id = NULL,
           -- The next claim of a canceled task only records its end, so there is no reason to wait.
           available_at = CASE WHEN lck.cancel_requested THEN now()
                               WHEN @in_place::boolean THEN q.available_at
                               ELSE now() + @delay::interval END,
           away_since = CASE WHEN @away::boolean THEN coalesce(q.away_since, now()) END,
           suspect = false,
           tries = CASE WHEN @uncount::boolean THEN q.tries - 1 ELSE q.tries END
      FROM lck WHERE q.id = @id AND q.id = lck.id AND EXISTS (SELECT FROM own)
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, attempt, payload, worker_id, claimed_at)
    SELECT lck.id, lck.last_seq + 1, 4, lck.kept, lck.attempt, CAST(@payload::text AS json), lck.worker_id,
           lck.claimed_at
      FROM lck
     WHERE @logged::boolean
), outage AS (
    INSERT INTO holdfast.agent_outages AS o (agent, error, worker_id)
    SELECT @agent::text, @error::text, lck.worker_id FROM lck WHERE @away::boolean AND @in_place::boolean
       AND (EXISTS (SELECT FROM known) OR NOT EXISTS (SELECT FROM holdfast.agent_outages x WHERE x.agent = @agent))
    ON CONFLICT (agent) DO UPDATE
       SET since = CASE WHEN o.last_at < now() - interval '1 minute' THEN now() ELSE o.since END,
           last_at = now(), error = excluded.error, worker_id = excluded.worker_id
    RETURNING o.since
)
SELECT (lck.last_seq + 1)::bigint AS seq, now()::timestamptz AS at,
       coalesce(now() - coalesce((SELECT since FROM outage), (SELECT x.since FROM holdfast.agent_outages x
           WHERE x.agent = @agent AND @away::boolean AND @in_place::boolean
             AND x.last_at >= now() - interval '1 minute')), interval '0')::interval AS away_for
  FROM lck;

-- name: AgentsBegan :many
-- Ends the outages of agents that have begun a run. It returns those whose outage is locked, and stays.
WITH free AS MATERIALIZED (
    SELECT o.agent FROM holdfast.agent_outages o WHERE o.agent = ANY(@agents::text[]) FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM holdfast.agent_outages o WHERE o.agent = ANY(ARRAY(SELECT agent FROM free))
)
SELECT o.agent
  FROM holdfast.agent_outages o
 WHERE o.agent = ANY(@agents::text[]) AND o.agent <> ALL(ARRAY(SELECT agent FROM free));

-- name: QueueClearSuspect :exec
-- Clears the suspicion against a run that has not ended its process. By primary key; it locks the queue
-- row alone and waits for no other lock after that.
UPDATE holdfast.task_queue SET suspect = false
 WHERE id = @id AND coalesce(worker_id = @worker::uuid, false) AND suspect; -- not by index task_queue_owned

-- name: TimersFire :many
-- Makes the turns due whose timer has fired. It locks rows without a worker, skips locked ones, and locks no task.
-- Index task_queue_timers.
WITH due AS MATERIALIZED (
    SELECT ARRAY(
        SELECT q.id FROM holdfast.task_queue q
         WHERE q.wakes_at <= now() AND q.worker_id IS NULL
         ORDER BY q.wakes_at LIMIT @most::integer
           FOR UPDATE SKIP LOCKED
    ) AS ids
)
UPDATE holdfast.task_queue q SET wakes_at = NULL, available_at = now()
 WHERE q.id = ANY((SELECT ids FROM due)::uuid[])
RETURNING q.agent;

-- name: QueueHurry :one
-- Makes the next attempt of a task due now. Locks the task, then its queue row. No row: the task is
-- not queued.
WITH lck AS MATERIALIZED (
    SELECT t.id, t.worker_id, t.wakes_at FROM holdfast.tasks t
     WHERE t.id = @id AND t.state NOT IN (3, 4, 5, 6, 7, 8)
       FOR NO KEY UPDATE
), due AS (
    UPDATE holdfast.task_queue q SET available_at = now()
     WHERE q.id = (SELECT lck.id FROM lck) AND coalesce(q.worker_id IS NULL, false) -- not by index task_queue_ready
       AND q.wakes_at IS NULL AND q.available_at > now()
    RETURNING q.id
)
SELECT (lck.worker_id IS NOT NULL)::boolean AS owned, EXISTS (SELECT FROM due)::boolean AS hurried,
       lck.wakes_at, coalesce(lck.wakes_at > now(), false)::boolean AS waits FROM lck;

-- name: RunsOwned :many
-- The runs that the database assigns to a worker. With it a worker finds a claim whose answer was lost
-- with its connection. Beside an old snapshot it reads all that the worker has run since. Index
-- task_queue_owned.
SELECT t.id, t.attempt, t.claimed_at, t.cancel_requested
  FROM holdfast.tasks t
 WHERE t.id = ANY(ARRAY(SELECT q.id FROM holdfast.task_queue q WHERE q.worker_id = @worker::uuid))
   AND t.state NOT IN (3, 4, 5, 6, 7, 8);

-- name: RunsHeld :many
-- Those of the given tasks that a worker runs. A worker asks this after a cancel hint, and once a second
-- for all of its runs. By primary key.
SELECT id, attempt, claimed_at, cancel_requested FROM holdfast.tasks
 WHERE id = ANY(@ids::uuid[]) AND state NOT IN (3, 4, 5, 6, 7, 8) AND worker_id = @worker::uuid;

-- name: RunsEnded :many
-- Those of the given attempts that are over, with what became of their tasks: the run API may have ended
-- them. By primary key.
SELECT t.id, t.attempt, t.claimed_at, t.state, (t.wakes_at IS NOT NULL)::boolean AS waits
  FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@attempts::integer[]) AS attempt,
               unnest(@claims::timestamptz[]) AS claimed_at) i
 CROSS JOIN LATERAL (
    SELECT x.id, x.attempt, x.claimed_at, x.state, x.wakes_at, x.worker_id FROM holdfast.tasks x
     WHERE x.id = i.id AND x.id BETWEEN @lowest AND @highest OFFSET 0
 ) t
 WHERE t.attempt <> i.attempt OR t.claimed_at IS DISTINCT FROM i.claimed_at OR t.worker_id IS NULL;

-- name: RunFor :one
-- An attempt for a request of the run API, with the message only if wanted. The attempt may be over (not
-- owned). By primary keys.
SELECT sqlc.embed(t), coalesce(q.worker_id = t.worker_id, false)::boolean AS owned,
       coalesce(q.message_seq, 0)::bigint AS message_seq, coalesce(q.input_seq, 0)::bigint AS input_seq,
       coalesce(q.interrupted, false)::boolean AS interrupted, coalesce(q.turn, 0)::integer AS turn,
       coalesce(q.tries, 0)::integer AS tries, coalesce(q.spared, 0)::integer AS spared,
       CAST(CASE WHEN @with_message::boolean AND (q.input_seq IS NULL OR q.interrupted)
                 THEN holdfast.message_at(t.id, q.message_seq) END AS json) AS payload,
       CAST(CASE WHEN @with_message::boolean THEN holdfast.note_at(t.id, q.input_seq) END AS json) AS input
  FROM holdfast.tasks t
  LEFT JOIN LATERAL (SELECT x.* FROM holdfast.task_queue x WHERE x.id = @id OFFSET 0) q ON true
 WHERE t.id = @id;

-- name: RunHandOver :one
-- Makes the run API the writer of an attempt, whose ordinals begin at 0 again. Fenced like EventsAppend. A repetition
-- changes nothing. No row: the attempt is over.
UPDATE holdfast.tasks t
   SET posted = true, run_ordinal = CASE WHEN t.posted THEN t.run_ordinal ELSE 0 END
 WHERE t.id = @id AND t.attempt = @attempt AND t.claimed_at = @claimed_at::timestamptz
   AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
RETURNING t.id;

-- name: RunBeat :one
-- Counts posted events that have no row in the log, and notes a sign of life. With the ordinal -1 it is only
-- that. Fenced like EventsAppend, and may be repeated. No row: the attempt is over, or the ordinal does not fit.
UPDATE holdfast.tasks t
   SET run_ordinal = CASE WHEN @ordinal::bigint >= 0 THEN @after::bigint ELSE t.run_ordinal END, heard_at = now()
 WHERE t.id = @id AND t.attempt = @attempt AND t.claimed_at = @claimed_at::timestamptz
   AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id IS NOT NULL
   AND (@ordinal::bigint = -1 OR t.posted AND t.run_ordinal IN (@ordinal::bigint, @after::bigint))
RETURNING t.cancel_requested;

-- name: RunSilence :one
-- For how long the agent of an attempt has not called the run API. No row: it never has.
SELECT (now() - t.heard_at)::interval AS silence FROM holdfast.tasks t
 WHERE t.id = @id AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.attempt = @attempt
   AND t.claimed_at = @claimed_at::timestamptz AND t.heard_at IS NOT NULL;
-- name: TasksParked :many
-- For metrics: the tasks that wait for their client, by agent, counted up to @most each. Index tasks_open_parked.
SELECT a.agent::text AS agent, p.tasks
  FROM (SELECT unnest(@agents::text[]) AS agent) a
 CROSS JOIN LATERAL (
    SELECT count(*)::bigint AS tasks
      FROM (SELECT FROM holdfast.tasks_open t WHERE t.agent = a.agent AND t.state IN (3, 4) LIMIT @most::integer) t
 ) p;

-- name: QueueDepth :many
-- For metrics: queued and running tasks, and those that wait for a timer or for calls, by agent.
SELECT agent,
       count(*) FILTER (WHERE worker_id IS NULL AND wakes_at IS NULL)::bigint AS waiting,
       count(*) FILTER (WHERE wakes_at < 'infinity')::bigint AS timers,
       count(*) FILTER (WHERE wakes_at = 'infinity')::bigint AS calls,
       count(*) FILTER (WHERE worker_id IS NOT NULL)::bigint AS running,
       coalesce(extract(epoch FROM now() - min(available_at) FILTER (WHERE worker_id IS NULL AND wakes_at IS NULL
                                                                     AND available_at <= now())), 0)::float8
           AS oldest_seconds,
       coalesce(extract(epoch FROM now() - (SELECT o.since FROM holdfast.agent_outages o
           WHERE o.agent = q.agent AND o.last_at > now() - interval '1 minute')), 0)::float8 AS away_seconds
  FROM holdfast.task_queue q GROUP BY agent;
