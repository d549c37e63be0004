package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// atOnce makes retries due at once, and keeps the delays that they would have had.
const atOnce = `
CREATE TABLE public.delays (nth bigint GENERATED ALWAYS AS IDENTITY, delay interval NOT NULL);
CREATE FUNCTION public.at_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_TABLE_NAME = 'task_queue' THEN
		INSERT INTO public.delays (delay) VALUES (NEW.available_at - now());
		NEW.available_at := now();
	ELSE
		INSERT INTO public.delays (delay) VALUES (NEW.due_at - now());
		NEW.due_at := now();
	END IF;
	RETURN NEW;
END
$$;
CREATE TRIGGER at_once BEFORE UPDATE ON holdfast.task_queue FOR EACH ROW
	WHEN (NEW.worker_id IS NULL AND NEW.wakes_at IS NULL AND NEW.available_at > now()) EXECUTE FUNCTION public.at_once();
CREATE TRIGGER at_once BEFORE UPDATE ON holdfast.cancel_notices FOR EACH ROW
	WHEN (NEW.ended_at IS NULL AND NEW.tries > 0 AND NEW.tries = OLD.tries) EXECUTE FUNCTION public.at_once();
`

// AtOnce makes all retries in a database due at once: of runs, and of notices to agents. The database's clock does not go
// faster in a bubble of testing/synctest.
func AtOnce(t testing.TB, db *pgx.Conn) {
	t.Helper()
	_, err := db.Exec(context.Background(), atOnce)
	require.NoError(t, err, "test database")
}

// Delays are the delays that retries would have had without AtOnce, in their order.
func Delays(t testing.TB, db *pgx.Conn) []time.Duration {
	t.Helper()
	rows, err := db.Query(context.Background(), "SELECT delay FROM public.delays ORDER BY nth")
	require.NoError(t, err, "test database")
	delays, err := pgx.CollectRows(rows, pgx.RowTo[time.Duration])
	require.NoError(t, err, "test database")
	return delays
}
