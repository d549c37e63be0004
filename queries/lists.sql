-- Clients' lists of their tasks: newest status first, by key.
--
-- Each state is a scan of its own that stops at the limit, so that a page costs the same however many tasks there are and
-- however rare the state is. So is each owner, where a tenant sees all of its tasks: there a page costs what their number is.

-- name: TasksListed :many
-- Index tasks_listed.
SELECT p.*
  FROM unnest(@owners::text[]) AS o (owner)
 CROSS JOIN unnest(@states::smallint[]) AS s (state)
 CROSS JOIN LATERAL (
    SELECT * FROM holdfast.tasks t
     WHERE t.tenant = @tenant AND t.owner = o.owner AND t.agent = @agent AND NOT t.direct AND t.state = s.state
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
       AND NOT t.direct AND t.state = s.state
       AND t.status_at >= @since AND (t.status_at, t.id) < (@before_at::timestamptz, @before_id::uuid)
     ORDER BY t.status_at DESC, t.id DESC LIMIT @max_rows
 ) p
 ORDER BY p.status_at DESC, p.id DESC LIMIT @max_rows;

-- name: TasksCounted :one
-- How many tasks a list has, up to a bound. Index tasks_listed; the order keeps the scans from being made at one go.
SELECT count(*) FROM (
    SELECT FROM unnest(@owners::text[]) AS o (owner)
     CROSS JOIN unnest(@states::smallint[]) AS s (state)
     CROSS JOIN LATERAL (
        SELECT FROM holdfast.tasks t
         WHERE t.tenant = @tenant AND t.owner = o.owner AND t.agent = @agent AND NOT t.direct AND t.state = s.state
           AND t.status_at >= @since
         ORDER BY t.status_at DESC, t.id DESC LIMIT @bound
     ) p
     LIMIT @bound
) n;

-- name: TasksCountedOfContext :one
-- The same of one context. Index tasks_of_context.
SELECT count(*) FROM (
    SELECT FROM unnest(@owners::text[]) AS o (owner)
     CROSS JOIN unnest(@states::smallint[]) AS s (state)
     CROSS JOIN LATERAL (
        SELECT FROM holdfast.tasks t
         WHERE t.context_id = @context_id AND t.tenant = @tenant AND t.owner = o.owner AND t.agent = @agent
           AND NOT t.direct AND t.state = s.state AND t.status_at >= @since
         ORDER BY t.status_at DESC, t.id DESC LIMIT @bound
     ) p
     LIMIT @bound
) n;

-- name: EventsOfMany :many
-- What a page of tasks shows of their logs, in the order given: whole logs, as many as fit into the budget of bytes, and
-- the first one whatever its size. Of messages that are not wanted only the fact is read. By primary key; the
-- lowest and the highest of the ids keep the partitions out that hold none of them.
--
-- To know how long a payload is it has to be read and unpacked, so that is asked only of logs that may fit by what they
-- take on disk, which a row tells by itself.
SELECT e.task, e.seq, e.kind, e.state, e.attempt, e.append, e.last, e.artifact_id, CAST(e.payload AS json) AS payload, e.created_at
  FROM (
    SELECT s.*, sum(coalesce(octet_length(s.payload::text), 0)) OVER (ORDER BY s.ord) AS bytes
      FROM (
        SELECT x.*, w.ord, sum(coalesce(pg_column_size(x.payload), 0)) OVER (ORDER BY w.ord) AS stored
          FROM (SELECT unnest(@tasks::uuid[]) AS task, unnest(@froms::bigint[]) AS first, unnest(@uptos::bigint[]) AS upto,
                       generate_subscripts(@tasks::uuid[], 1) AS ord) w
         CROSS JOIN LATERAL (
            SELECT l.task, l.seq, l.kind, l.state, l.attempt, l.append, l.last, l.artifact_id, l.created_at,
                   CASE WHEN l.kind <> 1 OR @with_messages::boolean THEN l.payload END AS payload
              FROM holdfast.callers_log l
             WHERE l.task = w.task AND l.seq BETWEEN w.first AND w.upto AND l.task BETWEEN @lowest AND @highest
               AND (l.kind <> 3 OR @with_artifacts::boolean)
             ORDER BY l.seq
         ) x
      ) s
     WHERE s.ord = 1 OR s.stored <= @budget::bigint
  ) e
 WHERE e.ord = 1 OR e.bytes <= @budget::bigint
 ORDER BY e.ord, e.seq;

-- name: SecretGet :one
SELECT value FROM holdfast.secrets WHERE name = @name;
