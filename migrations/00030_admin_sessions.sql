-- Sessions of operators' browsers (decision 0093).

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE TABLE holdfast.admin_sessions (
    id          uuid        NOT NULL,
    secret_hash bytea       NOT NULL,
    scheme      text        NOT NULL,
    key_id      text,
    tenant      text        NOT NULL,
    subject     text        NOT NULL,
    scopes      text[]      NOT NULL,
    address     text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    CONSTRAINT admin_sessions_pkey PRIMARY KEY (id)
);
CREATE INDEX admin_sessions_expires ON holdfast.admin_sessions (expires_at);
COMMENT ON TABLE holdfast.admin_sessions IS 'Sessions of operators in browsers. A session that was ended has no row.';
COMMENT ON COLUMN holdfast.admin_sessions.secret_hash IS 'SHA-256 of the secret, which only the cookie has.';
COMMENT ON COLUMN holdfast.admin_sessions.scheme IS 'The scheme that admitted the operator.';
COMMENT ON COLUMN holdfast.admin_sessions.key_id IS 'The API key that the operator showed; null: the operator came from an issuer. The session ends with it, and has its scopes.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP TABLE holdfast.admin_sessions;
