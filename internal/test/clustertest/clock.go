package clustertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Go reads the time from the kernel without a library, so a finished program cannot be given a wrong clock. This
// server is built with a time.Now that adds an offset from the environment. Its monotonic part, which measures
// durations, stays true, as on a machine with a wrong date.

// ClockEnv names the variable with the seconds that the server of OffClock is ahead.
const ClockEnv = "HOLDFAST_TEST_CLOCK_OFF"

// Replacements in the standard library's time.go.
const (
	nowBegins = "\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	nowIsOff  = nowBegins + "\tsec += clockOff\n"
	imports   = "\nimport (\n"
	clockOff  = `
var clockOff = func() int64 {
	v, _ := syscall.Getenv("` + ClockEnv + `")
	n, err := atoi(v)
	if err != nil {
		panic("` + ClockEnv + ` is no number: " + v)
	}
	return int64(n)
}()
`
)

var offClock = sync.OnceValues(BuildOffClock)

// OffClock is the path of that server.
func OffClock(t testing.TB) string {
	t.Helper()
	path, err := offClock()
	require.NoError(t, err)
	return path
}

// BuildOffClock is Build for that server. The first time it compiles the standard library and all that imports it.
func BuildOffClock() (string, error) {
	root, err := output("", "go", "env", "GOROOT")
	if err != nil {
		return "", err
	}
	file := filepath.Join(root, "src", "time", "time.go")
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for _, once := range []string{nowBegins, imports} {
		if strings.Count(string(source), once) != 1 {
			return "", fmt.Errorf("%s has changed: no %q", file, once)
		}
	}
	off := strings.NewReplacer(nowBegins, nowIsOff, imports, imports+"\t\"syscall\"\n").Replace(string(source)) + clockOff

	dir, err := os.MkdirTemp("", "holdfast-clock-off-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	changed := filepath.Join(dir, "time.go")
	if err := os.WriteFile(changed, []byte(off), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	return Build("holdfast-clock-off", "-overlay", overlay)
}
