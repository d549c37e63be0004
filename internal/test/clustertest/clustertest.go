// Package clustertest runs the built server for tests: replicas as processes on one database. A test kills, stops,
// freezes and restarts them while clients talk to them. It also runs the verbs of the command line, and reads the
// tables.
//
// The server is built once for all test packages: by prebuild, or when the first of them starts a replica.
package clustertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// Settings make a replica react fast. Tests add their agents, or replace the one that is there.
const Settings = `
listen: 127.0.0.1:0
grpc_listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
worker: {lease_ttl: 6s, stop_grace: 1s}
store: {pool_size: 4}
agents:
  - name: demo
    executor: {kind: demo}
    limits: {backoff: 100ms, cancel_grace: 5s}
`

// LongLease are Settings with leases that outlast what a busy machine delays.
var LongLease = Replace(Settings, "lease_ttl: 6s", "lease_ttl: 30s")

// Patient are Settings with sends that wait for an hour.
var Patient = Replace(Settings, "worker: {", "limits: {max_block: 1h}\nworker: {")

// Steady are Patient, with leases that outlast any load. So cancels wait for minutes, too.
var Steady = Replace(Patient, "lease_ttl: 6s", "lease_ttl: 10m")

// WithKeys are Settings for callers with API keys.
const WithKeys = Settings + `
auth:
  schemes:
    - {name: keys, kind: api_key}
`

// Main runs the tests of a package that starts clusters. Call it from TestMain.
func Main(m *testing.M) {
	storetest.AtATime(4)
	os.Exit(m.Run())
}

// Replace replaces a text that must be there; otherwise it panics.
func Replace(s, old, with string) string {
	if !strings.Contains(s, old) {
		panic(old + " is not there")
	}
	return strings.ReplaceAll(s, old, with)
}

var built = sync.OnceValues(func() (string, error) { return Build("holdfast") })

// Binary is the path of the server, built with the same flags as this test.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := built()
	require.NoError(t, err)
	return path
}

// Build builds a server for the test processes of all packages, and returns its path. If it is up to date, the go
// command does nothing.
func Build(name string, flags ...string) (string, error) {
	return build("./cmd/server", name, flags...)
}

// Program is the path of one of Programs.
func Program(t testing.TB, pkg string) string {
	t.Helper()
	path, err := BuildProgram(pkg)
	require.NoError(t, err)
	return path
}

// Programs are the packages that tests give to Program.
var Programs = []string{"./cmd/torture", "./examples/go", "./examples/go/serve", "./examples/go/connect", "./examples/go/sdk", "./integration/agents/sdkagent", "./integration/faults/remoteworker"}

// BuildProgram is Build for one of Programs.
func BuildProgram(pkg string) (string, error) {
	return build(pkg, "program-"+strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "-"))
}

func build(pkg, name string, flags ...string) (string, error) {
	if UnderRace() {
		name, flags = name+"-race", append(flags, "-race")
	}
	module, err := output("", "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	// When root runs the tests, servers also run as another user, which must be able to enter the directory.
	sum := sha256.Sum256([]byte(module))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-clustertest-%d-%s", os.Getuid(), hex.EncodeToString(sum[:6])))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if s, err := os.Lstat(dir); err != nil || s.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
		return "", fmt.Errorf("%s belongs to another user: %w", dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	_, err = output(module, "go", append(append([]string{"build", "-o", path}, flags...), pkg)...)
	return path, err
}

func output(dir, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	var errs bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, &errs)
	}
	return strings.TrimSpace(string(out)), nil
}

// UnderRace reports whether this test was built with the race detector; the server then is, too.
func UnderRace() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
