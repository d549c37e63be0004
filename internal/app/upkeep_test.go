package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/app"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

func configuration(t *testing.T, url string, role config.Role) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Source{})
	require.NoError(t, err)
	cfg.DatabaseURL, cfg.AdminListen, cfg.Roles = url, "127.0.0.1:0", []config.Role{role}
	return cfg
}

// Whoever has not given a key is told what that means, with every start.
func TestTheLogSaysWhatSecretsAreSealedWith(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	for _, keys := range [][]string{nil, {base64.StdEncoding.EncodeToString(make([]byte, 32))}} {
		cfg := configuration(t, url, config.RolePush)
		cfg.Push.SecretKeys = keys
		ctx, stop := context.WithCancel(t.Context())
		said := &log{until: "holdfast runs agents", then: stop}
		require.NoError(t, app.Run(ctx, cfg, slog.New(slog.NewJSONHandler(said, nil)), app.Options{}))
		require.Equal(t, len(keys) == 0, strings.Contains(said.String(), "set HOLDFAST_SECRET_KEYS"), said.String())
	}
}

// log calls then when it is told until. The handler writes one line after the other.
type log struct {
	bytes.Buffer
	until string
	then  func()
}

func (l *log) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.until)) {
		l.then()
	}
	return l.Buffer.Write(line)
}

// A server forgets old attempts to deliver, more than it deletes at a time, and whatever its role.
func TestOldAttemptsAreDeleted(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), `INSERT INTO holdfast.push_attempts (task, config_id, started_at, from_seq, to_seq, attempt, delivery_id, class)
		SELECT gen_random_uuid(), 'c', now() - CASE WHEN n <= 12000 THEN interval '49 hours' ELSE interval '47 hours' END, 1, 1, 1, '', 'server'
		  FROM generate_series(1, 12007) n ORDER BY n`)
	require.NoError(t, err)

	cfg := configuration(t, url, config.RoleWorker)
	cfg.Push.KeepAttempts = 48 * time.Hour
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, cfg, slog.New(slog.DiscardHandler), app.Options{}) }()
	require.Eventually(t, func() bool {
		var left int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM holdfast.push_attempts").Scan(&left))
		return left == 7
	}, time.Minute, 20*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}
