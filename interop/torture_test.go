//go:build interop

package interop

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/cmd/torture/checks"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var (
	tortureAll    = flag.Bool("torture", false, "torture servers of others with the agents of examples/torture, and write a table")
	tortureOnly   = flag.String("torture.only", "", "how the names of the servers begin")
	tortureRecord = flag.String("torture.record", "", "page whose table is replaced")
)

// tortured is a server that obeys the contract of docs/torture.md.
type tortured struct {
	name     string
	replicas int
	load     string
	// start returns the command that serves at an address, and its environment, for each replica.
	start func(t *testing.T, addr string) (env, argv []string)
	// header are the options that name callers.
	callers []string
	more    []string // flags
}

// bearers are two callers of servers that believe the name in a bearer token.
var bearers = []string{"-H", "Authorization: Bearer alice", "--other-header", "Authorization: Bearer bob"}

// peers are the columns of interop/torture-peers.md, which says where each promise is written.
//
//nolint:thelper // the functions call helpers, and nothing else
var peers = []struct {
	name     string
	promises []string // checks without a clause of A2A that its documentation speaks of
	make     func(t *testing.T) *tortured
}{
	{"Python, memory", nil, func(t *testing.T) *tortured { return official(t, "examples", "python", "") }},
	{"Python, database", []string{"acknowledged-tasks"}, func(t *testing.T) *tortured {
		return official(t, "examples", "python", "postgresql+asyncpg", "database")
	}},
	{"Python, cluster", []string{"acknowledged-tasks"}, func(t *testing.T) *tortured {
		return official(t, "examples", "python", "postgresql+asyncpg", "cluster").twice()
	}},
	{"Python 1.1.2, two processes", []string{"acknowledged-tasks"}, func(t *testing.T) *tortured {
		// As in https://github.com/a2aproject/a2a-python/issues/1188.
		p := official(t, "torture", "python-1.1.2", "postgresql+asyncpg", "database").twice()
		p.more = []string{"--check", "conversations"}
		return p
	}},
	{"JavaScript, memory", nil, func(t *testing.T) *tortured { return official(t, "examples", "javascript", "") }},
	{"JavaScript, database", []string{"acknowledged-tasks"}, func(t *testing.T) *tortured {
		return official(t, "examples", "javascript", "postgres", "database")
	}},
	{"Go, memory", nil, func(t *testing.T) *tortured { return official(t, "examples", "go", "") }},
	{"trpc-a2a-go, memory", nil, func(t *testing.T) *tortured {
		p := official(t, "torture", "trpc", "")
		p.callers = nil // it knows no owners of tasks
		return p
	}},
	{"turul-a2a, memory", nil, func(t *testing.T) *tortured { return rust(t, "") }},
	{"turul-a2a, database", []string{"acknowledged-tasks", "interrupted-work"}, func(t *testing.T) *tortured {
		return rust(t, "postgresql", "database")
	}},
	{"turul-a2a, cluster", []string{"acknowledged-tasks", "interrupted-work"}, func(t *testing.T) *tortured {
		return rust(t, "postgresql", "database").twice()
	}},
	{"Holdfast", checks.Names(), holdfast},
}

// twice makes it two processes.
func (p *tortured) twice() *tortured {
	p.replicas = 2
	return p
}

// kinds are the folders of agents.
var kinds = map[string]string{"examples": "../examples/torture", "torture": "torture"}

// official is a server of an SDK, on a database of its own if scheme names a driver.
func official(t *testing.T, kind, folder, scheme string, args ...string) *tortured {
	t.Helper()
	argv := install(t, kinds[kind], folder)
	if strings.HasPrefix(folder, "python") {
		argv = []string{argv[0], "../examples/torture/python/main.py"}
	}
	var env []string
	if scheme != "" {
		env = []string{"DATABASE_URL=" + database(t, scheme)}
	}
	if scheme == "postgres" {
		execute(t, filepath.Dir(argv[1]), env, "node_modules/.bin/a2a-db", "upgrade")
	}
	for i := range argv {
		if strings.ContainsRune(argv[i], '/') {
			var err error
			argv[i], err = filepath.Abs(argv[i])
			require.NoError(t, err)
		}
	}
	return &tortured{
		replicas: 1, callers: bearers, load: "4",
		start: func(t *testing.T, addr string) ([]string, []string) {
			t.Helper()
			_, port, _ := strings.Cut(addr, ":")
			return env, append(append(slices.Clone(argv), port), args...)
		},
	}
}

// rust is a server of turul-a2a.
func rust(t *testing.T, scheme string, args ...string) *tortured {
	t.Helper()
	for _, tool := range []string{"cargo", "protoc"} { // turul-a2a generates code from the proto of A2A
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not in PATH, so the servers in Rust are left out", tool)
		}
	}
	return official(t, "torture", "rust", scheme, args...)
}

// database makes an empty database, and returns its URL with the scheme of a driver.
func database(t *testing.T, scheme string) string {
	t.Helper()
	db := clustertest.OpenDB(t, storetest.New(t).URL)
	name := "peer_" + strings.ToLower(rand.Text())
	db.Exec("CREATE DATABASE " + name)
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	u.Scheme, u.Path = scheme, "/"+name
	if scheme == "postgresql" && u.Host == "" {
		u.Host = "localhost" // sqlx wants one, also if the parameter host is the directory of a socket
	}
	return u.String()
}

// holdfast are two replicas before the Go agent, which stays alive.
func holdfast(t *testing.T) *tortured {
	t.Helper()
	behind := official(t, "examples", "go", "")
	at := nettest.Reserve(t)
	_, argv := behind.start(t, at)
	cmd := exec.Command(argv[0], argv[1:]...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	db := clustertest.NewDB(t)
	keys := db.Keys(store.APIKey{Tenant: "t"}, "alice", "bob")
	config := filepath.Join(t.TempDir(), "holdfast.yaml")
	waittest.Eventually(t, "the agent serves", func() error { return served(at) })
	require.NoError(t, os.WriteFile(config, []byte(clustertest.Replace(clustertest.WithKeys, "{kind: demo}", fronting(at, true))+"\npush: {allow_private: true}\n"), 0o600))
	return &tortured{
		replicas: 2, load: "4", callers: []string{"-H", "X-API-Key: " + keys[0], "--other-header", "X-API-Key: " + keys[1]},
		start: func(t *testing.T, addr string) ([]string, []string) {
			t.Helper()
			return append(db.Env(), "HOLDFAST_LISTEN="+addr), []string{clustertest.Binary(t), "serve", "--config", config}
		},
	}
}

func served(addr string) error {
	resp, err := http.Get("http://" + addr + "/.well-known/agent-card.json")
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// TestTorturePeers writes the table of interop/torture-peers.md.
func TestTorturePeers(t *testing.T) {
	if !*tortureAll {
		t.Skip("make torture-peers runs it")
	}
	for _, peer := range peers {
		if !strings.HasPrefix(peer.name, *tortureOnly) {
			continue
		}
		t.Run(peer.name, func(t *testing.T) {
			p := peer.make(t)
			p.name = peer.name
			p.endure(t)
		})
	}
	text := table(t)
	t.Log("\n" + text)
	if *tortureRecord != "" && !t.Failed() {
		record(t, *tortureRecord, text)
	}
}

// TestTortureThroughAFront tortures Holdfast with the contract, shortly.
func TestTortureThroughAFront(t *testing.T) {
	t.Parallel()
	if *ring2 {
		t.Skip("the agent is of the first ring")
	}
	p := holdfast(t)
	p.name, p.load, p.more = "short", "2", []string{"--patience", "1m"} // the machine is busy
	for _, r := range p.endure(t).Results {
		require.Equal(t, checks.Pass, r.Verdict, "%s: %s %v", r.Check, r.Reason, r.Violations)
	}
}

// endure starts the replicas, tortures them, and returns the report.
func (p *tortured) endure(t *testing.T) *checks.Report {
	t.Helper()
	args := []string{"--scripts", "contract", "--webhook-listen", "127.0.0.1:0", "--load", p.load, "--seed", "1"}
	args = append(append(args, p.callers...), p.more...)
	for i := range p.replicas {
		addr, dir := nettest.Reserve(t), t.TempDir()
		env, argv := p.start(t, addr)
		script := filepath.Join(dir, "start")
		line := strings.Join(shelled(append(append([]string{"env"}, env...), argv...)), " ")
		require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, "cd %s\nexec %s >>log 2>&1 & echo $! >pid\n", dir, line), 0o600))
		kill, start := "kill -9 $(cat "+dir+"/pid)", "sh "+script
		execute(t, dir, nil, "sh", "-c", start)
		t.Cleanup(func() {
			_ = exec.Command("sh", "-c", kill).Run()
			if t.Failed() {
				log, _ := os.ReadFile(filepath.Join(dir, "log"))
				t.Logf("log of replica %d:\n%s", i, log[max(0, len(log)-20_000):])
			}
		})
		waittest.Eventually(t, p.name+" serves", func() error { return served(addr) })
		args = append(args, "http://"+addr, "--kill", kill, "--start", start)
		if p.replicas == 1 {
			args = append(args, "--kill", kill, "--start", start)
		}
	}
	base, err := filepath.Abs(reportOf(p.name))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(cache, 0o755))
	cmd := exec.CommandContext(t.Context(), clustertest.Program(t, "./cmd/torture"), append(args, "--report", base+".json", "--report", base+".md")...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if !errors.As(err, new(*exec.ExitError)) { // 1 after a violation
		require.NoError(t, err)
	}
	return read(t, p.name)
}

// reportOf is the newest report about a server, without its suffix.
func reportOf(name string) string { return filepath.Join(cache, "torture "+name) }

func read(t *testing.T, name string) *checks.Report {
	t.Helper()
	raw, err := os.ReadFile(reportOf(name) + ".json")
	require.NoError(t, err)
	var report checks.Report
	require.NoError(t, json.Unmarshal(raw, &report))
	return &report
}

// shelled quotes words for the shell.
func shelled(words []string) (out []string) {
	for _, w := range words {
		out = append(out, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return out
}

// table has a row for each check, and a column for each server that has a report.
func table(t *testing.T) string {
	t.Helper()
	head, rule, rows := "| check |", "|---|", map[string]string{}
	for _, peer := range peers {
		if !exists(t, reportOf(peer.name)+".json") {
			continue
		}
		head, rule = head+" "+peer.name+" |", rule+"---|"
		cells := map[string]string{}
		for _, r := range read(t, peer.name).Results {
			cells[r.Check] = verdict(r, peer.promises)
		}
		for _, check := range checks.Names() {
			rows[check] += " " + cells[check] + " |"
		}
	}
	text := head + "\n" + rule + "\n"
	for _, check := range checks.Names() {
		text += "| `" + check + "` |" + rows[check] + "\n"
	}
	return text
}

// verdict is what the table says. A promise that nobody has made is not broken.
func verdict(r *checks.Result, promises []string) string {
	switch {
	case r.Verdict == checks.NotApplicable:
		return "–"
	case r.Verdict == checks.Violated && strings.HasPrefix(r.Clause.Source, "promise") && !slices.Contains(promises, r.Check):
		return "not promised"
	case r.Verdict == checks.Violated:
		return "**violation**"
	}
	return string(r.Verdict)
}

// record replaces the table of a page.
func record(t *testing.T, page, table string) {
	t.Helper()
	const begin, end = "<!-- make torture-peers writes this table. -->\n", "<!-- end -->"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "%s has no table", page)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "the table of %s has no end", page)
	require.NoError(t, os.WriteFile(page, []byte(before+begin+"\n"+table+"\n"+end+after), 0o600))
}
