package hub

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// A LISTEN that the database executes is not given up, however long it takes: the next one would be slower still.
func TestListenerWaitsWhileTheDatabaseWorks(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	proxy := pgproxytest.New(t, url)
	cfg, err := pgx.ParseConfig(proxy.URL)
	require.NoError(t, err)
	cfg.RuntimeParams["application_name"] = sessionName
	connect := func() *pgx.Conn {
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	execute := func(conn *pgx.Conn, sql, url string) error {
		return New(Options{URL: url}).patiently(t.Context(), conn, func(ctx context.Context) error {
			_, err := conn.Exec(ctx, sql)
			return err
		})
	}
	working, lost, unreachable := connect(), connect(), connect()
	require.NoError(t, execute(working, "SELECT pg_sleep(6)", url))

	proxy.Stall(true)
	defer proxy.Stall(false)
	require.ErrorIs(t, execute(lost, "SELECT 1", url), context.Canceled, "the database has nothing to do")
	require.ErrorIs(t, execute(unreachable, "SELECT 1", proxy.URL), context.Canceled, "the database is silent")
}
