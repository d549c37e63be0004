package hub_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// BenchmarkHints measures how many NOTIFYs a number of processes send whose agents announce 200 times a second each. Every NOTIFY
// wakes all of them.
func BenchmarkHints(b *testing.B) {
	for _, n := range []int{2, 5, 10, 20} {
		b.Run(fmt.Sprintf("processes=%d", n), func(b *testing.B) {
			url := storetest.New(b).URL
			conn := storetest.Connect(b, url)
			all := make([]*replica, n)
			for i := range all {
				all[i] = start(b, url, hub.Options{PollInterval: never}).listening()
				all[i].hub.SetPeers(n - 1)
			}
			_, err := conn.Exec(b.Context(), "LISTEN "+store.Channel)
			require.NoError(b, err)
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
			defer cancel()
			for i, r := range all {
				go func() {
					tick := time.NewTicker(5 * time.Millisecond)
					defer tick.Stop()
					for k := 0; ; k++ {
						select {
						case <-tick.C:
							r.bus.Ready(fmt.Sprintf("agent-%d-%d", i, k))
						case <-ctx.Done():
							return
						}
					}
				}()
			}
			begun, notes := time.Now(), 0
			for {
				if _, err := conn.WaitForNotification(ctx); err != nil {
					break
				}
				notes++
			}
			rate := float64(notes) / time.Since(begun).Seconds()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(rate, "NOTIFYs/s")
			b.ReportMetric(rate*float64(n), "wakes/s")
		})
	}
}
