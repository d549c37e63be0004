package protocol

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestCancelReachesOtherReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	for _, d := range a2atest.Old {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			s := a.Stream(d, a2atest.Say("hold"))
			taskID := s.UntilState("working").Task()
			began := time.Now()
			require.Equal(t, "canceled", b.Cancel(taskID).State())
			t.Logf("canceled in %s", time.Since(began).Round(time.Millisecond))
			require.Equal(t, "canceled", a2atest.Last(s.Rest()).State())
			require.Equal(t, "canceled", a.Get(taskID).State())
			_, err := a.Try("tasks/cancel", object{"id": taskID})
			require.ErrorContains(t, err, "-32002")
		})
	}
}

// Each replica listens on a database of its own, where it gets its own hints only. The replicas cannot notice that,
// unlike a broken listener, and still no event or cancel may be missed.
func TestReplicasWithoutEachOthersHints(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	elsewhere := func() string { return "HOLDFAST_LISTEN_DATABASE_URL=" + storetest.New(t).URL }
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Settings, Env: []string{elsewhere()}})
	withoutHints(t, a, b)
}

// No replica has a working listener, and /readyz says so.
func TestReplicasWithoutListeners(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	elsewhere, err := storetest.Create(context.Background(), t.Name())
	require.NoError(t, err)
	env := []string{"HOLDFAST_LISTEN_DATABASE_URL=" + elsewhere.URL}
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Settings, Env: env})
	require.NoError(t, elsewhere.Drop(context.Background()))
	for _, r := range []*clustertest.Replica{a, b} {
		waittest.Eventually(t, "/readyz reports degraded", func() error {
			status, body := r.Ready()
			return waittest.Unless(status == http.StatusOK && strings.Contains(body, `"status":"degraded"`), "%d %s", status, body)
		})
	}
	withoutHints(t, a, b)
}

// withoutHints runs tasks on a that are followed and canceled on b.
func withoutHints(t *testing.T, a, b *clustertest.Replica) {
	t.Helper()
	for _, d := range a2atest.Old {
		s := a.Stream(d, a2atest.Say("hold"))
		taskID := s.UntilState("working").Task()
		far := b.Resume(taskID, 1)
		b.Cancel(taskID) // it may return before a finds the cancel
		require.Equal(t, "canceled", a2atest.Last(s.Rest()).State())
		require.Equal(t, "canceled", a2atest.Last(far.Rest()).State())

		s = a.Stream(d, a2atest.Say("chunks=50 size=16 delay=20ms"))
		first := s.Take(1)
		remote := b.Resume(first[0].Task(), 1).Rest()
		clustertest.Indexed(t, a2atest.Chunks(remote), 50)
		require.Equal(t, a2atest.Seqs(s.Rest()), a2atest.Seqs(remote))
	}
}

func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	s := a.Stream(a2atest.V03, a2atest.Say("chunks=100 size=16 delay=10ms"))
	taskID := s.Take(1)[0].Task()
	remote := b.Resume(taskID, 1)
	hold := a.Stream(a2atest.V03, a2atest.Say("hold"))
	holdID := hold.UntilState("working").Task()
	seen := remote.Take(10)
	for range 3 { // several times, with hints in between
		db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'holdfast listener' AND datname = current_database()`)
		seen = append(seen, remote.Take(10)...)
	}
	require.Equal(t, "canceled", b.Cancel(holdID).State())
	seen = append(seen, remote.Rest()...)
	clustertest.Indexed(t, a2atest.Chunks(seen), 100)
	require.Equal(t, clustertest.Seq(len(seen) + 1)[1:], a2atest.Seqs(seen))
	for _, r := range []*clustertest.Replica{a, b} {
		r.WaitReady()
	}
}

func TestCancelInOtherStates(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	for _, d := range a2atest.Old {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			for _, text := range []string{"ask:what?", "auth"} {
				res := a.Send(d, a2atest.Say(text))
				require.Equal(t, "canceled", b.Cancel(res.Task()).State(), text)
			}
			for _, text := range []string{"echo:x", "fail:x", "reject:x"} {
				res := a.Send(d, a2atest.Say(text))
				_, err := b.Try("tasks/cancel", object{"id": res.Task()})
				require.ErrorContains(t, err, "-32002", text)
			}
			_, err := b.Try("tasks/cancel", object{"id": "nobody"})
			require.ErrorContains(t, err, "-32001")
		})
	}
}

// The worker is dead: the process that rescues the task must cancel it instead of running it.
func TestCancelOfRunOfDeadReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	s := replicas[0].Stream(a2atest.V03, a2atest.Say("hold"))
	taskID := s.UntilState("working").Task()
	runs, others := clustertest.Running(db, taskID, replicas)
	runs.Kill()
	res := others[0].Cancel(taskID)
	if res.State() != "canceled" { // the cancel stopped waiting before the rescue
		require.Equal(t, "working", res.State())
		res = others[0].Settled(taskID)
	}
	require.Equal(t, "canceled", res.State())
}
