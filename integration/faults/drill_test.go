package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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
	const fast = "worker: {lease_ttl: 6s, stop_grace: 1s}\n"
	config := clustertest.Replace(clustertest.Patient, fast, "")
	one, other := clustertest.Pair(b, clustertest.Options{DB: storetest.Hosts(first.URL, second.URL), Config: config})
	var stop atomic.Bool
	var clients sync.WaitGroup
	var tasks [2][]string // of the clients
	var answers [2]atomic.Int64
	var pauses [2]time.Duration
	for i, r := range []*clustertest.Replica{one, other} {
		defer r.Kill()
		clients.Go(func() {
			for last := time.Now(); !stop.Load(); {
				id, err := sendTask(http.DefaultClient, r.URL)
				if err != nil {
					time.Sleep(10 * time.Millisecond) // as a client with a backoff
					continue
				}
				pauses[i], last = max(pauses[i], time.Since(last)), time.Now()
				tasks[i] = append(tasks[i], id)
				answers[i].Add(1)
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
	all := slices.Concat(tasks[0], tasks[1])
	there := standby.Count("SELECT count(*)::int FROM holdfast.tasks WHERE id = ANY ('{" + strings.Join(all, ",") + "}')")
	return max(pauses[0], pauses[1]), len(all), len(all) - there
}
