package protocol

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

var overREST = []*a2atest.Wire{a2atest.REST10, a2atest.REST03}

func TestStreamResumesOnAnotherReplicaOverREST(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	for _, w := range overREST {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			l := clustertest.OpenDB(t, db.URL)
			s := a.Stream(w, a2atest.Say("chunks=60 size=64 delay=15ms"))
			seen := s.Take(12)
			taskID := s.Task
			s.Close() // in the middle
			s = b.ResumeOver(w, taskID, s.Last)
			seen = append(seen, s.Take(15)...)
			s.Close()
			seen = append(seen, a.ResumeOver(w, taskID, s.Last).Rest()...)
			require.Equal(t, "TASK_STATE_COMPLETED", a2atest.Last(seen).State())
			require.Equal(t, l.Seqs(taskID), a2atest.Seqs(seen))
			l.Holds(taskID, seen, 60)

			// After the end, a resume from any event gives the rest, on either replica and binding.
			for _, r := range []*clustertest.Replica{a, b} {
				tail := a2atest.Seqs(r.ResumeOver(w, taskID, 31).Rest())
				require.Equal(t, a2atest.Seqs(seen)[31:], tail)
				require.Equal(t, tail, a2atest.Seqs(r.Resume(taskID, 31).Rest()))
				none, err := r.ResumeOver(w, taskID, int64(len(seen))).UntilEnd()
				require.ErrorIs(t, err, io.EOF)
				require.Empty(t, none)
			}
		})
	}
}

func TestConversationOverREST(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	for _, w := range overREST {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			asked := a.Send(w, a2atest.Say("ask:which city?").With("Content-Type", "application/a2a+json"))
			require.Equal(t, "TASK_STATE_INPUT_REQUIRED", asked.State())
			answered := b.Send(w, a2atest.Say("Oslo").To(asked.ID))
			require.Equal(t, "TASK_STATE_COMPLETED", answered.State())
			require.Len(t, a.GetOver(w, a2atest.Say().To(asked.ID)).History, 3)
			for n := range 2 {
				require.Len(t, a.GetOver(w, &a2atest.Args{Task: asked.ID, Params: object{"historyLength": n}}).History, n)
			}
			listed := b.ListOver(w, &a2atest.Args{Params: object{"contextId": asked.ContextID}})
			require.Len(t, listed.Tasks, 1)
			require.Empty(t, listed.NextPage)

			more, path := w.Params(a2atest.Send, a2atest.Say("more").To(asked.ID)), "/tasks/"+asked.ID
			for _, want := range map[*a2atest.Wire][]struct {
				verb, path string
				body       object
				starts     string
				says       string
			}{
				a2atest.REST10: {
					{http.MethodPost, "/message:send", more, "400\n", "UNSUPPORTED_OPERATION"},
					{http.MethodPost, path + ":cancel", nil, "400\n", "TASK_NOT_CANCELABLE"},
					{http.MethodPost, path + ":subscribe", nil, "400\n", "UNSUPPORTED_OPERATION"},
					{http.MethodGet, "/tasks/nobody", nil, "404\n", "TASK_NOT_FOUND"},
					{http.MethodGet, "/tasks?pageToken=x", nil, "400\n", `"field":"pageToken"`},
				},
				a2atest.REST03: {
					{http.MethodPost, "/v1/message:send", more, "400\n", "InvalidParamsError"},
					{http.MethodPost, "/v1" + path + ":cancel", nil, "409\n", "TaskNotCancelableError"},
					{http.MethodGet, "/v1/tasks/nobody:subscribe", nil, "404\n", "TaskNotFoundError"},
					{http.MethodGet, "/v1/tasks/nobody", nil, "404\n", "TaskNotFoundError"},
					{http.MethodGet, "/v1/tasks?pageToken=x", nil, "400\n", "pageToken"},
				},
			}[w] {
				var body []byte
				if want.body != nil {
					body = a2atest.JSON(want.body)
				}
				got := a.In(t).ShowHTTP(want.verb, want.path, body, "A2A-Version", w.Version)
				require.True(t, strings.HasPrefix(got.Whole, want.starts), got.Whole)
				require.Contains(t, got.Whole, "Content-Type: application/json\n")
				require.Contains(t, got.Whole, want.says)
			}

			// The client does not wait, and cancels on the other replica.
			held := a.Send(w, a2atest.Say("hold").Detached())
			require.Equal(t, "TASK_STATE_SUBMITTED", held.State())
			watched := a.Subscribe(w, a2atest.Say().To(held.ID))
			require.Equal(t, w.Worded("canceled"), b.CancelOver(w, a2atest.Say().To(held.ID)).State())
			require.Equal(t, w.Worded("canceled"), a2atest.Last(watched.Rest()).State())
		})
	}
}

func TestIdempotencyAcrossBindings(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	once := a2atest.Say("echo:once").As("m-1").With("Idempotency-Key", "k")
	first := a.Send(a2atest.REST10, once)
	for _, w := range overREST {
		require.Equal(t, first.ID, b.Send(w, once).ID, "the same content has the same hash over both bindings")
		events, err := b.Stream(w, once).UntilEnd()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, first.ID, events[0].Task())
		refused := a.Finish(w, a2atest.Send, a2atest.Say("echo:twice").As("m-1").With("Idempotency-Key", "k"))
		require.Equal(t, "400", refused.Status)
		require.Contains(t, refused.Body, "Idempotency-Key")
	}
}

func TestTenantsAndBareMessagesOverREST(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := clustertest.Replace(clustertest.Settings, "name: demo", "name: demo\n    default: true") +
		"  - {name: second, executor: {kind: demo}, direct_replies: true}\n"
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	tenant := r.Under("/second")
	sent := tenant.Send(a2atest.REST10, a2atest.Say("echo:hi"))
	require.Equal(t, sent.ID, r.GetOver(a2atest.REST10, a2atest.Say().To(sent.ID).At("second")).ID)
	require.Equal(t, "404", r.Finish(a2atest.REST10, a2atest.Get, a2atest.Say().To(sent.ID)).Status)
	for _, at := range []struct {
		p *a2atest.Peer
		w *a2atest.Wire
		a string
	}{{tenant, a2atest.REST10, ""}, {&r.Peer, a2atest.REST10, "second"}, {&r.Peer, a2atest.REST03, "second"}} {
		require.Contains(t, at.p.Finish(at.w, a2atest.Send, a2atest.Say("message:hello").At(at.a)).Body, "hello")
		events, err := at.p.Stream(at.w, a2atest.Say("message:hello").At(at.a)).UntilEnd()
		require.ErrorIs(t, err, io.EOF)
		require.Len(t, events, 1, "the message is the whole stream")
	}
}

// A stream lives as long as its task, whatever the limits for other requests.
func TestStreamOutlivesRequestTimeouts(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings + "limits: {body_timeout: 1s, header_timeout: 1s, idle_timeout: 1s}\n"})
	for _, w := range overREST {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			sent := r.Send(w, a2atest.Say("chunks=30 size=8 delay=100ms").Detached())
			for _, body := range []object{nil, {}} { // GET without a body, and POST
				events := r.Subscribe(w, &a2atest.Args{Task: sent.ID, After: "0", Params: body}).Rest()
				require.Equal(t, "TASK_STATE_COMPLETED", a2atest.Last(events).State())
				clustertest.Indexed(t, a2atest.Chunks(events), 30)
			}
		})
	}
}
