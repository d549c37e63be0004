package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// EmbeddedDir makes a directory for a server with an embedded database, until the test ends. When root runs the test,
// the database's user must be able to enter it; it cannot enter t.TempDir.
func EmbeddedDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-embedded-") //nolint:usetesting // see above
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() {
		DropDatabase(t, dir)
		_ = os.RemoveAll(dir)
	})
	return dir
}

// Postmaster is the process id of PostgreSQL in the directory; 0 if none runs.
func Postmaster(dir string) int {
	home, err := filepath.EvalSymlinks(filepath.Join(dir, ".holdfast", "postgres"))
	if err != nil {
		return 0
	}
	files, _ := filepath.Glob(filepath.Join(home, "*", "postmaster.pid"))
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(string(raw), "\n")
		pid, _ := strconv.Atoi(strings.TrimSpace(line))
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && cwd == filepath.Dir(file) {
			return pid
		}
	}
	return 0
}

// DropDatabase stops the PostgreSQL that a server has left in a directory, and waits for its end.
func DropDatabase(t testing.TB, dir string) {
	t.Helper()
	if pid := Postmaster(dir); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGQUIT)
		waittest.Eventually(t, "PostgreSQL ends", func() error { return waittest.Unless(Postmaster(dir) == 0, "it runs") })
	}
}
