package clustertest

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
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Replica is a server process that tests talk to.
type Replica struct {
	a2atest.Peer
	Options Options
	Admin   string // URL

	cmd     *exec.Cmd
	pid     atomic.Int64 // of cmd
	log     log
	serving chan struct{} // closed when the process has logged its addresses
	ended   chan struct{} // closed when the process has been waited for
}

// Options say how to start a server.
type Options struct {
	Name   string
	DB     string   // URL; empty: an embedded database
	Config string   // YAML; empty: none
	Env    []string // added to a clean environment
	Dir    string
	User   *syscall.Credential
	Binary string // empty: the one that Build made
	// Async makes Start return at once; the test calls WaitServing, then WaitReady.
	Async bool
}

// running are the processes that an interrupted test must kill.
var running sync.Map // *os.Process to nothing

// KillAll kills all replicas, when the test process is interrupted.
func KillAll() {
	running.Range(func(p, _ any) bool {
		_ = p.(*os.Process).Kill()
		return true
	})
}

// Start runs a server until the test ends, and waits until it is ready.
func Start(t testing.TB, o Options) *Replica {
	t.Helper()
	r := &Replica{Peer: a2atest.NewPeer(t, o.Name), Options: o}
	t.Cleanup(func() {
		r.Kill()
		if strings.Contains(r.Log(), "DATA RACE") {
			t.Errorf("%s: the race detector reported a race", r.Name)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", r.Name, r.log.tail(150))
		}
	})
	r.Run()
	return r
}

// Together starts servers concurrently, and waits until all are ready.
func Together(t testing.TB, all ...Options) []*Replica {
	t.Helper()
	out := make([]*Replica, len(all))
	for i, o := range all {
		o.Async = true
		out[i] = Start(t, o)
	}
	for _, r := range out {
		r.WaitServing()
		r.WaitReady()
		r.Options.Async = false // for later starts
	}
	return out
}

// Cluster starts replicas on one database, with the usual settings.
func Cluster(t testing.TB, db string, names ...string) []*Replica {
	t.Helper()
	all := make([]Options, len(names))
	for i, name := range names {
		all[i] = Options{Name: name, DB: db, Config: Settings}
	}
	return Together(t, all...)
}

// Pair starts two replicas, a and b. Without a configuration they have the usual settings.
func Pair(t testing.TB, o Options) (a, b *Replica) {
	t.Helper()
	other := o
	o.Name, o.Config = "a", cmp.Or(o.Config, Settings)
	other.Name, other.Config = "b", o.Config
	both := Together(t, o, other)
	return both[0], both[1]
}

// Run starts the process, or restarts it. A restarted process keeps its addresses, except that of gRPC: no client
// needs the old one. Until the test ends, no other process gets the ports, also while this one does not run.
func (r *Replica) Run() {
	r.T.Helper()
	args := []string{"serve"}
	if r.Options.Config != "" {
		file := filepath.Join(r.T.TempDir(), "holdfast.yaml")
		require.NoError(r.T, os.WriteFile(file, []byte(r.Options.Config), 0o600))
		args = append(args, "--config", file)
	}
	env := append(cleanEnv(), "TMPDIR="+os.TempDir(), "HOLDFAST_LOG_FORMAT=json", "HOLDFAST_LOG_LEVEL=debug")
	if r.Options.Config == "" {
		env = append(env, "HOLDFAST_GRPC_LISTEN=127.0.0.1:0")
	}
	if r.URL == "" {
		env = append(env, r.reserve()...)
	}
	if r.Options.DB != "" {
		env = append(env, databaseEnv(r.Options.DB)...)
	}
	env = append(env, r.Options.Env...)
	if r.URL != "" {
		env = append(env, "HOLDFAST_LISTEN="+a2atest.Host(r.URL), "HOLDFAST_ADMIN_LISTEN="+a2atest.Host(r.Admin))
	}
	binary := r.Options.Binary
	if binary == "" {
		binary = Binary(r.T)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Dir = env, r.Options.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: r.Options.User, Setpgid: true}
	// A pipe of our own: with exec's pipe, Wait would wait for a PostgreSQL that outlives its server.
	reader, writer, err := os.Pipe()
	require.NoError(r.T, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	require.NoError(r.T, cmd.Start())
	_ = writer.Close()
	running.Store(cmd.Process, nil)
	r.pid.Store(int64(cmd.Process.Pid))
	serving, ended := make(chan struct{}), make(chan struct{})
	r.cmd, r.serving, r.ended = cmd, serving, ended
	go r.log.follow(reader, func(line *logLine) {
		if line.Msg == "server ready" {
			r.URL, r.GRPC, r.Admin = line.URL, line.GRPC, line.Admin
			if line.Listen != "" { // the address, whatever public_url says
				r.URL = "http://" + line.Listen
			}
			close(serving)
		}
	})
	go func() {
		_ = cmd.Wait()
		running.Delete(cmd.Process)
		close(ended)
	}()
	if !r.Options.Async {
		r.WaitServing()
		r.WaitReady()
	}
}

// reserve returns the addresses of a server without a configuration, or whose configuration leaves the ports to the system, as variables.
func (r *Replica) reserve() (env []string) {
	for key, variable := range map[string]string{"\nlisten": "HOLDFAST_LISTEN", "\nadmin_listen": "HOLDFAST_ADMIN_LISTEN"} {
		if r.Options.Config == "" || strings.Contains(r.Options.Config, key+": 127.0.0.1:0\n") {
			env = append(env, variable+"="+nettest.Reserve(r.T))
		}
	}
	return env
}

// WaitServing waits until the addresses are known.
func (r *Replica) WaitServing() {
	r.T.Helper()
	waittest.Eventually(r.T, r.Name+" serves", func() error { // It may make a database of its own first.
		select {
		case <-r.serving:
			return nil
		case <-r.ended:
			require.FailNow(r.T, r.Name+" ended instead of serving", r.cmd.ProcessState.String())
			return nil
		default:
			return fmt.Errorf("its log has %d lines", r.log.length())
		}
	})
}

// WaitReady waits until every check is ok, including the one of the listener.
func (r *Replica) WaitReady() {
	r.T.Helper()
	waittest.Eventually(r.T, r.Name+" is ready", func() error {
		status, body := r.Ready()
		return waittest.Unless(status == http.StatusOK && strings.Contains(body, `{"status":"ok"`), "%d %s", status, body)
	})
}

// Ready reads /readyz. The status is 0 if there is no answer.
func (r *Replica) Ready() (status int, body string) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(r.Admin + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// PID is the id of the process. Any goroutine may call it.
func (r *Replica) PID() int { return int(r.pid.Load()) }

// Is reports whether a worker's name in the database is that of the process.
func (r *Replica) Is(worker string) bool { return strings.HasSuffix(worker, "/"+strconv.Itoa(r.PID())) }

// Signal sends a signal to the process.
func (r *Replica) Signal(sig syscall.Signal) {
	r.T.Helper()
	require.NoError(r.T, r.cmd.Process.Signal(sig))
}

// Kill kills the process and waits for its end.
func (r *Replica) Kill() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Kill()
	<-r.ended
}

// Freeze stops the process with SIGSTOP until Thaw.
func (r *Replica) Freeze() { r.T.Helper(); r.Signal(syscall.SIGSTOP) }

// Thaw continues the process.
func (r *Replica) Thaw() { r.T.Helper(); r.Signal(syscall.SIGCONT) }

// Stop stops the process as an operator would, and waits for a clean exit.
func (r *Replica) Stop() {
	r.T.Helper()
	r.Signal(syscall.SIGTERM)
	require.Zero(r.T, r.Wait())
}

// Wait waits for the end of the process, and returns its exit code.
func (r *Replica) Wait() int {
	r.T.Helper()
	waittest.Within(r.T, r.Name+" ends", r.ended)
	return r.cmd.ProcessState.ExitCode()
}

// Ended reports whether the process has ended, and how.
func (r *Replica) Ended() (how string, ended bool) {
	select {
	case <-r.ended:
		return r.cmd.ProcessState.String(), true
	default:
		return "", false
	}
}

// Page reads a page of the admin address. A Host header replaces the host of the address.
func (r *Replica) Page(path string, headers ...string) (status int, body string, header http.Header) {
	r.T.Helper()
	admin := a2atest.Peer{T: r.T, Name: r.Name, URL: r.Admin}
	return admin.Exchange(http.MethodGet, path, nil, headers...)
}

// Samples are the metrics of the replica, such as a_total{b="c"}, and the sum of each family under its name.
func (r *Replica) Samples() (map[string]float64, error) { return Scrape(r.Admin, waittest.Patience) }

// Scrape is Samples of the replica at an admin address, which must answer within a time.
func Scrape(admin string, limit time.Duration) (map[string]float64, error) {
	client := http.Client{Timeout: limit}
	resp, err := client.Get(admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		sample, value, ok := strings.Cut(in.Text(), " ")
		if !ok || sample == "#" {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in.Text(), err)
		}
		family, _, labeled := strings.Cut(sample, "{")
		out[family] += v
		if labeled {
			out[sample] = v
		}
	}
	return out, in.Err()
}

// Figures are the samples about the whole cluster: those of the replica that reads the queue now.
func Figures(replicas ...*Replica) (map[string]float64, error) {
	for _, r := range replicas {
		if samples, err := r.Samples(); err == nil && samples["holdfast_queue_readable"] == 1 {
			return samples, nil
		}
	}
	return nil, errors.New("no replica reads the queue")
}

// Metric is the sum of a metric family, which must exist.
func (r *Replica) Metric(name string) float64 {
	r.T.Helper()
	all, err := r.Samples()
	require.NoError(r.T, err)
	require.Contains(r.T, all, name)
	return all[name]
}

// Counted is a sample; 0 if it does not exist yet.
func (r *Replica) Counted(sample string) int {
	r.T.Helper()
	all, err := r.Samples()
	require.NoError(r.T, err)
	return int(all[sample])
}

// Log is the output of the process, including earlier runs.
func (r *Replica) Log() string { return string(r.log.tail(0)) }

// Logs watches the log from now on. The function that it returns waits for a line with this message and these fields, names
// and values.
func (r *Replica) Logs(msg string, fields ...string) (wait func()) {
	from := r.log.length()
	return func() {
		r.T.Helper()
		waittest.Eventually(r.T, r.Name+" logs "+msg, func() error {
			for ; from < r.log.length(); from++ {
				if says(r.log.line(from), msg, fields) {
					return nil
				}
			}
			return fmt.Errorf("%d lines, the last one is %s", from, r.log.line(from-1))
		})
	}
}

// says reports whether a line in JSON has a message and fields.
func says(line []byte, msg string, fields []string) bool {
	var doc map[string]any
	if json.Unmarshal(line, &doc) != nil || doc["msg"] != msg {
		return false
	}
	for i := 0; i < len(fields); i += 2 {
		if fmt.Sprint(doc[fields[i]]) != fields[i+1] {
			return false
		}
	}
	return true
}

// log is the output of a process.
type log struct {
	mu    sync.Mutex
	lines [][]byte
}

type logLine struct {
	Msg, URL, Listen, GRPC, Admin string
}

var textLine = regexp.MustCompile(`\b(msg|url|listen|grpc|admin)=("[^"]*"|\S+)`)

// parseLine reads a line in JSON, or as a program with a logger of its own may write it, in text. It returns nil for other lines.
func parseLine(line []byte) *logLine {
	var parsed logLine
	if json.Unmarshal(line, &parsed) == nil {
		return &parsed
	}
	into := map[string]*string{"msg": &parsed.Msg, "url": &parsed.URL, "listen": &parsed.Listen, "grpc": &parsed.GRPC, "admin": &parsed.Admin}
	found := textLine.FindAllSubmatch(line, -1)
	for _, m := range found {
		*into[string(m[1])] = strings.Trim(string(m[2]), `"`)
	}
	if found == nil {
		return nil
	}
	return &parsed
}

func (l *log) follow(r io.ReadCloser, each func(*logLine)) {
	defer r.Close()
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			l.mu.Lock()
			l.lines = append(l.lines, line)
			l.mu.Unlock()
			if parsed := parseLine(line); parsed != nil {
				each(parsed)
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *log) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// line is a line by its place; nil before the first one.
func (l *log) line(i int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i < 0 {
		return nil
	}
	return l.lines[i]
}

// tail are the last n lines; 0 for all.
func (l *log) tail(n int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = cmp.Or(n, len(l.lines))
	return bytes.Join(l.lines[max(0, len(l.lines)-n):], nil)
}

// Running splits replicas into the one that runs a task and the others. A replica does not always run the tasks that it
// creates.
func Running(d *DB, taskID string, replicas []*Replica) (runs *Replica, others []*Replica) {
	d.T.Helper()
	var name string
	waittest.Eventually(d.T, "a replica runs "+taskID, func() error {
		name = One[string](d, "SELECT coalesce((SELECT w.name FROM holdfast.tasks t JOIN holdfast.workers w ON w.id = t.worker_id WHERE t.id::text = $1), '')", taskID)
		return waittest.Unless(name != "", "no run")
	})
	for _, r := range replicas {
		if r.Is(name) {
			runs = r
		} else {
			others = append(others, r)
		}
	}
	require.NotNil(d.T, runs, name)
	return runs, others
}
