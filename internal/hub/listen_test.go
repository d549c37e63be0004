package hub

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A LISTEN that the database executes is not given up, however long it takes: the next one would be slower still.
func TestListenerWaitsWhileTheDatabaseWorks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		executes, takes, ends time.Duration // how long the database executes it, how long it takes, and when it ends
		want                  error
	}{
		"it works":        {listenTimeout, 9 * time.Minute, 9 * time.Minute, nil},
		"it is quick":     {0, time.Second, time.Second, nil},
		"it does nothing": {0, listenTimeout, pingTimeout, context.Canceled},
		"it is lost":      {time.Minute, listenTimeout, time.Minute, context.Canceled},
		"it takes a day":  {24 * time.Hour, 24 * time.Hour, listenTimeout, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				executes := func(context.Context) bool { return time.Now().Before(began.Add(c.executes)) }
				err := patiently(t.Context(), executes, func(ctx context.Context) error {
					for time.Now().Before(began.Add(c.takes)) && ctx.Err() == nil {
						waittest.Advance(time.Second)
					}
					return ctx.Err()
				})
				require.ErrorIs(t, err, c.want)
				require.InDelta(t, c.ends.Seconds(), waittest.Elapsed(began).Seconds(), 1)
			})
		})
	}
}

func TestWhetherTheDatabaseExecutesAStatement(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	cfg.RuntimeParams["application_name"] = sessionName
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	pid, h := conn.PgConn().PID(), New(Options{URL: url})
	require.False(t, h.executes(t.Context(), pid), "it has nothing to do")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "SELECT pg_sleep(3600)")
		ended <- err
	}()
	waittest.Eventually(t, "it executes", func() error { return waittest.Unless(h.executes(t.Context(), pid), "not yet") })
	require.False(t, New(Options{URL: "postgres://127.0.0.1:1"}).executes(t.Context(), pid), "nobody answers")
	cancel()
	if err := waittest.Within(t, "the end of the statement", ended); !errors.Is(err, context.Canceled) {
		require.NoError(t, err)
	}
	_ = conn.Close(context.Background())
}
