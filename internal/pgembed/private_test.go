package pgembed

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// No other user can open a lock file, and so none can block the start with a lock of its own.
func TestLockFilesArePrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, os.WriteFile(path, nil, 0o644)) // of an earlier version
	for range 2 {
		l, err := openLock(path)
		require.NoError(t, err)
		l.release()
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.NoError(t, os.Remove(path))
	}
	if os.Geteuid() == 0 { // the file of root in another user's directory is for both
		require.NoError(t, os.Chown(filepath.Dir(path), 65534, 65534))
		l, err := openLock(path)
		require.NoError(t, err)
		l.release()
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.EqualValues(t, 65534, info.Sys().(*syscall.Stat_t).Uid)
	}
}

// Programs in a cache directory that another user made are not run.
func TestForeignCacheIsNotUsed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	if os.Geteuid() == 0 {
		t.Log("root has its own cache; only the check of the owner is tested")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, ownDir(dir))
	require.NoError(t, os.Chmod(dir, 0o777))
	require.ErrorContains(t, ownDir(dir), "belongs to another user, or others may write to it")
	require.NoError(t, os.Chmod(dir, 0o755))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, 65534, 65534))
		require.Error(t, ownDir(dir))
		return
	}
	programs := filepath.Join(cacheDir(), "postgresql-15", "bin")
	require.NoError(t, os.MkdirAll(programs, 0o755))
	require.Contains(t, places(), programs)
	require.NoError(t, os.Chmod(cacheDir(), 0o777))
	require.NotContains(t, places(), programs)
}
