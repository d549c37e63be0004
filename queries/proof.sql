-- Proofs of writes whose outcome was unknown.

-- name: CommitProve :exec
-- Makes the commit of its transaction a real one: a record in PostgreSQL's log, and no row. If a
-- standby is synchronous, the commit waits for it, and then the standby also has every commit that
-- the transaction has read.
SELECT pg_logical_emit_message(true, 'holdfast', '');
