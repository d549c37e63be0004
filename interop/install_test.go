//go:build interop

package interop

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// cache holds installations, a folder for each version of a client's manifests.
const cache = ".cache"

// folders lists the folders below clients or servers: the programs, and the code that they share.
func folders(t *testing.T, kind string) []string {
	t.Helper()
	entries, err := os.ReadDir(kind)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// isProgram reports whether a folder is a program's, and not code that programs share.
func isProgram(folder string) bool { return !strings.HasSuffix(folder, "-common") }

// install makes a client or a server runnable, and returns the command.
func install(t *testing.T, kind, name string) []string {
	t.Helper()
	c, _ := installed.LoadOrStore(kind+"/"+name, &command{})
	of := c.(*command)
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.argv == nil {
		of.argv = installNow(t, kind, name)
	}
	return of.argv
}

// installed has the command of each program. Tests that run at the same time share one installation.
var installed sync.Map

type command struct {
	mu   sync.Mutex
	argv []string
}

func installNow(t *testing.T, kind, name string) []string {
	t.Helper()
	source, err := filepath.Abs(filepath.Join(kind, name))
	require.NoError(t, err)
	switch {
	case exists(t, filepath.Join(source, "go.mod")):
		dir := cached(t, kind, name)
		// Go's own cache makes later builds fast. A workspace would override the manifest. The programs that a client runs
		// are its tools; they lie beside it.
		execute(t, source, []string{"GOWORK=off", "GOFLAGS=-mod=readonly"}, "go", "build", "-o", dir+"/", ".", "tool")
		return []string{filepath.Join(dir, name)}
	case exists(t, filepath.Join(source, "package-lock.json")):
		// Node looks for modules beside the program, so the program is copied, with the folders that programs share.
		dir := cached(t, kind, name, "package.json", "package-lock.json")
		copied := filepath.Join(dir, name)
		once(t, dir, func() {
			transfer(t, source, copied)
			execute(t, copied, nil, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		})
		transfer(t, source, copied) // it may have changed since
		for _, folder := range folders(t, kind) {
			if !isProgram(folder) {
				transfer(t, filepath.Join(kind, folder), filepath.Join(dir, folder))
			}
		}
		return []string{"node", filepath.Join(copied, "main.mjs")}
	case exists(t, filepath.Join(source, "requirements.txt")):
		dir := cached(t, kind, name, "requirements.txt")
		python := filepath.Join(dir, "venv", "bin", "python")
		once(t, dir, func() {
			execute(t, dir, nil, "python3", "-m", "venv", filepath.Join(dir, "venv"))
			execute(t, dir, nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
				"--requirement", filepath.Join(source, "requirements.txt"))
		})
		return []string{python, filepath.Join(source, "main.py")}
	case exists(t, filepath.Join(source, "pom.xml")):
		dir := cached(t, kind, name, "pom.xml")
		jars := filepath.Join(dir, "jars")
		once(t, dir, func() {
			execute(t, source, nil, "mvn", "-q", "-B", "-DoutputDirectory="+jars, "dependency:copy-dependencies")
		})
		classes := filepath.Join(dir, "classes")
		execute(t, source, nil, "javac", "-d", classes, "-cp", jars+"/*", "Main.java")
		return []string{"java", "-cp", classes + ":" + jars + "/*", "Main"}
	case exists(t, filepath.Join(source, "Cargo.toml")):
		// Cargo writes the lock file beside the manifest, and keeps it there for later builds.
		dir := cached(t, kind, name, "Cargo.toml")
		transfer(t, source, dir)
		execute(t, dir, nil, "cargo", "build", "--quiet")
		return []string{filepath.Join(dir, "target", "debug", name)}
	default:
		require.FailNow(t, "no manifest")
		return nil
	}
}

// cached returns the folder of an installation, by the content of its manifests.
func cached(t *testing.T, kind, name string, manifests ...string) string {
	t.Helper()
	sum := sha256.New()
	for _, m := range manifests {
		content, err := os.ReadFile(filepath.Join(kind, name, m))
		require.NoError(t, err)
		sum.Write(content)
	}
	if kind == "servers" {
		name = "server-" + name
	}
	dir, err := filepath.Abs(filepath.Join(cache, name+"-"+hex.EncodeToString(sum.Sum(nil))[:12]))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}

// once installs into a folder, unless that is done. It removes the remains of an interrupted attempt.
func once(t *testing.T, dir string, do func()) {
	t.Helper()
	done := filepath.Join(dir, ".installed")
	if exists(t, done) {
		return
	}
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	do()
	require.NoError(t, os.WriteFile(done, nil, 0o600))
}

// transfer copies the files of a folder over those of another.
func transfer(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(to, 0o755))
	for _, e := range entries {
		if e.IsDir() {
			continue // node_modules of an earlier manual installation
		}
		content, err := os.ReadFile(filepath.Join(from, e.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, e.Name()), content, 0o600))
	}
}

// execute runs a step of an installation.
func execute(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v:\n%s", cmd.Args, out)
}

func exists(t *testing.T, file string) bool {
	t.Helper()
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	require.NoError(t, err)
	return true
}
