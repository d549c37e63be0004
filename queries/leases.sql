-- Processes, their leases, and the rescue of what dead ones left.

-- name: WorkerRegister :one
-- Its name outlives it in processes.
WITH named AS (
    INSERT INTO holdfast.processes (id, name, version) VALUES (@id, @name, @version) ON CONFLICT DO NOTHING
)
INSERT INTO holdfast.workers (id, name, version, roles, lease_until)
VALUES (@id, @name, @version, @roles, now() + @ttl::interval)
RETURNING lease_until;

-- name: WorkerRenew :one
-- No row: the process was declared dead and its tasks were rescued. An expired lease that
-- nobody acted on (the database itself was away) is simply renewed.
UPDATE holdfast.workers SET lease_until = now() + @ttl::interval WHERE id = @id RETURNING lease_until;

-- name: WorkerRemove :exec
DELETE FROM holdfast.workers WHERE id = @id;

-- name: WorkerCount :one
SELECT count(*) FROM holdfast.workers WHERE lease_until >= now();

-- name: WorkersReap :many
-- Declares dead the processes whose lease ran out.
DELETE FROM holdfast.workers WHERE lease_until < now() - @grace::interval RETURNING id, name;

-- name: RunsRescue :many
-- Frees the runs of processes that are no longer registered. The raised attempt fences the
-- zombie from this commit on. Tasks first, then their queue rows, skipping what a live
-- statement holds; what is skipped is found again at the next round. Index task_queue_owned.
--
-- The arrays keep the plan from depending on what ANALYZE saw, which is often an empty queue:
-- a join would then compare every run with every open task.
WITH orphan AS MATERIALIZED (
    SELECT q.id, q.worker_id
      FROM holdfast.task_queue q
     WHERE q.worker_id IS NOT NULL
       AND NOT EXISTS (SELECT FROM holdfast.workers w WHERE w.id = q.worker_id)
), mine AS MATERIALIZED (
    SELECT t.id, t.last_seq, t.attempt, t.worker_id, t.claimed_at
      FROM holdfast.tasks t
     WHERE t.id = ANY(ARRAY(SELECT id FROM orphan)) AND t.worker_id = ANY(ARRAY(SELECT DISTINCT worker_id FROM orphan))
       AND t.state + 0 < 3 -- not by index tasks_open
     ORDER BY t.id LIMIT 1000
       FOR NO KEY UPDATE OF t SKIP LOCKED
), upd AS (
    UPDATE holdfast.tasks t
       SET worker_id = NULL, attempt = mine.attempt + 1, run_ordinal = 0, last_seq = mine.last_seq + 1
      FROM mine WHERE t.id = mine.id
), queued AS (
    UPDATE holdfast.task_queue q SET worker_id = NULL, available_at = now()
     WHERE q.id = ANY(ARRAY(SELECT id FROM mine))
    RETURNING q.id, q.agent
), logged AS (
    INSERT INTO holdfast.task_events (task, seq, kind, attempt, payload, worker_id, claimed_at)
    SELECT mine.id, mine.last_seq + 1, 4, mine.attempt,
           json_build_object('outcome', 'lost', 'worker', mine.worker_id), mine.worker_id, mine.claimed_at
      FROM mine
)
SELECT mine.id, queued.agent, (mine.last_seq + 1)::bigint AS seq FROM mine JOIN queued ON queued.id = mine.id;

-- name: LeaseAcquire :one
-- Takes or renews a duty. No row: somebody else has it.
INSERT INTO holdfast.leases (name, holder, until) VALUES (@name, @holder, now() + @ttl::interval)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
 WHERE leases.holder = excluded.holder OR leases.until < now()
RETURNING until;

-- name: LeaseRelease :exec
DELETE FROM holdfast.leases WHERE name = @name AND holder = @holder;

-- name: ServerUptime :one
-- How long PostgreSQL has been up: after a restart, leases that ran out meanwhile say nothing.
SELECT (now() - pg_postmaster_start_time())::interval;
