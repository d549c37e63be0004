package clustertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// HAProxy runs HAProxy with a configuration until the test ends. Without the program it skips the test.
func HAProxy(t testing.TB, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	Run(t, nil, "haproxy", "-db", "-f", file)
}
