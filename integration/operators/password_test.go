package operators

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// The password of the database changes while a replica runs, as tokens of clouds do every quarter of an hour. New connections
// have the new one. Verbs of the command line and doctor use the same settings.
func TestDatabasePasswordChanges(t *testing.T) {
	t.Parallel()
	server := storetest.Server(t, map[string]string{"fsync": "off"})
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	url := server.WithPassword("app", "first")
	require.NoError(t, os.WriteFile(password, []byte("first\n"), 0o600))
	config := clustertest.Settings + fmt.Sprintf("database_url: %q\ndatabase_password_command: [cat, %q]\n", url, password)
	r := clustertest.Start(t, clustertest.Options{Name: "a", Config: config})
	require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:one")).State())

	server.Exec("ALTER ROLE app PASSWORD 'second'")
	require.NoError(t, os.WriteFile(password, []byte("second\n"), 0o600))
	server.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
	require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:two")).State())
	r.WaitReady()

	file := filepath.Join(dir, "holdfast.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	for _, verb := range [][]string{{"tasks", "list"}, {"doctor"}, {"migrate", "--status"}} {
		got := clustertest.Command(t, dir, nil, append(verb, "--config", file)...)
		require.Zero(t, got.Code, "%v: %s", verb, got.Err)
	}
	require.NotContains(t, r.Log(), "second")
}
