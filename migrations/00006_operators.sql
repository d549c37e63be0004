-- Operators: jobs that act on many tasks, sessions of browsers, and views.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- One row for each job. A replica that works on it has claimed it for a short time, and any other one continues when
-- that is over. batch has the tasks that it acts on now: they are stored before it begins, so they are counted once.
CREATE TABLE holdfast.admin_jobs (
    id            uuid        NOT NULL,
    action        text        NOT NULL,
    dry_run       boolean     NOT NULL,
    filter        json        NOT NULL,
    options       json        NOT NULL,
    reason        text        NOT NULL,
    tenant        text,
    actor         json        NOT NULL,
    position      uuid        NOT NULL,
    batch         uuid[]      NOT NULL DEFAULT '{}',
    matched       bigint      NOT NULL DEFAULT 0,
    done          bigint      NOT NULL DEFAULT 0,
    skipped       bigint      NOT NULL DEFAULT 0,
    failed        bigint      NOT NULL DEFAULT 0,
    failures      json        NOT NULL DEFAULT '[]',
    fence         bigint      NOT NULL DEFAULT 0,
    worker_id     uuid,
    claimed_until timestamptz NOT NULL DEFAULT 'epoch',
    created_at    timestamptz NOT NULL DEFAULT now(),
    started_at    timestamptz,
    canceled_at   timestamptz,
    ended_at      timestamptz,
    CONSTRAINT admin_jobs_pkey PRIMARY KEY (id),
    CONSTRAINT admin_jobs_counts CHECK (matched >= 0 AND done >= 0 AND skipped >= 0 AND failed >= 0)
);
CREATE INDEX admin_jobs_open ON holdfast.admin_jobs (id) WHERE ended_at IS NULL;
CREATE INDEX admin_jobs_ended ON holdfast.admin_jobs (ended_at) WHERE ended_at IS NOT NULL;

COMMENT ON TABLE holdfast.admin_jobs IS 'Jobs of the admin API: an action on all tasks that a filter selects.';
COMMENT ON COLUMN holdfast.admin_jobs.dry_run IS 'The job counts the tasks and changes none.';
COMMENT ON COLUMN holdfast.admin_jobs.tenant IS 'The only tenant that its operator may see; null: all.';
COMMENT ON COLUMN holdfast.admin_jobs.actor IS 'The operator, for the audit log.';
COMMENT ON COLUMN holdfast.admin_jobs.position IS
    'The tasks from this id on are done, or in batch. The job goes from the newest task to the oldest.';
COMMENT ON COLUMN holdfast.admin_jobs.batch IS 'The tasks that the job acts on now.';
COMMENT ON COLUMN holdfast.admin_jobs.failures IS 'The newest failures: task and error.';
COMMENT ON COLUMN holdfast.admin_jobs.fence IS 'Each claim raises it; a write with an older one changes nothing.';
COMMENT ON COLUMN holdfast.admin_jobs.worker_id IS 'The process that claimed it last.';
COMMENT ON COLUMN holdfast.admin_jobs.claimed_until IS 'When another process may claim it.';

CREATE TABLE holdfast.admin_sessions (
    id          uuid        NOT NULL,
    secret_hash bytea       NOT NULL,
    scheme      text        NOT NULL,
    key_id      text,
    tenant      text        NOT NULL,
    subject     text        NOT NULL,
    scopes      text[]      NOT NULL,
    address     text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    CONSTRAINT admin_sessions_pkey PRIMARY KEY (id)
);
CREATE INDEX admin_sessions_expires ON holdfast.admin_sessions (expires_at);

COMMENT ON TABLE holdfast.admin_sessions IS 'Sessions of operators in browsers. A session that was ended has no row.';
COMMENT ON COLUMN holdfast.admin_sessions.secret_hash IS 'SHA-256 of the secret, which only the cookie has.';
COMMENT ON COLUMN holdfast.admin_sessions.scheme IS 'The scheme that admitted the operator.';
COMMENT ON COLUMN holdfast.admin_sessions.key_id IS
    'The API key that the operator showed; null: the operator came from an issuer. The session ends with it, and has '
    'its scopes.';

CREATE TABLE holdfast.admin_views (
    bound  boolean NOT NULL,
    tenant text    NOT NULL,
    name   text    NOT NULL,
    filter text    NOT NULL,
    CONSTRAINT admin_views_pkey PRIMARY KEY (bound, tenant, name)
);
COMMENT ON TABLE holdfast.admin_views IS 'Filters of tasks to which operators gave a name.';
COMMENT ON COLUMN holdfast.admin_views.bound IS
    'It is for the operators of its tenant only; otherwise for those of all tenants.';
COMMENT ON COLUMN holdfast.admin_views.filter IS 'The query of its address in the console.';
