package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// holdfast alone starts the server the first time, and helps in a terminal later. Without a terminal it always starts the server.
func TestWithoutAVerb(t *testing.T) {
	t.Parallel()
	empty, used := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(used, "postgres", "data"), 0o700))
	for name, c := range map[string]struct {
		terminal bool
		env      map[string]string
		args     []string
		served   bool
		says     string
	}{
		"the first start":            {true, map[string]string{"HOLDFAST_DATA_DIR": empty}, nil, true, ""},
		"a later one":                {true, map[string]string{"HOLDFAST_DATA_DIR": used}, nil, false, "To start the server with the database in " + used + ", write: holdfast serve"},
		"with a database":            {true, map[string]string{"HOLDFAST_DATABASE_URL": "host=db"}, nil, false, "the database of the configuration, write: holdfast serve"},
		"with a wrong configuration": {true, map[string]string{"HOLDFAST_LISTEN": "nonsense"}, nil, false, "environment variable HOLDFAST_LISTEN"},
		"with a flag":                {true, map[string]string{"HOLDFAST_DATA_DIR": used}, []string{"--roles", "api"}, true, ""},
		"serve":                      {true, map[string]string{"HOLDFAST_DATA_DIR": used}, []string{"serve"}, true, ""},
		"without a terminal":         {false, map[string]string{"HOLDFAST_DATA_DIR": used}, nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := false
			deps := Deps{Serve: func(context.Context, *config.Config, *slog.Logger, server.Changes) error {
				served = true
				return nil
			}}
			var code int
			var out string
			if s := (session{deps: deps, env: c.env}); c.terminal {
				code, out = onTerminal(t.Context(), t, s, nil, c.args...)
			} else {
				r := s.run(t, c.args...)
				code, out = r.code, r.out
			}
			require.Equal(t, c.served, served, out)
			require.Contains(t, out, c.says)
			switch {
			case c.served:
				require.Zero(t, code)
				require.NotContains(t, out, "Talk to agents:")
			case strings.Contains(name, "wrong"):
				require.Equal(t, exitUsage, code)
			default:
				require.Zero(t, code)
				require.Contains(t, out, "Talk to agents:")
			}
		})
	}
}

// A banner is for people: a program that reads the output gets none.
func TestBannerNeedsATerminal(t *testing.T) {
	t.Parallel()
	file := storetest.Must(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer func() { _ = file.Close() }()
	require.Nil(t, bannerOn(file))
	screen, tty, err := pty.Open()
	require.NoError(t, err)
	defer func() { _ = screen.Close() }()
	defer func() { _ = tty.Close() }()
	require.Equal(t, tty, bannerOn(tty))
}

// offers returns what the shell would offer, without descriptions.
func offers(t *testing.T, s session, args ...string) []string {
	t.Helper()
	r := s.succeeds(t, append([]string{"__complete"}, args...)...)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Equal(t, ":4", lines[len(lines)-1], "no files: %s", r.out)
	names := []string{}
	for _, line := range lines[:len(lines)-1] {
		name, _, _ := strings.Cut(line, "\t")
		names = append(names, name)
	}
	return names
}

func TestCompletions(t *testing.T) {
	t.Parallel()
	api := newFake()
	dir := t.TempDir()
	profiles := filepath.Join(dir, "profiles.yaml")
	require.NoError(t, os.WriteFile(profiles, []byte("profiles: {prod: {server: https://x}, staging: {server: https://y}}"), 0o600))
	s := session{
		env:  map[string]string{"HOLDFAST_DATABASE_URL": "host=db", "HOLDFAST_PROFILES": profiles},
		deps: operating(api).deps,
	}
	for line, want := range map[string][]string{
		"tasks get ":                       {"order-7"},
		"tasks get order-7 ":               {},
		"tasks cancel order-7 ":            {}, // it is there already
		"tasks list --agent ":              {"weather", "maps", "gone"},
		"tasks list --agent=":              {"weather", "maps", "gone"},
		"agents get ":                      {"weather", "maps", "gone"},
		"tasks list --agent w":             {"weather", "maps", "gone"}, // the shell filters
		"tasks list --state ":              stateNames(),
		"tasks list -o ":                   {"table", "wide", "json"},
		"tasks list --profile ":            {"prod", "staging"},
		"webhooks redeliver ":              {"order-7"},
		"webhooks redeliver order-7 ":      {"audit"},
		"webhooks redeliver order-7 hook ": {},
		"workers retire ":                  {"01000000-0000-0000-0000-000000000000"},
		"api-keys revoke ":                 {"mzxw6ytboi5dkmrq", "aaaaaaaaaaaaaaaa"},
		"api-keys list ":                   {},
		"completion ":                      {"bash", "fish", "powershell", "zsh"},
	} {
		synctest.Test(t, func(t *testing.T) { require.Equal(t, want, offers(t, s, strings.Split(line, " ")...), line) })
	}
	require.True(t, api.closed)
}

// A completion never waits long, prints no error, and starts no database.
func TestCompletionsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	opened := 0
	s := session{env: map[string]string{"HOLDFAST_DATA_DIR": t.TempDir()}, deps: Deps{
		OpenOperator: func(context.Context, *config.Config, *slog.Logger) (OperatorAPI, error) {
			opened++
			return nil, errors.New("away")
		},
	}}
	require.Empty(t, offers(t, s, "tasks", "get", ""))
	require.Zero(t, opened, "an embedded database that does not run is not started")
	s.env["HOLDFAST_DATABASE_URL"] = "host=db"
	r := s.run(t, "__complete", "tasks", "get", "")
	require.Equal(t, 1, opened)
	require.NotContains(t, r.err+r.out, "away")

	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s.deps.OpenOperator = func(context.Context, *config.Config, *slog.Logger) (OperatorAPI, error) {
			<-release // it does not even see that its time is over
			return nil, errors.New("late")
		}
		require.Empty(t, offers(t, s, "tasks", "get", ""))
		close(release)
	})
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{"bash": "complete -o default", "zsh": "#compdef holdfast", "fish": "complete -c holdfast", "powershell": "Register-ArgumentCompleter"} {
		r := session{deps: Live(io.Discard, nil)}.succeeds(t, "completion", shell)
		require.Contains(t, r.out, want)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(file, []byte("listen: 127.0.0.1:1\ndatabase_url: ${HOLDFAST_OWN}\n"), 0o600))
	good := doctor.Finding{Check: "notify", Status: doctor.OK, Detail: "arrives after 1ms"}
	bad := doctor.Finding{Check: "commit", Status: doctor.Warn, Detail: "FSYNC IS OFF", Advice: "fsync = on"}
	worse := doctor.Finding{Check: "schema", Status: doctor.Fail, Detail: "version 1, but this program needs version 3", Advice: "run holdfast migrate"}
	for _, c := range []struct {
		golden   string
		findings []doctor.Finding
		args     []string
		code     int
	}{
		{"doctor-ok.txt", []doctor.Finding{good}, nil, exitOK},
		{"doctor-warn.txt", []doctor.Finding{good, bad}, nil, exitOK},
		{"doctor-fail.txt", []doctor.Finding{bad, worse, good}, nil, exitFailed},
		{"doctor-fail.json", []doctor.Finding{bad, worse, good}, []string{"-o", "json"}, exitFailed},
	} {
		t.Run(c.golden, func(t *testing.T) {
			t.Parallel()
			var got doctor.Options
			env := map[string]string{
				"HOLDFAST_OWN": "postgres://u:sesame@db/x", "HOLDFAST_LISTEN": "127.0.0.1:2", "HOLDFAST_CONFIG": file,
				"HOLDFAST_DATABSE_URL": "postgres://u:sesame@db/x", "HOLDFAST_URL": "http://x", "HOME": "/root",
			}
			var out, errs bytes.Buffer
			code := Run(t.Context(), append([]string{"doctor", "--timeout", "7s"}, c.args...), IO{
				Out: &out, Err: &errs,
				Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
				Environ: func() (all []string) {
					for name, v := range env {
						all = append(all, name+"="+v)
					}
					return all
				},
			}, Deps{Examine: func(_ context.Context, o doctor.Options, report func(doctor.Finding)) {
				got = o
				for _, f := range c.findings {
					report(f)
				}
			}})
			require.Equal(t, c.code, code, errs.String())
			require.Equal(t, "127.0.0.1:2", got.Config.Listen)
			require.Equal(t, 7*time.Second, got.Timeout)
			require.Equal(t, file+", HOLDFAST_LISTEN, HOLDFAST_OWN", got.Sources)
			require.Equal(t, []string{"HOLDFAST_DATABSE_URL"}, got.Strangers)
			golden(t, c.golden, out.String())
		})
	}
}

func TestDoctorOfUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := session{deps: Live(io.Discard, nil), env: map[string]string{"HOLDFAST_LISTEN": "nowhere", "HOLDFAST_ROLES": "king", "HOLDFAST_DATA_DIR": dir}}
	r := s.run(t, "doctor", "-o", "json")
	require.Equal(t, exitFailed, r.code, r.err)
	var d doctor.Report
	require.NoError(t, json.Unmarshal([]byte(r.out), &d))
	require.Equal(t, doctor.Fail, d.Status)
	require.Len(t, d.Checks, 2)
	require.Contains(t, r.out, "environment variable HOLDFAST_LISTEN")

	s.env = map[string]string{"HOLDFAST_DATA_DIR": dir, "HOLDFAST_CONFIG": filepath.Join(dir, "absent.yaml")}
	require.Equal(t, exitFailed, s.run(t, "doctor").code)

	// doctor creates no database.
	s.env = map[string]string{"HOLDFAST_DATA_DIR": dir, "HOLDFAST_LISTEN": "127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN": "127.0.0.1:0"}
	r = s.run(t, "doctor")
	require.Zero(t, r.code, r.out)
	require.Contains(t, r.out, ""+dir+" has no database yet")
	require.Empty(t, storetest.Must(os.ReadDir(dir))(t))
}

func TestReadingVerbsCreateNoDatabase(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, dir := range []string{empty, filepath.Join(empty, "absent")} {
		for _, args := range [][]string{{"tasks", "list"}, {"migrate", "--status"}} {
			s := session{deps: Live(io.Discard, nil), env: map[string]string{"HOLDFAST_DATA_DIR": dir}}
			s.fails(t, exitUsage, dir+" has no database", args...)
		}
	}
	require.Empty(t, storetest.Must(os.ReadDir(empty))(t))
}

func TestMissingSchemaMessage(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := session{deps: Live(io.Discard, nil), env: map[string]string{"HOLDFAST_DATABASE_URL": db.URL}}
	s.succeeds(t, "tasks", "list")

	conn := storetest.Must(pgx.Connect(t.Context(), db.URL))(t)
	defer func() { _ = conn.Close(context.Background()) }()
	storetest.Must(conn.Exec(t.Context(), "DROP SCHEMA holdfast CASCADE"))(t)
	s.fails(t, exitFailed, "run holdfast migrate", "tasks", "list")
}

// When PostgreSQL's notification queue is full, the process that finds it full asks for room, which may take minutes.
// Replicas do that; a verb that has finished its work does not wait for it.
func TestVerbDoesNotWaitForFullNotifyQueue(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	s := storetest.Must(store.Open(t.Context(), store.Options{URL: db.URL, APIConns: 1}))(t)
	id := store.NewID()
	storetest.Must(s.Create(t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: "c", Dialect: "0.3"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}},
	}))(t)
	s.Close(t.Context())

	proxy := pgproxytest.New(t, db.URL)
	t.Cleanup(proxy.Fail("NotifySend", "54000", "too many notifications in the NOTIFY queue"))
	asked := proxy.Lose("NotifyQueueTrim", pgproxytest.Silence, 1)
	verb := session{deps: Live(io.Discard, nil), env: map[string]string{"HOLDFAST_DATABASE_URL": proxy.URL}}
	ended := make(chan result, 1)
	go func() { ended <- verb.run(t, "tasks", "cancel", id.String()) }()
	r := waittest.Within(t, "the verb ends", ended)
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "canceled")
	<-asked
}

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
			_, _ = w.Write([]byte(`{"id":"0199a3c1-0000-7000-8000-000000000007","state":"waiting"}`))
			return
		}
		reads++
		_, _ = w.Write([]byte(`{"id":"0199a3c1-0000-7000-8000-000000000007","state":"done","matched":3,"done":2,"skipped":1,"failed":` + strconv.Itoa(reads/2) + `}`))
	}))
	t.Cleanup(server.Close)
	run := func(args ...string) result {
		return session{env: map[string]string{"HOLDFAST_SERVER": server.URL}}.run(t, append([]string{"tasks"}, args...)...)
	}
	r := run("cancel", "--agent", "x", "--state", "working,input-required", "--text", "trip", "--dry-run")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "job 0199a3c1-0000-7000-8000-000000000007 done: 3 matched, 2 done, 1 skipped, 0 failed\n", r.out)
	require.Equal(t, exitFailed, run("retry", "--tenant", "", "--last", "--reason", "fixed").code, "a task failed")
	require.Len(t, bodies, 2)
	require.JSONEq(t, `{"action":"cancel","dry_run":true,"filter":{"agent":["x"],"state":["working","input-required"],"text":["trip"]},"reason":"holdfast tasks cancel"}`, bodies[0])
	require.JSONEq(t, `{"action":"retry","dry_run":false,"filter":{"tenant":[""]},"last":true,"reason":"fixed"}`, bodies[1])

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

func TestVersionIsThatOfHoldfastInAnotherModule(t *testing.T) {
	t.Parallel()
	v := versionOf(&debug.BuildInfo{
		GoVersion: "go1.26", Main: debug.Module{Path: "example.com/shout", Version: "v0.1.0"},
		Deps:     []*debug.Module{{Path: "example.com/other", Version: "v3.0.0"}, {Path: module, Version: "v1.2.3"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "of the other module"}},
	})
	require.Equal(t, "holdfast v1.2.3 go1.26", v.String())
}

func TestStampsReplaceTheRecordedVersion(t *testing.T) {
	t.Parallel()
	recorded := versionInfo{Version: "(devel)", Revision: "abc", Modified: true, Time: "2026-01-01T00:00:00Z", Go: "go1.26"}
	require.Equal(t, recorded, recorded.stamped("", "", ""))
	require.Equal(t, "holdfast v1.2.3 revision def of 2026-11-27T00:00:00Z go1.26",
		recorded.stamped("v1.2.3", "def", "2026-11-27T00:00:00Z").String())
}

// The linker ignores a name that does not exist, so the files that stamp must name these variables.
func TestReleaseFilesStampTheVersion(t *testing.T) {
	t.Parallel()
	for _, file := range []string{".goreleaser.yaml", "Dockerfile"} {
		text := storetest.Must(os.ReadFile(filepath.Join("../..", file)))(t)
		var flags []string
		for _, m := range regexp.MustCompile(`-X (\S+/internal/cli\.\w+)=`).FindAllStringSubmatch(string(text), -1) {
			flags = append(flags, m[1])
		}
		require.Equal(t, []string{module + "/internal/cli.stampedVersion", module + "/internal/cli.stampedCommit", module + "/internal/cli.stampedTime"}, flags, file)
	}
	require.Contains(t, string(storetest.Must(os.ReadFile("version.go"))(t)), "var stampedVersion, stampedCommit, stampedTime string\n")
}
