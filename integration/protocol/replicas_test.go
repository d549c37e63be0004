package protocol

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A task that begins at one replica is continued, canceled and repeated at the other one, over every wire.
func TestTasksOverTwoReplicas(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Steady})
	for _, w := range a2atest.Wires {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			a, b := a.In(t), b.In(t)
			asked := a.Send(w, a2atest.Say("ask:which city?"))
			require.Equal(t, w.Worded("input-required"), asked.State())
			require.Equal(t, "which city?", b.Get(asked.Task()).Said())
			answered := b.Send(w, a2atest.Say("Oslo").To(asked.Task()))
			require.Equal(t, w.Worded("completed"), answered.State())
			require.Equal(t, "You answered: Oslo", a2atest.Text(answered.Artifacts[0].Parts))
			history := a.Call("tasks/get", object{"id": asked.Task(), "historyLength": 10}).History
			require.Equal(t, []string{"user", "agent", "user"}, roles(history))
			_, err := a.TrySend(w, a2atest.Say("one more").To(asked.Task()))
			require.Error(t, err, "an ended task refuses messages")

			// The same as streams: the first ends when the task is parked, the second when it has ended.
			opened := a.Stream(w, a2atest.Say("auth")).Rest()
			id, parked := opened[0].Task(), a2atest.Last(opened).State()
			require.Equal(t, w.Worded("auth-required"), parked)
			require.Equal(t, w.Worded("completed"), a2atest.Last(b.Stream(w, a2atest.Say("here I am").To(id)).Rest()).State())
			// Resumed from before the question, the stream continues through it.
			var states []string
			for _, e := range a.ResumeOver(w, id, 1).Rest() {
				states = append(states, e.State())
			}
			require.Contains(t, states, parked)
			require.Equal(t, w.Worded("completed"), states[len(states)-1])

			s := a.Stream(w, a2atest.Say("hold"))
			id = s.UntilState(w.Worded("working")).Task()
			require.Equal(t, w.Worded("canceled"), b.CancelOver(w, a2atest.Say().To(id)).State())
			require.Equal(t, w.Worded("canceled"), a2atest.Last(s.Rest()).State())
			_, err = a.Try("tasks/cancel", object{"id": id})
			require.ErrorContains(t, err, "-32002")
		})
	}
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		once := a2atest.Say("echo:once").As("m-1").With("Idempotency-Key", "k")
		first := a.Send(a2atest.REST10, once)
		for _, w := range []*a2atest.Wire{a2atest.REST10, a2atest.REST03} {
			require.Equal(t, first.ID, b.Send(w, once).ID, "the same content has the same hash over both bindings")
			events, err := b.Stream(w, once).UntilEnd()
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, first.ID, events[0].Task())
			refused := a.Finish(w, a2atest.Send, a2atest.Say("echo:twice").As("m-1").With("Idempotency-Key", "k"))
			require.Equal(t, "400", refused.Status)
			require.Contains(t, refused.Body, "Idempotency-Key")
		}
	})
}

func roles(history []a2atest.Message) (all []string) {
	for _, m := range history {
		all = append(all, m.Role)
	}
	return all
}

// gated is the configuration of a default agent that says chunks, and waits at gates for the test.
func gated(t *testing.T, chunks ...int) (config string, gate *gate) {
	t.Helper()
	scripts := newScripts(t)
	var run []string
	said := 0
	for i, n := range chunks {
		if i > 0 {
			run = append(run, gateway)
		}
		for range n {
			run = append(run, fmt.Sprintf(`{"type":"artifact","artifact":{"artifactId":"chunks","parts":[{"text":"%08d "}]},"append":%t}`, said, said > 0))
			said++
		}
	}
	gate = scripts.learn("gated", [][]string{append(run, `{"type":"complete"}`)})
	t.Cleanup(gate.open)
	return clustertest.Steady + fmt.Sprintf("  - {name: gated, default: true, executor: {kind: http, http: {url: %q}}}\n", scripts.URL+"/gated"), gate
}

func TestStreamResumesOnAnotherReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config, gate := gated(t, 30, 30)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	seen, open := map[*a2atest.Wire][]*a2atest.Event{}, map[*a2atest.Wire]*a2atest.Reply{}
	for _, w := range a2atest.Wires {
		s := a.Stream(w, a2atest.Say("go"))
		events := s.Take(12)
		id := s.Task
		s.Close() // in the middle
		// The second connection is cut, too; the third one stays open.
		s = b.ResumeOver(w, id, s.Last)
		events = append(events, s.Take(15)...)
		s.Close()
		seen[w], open[w] = events, a.ResumeOver(w, id, s.Last)
	}
	gate.open()
	for _, w := range a2atest.Wires {
		events := append(seen[w], open[w].Rest()...)
		last := a2atest.Last(events)
		require.Equal(t, w.Worded("completed"), last.State())
		id := last.Task()
		require.Equal(t, db.Seqs(id), a2atest.Seqs(events), w)
		db.Holds(id, events, 60)
		// After the end of the task, a resume from any event gives the rest, on every replica and over every wire.
		for i, r := range []*clustertest.Replica{a, b} {
			for _, at := range []int{0, 1, 31, len(events) - 2} {
				over := a2atest.Wires[(at+i)%len(a2atest.Wires)]
				tail := r.ResumeOver(over, id, events[at].Seq).Rest()
				require.Equal(t, a2atest.Seqs(events)[at+1:], a2atest.Seqs(tail), "%s over %s after %d on %s", w, over, at, r.Name)
			}
			none, err := r.ResumeOver(w, id, last.Seq).UntilEnd()
			require.ErrorIs(t, err, io.EOF)
			require.Empty(t, none, "no event follows the last one")
			if w.Version != "1.0" { // a resume from an event that does not exist is ignored: the client gets the present task
				require.Equal(t, w.Worded("completed"), a2atest.Last(r.ResumeOver(w, id, 1000).Rest()).State())
			}
		}
	}
}

// A killed replica breaks its streams off; a stopping one ends them, over gRPC with UNAVAILABLE. Clients resume them on another
// replica.
func TestStreamsOfLostReplica(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(a *clustertest.Replica){
		"killed":  (*clustertest.Replica).Kill,
		"stopped": func(a *clustertest.Replica) { a.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := clustertest.NewDB(t)
			config, gate := gated(t, 20, 20)
			both := clustertest.Together(t,
				clustertest.Options{Name: "a", DB: db.URL, Config: config, Env: []string{"HOLDFAST_ROLES=api"}},
				clustertest.Options{Name: "b", DB: db.URL, Config: config})
			seen, open := map[*a2atest.Wire][]*a2atest.Event{}, map[*a2atest.Wire]*a2atest.Reply{}
			wires := []*a2atest.Wire{a2atest.V03, a2atest.GRPC10}
			for _, w := range wires {
				open[w] = both[0].Stream(w, a2atest.Say("go"))
				seen[w] = open[w].Take(10)
			}
			leave(both[0])
			for _, w := range wires {
				more, err := open[w].UntilEnd()
				if w == a2atest.GRPC10 {
					require.Equal(t, codes.Unavailable, grpcstatus.Code(err), "%v", err)
				}
				seen[w] = append(seen[w], more...)
				open[w] = both[1].ResumeOver(w, open[w].Task, open[w].Last)
			}
			gate.open()
			for _, w := range wires {
				events := append(seen[w], open[w].Rest()...)
				require.Equal(t, w.Worded("completed"), a2atest.Last(events).State())
				db.Holds(a2atest.Last(events).Task(), events, 40)
			}
			if name == "stopped" {
				require.Zero(t, both[0].Wait())
			}
		})
	}
}

// No event or cancel is missed by replicas that do not hear each other: each listens on a database of its own, which they cannot
// notice, or no replica has a working listener, and /readyz says so.
func TestReplicasWithoutHints(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]bool{"elsewhere": false, "broken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := clustertest.NewDB(t)
			var all []clustertest.Options
			var elsewhere []*storetest.DB
			for _, name := range []string{"a", "b"} {
				d, err := storetest.Create(context.Background(), t.Name()+name)
				require.NoError(t, err)
				elsewhere = append(elsewhere, d)
				all = append(all, clustertest.Options{
					Name: name, DB: db.URL, Config: clustertest.Steady, Env: []string{"HOLDFAST_LISTEN_DATABASE_URL=" + d.URL},
				})
			}
			both := clustertest.Together(t, all...)
			drop := func() {
				for _, d := range elsewhere {
					require.NoError(t, d.Drop(context.Background()))
				}
			}
			if broken {
				drop()
				for _, r := range both {
					waittest.Eventually(t, "/readyz reports degraded", func() error {
						status, body := r.Ready()
						return waittest.Unless(status == http.StatusOK && strings.Contains(body, `"status":"degraded"`), "%d %s", status, body)
					})
				}
			} else {
				t.Cleanup(drop)
			}
			for _, w := range a2atest.Old {
				s := both[0].Stream(w, a2atest.Say("hold"))
				id := s.UntilState("working").Task()
				far := both[1].Resume(id, 1)
				both[1].Cancel(id)
				require.Equal(t, "canceled", a2atest.Last(s.Rest()).State())
				require.Equal(t, "canceled", a2atest.Last(far.Rest()).State())

				s = both[0].Stream(w, a2atest.Say("chunks=50 size=16"))
				remote := both[1].Resume(s.Take(1)[0].Task(), 1).Rest()
				clustertest.Indexed(t, a2atest.Chunks(remote), 50)
				require.Equal(t, a2atest.Seqs(s.Rest()), a2atest.Seqs(remote))
			}
		})
	}
}

func TestListenerReconnects(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config, gate := gated(t, 5, 5, 5, 5)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	remote := b.Resume(a.Stream(a2atest.V03, a2atest.Say("go")).Take(1)[0].Task(), 1)
	hold := a.Stream(a2atest.V03, a2atest.Say("hold").At("demo")).UntilState("working").Task()
	chunk := func(e *a2atest.Event) bool { return e.Artifact != nil }
	for range 5 {
		remote.Until("a chunk", chunk)
	}
	for range 3 { // several times, with hints in between
		db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'holdfast listener' AND datname = current_database()`)
		gate.step()
		for range 5 {
			remote.Until("a chunk", chunk)
		}
	}
	require.Equal(t, "canceled", b.CancelOver(a2atest.V03, a2atest.Say().To(hold).At("demo")).State())
	require.Equal(t, "completed", a2atest.Last(remote.Rest()).State())
	a.WaitReady()
	b.WaitReady()
}

// Clients that connect and disconnect at random places, on every replica, all see one order.
func TestAllStreamsHaveOneOrder(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Steady})
	s := a.Stream(a2atest.V03, a2atest.Say("chunks=200 size=32 delay=3ms"))
	first := s.Take(1)
	taskID := first[0].Task()
	views := make(chan []*a2atest.Event, 8)
	for i := range cap(views) {
		go func() {
			var seen []*a2atest.Event
			var last int64 = 1
			for n := i + 3; ; n += 5 {
				r := []*clustertest.Replica{a, b}[(i+n)%2]
				s, err := r.TryBegin(a2atest.Unversioned, a2atest.Subscribe, &a2atest.Args{Task: taskID, After: strconv.FormatInt(last, 10)})
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
					break
				}
				var e *a2atest.Event
				for range n {
					if e, err = s.Next(); err != nil {
						break
					}
					seen = append(seen, e)
				}
				last = s.Last
				s.Close()
				if err != nil || e.Final {
					break
				}
			}
			views <- seen
		}()
	}
	seen := append(first, s.Rest()...)
	for range cap(views) {
		v := waittest.Within(t, "a reader", views)
		require.Equal(t, a2atest.Seqs(seen)[1:], a2atest.Seqs(v))
		require.Equal(t, a2atest.Chunks(seen), a2atest.Chunks(v))
	}
}
