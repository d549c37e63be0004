package development

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// wires are the flags of each version over each binding.
func wires(a *clustertest.Replica) map[string][]string {
	return map[string][]string{
		"default":                      {"--url", a.URL},
		"0.1":                          {"--url", a.URL, "--protocol", "0.1"},
		"0.2":                          {"--url", a.URL, "--protocol", "0.2"},
		"0.3 over JSON-RPC":            {"--url", a.URL, "--protocol", "0.3", "--binding", "jsonrpc"},
		"0.3 over HTTP+JSON":           {"--url", a.URL, "--protocol", "0.3", "--binding", "http"},
		"1.0 over JSON-RPC":            {"--url", a.URL, "--protocol", "1.0"},
		"1.0 over HTTP+JSON":           {"--url", a.URL + "/.well-known/agent-card.json", "--protocol", "1.0", "--binding", "http"},
		"0.3 over gRPC":                {"--endpoint", "http://" + a.GRPC, "--protocol", "0.3", "--binding", "grpc"},
		"1.0 over gRPC":                {"--endpoint", "http://" + a.GRPC, "--protocol", "1.0", "--binding", "grpc"},
		"1.0 at the endpoint, no card": {"--endpoint", a.URL, "--protocol", "1.0"},
		"an agent below the server":    {"--url", a.URL + "/agents/demo"},
		"the newest at the endpoint":   {"--endpoint", a.URL + "/"},
	}
}

func server(t testing.TB) *clustertest.Replica {
	t.Helper()
	return clustertest.Start(t, clustertest.Options{
		Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Steady + "\npush: {allow_private: true}\n",
	})
}

func with(verb string, where []string, more ...string) []string {
	return append(append([]string{verb}, where...), more...)
}

var taskLine = regexp.MustCompile(`(?m)^task +(\S+)`)

func taskIn(t testing.TB, out string) string {
	t.Helper()
	found := taskLine.FindStringSubmatch(out)
	require.NotNil(t, found, out)
	return found[1]
}

func TestEveryVersionAndBinding(t *testing.T) {
	t.Parallel()
	a := server(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note.txt"), []byte("of a file"), 0o600))
	for name, where := range wires(a) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := clustertest.Command(t, dir, nil, with("send", where, "echo:hello")...)
			require.Zero(t, said.Code, said.Err)
			require.Contains(t, said.Out, "state        completed\nartifact echo:\n  hello\n")

			said = clustertest.Command(t, dir, nil, with("stream", where, "chunks=20 size=24")...)
			require.Zero(t, said.Code, said.Err)
			for _, want := range []string{"working\n", "artifact chunks\n  00000000 ", " 00000019 ", "completed\n"} {
				require.Contains(t, said.Out, want)
			}

			asked := clustertest.Command(t, dir, nil, with("send", where, "ask:which city?")...)
			require.Equal(t, 4, asked.Code, asked.Err)
			require.Contains(t, asked.Out, "which city?")
			said = clustertest.Command(t, dir, nil, with("stream", where, "Oslo", "--task", taskIn(t, asked.Out))...)
			require.Zero(t, said.Code, said.Err)
			require.Contains(t, said.Out, "You answered: Oslo")
			again := clustertest.Command(t, dir, nil, with("stream", where, "--task", taskIn(t, asked.Out))...)
			require.Zero(t, again.Code, again.Err)
			require.Contains(t, again.Out, "You answered: Oslo", "a task that has ended is shown as well")

			// The frames are those of the version.
			said = clustertest.Command(t, dir, nil, with("stream", where, "echo:frames", "-o", "json")...)
			require.Zero(t, said.Code, said.Err)
			require.Greater(t, strings.Count(said.Out, "\n"), 1)
			for line := range strings.Lines(said.Out) {
				require.True(t, json.Valid([]byte(line)), line)
			}
			modern := !strings.HasPrefix(name, "0.")
			require.Equal(t, modern || strings.Contains(name, "HTTP+JSON") || strings.Contains(name, "gRPC"), strings.Contains(said.Out, "TASK_STATE_COMPLETED"), said.Out)

			require.Equal(t, 3, clustertest.Command(t, dir, nil, with("send", where, "fail:no luck")...).Code)
			if name != "0.1" { // there a client may choose any id
				lost := clustertest.Command(t, dir, nil, with("send", where, "x", "--task", "01945c3e-8f5a-7c3e-9d52-3c1f0f3b2a11")...)
				require.Equal(t, 1, lost.Code, lost.Out)
				require.Contains(t, lost.Err, "task 01945c3e-8f5a-7c3e-9d52-3c1f0f3b2a11: ")
			}
		})
	}
	t.Run("a version that nobody has", func(t *testing.T) {
		t.Parallel()
		said := clustertest.Command(t, dir, nil, "send", "--url", a.URL, "x", "--protocol", "1.7")
		require.Equal(t, 2, said.Code)
		require.Contains(t, said.Err, "--protocol")
	})
	t.Run("a binding that the card lacks", func(t *testing.T) {
		t.Parallel()
		said := clustertest.Command(t, dir, nil, "send", "--url", a.URL, "x", "--binding", "grpc")
		require.Equal(t, 1, said.Code)
		require.Contains(t, said.Err, "the card offers JSONRPC 1.0")
	})
	t.Run("a server without a card", func(t *testing.T) {
		t.Parallel()
		said := clustertest.Command(t, dir, nil, "send", "--url", a.Admin, "x")
		require.Equal(t, 1, said.Code)
		require.Contains(t, said.Err, "has no agent card")
	})
}

// Everything that a message may contain reaches the agent, and what comes back is saved.
func TestContent(t *testing.T) {
	t.Parallel()
	a := server(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note.txt"), []byte("of a file"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "city.json"), []byte(`{"city": "Oslo", "n": 1.0}`), 0o600))
	for _, name := range []string{"default", "0.1", "0.3 over HTTP+JSON", "0.3 over gRPC"} {
		where := wires(a)[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := clustertest.Command(t, dir, nil, with("send", where, "see", "--no-wait", "-o", "json", "--file", "note.txt", "--file-url", "https://example.com/a/b.png",
				"--data", "@city.json", "--data", "[1]", "--metadata", `{"priority": 7}`)...)
			require.Zero(t, said.Code, said.Err)
			task := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(said.Out)
			require.NotNil(t, task, said.Out)
			stored := clustertest.Command(t, dir, append(a.Options.Env, "HOLDFAST_DATABASE_URL="+a.Options.DB), "tasks", "get", task[1])
			require.Zero(t, stored.Code, stored.Err)
			file := "file note.txt (text/plain), 9 bytes"
			if strings.HasPrefix(name, "0.3") {
				file = "(text/plain), 9 bytes" // the release has no place for the name over HTTP+JSON
			}
			for _, want := range []string{file, "(image/png) at https://example.com/a/b.png", `"city"`, `[1]`} {
				require.Contains(t, stored.Out, want)
			}
		})
	}
	t.Run("saved", func(t *testing.T) {
		t.Parallel()
		out := filepath.Join(dir, "out")
		for range 2 {
			said := clustertest.Command(t, dir, nil, "stream", "--url", a.URL, "echo:hello", "--save", out)
			require.Zero(t, said.Code, said.Err)
		}
		for _, file := range []string{"echo.txt", "echo-2.txt"} {
			content, err := os.ReadFile(filepath.Join(out, file))
			require.NoError(t, err)
			require.Equal(t, "hello", string(content))
		}
	})
}

// Over every binding a stream of ours goes on after its last event: each chunk comes once.
func TestCutStreamsContinue(t *testing.T) {
	t.Parallel()
	const pieces = 20
	more := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(more) })
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for i := range pieces {
			if i == pieces/2 {
				<-more
			}
			_, _ = fmt.Fprintf(w, `{"type":"artifact","artifact":{"artifactId":"a","parts":[{"text":"%08d "}]},"append":%t}`+"\n", i, i > 0)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = fmt.Fprintln(w, `{"type":"complete"}`)
	}))
	t.Cleanup(agent.Close)
	t.Cleanup(goOn)
	config := clustertest.Replace(clustertest.Steady, "executor: {kind: demo}", fmt.Sprintf("executor: {kind: http, http: {url: %q}}", agent.URL))
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: config})
	all := map[string]*process{}
	for name, flags := range map[string][]string{
		"0.1": {"--protocol", "0.1"}, "0.3": {"--protocol", "0.3"}, "1.0": {"--protocol", "1.0"},
		"0.3 over HTTP+JSON": {"--protocol", "0.3", "--binding", "http"}, "1.0 over HTTP+JSON": {"--protocol", "1.0", "--binding", "http"},
		"0.3 over gRPC": {"--protocol", "0.3", "--binding", "grpc"}, "1.0 over gRPC": {"--protocol", "1.0", "--binding", "grpc"},
	} {
		to := a2atest.Host(a.URL)
		if strings.Contains(name, "gRPC") {
			to = a.GRPC
		}
		link := clustertest.NewProxy(t, to)
		all[name] = run(t, false, t.TempDir(), nil, append([]string{"stream", "--endpoint", "http://" + link.Addr, "count", "-o", "json"}, flags...)...)
		all[name].see("00000009 ")
		link.Cut()
		all[name].see("resuming after event")
	}
	goOn()
	for name, p := range all {
		require.Zero(t, p.end(), name)
		var chunks []string
		for _, found := range regexp.MustCompile(`"text":"(\d{8}) `).FindAllStringSubmatch(p.String(), -1) {
			chunks = append(chunks, found[1])
		}
		clustertest.Indexed(t, chunks, pieces)
	}
}

func TestQuestionsAreAnsweredInATerminal(t *testing.T) {
	t.Parallel()
	a := server(t)
	for _, verb := range []string{"send", "stream"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			p := run(t, true, t.TempDir(), nil, verb, "--url", a.URL, "ask:which city?")
			p.see("> ")
			p.types("\r") // an empty line is no answer
			p.seeTimes(2, "> ")
			p.types("Oslo\r")
			require.Zero(t, p.end())
			require.Contains(t, p.String(), "You answered: Oslo")
		})
	}
	t.Run("at the end of the input", func(t *testing.T) {
		t.Parallel()
		p := run(t, true, t.TempDir(), nil, "send", "--url", a.URL, "ask:which city?")
		p.see("> ")
		p.types("\x04")
		require.Equal(t, 4, p.end())
	})
	t.Run("not with --no-input", func(t *testing.T) {
		t.Parallel()
		p := run(t, true, t.TempDir(), nil, "send", "--url", a.URL, "ask:which city?", "--no-input")
		require.Equal(t, 4, p.end())
		require.NotContains(t, p.String(), "> ")
	})
	t.Run("of a task that was joined", func(t *testing.T) {
		t.Parallel()
		asked := clustertest.Command(t, t.TempDir(), nil, "send", "--url", a.URL, "ask:which city?")
		p := run(t, true, t.TempDir(), nil, "stream", "--url", a.URL, "--task", taskIn(t, asked.Out))
		p.see("> ")
		p.types("Rome\r")
		require.Zero(t, p.end())
		require.Contains(t, p.String(), "You answered: Rome")
	})
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	a := server(t)
	state := func(task string) string {
		t.Helper()
		return a.Get(task).State()
	}
	begin := func(t *testing.T, terminal bool, args ...string) (p *process, task string) {
		t.Helper()
		p = run(t, terminal, t.TempDir(), nil, append([]string{"stream", "--url", a.URL, "hold"}, args...)...)
		p.see("working")
		return p, taskIn(t, p.String())
	}
	t.Run("asks in a terminal, and cancels", func(t *testing.T) {
		t.Parallel()
		p, task := begin(t, true)
		p.types("\x03")
		p.see("Cancel the task?")
		require.Contains(t, p.String(), "holdfast stream --url "+a.URL+" --task "+task+" --after ")
		p.types("y\r")
		require.Equal(t, 130, p.end())
		require.Contains(t, p.String(), "is canceled")
		require.Equal(t, "canceled", state(task))
	})
	t.Run("asks in a terminal, and leaves", func(t *testing.T) {
		t.Parallel()
		p, task := begin(t, true)
		p.types("\x03")
		p.see("Cancel the task?")
		p.types("\r")
		require.Equal(t, 130, p.end())
		require.Equal(t, "working", state(task))
	})
	t.Run("twice leaves", func(t *testing.T) {
		t.Parallel()
		p, task := begin(t, true)
		p.types("\x03")
		p.see("Cancel the task?")
		p.types("\x03")
		require.NotZero(t, p.end())
		require.Equal(t, "working", state(task))
	})
	t.Run("leaves without a terminal", func(t *testing.T) {
		t.Parallel()
		p, task := begin(t, false)
		p.signal(syscall.SIGINT)
		require.Equal(t, 130, p.end())
		require.Contains(t, p.String(), "the task continues")
		require.NotContains(t, p.String(), "Cancel the task?")
		require.Equal(t, "working", state(task))

		// The printed command follows the task.
		again := regexp.MustCompile(`Follow it with: holdfast (.*)`).FindStringSubmatch(p.String())
		require.NotNil(t, again, p)
		q := run(t, false, t.TempDir(), nil, strings.Fields(again[1])...)
		a.Cancel(task)
		require.Equal(t, 3, q.end())
		require.Contains(t, q.String(), "canceled")
		require.NotContains(t, q.String(), "working", "that was printed before")
	})
	t.Run("a terminal that closes cancels nothing", func(t *testing.T) {
		t.Parallel()
		p, task := begin(t, true)
		p.signal(syscall.SIGTERM)
		require.Equal(t, 130, p.end())
		require.NotContains(t, p.String(), "Cancel the task?")
		require.Equal(t, "working", state(task))
	})
	t.Run("cancels at once", func(t *testing.T) {
		t.Parallel()
		p, task := begin(t, false, "--cancel-on-interrupt")
		p.signal(syscall.SIGINT)
		require.Equal(t, 130, p.end())
		require.Equal(t, "canceled", state(task))
	})
}

func TestListens(t *testing.T) {
	t.Parallel()
	a := server(t)
	verbs := []string{"send", "stream"}
	for i, name := range slices.Sorted(maps.Keys(wires(a))) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := clustertest.Command(t, t.TempDir(), nil, with(verbs[i%2], wires(a)[name], "echo:hello", "--listen")...)
			require.Zero(t, said.Code, said.Err)
			require.Contains(t, said.Out, "webhook: ")
			require.Regexp(t, `webhook: (task \S+ )?completed`, said.Out)
		})
	}
	t.Run("and refuses others", func(t *testing.T) {
		t.Parallel()
		p := run(t, false, t.TempDir(), nil, "send", "--url", a.URL, "hold", "--listen")
		p.see("working")
		url := regexp.MustCompile(`http://\S+`).FindString(p.String())
		resp, err := http.Post(url+"/guessed", "application/json", strings.NewReader(`{}`))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
		hook := clustertest.One[string](clustertest.OpenDB(t, a.Options.DB), "SELECT url FROM holdfast.push_configs WHERE starts_with(url, $1)", url)
		resp, err = http.Post(hook, "application/json", strings.NewReader(`{"statusUpdate":{"taskId":"x","status":{"state":"TASK_STATE_FAILED"}}}`))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
		p.see("Refused a push notification without the token")
		require.NotContains(t, p.String(), "webhook: failed")
		a.Cancel(taskIn(t, p.String()))
		require.Equal(t, 3, p.end())
		require.Contains(t, p.String(), "webhook: canceled")
	})
	t.Run("a server that refuses the address", func(t *testing.T) {
		t.Parallel()
		b := clustertest.Start(t, clustertest.Options{Name: "b", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings})
		said := clustertest.Command(t, t.TempDir(), nil, "send", "--url", b.URL, "echo:hello", "--listen")
		require.Equal(t, 1, said.Code)
		require.Contains(t, said.Err, "taskPushNotificationConfig.url")
	})
}

// After the first start, holdfast alone helps in a terminal instead of starting another server.
func TestAloneInATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".holdfast", "postgres", "data"), 0o700))
	p := run(t, true, dir, nil)
	require.Zero(t, p.end())
	require.Contains(t, p.String(), "Talk to agents:")
	require.Contains(t, p.String(), ".holdfast, write: holdfast serve")
}
