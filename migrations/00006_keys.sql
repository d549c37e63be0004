-- The keys that all replicas sign with: agent cards, and what else has to be known as ours.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- The key that signs is the one that became active last; the others are only published, those before their time so that
-- everybody has them when they begin to sign, and those after it for what they have signed.
CREATE TABLE holdfast.signing_keys (
    key_id      text        NOT NULL,
    algorithm   text        NOT NULL,
    private_key bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    active_at   timestamptz NOT NULL,
    CONSTRAINT signing_keys_pkey PRIMARY KEY (key_id),
    CONSTRAINT signing_keys_algorithm_known CHECK (algorithm = 'ES256')
);

COMMENT ON TABLE holdfast.signing_keys IS 'Secret: the keys that replicas sign with. Deleting a row withdraws the key within a minute.';
COMMENT ON COLUMN holdfast.signing_keys.key_id IS 'The kid of signatures and of the published set: RFC 7638 thumbprint.';
COMMENT ON COLUMN holdfast.signing_keys.private_key IS 'PKCS #8.';
COMMENT ON COLUMN holdfast.signing_keys.active_at IS 'Signs from then on, until a later key does.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.signing_keys;
