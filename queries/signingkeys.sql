-- The keys that replicas sign with: a handful of rows, all read at once.

-- name: SigningKeys :many
-- Newest first, so that every replica publishes them in the same order.
SELECT key_id, algorithm, private_key,
       (now() - created_at)::interval AS age, (active_at - now())::interval AS until_active
  FROM holdfast.signing_keys ORDER BY active_at DESC, key_id;

-- name: SigningKeysLock :exec
-- Allows one rotation at a time. The lock lasts until the transaction ends.
SELECT pg_advisory_xact_lock(hashtext('holdfast.signing_keys'));

-- name: SigningKeyAdd :execrows
-- Adds a key unless there is one younger than max_age. The first key is active at once.
INSERT INTO holdfast.signing_keys (key_id, algorithm, private_key, active_at)
SELECT @key_id, @algorithm, @private_key,
       CASE WHEN EXISTS (SELECT FROM holdfast.signing_keys) THEN now() + @lead::interval ELSE now() END
 WHERE NOT EXISTS (SELECT FROM holdfast.signing_keys WHERE created_at > now() - @max_age::interval);

-- name: SigningKeysRetire :execrows
-- Deletes the keys that a later one replaced longer than overlap ago.
DELETE FROM holdfast.signing_keys k
 WHERE EXISTS (SELECT FROM holdfast.signing_keys later
                WHERE later.active_at > k.active_at AND later.active_at < now() - @overlap::interval);

-- name: SigningKeyReseal :execrows
-- Skips a key that another process has sealed meanwhile.
UPDATE holdfast.signing_keys SET private_key = @fresh::bytea
 WHERE key_id = @key_id AND private_key = @old::bytea;
