-- Headers of clients that are forwarded to agents (decision 0058).
--
-- They are beside the messages of the turns that have not ended, in the queue row of their task. So they go with the row when
-- a turn parks or ends the task. The statement that begins another turn after it removes those of its message.

-- +goose Up
SET LOCAL lock_timeout = '5s';

ALTER TABLE holdfast.task_queue ADD COLUMN forwarded jsonb;
COMMENT ON COLUMN holdfast.task_queue.forwarded IS 'Headers of the requests with its messages, by the seq of the message: sealed (internal/secrets), in base64. Null: none.';

-- As wait_interrupt: the queue row may be newer than the caller's snapshot.
-- +goose StatementBegin
CREATE FUNCTION holdfast.forward(of uuid, message bigint, sealed text) RETURNS integer VOLATILE STRICT LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.task_queue q
       SET forwarded = coalesce(q.forwarded, '{}') || jsonb_build_object(message::text, sealed)
     WHERE q.id = of;
    RETURN 1;
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION holdfast.forward IS 'Keeps the headers of a message for its turn. The caller has locked the task, which is queued or has a run.';

-- +goose Down
SET LOCAL lock_timeout = '5s';
DROP FUNCTION holdfast.forward;
ALTER TABLE holdfast.task_queue DROP COLUMN forwarded;
