-- Sessions of operators' browsers.

-- name: SessionFind :one
-- By the primary keys of both tables. A session that was opened with an API key has what the key has now, and ends with
-- it.
SELECT s.secret_hash, s.scheme, coalesce(s.key_id, '')::text AS key_id,
       coalesce(k.tenant, s.tenant)::text AS tenant, coalesce(k.subject, s.subject)::text AS subject,
       coalesce(k.scopes, s.scopes)::text[] AS scopes,
       (s.key_id IS NOT NULL AND (k.key_id IS NULL OR k.revoked_at IS NOT NULL))::boolean AS revoked,
       s.expires_at,
       extract(epoch FROM least(s.expires_at, k.expires_at) - now())::float8 AS seconds_left
  FROM holdfast.admin_sessions s
  LEFT JOIN LATERAL (SELECT * FROM holdfast.api_keys a WHERE a.key_id = s.key_id OFFSET 0) k ON true
 WHERE s.id = @id;

-- name: SessionAdd :one
INSERT INTO holdfast.admin_sessions (id, secret_hash, scheme, key_id, tenant, subject, scopes, address, expires_at)
VALUES (@id, @secret_hash, @scheme, nullif(@key_id::text, ''), @tenant, @subject, @scopes::text[], @address,
        now() + @lifetime::interval)
RETURNING expires_at;

-- name: Sessions :many
-- For operators: those that have not expired, the newest first; @bound: of one tenant. Index admin_sessions_expires.
-- There are as many as operators have logged in within a session's lifetime.
SELECT id, scheme, coalesce(key_id, '')::text AS key_id, tenant, subject, scopes, address, created_at, expires_at
  FROM holdfast.admin_sessions
 WHERE expires_at > now() AND (NOT @bound::boolean OR tenant = @tenant::text)
 ORDER BY created_at DESC, id LIMIT @most;

-- name: SessionEnd :one
-- By the primary key.
DELETE FROM holdfast.admin_sessions WHERE id = @id AND (NOT @bound::boolean OR tenant = @tenant::text)
RETURNING id, tenant, subject;

-- name: SessionsForget :exec
-- Deletes expired sessions, at most 100. Index admin_sessions_expires.
DELETE FROM holdfast.admin_sessions
 WHERE id = ANY(ARRAY(SELECT s.id
                        FROM holdfast.admin_sessions s
                       WHERE s.expires_at < now() - interval '1 hour'
                       ORDER BY s.expires_at LIMIT 100
                         FOR UPDATE SKIP LOCKED));
