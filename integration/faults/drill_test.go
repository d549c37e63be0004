package faults

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// BenchmarkFailover is the drill of docs/operations.md (make failover-drill): clients send all the time, the primary dies,
// and its standby is promoted at once. It reports the longest time without an answer of each client's replica, and how many
// acknowledged tasks the promoted standby lacks.
func BenchmarkFailover(b *testing.B) {
	for _, synchronous := range []bool{true, false} {
		for _, silent := range []bool{false, true} {
			b.Run(fmt.Sprintf("synchronous=%t/silent=%t", synchronous, silent), func(b *testing.B) {
				var outage, longest time.Duration
				var acknowledged, lost int
				for range b.N {
					took, all, gone := failoverDrill(b, synchronous, silent)
					outage += took
					longest = max(longest, took)
					acknowledged += all
					lost += gone
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(outage.Seconds()/float64(b.N), "s-outage")
				b.ReportMetric(longest.Seconds(), "s-longest")
				b.ReportMetric(float64(acknowledged), "acknowledged")
				b.ReportMetric(float64(lost), "lost")
				require.True(b, !synchronous || lost == 0, "a synchronous standby has all that was acknowledged")
			})
		}
	}
}

// failoverDrill returns the longest pause of a client, and how many tasks were acknowledged and are gone.
func failoverDrill(b *testing.B, synchronous, silent bool) (outage time.Duration, acknowledged, lost int) {
	b.Helper()
	primary := storetest.Server(b, nil) // which syncs to disk
	standby := primary.Standby()
	if synchronous {
		primary.Replicate()
	}
	first, second := pgproxytest.New(b, primary.URL), pgproxytest.New(b, standby.URL)
	// The lease is that of production: replicas leave a silent primary when it is not renewed.
	config := clustertest.Replace(clustertest.Settings, "worker: {lease_ttl: 6s, poll_interval: 200ms, stop_grace: 1s}\nhub: {poll_interval: 500ms}\n", "")
	db := storetest.Hosts(first.URL, second.URL)
	replicas := clustertest.Together(b, clustertest.Options{Name: "a", DB: db, Config: config}, clustertest.Options{Name: "b", DB: db, Config: config})
	defer func() {
		for _, r := range replicas {
			r.Kill()
		}
	}()
	var stop atomic.Bool
	var clients sync.WaitGroup
	var mu sync.Mutex
	var tasks []string
	pauses := make([]time.Duration, len(replicas))
	answers := make([]atomic.Int64, len(replicas))
	for i, r := range replicas {
		clients.Go(func() {
			client := &http.Client{Timeout: waittest.Patience}
			defer client.CloseIdleConnections()
			for last := time.Now(); !stop.Load(); {
				id, err := sendTask(client, r.URL)
				if err != nil {
					time.Sleep(10 * time.Millisecond) // as a client with a backoff
					continue
				}
				now := time.Now()
				pauses[i] = max(pauses[i], now.Sub(last))
				last = now
				answers[i].Add(1)
				mu.Lock()
				tasks = append(tasks, id)
				mu.Unlock()
			}
		})
	}
	progress := func(n int64) {
		b.Helper()
		for i := range answers {
			before := answers[i].Load()
			waittest.Eventually(b, "clients get answers", func() error {
				return waittest.Unless(answers[i].Load() >= before+n, "%d", answers[i].Load()-before)
			})
		}
	}
	progress(50)
	if silent {
		first.Stall(true)
		defer first.Stall(false)
	} else {
		primary.Crash()
	}
	standby.Promote()
	progress(20)
	stop.Store(true)
	clients.Wait()
	there := standby.Count("SELECT count(*)::int FROM holdfast.tasks WHERE id = ANY ('{" + strings.Join(tasks, ",") + "}')")
	return max(pauses[0], pauses[1]), len(tasks), len(tasks) - there
}
