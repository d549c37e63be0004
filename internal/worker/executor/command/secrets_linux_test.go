package command_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor/command"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

const nobody = 65534

// A program cannot read the environment of the server in /proc, although it has the same user.
func TestProgramCannotReadServersEnvironment(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOLDFAST_TEST_SECRET") != "" {
		readsParent(t, command.Options{})
		return
	}
	// As an ordinary user, because root can read everything.
	self, err := os.Open(os.Args[0])
	require.NoError(t, err)
	defer func() { _ = self.Close() }()
	dir, err := os.MkdirTemp("", "holdfast-") //nolint:usetesting // nobody cannot enter t.TempDir of root
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "test")
	// A process that another test starts meanwhile would keep the file open, and no program that is open for writing starts.
	syscall.ForkLock.RLock()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(file, self)
		err = errors.Join(err, file.Close())
	}
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, "-test.run", "^TestProgramCannotReadServersEnvironment$", "-test.v")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "HOLDFAST_TEST_SECRET=xyzzy", "TMPDIR=/tmp")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS")
}

// readsParent runs a program that tries to read the environment of this process.
func readsParent(t *testing.T, o command.Options) {
	t.Helper()
	var log bytes.Buffer
	o.Argv, o.Log = []string{"sh", "-c", `id -u >&2; tr '\0' '\n' </proc/$PPID/environ >&2; true`}, slog.New(slog.NewTextHandler(&log, nil))
	e, err := command.New(o)
	require.NoError(t, err)
	_ = e.Execute(t.Context(), executortest.NewRun("hello"), executortest.NewRecorder()) // a shell may fail at the redirection
	require.NotContains(t, log.String(), "PATH=")
	require.NotContains(t, log.String(), "xyzzy")
	require.Contains(t, log.String(), "ermission denied")
}

// A program with a uid of its own has that user and group, and no others. It ends with its run.
func TestProgramOfAnotherUser(t *testing.T) {
	t.Parallel()
	_, err := command.New(command.Options{Argv: []string{"true"}, UID: 1})
	require.ErrorContains(t, err, "needs gid")
	if os.Geteuid() != 0 {
		_, err := command.New(command.Options{Argv: []string{"true"}, UID: nobody, GID: nobody})
		require.ErrorContains(t, err, "only a server that runs as root")
		return
	}
	readsParent(t, command.Options{UID: nobody, GID: nobody, Dir: "/"})
	var log bytes.Buffer
	e, err := command.New(command.Options{
		Argv: []string{"sh", "-c", `echo "is $(id -u) $(id -g) $(id -G)" >&2`}, Dir: "/", UID: nobody, GID: nobody, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	require.NoError(t, e.Execute(t.Context(), executortest.NewRun("hello"), executortest.NewRecorder()))
	require.Contains(t, log.String(), "is 65534 65534 65534")
}
