package cli

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A profile gives the server, the credential and the authorities. The credential goes to that server only.
func TestProfiles(t *testing.T) {
	t.Parallel()
	var credential string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credential = r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"tasks":[]}`))
	})
	secure, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	home := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(home, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	write("key", "from-file\n")
	authority := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	write(".config/holdfast/profiles.yaml", `
profiles:
  file: {server: "`+secure.URL+`", credential_file: ~/key, ca_file: `+authority+`}
  command: {server: "`+plain.URL+`", credential_command: [echo, from-command]}
  env: {server: "`+plain.URL+`", credential_env: MY_KEY}
  distrusts: {server: "`+secure.URL+`", credential_file: ~/key}
  nothing: {credential_file: ~/key}
  twice: {server: "http://x", credential_file: ~/key, credential_env: MY_KEY}
`)
	run := func(env map[string]string, args ...string) result {
		all := map[string]string{"HOME": home, "MY_KEY": "from-env", "HOLDFAST_SERVER_CREDENTIAL": "another"}
		for name, value := range env {
			all[name] = value
		}
		credential = ""
		return session{env: all}.run(t, append([]string{"tasks", "list"}, args...)...)
	}
	for name, want := range map[string]string{"file": "from-file", "command": "from-command", "env": "from-env"} {
		r := run(nil, "--profile", name)
		require.Zero(t, r.code, r.err)
		require.True(t, strings.HasSuffix(credential, want), credential)
		r = run(map[string]string{"HOLDFAST_PROFILE": name, "HOLDFAST_SERVER": "http://127.0.0.1:1"})
		require.Zero(t, r.code, r.err)
		require.True(t, strings.HasSuffix(credential, want), credential)
	}
	r := run(nil, "--profile", "file", "--server", plain.URL)
	require.Zero(t, r.code, r.err)
	require.True(t, strings.HasSuffix(credential, "another"), "the key of a profile does not go to another server")

	require.Equal(t, exitFailed, run(nil, "--profile", "distrusts").code)
	require.Empty(t, credential)
	for name, want := range map[string]string{
		"none":    `has no profile "none"; its profiles are command, distrusts, env, file, nothing, twice`,
		"nothing": "server is missing",
		"twice":   "credential_file, credential_command and credential_env exclude each other",
	} {
		r := run(nil, "--profile", name)
		require.Equal(t, exitUsage, r.code, r.err)
		require.Contains(t, r.err, want)
	}
	r = run(map[string]string{"HOLDFAST_PROFILES": write("bad.yaml", "profiles: {a: {servr: x}}")}, "--profile", "a")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "servr")
}

// The audit log names an operator even where accounts have no names, as in the image.
func TestOperatorHasAName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "alice", nameOf(&user.User{Username: "alice"}, nil))
	for _, got := range []string{nameOf(nil, errors.New("no passwd")), nameOf(&user.User{}, nil)} {
		require.Equal(t, "uid "+strconv.Itoa(os.Getuid()), got)
	}
}

// Filters select tasks for a job of a server. A mistake does not reach it.
func TestFiltersBecomeJobs(t *testing.T) {
	t.Parallel()
	var bodies []string
	reads := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			raw, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(raw))
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"id":"j1","state":"waiting"}`))
			return
		}
		reads++
		_, _ = w.Write([]byte(`{"id":"j1","state":"done","matched":3,"done":2,"skipped":1,"failed":` + strconv.Itoa(reads/2) + `}`))
	}))
	t.Cleanup(server.Close)
	run := func(args ...string) result {
		return session{env: map[string]string{"HOLDFAST_SERVER": server.URL}}.run(t, append([]string{"tasks"}, args...)...)
	}
	r := run("cancel", "--agent", "x", "--state", "working,input-required", "--dry-run")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "job j1 done: 3 matched, 2 done, 1 skipped, 0 failed\n", r.out)
	r = run("retry", "--tenant", "", "--last", "--reason", "fixed")
	require.Equal(t, exitFailed, r.code, "a task failed")
	require.Len(t, bodies, 2)
	require.JSONEq(t, `{"action":"cancel","dry_run":true,"filter":{"agent":"x","states":["working","input-required"]},"reason":"holdfast tasks cancel"}`, bodies[0])
	require.JSONEq(t, `{"action":"retry","dry_run":false,"filter":{"tenant":""},"last":true,"reason":"fixed"}`, bodies[1])

	for want, args := range map[string][]string{
		"give ids or a filter, not both": {"cancel", "id", "--agent", "x"},
		"--dry-run needs a filter":       {"cancel", "id", "--dry-run"},
		`--state: "broken" is not`:       {"cancel", "--state", "broken"},
		"usage: holdfast tasks retry":    {"retry"},
		"--wait is for ids":              {"retry", "--agent", "x", "--wait"},
	} {
		r := run(args...)
		require.Equal(t, exitUsage, r.code, want)
		require.Contains(t, r.err, want)
	}
	require.Len(t, bodies, 2)
}

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	session{env: map[string]string{"HOLDFAST_LISTEN": "nonsense"}}.fails(t, exitUsage, "environment variable HOLDFAST_LISTEN: listen: ", "config", "check")
	r := session{}.succeeds(t, "config", "check")
	require.Equal(t, "no mistakes; 1 agents\n", r.out)
	require.JSONEq(t, `{"agents":["demo"]}`, session{}.run(t, "config", "check", "-o", "json").out)
}

// Credentials in a file do not show in the list of processes.
func TestHeadersFromAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(path, []byte("# mine\nAuthorization: Bearer s3cret\r\n\nX-A:b\n"), 0o600))
	header, err := readHeaders(strings.NewReader("X-D: e\n"), "header", []string{"X-C: d", "@" + path, "@-"})
	require.NoError(t, err)
	require.Equal(t, http.Header{"Authorization": {"Bearer s3cret"}, "X-A": {"b"}, "X-C": {"d"}, "X-D": {"e"}}, header)
	require.NoError(t, os.WriteFile(path, []byte("s3cret"), 0o600))
	_, err = readHeaders(strings.NewReader("X-D: e\n"), "header", []string{"@" + path})
	require.EqualError(t, err, "--header: line 1 of "+path+` is not a header; write "Name: value"`)
	_, err = readHeaders(strings.NewReader("X-D: e\n"), "header", []string{"@/nowhere/file"})
	require.ErrorContains(t, err, "/nowhere/file")
}
