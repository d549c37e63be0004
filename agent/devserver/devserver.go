// Package devserver starts a Holdfast server with a database of its own, for tests that see an agent as its clients do:
//
//	func TestTrip(t *testing.T) {
//		server := devserver.Start(t, map[string]agent.Executor{"trips": trips{}}, devserver.Options{})
//		asked := server.Send("trips", "Book me a trip")
//		server.Kill() // as kill -9 does
//		server.Restart()
//		require.Equal(t, "Oslo it is.", server.Answer(asked, "Oslo").Text())
//	}
//
// Tests share a server if one of them starts it and the others run as its subtests. For tests without a server, see agenttest.
package devserver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/agent"
)

// Options of a server. The zero value is possible.
type Options struct {
	Binary      string        // the server's; default: HOLDFAST_BINARY, then holdfast of PATH, then what the Go tool builds
	DatabaseURL string        // a PostgreSQL to use instead of one in a temporary directory
	Patience    time.Duration // how long Send and Answer wait for the agent; default 30 seconds
}

// Server is a server that a test has started.
type Server struct {
	URL      string // of the agents: HOLDFAST_URL of a worker
	AdminURL string // of metrics, health and, below /console/, the console

	t       testing.TB
	o       Options
	dir     string
	process *exec.Cmd
	mu      sync.Mutex
	log     []string
}

// Task is a task as its client sees it.
type Task struct {
	ID     string `json:"id"`
	Status struct {
		State   string  `json:"state"` // such as TASK_STATE_COMPLETED
		Message message `json:"message"`
	} `json:"status"`
	Artifacts []message `json:"artifacts"`

	agent string
}

type message struct {
	Parts []struct {
		Text string `json:"text"`
	} `json:"parts"`
}

func (m message) text() (all string) {
	for _, p := range m.Parts {
		all += p.Text
	}
	return all
}

// Text is the text of all artifacts.
func (t *Task) Text() (all string) {
	for _, a := range t.Artifacts {
		all += a.text()
	}
	return all
}

// State is that of the task, such as completed or input-required.
func (t *Task) State() string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(t.Status.State, "TASK_STATE_")), "_", "-")
}

// Said is the text of the status: the question, or what the task failed with.
func (t *Task) Said() string { return t.Status.Message.text() }

// Start starts a server, and serves agents in this process by the names that they get. An agent that is nil is served by other
// processes of the test. At the end of the test the server stops, and a test that has failed gets its log.
func Start(t testing.TB, agents map[string]agent.Executor, o Options) *Server {
	t.Helper()
	s := &Server{t: t, o: o}
	s.o.Binary = cmp.Or(o.Binary, os.Getenv("HOLDFAST_BINARY"))
	if s.o.Binary == "" {
		s.o.Binary, _ = exec.LookPath("holdfast")
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "holdfast-dev-"); err != nil { //nolint:usetesting // root's PostgreSQL must enter it
		t.Fatal("devserver: ", err)
	}
	t.Cleanup(s.remove)
	if s.o.Binary == "" {
		s.o.Binary = filepath.Join(s.dir, "holdfast")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", s.o.Binary, "github.com/holdfast-a2a/holdfast/cmd/server")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("devserver: there is no holdfast in PATH, and it cannot be built: %v\n%s", err, out)
		}
	}
	config := map[string][]any{}
	served := map[string]agent.Executor{}
	for name, a := range agents {
		config["agents"] = append(config["agents"], map[string]any{"name": name, "executor": map[string]string{"kind": "worker"}})
		if a != nil {
			served[name] = a
		}
	}
	raw, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "holdfast.yaml"), raw, 0o600)
	}
	if err == nil {
		err = os.Chmod(s.dir, 0o755) //nolint:gosec // root's PostgreSQL runs as another user
	}
	if err != nil {
		t.Fatal("devserver: ", err)
	}
	s.Restart()
	if len(served) > 0 {
		s.serve(served)
	}
	return s
}

// serve makes this process a worker until the end of the test.
func (s *Server) serve(agents map[string]agent.Executor) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agent.Connect(ctx, s.URL, agents, agent.ConnectOptions{Name: "test", Drain: time.Millisecond})
	}()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Errorf("devserver: %v", err)
		}
	})
}

// Restart starts the server again, with the same addresses and data, after Kill or Stop.
func (s *Server) Restart() {
	s.t.Helper()
	args := []string{"serve", "--config", "holdfast.yaml", "--grpc-listen", "off"}
	for flag, url := range map[string]string{"--listen": s.URL, "--admin-listen": s.AdminURL} {
		args = append(args, flag, cmp.Or(strings.TrimPrefix(url, "http://"), "127.0.0.1:0"))
	}
	if s.o.DatabaseURL != "" {
		args = append(args, "--database-url", s.o.DatabaseURL)
	}
	process := exec.CommandContext(context.Background(), s.o.Binary, args...)
	process.Dir = s.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "HOLDFAST_") || strings.HasPrefix(kv, "HOLDFAST_PG_") {
			process.Env = append(process.Env, kv)
		}
	}
	out, err := process.StderrPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		s.t.Fatal("devserver: ", err)
	}
	s.process = process
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if s.heard(lines.Bytes()) {
				ready <- true
			}
		}
		ready <- false
	}()
	if !<-ready {
		s.t.Fatalf("devserver: the server did not start:\n%s", s.Log())
	}
}

// heard keeps a line of the log, and reports whether it says that the server is ready.
func (s *Server) heard(line []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, string(line))
	var said struct{ Msg, URL, Admin string }
	if json.Unmarshal(line, &said) != nil || said.Msg != "server ready" {
		return false
	}
	s.URL, s.AdminURL = said.URL, said.Admin
	return true
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// Kill kills the server as kill -9 does, and returns when it is dead.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop stops the server as SIGTERM does.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

func (s *Server) end(how syscall.Signal) {
	if s.process != nil {
		_ = s.process.Process.Signal(how)
		_ = s.process.Wait()
		s.process = nil
	}
}

func (s *Server) remove() {
	s.Stop()
	if s.t.Failed() {
		s.t.Logf("the server's log:\n%s", s.Log())
	}
	// The database outlives a killed server.
	_ = filepath.WalkDir(s.dir, func(path string, _ os.DirEntry, err error) error {
		var pid int
		if err == nil && filepath.Base(path) == "postmaster.pid" {
			raw, _ := os.ReadFile(path) //nolint:gosec // a file of this test
			if n, _ := fmt.Sscan(string(raw), &pid); n == 1 {
				_ = syscall.Kill(pid, syscall.SIGQUIT)
			}
		}
		return nil
	})
	_ = os.RemoveAll(s.dir)
}

// Send sends a text to an agent, and returns the task when the agent has answered or asks.
func (s *Server) Send(agent, text string) *Task {
	s.t.Helper()
	return s.send(agent, text, "")
}

// Answer sends a text to a task that asks, and returns the task when the agent has answered or asks again.
func (s *Server) Answer(asked *Task, text string) *Task {
	s.t.Helper()
	return s.send(asked.agent, text, asked.ID)
}

func (s *Server) send(agent, text, id string) *Task {
	s.t.Helper()
	m := map[string]any{"messageId": uuid.NewString(), "role": "ROLE_USER", "parts": []any{map[string]string{"text": text}}}
	if id != "" {
		m["taskId"] = id
	}
	var sent struct{ Task Task }
	if err := s.call(agent, "SendMessage", map[string]any{"message": m, "configuration": map[string]bool{"returnImmediately": true}}, &sent); err != nil {
		s.t.Fatal("devserver: ", err)
	}
	sent.Task.agent = agent
	return s.Wait(&sent.Task)
}

// Wait waits until a task has ended or asks, also while the server is away.
func (s *Server) Wait(t *Task) *Task {
	s.t.Helper()
	for end := time.Now().Add(cmp.Or(s.o.Patience, 30*time.Second)); ; time.Sleep(20 * time.Millisecond) {
		found := &Task{agent: t.agent} // new each time, or it would keep the message of an earlier status
		err := s.call(t.agent, "GetTask", map[string]string{"id": t.ID}, found)
		if err == nil && found.State() != "submitted" && found.State() != "working" {
			return found
		}
		if time.Now().After(end) {
			s.t.Fatalf("devserver: task %s is %q: %v", t.ID, found.State(), err)
		}
	}
}

func (s *Server) call(agent, method string, params, into any) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.URL+"/agents/"+agent, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", "1.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("%s: %s", method, answer.Error.Message)
	}
	return json.Unmarshal(answer.Result, into)
}
