-- The keys by which clients show who they are.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE TABLE holdfast.api_keys (
    key_id       text        NOT NULL,
    key_hash     bytea       NOT NULL,
    name         text        NOT NULL,
    tenant       text        NOT NULL,
    subject      text        NOT NULL,
    scopes       text[]      NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (key_id),
    CONSTRAINT api_keys_hash_is_sha256 CHECK (octet_length(key_hash) = 32),
    CONSTRAINT api_keys_subject_given CHECK (subject <> '')
);

COMMENT ON TABLE holdfast.api_keys IS 'API keys. The secrets are not here: a key is shown once, when it is made.';
COMMENT ON COLUMN holdfast.api_keys.key_id IS 'The part of the key that is no secret.';
COMMENT ON COLUMN holdfast.api_keys.key_hash IS 'SHA-256 of the whole key. It holds 256 random bits, so there is nothing to guess that a slow hash would protect.';
COMMENT ON COLUMN holdfast.api_keys.name IS 'What the operator calls it.';
COMMENT ON COLUMN holdfast.api_keys.tenant IS 'Whose tasks it reaches, with subject.';
COMMENT ON COLUMN holdfast.api_keys.last_used_at IS 'Accurate to five minutes.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.api_keys;
