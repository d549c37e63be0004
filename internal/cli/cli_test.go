package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/casetest"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// session runs command lines with an environment and dependencies of its own.
type session struct {
	deps Deps
	env  map[string]string
	in   string
}

// operating is a session of an operator.
func operating(api OperatorAPI) session {
	return session{deps: Deps{OpenOperator: func(context.Context, *config.Config, *slog.Logger) (OperatorAPI, error) { return api, nil }}}
}

type result struct {
	code     int
	out, err string
}

func (s session) run(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), args, IO{
		In: strings.NewReader(s.in), Out: &out, Err: &errs,
		Env: func(name string) (string, bool) {
			v, ok := s.env[name]
			return v, ok
		},
	}, s.deps)
	return result{code, out.String(), errs.String()}
}

func (s session) succeeds(t *testing.T, args ...string) result {
	t.Helper()
	r := s.run(t, args...)
	require.Zero(t, r.code, r.err)
	return r
}

// fails runs a command line that must end with a code and an error.
func (s session) fails(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	r := s.run(t, args...)
	require.Equal(t, code, r.code, "%s", r.err)
	require.Contains(t, r.err, says)
}

// golden compares output with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	require.Empty(t, cmp.Diff(string(storetest.Must(os.ReadFile(path))(t)), got))
}

// goldenSessions runs the command of each file of a folder: its first line. The rest is what the command prints, and its exit status if
// that is not 0.
func goldenSessions(t *testing.T, folder string, do func(t *testing.T, args []string) (code int, text string)) {
	t.Helper()
	files := storetest.Must(filepath.Glob(filepath.Join("testdata", folder, "*")))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text := storetest.Must(os.ReadFile(file))(t)
			call, _, _ := strings.Cut(string(text), "\n")
			code, out := do(t, commandLines(strings.TrimPrefix(call, "$ "))[0])
			if code != 0 {
				out += fmt.Sprintf("exit status %d\n", code)
			}
			golden(t, filepath.Join(folder, filepath.Base(file)), call+"\n"+out)
		})
	}
}

func TestServeGetsConfiguration(t *testing.T) {
	t.Parallel()
	for _, verb := range [][]string{{"serve"}, nil} {
		var got *config.Config
		s := session{
			env: map[string]string{"HOLDFAST_LISTEN": ":2", "HOLDFAST_ADMIN_LISTEN": ":3"},
			deps: Deps{Serve: func(_ context.Context, cfg *config.Config, log *slog.Logger, _ server.Changes) error {
				got = cfg
				log.Info("serving", "listen", cfg.Listen)
				return nil
			}},
		}
		r := s.succeeds(t, append(verb, "--listen", ":1", "--roles", "worker")...)
		require.Equal(t, ":1", got.Listen)
		require.Equal(t, ":3", got.AdminListen)
		require.Equal(t, []config.Role{config.RoleWorker}, got.Roles)
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.err), &line), "logs are JSON without a terminal")
		require.Equal(t, "serving", line["msg"])
	}
}

// testdata/usage.txt has command lines, and the mistake that each of them is told.
func TestWrongUsageExitsWith2(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Read(t, "testdata/usage.txt") {
		t.Run(c.In, func(t *testing.T) {
			t.Parallel()
			r := session{}.run(t, commandLines(c.In)[0]...)
			require.Equal(t, exitUsage, r.code, r.err)
			require.Contains(t, r.err, "holdfast: "+c.Want)
			require.Empty(t, r.out)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	root := session{}.succeeds(t, "--help")
	golden(t, "help.txt", root.out)
	require.Contains(t, root.out, "\n  completion ")
	eachVerb((&command{}).root(), func(cmd *cobra.Command) {
		if isTopic(cmd) || !cmd.HasParent() {
			return
		}
		help := session{}.succeeds(t, append(strings.Fields(verbOf(cmd)), "--help")...)
		require.Contains(t, help.out, "Examples:\n  holdfast "+verbOf(cmd))
		for line := range strings.Lines(help.out) {
			if !strings.HasPrefix(line, "  ") { // examples and flags may be long
				require.LessOrEqual(t, len([]rune(line)), 101, "%s: %s", verbOf(cmd), line)
			}
		}
	})
}

// remoteAgent is an A2A 0.3 server whose answers depend on the text that it gets.
type remoteAgent struct {
	*httptest.Server
	headers http.Header
	params  string
}

const taskHead = `"kind":"task","id":"t1","contextId":"c1"`

// earlierArtifacts are those that t1 has before a message.
const earlierArtifacts = `{"artifactId":"a1","parts":[{"kind":"text","text":"old"}]},{"artifactId":"a2","parts":[{"kind":"text","text":"as it was"}]}`

var sendAnswers = map[string]string{
	"hello": `{` + taskHead + `,"status":{"state":"completed","timestamp":"2026-01-02T03:04:05Z"},"metadata":{"n":1.0,"big":12345678901234567890},
"artifacts":[{"artifactId":"a1","name":"greeting","parts":[{"kind":"text","text":"Hello,\nworld"},
{"kind":"data","data":{"b":1,"a":[2]}},{"kind":"file","file":{"name":"x.bin","mimeType":"application/octet-stream","bytes":"AAECAw=="}},
{"kind":"file","file":{"uri":"https://example.com/y"}}]}]}`,
	"ask":    `{` + taskHead + `,"status":{"state":"input-required","message":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"Which city?"}]}}}`,
	"auth":   `{` + taskHead + `,"status":{"state":"auth-required"}}`,
	"fail":   `{` + taskHead + `,"status":{"state":"failed","message":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"no \u001b[31mluck"}]}}}`,
	"slow":   `{` + taskHead + `,"status":{"state":"working"}}`,
	"again":  `{` + taskHead + `,"status":{"state":"completed"},"artifacts":[` + earlierArtifacts + `,{"artifactId":"a3","parts":[{"kind":"text","text":"new"}]}]}`,
	"more":   `{` + taskHead + `,"status":{"state":"completed"},"artifacts":[` + strings.ReplaceAll(earlierArtifacts, "old", "old and more") + `]}`,
	"direct": `{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"just words"}]}`,
}

const streamEvents = `: welcome

id: 1
data: {"jsonrpc":"2.0","id":1,"result":{` + taskHead + `,"status":{"state":"submitted"}}}

id: 2
data: {"jsonrpc":"2.0","id":1,"result":{"kind":"status-update","taskId":"t1","contextId":"c1","final":false,"status":{"state":"working","message":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"on it"}]}}}}

id: 3
data: {"jsonrpc":"2.0","id":1,"result":{"kind":"artifact-update","taskId":"t1","contextId":"c1","append":true,"lastChunk":true,"artifact":{"artifactId":"a1","parts":[{"kind":"text","text":"chunk"}]}}}

`

// wordEvents are two texts that grow, in turns, and other content between.
func wordEvents() string {
	var b strings.Builder
	for i, c := range []struct {
		id, part   string
		more, last bool
	}{
		{"poem", `{"kind":"text","text":"Roses"}`, false, false},
		{"poem", `{"kind":"text","text":" are red,\n"}`, true, false},
		{"poem", `{"kind":"text","text":"violets"}`, true, false},
		{"note", `{"kind":"text","text":"a"}`, false, false},
		{"poem", `{"kind":"text","text":" are\u001b[31m blue."}`, true, false},
		{"poem", `{"kind":"data","data":{}}`, true, false},
		{"poem", `{"kind":"text","text":"The"}`, true, false},
		{"poem", `{"kind":"text","text":" end\n\n"}`, true, true},
		{"poem", `{"kind":"text","text":"P.S."}`, true, false},
	} {
		_, _ = fmt.Fprintf(&b, "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"kind\":\"artifact-update\",\"taskId\":\"t1\",\"contextId\":\"c1\","+
			"\"append\":%t,\"lastChunk\":%t,\"artifact\":{\"artifactId\":%q,\"parts\":[%s]}}}\n\n", i+4, c.more, c.last, c.id, c.part)
	}
	return b.String()
}

func newRemoteAgent(t *testing.T) *remoteAgent {
	t.Helper()
	a := &remoteAgent{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/agent-card.json", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":"Weather","description":"Tells the weather.","url":"http://agent/","version":"1.2.0",
"protocolVersion":"0.3.0","provider":{"organization":"Acme","url":"https://acme.example"},
"capabilities":{"streaming":true,"pushNotifications":false},"defaultInputModes":["text/plain"],
"defaultOutputModes":["text/plain","application/json"],
"skills":[{"id":"forecast","name":"Forecast","description":"A week ahead.","tags":[],"examples":["Oslo?"]}]}`)
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Method string
			Params json.RawMessage
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("read the request: %v", err)
			return
		}
		a.headers, a.params = r.Header.Clone(), string(body.Params)
		var params struct {
			Message struct{ Parts []struct{ Text string } }
		}
		if err := json.Unmarshal(body.Params, &params); err != nil {
			t.Errorf("read the params: %v", err)
			return
		}
		switch body.Method {
		case "message/send":
			result, ok := sendAnswers[params.Message.Parts[0].Text]
			if !ok {
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"message.parts: what?"}}`)
				return
			}
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, result)
		case "message/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, streamEvents)
			state := params.Message.Parts[0].Text
			switch state {
			case "words":
				_, _ = io.WriteString(w, wordEvents())
				state = "completed"
			case "cut":
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			end(w, state)
		case "tasks/get":
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{`+taskHead+`,"status":{"state":"input-required"},"artifacts":[`+earlierArtifacts+`]}}`)
		case "tasks/resubscribe":
			if r.Header.Get("Last-Event-ID") != "3" {
				http.Error(w, "resumed after another event", http.StatusTeapot)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			end(w, "completed")
		}
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

func end(w io.Writer, state string) {
	_, _ = fmt.Fprintf(w, "id: 4\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"kind\":\"status-update\",\"taskId\":\"t1\",\"contextId\":\"c1\",\"final\":true,\"status\":{\"state\":%q}}}\n\n", state)
}

func TestRemoteVerbs(t *testing.T) {
	t.Parallel()
	goldenSessions(t, "remote", func(t *testing.T, args []string) (code int, text string) {
		t.Helper()
		r := session{env: map[string]string{"HOLDFAST_URL": newRemoteAgent(t).URL}}.run(t, args...)
		if r.err != "" {
			r.out += "--- stderr\n" + r.err
		}
		return r.code, r.out
	})
}

func TestSendRequest(t *testing.T) {
	t.Parallel()
	agent := newRemoteAgent(t)
	data := filepath.Join(t.TempDir(), "data.json")
	require.NoError(t, os.WriteFile(data, []byte(`{"n": 1.0, "big": 12345678901234567890}`), 0o600))
	r := session{in: "hello"}.succeeds(t, "send", "--url", agent.URL, "-", "--data", "@"+data, "--task", "t1", "--context", "c1", "-H", "Authorization: Bearer x")
	require.Contains(t, r.err, "see the header Authorization in the list of processes")
	require.NotContains(t, r.err, "Bearer x")
	require.Equal(t, "Bearer x", agent.headers.Get("Authorization"))
	require.Equal(t, "0.3", agent.headers.Get("A2A-Version"))
	require.Contains(t, agent.params, `"taskId":"t1","contextId":"c1"`)
	require.Contains(t, agent.params, `{"kind":"text","text":"hello"},{"kind":"data","data":{"n":1.0,"big":12345678901234567890}}`)
	require.Contains(t, agent.params, `"blocking":true`)
}

// A client in the directory of a server talks to that one, and not to another that listens where servers usually do.
func TestClientsFindTheServerOfTheirDirectory(t *testing.T) {
	t.Parallel()
	agent, dir := newRemoteAgent(t), t.TempDir()
	require.NoError(t, (&config.Serving{URL: agent.URL}).Write(dir))
	session{env: map[string]string{"HOLDFAST_DATA_DIR": dir}}.succeeds(t, "send", "hello")
	require.Contains(t, agent.params, "hello")
	s := session{env: map[string]string{"HOLDFAST_DATA_DIR": dir, "HOLDFAST_URL": "http://127.0.0.1:1"}}
	s.fails(t, exitFailed, "This used http://127.0.0.1:1;", "send", "hello")
}

func TestMissingCredentialMessage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Authentication required"}}`))
	}))
	t.Cleanup(server.Close)
	for _, args := range [][]string{{"card"}, {"send", "hello"}, {"send", "hello", "--protocol", "0.3", "--endpoint", server.URL}} {
		if len(args) < 4 {
			args = append(args, "--url", server.URL)
		}
		session{}.fails(t, exitFailed, "Give your credential with --header @FILE", args...)
	}
}

func TestKeyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("X-API-Key"))
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	s := session{env: map[string]string{"HOLDFAST_URL": server.URL, "HOLDFAST_API_KEY": "hfk_1"}}
	for want, args := range map[string][]string{"hfk_1": nil, "mine": {"-H", "X-API-Key: mine"}, "": {"--url", server.URL}} {
		keys = nil
		s.run(t, append([]string{"card"}, args...)...)
		require.Contains(t, keys, want, args)
		require.Len(t, slices.Compact(keys), 1, args)
	}
	// The server of a directory is not named by the environment: the directory may come from anybody.
	dir := t.TempDir()
	require.NoError(t, (&config.Serving{URL: server.URL}).Write(dir))
	keys = nil
	session{env: map[string]string{"HOLDFAST_DATA_DIR": dir, "HOLDFAST_API_KEY": "hfk_1"}}.run(t, "card")
	require.Equal(t, []string{""}, slices.Compact(keys))
}

func TestUnreachableServerMessage(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"card", "send", "stream"} {
		args := []string{verb, "--url", "http://" + nettest.Reserve(t)}
		if verb != "card" {
			args = append(args, "hello")
		}
		session{}.fails(t, exitFailed, "Is the server running?", args...)
	}
}

func TestCutStreamExitsWith1(t *testing.T) {
	t.Parallel()
	agent := newRemoteAgent(t)
	r := session{}.run(t, "stream", "--url", agent.URL, "cut", "--attempts", "0")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "could not be resumed")
	require.Contains(t, r.err, "holdfast stream --url "+agent.URL+" --task t1 --after 3")
}

func TestTasks(t *testing.T) {
	t.Parallel()
	goldenSessions(t, "operator", func(t *testing.T, args []string) (code int, text string) {
		t.Helper()
		api := newFake()
		s := session{deps: Deps{OpenOperator: func(_ context.Context, cfg *config.Config, _ *slog.Logger) (OperatorAPI, error) {
			require.Equal(t, "host=db", cfg.DatabaseURL)
			return api, nil
		}}}
		r := s.run(t, append(args, "--database-url", "host=db")...)
		require.True(t, api.closed, r.err)
		return r.code, r.out
	})
}

// Irreversible actions need a confirmation.
func TestPurgeNeedsConfirmation(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"usage: holdfast tasks purge": {"--yes"},
		"confirm it with --yes":       {"--owner", "alice"},
		"must be above 0":             {"--older-than", "-1h", "--owner", "alice", "--yes"},
	} {
		session{}.fails(t, exitUsage, text, append([]string{"tasks", "purge"}, args...)...)
	}
	api := newFake()
	operating(api).succeeds(t, "tasks", "purge", "--tenant", "", "--context", "c1", "--yes")
	require.JSONEq(t, `{"tenant":[""],"context":["c1"]}`, api.asked[0], "the empty tenant is a tenant")
}

// An interrupted verb says which job servers continue.
func TestInterruptedBulkNamesItsJob(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	api := newFake()
	api.routes["POST /jobs"] = func(*http.Request) (any, error) {
		cancel()
		return shown.Job{ID: idOf("0199a3c1-0000-7000-8000-000000000007"), Action: "cancel", State: "running"}, nil
	}
	var errs bytes.Buffer
	require.Equal(t, exitInterrupted, Run(ctx, []string{"tasks", "cancel", "--agent", "a"}, IO{Out: io.Discard, Err: &errs}, operating(api).deps))
	require.Equal(t, "holdfast: interrupted; servers continue the cancel as job 0199a3c1-0000-7000-8000-000000000007\n", errs.String())
}

func TestGetShowsTheRetry(t *testing.T) {
	t.Parallel()
	api := newFake()
	api.routes["GET /tasks/{id}"] = func(*http.Request) (any, error) {
		shows := shownTask(5, task.StateFailed)
		shows.RetriedAs = idOf("0199a3c1-0000-7000-8000-000000000001")
		return shown.TaskDetail{Task: shows}, nil
	}
	require.Regexp(t, "retried as +0199a3c1-0000-7000-8000-000000000001\n", operating(api).succeeds(t, "tasks", "get", "order-7").out)
}

// With several tasks, the exit code is that of the worst outcome: a failed call, then a failed task, then a parked one.
func TestRetryExitCode(t *testing.T) {
	t.Parallel()
	api := newFake()
	// Each task is retried as one in the state that its id names.
	states := map[string]task.State{}
	api.routes["GET /tasks/{id}"] = func(r *http.Request) (any, error) {
		id := r.PathValue("id")
		if parsed, err := task.ParseID(id); err == nil {
			return shown.TaskDetail{Task: shown.Task{ID: parsed, State: task.State(parsed[15])}}, nil
		}
		state, _ := task.ParseState(id)
		one := task.ID{15: byte(state)}
		states[one.String()] = state
		return shown.TaskDetail{Task: shown.Task{ID: one, State: state}}, nil
	}
	api.routes["POST /tasks/{id}/retry"] = func(r *http.Request) (any, error) {
		if states[r.PathValue("id")] == task.StateUnspecified {
			return nil, task.Errorf(task.Busy, "refused")
		}
		return map[string]string{"outcome": "sent", "new_task": r.PathValue("id")}, nil
	}
	for _, tt := range []struct {
		tasks string
		code  int
	}{
		{"completed", exitOK},
		{"failed", exitEnded},
		{"input-required", exitWaits},
		{"failed completed", exitEnded},
		{"auth-required completed", exitWaits},
		{"failed input-required", exitEnded},
		{"input-required rejected", exitEnded},
		{"input-required failed auth-required completed", exitEnded},
		{"refused failed", exitFailed},
		{"failed refused input-required", exitFailed},
	} {
		s := operating(api)
		r := s.run(t, append([]string{"tasks", "retry", "--wait"}, strings.Fields(tt.tasks)...)...)
		require.Equal(t, tt.code, r.code, "%s: %s", tt.tasks, r.err)
		if !strings.Contains(tt.tasks, "refused") {
			require.Zero(t, s.run(t, append([]string{"tasks", "retry"}, strings.Fields(tt.tasks)...)...).code, "%s, without waiting", tt.tasks)
		}
	}
}

func TestTasksFilterAndErrors(t *testing.T) {
	t.Parallel()
	api := newFake()
	s := operating(api)
	s.succeeds(t, "tasks", "list", "--agent", "weather", "--state", "working", "--context", "c1", "--tenant", "", "--owner", "alice", "--limit", "7")
	require.Equal(t, []string{"agent=weather&context=c1&limit=7&owner=alice&state=working&tenant="}, api.asked)

	require.Equal(t, result{exitFailed, "", "holdfast: no task order-8\n"}, s.run(t, "tasks", "get", "order-8"))
}

// A flag that a verb does not use could only mislead: the verb would act elsewhere than it says.
func TestServersAreNamedOnlyWhereTheyAct(t *testing.T) {
	t.Parallel()
	s := session{}
	for _, verb := range [][]string{{"migrate"}, {"send", "hi"}, {"stream", "hi"}, {"card"}, {"serve"}, {"config", "check"}, {"ready"}} {
		for _, flag := range []string{"--server", "--profile"} {
			s.fails(t, exitUsage, "unknown flag: "+flag, append(verb, flag, "http://127.0.0.1:1")...)
		}
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	migrated, admitted := false, ""
	s := session{deps: Deps{
		Migrate: func(_ context.Context, _ *config.Config, servers string, _ *slog.Logger) error {
			migrated, admitted = true, servers
			return nil
		},
		MigrationStatus: func(context.Context, *config.Config, *slog.Logger) ([]schema.Step, error) {
			return []schema.Step{{Version: 1, Name: "00001_tasks.sql", AppliedAt: &storedAt}, {Version: 2, Name: "00002_events.sql"}}, nil
		},
	}}
	r := s.succeeds(t, "migrate", "--status")
	require.False(t, migrated)
	golden(t, "migrate-status.txt", r.out)
	r = s.succeeds(t, "migrate", "--status", "-o", "json")
	golden(t, "migrate-status.json", r.out)

	require.Zero(t, s.run(t, "migrate").code)
	require.True(t, migrated)
	require.Empty(t, admitted)
	require.Zero(t, s.run(t, "migrate", "--runtime-role", "servers").code)
	require.Equal(t, "servers", admitted)

	// Servers behind a pooler have a direct URL, too. The owner's goes before both.
	s.env = map[string]string{"HOLDFAST_DATABASE_URL": "postgres://servers@pooler/h", "HOLDFAST_LISTEN_DATABASE_URL": "postgres://servers@db/h"}
	var urls []string
	s.deps.Migrate = func(_ context.Context, cfg *config.Config, _ string, _ *slog.Logger) error {
		urls = append(urls, cfg.DatabaseURL, cfg.ListenDatabaseURL)
		return nil
	}
	require.Zero(t, s.run(t, "migrate").code)
	require.Zero(t, s.run(t, "migrate", "--database-url", "postgres://owner@db/h").code)
	require.Equal(t, []string{"postgres://servers@pooler/h", "postgres://servers@db/h", "postgres://owner@db/h", ""}, urls)

	s.deps.Migrate = func(context.Context, *config.Config, string, *slog.Logger) error {
		return errors.New("database is away")
	}
	require.Equal(t, result{exitFailed, "", "holdfast: database is away\n"}, s.run(t, "migrate"))
}

func TestReady(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		code   int
		out    string
	}{
		"ready":     {200, `{"status":"ok","checks":[{"name":"database","status":"ok","detail":"fine"}]}`, exitOK, "ok\ndatabase  ok  fine\n"},
		"not ready": {503, `{"status":"failed","checks":[{"name":"database","status":"failed","error":"away"}]}`, exitFailed, "failed\ndatabase  failed  away\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			addr := strings.TrimPrefix(server.URL, "http://")
			require.Equal(t, result{c.code, c.out, ""}, session{}.run(t, "ready", "--admin-listen", addr))
			r := session{env: map[string]string{"HOLDFAST_ADMIN_LISTEN": addr}}.run(t, "ready", "-o", "json")
			require.Equal(t, c.code, r.code)
			require.JSONEq(t, c.body, r.out)
		})
	}
	session{}.fails(t, exitFailed, "connection refused", "ready", "--admin-listen", nettest.Reserve(t))
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := session{}.succeeds(t, "version")
	require.True(t, strings.HasPrefix(r.out, "holdfast "), r.out)
	r = session{}.run(t, "version", "-o", "json")
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out), &v))
	require.NotEmpty(t, v["go"])
	require.Equal(t, v["version"], Version())
	require.Equal(t, "holdfast v1.2.0 revision abc with local changes of 2026-01-02 go1.26", versionInfo{
		Version: "v1.2.0", Revision: "abc", Modified: true, Time: "2026-01-02", Go: "go1.26",
	}.String())
}

func TestLogFormats(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	newLogger(&text, config.Log{Level: "warn", Format: config.LogText}).Info("hidden")
	require.Empty(t, text.String())
	newLogger(&text, config.Log{Level: "debug", Format: config.LogText}).Debug("shown", "task_id", "t1")
	require.Contains(t, text.String(), "DBG shown task_id=t1")
	newQuietLogger(&text, config.Log{Level: "info", Format: config.LogText}).Info("hidden")
	require.NotContains(t, text.String(), "hidden")
	require.NotContains(t, text.String(), "\x1b", "no colours without a terminal")
}

func TestLogsHaveReadableDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 640: "640ns", 112_507_799: "112.5ms", 99_996_000: "100ms", 1_500_000_000: "1.5s",
		12_345_678_901: "12.35s", 5_025_678_901_234: "1h23m46s", -112_507_799: "-112.5ms",
	} {
		var text, lines bytes.Buffer
		newLogger(&text, config.Log{Format: config.LogText}).With("group", "g").WithGroup("g").Info("run ended", "took", d)
		require.Contains(t, text.String(), "g.took="+want+"\n")
		newLogger(&lines, config.Log{Format: config.LogJSON}).Info("run ended", "took", d)
		require.Contains(t, lines.String(), `"took":"`+want+`"`)
	}
	require.Equal(t, 278*time.Hour+16*time.Minute+41*time.Second, roundDuration(1_001_801*time.Second-time.Millisecond), "seconds stay")
}

// A failed write to the output must not look like success.
func TestFailedOutputIsAnError(t *testing.T) {
	t.Parallel()
	agent := newRemoteAgent(t)
	for _, args := range [][]string{{"card"}, {"send", "hello"}, {"stream", "completed"}} {
		code := Run(t.Context(), args, IO{
			In: strings.NewReader(""), Out: brokenPipe{}, Err: io.Discard,
			Env: func(name string) (string, bool) { return agent.URL, name == "HOLDFAST_URL" },
		}, Deps{})
		require.Equal(t, exitFailed, code, args)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// The verb card verifies a card with the keys that it is given, and fetches none.
func TestCardIsVerified(t *testing.T) {
	t.Parallel()
	const unsigned = `{"name":"A","url":"http://x","version":"1"}` // in its canonical form
	newKey := func() (private *ecdsa.PrivateKey, file string) {
		private = certtest.NewAuthority(t).Key
		set := storetest.Must(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "k", Algorithm: "ES256"}}}))(t)
		file = filepath.Join(t.TempDir(), "keys.json")
		require.NoError(t, os.WriteFile(file, set, 0o600))
		return private, file
	}
	key, known := newKey()
	_, other := newKey()
	signer := storetest.Must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil))(t)
	signed := storetest.Must(signer.Sign([]byte(unsigned)))(t)
	compact := storetest.Must(signed.CompactSerialize())(t)
	parts := strings.Split(compact, ".")
	signature := `,"signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`
	for name, c := range map[string]struct {
		card, keys string
		code       int
		says       string
	}{
		"signed":         {strings.TrimSuffix(unsigned, "}") + signature, known, exitOK, "signed by a key in "},
		"by another key": {strings.TrimSuffix(unsigned, "}") + signature, other, exitFailed, "none is of a known key"},
		"no keys":        {unsigned, "testdata/headers.txt", exitUsage, "is neither a JSON Web Key Set nor PEM"},
		"no file":        {unsigned, "testdata/nothing", exitUsage, "no such file"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.card) }))
		r := session{}.run(t, "card", "--url", server.URL, "--signing-keys", c.keys)
		server.Close()
		require.Equal(t, c.code, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.out+r.err, c.says, name)
	}
}
