package faults

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// While the database is down, clients get an error that says to try again. Runs go on, and streams that were opened before show
// their ends.
func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	// Streams and runs outlive the outage: they end when a lease is over.
	a, b := clustertest.Pair(t, clustertest.Options{DB: pg.URL, Config: clustertest.Steady})
	both := []*clustertest.Replica{a, b}
	for outage, take := range map[string]func(){"shut down": pg.Stop, "crashed": pg.Crash} {
		t.Log(outage)
		s := a.Stream(a2atest.V01, a2atest.Say("hold"))
		taskID := s.UntilState("working").Task()
		remote := b.Resume(taskID, s.Last)
		take()

		for _, r := range both {
			for d, code := range map[*a2atest.Wire]int{a2atest.V01: -32011, a2atest.V03: -32603} {
				got := r.Finish(d, a2atest.Send, a2atest.Say("echo:x")) // while the database is down
				require.Equal(t, "503", got.Status, got.Body)
				require.NotEmpty(t, got.RetryAfter)
				require.Equal(t, code, got.Code, d)
			}
			got := r.Ask("tasks/get", object{"id": taskID})
			require.Equal(t, http.StatusServiceUnavailable, got.HTTP, "%s", got.Body)
			waittest.Eventually(t, "/readyz reports the outage", func() error {
				status, body := r.Ready()
				return waittest.Unless(status == http.StatusServiceUnavailable, "%d %s", status, body)
			})
			status, _, _ := r.Page("/livez")
			require.Equal(t, http.StatusOK, status, "a restart of the server would not help")
		}

		pg.Start()
		for _, r := range both {
			r.WaitReady()
			require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:x")).State())
		}
		require.Equal(t, "canceled", b.Cancel(taskID).State())
		require.Equal(t, "canceled", a2atest.Last(s.Rest()).State())
		require.Equal(t, "canceled", a2atest.Last(remote.Rest()).State())
		l := clustertest.OpenDB(t, pg.URL)
		l.Sound()
		require.Equal(t, 1, clustertest.One[int](l, "SELECT max(attempt) FROM holdfast.tasks"), "no run had to be repeated")
	}
}
