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

-- name: ArtifactsListed :many
-- The artifacts of a task in the order of their first appearance, without their contents: where the present
-- content begins, its chunks and its size on disk.
WITH c AS MATERIALIZED (
    SELECT e.artifact_id, e.seq, e.append, e.last, coalesce(pg_column_size(e.payload), 0) AS size
      FROM holdfast.task_events e WHERE e.task = @task AND e.kind = 3
), a AS MATERIALIZED (
    SELECT c.artifact_id, min(c.seq) AS first_seq, coalesce(max(c.seq) FILTER (WHERE NOT c.append), min(c.seq)) AS begins, max(c.seq) AS newest
      FROM c GROUP BY c.artifact_id
), page AS MATERIALIZED (
    SELECT * FROM a WHERE a.first_seq > sqlc.arg(after)::bigint ORDER BY a.first_seq LIMIT @max_rows
)
SELECT coalesce(p.artifact_id, '')::text AS artifact_id, p.first_seq::bigint AS first_seq,
       coalesce((SELECT (e.payload -> 'name') #>> '{}' FROM holdfast.task_events e WHERE e.task = @task AND e.seq = p.begins), '')::text AS name,
       s.chunks::bigint AS chunks, s.size::bigint AS size, s.last::boolean AS last
  FROM page p
 CROSS JOIN LATERAL (
    SELECT count(*) AS chunks, sum(c.size) AS size, bool_or(c.last AND c.seq = p.newest) AS last
      FROM c WHERE c.artifact_id = p.artifact_id AND c.seq >= p.begins
 ) s
 ORDER BY p.first_seq;

-- name: ArtifactChunks :many
-- The chunks of an artifact, without their contents.
SELECT e.seq, e.append, coalesce(pg_column_size(e.payload), 0)::bigint AS size FROM holdfast.task_events e
 WHERE e.task = @task AND e.kind = 3 AND e.artifact_id = @artifact_id::text ORDER BY e.seq;

-- name: ArtifactBegun :one
-- Whether an attempt has written a chunk of an artifact. The newest chunks come first: it is mostly one of them.
SELECT coalesce((
    SELECT e.attempt FROM holdfast.task_events e
     WHERE e.task = @task AND e.kind = 3 AND e.artifact_id = @artifact_id::text ORDER BY e.seq DESC LIMIT 1
) = @attempt::integer, false)::boolean AS begun;
