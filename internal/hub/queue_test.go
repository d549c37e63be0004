package hub_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A listener of another database filled the queue, and leaves. The replicas are idle, so none of them finds the queue
// full when it sends, and none is woken to read the pages that an aborted NOTIFY left. They still make room.
func TestIdleReplicasEmptyFullQueue(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	if pg.Count("SELECT count(*)::int FROM pg_settings WHERE name = 'max_notify_queue_pages'") == 0 {
		t.Skip("before PostgreSQL 17 a full queue takes 8 GiB")
	}
	pg.Exec("ALTER SYSTEM SET max_notify_queue_pages = 64")
	pg.Stop()
	pg.Start()
	for range 2 {
		start(t, pg.URL, hub.Options{PollInterval: never, PingInterval: 100 * time.Millisecond}).listening()
	}

	elsewhere := func(statements ...string) *pgx.Conn {
		cfg := storetest.Must(pgx.ParseConfig(pg.URL))(t)
		cfg.Database = "template1"
		c := storetest.Must(pgx.ConnectConfig(t.Context(), cfg))(t)
		for _, sql := range statements {
			storetest.Must(c.Exec(t.Context(), sql))(t)
		}
		return c
	}
	blocker, filler := elsewhere("LISTEN blocker", "BEGIN", "SELECT 1"), elsewhere()
	full := func(err error) bool {
		var answer *pgconn.PgError
		return errors.As(err, &answer) && answer.Code == "54000"
	}
	for batch := 100; batch > 0; { // smaller at the end: a batch that does not fit is dropped whole
		_, err := filler.Exec(t.Context(), "SELECT count(pg_notify('filler', repeat('x', 7900) || n)) FROM generate_series(1, $1::int) AS n", batch)
		if full(err) {
			batch /= 10
			continue
		}
		require.NoError(t, err)
	}
	_, err := filler.Exec(t.Context(), "NOTIFY filler")
	require.True(t, full(err), "the queue is full: %v", err)
	require.NoError(t, blocker.Close(t.Context()))
	waittest.Eventually(t, "the queue has room again", func() error {
		_, err := filler.Exec(t.Context(), "NOTIFY filler")
		return err
	})
	require.NoError(t, filler.Close(t.Context()))
}
