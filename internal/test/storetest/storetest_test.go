package storetest_test

import (
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestDatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	a, b := storetest.New(t), storetest.New(t)
	require.NotEqual(t, a.URL, b.URL)
	conn := storetest.Connect(t, a.URL)
	_, err := conn.Exec(t.Context(), "CREATE TABLE only_here ()")
	require.NoError(t, err)
	_, err = storetest.Connect(t, b.URL).Exec(t.Context(), "SELECT FROM only_here")
	require.ErrorContains(t, err, "does not exist")

	var zone string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW timezone").Scan(&zone))
	require.Equal(t, "Asia/Kathmandu", zone)
}

// sharedCluster returns the directory of the cluster that has the database. It skips tests of that cluster if the server is
// another one, such as a container.
func sharedCluster(t *testing.T, db *storetest.DB) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	dir, ours := strings.CutSuffix(u.Query().Get("host"), "/postgres/run")
	if !ours {
		t.Skip("the server is not the shared cluster")
	}
	return dir
}

// After the last test process of a cluster has ended, in any way, nothing of the cluster remains.
func TestAClusterEndsAfterItsLastProcess(t *testing.T) {
	t.Parallel()
	sharedCluster(t, storetest.New(t))
	dir, err := os.MkdirTemp("", "holdfast-janitor-") //nolint:usetesting // as root, PostgreSQL's user cannot enter t.TempDir
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	users := func() (pids []string) {
		environments, err := filepath.Glob("/proc/[0-9]*/environ")
		require.NoError(t, err)
		for _, file := range environments {
			if env, _ := os.ReadFile(file); strings.Contains("\x00"+string(env), "\x00TMPDIR="+dir+"\x00") {
				pids = append(pids, file)
			}
		}
		return pids
	}
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("only Linux shows the environments of processes: ", err)
	}
	for range 2 { // one after the other, so that the janitor of the first is on duty when the other begins
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDatabasesAreSeparate$")
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, storetest.EnvLinger+"=2s", "GOGC=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	clusters, err := filepath.Glob(filepath.Join(dir, "holdfast-test-*"))
	require.NoError(t, err)
	require.Len(t, clusters, 1)
	waittest.Eventually(t, "the cluster and its janitors end", func() error {
		return waittest.Unless(len(users()) == 0 && !pgembed.Exists(clusters[0]), "%v", users())
	})
}

func TestConcurrentMigrations(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	conn := storetest.Connect(t, db.URL)
	_, err := conn.Exec(t.Context(), "DROP SCHEMA holdfast CASCADE")
	require.NoError(t, err)
	v, err := schema.ReadVersion(t.Context(), conn)
	require.NoError(t, err)
	require.False(t, v.Current())

	var g errgroup.Group
	for range 10 {
		g.Go(func() error {
			return schema.Migrate(t.Context(), db.URL, slog.New(slog.DiscardHandler))
		})
	}
	require.NoError(t, g.Wait())
	v, err = schema.ReadVersion(t.Context(), conn)
	require.NoError(t, err)
	require.True(t, v.Current())
	var steps, versions int
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT count(*), count(DISTINCT version_id) FROM holdfast.schema_steps").Scan(&steps, &versions))
	require.Equal(t, versions, steps, "each migration once")
}
