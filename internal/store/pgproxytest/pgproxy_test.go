package pgproxytest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

const patience = 30 * time.Second

func proxied(t *testing.T) (*pgproxytest.Proxy, *pgx.Conn) {
	t.Helper()
	p := pgproxytest.New(t, storetest.New(t).URL)
	return p, connect(t, p.URL)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	})
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

func TestDelay(t *testing.T) {
	t.Parallel()
	p, conn := proxied(t)
	p.Delay(50 * time.Millisecond)
	began := time.Now()
	require.NoError(t, ask(t.Context(), conn))
	require.Greater(t, time.Since(began), 50*time.Millisecond)
}

func TestStall(t *testing.T) {
	t.Parallel()
	p, conn := proxied(t)
	p.Stall(true)
	answered := make(chan error, 1)
	go func() { answered <- ask(context.Background(), conn) }()
	select {
	case err := <-answered:
		t.Fatal("answered: ", err)
	case <-time.After(200 * time.Millisecond):
	}
	p.Stall(false)
	select {
	case err := <-answered:
		require.NoError(t, err, "neither side noticed the stall")
	case <-time.After(patience):
		t.Fatal("not answered")
	}
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
			p.HalfClose(told)
			limit := patience
			if told == pgproxytest.Server {
				limit = 500 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := ask(ctx, conn)
			require.Error(t, err)
			if told == pgproxytest.Client {
				require.NoError(t, ctx.Err(), "the closed side noticed at once")
				require.Equal(t, 1, sessions(), "the server did not notice")
				p.CutAll()
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded, "the open side hears nothing")
			}
			require.Eventually(t, func() bool { return sessions() == 0 }, patience, 10*time.Millisecond)
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
