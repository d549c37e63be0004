package integration

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait. It is long, because the machine may be busy; no test needs it when all is well.
const patience = 60 * time.Second

// settings makes a replica quick to notice things. Tests add their agents, or replace it.
const settings = `
listen: 127.0.0.1:0
grpc_listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
worker: {lease_ttl: 3s, poll_interval: 200ms, stop_grace: 1s}
hub: {poll_interval: 500ms}
store: {pool_size: 4}
agents:
  - name: demo
    executor: {kind: demo}
    limits: {backoff: 100ms, cancel_grace: 5s}
`

// replica is one server process.
type replica struct {
	t     testing.TB
	name  string
	opt   replicaOptions
	url   string // of the public API
	grpc  string // address of gRPC
	admin string
	cmd   *exec.Cmd
	logs  *logs

	serving chan struct{} // closed when the process has told its addresses
	ended   chan struct{} // closed when the process has been waited for
}

type replicaOptions struct {
	Name   string
	DB     string   // URL; empty leaves the database to the server
	Config string   // YAML; empty: none
	Env    []string // added to a clean environment
	Dir    string
	User   *syscall.Credential
	Binary string // empty: the one that was built
	// Async leaves the waiting to the test: waitServing, then waitReady.
	Async bool
}

// start runs a server and waits until it is ready.
func start(t testing.TB, o replicaOptions) *replica {
	t.Helper()
	r := &replica{t: t, name: o.Name, opt: o, logs: &logs{}}
	t.Cleanup(func() {
		r.kill()
		if bytes.Contains(r.logs.all(), []byte("DATA RACE")) {
			t.Errorf("%s: the race detector reported a race", r.name)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", r.name, r.logs.tail(150))
		}
	})
	r.run()
	return r
}

// cluster starts replicas on one database, with the usual settings.
func cluster(t testing.TB, db string, names ...string) []*replica {
	t.Helper()
	out := make([]*replica, len(names))
	for i, name := range names {
		out[i] = start(t, replicaOptions{Name: name, DB: db, Config: settings, Async: true})
	}
	for _, r := range out {
		r.waitServing()
		r.waitReady()
		r.opt.Async = false // when it is started again
	}
	return out
}

// run starts the process, again if it has ended. It keeps the addresses it had, but for that of gRPC: nobody
// goes back to it, and each port that was left may be another's by now.
func (r *replica) run() {
	r.t.Helper()
	args := []string{"serve"}
	if r.opt.Config != "" {
		file := filepath.Join(r.t.TempDir(), "holdfast.yaml")
		require.NoError(r.t, os.WriteFile(file, []byte(r.opt.Config), 0o600))
		args = append(args, "--config", file)
	}
	env := append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(), "HOLDFAST_LOG_FORMAT=json",
		"HOLDFAST_LOG_LEVEL=debug",
	}, r.opt.Env...)
	if r.opt.DB != "" {
		env = append(env, "HOLDFAST_DATABASE_URL="+r.opt.DB)
	}
	if r.url != "" {
		env = append(env, "HOLDFAST_LISTEN="+hostOf(r.url), "HOLDFAST_ADMIN_LISTEN="+hostOf(r.admin))
	}
	cmd := exec.Command(cmp.Or(r.opt.Binary, binary), args...)
	cmd.Env, cmd.Dir = env, r.opt.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.opt.User, Setpgid: true}
	// A pipe of our own: with one of exec's, Wait would wait for a PostgreSQL that outlives its server.
	reader, writer, err := os.Pipe()
	require.NoError(r.t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	require.NoError(r.t, cmd.Start())
	_ = writer.Close()
	serving, ended := make(chan struct{}), make(chan struct{})
	r.cmd, r.serving, r.ended = cmd, serving, ended
	go r.logs.follow(reader, func(line *logLine) {
		if line.Msg == "holdfast serves" || line.Msg == "holdfast runs agents" {
			r.url, r.grpc, r.admin = line.URL, line.GRPC, line.Admin
			if line.Listen != "" { // where it is, whatever its cards say
				r.url = "http://" + line.Listen
			}
			close(serving)
		}
	})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	if !r.opt.Async {
		r.waitServing()
		r.waitReady()
	}
}

// waitServing waits until the addresses are known.
func (r *replica) waitServing() {
	r.t.Helper()
	select {
	case <-r.serving:
	case <-r.ended:
		require.FailNow(r.t, r.name+" ended instead of serving", r.cmd.ProcessState.String())
	case <-time.After(patience):
		require.FailNow(r.t, r.name+" does not serve")
	}
}

// waitReady waits until every check is ok: also the one that notifications arrive.
func (r *replica) waitReady() {
	r.t.Helper()
	eventually(r.t, r.name+" is ready", func() error {
		status, body := r.ready()
		if status != http.StatusOK || !strings.Contains(body, `{"status":"ok"`) {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
}

// ready asks /readyz. The status is 0 when nobody answers.
func (r *replica) ready() (status int, body string) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(r.admin + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func (r *replica) signal(sig syscall.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(sig))
}

// kill ends the process at once, and reaps it.
func (r *replica) kill() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	<-r.ended
}

// wait returns the exit code of a process that is to end.
func (r *replica) wait() int {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		require.FailNow(r.t, r.name+" does not end")
		return -1
	}
}

func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }

// eventually repeats a check until it succeeds. It is for what the test cannot be told of.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	eventuallyWithin(t, patience, what, check)
}

// eventuallyWithin is eventually for what takes longer than is usual.
func eventuallyWithin(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(t, "never came true: "+what, err.Error())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// within waits for a channel.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "waited in vain: "+what)
		panic("unreachable")
	}
}

// logs is what a process has written, over all its lives.
type logs struct {
	mu    sync.Mutex
	lines [][]byte
}

type logLine struct {
	Msg, URL, Listen, GRPC, Admin string
}

func (l *logs) follow(r io.ReadCloser, each func(*logLine)) {
	defer r.Close()
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			l.mu.Lock()
			l.lines = append(l.lines, line)
			l.mu.Unlock()
			var parsed logLine
			if json.Unmarshal(line, &parsed) == nil {
				each(&parsed)
			}
		}
		if errors.Is(err, io.EOF) || err != nil {
			return
		}
	}
}

func (l *logs) all() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Join(l.lines, nil)
}

func (l *logs) tail(n int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Join(l.lines[max(0, len(l.lines)-n):], nil)
}

// unless is nil if the condition holds.
func unless(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func replace(s, old, with string) string {
	if !strings.Contains(s, old) {
		panic(old + " is not there")
	}
	return strings.ReplaceAll(s, old, with)
}

// pidOf takes the process id out of a worker's name.
func pidOf(name string) int {
	pid, err := strconv.Atoi(name[strings.LastIndex(name, "/")+1:])
	if err != nil {
		return -1
	}
	return pid
}
