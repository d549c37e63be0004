package telemetry

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

const (
	alerts     = "../../deploy/prometheus/alerts.yml"
	alertsTest = "../../deploy/prometheus/alerts_test.yml"
	dashboard  = "../../deploy/grafana/holdfast.json"
	runbook    = "../../docs/runbook.md"
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
	for _, path := range []string{alerts, alertsTest, dashboard, runbook, "../../docs/deployment.md"} {
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
				Annotations struct{ Summary, Runbook string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, alerts)), &file))
	sections := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(read(t, runbook), -1) {
		sections[m[1]] = true
	}
	tests := read(t, alertsTest)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			require.True(t, sections[r.Alert], "%s has no section in the runbook", r.Alert)
			delete(sections, r.Alert)
			require.Equal(t, "docs/runbook.md#"+strings.ToLower(r.Alert), r.Annotations.Runbook)
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
