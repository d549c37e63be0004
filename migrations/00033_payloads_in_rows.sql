-- Payloads of up to a page stay in their rows (decision 0119).
--
-- With the default, a row that is larger than 2 kB after compression moves its payload to another table, in pieces of 2 kB with
-- an index entry each. It would move a long id of an artifact before the payload is compressed, so both columns change.
-- Partitions take the storage of events_kept when they are made; present ones keep theirs.

-- +goose Up
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.events_kept ALTER COLUMN payload SET STORAGE MAIN, ALTER COLUMN artifact_id SET STORAGE MAIN;

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER TABLE holdfast.events_kept ALTER COLUMN payload SET STORAGE EXTENDED, ALTER COLUMN artifact_id SET STORAGE EXTENDED;
