package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

// onTerminal runs a command line in a terminal of 80 columns, and returns what that shows. heard gets each line, if it is not nil.
func onTerminal(ctx context.Context, t *testing.T, s session, heard func(line string), args ...string) (code int, text string) {
	t.Helper()
	screen, tty, err := pty.Open()
	require.NoError(t, err)
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80}))
	read := make(chan string, 1)
	go func() {
		var all strings.Builder
		for lines := bufio.NewReader(screen); ; { // a closed terminal is an error
			line, err := lines.ReadString(')')
			if heard != nil {
				heard(line)
			}
			if all.WriteString(line); err != nil {
				break
			}
		}
		read <- all.String()
	}()
	code = Run(ctx, args, IO{In: tty, Out: tty, Err: tty, Env: func(name string) (string, bool) {
		v, ok := s.env[name]
		return v, ok
	}}, s.deps)
	require.NoError(t, tty.Close())
	text = <-read
	require.NoError(t, screen.Close())
	return code, strings.NewReplacer("\r\n", "\n", "\x1b", "^").Replace(text)
}

// busy is an operator of a server where much happens. Its times are ages that do not change during a test.
func busy() session {
	api, hours := newFake(), time.Now().Add(-5*time.Hour-30*time.Minute)
	get := func(doc any) route { return func(*http.Request) (any, error) { return doc, nil } }
	rows := make([]shown.Task, 4)
	for i, state := range []task.State{task.StateFailed, task.StateWorking, task.StateInputRequired, task.StateCompleted} {
		rows[i] = shownTask(3, state)
		rows[i].TaskID, rows[i].CreatedAt, rows[i].StatusAt = rows[i].ID.String(), hours, hours
		rows[i].Line = &store.StatusLine{Text: []string{"Failed: the model did not answer within its time", "Runs", "Waits for the client's answer", "Completed"}[i]}
		rows[i].Said = []string{"What is the weather in\nOslo tomorrow, and in Bergen?", "hi \x1b[31mthere", "日本語のとても長いメッセージが八十桁に収まるか", "ok"}[i]
	}
	rows[3].Agent = "an-agent-whose-name-is-as-long-as-the-names-of-agents-may-be-00"
	pushes := []shown.Push{{TaskID: rows[0].TaskID, ConfigID: "c1", Host: "hooks.example.com:443", State: "failing", Behind: 3, Failures: 7, FailingSince: hours, LastError: "the receiver answered 503 Service Unavailable"}}
	job := shown.Job{ID: rows[0].ID, Action: "cancel", State: "running", Matched: 13, Done: 12, CreatedAt: hours, Filter: []byte(`{"agent":["weather"],"state":["working"]}`), Failures: []store.JobFailure{{Task: rows[0].TaskID, Error: "locked"}}}
	for path, doc := range map[string]any{
		"/tasks": shown.TasksPage{Tasks: rows}, "/webhooks": shown.WebhooksPage{Webhooks: pushes}, "/jobs": shown.JobsPage{Jobs: []shown.Job{job}}, "/jobs/{id}": job,
		"/inbox": shown.Inbox{Tasks: []shown.TaskDetail{{Task: rows[2], StatusMessage: []byte(`{"parts":[{"text":"Which city?"}]}`)}}},
		"/replicas": shown.Replicas{Replicas: []shown.Replica{
			{AdminProcess: store.AdminProcess{Name: "vm/1", Version: "v1.2.3", Roles: "api,worker,push", StartedAt: hours, Alive: true, Running: 2}},
			{AdminProcess: store.AdminProcess{Name: "gone"}},
		}},
		"/database":      store.DatabaseFacts{Bytes: 3 << 30, Version: "18.3", Connections: 12, MaxConnections: 200},
		"/webhooks/lags": store.PushLags{Hosts: []store.PushLagOfHost{{Host: "hooks.example.com:443", Failing: 4, Since: hours, Error: "503"}}},
	} {
		api.routes["GET "+path] = get(doc)
	}
	api.routes["POST /jobs/{id}/cancel"] = get(job)
	s := operating(api)
	s.env = map[string]string{"HOLDFAST_DATABASE_URL": "host=db"}
	s.deps.Examine = func(_ context.Context, _ doctor.Options, report func(doctor.Finding)) {
		report(doctor.Finding{Check: "notify", Status: doctor.OK, Detail: "arrives"})
		report(doctor.Finding{Check: "commit", Status: doctor.Warn, Detail: "FSYNC IS OFF", Advice: "fsync = on"})
		report(doctor.Finding{Check: "schema", Status: doctor.Fail, Detail: "too old", Advice: "run holdfast migrate"})
	}
	return s
}

// People see tables that fit, with colours, ends of ids and ages. Each file of testdata/terminal is what a command shows.
func TestTerminal(t *testing.T) {
	t.Parallel()
	goldenSessions(t, "terminal", func(t *testing.T, args []string) (code int, text string) {
		t.Helper()
		code, text = onTerminal(t.Context(), t, busy(), nil, args...)
		colour := regexp.MustCompile(`\^\[\d+m`)
		for line := range strings.Lines(text) {
			if !strings.Contains(strings.Join(args, " "), "wide") && !strings.HasPrefix(line, "The configuration") {
				require.LessOrEqual(t, wide(colour.ReplaceAllString(strings.TrimSuffix(line, "\n"), "")), 80, line)
			}
		}
		return code, regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`).ReplaceAllString(text, "2026-01-02T03:04:05.678Z")
	})
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		s := busy()
		s.env[name] = value
		_, text := onTerminal(t.Context(), t, s, nil, "status")
		require.NotContains(t, text, "^", name)
		require.Contains(t, text, "healthy")
	}
	require.Equal(t, "TASK", strings.Fields(busy().succeeds(t, "tasks").out)[0], "a noun lists")
}

// With --watch a list replaces itself until it is interrupted, also while the server is away.
func TestWatchedList(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	api, asked := newFake(), 0
	list := api.routes["GET /tasks"]
	api.routes["GET /tasks"] = func(r *http.Request) (any, error) {
		if asked++; asked == 2 {
			return nil, task.Errorf(task.Unavailable, "away")
		}
		if asked == 4 {
			cancel()
		}
		return list(r)
	}
	code, text := onTerminal(ctx, t, operating(api), nil, "tasks", "-w")
	require.Equal(t, exitInterrupted, code)
	require.GreaterOrEqual(t, strings.Count(text, "^[H^[JTASK"), 2, text)
	require.Contains(t, text, "The database does not answer (away); retrying.")
}

// Work that takes long says on a terminal how far it is, and leaves nothing behind.
func TestProgress(t *testing.T) {
	t.Parallel()
	s, api := session{}, newFake()
	seen := make(chan struct{})
	job := shown.Job{ID: idOf("0199a3c1-0000-7000-8000-000000000007"), Action: "cancel", State: "running", Matched: 13, Done: 5}
	api.routes["POST /jobs"] = func(*http.Request) (any, error) { return job, nil }
	api.routes["GET /jobs/{id}"] = func(*http.Request) (any, error) {
		select {
		case <-seen:
			job.State = "done"
		default:
		}
		return job, nil
	}
	s.deps = operating(api).deps
	code, text := onTerminal(t.Context(), t, s, func(line string) {
		if strings.Contains(line, "cancel: 13 matched, 5 done") {
			select {
			case <-seen:
			default:
				close(seen)
			}
		}
	}, "tasks", "cancel", "--agent", "weather")
	require.Zero(t, code)
	require.Contains(t, text, "\r^[Kjob 0199a3c1-0000-7000-8000-000000000007 done: 13 matched, 5 done")
}

// leaks are words of Go's packages.
var leaks = regexp.MustCompile(`strconv\.|dial tcp|context (canceled|deadline)|looking for beginning|json:|parse "|Get "|Post "|net/http|unexpected EOF|: EOF|pflag|bare "`)

// Whatever a server does and whatever a flag has, a verb says it without the words of Go's packages.
func TestErrorsAreForPeople(t *testing.T) {
	t.Parallel()
	closed := "http://" + nettest.Reserve(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	t.Cleanup(page.Close)
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(cut.Close)
	needs := map[string][]string{"stream": {"--attempts", "0"}, "tasks purge": {"--yes"}, "api-keys create": {"--subject", "x"}, "completion": {"bash"}, "audit verify": {"--against", "testdata/audit-heads.json"}}
	tried := 0
	eachVerb((&command{}).root(), func(cmd *cobra.Command) {
		if !runs(cmd) {
			return
		}
		args := append(strings.Fields(verbOf(cmd)), needs[verbOf(cmd)]...)
		to := map[bool]string{cmd.Flags().Lookup("url") != nil: "--url", cmd.InheritedFlags().Lookup("server") != nil || cmd.Flags().Lookup("server") != nil: "--server"}[true]
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind != "string" && !strings.HasPrefix(kind, "string") && kind != "bool" {
				r := session{}.run(t, append(args, "--"+f.Name, `x"`)...)
				require.Equal(t, exitUsage, r.code, "%s --%s", args, f.Name)
				require.Contains(t, r.err, "--"+f.Name+": ", args)
				require.NotRegexp(t, leaks, r.err, args)
			}
		})
		if to == "" || verbOf(cmd) == "open" || verbOf(cmd) == "tasks tail" { // one asks nothing, one waits for the server
			return
		}
		for _, word := range strings.Fields(cmd.Use)[1:] {
			if strings.ToUpper(word) == word && !strings.HasPrefix(word, "-") && !strings.ContainsAny(word, "[|") && !strings.HasPrefix(verbOf(cmd), "api-keys create") {
				args = append(args, strings.TrimSuffix(strings.Replace(word, "URL", "http://x", 1), "..."))
			}
		}
		switch verbOf(cmd) {
		case "tasks cancel", "tasks retry", "tasks purge":
			args = append(args, "order-7")
		case "workers retire":
			args = append(args, "--version", "v1")
		}
		for _, at := range []string{closed, page.URL, cut.URL, "http://[::1", "http://127.0.0.1:x"} {
			tried++
			r := session{env: map[string]string{"HOLDFAST_SECRET_KEYS": ""}}.run(t, append(args, to, at)...)
			require.NotZero(t, r.code, "%s %s: %s", args, at, r.out)
			require.NotRegexp(t, leaks, r.err, "%s %s", args, at)
			require.NotEmpty(t, r.err, "%s %s", args, at)
		}
	})
	require.Greater(t, tried, 100)
}

// A profile that is added works, and the others stay as they are.
func TestProfileAdd(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"tasks":[]}`) }))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "a", "profiles.yaml")
	s := session{env: map[string]string{"HOLDFAST_PROFILES": file}}
	s.succeeds(t, "profile", "add", "one", "--server", "http://127.0.0.1:1")
	s.succeeds(t, "tasks", "list", "--profile", "one", "--server", server.URL)
	s.fails(t, exitFailed, "127.0.0.1:1: connection refused", "tasks", "list", "--profile", "one")
	require.NoError(t, os.WriteFile(file, []byte("# mine\nprofiles:\n  two: {server: http://y, credential_env: X} # theirs\n"), 0o600))
	s.succeeds(t, "profile", "add", "one", "--server", server.URL)
	s.succeeds(t, "tasks", "list", "--profile", "one")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "# theirs")
	s.fails(t, exitUsage, "server is missing", "profile", "add", "three")
	s.fails(t, exitUsage, "exclude each other", "profile", "add", "three", "--server", "http://x", "--credential-env", "A", "--credential-file", "b")
}
