-- Payloads of up to a page stay in their rows (decision 0119).
--
-- With the default, a row of more than 2 kB moves its payload to another table, in pieces of 2 kB with an index entry each.
-- Partitions take the storage of events_kept when they are made; present ones keep theirs.

-- +goose Up
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.events_kept ALTER COLUMN payload SET STORAGE MAIN;

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.events_kept ALTER COLUMN payload SET STORAGE EXTENDED;
