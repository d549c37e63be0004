package fronts

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// An agent that is polled and never gets on does not keep its task working for ever.
func TestRunTimeoutEndsPolling(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"SUBMITTED", "WORKING"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			var reads, cancels atomic.Int64
			up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				task, format := fmt.Sprintf(`{"id":"up-1","contextId":"c","status":{"state":"TASK_STATE_%s"}}`, state), `{"jsonrpc":"2.0","id":1,"result":%s}`
				switch {
				case strings.Contains(string(body), "SendMessage"):
					task = `{"task":` + task + `}`
				case strings.Contains(string(body), "GetTask"):
					reads.Add(1)
				case strings.Contains(string(body), "CancelTask"):
					cancels.Add(1)
				}
				_, _ = fmt.Fprintf(w, format, task)
			}))
			t.Cleanup(up.Close)
			db := clustertest.NewDB(t)
			config := clustertest.LongLease + front("idle", fmt.Sprintf("url: %q, version: 1.0, stream: false", up.URL), ", run_timeout: 10s")
			f := clustertest.Start(t, clustertest.Options{Name: "front", DB: db.URL, Config: config})
			res := f.Send(a2atest.V03, a2atest.Say("hello").At("idle"))
			require.Equal(t, "failed", res.State())
			require.Contains(t, res.Said(), "did not finish within 10s")
			require.Greater(t, reads.Load(), int64(1))
			waittest.Eventually(t, "the agent's task is canceled", func() error { return waittest.Unless(cancels.Load() == 1, "%d cancels", cancels.Load()) })
			require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_runs"), "a timeout is final")
			db.Sound()
		})
	}
}
