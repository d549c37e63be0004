-- The audit log: rows come from holdfast.audit (migration 00013), here and at the end of other statements.

-- name: AuditAppend :exec
-- The last statement of a transaction.
SELECT holdfast.audit(@entries::text);

-- name: AuditChains :many
SELECT chain, length, head FROM holdfast.audit_chains ORDER BY chain;

-- name: AuditRows :many
-- The next rows of a chain, by primary key. The text of the entries is what was hashed.
SELECT n, at, login, entries::text AS entries, hash FROM holdfast.audit_log
 WHERE chain = @chain AND n > @after ORDER BY n LIMIT @max_rows;
