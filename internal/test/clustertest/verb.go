package clustertest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Finished is the outcome of a verb of the command line.
type Finished struct {
	Code     int
	Out, Err string
}

// Command runs a verb to its end.
func Command(t testing.TB, dir string, env []string, args ...string) Finished {
	t.Helper()
	return CommandOf(t, Binary(t), dir, env, args...)
}

// CommandOf is Command for another program.
func CommandOf(t testing.TB, binary, dir string, env []string, args ...string) Finished {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*waittest.Patience)
	defer cancel()
	cmd, out, errs := verb(ctx, binary, dir, env, args...)
	err := cmd.Run()
	if !errors.As(err, new(*exec.ExitError)) {
		require.NoError(t, err)
	}
	return Finished{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// Verb prepares a verb that the caller starts. The end of the test ends it.
func Verb(t testing.TB, dir string, env []string, args ...string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return verb(ctx, Binary(t), dir, env, args...)
}

func verb(ctx context.Context, binary, dir string, env []string, args ...string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, errs
	cmd.Env = append(cleanEnv(), env...)
	return cmd, out, errs
}

// cleanEnv is an environment without configuration, except for the PostgreSQL that the tests run on.
func cleanEnv() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	if bin := os.Getenv(pgembed.EnvBin); bin != "" {
		env = append(env, pgembed.EnvBin+"="+bin)
	}
	return env
}
