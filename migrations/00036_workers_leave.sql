-- A worker that stops, or whose connection breaks without a new one, is not connected any more: nobody waits for its lease.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.remote_workers ADD COLUMN left_at timestamptz;
COMMENT ON COLUMN holdfast.remote_workers.left_at IS 'When it said that it stops, or when its connection broke without a new one; null: neither.';

CREATE OR REPLACE VIEW holdfast.v_remote_workers AS
SELECT w.id AS worker, w.name, w.version, w.sdk, w.agents, w.replica, w.first_seen, w.last_seen,
       w.last_seen > now() - interval '90 seconds' AND w.left_at IS NULL AS connected,
       w.retired_at,
       (SELECT count(*) FROM holdfast.task_queue q WHERE q.worker_id = w.id) AS running
  FROM holdfast.remote_workers w;
COMMENT ON COLUMN holdfast.v_remote_workers.connected IS 'It was seen within the last 90 seconds, and has not stopped or lost its connection since.';

-- +goose Down
SET LOCAL lock_timeout = '5s';

CREATE OR REPLACE VIEW holdfast.v_remote_workers AS
SELECT w.id AS worker, w.name, w.version, w.sdk, w.agents, w.replica, w.first_seen, w.last_seen,
       w.last_seen > now() - interval '90 seconds' AS connected,
       w.retired_at,
       (SELECT count(*) FROM holdfast.task_queue q WHERE q.worker_id = w.id) AS running
  FROM holdfast.remote_workers w;
COMMENT ON COLUMN holdfast.v_remote_workers.connected IS 'It was seen within the last 90 seconds.';
ALTER TABLE holdfast.remote_workers DROP COLUMN left_at;
