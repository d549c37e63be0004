-- A secret of the keys under which agents keep memory outside of Holdfast: clients choose ids of contexts, so those keep nobody
-- apart.

-- +goose Up
SET LOCAL lock_timeout = '5s';

INSERT INTO holdfast.secrets (name, value)
VALUES ('memory', decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));

COMMENT ON COLUMN holdfast.secrets.name IS
    'page_token: signs the page tokens of lists; a new value invalidates the tokens in use. push: seals the secrets of webhooks, and what comes by resume URLs, and signs these URLs, if the environment has no key. memory: makes the keys under which agents keep memory; with a new value they lose it.';

-- +goose Down
SET LOCAL lock_timeout = '5s';

DELETE FROM holdfast.secrets WHERE name = 'memory';

COMMENT ON COLUMN holdfast.secrets.name IS
    'page_token: signs the page tokens of lists; a new value invalidates the tokens in use. push: seals the secrets of webhooks, and what comes by resume URLs, and signs these URLs, if the environment has no key.';
