-- Webhooks: configurations, how far each has been delivered, and what happened to each attempt.
--
--   push_configs                                 one row per configuration, written when it is set
--   push_cursors                                 one row per configuration, updated by marks, claims and records
--   push_attempts ── attempts_20261101 …         by day; the server creates the partitions
--
-- Configurations and cursors go with their task, row by row.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE TABLE holdfast.push_configs (
    task       uuid        NOT NULL,
    config_id  text        NOT NULL,
    agent      text        NOT NULL,
    public_id  text        NOT NULL,
    dialect    text        NOT NULL,
    url        text        NOT NULL,
    schemes    json        NOT NULL,
    secrets    bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT push_configs_pkey PRIMARY KEY (task, config_id)
);

COMMENT ON TABLE holdfast.push_configs IS 'Where to deliver the events of a task.';
COMMENT ON COLUMN holdfast.push_configs.config_id IS
    'Unique within its task; the task''s public id for the default one.';
COMMENT ON COLUMN holdfast.push_configs.agent IS 'As the task''s: claims look at no task.';
COMMENT ON COLUMN holdfast.push_configs.public_id IS
    'The task''s public id when the configuration was set, by which the receiver knows it; another task may have that '
    'client_id since.';
COMMENT ON COLUMN holdfast.push_configs.dialect IS
    'The A2A version of the request that set it: decides bodies and headers.';
COMMENT ON COLUMN holdfast.push_configs.schemes IS 'Authentication schemes of the receiver, the preferred one first.';
COMMENT ON COLUMN holdfast.push_configs.secrets IS
    'Token and credentials, sealed (internal/secrets); null for neither.';

-- The outbox is one cursor per configuration and not a row per event.
CREATE TABLE holdfast.push_cursors (
    task          uuid        NOT NULL,
    config_id     text        NOT NULL,
    host          text        NOT NULL,
    caller        bigint      NOT NULL DEFAULT 0,
    artifacts     boolean     NOT NULL,
    accepted      boolean     NOT NULL DEFAULT false,
    next_seq      bigint      NOT NULL DEFAULT 1,
    due_seq       bigint      NOT NULL DEFAULT 0,
    due_at        timestamptz,
    due_since     timestamptz,
    parked        boolean     NOT NULL DEFAULT false,
    attempts      integer     NOT NULL DEFAULT 0,
    failing_since timestamptz,
    last_error    text,
    claim         uuid,
    worker_id     uuid,
    locked_until  timestamptz,
    disabled_at   timestamptz,
    disabled_for  text,
    CONSTRAINT push_cursors_pkey PRIMARY KEY (task, config_id),
    CONSTRAINT push_cursors_counts CHECK (next_seq >= 1 AND attempts >= 0),
    CONSTRAINT push_cursors_claimed
        CHECK ((claim IS NULL) = (locked_until IS NULL) AND (claim IS NULL) = (worker_id IS NULL))
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX push_cursors_due ON holdfast.push_cursors (due_at) WHERE due_at IS NOT NULL AND NOT parked;
-- A lane is what one caller has for one host. Behind thousands of webhooks of a host or a caller at its concurrency
-- limit, claims find the others by going from lane to lane.
CREATE INDEX push_cursors_lanes ON holdfast.push_cursors (caller, host, due_at) WHERE parked AND due_at IS NOT NULL;
CREATE INDEX push_cursors_disabled_at ON holdfast.push_cursors (disabled_at) WHERE disabled_at IS NOT NULL;
-- The lists of the console. Both are partial, so deliveries that succeed do not write to them.
CREATE INDEX push_cursors_failing ON holdfast.push_cursors (task, config_id) WHERE attempts > 0;
CREATE INDEX push_cursors_disabled ON holdfast.push_cursors (task, config_id) WHERE disabled_at IS NOT NULL;

COMMENT ON TABLE holdfast.push_cursors IS 'How far each configuration has been delivered and when it is due again.';
COMMENT ON COLUMN holdfast.push_cursors.host IS 'Host and port of the URL: concurrency is bounded per host.';
COMMENT ON COLUMN holdfast.push_cursors.caller IS
    'push_caller of the task''s tenant and owner: concurrency is bounded per caller.';
COMMENT ON COLUMN holdfast.push_cursors.artifacts IS 'Artifact events are delivered, too.';
COMMENT ON COLUMN holdfast.push_cursors.accepted IS 'Its receiver has accepted a delivery at this URL.';
COMMENT ON COLUMN holdfast.push_cursors.next_seq IS 'The first event that has not been delivered or passed over.';
COMMENT ON COLUMN holdfast.push_cursors.due_seq IS
    'The newest event to deliver; set by the commit that writes it. 0: none yet.';
COMMENT ON COLUMN holdfast.push_cursors.due_at IS
    'When to look next: the next attempt, or the end of a claim. Null: nothing to deliver, or disabled.';
COMMENT ON COLUMN holdfast.push_cursors.due_since IS 'Since when there has been something to deliver.';
COMMENT ON COLUMN holdfast.push_cursors.parked IS
    'It is due and parked, because its host or its caller is at the concurrency limit.';
COMMENT ON COLUMN holdfast.push_cursors.attempts IS 'Failed attempts since the last success.';
COMMENT ON COLUMN holdfast.push_cursors.claim IS
    'Fencing token of the process that delivers at present; each claim makes a new one.';
COMMENT ON COLUMN holdfast.push_cursors.disabled_at IS
    'Since when nothing is delivered, for the reason in disabled_for. Events are still marked.';

CREATE SEQUENCE holdfast.push_attempts_id;
CREATE TABLE holdfast.push_attempts (
    id          bigint      NOT NULL DEFAULT nextval('holdfast.push_attempts_id'),
    task        uuid        NOT NULL,
    config_id   text        NOT NULL,
    host        text,
    started_at  timestamptz NOT NULL DEFAULT now(),
    from_seq    bigint      NOT NULL,
    to_seq      bigint      NOT NULL,
    delivery_id text        NOT NULL,
    attempt     integer     NOT NULL,
    class       text        NOT NULL,
    status      integer,
    error       text,
    duration    interval,
    worker_id   uuid,
    CONSTRAINT push_attempts_pkey PRIMARY KEY (id, started_at),
    CONSTRAINT push_attempts_range CHECK (to_seq >= from_seq)
) PARTITION BY RANGE (started_at);
CREATE INDEX push_attempts_of ON holdfast.push_attempts (task, config_id, id);

COMMENT ON TABLE holdfast.push_attempts IS 'Every delivery attempt and its outcome.';
COMMENT ON COLUMN holdfast.push_attempts.host IS
    'Host and port of the URL: clients delete configurations. Null: an older server made the attempt.';
COMMENT ON COLUMN holdfast.push_attempts.delivery_id IS
    'The jti of the request: the same for every attempt of one delivery.';
COMMENT ON COLUMN holdfast.push_attempts.attempt IS 'Which try of the delivery it was, from 1.';
COMMENT ON COLUMN holdfast.push_attempts.class IS 'The outcome, as the metrics call it.';
COMMENT ON COLUMN holdfast.push_attempts.status IS 'The HTTP status; null if there was no answer.';

-- +goose StatementBegin
CREATE FUNCTION holdfast.push_caller(tenant text, owner text) RETURNS bigint
IMMUTABLE LANGUAGE sql AS $$
    SELECT CASE WHEN tenant = '' AND owner = '' THEN 0 ELSE hashtextextended(tenant || chr(31) || owner, 0) END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_caller IS
    'The caller of a webhook, as a number. 0: no caller, where the server authenticates nobody.';

-- A statement that has waited for a task's lock may have begun before the commit of a configuration that the task has
-- got meanwhile. A volatile function looks again, with a snapshot of its own.
--
-- The mark is set whatever the row says: a record of a delivery at the same moment decides by it whether the
-- configuration is due again, so the later of the two must see the other's value. Rows are locked in the order of
-- (task, config_id), as records lock them: an index scan for an array goes by that order, a bitmap scan would not.
-- +goose StatementBegin
CREATE FUNCTION holdfast.push_mark(tasks uuid[], statuses bigint[], newest bigint[]) RETURNS integer
VOLATILE STRICT LANGUAGE plpgsql
SET enable_bitmapscan = off
SET enable_seqscan = off AS $$
DECLARE
    marked integer;
BEGIN
    UPDATE holdfast.push_cursors k
       -- The place of a task in the array, by bisection.
       SET due_seq = (CASE WHEN k.artifacts THEN newest ELSE statuses END)[width_bucket(k.task, tasks)],
           due_at = CASE WHEN k.disabled_at IS NULL THEN coalesce(k.due_at, now()) END,
           due_since = coalesce(k.due_since, now())
     WHERE k.task = ANY (tasks) AND (k.artifacts OR statuses[width_bucket(k.task, tasks)] IS NOT NULL);
    GET DIAGNOSTICS marked = ROW_COUNT;
    RETURN marked;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_mark IS
    'Marks the webhooks of tasks, which are sorted, as due: for the newest status (null: none), or the newest event '
    'for those that want artifacts. Null for no tasks. The caller has locked the tasks.';

-- Rows are sought by where they lie, which takes one step for each however many there are. A row that somebody writes
-- at the same moment is left to the next call. With a due time to start from, parking skips dead index entries.
-- +goose StatementBegin
CREATE FUNCTION holdfast.push_park(
    window_rows integer,
    busy_hosts text[],
    busy_callers bigint[],
    since timestamptz DEFAULT '-infinity'
) RETURNS integer VOLATILE LANGUAGE plpgsql AS $$
DECLARE
    n integer;
BEGIN
    UPDATE holdfast.push_cursors k SET parked = true
     WHERE k.ctid = ANY (ARRAY(
        SELECT h.ctid FROM holdfast.push_cursors h
         WHERE h.ctid = ANY (ARRAY(
            SELECT w.place
              FROM (SELECT d.ctid AS place, d.host, d.caller FROM holdfast.push_cursors d
                     WHERE NOT d.parked AND d.due_at >= since AND d.due_at <= now()
                     ORDER BY d.due_at LIMIT window_rows) w
             WHERE w.host = ANY (busy_hosts) OR w.caller = ANY (busy_callers)
         )) AND NOT h.parked AND coalesce(h.due_at <= now(), false) -- not by index push_cursors_due
           FOR NO KEY UPDATE SKIP LOCKED
     ));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.push_park IS
    'Parks the deliveries for these hosts and callers, among those that have been due for longest since then, and '
    'returns how many it parked.';
