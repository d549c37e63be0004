-- Queries of operators, by command line and console.

-- name: OpsTasks :many
-- Newest first by id, which is the order of creation (primary key), with optional filters.
SELECT * FROM holdfast.tasks
 WHERE id < @before
   AND (@agent::text = '' OR agent = @agent)
   AND (@state::smallint = 0 OR state = @state)
   AND (@context_id::text = '' OR context_id = @context_id)
   AND (@owner::text = '' OR owner = @owner)
   AND (NOT @by_tenant::boolean OR tenant = @tenant::text)
 ORDER BY id DESC LIMIT @max_rows;

-- name: OpsTasksNamed :many
-- Every task with this client-chosen id: several clients may have chosen the same one. Index
-- task_names_of_tenant.
SELECT task FROM holdfast.task_names WHERE client_id = @client_id::text ORDER BY task DESC LIMIT 20;

-- name: OpsOpenTasks :many
-- Tasks that have not ended, the newest first.
SELECT * FROM holdfast.tasks
 WHERE state < 5
   AND (@agent::text = '' OR agent = @agent)
   AND (@context_id::text = '' OR context_id = @context_id)
   AND (@owner::text = '' OR owner = @owner)
   AND (NOT @by_tenant::boolean OR tenant = @tenant::text)
 ORDER BY id DESC LIMIT @max_rows;

-- name: TaskRetried :exec
-- Notes the task that a retry has made of another, unless it has made a later one: a repeated request may find an
-- earlier one. By primary key.
UPDATE holdfast.tasks SET retried_as = @again::uuid
 WHERE id = @id AND coalesce(retried_as < @again::uuid, true);

-- name: OpsTasksSince :many
-- Tasks created after a task or a time; an id begins with its time (primary key).
SELECT * FROM holdfast.tasks
 WHERE id > @since
   AND (@agent::text = '' OR agent = @agent)
   AND (@context_id::text = '' OR context_id = @context_id)
   AND (@owner::text = '' OR owner = @owner)
   AND (NOT @by_tenant::boolean OR tenant = @tenant::text)
 ORDER BY id LIMIT @max_rows;

-- name: NotifySend :exec
-- Hints for other replicas, each payload below NOTIFY's 8,000 bytes.
SELECT pg_notify('holdfast', p) FROM unnest(@payloads::text[]) AS p;

-- name: NotifyQueueTrim :one
-- Makes PostgreSQL discard the notifications that every listener has read, as a side effect of this
-- function. Once the queue is full, nothing else does.
SELECT pg_notification_queue_usage();

-- name: SessionBusy :one
-- Whether a session with this process id and name executes a statement.
SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
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
