-- The audit log. Function holdfast.audit (00004_keys_and_audit) writes its rows, here and at the
-- end of other statements.

-- name: AuditAppend :exec
-- Must be the last statement of a transaction.
SELECT holdfast.audit(@entries::text);

-- name: AuditChains :many
SELECT chain, length, head, removed, removed_head FROM holdfast.audit_chains ORDER BY chain;

-- name: AuditRows :many
-- The next rows of a chain, by primary key. The hash covers the text of the entries.
SELECT n, at, login, entries::text AS entries, hash FROM holdfast.audit_log
 WHERE chain = @chain AND n > @after ORDER BY n LIMIT @max_rows;
