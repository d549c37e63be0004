-- Processes, their leases, and the rescue of dead processes' runs.

-- name: WorkerRegister :one
-- The name of a process outlives it, in table processes.
WITH named AS (
    INSERT INTO holdfast.processes (id, name, version) VALUES (@id, @name, @version) ON CONFLICT DO NOTHING
)
INSERT INTO holdfast.workers (id, name, version, roles, agents, lease_until)
VALUES (@id, @name, @version, @roles, @agents, now() + @ttl::interval)
RETURNING lease_until;

-- name: WorkerRenew :one
-- No row: the process was declared dead and its tasks were rescued. If no process acted on an
-- expired lease (the database was unavailable), the statement renews it.
UPDATE holdfast.workers SET lease_until = now() + @ttl::interval WHERE id = @id RETURNING lease_until;

-- name: WorkerRemove :exec
DELETE FROM holdfast.workers WHERE id = @id;

-- name: WorkerCount :one
SELECT count(*) FROM holdfast.workers WHERE lease_until >= now();

-- name: WorkersReap :many
-- Declares dead the processes whose lease has expired. It skips locked rows; the next round finds those again.
DELETE FROM holdfast.workers
 WHERE id = ANY(ARRAY(SELECT w.id
                        FROM holdfast.workers w
                       WHERE w.lease_until < now() - @grace::interval
                         FOR UPDATE SKIP LOCKED))
RETURNING id, name;

-- name: RunsRescue :many
-- Frees the runs of processes that are no longer registered; those of remote workers have leases of their own. The
-- raised attempt fences the old worker from this commit on. It locks each task, then its queue row, and skips locked
-- rows; the next round finds those again. Index task_queue_owned.
--
-- Any of the runs may have ended its process. If there were several, the try of each is spared, and
-- those that were spared before become suspects: a message that ends processes is in two such groups,
-- the runs of a machine that fails in one. A run that was alone or a suspect loses the try.
--
-- With arrays the plan does not depend on what ANALYZE saw, which is often an empty queue. A join
-- planned then would compare every run with every open task.
--
-- It reads the index between the ids of registered processes. So beside an old snapshot it does not read
-- what these have run since, but only what processes have run that are gone.
WITH gap AS MATERIALIZED (
    SELECT w.id AS lower, coalesce(lead(w.id) OVER (ORDER BY w.id), 'ffffffff-ffff-ffff-ffff-ffffffffffff') AS upper
      FROM (SELECT id FROM holdfast.workers UNION ALL SELECT '00000000-0000-0000-0000-000000000000') w
), orphan AS MATERIALIZED (
    SELECT q.id, q.worker_id FROM gap
     CROSS JOIN LATERAL (
        SELECT x.id, x.worker_id
          FROM holdfast.task_queue x
         WHERE x.worker_id > gap.lower AND x.worker_id < gap.upper AND x.lease_until IS NULL OFFSET 0
     ) q
), crowds AS MATERIALIZED (
    SELECT worker_id FROM orphan GROUP BY worker_id HAVING count(*) > 1
), mine AS MATERIALIZED (
    SELECT t.id, t.kept, t.last_seq, t.attempt, t.worker_id, t.claimed_at
      FROM (SELECT x.id, x.kept, x.last_seq, x.attempt, x.worker_id, x.claimed_at
              FROM holdfast.tasks x
             WHERE x.id = ANY(ARRAY(SELECT id FROM orphan))
               AND x.worker_id = ANY(ARRAY(SELECT DISTINCT worker_id FROM orphan))
               AND x.state NOT IN (3, 4, 5, 6, 7, 8)
             ORDER BY x.id
               FOR NO KEY UPDATE SKIP LOCKED) t
     CROSS JOIN LATERAL (SELECT y.id FROM holdfast.task_queue y WHERE y.id = t.id FOR UPDATE SKIP LOCKED) q
     LIMIT 1000
), upd AS (
    UPDATE holdfast.tasks t
       SET worker_id = NULL, attempt = t.attempt + 1, run_ordinal = 0, last_seq = t.last_seq + 1
     WHERE t.id = ANY(ARRAY(SELECT id FROM mine)) AND t.state NOT IN (3, 4, 5, 6, 7, 8)
), queued AS (
    UPDATE holdfast.task_queue q
       SET worker_id = NULL, available_at = now(), away_since = NULL,
           suspect = q.suspect OR q.spared > 0 OR q.worker_id <> ALL(ARRAY(SELECT * FROM crowds)),
           spared = q.spared + (NOT q.suspect AND q.worker_id = ANY(ARRAY(SELECT * FROM crowds)))::integer
     WHERE q.id = ANY(ARRAY(SELECT id FROM mine))
    RETURNING q.id, q.agent
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, kept, attempt, payload, worker_id, claimed_at)
    SELECT mine.id, mine.last_seq + 1, 4, mine.kept, mine.attempt,
           json_build_object('outcome', 'lost', 'worker', mine.worker_id), mine.worker_id, mine.claimed_at
      FROM mine
)
SELECT mine.id, queued.agent, (mine.last_seq + 1)::bigint AS seq FROM mine JOIN queued ON queued.id = mine.id;

-- name: LeaseAcquire :one
-- Acquires or renews the lease of a duty. No row: another process holds it.
INSERT INTO holdfast.leases (name, holder, until) VALUES (@name, @holder, now() + @ttl::interval)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
 WHERE leases.holder = excluded.holder OR leases.until < now()
RETURNING until;

-- name: LeaseRelease :exec
DELETE FROM holdfast.leases WHERE name = @name AND holder = @holder;
