package integration

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

func TestCancelReachesARunElsewhere(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	t.Cleanup(db.sound)
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := a.open(d.stream, d.params("", "hold"))
			taskID := s.untilState("working").task()
			began := time.Now()
			require.Equal(t, "canceled", b.call("tasks/cancel", object{"id": taskID}).state())
			t.Logf("canceled in %s", time.Since(began).Round(time.Millisecond))
			require.Equal(t, "canceled", last(s.rest()).state())
			require.Equal(t, "canceled", a.call("tasks/get", object{"id": taskID}).state())
			_, err := a.try("tasks/cancel", object{"id": taskID})
			require.ErrorContains(t, err, "-32002")
		})
	}
}

// Each replica listens on a database of its own, where it hears nobody but itself. That is worse than a listener that
// is known not to work, and still nothing may be missing.
func TestReplicasThatCannotHearEachOther(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	elsewhere := func() string { return "HOLDFAST_LISTEN_DATABASE_URL=" + storetest.New(t).URL }
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: settings, Env: []string{elsewhere()}})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: settings, Env: []string{elsewhere()}})
	withoutHints(t, a, b)
	db.sound()
}

// Here no replica has a listener at all, and says so.
func TestReplicasWithoutListeners(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	elsewhere, err := storetest.Create(context.Background(), t.Name())
	require.NoError(t, err)
	env := []string{"HOLDFAST_LISTEN_DATABASE_URL=" + elsewhere.URL}
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: settings, Env: env})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: settings, Env: env})
	require.NoError(t, elsewhere.Drop(context.Background()))
	for _, r := range []*replica{a, b} {
		eventually(t, "readyz tells", func() error {
			status, body := r.ready()
			return unless(status == http.StatusOK && strings.Contains(body, `"status":"degraded"`), "%d %s", status, body)
		})
	}
	withoutHints(t, a, b)
	db.sound()
}

// withoutHints runs tasks on a that are followed and canceled on b.
func withoutHints(t *testing.T, a, b *replica) {
	t.Helper()
	for _, d := range dialects {
		s := a.open(d.stream, d.params("", "hold"))
		taskID := s.untilState("working").task()
		far := b.resume(taskID, 1)
		b.call("tasks/cancel", object{"id": taskID}) // may be answered before a has looked
		require.Equal(t, "canceled", last(s.rest()).state())
		require.Equal(t, "canceled", last(far.rest()).state())

		s = a.open(d.stream, d.params("", "chunks=50 size=16 delay=20ms"))
		first := s.take(1)
		remote := b.resume(first[0].task(), 1).rest()
		indexed(t, chunksOf(remote), 50)
		require.Equal(t, seqsOf(s.rest()), seqsOf(remote))
	}
}

func TestAListenerThatIsCutOffComesBack(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	s := a.open(v03.stream, v03.params("", "chunks=100 size=16 delay=10ms"))
	taskID := s.take(1)[0].task()
	remote := b.resume(taskID, 1)
	hold := a.open(v03.stream, v03.params("", "hold"))
	holdID := hold.untilState("working").task()
	seen := remote.take(10)
	for range 3 { // more than once, with deliveries in between
		db.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'holdfast listener' AND datname = current_database()`)
		seen = append(seen, remote.take(10)...)
	}
	require.Equal(t, "canceled", b.call("tasks/cancel", object{"id": holdID}).state())
	seen = append(seen, remote.rest()...)
	indexed(t, chunksOf(seen), 100)
	require.Equal(t, ids(len(seen) + 1)[1:], seqsOf(seen))
	for _, r := range replicas {
		r.waitReady()
	}
	db.sound()
}

func TestCancelInOtherStates(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	t.Cleanup(db.sound)
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, text := range []string{"ask:what?", "auth"} {
				res := a.call(d.send, d.params("", text))
				require.Equal(t, "canceled", b.call("tasks/cancel", object{"id": res.task()}).state(), text)
			}
			for _, text := range []string{"echo:x", "fail:x", "reject:x"} {
				res := a.call(d.send, d.params("", text))
				_, err := b.try("tasks/cancel", object{"id": res.task()})
				require.ErrorContains(t, err, "-32002", text)
			}
			_, err := b.try("tasks/cancel", object{"id": "nobody"})
			require.ErrorContains(t, err, "-32001")
		})
	}
}

// The owner is dead: whoever rescues the task must not run it, but end it.
func TestCancelOfARunWhoseReplicaDied(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	s := replicas[0].open(v03.stream, v03.params("", "hold"))
	taskID := s.untilState("working").task()
	replicas[0].kill()
	res := replicas[1].call("tasks/cancel", object{"id": taskID})
	if res.state() != "canceled" { // answered after the wait that the agent's grace allows
		require.Equal(t, "working", res.state())
		res = replicas[1].untilSettled(taskID)
	}
	require.Equal(t, "canceled", res.state())
	db.sound()
}
