package integration

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The agents of examples/, as real processes in their own languages, and a few bad ones.

func TestTheExampleAgents(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	python := startAgent(t, "127.0.0.1:0", "python3", example(t, "python/http_agent.py"))
	node := startAgent(t, "127.0.0.1:0", "node", example(t, "node/http_agent.mjs"))
	config := fmt.Sprintf(settings+`
  - {name: python-http, executor: {kind: http, http: {url: %q}}}
  - {name: node-http, executor: {kind: http, http: {url: %q}}}
  - {name: python-command, executor: {kind: command, command: {argv: [python3, %q]}}}
  - {name: node-command, executor: {kind: command, command: {argv: [node, %q]}}}
`, python.url, node.url, example(t, "python/command_agent.py"), example(t, "node/command_agent.mjs"))
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: config})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: config})
	t.Cleanup(db.sound)
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			// talk sends a message to an agent, on one replica and then on the other.
			turn := 0
			talk := func(agent, taskID, says string) *result {
				t.Helper()
				turn++
				r := []*replica{a, b}[turn%2]
				got, err := ask(short(t, patience), r.url+"/agents/"+agent, request(d.send, d.params(taskID, says)))
				require.NoError(t, err)
				res, err := got.result()
				require.NoError(t, err)
				return res
			}
			res := talk("python-http", "", "hello durable world")
			require.Equal(t, "input-required", res.state(), res.said())
			res = talk("python-http", res.task(), "in italics")
			require.Equal(t, "input-required", res.state())
			res = talk("python-http", res.task(), "upper")
			require.Equal(t, "completed", res.state(), res.said())
			require.Equal(t, "HELLO DURABLE WORLD ", text(res.Artifacts[0].Parts))

			res = talk("node-http", "", "abc déf")
			require.Equal(t, "completed", res.state(), res.said())
			require.Equal(t, "cba féd ", text(res.Artifacts[0].Parts))

			res = talk("python-command", "", "one two two")
			require.Equal(t, "completed", res.state(), res.said())
			require.Equal(t, "3 words, 2 different", text(res.Artifacts[0].Parts))
			require.JSONEq(t, `{"one":1,"two":2}`, string(res.Artifacts[1].Parts[0].Data))

			res = talk("node-command", "", "start") // guesses a number, and remembers by the history alone
			require.Contains(t, res.said(), "50")
			res = talk("node-command", res.task(), "lower")
			require.Contains(t, res.said(), "25")
			res = talk("node-command", res.task(), "higher")
			require.Contains(t, res.said(), "37")
			res = talk("node-command", res.task(), "yes")
			require.Equal(t, "completed", res.state())
			require.Equal(t, "It is 37.", text(res.Artifacts[0].Parts))
		})
	}
}

// An HTTP agent dies in the middle of its answer. It is asked again, when it is back.
func TestAnHTTPAgentThatDies(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String() // ours until now
	require.NoError(t, l.Close())
	agent := startAgent(t, addr, "node", example(t, "node/http_agent.mjs"), "DELAY=100")
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: fmt.Sprintf(settings+`
  - name: node
    executor: {kind: http, http: {url: %q}}
    limits: {backoff: 500ms, max_attempts: 10}
`, agent.url)})
	s, err := openURL(t, r.url+"/agents/node", v03.stream, v03.params("", "a bc def ghij klmno pqrstu vwxyz"))
	require.NoError(t, err)
	first := s.until("two words", func(e *event) bool { return e.Artifact != nil && e.Append })
	agent.kill()
	eventually(t, "the run is given up", func() error {
		return unless(len(db.runs(first.task())) > 0, "not yet")
	})
	startAgent(t, addr, "node", example(t, "node/http_agent.mjs"), "DELAY=10")
	require.Equal(t, "completed", last(s.rest()).state())
	res, err := ask(short(t, patience), r.url+"/agents/node", request("tasks/get", object{"id": first.task()}))
	require.NoError(t, err)
	task, err := res.result()
	require.NoError(t, err)
	require.Equal(t, "a cb fed jihg onmlk utsrqp zyxwv ", text(task.Artifacts[0].Parts), "the second try replaced what was left of the first")
	require.Contains(t, db.runs(first.task()), "retry")
	db.sound()
}

// To cancel a task closes the request of its agent, which the example in Node notices.
func TestCancelReachesTheAgent(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	agent := startAgent(t, "127.0.0.1:0", "node", example(t, "node/http_agent.mjs"), "DELAY=10000")
	mark := "HOLDFAST_INTEGRATION_MARK=" + filepath.Base(t.TempDir()) + fmt.Sprint(os.Getpid())
	config := fmt.Sprintf(settings+`
  - {name: node, executor: {kind: http, http: {url: %q}}}
  - name: python
    executor: {kind: command, command: {argv: [python3, %q], env: {DELAY: "1000"}, inherit: [HOLDFAST_INTEGRATION_MARK]}}
  - name: stubborn # ignores SIGTERM, and so do its children
    limits: {cancel_grace: 3s}
    executor:
      kind: command
      command:
        argv: [sh, -c, "trap '' TERM; echo '{\"type\":\"text\",\"text\":\"begun\"}'; sleep 1000 & sleep 1000 & wait; wait; sleep 1000"]
        inherit: [HOLDFAST_INTEGRATION_MARK]
        stop_grace: 200ms
`, agent.url, example(t, "python/command_agent.py"))
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: config, Env: []string{mark}})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: config})
	servers := len(marked(mark))
	require.Equal(t, 1, servers)
	for name, processes := range map[string]int{"node": 0, "python": 1, "stubborn": 3} {
		s, err := openURL(t, a.url+"/agents/"+name, v03.stream, v03.params("", "some words"))
		require.NoError(t, err)
		taskID := s.untilState("working").task()
		eventually(t, name+" runs", func() error {
			return unless(len(marked(mark)) == servers+processes, "%d processes", len(marked(mark)))
		})
		if name == "node" {
			s.untilState("working") // what the agent itself says first
		}
		got, err := ask(short(t, patience), b.url+"/agents/"+name, request("tasks/cancel", object{"id": taskID}))
		require.NoError(t, err)
		res, err := got.result()
		require.NoError(t, err)
		require.Equal(t, "canceled", res.state(), name)
		require.Equal(t, "canceled", last(s.rest()).state(), name)
		eventually(t, "no process of "+name+" is left", func() error {
			return unless(len(marked(mark)) == servers, "%d processes", len(marked(mark)))
		})
	}
	agent.untilSays("the run was canceled")
	db.sound()
}

// When the server dies its commands go with it or find themselves alone; the next attempt goes on from the checkpoint.
func TestACommandGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	config := fmt.Sprintf(settings+`
  - name: python
    executor: {kind: command, command: {argv: [python3, %q], env: {DELAY: "0.2"}}}
`, example(t, "python/command_agent.py"))
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: config})
	s, err := openURL(t, a.url+"/agents/python", v01.stream, v01.params("counted", "a a b b c c d d e e f f"))
	require.NoError(t, err)
	s.untilState("working")
	eventually(t, "a checkpoint", func() error {
		return unless(len(db.runs("counted")) >= 3, "%v", db.runs("counted"))
	})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: config})
	a.kill()
	s, err = openURL(t, b.url+"/agents/python", "tasks/resubscribe", object{"id": "counted"})
	require.NoError(t, err)
	require.Equal(t, "completed", last(s.rest()).state())
	got, err := ask(short(t, patience), b.url+"/agents/python", request("tasks/get", object{"id": "counted"}))
	require.NoError(t, err)
	res, err := got.result()
	require.NoError(t, err)
	require.Equal(t, "12 words, 6 different", text(res.Artifacts[0].Parts))
	require.JSONEq(t, `{"a":2,"b":2,"c":2,"d":2,"e":2,"f":2}`, string(res.Artifacts[1].Parts[0].Data))
	checkpoints := 0
	for _, outcome := range db.runs("counted") {
		if outcome == "checkpoint" {
			checkpoints++
		}
	}
	require.Less(t, checkpoints, 15, "it began where the first attempt had come to: 12, or one more for each that was not stored")
	db.sound()
}

// Agents that misbehave fail their task, with words that help whoever wrote them.
func TestBadAgents(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: settings + `
  - {name: chatty, executor: {kind: command, command: {argv: [sh, -c, "echo '{\"type\":\"status\"}'; echo hello"]}}}
  - {name: typo, executor: {kind: command, command: {argv: [sh, -c, "echo '{\"type\":\"text\",\"txt\":\"x\"}'"]}}}
  - {name: broken, executor: {kind: command, command: {argv: [sh, -c, "echo something went wrong >&2; exit 3"]}}, limits: {max_attempts: 1}}
  - {name: gone, executor: {kind: http, http: {url: "http://127.0.0.1:1/"}}, limits: {max_attempts: 2, backoff: 50ms}}
  - {name: slow, executor: {kind: command, command: {argv: [sleep, "1000"]}}, limits: {run_timeout: 300ms}}
  - {name: silent, executor: {kind: command, command: {argv: [sleep, "1000"]}}, limits: {inactivity_timeout: 300ms}}
`})
	t.Cleanup(db.sound)
	for name, want := range map[string]string{
		"chatty": "line 2", "typo": "txt", "broken": "3", "gone": "", "slow": "300ms", "silent": "300ms", "demo": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ask(short(t, patience), r.url+"/agents/"+name, request(v03.send, v03.params("", "crash")))
			require.NoError(t, err)
			res, err := got.result()
			require.NoError(t, err)
			require.Equal(t, "failed", res.state())
			require.NotEmpty(t, res.said())
			require.Contains(t, res.said(), want)
			require.NotContains(t, res.said(), "127.0.0.1", "clients do not learn our addresses")
		})
	}
}

func example(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "examples", name))
	require.NoError(t, err)
	if interpreter := map[string]string{".py": "python3", ".mjs": "node"}[filepath.Ext(name)]; interpreter != "" {
		if _, err := exec.LookPath(interpreter); err != nil {
			t.Skip(interpreter + " is not installed")
		}
	}
	return path
}

// agent is an HTTP agent as a process.
type agent struct {
	t     testing.TB
	url   string
	cmd   *exec.Cmd
	lines chan string
}

// startAgent runs an agent that takes its port as an argument and prints its address.
func startAgent(t testing.TB, addr, interpreter, file string, env ...string) *agent {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	a := &agent{t: t, lines: make(chan string, 1000)}
	a.cmd = exec.Command(interpreter, file, port)
	a.cmd.Env = append(os.Environ(), env...)
	a.cmd.Stderr = os.Stderr
	out, err := a.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, a.cmd.Start())
	t.Cleanup(a.kill)
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			a.lines <- in.Text()
		}
		close(a.lines)
	}()
	a.url = strings.TrimPrefix(a.untilSays("listening on "), "listening on ")
	return a
}

func (a *agent) untilSays(prefix string) string {
	a.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				require.FailNow(a.t, "the agent ended before it said "+prefix)
			}
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case <-timeout:
			require.FailNow(a.t, "the agent does not say "+prefix)
		}
	}
}

func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	_, _ = a.cmd.Process.Wait()
}

// marked are the processes that have the variable in their environment.
func marked(variable string) []int {
	var out []int
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environs {
		env, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, v := range strings.Split(string(env), "\x00") {
			if v == variable {
				var pid int
				_, _ = fmt.Sscanf(file, "/proc/%d/environ", &pid)
				if syscall.Kill(pid, 0) == nil {
					out = append(out, pid)
				}
			}
		}
	}
	return out
}
