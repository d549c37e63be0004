package app_test

import (
	"log/slog"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/app"
	"github.com/holdfast-a2a/holdfast/internal/config"
)

// A port in use is an error with its key, before a database is made.
func TestPortsComeBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for _, key := range []string{"listen", "grpc_listen", "admin_listen"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			flags := map[string]string{"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"}
			flags[key] = taken.Addr().String()
			cfg, err := config.Load(config.Source{Flags: flags})
			require.NoError(t, err)
			cfg.DataDir = t.TempDir()
			err = app.Run(t.Context(), cfg, slog.New(slog.DiscardHandler), app.Options{})
			require.ErrorContains(t, err, key+": "+taken.Addr().String()+" is in use by another process")
			require.ErrorContains(t, err, "set "+key+" to another address")
			made, err := os.ReadDir(cfg.DataDir)
			require.NoError(t, err)
			require.Empty(t, made)
		})
	}
}
