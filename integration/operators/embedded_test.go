package operators

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

func TestEmbeddedDatabaseSurvives(t *testing.T) {
	t.Parallel()
	t.Run("as this user", func(t *testing.T) {
		t.Parallel()
		embedded(t, nil)
	})
	t.Run("as an ordinary user", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("the test runs as an ordinary user already")
		}
		embedded(t, &syscall.Credential{Uid: 65534, Gid: 65534}) // nobody
	})
}

func embedded(t *testing.T, user *syscall.Credential) {
	t.Helper()
	dir := clustertest.EmbeddedDir(t)
	if user != nil {
		require.NoError(t, os.Chown(dir, int(user.Uid), int(user.Gid)))
	}
	// The server has the default configuration, except for the ports and HOME.
	options := clustertest.Options{Name: "a", Dir: dir, User: user, Env: []string{"HOME=" + dir, "TMPDIR=/tmp"}}
	a := clustertest.Start(t, options)
	doctor := func() string {
		env := []string{"HOLDFAST_LISTEN=" + a2atest.Host(a.URL), "HOLDFAST_ADMIN_LISTEN=" + a2atest.Host(a.Admin), "HOLDFAST_GRPC_LISTEN=" + a.GRPC}
		res := clustertest.Command(t, dir, env, "doctor", "-v", "--timeout", "2m")
		require.Zero(t, res.Code, res.Out)
		return res.Out
	}
	found := doctor()
	require.Contains(t, found, fmt.Sprintf("PostgreSQL in ./.holdfast runs (pid %d)", clustertest.Postmaster(dir)))
	require.Contains(t, found, "1 processes are alive, 1 with the role worker")
	for _, address := range []string{"ready", "its agent is Holdfast demo", "serving"} {
		require.Regexp(t, "a server listens on [^ ]*: "+address, found)
	}
	require.NotContains(t, found, "FSYNC IS OFF")
	first := a.Send(a2atest.V03, a2atest.Say("echo:remember me"))
	require.Equal(t, "completed", first.State())
	s := a.Stream(a2atest.V01, a2atest.Say("chunks=80 size=16 delay=25ms"))
	seen := s.Take(10)
	taskID := seen[0].Task()

	// Server and PostgreSQL die at once.
	a.Kill()
	require.NotZero(t, clustertest.Postmaster(dir), "postgresql outlives its server")
	require.NoError(t, syscall.Kill(clustertest.Postmaster(dir), syscall.SIGKILL))
	more, _ := s.UntilEnd()
	seen = append(seen, more...)

	a.Run()
	require.Equal(t, "remember me", a2atest.Text(a.Get(first.Task()).Artifacts[0].Parts))
	// A second server in the same directory uses the same database.
	options.Name = "b"
	b := clustertest.Start(t, options)
	require.Equal(t, "completed", b.Get(first.Task()).State())
	seen = append(seen, b.Resume(taskID, s.Last).Rest()...)
	clustertest.Indexed(t, a2atest.Chunks(seen), 80)
	home, err := filepath.EvalSymlinks(filepath.Join(dir, ".holdfast", "postgres"))
	require.NoError(t, err)
	l := clustertest.OpenDB(t, "postgres://holdfast@/holdfast?port=5432&host="+url.QueryEscape(filepath.Join(home, "run")))
	require.Equal(t, l.Seqs(taskID), a2atest.Seqs(seen))
	l.Sound()

	// PostgreSQL alone dies, under both servers.
	s = a.Stream(a2atest.V03, a2atest.Say("chunks=60 size=16 delay=25ms"))
	seen = s.Take(5)
	old := clustertest.Postmaster(dir)
	require.NoError(t, syscall.Kill(old, syscall.SIGKILL))
	clustertest.Indexed(t, a2atest.Chunks(append(seen, s.Rest()...)), 60)
	require.NotEqual(t, old, clustertest.Postmaster(dir))
	for _, r := range []*clustertest.Replica{a, b} {
		r.WaitReady()
		require.Equal(t, "completed", r.Send(a2atest.V01, a2atest.Say("echo:x")).State())
	}

	// The first server to stop leaves PostgreSQL running; the last one stops it.
	a.Stop()
	require.Equal(t, "completed", b.Send(a2atest.V03, a2atest.Say("echo:x")).State())
	b.Stop()
	require.Contains(t, doctor(), "PostgreSQL in ./.holdfast does not run")
	require.Zero(t, clustertest.Postmaster(dir), "doctor does not start it")
	a.Run()
	require.Equal(t, "completed", a.Get(taskID).State())
	a.Stop()
}
