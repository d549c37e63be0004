-- Webhooks: configurations, and deliveries as cursors into the log.
--
-- Lock order: the tasks row, then push_cursors in the order of (task, config_id). Claims and
-- records never lock a task. Statements that claim or park skip locked rows.

-- name: PushTaskLock :one
-- Keeps events of the task from being written until the transaction ends. Later statements of the
-- transaction see all earlier events.
SELECT last_seq FROM holdfast.tasks WHERE id = @id FOR NO KEY UPDATE;

-- name: PushConfigsNew :exec
-- Writes the configurations of new tasks, before TaskCreate in its transaction.
WITH push AS MATERIALIZED (
    SELECT unnest(@tasks::uuid[]) AS task, unnest(@config_ids::text[]) AS config_id, unnest(@agents::text[]) AS agent,
           unnest(@public_ids::text[]) AS public_id, unnest(@tenants::text[]) AS tenant,
           unnest(@owners::text[]) AS owner, unnest(@dialects::text[]) AS dialect, unnest(@urls::text[]) AS url,
           unnest(@hosts::text[]) AS host, unnest(@schemes::text[]) AS schemes, unnest(@secrets::bytea[]) AS secrets,
           unnest(@artifacts::boolean[]) AS artifacts
), configured AS (
    INSERT INTO holdfast.push_configs (task, config_id, agent, public_id, dialect, url, schemes, secrets)
    SELECT task, config_id, agent, public_id, dialect, url, schemes::json, secrets FROM push
)
INSERT INTO holdfast.push_cursors (task, config_id, host, caller, artifacts)
SELECT task, config_id, host, holdfast.push_caller(tenant, owner), artifacts FROM push;

-- name: PushConfigSet :one
-- After PushTaskLock. Adds a configuration or replaces one. A replaced one keeps its place in the
-- log and is enabled again; a delivery in flight to the old URL no longer counts. No row: the task
-- has the maximum number of configurations.
WITH room AS MATERIALIZED (
    SELECT t.id, t.agent, coalesce(t.client_id, t.id::text) AS public_id,
           holdfast.push_caller(t.tenant, t.owner) AS caller
      FROM holdfast.tasks t
     WHERE t.id = @task
       AND ((SELECT count(*) FROM holdfast.push_configs c WHERE c.task = @task) < @most::integer
            OR EXISTS (SELECT FROM holdfast.push_configs c WHERE c.task = @task AND c.config_id = @config_id))
), known AS MATERIALIZED (
    SELECT holdfast.task_has_pushes(id, true) AS noted FROM room
), config AS (
    INSERT INTO holdfast.push_configs (task, config_id, agent, public_id, dialect, url, schemes, secrets)
    SELECT id, @config_id, agent, public_id, @dialect, @url, CAST(@schemes::text AS json), sqlc.narg(secrets)::bytea
      FROM room
    ON CONFLICT (task, config_id) DO UPDATE
       SET public_id = excluded.public_id, dialect = excluded.dialect, url = excluded.url, schemes = excluded.schemes,
           secrets = excluded.secrets
    RETURNING created_at
), old AS MATERIALIZED (
    SELECT k.next_seq, k.accepted AND c.url = @url AS accepted
      FROM holdfast.push_cursors k
      JOIN holdfast.push_configs c ON c.task = k.task AND c.config_id = k.config_id
     WHERE k.task = @task AND k.config_id = @config_id
       FOR NO KEY UPDATE OF k
), due AS MATERIALIZED (
    -- A replaced configuration may want other events from now on.
    SELECT coalesce((SELECT e.seq FROM holdfast.task_events e
                      WHERE e.task = @task AND e.seq >= (SELECT next_seq FROM old)
                        AND (e.kind = 2 OR e.kind = 3 AND @artifacts::boolean)
                      ORDER BY e.seq DESC LIMIT 1), 0) AS seq
), place AS (
    INSERT INTO holdfast.push_cursors (task, config_id, host, caller, artifacts, next_seq)
    SELECT id, @config_id, @host, caller, @artifacts, @next_seq FROM room
    ON CONFLICT (task, config_id) DO UPDATE
       SET host = excluded.host, artifacts = excluded.artifacts, accepted = (SELECT accepted FROM old),
           due_seq = (SELECT seq FROM due),
           due_at = CASE WHEN (SELECT seq FROM due) > 0 THEN now() END,
           due_since = CASE WHEN (SELECT seq FROM due) > 0 THEN coalesce(push_cursors.due_since, now()) END,
           parked = false, attempts = 0, failing_since = NULL, last_error = NULL, disabled_at = NULL,
           disabled_for = NULL, claim = NULL, worker_id = NULL, locked_until = NULL
    RETURNING due_at
)
SELECT config.created_at, (place.due_at IS NOT NULL)::boolean AS due FROM config, place, known;

-- name: PushConfigs :many
-- The configurations of a task, the oldest first.
SELECT sqlc.embed(c), k.host, k.artifacts, k.disabled_at, k.disabled_for
  FROM holdfast.push_configs c
  JOIN holdfast.push_cursors k ON k.task = c.task AND k.config_id = c.config_id
 WHERE c.task = @task
 ORDER BY c.created_at, c.config_id;

-- name: PushConfigDelete :execrows
-- After PushTaskLock. The record of its delivery attempts stays.
WITH gone AS (
    DELETE FROM holdfast.push_cursors k WHERE k.task = @task AND k.config_id = @config_id
), forgotten AS MATERIALIZED (
    SELECT count(*) AS n FROM (
        SELECT holdfast.task_has_pushes(@task, false)
         WHERE NOT EXISTS (SELECT FROM holdfast.push_configs c WHERE c.task = @task AND c.config_id <> @config_id)
    ) x
)
DELETE FROM holdfast.push_configs c
 WHERE c.task = @task AND c.config_id = @config_id AND (SELECT n FROM forgotten) >= 0;

-- name: PushClaim :many
-- Claims due configurations for a process: at most max_rows, with at most per_host of one host and
-- per_caller of one caller, so that slow ones do not fill the claim. It looks at the @window_rows
-- that have been due longest, including busy ones (index push_cursors_due). @since skips the dead
-- entries in front of them, which vacuum cannot remove while another session has an old snapshot;
-- oldest is where the first of them is. If configurations are parked, it also looks into the lanes of
-- these rows and into the lanes that it is given (index push_cursors_lanes). The end of the claim becomes
-- the next due time, so a claim does not have to skip the configurations that others have claimed.
WITH front AS MATERIALIZED (
    SELECT k.task, k.config_id, k.host, k.caller, k.due_at FROM holdfast.push_cursors k
     WHERE NOT k.parked AND k.due_at >= @since::timestamptz AND k.due_at <= now()
     ORDER BY k.due_at LIMIT @window_rows::integer
), lane AS MATERIALIZED (
    SELECT unnest(@lane_callers::bigint[]) AS caller, unnest(@lane_hosts::text[]) AS host
     UNION
    SELECT f.caller, f.host FROM front f
     WHERE @any_parked::boolean AND f.host <> ALL(@busy_hosts::text[]) AND f.caller <> ALL(@busy_callers::bigint[])
), ready AS MATERIALIZED (
    SELECT r.task, r.config_id, r.due_at, r.caller,
           row_number() OVER (PARTITION BY r.host ORDER BY r.due_at) AS of_host,
           row_number() OVER (PARTITION BY r.caller ORDER BY r.due_at) AS of_caller
      FROM (
        SELECT front.* FROM front
         UNION ALL
        SELECT x.task, x.config_id, x.host, x.caller, x.due_at
          FROM lane
         CROSS JOIN LATERAL (
            SELECT k.* FROM holdfast.push_cursors k
             WHERE k.parked AND k.caller = lane.caller AND k.host = lane.host AND k.due_at <= now()
             ORDER BY k.due_at LIMIT @per_host::integer
         ) x
      ) r
     WHERE r.host <> ALL(@busy_hosts::text[]) AND r.caller <> ALL(@busy_callers::bigint[])
), mine AS MATERIALIZED (
    -- Only rows that are still due as read: the snapshot does not see the new configuration of one
    -- that was replaced meanwhile.
    SELECT x.task, x.config_id
      FROM (SELECT * FROM ready
             WHERE of_host <= @per_host::integer AND (of_caller <= @per_caller::integer OR caller = 0)
             ORDER BY due_at) r
     CROSS JOIN LATERAL (
        SELECT k.task, k.config_id FROM holdfast.push_cursors k
         WHERE k.task = r.task AND k.config_id = r.config_id AND k.due_at = r.due_at
           FOR NO KEY UPDATE SKIP LOCKED
     ) x
     LIMIT @max_rows::integer
), many AS MATERIALIZED (
    -- Through arrays, because the planner expects several rows of them. It expects one row of a
    -- claim, and would then look up each row by the array of all ids.
    SELECT unnest(ARRAY(SELECT task FROM mine)) AS task, unnest(ARRAY(SELECT config_id FROM mine)) AS config_id
), won AS (
    UPDATE holdfast.push_cursors k
       SET claim = gen_random_uuid(), worker_id = @worker::uuid, locked_until = now() + @lock::interval,
           due_at = now() + @lock::interval, parked = false
      FROM many WHERE k.task = ANY(ARRAY(SELECT task FROM mine)) AND k.task = many.task AND k.config_id = many.config_id
    RETURNING k.task, k.config_id, k.host, k.caller, k.claim, k.next_seq, k.due_seq, k.attempts, k.failing_since,
              k.accepted, k.artifacts
)
SELECT won.task, won.config_id, won.host, won.caller, won.claim::uuid AS claim, won.next_seq, won.due_seq, won.attempts,
       won.failing_since, won.accepted, won.artifacts,
       c.dialect, c.url, c.schemes, c.secrets, c.created_at, c.public_id, c.agent,
       (SELECT coalesce(min(front.due_at), now()) FROM front)::timestamptz AS oldest
  FROM won
 CROSS JOIN LATERAL (
    SELECT * FROM holdfast.push_configs x WHERE x.task = won.task AND x.config_id = won.config_id OFFSET 0
 ) c;

-- name: PushNext :one
-- Whether at least @most are due, when the first of them became due (none: now), and in how many
-- seconds, up to @ahead, the next one is. Negative: none is, or unknown, because the first few are all
-- busy. Index push_cursors_due; @since as in PushClaim. The ends of claims that were released are dead
-- entries, too, so it does not look further ahead than its caller wants to sleep.
WITH due AS MATERIALIZED (
    SELECT k.due_at FROM holdfast.push_cursors k
     WHERE NOT k.parked AND k.due_at >= @since::timestamptz AND k.due_at <= now() ORDER BY k.due_at LIMIT @most::integer
)
SELECT (SELECT count(*) = @most::integer FROM due)::boolean AS hidden,
       (SELECT coalesce(min(due.due_at), now()) FROM due)::timestamptz AS oldest,
       coalesce((SELECT extract(epoch FROM min(w.due_at) - now()) FROM (
            SELECT k.host, k.caller, k.due_at FROM holdfast.push_cursors k
             WHERE NOT k.parked AND k.due_at > now() AND k.due_at <= now() + @ahead::interval ORDER BY k.due_at LIMIT 64
       ) w
         WHERE w.host <> ALL(@busy_hosts::text[]) AND w.caller <> ALL(@busy_callers::bigint[])
       ), -1)::float8 AS seconds;

-- name: PushPark :one
-- Parks due configurations of busy hosts and callers, among the @window_rows that have been due
-- longest since @since, and returns their number.
SELECT holdfast.push_park(@window_rows::integer, @busy_hosts::text[], @busy_callers::bigint[],
                          @since::timestamptz)::integer AS n;

-- name: PushLanes :many
-- The next lanes with parked configurations after a given lane, at most @max_rows, and whether a
-- claim can take from them. A lane is the queue of one caller for one host. Reads one entry of
-- index push_cursors_lanes for each lane, and one entry for all lanes of a busy caller.
WITH RECURSIVE lane AS (
    (SELECT k.caller, k.host, 1 AS nth FROM holdfast.push_cursors k
      WHERE k.parked AND k.due_at IS NOT NULL AND (k.caller, k.host) > (@caller::bigint, @host::text)
      ORDER BY k.caller, k.host LIMIT 1)
     UNION ALL
    SELECT x.caller, x.host, l.nth + 1
      FROM lane l
     CROSS JOIN LATERAL (
        (SELECT k.caller, k.host FROM holdfast.push_cursors k
          WHERE l.caller <> ALL(@busy_callers::bigint[]) AND k.parked AND k.due_at IS NOT NULL
            AND (k.caller, k.host) > (l.caller, l.host)
          ORDER BY k.caller, k.host LIMIT 1)
         UNION ALL
        (SELECT k.caller, k.host FROM holdfast.push_cursors k
          WHERE l.caller = ANY(@busy_callers::bigint[]) AND k.parked AND k.due_at IS NOT NULL AND k.caller > l.caller
          ORDER BY k.caller, k.host LIMIT 1)
     ) x
     WHERE l.nth < @max_rows::integer
)
SELECT lane.caller::bigint AS caller, lane.host::text AS host,
       (lane.host <> ALL(@busy_hosts::text[]) AND lane.caller <> ALL(@busy_callers::bigint[]))::boolean AS free
  FROM lane;

-- name: PushLog :many
-- The events of a log from one event up to another: all of them, or those that a configuration
-- wants; as many as fit into @max_bytes, and the first one whatever its size. If that has more
-- than @max_first bytes, the row lacks its payload, but a status has what it adds to its task, if that
-- fits. @max_bytes is at most @max_first, because bytes is the sum of the page. found is how many there
-- are, at most @max_rows. By primary key. As in EventsOfMany, the size on disk comes first: PostgreSQL
-- must decompress a payload to know its length.
SELECT e.task, e.seq, e.kind, e.kept, e.state, e.attempt, e.append, e.last, e.artifact_id,
       CAST(CASE WHEN e.bytes <= @max_first::bigint THEN e.payload
                 WHEN e.kind = 2 AND coalesce(octet_length(e.payload ->> 'metadata'), 0) <= @max_first
                 THEN json_build_object('direct', e.payload -> 'direct', 'metadata', e.payload -> 'metadata')
            END AS json) AS payload, e.bytes::bigint AS bytes,
       e.request_id, e.created_at, e.worker_id, e.claimed_at, e.found
  FROM (
    SELECT s.*, sum(coalesce(octet_length(s.payload::text), 0)) OVER (ORDER BY s.seq) AS bytes
      FROM (
        SELECT w.*, row_number() OVER (ORDER BY w.seq) AS nth, count(*) OVER () AS found,
               sum(coalesce(pg_column_size(w.payload), 0)) OVER (ORDER BY w.seq) AS stored
          FROM (
            SELECT * FROM holdfast.task_events
             WHERE task = @task AND seq >= @from_seq AND seq <= @upto
               AND (@everything::boolean OR kind = 2 OR kind = 3 AND @artifacts::boolean)
             ORDER BY seq LIMIT @max_rows
          ) w
      ) s
     WHERE s.nth = 1 OR s.stored <= @max_bytes::bigint
  ) e
 WHERE e.nth = 1 OR e.bytes <= @max_bytes::bigint
 ORDER BY e.seq;

-- name: PushAhead :many
-- What a configuration of each of many tasks wants, without those that have more than
-- @max_stored bytes on disk (compressed). The lowest and the highest task prune the partitions that
-- hold none of them.
SELECT e.task, e.seq, e.kind, e.kept, e.state, e.attempt, e.append, e.last, e.artifact_id, e.payload,
       e.request_id, e.created_at, e.worker_id, e.claimed_at
  FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@next_seqs::bigint[]) AS next_seq,
               unnest(@artifacts::boolean[]) AS artifacts) c
 CROSS JOIN LATERAL (
    SELECT w.*, sum(coalesce(pg_column_size(w.payload), 0)) OVER () AS stored
      FROM (
        SELECT * FROM holdfast.task_events x
         WHERE x.task = c.task AND x.seq >= c.next_seq AND (x.kind = 2 OR x.kind = 3 AND c.artifacts)
           AND x.task BETWEEN @lowest AND @highest
         ORDER BY x.seq LIMIT @max_rows
      ) w
 ) e
 WHERE e.stored <= @max_stored::bigint;

-- name: PushTasks :many
-- The headers of these tasks, by primary key.
SELECT t.* FROM unnest(@ids::uuid[]) AS i (id)
 CROSS JOIN LATERAL (SELECT * FROM holdfast.tasks x WHERE x.id = i.id AND x.id BETWEEN @lowest AND @highest OFFSET 0) t;

-- name: PushRecord :many
-- Records any number of outcomes, each fenced by its claim; an outcome without a row in the result
-- had lost its claim. This statement sees a concurrent mark, or the mark sees this update, because
-- both write the row. An outcome that is neither delivered nor failed leaves the place and the
-- failures as they are: it moves the end of a claim that is kept, or releases the claim. An outcome
-- without a delivery id made no request, and no attempt is logged.
--
-- The store sends a record again when it does not know whether the first copy was committed. If it
-- was, and the claim is kept, the cursor is just behind the delivered events: the repetition writes
-- the same values and logs no attempt. Any other place means that the claim has recorded more since:
-- then this is a copy that came late, and it writes nothing.
WITH inp AS MATERIALIZED (
    SELECT unnest(@tasks::uuid[]) AS task,
           unnest(@config_ids::text[]) AS config_id,
           unnest(@claims::uuid[]) AS claim,
           unnest(@from_seqs::bigint[]) AS from_seq,
           unnest(@to_seqs::bigint[]) AS to_seq,
           unnest(@delivery_ids::text[]) AS delivery_id,
           unnest(@statuses::integer[]) AS status,
           unnest(@errors::text[]) AS error,
           unnest(@classes::text[]) AS class,
           unnest(@tooks::interval[]) AS took,
           unnest(@delivereds::boolean[]) AS delivered,
           unnest(@faileds::boolean[]) AS failed,
           unnest(@keeps::boolean[]) AS keep,
           unnest(@delays::interval[]) AS delay,
           unnest(@disables::text[]) AS disable
), lck AS MATERIALIZED (
    SELECT k.task, k.config_id, k.host, k.claim, k.worker_id, k.locked_until, k.next_seq, k.due_seq, k.due_since,
           k.attempts, k.failing_since, k.last_error, k.accepted,
           CASE WHEN i.disable <> '' THEN coalesce(k.disabled_at, now()) ELSE k.disabled_at END AS disabled_at,
           CASE WHEN i.disable <> '' AND k.disabled_at IS NULL THEN i.disable ELSE k.disabled_for END AS disabled_for,
           (i.delivered AND k.next_seq <> i.from_seq) AS repeated, i.from_seq, i.to_seq, i.delivery_id, i.status,
           i.error, i.class, i.took, i.delivered, i.failed, i.keep AND NOT i.failed AS keep, i.delay
      FROM (SELECT * FROM inp ORDER BY task, config_id) i
     CROSS JOIN LATERAL (
        SELECT * FROM holdfast.push_cursors x
         WHERE x.task = i.task AND x.config_id = i.config_id AND x.claim = i.claim
           FOR NO KEY UPDATE
     ) k
     WHERE NOT (i.delivered OR i.failed) OR k.next_seq = i.from_seq
        OR i.delivered AND i.keep AND k.next_seq = i.to_seq + 1
), eff AS MATERIALIZED (
    SELECT l.*, CASE WHEN l.more
                     THEN CASE WHEN l.delivered AND l.keep THEN l.locked_until ELSE now() + l.delay END END AS due_at
      FROM (SELECT lck.*, disabled_at IS NULL AND NOT (delivered AND due_seq <= to_seq) AS more FROM lck) l
), upd AS (
    -- All from the locked row: an UPDATE with an older snapshot is first computed on the version in
    -- that snapshot.
    UPDATE holdfast.push_cursors k
       SET next_seq = CASE WHEN e.delivered THEN e.to_seq + 1 ELSE e.next_seq END,
           due_at = e.due_at, parked = false, accepted = e.accepted OR e.delivered AND e.delivery_id <> '',
           due_since = CASE WHEN NOT e.delivered THEN e.due_since WHEN e.due_seq > e.to_seq THEN now() END,
           attempts = CASE WHEN e.delivered THEN 0 WHEN e.failed THEN e.attempts + 1 ELSE e.attempts END,
           failing_since = CASE WHEN e.failed THEN coalesce(e.failing_since, now())
                                WHEN NOT e.delivered THEN e.failing_since END,
           last_error = CASE WHEN e.failed THEN nullif(e.error, '') WHEN NOT e.delivered THEN e.last_error END,
           disabled_at = e.disabled_at, disabled_for = e.disabled_for,
           claim = CASE WHEN e.more AND e.keep THEN e.claim END,
           worker_id = CASE WHEN e.more AND e.keep THEN e.worker_id END,
           locked_until = CASE WHEN e.more AND e.keep THEN e.due_at END
      FROM eff e WHERE k.task = ANY(ARRAY(SELECT task FROM eff)) AND k.task = e.task AND k.config_id = e.config_id
), logged AS (
    INSERT INTO holdfast.push_attempts (task, config_id, started_at, from_seq, to_seq, attempt, status, error, duration,
                                        delivery_id, class, worker_id, host)
    SELECT e.task, e.config_id, now() - e.took, e.from_seq, e.to_seq, e.attempts + 1, nullif(e.status, 0),
           nullif(e.error, ''), e.took, e.delivery_id, e.class, e.worker_id, e.host
      FROM eff e WHERE e.delivery_id <> '' AND NOT e.repeated
     ORDER BY e.task, e.config_id
)
SELECT claim::uuid AS claim, more::boolean AS more FROM eff;

-- name: PushDisable :execrows
-- A delivery in flight may still be recorded.
UPDATE holdfast.push_cursors
   SET disabled_at = coalesce(disabled_at, now()), disabled_for = coalesce(disabled_for, @reason::text), due_at = NULL,
       parked = false
 WHERE task = @task AND config_id = @config_id;

-- name: PushEnable :one
-- Also makes a configuration in backoff due at once.
WITH l AS MATERIALIZED (
    SELECT k.*, CASE WHEN k.due_seq >= k.next_seq THEN greatest(now(), k.locked_until) END AS at
      FROM holdfast.push_cursors k WHERE k.task = @task AND k.config_id = @config_id FOR NO KEY UPDATE
)
UPDATE holdfast.push_cursors k
   SET disabled_at = NULL, disabled_for = NULL, attempts = 0, failing_since = NULL, due_at = l.at, parked = false
  FROM l WHERE k.task = @task AND k.config_id = @config_id
RETURNING (l.at IS NOT NULL)::boolean AS due;

-- name: PushRedeliver :one
-- Moves a configuration back to an event (0: does not move it) and makes it due at once unless it
-- is disabled. It never moves forward: the events in between would be lost silently. A delivery in
-- flight no longer counts, and may be repeated. No row: no such configuration or event.
WITH l AS MATERIALIZED (
    SELECT k.task, k.config_id, k.due_seq, k.due_since, k.disabled_at, k.artifacts,
           CASE WHEN @from_seq::bigint > 0 THEN least(@from_seq::bigint, k.next_seq) ELSE k.next_seq END AS next_seq
      FROM holdfast.push_cursors k WHERE k.task = @task AND k.config_id = @config_id FOR NO KEY UPDATE
), d AS MATERIALIZED (
    -- Events before the configuration was set have not been marked.
    SELECT l.*, greatest(l.due_seq, (
        SELECT e.seq FROM holdfast.task_events e
         WHERE e.task = @task AND e.seq >= (SELECT next_seq FROM l)
           AND (e.kind = 2 OR e.kind = 3 AND (SELECT artifacts FROM l))
         ORDER BY e.seq DESC LIMIT 1)) AS upto
      FROM l
     WHERE EXISTS (SELECT FROM holdfast.tasks t WHERE t.id = @task AND t.last_seq >= @from_seq)
)
UPDATE holdfast.push_cursors k
   SET next_seq = d.next_seq, due_seq = d.upto,
       due_at = CASE WHEN d.disabled_at IS NULL AND d.upto >= d.next_seq THEN now() END,
       due_since = CASE WHEN d.upto >= d.next_seq THEN coalesce(d.due_since, now()) END,
       parked = false, attempts = 0, failing_since = NULL, claim = NULL, worker_id = NULL, locked_until = NULL
  FROM d WHERE k.task = @task AND k.config_id = @config_id
RETURNING (d.upto >= d.next_seq)::boolean AS due, (d.disabled_at IS NOT NULL)::boolean AS disabled;

-- name: PushList :many
-- For operators: the newest tasks first, configurations of one task by their age. The bounds of the
-- page prune partitions of other tasks. With @since_task (PushWindow) it reads a bounded number of webhooks.
SELECT sqlc.embed(c), sqlc.embed(k), t.client_id, t.agent, t.tenant, t.owner
  FROM holdfast.push_configs c
  JOIN holdfast.push_cursors k ON k.task = c.task AND k.config_id = c.config_id
  JOIN holdfast.tasks t ON t.id = c.task AND t.id <= @before_task::uuid AND t.id >= @since_task::uuid
 WHERE (c.task, c.config_id) < (@before_task::uuid, @before_id::text) AND c.task >= @since_task
   AND (k.task, k.config_id) < (@before_task, @before_id) AND k.task >= @since_task
   AND (@task::uuid = '00000000-0000-0000-0000-000000000000' OR c.task = @task)
   AND (@agent::text = '' OR t.agent = @agent)
   AND (@owner::text = '' OR t.owner = @owner)
   AND (NOT @by_tenant::boolean OR t.tenant = @tenant::text)
   AND (@host::text = '' OR k.host = @host)
   AND (NOT @disabled::boolean OR k.disabled_at IS NOT NULL)
   AND (NOT @failing::boolean OR k.attempts > 0)
   AND (NOT @due::boolean OR k.due_at IS NOT NULL)
 ORDER BY c.task DESC, c.config_id DESC LIMIT @max_rows;

-- name: PushAttempts :many
-- For operators: the attempts of one configuration, or of all of a task (@config_id empty), the
-- newest first. The separate CTE makes PostgreSQL use index push_attempts_of. Otherwise it would
-- read the newest attempts of all tasks until it has found enough.
WITH a AS MATERIALIZED (
    SELECT * FROM holdfast.push_attempts
     WHERE task = @task AND (@config_id::text = '' OR config_id = @config_id)
)
SELECT a.id, a.config_id, a.started_at, a.from_seq, a.to_seq, a.attempt, a.status, a.error, a.duration, a.delivery_id,
       a.class, coalesce((SELECT p.name FROM holdfast.processes p WHERE p.id = a.worker_id), '')::text AS worker_name
  FROM a ORDER BY a.id DESC LIMIT @max_rows;

-- name: PushCounts :one
-- For metrics. The oldest is one that the replicas could have tried: they retry a failing one only when it is due
-- again, and a parked one waits for its own host or caller. Indexes push_cursors_due, push_cursors_lanes and
-- push_cursors_disabled_at.
WITH due AS (
    SELECT CASE WHEN attempts = 0 THEN due_since ELSE due_at END AS since
      FROM holdfast.push_cursors
     WHERE due_at IS NOT NULL AND NOT parked
     UNION ALL
    SELECT NULL FROM holdfast.push_cursors WHERE parked AND due_at IS NOT NULL
)
SELECT (SELECT count(*) FROM due)::bigint AS backlog,
       greatest((SELECT extract(epoch FROM now() - min(since)) FROM due), 0)::float8 AS oldest_seconds,
       (SELECT count(*) FROM holdfast.push_cursors WHERE disabled_at IS NOT NULL)::bigint AS disabled;

-- name: PushSecrets :many
-- A page of sealed secrets, by primary key.
SELECT task, config_id, secrets FROM holdfast.push_configs
 WHERE (task, config_id) > (@after_task::uuid, @after_id::text) AND secrets IS NOT NULL
 ORDER BY task, config_id LIMIT @max_rows;

-- name: PushReseal :execrows
-- Skips a configuration that was replaced meanwhile.
UPDATE holdfast.push_configs SET secrets = @fresh::bytea
 WHERE task = @task AND config_id = @config_id AND secrets = @old::bytea;

-- name: TurnsSealed :many
-- A page of the turns that have not ended and may have something sealed, by primary key: headers of clients, what came
-- by a resume URL, and what came by one before the run has asked.
SELECT q.id, t.agent, coalesce(q.forwarded, '{}')::jsonb AS forwarded, q.turn,
       coalesce(q.input_seq, 0)::bigint AS input_seq, CAST(holdfast.note_at(q.id, q.input_seq) AS json) AS input,
       (t.turns - t.pending)::integer AS asking, coalesce(t.resumed_seq, 0)::bigint AS resumed_seq,
       CAST(holdfast.note_at(q.id, t.resumed_seq) AS json) AS resumed
  FROM holdfast.task_queue q
  JOIN holdfast.tasks_open t ON t.id = q.id
 WHERE q.id > @after_id AND (q.forwarded IS NOT NULL OR q.input_seq IS NOT NULL OR t.resumed_seq IS NOT NULL)
 ORDER BY q.id LIMIT @max_rows;

-- name: ForwardedReseal :execrows
-- One statement for each entry, so it holds one lock. Skips an entry whose turn has ended meanwhile.
UPDATE holdfast.task_queue SET forwarded = jsonb_set(forwarded, ARRAY[@message::text], to_jsonb(@fresh::text))
 WHERE id = @id AND forwarded ->> @message::text = @old::text;

-- name: NoteReseal :execrows
-- The run note of a resume, by primary key.
UPDATE holdfast.task_events SET payload = CAST(@fresh::text AS json)
 WHERE task = @task AND seq = @seq AND kind = 4 AND payload::text = @old::text;
