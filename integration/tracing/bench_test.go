package tracing

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/otlptest"
)

// BenchmarkBlockingSend creates and runs tasks of 16 clients, without traces, with traces that the sampler drops, and with
// all of them.
func BenchmarkBlockingSend(b *testing.B) {
	backend := otlptest.Start(b)
	for _, c := range []struct {
		name string
		env  []string
	}{
		{"off", nil},
		{"unsampled", append(backend.Env(), "OTEL_TRACES_SAMPLER=always_off")},
		{"on", backend.Env()},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := clustertest.Start(b, clustertest.Options{Name: "a", DB: clustertest.NewDB(b).URL, Config: clustertest.Settings, Env: append([]string{"HOLDFAST_LOG_LEVEL=info"}, c.env...)})
			require.Equal(b, "completed", r.Send(a2atest.V03, a2atest.Say("echo:x")).State())
			b.ResetTimer()
			var clients sync.WaitGroup
			for i := range 16 {
				clients.Go(func() {
					for range b.N/16 + min(1, max(0, b.N%16-i)) {
						r.Send(a2atest.V03, a2atest.Say("echo:x"))
					}
				})
			}
			clients.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}
