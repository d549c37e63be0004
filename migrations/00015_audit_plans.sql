-- The newest version of an audit chain is read first, whatever ANALYZE counts.

-- +goose Up
SET LOCAL lock_timeout = '5s';

-- ANALYZE counts the 64 present versions and not those that vacuum cannot remove while another session keeps an old
-- snapshot. PostgreSQL then reads all versions of a chain, by a bitmap, and sorts them.
ALTER FUNCTION holdfast.audit(text) SET enable_bitmapscan = off;
ALTER FUNCTION holdfast.audit(text) SET enable_seqscan = off;

-- +goose Down
SET LOCAL lock_timeout = '5s';
ALTER FUNCTION holdfast.audit(text) RESET enable_bitmapscan;
ALTER FUNCTION holdfast.audit(text) RESET enable_seqscan;
