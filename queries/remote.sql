-- Runs of remote workers: claims, leases, and the workers themselves.

-- name: RemoteRenew :many
-- Renews the leases of a worker's runs, and says of each run whether the worker still has it and whether to
-- stop it. leases[i] is the lease of agents[i], the agents that the caller may serve. It locks queue rows
-- alone, and waits for none: a run whose row is locked by another session is neither renewed nor reported as
-- lost (locked). An expired lease that no replica has acted on is renewed, too: the database may have been
-- away. By primary keys; lease_until is in no index.
WITH inp AS MATERIALIZED (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@claims::timestamptz[]) AS claimed_at
), of AS MATERIALIZED (
    SELECT unnest(@agents::text[]) AS agent, unnest(@leases::interval[]) AS lease
), t AS MATERIALIZED (
    SELECT y.id, y.agent, y.state, y.claimed_at, y.worker_id, y.cancel_requested FROM inp
     CROSS JOIN LATERAL (
        SELECT x.id, x.agent, x.state, x.claimed_at, x.worker_id, x.cancel_requested FROM holdfast.tasks x
         WHERE x.id = inp.id AND x.id BETWEEN @lowest AND @highest OFFSET 0
     ) y
), own AS MATERIALIZED (
    SELECT t.id, t.cancel_requested, of.lease FROM t JOIN inp ON inp.id = t.id JOIN of ON of.agent = t.agent
     WHERE t.claimed_at = inp.claimed_at AND t.worker_id = @worker::uuid AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), free AS MATERIALIZED (
    SELECT ARRAY(
        SELECT q.id FROM holdfast.task_queue q
         WHERE q.id = ANY(ARRAY(SELECT id FROM own))
           AND coalesce(q.worker_id = @worker::uuid, false) -- not by index task_queue_owned
           FOR UPDATE SKIP LOCKED
    ) AS ids
), renewed AS (
    UPDATE holdfast.task_queue q SET lease_until = now() + (SELECT own.lease FROM own WHERE own.id = q.id)
     WHERE q.id = ANY((SELECT ids FROM free)::uuid[]) AND q.lease_until IS NOT NULL
    RETURNING q.id, q.lease_until
)
SELECT inp.id::uuid AS id, (own.id IS NOT NULL)::boolean AS owned,
       coalesce(own.cancel_requested, false)::boolean AS canceled,
       (renewed.id IS NOT NULL)::boolean AS renewed, coalesce(renewed.lease_until, now())::timestamptz AS lease_until,
       coalesce(own.lease, interval '0')::interval AS lease,
       -- The run has ended, or its task was deleted. Otherwise another worker may have it.
       (t.id IS NULL OR t.claimed_at = inp.claimed_at AND t.state IN (3, 4, 5, 6, 7, 8))::boolean AS over
  FROM inp LEFT JOIN t ON t.id = inp.id LEFT JOIN own ON own.id = inp.id LEFT JOIN renewed ON renewed.id = inp.id;

-- name: RemoteLent :many
-- The runs of a remote worker, of the given agents. Index task_queue_owned.
SELECT t.id, t.claimed_at
  FROM holdfast.tasks t
 WHERE t.id = ANY(ARRAY(SELECT q.id
                          FROM holdfast.task_queue q
                         WHERE q.worker_id = @worker::uuid AND q.lease_until IS NOT NULL
                           AND q.agent = ANY(@agents::text[])))
   AND t.state NOT IN (3, 4, 5, 6, 7, 8) AND t.worker_id = @worker::uuid;

-- name: RemoteExpire :many
-- RunsRescue for runs whose lease has expired, of the given agents. Runs that were canceled are left to
-- RemoteLook. With @all_agents it also frees runs of other agents, canceled or not: no replica may have their
-- agent as one of workers any more. It also frees the runs @left of workers that are gone, unless somebody has renewed
-- a lease since (@renewed: when it ended). It skips locked rows. A run that has posted nothing costs its message no
-- try, at first: it is spared like the runs of a process that had several, and a suspect after that. Index
-- task_queue_leases.
WITH parted AS MATERIALIZED (
    SELECT unnest(sqlc.arg('left')::uuid[]) AS id, unnest(@renewed::timestamptz[]) AS lease_until
), gone AS MATERIALIZED (
    (SELECT q.id, q.worker_id FROM holdfast.task_queue q
      WHERE q.look_at <= now() AND q.worker_id IS NOT NULL AND q.lease_until < now()
        AND (@all_agents::boolean OR q.agent = ANY(@agents::text[]))
      ORDER BY q.look_at
      LIMIT 1000)
    UNION
    SELECT x.id, x.worker_id
      FROM parted
     CROSS JOIN LATERAL (
        SELECT q.id, q.worker_id FROM holdfast.task_queue q
         WHERE q.id = parted.id AND q.lease_until = parted.lease_until OFFSET 0
     ) x
), crowds AS MATERIALIZED (
    SELECT worker_id FROM gone GROUP BY worker_id HAVING count(*) > 1
), mine AS MATERIALIZED (
    SELECT t.id, t.kept, t.last_seq, t.attempt, t.worker_id, t.claimed_at, t.begun
      FROM (SELECT x.id, x.kept, x.last_seq, x.attempt, x.worker_id, x.claimed_at,
                   x.run_ordinal > 0 AS begun
              FROM holdfast.tasks x
             WHERE x.id = ANY(ARRAY(SELECT id FROM gone))
               AND x.worker_id = ANY(ARRAY(SELECT DISTINCT worker_id FROM gone))
               AND x.state NOT IN (3, 4, 5, 6, 7, 8)
               AND (NOT x.cancel_requested OR @all_agents::boolean AND x.agent <> ALL(@agents::text[]))
             ORDER BY x.id
               FOR NO KEY UPDATE SKIP LOCKED) t
     CROSS JOIN LATERAL (
        SELECT y.id FROM holdfast.task_queue y
         WHERE y.id = t.id
           AND (y.lease_until < now() OR y.lease_until = (SELECT parted.lease_until FROM parted WHERE parted.id = t.id))
           FOR UPDATE SKIP LOCKED
     ) q
), upd AS (
    UPDATE holdfast.tasks t
       SET worker_id = NULL, attempt = t.attempt + 1, run_ordinal = 0, last_seq = t.last_seq + 1
     WHERE t.id = ANY(ARRAY(SELECT id FROM mine)) AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), queued AS (
    UPDATE holdfast.task_queue q
       SET worker_id = NULL, available_at = now(), away_since = NULL, lease_until = NULL, look_at = NULL,
           suspect = q.suspect OR q.spared > 0
                     OR NOT (q.worker_id = ANY(ARRAY(SELECT * FROM crowds))
                             OR q.id = ANY(ARRAY(SELECT mine.id FROM mine WHERE NOT mine.begun))),
           spared = q.spared + (NOT q.suspect
                                AND (q.worker_id = ANY(ARRAY(SELECT * FROM crowds))
                                     OR q.id = ANY(ARRAY(SELECT mine.id FROM mine WHERE NOT mine.begun))))::integer
     WHERE q.id = ANY(ARRAY(SELECT id FROM mine))
    RETURNING q.id, q.agent
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, attempt, payload, worker_id, claimed_at)
    SELECT mine.id, mine.last_seq + 1, 4, mine.kept, mine.attempt,
           json_build_object('outcome', 'lost', 'worker', mine.worker_id), mine.worker_id, mine.claimed_at
      FROM mine
)
SELECT mine.id, queued.agent, (mine.last_seq + 1)::bigint AS seq FROM mine JOIN queued ON queued.id = mine.id;

-- name: RemoteLook :many
-- Looks at the runs of remote workers that are due for a look, sets the time of the next look, and returns the
-- runs that a replica must end: after cancel_grace, run_timeout or inactivity_timeout (0: none), and canceled
-- ones whose lease has expired. It locks queue rows alone and skips locked ones. Index task_queue_leases.
WITH of AS MATERIALIZED (
    SELECT unnest(@agents::text[]) AS agent, unnest(@graces::interval[]) AS grace,
           unnest(@timeouts::interval[]) AS timeout, unnest(@inactivities::interval[]) AS inactivity
), due AS MATERIALIZED (
    SELECT ARRAY(
        SELECT q.id FROM holdfast.task_queue q
         WHERE q.look_at <= now() AND q.worker_id IS NOT NULL AND q.agent = ANY(@agents::text[])
         ORDER BY q.look_at
         LIMIT @most::integer
           FOR UPDATE SKIP LOCKED
    ) AS ids
), facts AS MATERIALIZED (
    SELECT t.id, t.attempt, t.claimed_at, t.cancel_requested,
           CASE WHEN t.cancel_requested
                THEN t.cancel_requested_at + (SELECT of.grace FROM of WHERE of.agent = t.agent) END AS stop_at,
           t.claimed_at + (SELECT of.timeout
                             FROM of
                            WHERE of.agent = t.agent AND of.timeout > interval '0') AS timeout_at,
           greatest(t.claimed_at, t.heard_at)
               + (SELECT of.inactivity FROM of WHERE of.agent = t.agent AND of.inactivity > interval '0') AS silent_at
      FROM holdfast.tasks t
     WHERE t.id = ANY((SELECT ids FROM due)::uuid[]) AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), next AS (
    UPDATE holdfast.task_queue q
       SET look_at = greatest((SELECT least(q.lease_until, f.stop_at, f.timeout_at, f.silent_at)
                                 FROM facts f
                                WHERE f.id = q.id), now() + interval '1 second')
     WHERE q.id = ANY((SELECT ids FROM due)::uuid[])
    RETURNING q.id, q.lease_until < now() AS expired
)
SELECT f.id, f.attempt, f.claimed_at, f.cancel_requested,
       coalesce(f.timeout_at <= now(), false)::boolean AS timed_out
  FROM facts f
 WHERE f.stop_at <= now() OR f.timeout_at <= now() OR f.silent_at <= now()
    OR f.cancel_requested AND f.id = ANY(ARRAY(SELECT next.id FROM next WHERE next.expired));

-- name: RemoteSeen :many
-- Records workers that a replica has answered, and returns those of them that are retired. Heartbeats name no
-- agents: the row keeps its agents if the replica has answered no claim.
WITH inp AS MATERIALIZED (
    SELECT unnest(@ids::uuid[]) AS id, unnest(@names::text[]) AS name, unnest(@versions::text[]) AS version,
           unnest(@sdks::text[]) AS sdk, unnest(@agents::text[]) AS agents
), named AS (
    INSERT INTO holdfast.processes (id, name, version)
    SELECT id, name, version
      FROM inp
     ORDER BY id
    ON CONFLICT DO NOTHING
)
INSERT INTO holdfast.remote_workers AS w (id, name, version, sdk, agents, replica)
SELECT id, name, version, sdk, string_to_array(agents, ','), @replica::text FROM inp ORDER BY id
ON CONFLICT (id) DO UPDATE
   SET name = excluded.name, version = excluded.version, sdk = excluded.sdk,
       agents = CASE WHEN excluded.agents = '{}' THEN w.agents ELSE excluded.agents END, replica = excluded.replica,
       last_seen = now(), left_at = NULL
RETURNING w.id, (w.retired_at IS NOT NULL)::boolean AS retired;

-- name: RemoteLeft :exec
-- Records that workers are gone whose last requests this replica has answered.
UPDATE holdfast.remote_workers SET left_at = now()
 WHERE id = ANY(ARRAY(SELECT w.id
                        FROM holdfast.remote_workers w
                       WHERE w.id = ANY(@ids::uuid[]) AND w.replica = @replica::text
                       ORDER BY w.id
                         FOR UPDATE));

-- name: RemoteRetired :many
-- The workers that an operator has retired since, and those that a replica took for gone since: they were seen a little
-- before. Indexes remote_workers_retired, remote_workers_seen.
SELECT id, true AS retired FROM holdfast.remote_workers WHERE retired_at > now() - @within::interval
 UNION ALL
SELECT id, false
  FROM holdfast.remote_workers
 WHERE last_seen > now() - @seen::interval AND left_at > now() - @within::interval;

-- name: RemoteRetire :execrows
-- One that is retired already stays so. By primary key.
UPDATE holdfast.remote_workers SET retired_at = coalesce(retired_at, now()) WHERE id = @id;

-- name: RemoteForget :execrows
-- Deletes workers that were last seen long ago. Index remote_workers_seen.
DELETE FROM holdfast.remote_workers
 WHERE id = ANY(ARRAY(SELECT w.id
                        FROM holdfast.remote_workers w
                       WHERE w.last_seen < now() - @age::interval
                       ORDER BY w.last_seen LIMIT @most::integer
                         FOR UPDATE SKIP LOCKED));

-- name: RemoteAbsent :many
-- Those of the agents that have due tasks while no worker of theirs was seen lately. Records that they are away, as
-- RunRequeue does. since_for says for how long. Indexes remote_workers_seen and task_queue_ready.
WITH present AS MATERIALIZED (
    SELECT DISTINCT unnest(w.agents) AS agent
      FROM holdfast.remote_workers w
     WHERE w.last_seen > now() - interval '90 seconds' AND w.left_at IS NULL AND w.retired_at IS NULL
), absent AS MATERIALIZED (
    SELECT a.agent FROM (SELECT unnest(@agents::text[]) AS agent) a
     WHERE a.agent NOT IN (SELECT agent FROM present)
       AND (SELECT count(*) FROM (SELECT FROM holdfast.task_queue q
             WHERE q.agent = a.agent AND q.worker_id IS NULL AND q.wakes_at IS NULL AND q.available_at <= now()
             ORDER BY q.available_at, q.id LIMIT 1) x) > 0
), known AS MATERIALIZED (
    SELECT o.agent
      FROM holdfast.agent_outages o
     WHERE o.agent = ANY(ARRAY(SELECT agent FROM absent))
       FOR UPDATE SKIP LOCKED
), outage AS (
    INSERT INTO holdfast.agent_outages AS o (agent, error, worker_id)
    SELECT absent.agent, @error::text, @worker::uuid FROM absent
     WHERE absent.agent IN (SELECT agent FROM known)
        OR NOT EXISTS (SELECT FROM holdfast.agent_outages x WHERE x.agent = absent.agent)
     ORDER BY absent.agent
    ON CONFLICT (agent) DO UPDATE
       SET since = CASE WHEN o.last_at < now() - interval '1 minute' THEN now() ELSE o.since END,
           last_at = now(), error = excluded.error, worker_id = excluded.worker_id
    RETURNING o.agent, o.since
)
SELECT outage.agent, (now() - outage.since)::interval AS away_for FROM outage;
