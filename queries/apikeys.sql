-- Clients' API keys. All statements use the primary key.

-- name: APIKeyFind :one
-- The database's clock decides whether a key has expired.
SELECT key_hash, tenant, subject, scopes, (revoked_at IS NOT NULL)::boolean AS revoked,
       coalesce(extract(epoch FROM expires_at - now()), 1e9)::float8 AS seconds_left,
       coalesce(last_used_at < now() - interval '5 minutes', true)::boolean AS use_unrecorded
  FROM holdfast.api_keys WHERE key_id = @key_id;

-- name: APIKeyUsed :exec
-- Rare enough to cost nothing: if many replicas see the key at once, one of them writes.
UPDATE holdfast.api_keys SET last_used_at = now()
 WHERE key_id = @key_id AND (last_used_at IS NULL OR last_used_at < now() - interval '5 minutes');

-- name: APIKeyAdd :one
INSERT INTO holdfast.api_keys (key_id, key_hash, name, tenant, subject, scopes, expires_at)
VALUES (@key_id, @key_hash, @name, @tenant, @subject, @scopes::text[],
        CASE WHEN @lifetime::interval > interval '0' THEN now() + @lifetime::interval END)
RETURNING *;

-- name: APIKeyCounts :one
-- For metrics. Keys that are made for a few days are expected to expire.
SELECT count(*) FILTER (WHERE revoked_at IS NOT NULL)::bigint AS revoked,
       count(*) FILTER (WHERE revoked_at IS NULL AND expires_at <= now())::bigint AS expired,
       count(*) FILTER (WHERE revoked_at IS NULL AND expires_at > now() AND expires_at <= now() + interval '7 days'
                          AND expires_at - created_at > interval '14 days')::bigint AS expiring,
       count(*)::bigint AS total
  FROM holdfast.api_keys;

-- name: APIKeyRevoke :one
-- A second call keeps the time of the first.
UPDATE holdfast.api_keys SET revoked_at = coalesce(revoked_at, now())
 WHERE key_id = @key_id AND (NOT @by_tenant::boolean OR tenant = @tenant::text)
RETURNING *;
