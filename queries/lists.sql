-- Clients' lists of their tasks: newest status first, by key.
--
-- Each state has its own scan that stops at the limit. So the cost of a page does not depend on the
-- number of tasks or on how rare the state is. Where a tenant sees all of its tasks, each owner has
-- its own scan, too: there the cost of a page grows with the number of owners.

-- name: TasksListed :many
-- Index tasks_listed.
SELECT p.*
  FROM unnest(@owners::text[]) AS o (owner)
 CROSS JOIN unnest(@states::smallint[]) AS s (state)
 CROSS JOIN LATERAL (
    SELECT * FROM holdfast.tasks t
     WHERE t.tenant = @tenant AND t.owner = o.owner AND t.agent = @agent AND NOT t.direct AND t.state = s.state
       AND t.state <= @highest_state
       AND t.status_at >= @since AND (t.status_at, t.id) < (@before_at::timestamptz, @before_id::uuid)
     ORDER BY t.status_at DESC, t.id DESC LIMIT @max_rows
 ) p
 ORDER BY p.status_at DESC, p.id DESC LIMIT @max_rows;

-- name: TasksListedOfContext :many
-- Index tasks_of_context.
SELECT p.*
  FROM unnest(@owners::text[]) AS o (owner)
 CROSS JOIN unnest(@states::smallint[]) AS s (state)
 CROSS JOIN LATERAL (
    SELECT * FROM holdfast.tasks t
     WHERE t.context_id = @context_id AND t.tenant = @tenant AND t.owner = o.owner AND t.agent = @agent
       AND NOT t.direct AND t.state = s.state AND t.state <= @highest_state
       AND t.status_at >= @since AND (t.status_at, t.id) < (@before_at::timestamptz, @before_id::uuid)
     ORDER BY t.status_at DESC, t.id DESC LIMIT @max_rows
 ) p
 ORDER BY p.status_at DESC, p.id DESC LIMIT @max_rows;

-- name: TasksCounted :one
-- Counts the tasks of a list, up to a bound. Index tasks_listed; with the order PostgreSQL does not
-- merge the scans into one.
SELECT count(*) FROM (
    SELECT FROM unnest(@owners::text[]) AS o (owner)
     CROSS JOIN unnest(@states::smallint[]) AS s (state)
     CROSS JOIN LATERAL (
        SELECT FROM holdfast.tasks t
         WHERE t.tenant = @tenant AND t.owner = o.owner AND t.agent = @agent AND NOT t.direct AND t.state = s.state
           AND t.state <= @highest_state
           AND t.status_at >= @since
         ORDER BY t.status_at DESC, t.id DESC LIMIT @bound
     ) p
     LIMIT @bound
) n;

-- name: TasksCountedOfContext :one
-- The same for one context. Index tasks_of_context.
SELECT count(*) FROM (
    SELECT FROM unnest(@owners::text[]) AS o (owner)
     CROSS JOIN unnest(@states::smallint[]) AS s (state)
     CROSS JOIN LATERAL (
        SELECT FROM holdfast.tasks t
         WHERE t.context_id = @context_id AND t.tenant = @tenant AND t.owner = o.owner AND t.agent = @agent
           AND NOT t.direct AND t.state = s.state AND t.state <= @highest_state AND t.status_at >= @since
         ORDER BY t.status_at DESC, t.id DESC LIMIT @bound
     ) p
     LIMIT @bound
) n;

-- name: EventsOfMany :many
-- The logs of the tasks of a page, in the order given; the reader stops when it has enough bytes. Of
-- messages that are not wanted the payload is not read. By primary key; the lowest and the highest
-- id prune the partitions that hold none of them. There is no ORDER BY over all tasks: the join goes
-- through the tasks in order, and a sort would write large pages to disk.
SELECT x.task, x.seq, x.kind, x.state, x.append, x.artifact_id, CAST(x.payload AS json) AS payload, x.created_at
  FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@froms::bigint[]) AS first, unnest(@uptos::bigint[]) AS upto) w
 CROSS JOIN LATERAL (
    SELECT l.task, l.seq, l.kind, l.state, l.append, l.artifact_id, l.created_at,
           CASE WHEN l.kind <> 1 OR @with_messages::boolean THEN l.payload END AS payload
      FROM holdfast.callers_log l
     WHERE l.task = w.task AND l.seq BETWEEN w.first AND w.upto AND l.task BETWEEN @lowest AND @highest
       AND l.id BETWEEN @lowest AND @highest
       AND (l.kind <> 3 OR @with_artifacts::boolean)
     ORDER BY l.seq
 ) x;

-- name: EventsWitness :many
-- When some events of tasks were committed, of those that are still there. By primary key; the lowest and the highest
-- id are as in EventsOfMany. OFFSET 0: a join would read the whole logs.
SELECT x.task, x.seq, x.created_at
  FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@seqs::bigint[]) AS seq) w
 CROSS JOIN LATERAL (
    SELECT l.task, l.seq, l.created_at FROM holdfast.callers_log l
     WHERE l.task = w.task AND l.seq = w.seq AND l.task BETWEEN @lowest AND @highest
       AND l.id BETWEEN @lowest AND @highest
    OFFSET 0
 ) x;

-- name: SecretGet :one
SELECT value FROM holdfast.secrets WHERE name = @name;
