-- The keys that clients show. All statements but the list go by the primary key.

-- name: APIKeyFind :one
-- The database's clock decides what has expired.
SELECT key_hash, tenant, subject, scopes, (revoked_at IS NOT NULL)::boolean AS revoked,
       coalesce(extract(epoch FROM expires_at - now()), 1e9)::float8 AS seconds_left,
       coalesce(last_used_at < now() - interval '5 minutes', true)::boolean AS use_unrecorded
  FROM holdfast.api_keys WHERE key_id = @key_id;

-- name: APIKeyUsed :exec
-- Seldom enough to cost nothing: of many replicas that see the key at once, one writes.
UPDATE holdfast.api_keys SET last_used_at = now()
 WHERE key_id = @key_id AND (last_used_at IS NULL OR last_used_at < now() - interval '5 minutes');

-- name: APIKeyAdd :one
INSERT INTO holdfast.api_keys (key_id, key_hash, name, tenant, subject, scopes, expires_at)
VALUES (@key_id, @key_hash, @name, @tenant, @subject, @scopes::text[],
        CASE WHEN @lifetime::interval > interval '0' THEN now() + @lifetime::interval END)
RETURNING *;

-- name: APIKeys :many
-- For operators: all of them, the newest first.
SELECT * FROM holdfast.api_keys ORDER BY created_at DESC, key_id;

-- name: APIKeyRevoke :one
-- A key stays revoked since the first time.
UPDATE holdfast.api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE key_id = @key_id
RETURNING *;
