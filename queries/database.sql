-- Queries about the database and its sessions, not about rows.

-- name: NotifySend :exec
-- Hints for other replicas, each payload below NOTIFY's 8,000 bytes.
SELECT pg_notify('holdfast', p) FROM unnest(@payloads::text[]) AS p;

-- name: NotifyQueueTrim :one
-- Makes PostgreSQL discard the notifications that every listener has read, as a side effect of this
-- function. Once the queue is full, nothing else does.
SELECT pg_notification_queue_usage();

-- name: SessionBusy :one
-- Whether a session with this process id and name executes a statement.
SELECT EXISTS (SELECT
                 FROM pg_catalog.pg_stat_activity
                WHERE pid = @pid::integer AND application_name = @name::text AND state = 'active');

-- name: Blockers :many
-- The sessions for whose locks others in this database have waited for a while, and that wait for none themselves.
-- Times of other roles' transactions are hidden, so the time may be that of the wait. Process 0 stands for prepared
-- transactions.
SELECT b.pid::integer AS pid,
       coalesce(a.usename::text, '')::text AS role,
       coalesce(a.application_name, '')::text AS program,
       count(DISTINCT l.pid)::integer AS waiting,
       coalesce(string_agg(DISTINCT l.relation::regclass::text, ', '), '')::text AS tables,
       extract(epoch FROM clock_timestamp() - min(coalesce(a.xact_start, l.waitstart)))::float8 AS seconds
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_stat_activity w ON w.pid = l.pid AND w.datname = current_database()
CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) AS b (pid)
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
WHERE NOT l.granted
  AND l.waitstart < clock_timestamp() - interval '300 ms'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_locks o WHERE o.pid = b.pid AND NOT o.granted)
GROUP BY b.pid, a.usename, a.application_name
ORDER BY waiting DESC
LIMIT 5;
