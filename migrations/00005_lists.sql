-- Clients' lists of tasks: indexes that bound every filter, and the key of their page tokens.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- A list is newest status first, of one owner and agent, with or without a state and a context. With the state before the
-- time, any state is a merge of eight short scans, and a rare one is found without passing over the others. Two indexes
-- for two: as many as before, so that a change of status writes as many entries.
CREATE INDEX tasks_listed ON holdfast.tasks (tenant, owner, agent, direct, state, status_at DESC, id DESC);
CREATE INDEX tasks_of_context ON holdfast.tasks (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC);
DROP INDEX holdfast.tasks_recent;
DROP INDEX holdfast.tasks_context;

-- What replicas must agree on and nobody else may know.
CREATE TABLE holdfast.secrets (
    name       text        NOT NULL,
    value      bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT secrets_pkey PRIMARY KEY (name)
);
INSERT INTO holdfast.secrets (name, value)
VALUES ('page_token', decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));

COMMENT ON TABLE holdfast.secrets IS 'Keys that all replicas share. Not for readers of the database.';
COMMENT ON COLUMN holdfast.secrets.name IS 'page_token: signs the page tokens of lists. A new value voids the tokens that are about.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.secrets;
CREATE INDEX tasks_recent ON holdfast.tasks (tenant, owner, status_at DESC, id DESC);
CREATE INDEX tasks_context ON holdfast.tasks (context_id, status_at DESC, id DESC);
DROP INDEX holdfast.tasks_of_context;
DROP INDEX holdfast.tasks_listed;
