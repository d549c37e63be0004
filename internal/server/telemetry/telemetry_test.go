package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

var update = flag.Bool("update", false, "rewrite the table of docs/metrics.md and the golden file")

var _ PoolStat = (*pgxpool.Stat)(nil)

type fakePool struct{}

func (fakePool) AcquiredConns() int32                { return 3 }
func (fakePool) IdleConns() int32                    { return 2 }
func (fakePool) MaxConns() int32                     { return 10 }
func (fakePool) AcquireCount() int64                 { return 100 }
func (fakePool) EmptyAcquireCount() int64            { return 7 }
func (fakePool) EmptyAcquireWaitTime() time.Duration { return 1500 * time.Millisecond }
func (fakePool) CanceledAcquireCount() int64         { return 1 }

// get calls the admin handler through a real server.
func get(t *testing.T, h http.Handler, path string) (status int, body string) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	require.NoError(t, err)
	resp, err := server.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

// known are figures that this replica has read.
func known[T any](value T) *Figures[T] {
	f := NewFigures[T](time.Hour)
	f.Set(value)
	return f
}

// everything registers all metrics and uses each one once.
func everything(t *testing.T) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m := New(reg, "0.1", "0.3", "1.0")
	m.Agents("weather")
	fake := func() PoolStat { return fakePool{} }
	RegisterPools(reg, map[string]func() PoolStat{"api": fake, "writer": fake})
	RegisterQueue(reg, known([]store.QueueDepth{
		{Agent: "weather", Waiting: 4, Running: 2, Parked: 6, OldestSeconds: 90},
		{Agent: "gone", Waiting: 1, OldestSeconds: 3600},
		{Agent: "forgotten", Waiting: 2, OldestSeconds: 60},
	}), "weather", "idle")

	RegisterPushes(reg, known(store.PushCounts{Backlog: 7, Oldest: 30 * time.Second, Disabled: 2}))

	figures := &store.Figures{
		Bytes: 1 << 30, Tables: []store.TableFigures{{Name: "events_log", Bytes: 700 << 20}, {Name: "task_queue", Bytes: 1 << 20, Dead: 40}},
		Partitions: []store.PartitionFigures{{Family: "tasks", Ahead: 62 * 24 * time.Hour, Coverage: partition.Coverage{
			Begin: time.Unix(1700000000, 0), End: time.Unix(1800000000, 0), Attached: 12, Detached: 1,
		}}},
	}
	figures.Keys.Active, figures.Keys.Expiring, figures.Keys.Expired = 5, 1, 2
	RegisterDatabase(reg, known(figures))

	RegisterMemory(reg, 512<<20, func(visit func(string, limit.BudgetStat)) {
		visit("requests", limit.BudgetStat{Size: 80 << 20, Used: 1000, Refused: 3})
	})

	m.PushAttempted("gone", 20*time.Millisecond)
	m.PushAttempted("surprised", time.Second)
	m.PushLag(4 * time.Second)
	m.PushInFlight(1)
	m.PushInFlight(1)
	m.PushInFlight(-1)
	m.Claimed("weather", 5, 40*time.Millisecond)
	m.Running("weather", 1)
	m.Running("weather", 1)
	m.Running("weather", -1)
	m.Ran("weather", "completed", 3*time.Second)
	m.Notice("weather", "retried")
	m.Canceled("weather", 2*time.Second)
	m.Upstream("weather", "http")(web.Overloaded, 20*time.Millisecond)
	m.Schemes([]string{"keys", "sso"}, []string{"sso"})
	m.Rescued(2)
	m.Fenced(3)
	m.Flushed("append", 40, 2*time.Millisecond)
	m.Retried("cancel")
	m.Limited("weather", "rate")
	m.Limited("weather", "patience")
	m.Event(task.EventArtifact)
	m.Delivered(3 * time.Millisecond)
	m.PollFound(4)
	m.Reread()
	m.LogRead(true)
	m.Listening(false)
	m.Listening(true)
	closed := m.StreamOpened("0.3")
	m.StreamOpened("0.3")
	closed()
	m.Resumed("0.1")
	m.Answered("send", "jsonrpc", "0.1", "weather", "ok", 20*time.Millisecond)
	m.Answered("none", "rest", "", "weather", "refused", time.Millisecond)
	m.Answered("get", "grpc", "1.0", "weather", "INTERNAL_ERROR", time.Millisecond)
	m.FirstEvent("weather", 300*time.Millisecond)
	m.RunAPIAnswered("events", "ok", 20*time.Millisecond)
	m.Authenticated("", "missing")
	m.Authenticated("sso", "because")
	m.IssuerFetched("sso", errors.New("away"))
	m.Duties("partitions", "idle")
	m.DutyRan("partitions", 2*time.Second, nil)
	m.DutyRan("partitions", time.Second, errors.New("away"))
	m.Answered("tasks/drop; DROP TABLE", "carrier pigeon", "9.9", "nobody", "surprised", time.Millisecond)
	RegisterProcess(reg, Process{
		Version: "1.2.3", Commit: "abc", Schema: 32, LeaseMargin: func() time.Duration { return 12 * time.Second }, Replicas: func() int { return 3 },
		Slots:       map[string]int{"weather": 10},
		Certificate: func() time.Time { return time.Unix(1800000000, 0) },
		SigningKey:  func() (made, next time.Time) { return time.Unix(1700000000, 0), time.Unix(1800000000, 0) },
		Checks: []Check{
			{"serving", func(context.Context) (string, error) { return "", nil }},
			{"listener", func(context.Context) (string, error) { return "", Degraded(errors.New("polling every 2s")) }},
		},
	})
	return reg
}

func TestScrape(t *testing.T) {
	t.Parallel()
	status, body := get(t, AdminHandler(everything(t), everybody, nil), "/metrics")
	require.Equal(t, http.StatusOK, status)
	body = strings.ReplaceAll(body, `go="`+runtime.Version()+`"`, `go="VERSION"`)
	if *update {
		require.NoError(t, os.WriteFile("testdata/metrics.txt", []byte(body), 0o600))
	}
	want, err := os.ReadFile("testdata/metrics.txt")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), body))
	require.NotContains(t, body, "DROP")
}

// An agent that this replica has not served yet has no histogram: installations have hundreds of agents.
func TestUnusedAgentsHaveNoHistograms(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := New(reg)
	for i := range 1000 {
		agent := fmt.Sprintf("agent-%d", i)
		m.Agents(agent)
		m.Upstream(agent, "http")
	}
	m.Claimed("agent-7", 1, time.Second)
	m.Ran("agent-7", "completed", time.Second)
	_, body := get(t, AdminHandler(reg, everybody, nil), "/metrics")
	perAgent := regexp.MustCompile(`(?m)^holdfast_\w+\{agent="agent-.*$`).FindAllString(body, -1)
	require.Len(t, perAgent, 1000*39+17+16)
	for _, line := range perAgent {
		require.True(t, !strings.Contains(line, "_bucket{") || strings.Contains(line, `"agent-7"`), line)
	}
}

func TestEveryErrorReasonIsAnOutcome(t *testing.T) {
	t.Parallel()
	for kind, row := range fault.Base {
		require.True(t, requestOutcomes[row.Reason], "%s of %s", row.Reason, task.Kind(kind))
	}
}

func TestEveryDeliveryClassIsAnOutcome(t *testing.T) {
	t.Parallel()
	for _, class := range push.Classes {
		require.Equal(t, class != push.Silent, pushClasses[string(class)], class)
	}
}

// The table of docs/metrics.md is written from the metrics. Its introduction is not.
func TestPageOfMetrics(t *testing.T) {
	t.Parallel()
	families, err := everything(t).Gather()
	require.NoError(t, err)
	table := "| metric | type | labels | meaning |\n|---|---|---|---|\n"
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		require.True(t, strings.HasSuffix(f.GetHelp(), "."), "the help of %s is a sentence", f.GetName())
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	const page = "../../../docs/metrics.md"
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	introduction, _, found := strings.Cut(string(written), "| metric |")
	require.True(t, found, "the page has a table")
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(introduction+table), 0o600))
		return
	}
	require.Empty(t, cmp.Diff(introduction+table, string(written)), "-metrics +docs/metrics.md; -update writes the table")
}

// A queue that nobody can read must not look calm, and only one replica exports it.
func TestOldFiguresAreNotExported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		queue, pushes, database := NewFigures[[]store.QueueDepth](time.Minute), NewFigures[store.PushCounts](time.Minute), NewFigures[*store.Figures](time.Hour)
		RegisterQueue(reg, queue, "a")
		RegisterPushes(reg, pushes)
		RegisterDatabase(reg, database)
		readable := func() (families int, readable map[string]float64) {
			found, err := reg.Gather()
			require.NoError(t, err)
			readable = map[string]float64{}
			for _, f := range found {
				if strings.HasSuffix(f.GetName(), "_readable") {
					readable[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
				}
			}
			return len(found), readable
		}
		set := func() {
			queue.Set([]store.QueueDepth{{Agent: "a", Waiting: 1}})
			pushes.Set(store.PushCounts{})
			database.Set(&store.Figures{})
		}
		for _, step := range []struct {
			do       func()
			families int
			readable float64
		}{
			{func() {}, 2, 0}, // another replica reads them
			{set, 2 + 7 + 3 + 2, 1},
			{func() { waittest.Advance(time.Minute) }, 2 + 2, 0},
			{func() { set(); queue.Forget(); pushes.Forget() }, 2 + 2, 0},
		} {
			step.do()
			n, is := readable()
			require.Equal(t, step.families, n)
			require.Equal(t, map[string]float64{"holdfast_queue_readable": step.readable, "holdfast_push_readable": step.readable}, is)
		}
	})
}

func everybody(*http.Request, Page) error { return nil }

// A caller without the operator's scope learns whether waiting may help, and nothing else.
func TestCallersWithoutOperatorScope(t *testing.T) {
	t.Parallel()
	fine := Check{"database", func(context.Context) (string, error) { return "PostgreSQL 16.4", nil }}
	polling := Check{"listener", func(context.Context) (string, error) { return "", Degraded(errors.New("polling every 2s")) }}
	broken := Check{"worker", func(context.Context) (string, error) { return "", errors.New("no claim for 1m") }}
	nobody := func(*http.Request, Page) error {
		return &task.Error{Kind: task.Unauthenticated, Challenges: []string{`Bearer realm="holdfast"`, `Basic realm="holdfast"`}}
	}
	for want, checks := range map[string][]Check{
		`{"status":"ok"}`: {fine, polling}, `{"status":"failed"}`: {fine, broken},
	} {
		_, body := get(t, AdminHandler(prometheus.NewRegistry(), nobody, nil, checks...), "/readyz")
		require.JSONEq(t, want, body)
	}
	h := AdminHandler(everything(t), nobody, nil, fine)
	code, body := get(t, h, "/livez")
	require.Equal(t, 200, code)
	require.Equal(t, "ok\n", body)
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace", "/", "/no/such"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, 401, w.Code, path)
		require.Equal(t, []string{`Bearer realm="holdfast"`, `Basic realm="holdfast"`}, w.Header().Values("WWW-Authenticate"))
		require.Equal(t, "Unauthorized\n", w.Body.String(), path)
	}
	code, body = get(t, AdminHandler(everything(t), func(*http.Request, Page) error { return task.Errorf(task.Forbidden, "the scope x is needed") }, nil), "/metrics")
	require.Equal(t, 403, code)
	require.Equal(t, "Forbidden: the scope x is needed\n", body)
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	fine := Check{"database", func(context.Context) (string, error) { return "PostgreSQL 16.4", nil }}
	polling := Check{"listener", func(context.Context) (string, error) {
		return "", Degraded(errors.New("polling every 2s"))
	}}
	broken := Check{"worker", func(context.Context) (string, error) { return "", errors.New("no claim for 1m") }}
	for name, c := range map[string]struct {
		checks []Check
		code   int
		want   string
	}{
		"nothing to check": {nil, 200, `{"status":"ok","checks":[]}`},
		"all is well":      {[]Check{fine}, 200, `{"status":"ok","checks":[{"name":"database","status":"ok","detail":"PostgreSQL 16.4"}]}`},
		"degraded but ready": {[]Check{fine, polling}, 200, `{"status":"degraded","checks":[
			{"name":"database","status":"ok","detail":"PostgreSQL 16.4"},
			{"name":"listener","status":"degraded","error":"polling every 2s"}]}`},
		"not ready": {[]Check{broken, polling}, 503, `{"status":"failed","checks":[
			{"name":"worker","status":"failed","error":"no claim for 1m"},
			{"name":"listener","status":"degraded","error":"polling every 2s"}]}`},
	} {
		code, body := get(t, AdminHandler(prometheus.NewRegistry(), everybody, nil, c.checks...), "/readyz")
		require.Equal(t, c.code, code, name)
		require.True(t, json.Valid([]byte(body)), name)
		require.JSONEq(t, c.want, body, name)
	}
}

func TestHangingProbeIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hung := Check{"database", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}}
		start := time.Now()
		require.Equal(t, statusFailed, probe(t.Context(), []Check{hung}).Status)
		require.Equal(t, checkTimeout, waittest.Elapsed(start))
	})
}

func TestSharedCheckRunsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		checks := []Check{Check{"database", func(ctx context.Context) (string, error) {
			return strconv.Itoa(int(made.Add(1))), ctx.Err()
		}}.Shared()}
		gone, leave := context.WithCancel(t.Context())
		leave()
		require.Equal(t, statusOK, probe(gone, checks).Status, "the first caller has left, and the others still wait")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { probe(t.Context(), checks) })
		}
		all.Wait()
		require.Equal(t, "1", probe(t.Context(), checks).Checks[0].Detail)
		waittest.Advance(sharedFor)
		require.Equal(t, "2", probe(t.Context(), checks).Checks[0].Detail)
	})
}

func TestLivenessAndProfiles(t *testing.T) {
	t.Parallel()
	down := Check{"database", func(context.Context) (string, error) { return "", errors.New("away") }}
	h := AdminHandler(prometheus.NewRegistry(), everybody, nil, down)
	code, body := get(t, h, "/livez")
	require.Equal(t, 200, code)
	require.Equal(t, "ok\n", body)
	code, body = get(t, h, "/debug/pprof/")
	require.Equal(t, 200, code)
	require.Contains(t, body, "goroutine")
}

const (
	alerts     = "../../../deploy/prometheus/alerts.yml"
	alertsTest = "../../../deploy/prometheus/alerts_test.yml"
	dashboard  = "../../../deploy/grafana/holdfast.json"
	runbook    = "../../../docs/troubleshoot.md"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// Alerts, dashboard and runbook ask only for metrics that the server has.
func TestDeployedNamesAreMetrics(t *testing.T) {
	t.Parallel()
	families, err := everything(t).Gather()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
	}
	name := regexp.MustCompile(`\bholdfast_[a-z_]+`)
	for _, path := range []string{alerts, alertsTest, dashboard, runbook, "../../../docs/deployment.md", "../../../docs/database.md"} {
		found := 0
		for _, metric := range name.FindAllString(read(t, path), -1) {
			if strings.HasPrefix(metric, "holdfast_reader") || strings.HasPrefix(metric, "holdfast_api") || metric == "holdfast_owner" {
				continue // roles of the database
			}
			found++
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				metric = strings.TrimSuffix(metric, suffix)
			}
			require.True(t, known[metric], "%s: %s", path, metric)
		}
		require.NotZero(t, found, path)
	}
}

func TestEveryAlertHasRunbookSection(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Labels      struct{ Severity string }
				Annotations struct {
					Summary string
					Runbook string `yaml:"runbook_url"`
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, alerts)), &file))
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(read(t, runbook), -1) {
		sections[m[1]] = true
	}
	tests := read(t, alertsTest)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			require.True(t, sections[r.Alert], "%s has no section in the runbook", r.Alert)
			delete(sections, r.Alert)
			require.Equal(t, "https://github.com/holdfast-a2a/holdfast/blob/main/docs/troubleshoot.md#"+strings.ToLower(r.Alert), r.Annotations.Runbook)
			require.Contains(t, []string{"page", "ticket"}, r.Labels.Severity, r.Alert)
			require.Contains(t, tests, "alertname: "+r.Alert+"\n", "%s has no test that fires it", r.Alert)
		}
	}
	require.Empty(t, sections, "sections without an alert")
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool (Debian: apt-get install prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", alerts}, {"test", "rules", alertsTest}} {
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// The server's own output passes the linter of Prometheus.
func TestMetricsPassLinter(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool (Debian: apt-get install prometheus)")
	}
	_, page := get(t, AdminHandler(everything(t), everybody, nil), "/metrics")
	cmd := exec.CommandContext(t.Context(), program, "check", "metrics")
	cmd.Stdin = strings.NewReader(page)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Grafana fills its variables in; promtool reads what is left.
func TestDashboardIsWhole(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool (Debian: apt-get install prometheus)")
	}
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, dashboard)), &d))
	ids := map[int]bool{}
	rules := "groups: [{name: dashboard, rules: ["
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "panel %d", p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		require.Equal(t, p.Type == "row", len(p.Targets) == 0, p.Title)
		for _, target := range p.Targets {
			require.NotEmpty(t, target.Expr, p.Title)
			require.NotEmpty(t, target.LegendFormat, p.Title)
			expr := strings.NewReplacer("$__rate_interval", "5m", "$agent", ".*").Replace(target.Expr)
			rules += fmt.Sprintf("{record: 'panel:%d', expr: %q}, ", p.ID, expr)
		}
	}
	path := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(path, []byte(rules+"]}]"), 0o600))
	out, err := exec.CommandContext(t.Context(), program, "check", "rules", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
