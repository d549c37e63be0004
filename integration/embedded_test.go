package integration

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheEmbeddedDatabaseSurvives(t *testing.T) {
	t.Parallel()
	t.Run("as this user", func(t *testing.T) {
		t.Parallel()
		embedded(t, nil)
	})
	t.Run("as an ordinary user", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("this user is one")
		}
		embedded(t, &syscall.Credential{Uid: 65534, Gid: 65534}) // nobody
	})
}

func embedded(t *testing.T, user *syscall.Credential) {
	t.Helper()
	// As root the database's user has to get through, and cannot enter t.TempDir.
	dir, err := os.MkdirTemp("", "holdfast-embedded-") //nolint:usetesting // see above
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	if user != nil {
		require.NoError(t, os.Chown(dir, int(user.Uid), int(user.Gid)))
	}
	t.Cleanup(func() {
		if pid := postmaster(dir); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
			eventually(t, "postgresql ends", func() error { return unless(postmaster(dir) == 0, "it runs") })
		}
		_ = os.RemoveAll(dir)
	})
	// Nothing is configured but the ports, as others use theirs on this machine, and HOME.
	options := replicaOptions{Name: "a", Dir: dir, User: user, Env: []string{
		"HOME=" + dir, "TMPDIR=/tmp", "HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0",
	}}
	a := start(t, options)
	first := a.call(v03.send, v03.params("", "echo:remember me"))
	require.Equal(t, "completed", first.state())
	s := a.open(v01.stream, v01.params("", "chunks=80 size=16 delay=25ms"))
	seen := s.take(10)
	taskID := seen[0].task()

	// Everything dies at once.
	a.kill()
	require.NotZero(t, postmaster(dir), "postgresql outlives its server")
	require.NoError(t, syscall.Kill(postmaster(dir), syscall.SIGKILL))
	more, _ := s.untilEnd()
	seen = append(seen, more...)

	a.run()
	again := a.call("tasks/get", object{"id": first.task()})
	require.Equal(t, "remember me", text(again.Artifacts[0].Parts))
	// A second server in the same directory uses the same database.
	options.Name = "b"
	b := start(t, options)
	require.Equal(t, "completed", b.call("tasks/get", object{"id": first.task()}).state())
	seen = append(seen, b.resume(taskID, s.last).rest()...)
	indexed(t, chunksOf(seen), 80)
	home, err := filepath.EvalSymlinks(filepath.Join(dir, ".holdfast", "postgres"))
	require.NoError(t, err)
	l := openLedger(t, "postgres://holdfast@/holdfast?port=5432&host="+url.QueryEscape(filepath.Join(home, "run")))
	require.Equal(t, l.seqs(taskID), seqsOf(seen))
	l.sound()

	// PostgreSQL alone dies, under both.
	s = a.open(v03.stream, v03.params("", "chunks=60 size=16 delay=25ms"))
	seen = s.take(5)
	old := postmaster(dir)
	require.NoError(t, syscall.Kill(old, syscall.SIGKILL))
	indexed(t, chunksOf(append(seen, s.rest()...)), 60)
	require.NotEqual(t, old, postmaster(dir))
	for _, r := range []*replica{a, b} {
		r.waitReady()
		require.Equal(t, "completed", r.call(v01.send, v01.params("", "echo:x")).state())
	}

	// The first to stop leaves it to the other; the last one takes it along.
	a.signal(syscall.SIGTERM)
	require.Zero(t, a.wait())
	require.Equal(t, "completed", b.call(v03.send, v03.params("", "echo:x")).state())
	b.signal(syscall.SIGTERM)
	require.Zero(t, b.wait())
	require.Zero(t, postmaster(dir))
	a.run()
	require.Equal(t, "completed", a.call("tasks/get", object{"id": taskID}).state())
	a.signal(syscall.SIGTERM)
	require.Zero(t, a.wait())
}

// postmaster is the process id of PostgreSQL in the directory, 0 if none runs.
func postmaster(dir string) int {
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
