// Package integration runs the built server: replicas as processes on one database,
// which are killed, stopped, cut off and started again while clients talk to them.
//
// Every test has a database of its own and waits for events, with a deadline.
package integration

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// binary is the server that these tests run, built once for all of them.
var binary string

func TestMain(m *testing.M) {
	if dir := os.Getenv(asIssuer); dir != "" {
		fmt.Fprintln(os.Stderr, "integration: the issuer:", serveIssuer(dir))
		os.Exit(1)
	}
	if setup := os.Getenv(receiverEnv); setup != "" {
		fmt.Fprintln(os.Stderr, "integration: the receiver:", serveReceiver(setup))
		os.Exit(1)
	}
	flag.Parse()
	// Most of a test's time is waiting for what other processes do.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("8")
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// As root, servers also run as somebody else, who cannot enter a private directory.
	dir, err := os.MkdirTemp("", "holdfast-integration-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "holdfast")
	if err := build(binary); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	return m.Run()
}

// build makes the server, as this test was made.
func build(to string, flags ...string) error {
	args := append([]string{"build", "-o", to}, flags...)
	if underRace() {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "../cmd/server")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return nil
}

// underRace reports whether this test was built with the race detector; the server then is, too.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
