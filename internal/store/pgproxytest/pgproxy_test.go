package pgproxytest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func proxied(t *testing.T) (*pgproxytest.Proxy, *pgx.Conn) {
	t.Helper()
	p := pgproxytest.New(t, storetest.New(t).URL)
	return p, connect(t, p.URL)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.PgConn().Conn().Close() })
	return conn
}

// ask runs a query that the proxy knows by its name.
func ask(ctx context.Context, conn *pgx.Conn) error {
	var n int
	return conn.QueryRow(ctx, "-- name: Asked :one\nSELECT 1").Scan(&n)
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	p, conn := proxied(t)
	p.Refuse(true)
	require.NoError(t, ask(t.Context(), conn), "existing connections stay open")
	_, err := pgx.Connect(t.Context(), p.URL)
	require.Error(t, err)
	p.CutAll()
	require.Error(t, ask(t.Context(), conn))
	p.Refuse(false)
	require.NoError(t, ask(t.Context(), connect(t, p.URL)))
}

func TestStall(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	p := pgproxytest.New(t, url)
	conn, straight := connect(t, p.URL), connect(t, url)
	_, err := straight.Exec(t.Context(), "CREATE TABLE said AS SELECT 'nothing' AS last")
	require.NoError(t, err)
	p.Stall(true)
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "UPDATE said SET last = last || ', then stalled'")
		answered <- err
	}()
	_, err = straight.Exec(t.Context(), "UPDATE said SET last = 'straight'")
	require.NoError(t, err)
	p.Stall(false)
	require.NoError(t, waittest.Within(t, "an answer", answered), "neither side noticed the stall")
	var last string
	require.NoError(t, straight.QueryRow(t.Context(), "SELECT last FROM said").Scan(&last))
	require.Equal(t, "straight, then stalled", last)
}

func TestFail(t *testing.T) {
	t.Parallel()
	p, conn := proxied(t)
	require.NoError(t, ask(t.Context(), conn))
	stop := p.Fail("Asked", "54000", "not today")
	for range 2 {
		err := ask(t.Context(), conn)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, []string{"54000", "not today"}, []string{pg.Code, pg.Message})
	}
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT 2").Scan(new(int)), "the connection still works, and so do other queries")
	stop()
	require.NoError(t, ask(t.Context(), conn))
}

func TestHalfClose(t *testing.T) {
	t.Parallel()
	for told, name := range map[pgproxytest.Side]string{pgproxytest.Client: "the client is told", pgproxytest.Server: "the server is told"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.New(t).URL
			p := pgproxytest.New(t, url)
			conn, straight := connect(t, p.URL), connect(t, url)
			sessions := func() (n int) {
				require.NoError(t, straight.QueryRow(t.Context(),
					"SELECT count(*) FROM pg_stat_activity WHERE pid = $1", conn.PgConn().PID()).Scan(&n))
				return n
			}
			gone := func() error { return waittest.Unless(sessions() == 0, "the session is there") }
			p.HalfClose(told)
			if told == pgproxytest.Client {
				require.Error(t, ask(t.Context(), conn), "the closed side notices")
				require.Equal(t, 1, sessions(), "the server did not notice")
				p.CutAll()
				waittest.Eventually(t, "the end of the session", gone)
				return
			}
			waittest.Eventually(t, "the end of the session", gone)
			answered := make(chan error, 1)
			go func() { answered <- ask(t.Context(), conn) }()
			require.NoError(t, ask(t.Context(), connect(t, p.URL)), "a later connection")
			select {
			case err := <-answered:
				require.FailNow(t, "the open side hears nothing", err)
			default:
			}
			p.CutAll()
			require.Error(t, waittest.Within(t, "an error", answered))
		})
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	p, conn := proxied(t)
	const asked = "-- name: Asked :one\nSELECT 1"
	require.NoError(t, ask(t.Context(), conn))
	stop := p.Record()
	require.NoError(t, ask(t.Context(), conn), "the statement is prepared by now")
	require.NoError(t, ask(t.Context(), connect(t, p.URL)))
	require.Equal(t, []string{asked, asked}, stop())
	require.NoError(t, ask(t.Context(), conn))
}
