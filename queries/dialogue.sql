-- Reading what was said, for runs. By primary key, backward and in bounded pages.

-- name: DialogueIndex :many
-- What was said in a task before an event, the newest first, without the contents: messages, statuses
-- with a message (of working only with @progress), artifact chunks. The size is that on disk.
SELECT e.seq, e.kind, e.append, coalesce(e.artifact_id, '')::text AS artifact_id, coalesce(pg_column_size(e.payload), 0)::bigint AS size
  FROM holdfast.task_events e
 WHERE e.task = @task AND e.seq < @before
   AND (e.kind IN (1, 3) OR e.kind = 2 AND e.payload IS NOT NULL AND (e.state <> 2 OR @progress::boolean))
 ORDER BY e.seq DESC LIMIT @max_rows;

-- name: EventsAt :many
-- Some events of a log. In any order, like EventsOf.
SELECT sqlc.embed(e)
  FROM holdfast.task_events e
 WHERE e.task = @task AND e.seq = ANY(@seqs::bigint[]);

-- name: RunBegins :one
-- The status that queued the task again for a message, if it was queued behind a run; otherwise 0. What
-- lies before it was said by that run.
SELECT coalesce((
    SELECT e.seq FROM holdfast.task_events e
     WHERE e.task = @task AND e.seq > sqlc.arg(message)::bigint AND e.kind = 2 AND e.state = 1 ORDER BY e.seq DESC LIMIT 1
), 0)::bigint AS seq;

-- name: ContextTasks :many
-- The other tasks of an owner and an agent in a context that have ended or are parked, the newest first.
-- Index tasks_of_context.
SELECT t.* FROM holdfast.tasks t
 WHERE t.context_id = @context_id AND t.tenant = @tenant AND t.owner = @owner AND t.agent = @agent
   AND t.state IN (3, 4, 5, 6, 7, 8) AND t.id < @before AND t.id <> @besides
 ORDER BY t.id DESC LIMIT @max_rows;
