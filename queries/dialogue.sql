-- Reading what was said, for runs. By primary key, backward and in bounded pages.

-- name: DialogueIndex :many
-- What was said in a task before an event, the newest first, without the contents: messages, statuses
-- with a message (of working only with @progress), artifact chunks. The size is that on disk.
SELECT e.seq, e.kind, e.append, coalesce(e.artifact_id, '')::text AS artifact_id,
       coalesce(pg_column_size(e.payload), 0)::bigint AS size
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
     WHERE e.task = @task AND e.seq > sqlc.arg(message)::bigint AND e.kind = 2 AND e.state = 1
     ORDER BY e.seq DESC LIMIT 1
), 0)::bigint AS seq;

-- name: ContextTasks :many
-- The other tasks of an owner and an agent in a context that have ended or are parked, the newest first.
-- Index tasks_of_context.
SELECT t.* FROM holdfast.tasks t
 WHERE t.context_id = @context_id AND t.tenant = @tenant AND t.owner = @owner AND t.agent = @agent
   AND t.state IN (3, 4, 5, 6, 7, 8) AND t.id < @before AND t.id <> @besides
 ORDER BY t.id DESC LIMIT @max_rows;

-- name: ArtifactsListed :many
-- What a part of a log has of each artifact, without the contents: where it first appears and where its present content
-- begins (0: before), the chunks since then and their size on disk. By primary key.
WITH c AS MATERIALIZED (
    SELECT coalesce(e.artifact_id, '') AS artifact_id, e.seq, e.last, coalesce(pg_column_size(e.payload), 0) AS size,
           coalesce(max(e.seq) FILTER (WHERE NOT e.append) OVER w, 0) AS begins, max(e.seq) OVER w AS newest
      FROM holdfast.task_events e
     WHERE e.task = @task AND e.seq > sqlc.arg(after)::bigint AND e.seq <= @upto::bigint AND e.kind = 3
    WINDOW w AS (PARTITION BY e.artifact_id)
)
SELECT c.artifact_id::text AS artifact_id, min(c.seq)::bigint AS first_seq, max(c.begins)::bigint AS begins,
       (count(*) FILTER (WHERE c.seq >= c.begins))::bigint AS chunks,
       (sum(c.size) FILTER (WHERE c.seq >= c.begins))::bigint AS size,
       (bool_or(c.last) FILTER (WHERE c.seq = c.newest))::boolean AS last
  FROM c GROUP BY c.artifact_id ORDER BY first_seq;

-- name: ArtifactNames :many
-- The names of artifacts that begin with the given events. By primary key.
SELECT e.seq, coalesce((e.payload -> 'name') #>> '{}', '')::text AS name FROM holdfast.task_events e
 WHERE e.task = @task AND e.seq = ANY(@seqs::bigint[]);

-- name: ArtifactChunks :many
-- The chunks of an artifact in a part of a log, without their contents. By primary key.
SELECT e.seq, e.append, coalesce(pg_column_size(e.payload), 0)::bigint AS size FROM holdfast.task_events e
 WHERE e.task = @task AND e.seq > sqlc.arg(after)::bigint AND e.seq <= @upto::bigint
   AND e.kind = 3 AND e.artifact_id = @artifact_id::text ORDER BY e.seq;

-- name: ArtifactBegun :one
-- Whether an attempt has written a chunk of an artifact. The newest chunks come first: it is mostly one of them.
SELECT coalesce((
    SELECT e.attempt FROM holdfast.task_events e
     WHERE e.task = @task AND e.kind = 3 AND e.artifact_id = @artifact_id::text ORDER BY e.seq DESC LIMIT 1
) = @attempt::integer, false)::boolean AS begun;

-- name: RecordsOf :many
-- What durable runs have recorded, in a part of a log. By primary key.
SELECT e.seq, (e.payload -> 'checkpoint')::json AS record FROM holdfast.task_events e
 WHERE e.task = @task AND e.seq > sqlc.arg(after)::bigint AND e.seq <= @upto::bigint
   AND e.kind = 4 AND (e.payload -> 'outcome') #>> '{}' = 'record'
 ORDER BY e.seq;
