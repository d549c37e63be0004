package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var (
	command = flag.String("agent", "", "the command that starts the agent under test; default: Go's")
	folder  = flag.String("dir", "", "where the command starts, from the root of the repository")
	without = flag.String("without", "", "commands that the agent under test does not know, with commas")
)

// build builds Go's agent under test.
func build() (done func(), err error) {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "agent")
	args := []string{"build", "-o", path}
	if clustertest.UnderRace() {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "./goagent")...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	*command = path
	return func() { _ = os.RemoveAll(dir) }, nil
}

func TestMain(m *testing.M) {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("6") // scenarios mostly wait
	}
	done := func() {}
	if *command == "" {
		var err error
		if done, err = build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	done()
	os.Exit(code)
}

// bench is a server with an agent under test.
type bench struct {
	*server
	key     string // the file with the credential
	grace   int
	process *process
}

// process is the agent under test.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	mu     sync.Mutex
	stdout []string
	stderr bytes.Buffer
}

// begin starts a server and an agent with so many slots.
func begin(t *testing.T, slots int, script ...func(b *bench)) *bench {
	t.Helper()
	b := &bench{server: newServer(t, slots), key: filepath.Join(t.TempDir(), "key"), grace: 30}
	b.write("key-1")
	for _, f := range script {
		f(b)
	}
	b.with(func() {}) // requests see what the scripts have set
	b.start()
	t.Cleanup(func() {
		if b.t.Failed() {
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Logf("requests:\n%s\nstdout: %q\nstderr:\n%s", tail(strings.Join(b.log, "\n")), b.process.stdout, tail(b.process.text()))
		}
	})
	return b
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// write replaces the credential.
func (b *bench) write(key string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(b.key+".new", []byte(key+"\n"), 0o600))
	require.NoError(b.t, os.Rename(b.key+".new", b.key))
}

func (b *bench) start() {
	b.t.Helper()
	p := &process{cmd: exec.Command("sh", "-c", "exec "+*command), exited: make(chan struct{})}
	_, here, _, _ := runtime.Caller(0)
	p.cmd.Dir = filepath.Join(filepath.Dir(here), "..", "..", *folder)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HOLDFAST_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, "HOLDFAST_URL=http://"+b.addr, "HOLDFAST_AGENT="+agentName, "HOLDFAST_API_KEY_FILE="+b.key,
		fmt.Sprintf("CONFORMANCE_SLOTS=%d", b.slots), "CONFORMANCE_VERSION=v-test", "CONFORMANCE_NAME=n-test", fmt.Sprintf("CONFORMANCE_DRAIN=%d", b.grace))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	require.NoError(b.t, err)
	p.cmd.Stderr = p
	require.NoError(b.t, p.cmd.Start())
	b.process = p
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			p.mu.Lock()
			p.stdout = append(p.stdout, lines.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	b.t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it has ended, unless the test has failed
		<-p.exited
	})
}

// Write collects stderr.
func (p *process) Write(raw []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(raw)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

func (p *process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.stdout...)
}

// until waits until something holds. A complaint or the end of the agent ends it at once.
func (b *bench) until(what string, holds func() bool) {
	b.t.Helper()
	waittest.Eventually(b.t, what, func() error {
		ended := false
		select {
		case <-b.process.exited:
			ended = true
		default:
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.complaints) > 0 {
			require.FailNow(b.t, "the worker does what it must not", strings.Join(b.complaints, "\n"))
		}
		if holds() {
			return nil
		}
		require.False(b.t, ended, "the agent under test has ended; waited for: %s", what)
		events := 0
		for _, r := range b.runs {
			events += len(r.events)
		}
		return fmt.Errorf("after %d requests and %d events", len(b.log), events)
	})
}

// over waits for the ends of runs.
func (b *bench) over(runs ...*run) {
	b.t.Helper()
	for _, r := range runs {
		b.until("the end of "+r.id, func() bool { return r.over && r.told })
	}
}

// pause lets some time of the clock pass, for what has no event.
func (b *bench) pause(d time.Duration) {
	b.t.Helper()
	end := b.now() + d
	b.until("the end of a pause", func() bool { return b.now() >= end })
}

// count waits for a number of events of a run.
func (b *bench) count(r *run, n int) {
	b.t.Helper()
	b.until(fmt.Sprintf("%d events of %s", n, r.id), func() bool { return len(r.events) >= n })
}

// waits waits for a claim that waits, and returns its context.
func (b *bench) waits() (claim context.Context) {
	b.t.Helper()
	b.until("a claim that waits", func() bool { claim = b.claiming; return claim != nil })
	return claim
}

func (b *bench) signal(s syscall.Signal) {
	b.t.Helper()
	require.NoError(b.t, b.process.cmd.Process.Signal(s))
}

// exits waits until the agent has ended, and returns its status.
func (b *bench) exits() int {
	b.t.Helper()
	waittest.Within(b.t, "the end of the agent under test", b.process.exited)
	return b.process.cmd.ProcessState.ExitCode()
}

// end stops the agent, which must then exit with 0, and checks that the server has nothing to complain of.
func (b *bench) end() {
	b.t.Helper()
	b.signal(syscall.SIGTERM)
	require.Zero(b.t, b.exits(), "exit status")
	b.check()
}

func (b *bench) check() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.complaints)
}

// said waits for a line of stdout.
func (b *bench) said(line string) {
	b.t.Helper()
	b.until("the line "+line, func() bool {
		for _, have := range b.process.lines() {
			if strings.TrimSpace(have) == line {
				return true
			}
		}
		return false
	})
}

// outcome is what a client would see of a run.
type outcome struct {
	Text     string // of all artifacts
	Data     string
	File     string
	Progress string
	Stored   string // the last checkpoint
	End      string // how the run has ended, and the text of the message
	Note     string // of the event that ended it
}

func (b *bench) outcome(r *run) outcome {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var o outcome
	texts, order := map[string]string{}, []string(nil)
	for i, raw := range r.events {
		var e event
		require.NoError(b.t, json.Unmarshal(raw, &e), "%s", raw)
		id := e.ArtifactID
		switch e.Type {
		case "text":
			if id == "" {
				id = "text " + e.Name
			}
			if _, begun := texts[id]; !begun {
				order = append(order, id)
			} else if e.Append != nil && !*e.Append {
				texts[id] = ""
			}
			texts[id] += e.Text
		case "artifact":
			if id = e.Artifact.ArtifactID; id == "" {
				id = fmt.Sprint("new ", i)
			}
			if _, begun := texts[id]; !begun {
				order = append(order, id)
			}
			if e.Append == nil || !*e.Append {
				texts[id] = ""
			}
			for _, p := range e.Artifact.Parts {
				texts[id] += p.Text
				if p.Data != nil {
					o.Data = string(p.Data)
				}
				if p.Raw != "" {
					content, err := base64.StdEncoding.DecodeString(p.Raw)
					require.NoError(b.t, err)
					o.File = p.Filename + " " + p.MediaType + " " + string(content)
				}
			}
		case "checkpoint":
			o.Stored = string(e.Data)
		case "state":
		case "status":
			if e.State == "" || e.State == "working" {
				o.Progress += e.message(b.t)
				continue
			}
			o.End = strings.TrimSpace(e.State + " " + e.message(b.t))
		default:
			end := map[string]string{
				"ask": "input-required", "auth": "auth-required", "complete": "completed", "fail": "failed", "reject": "rejected",
			}[e.Type]
			if end == "" {
				end = e.Type
			}
			o.End = strings.TrimSpace(end + " " + e.message(b.t))
			switch {
			case e.Resume != nil:
				o.Note = fmt.Sprintf("resume %g", e.Resume.For)
			case e.Type == "wait":
				o.Note = fmt.Sprintf("for %g", e.For)
			case e.Type == "retry":
				o.Note = fmt.Sprintf("after %g", e.After)
			case e.Type == "call":
				for _, c := range e.Calls {
					o.Note += c.ID + " " + c.Agent + " " + (&event{Message: c.Message}).message(b.t)
				}
			}
		}
	}
	for _, id := range order {
		o.Text += texts[id]
	}
	return o
}

// event is an event as the suite reads it.
type event struct {
	Type, Text, Name, ArtifactID, State string
	Append                              *bool
	Message                             json.RawMessage
	Data                                json.RawMessage
	For, After                          float64
	Resume                              *struct{ For float64 }
	Calls                               []struct {
		ID, Agent string
		Message   json.RawMessage
	}
	Artifact struct {
		ArtifactID string
		Parts      []part
	}
}

type part struct {
	Text, Raw, Filename, MediaType string
	Data                           json.RawMessage
}

// message is the text of a message.
func (e *event) message(t testing.TB) string {
	t.Helper()
	if e.Message == nil || string(e.Message) == "null" {
		return ""
	}
	var plain string
	if json.Unmarshal(e.Message, &plain) == nil {
		return plain
	}
	var m struct{ Parts []part }
	require.NoError(t, json.Unmarshal(e.Message, &m))
	for _, p := range m.Parts {
		plain += p.Text
	}
	return plain
}
