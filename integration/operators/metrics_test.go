package operators

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// ofLeader are metrics that only the replica exports which reads them.
var ofLeader = []string{
	"holdfast_queue_waiting", "holdfast_queue_oldest_seconds", "holdfast_tasks_parked", "holdfast_agent_away_seconds", "holdfast_push_backlog", "holdfast_database_bytes",
	"holdfast_table_bytes", "holdfast_partitions_end_timestamp_seconds", "holdfast_api_keys",
}

// One replica reads the figures of the cluster. When it dies, another one does.
func TestOneReplicaReadsTheFiguresOfAll(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.LongLease})
	replicas := []*clustertest.Replica{a, b}
	waittest.Eventually(t, "each figure is on one replica", func() error {
		for _, name := range append(ofLeader, "holdfast_queue_readable", "holdfast_push_readable") {
			readers := 0
			for _, r := range replicas {
				samples, err := r.Samples()
				if err != nil {
					return err
				}
				value, there := samples[name]
				if there && (value == 1 || !strings.HasSuffix(name, "_readable")) {
					readers++
				}
			}
			if readers != 1 {
				return fmt.Errorf("%s is on %d replicas", name, readers)
			}
		}
		return nil
	})
	leader, other := replicas[0], replicas[1]
	if leader.Metric("holdfast_queue_readable") != 1 {
		leader, other = other, leader
	}
	other.Stream(a2atest.V03, a2atest.Say("wait=24h")).UntilState("working")
	waittest.Eventually(t, "the leader sees the other's task", func() error {
		n := leader.Counted(`holdfast_queue_timers{agent="demo"}`)
		return waittest.Unless(n == 1, "%d", n)
	})

	leader.Kill()
	waittest.Eventually(t, "the other one reads the queue", func() error {
		if other.Metric("holdfast_queue_readable") != 1 {
			return errors.New("not yet")
		}
		n := other.Counted(`holdfast_queue_timers{agent="demo"}`)
		return waittest.Unless(n == 1, "%d", n)
	})
}

// Each metric of the reference page is there before the first request, except what the page says may be absent: a rate over a series
// that appears at 1 misses the first event.
func TestMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"text":"hi"}`))
	}))
	t.Cleanup(agent.Close)
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.WithKeys + `
    - {name: sso, kind: jwt, jwt: {issuer: http://127.0.0.1:1, audience: [x]}}
`, Env: []string{"HOLDFAST_ADMIN_OPEN=true"}})
	later := map[string]bool{
		"holdfast_certificate_expiry_timestamp_seconds": true, // no TLS here
		"holdfast_upstream_requests_total":              true, // nothing is behind the agent here
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	waittest.Eventually(t, "all metrics are there", func() error {
		samples, err := r.Samples()
		if err != nil {
			return err
		}
		var missing []string
		for _, row := range regexp.MustCompile("(?m)^\\| `(holdfast_\\w+)` \\| (\\w+) \\| [^|]*").FindAllStringSubmatch(string(page), -1) {
			name := row[1]
			absent := later[name]
			if row[2] == "histogram" {
				name, absent = name+"_count", absent || strings.Contains(row[0], "`agent`")
			}
			if _, there := samples[name]; there == absent {
				missing = append(missing, name)
			}
		}
		return waittest.Unless(len(missing) == 0, "wrong: %v", missing)
	})

	plain := clustertest.Start(t, clustertest.Options{Name: "b", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings + `  - name: text
    executor: {kind: http, http: {url: "` + agent.URL + `"}}
`})
	samples, err := plain.Samples()
	require.NoError(t, err)
	require.Contains(t, samples, `holdfast_upstream_requests_total{agent="text",class="unreachable",kind="http"}`)
	require.Equal(t, "completed", plain.Send(a2atest.V03, a2atest.Say("hi").At("text")).State())
	require.Equal(t, 1, plain.Counted(`holdfast_upstream_requests_total{agent="text",class="ok",kind="http"}`))
	s := plain.Stream(a2atest.V03, a2atest.Say("hold"))
	require.Equal(t, "canceled", plain.Cancel(s.UntilState("working").Task()).State())
	waittest.Eventually(t, "the cancel is timed", func() error {
		n := plain.Counted(`holdfast_cancel_seconds_count{agent="demo"}`)
		return waittest.Unless(n == 1, "%d", n)
	})
}
