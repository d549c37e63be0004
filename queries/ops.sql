-- What operators ask, by command line and console.

-- name: OpsTasks :many
-- Newest first by id, which is the order of creation (primary key), with optional filters.
SELECT * FROM holdfast.tasks
 WHERE id < @before
   AND (@agent::text = '' OR agent = @agent)
   AND (@state::smallint = 0 OR state = @state)
   AND (@context_id::text = '' OR context_id = @context_id)
   AND (@owner::text = '' OR owner = @owner)
 ORDER BY id DESC LIMIT @max_rows;

-- name: OpsTasksNamed :many
-- Every task that somebody calls by this id: clients may choose the same one.
SELECT id FROM holdfast.tasks WHERE client_id = @client_id::text ORDER BY id DESC LIMIT 20;

-- name: OpsOpenTasks :many
-- Those that have not ended, the newest first. Their ids are gathered apart, so that it is the
-- partial index tasks_open that is read, and not the primary key of all that ever were.
WITH open AS MATERIALIZED (
    SELECT id FROM holdfast.tasks
     WHERE state < 5
       AND (@agent::text = '' OR agent = @agent)
       AND (@context_id::text = '' OR context_id = @context_id)
       AND (@owner::text = '' OR owner = @owner)
)
SELECT * FROM holdfast.tasks
 WHERE id = ANY(ARRAY(SELECT id FROM open ORDER BY id DESC LIMIT @max_rows::integer))
 ORDER BY id DESC;

-- name: OpsTasksSince :many
-- Those created after a task or a moment, which an id begins with (primary key).
SELECT * FROM holdfast.tasks
 WHERE id > @since
   AND (@agent::text = '' OR agent = @agent)
   AND (@context_id::text = '' OR context_id = @context_id)
   AND (@owner::text = '' OR owner = @owner)
 ORDER BY id LIMIT @max_rows;

-- name: NotifySend :exec
-- Hints for other replicas, each payload below NOTIFY's 8,000 bytes.
SELECT pg_notify('holdfast', p) FROM unnest(@payloads::text[]) AS p;

-- name: NotifyQueueTrim :one
-- Makes PostgreSQL forget the notifications that every listener has read, as this function does
-- beside what it is asked for. Nothing else would, once the queue is full.
SELECT pg_notification_queue_usage();
