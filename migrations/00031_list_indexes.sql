-- No look-up by id takes an index of lists (decision 0097).
--
-- Both indexes contain the id behind other columns. Beside an old snapshot of another session, vacuum may count at most one
-- open task while the indexes have many dead entries. PostgreSQL then expects any scan of an index to read one page. From
-- version 17 on it expects one scan for an array of ids behind other columns, and several in the primary key. So appends and
-- claims read all dead entries.
--
-- The predicates are always true. But PostgreSQL uses such an index only for statements that compare the owner, or the context.

-- +goose Up
SET LOCAL lock_timeout = '5s';

DROP INDEX holdfast.tasks_listed;
CREATE INDEX tasks_listed ON holdfast.tasks (tenant, owner, agent, direct, state, status_at DESC, id DESC) WHERE owner IS NOT NULL;
DROP INDEX holdfast.tasks_of_context;
CREATE INDEX tasks_of_context ON holdfast.tasks (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC)
    WHERE context_id IS NOT NULL;

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP INDEX holdfast.tasks_listed;
CREATE INDEX tasks_listed ON holdfast.tasks (tenant, owner, agent, direct, state, status_at DESC, id DESC);
DROP INDEX holdfast.tasks_of_context;
CREATE INDEX tasks_of_context ON holdfast.tasks (context_id, tenant, owner, agent, direct, state, status_at DESC, id DESC);
