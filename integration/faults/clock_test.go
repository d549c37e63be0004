package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// Go reads the time from the kernel without a library, so a finished program cannot be given a wrong clock. This
// server is built with a time.Now that adds an offset from the environment. Its monotonic part, which measures
// durations, stays true, as on a machine with a wrong date.

// clockEnv names the variable with the seconds that such a server is ahead.
const clockEnv = "HOLDFAST_TEST_CLOCK_OFF"

// Replacements in the standard library's time.go.
const (
	nowBegins = "\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	nowIsOff  = nowBegins + "\tsec += clockOff\n"
	imports   = "\nimport (\n"
	clockOff  = `
var clockOff = func() int64 {
	v, _ := syscall.Getenv("` + clockEnv + `")
	n, err := atoi(v)
	if err != nil {
		panic("` + clockEnv + ` is no number: " + v)
	}
	return int64(n)
}()
`
)

var offClock struct {
	sync.Once
	path string
	err  error
}

// serverWithOffClock builds that server once and returns its path.
func serverWithOffClock(t testing.TB) string {
	t.Helper()
	offClock.Do(func() {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		require.NoError(t, err)
		file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, once := range []string{nowBegins, imports} {
			require.Equal(t, 1, strings.Count(string(source), once), "%s has changed: no %q", file, once)
		}
		off := strings.NewReplacer(nowBegins, nowIsOff, imports, imports+"\t\"syscall\"\n").Replace(string(source)) + clockOff

		dir := t.TempDir()
		changed := filepath.Join(dir, "time.go")
		require.NoError(t, os.WriteFile(changed, []byte(off), 0o600))
		overlay := filepath.Join(dir, "overlay.json")
		require.NoError(t, os.WriteFile(overlay, a2atest.JSON(object{"Replace": map[string]string{file: changed}}), 0o600))
		offClock.path, offClock.err = clustertest.Build("holdfast-clock-off", "-overlay", overlay)
	})
	require.NoError(t, offClock.err)
	require.NotEmpty(t, offClock.path)
	return offClock.path
}
