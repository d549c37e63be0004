package push_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc/webhook"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// patience bounds every wait; reaching it is a failure and never the normal case.
const patience = 60 * time.Second

func awaited(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, patience, 5*time.Millisecond, what)
}

// replica is a dispatcher with a store of its own, as one process has them.
type replica struct {
	*store.Store
	*push.Dispatcher
	t    *testing.T
	url  string
	id   task.ID
	stop context.CancelFunc
	done chan struct{}
}

// quick retries failures at once.
var quick = push.Schedule{First: time.Millisecond, Most: 20 * time.Millisecond}

// start runs a replica on a database. change may be nil.
func start(t *testing.T, url string, change func(*push.Options)) *replica {
	t.Helper()
	r := &replica{t: t, url: url, id: store.NewID(), done: make(chan struct{})}
	var bus signal.Bus
	var err error
	r.Store, err = store.Open(t.Context(), store.Options{URL: url, APIConns: 4, Listener: &bus})
	require.NoError(t, err)
	o := push.Options{
		Store: r.Store, Encoder: webhook.Encoder{}, Worker: func() task.ID { return r.id }, Schedule: quick,
		StopGrace: patience,
	}
	if change != nil {
		change(&o)
	}
	if o.Sender == nil {
		o.Sender = sender(t, push.SenderOptions{Signer: ring(t, url)})
	}
	r.Dispatcher = push.New(o)
	bus.Webhooks.Subscribe(func(struct{}) { r.Wake() })
	require.NoError(t, r.Register(t.Context(), store.Process{ID: r.id, Name: "test", Version: "1", Roles: "push"}, time.Hour))
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { defer close(r.done); _ = r.Run(ctx) }()
	t.Cleanup(func() {
		r.halt()
		r.Close(context.WithoutCancel(t.Context()))
	})
	return r
}

func (r *replica) halt() {
	r.stop()
	<-r.done
}

// run is a running task with a webhook.
type run struct {
	id      task.ID
	fence   task.Fence
	ordinal int64
}

// begin creates a task that a worker runs.
func (r *replica) begin(c *task.PushConfig) *run {
	r.t.Helper()
	return r.beginFor("", c)
}

func (r *replica) beginFor(owner string, c *task.PushConfig) *run {
	r.t.Helper()
	id := store.NewID()
	created, err := r.Create(r.t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: "a", Owner: owner, ContextID: "c", Dialect: "1.0"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("hello")}},
		Seat:    store.Seat{Worker: r.id}, Push: c,
	})
	require.NoError(r.t, err)
	return &run{id: id, fence: store.FirstFence(&task.Task{CreatedAt: created.At})}
}

// emit appends events of the run and waits for the commit.
func (r *replica) emit(of *run, evs ...*task.Event) {
	r.t.Helper()
	done := make(chan error, 1)
	for _, e := range evs {
		e.Task = of.id
	}
	r.Append(&store.Append{
		Task: of.id, Agent: "a", Fence: of.fence, Ordinal: of.ordinal, Events: evs,
		Done: func(_ bool, err error) { done <- err },
	})
	of.ordinal += int64(len(evs))
	require.NoError(r.t, <-done)
}

func status(s task.State, text string) *task.Event {
	e := &task.Event{Kind: task.EventStatus, State: s}
	if text != "" {
		e.Message = &task.Message{ID: "m-" + text, Role: task.RoleAgent, Parts: []task.Part{task.Text(text)}}
	}
	return e
}

func hook(to, dialect string) *task.PushConfig {
	u, err := url.Parse(to)
	if err != nil {
		panic(err)
	}
	return &task.PushConfig{ID: "hook", URL: to, Host: u.Host, Dialect: dialect}
}

// cursor returns a task's webhook as operators see it.
func (r *replica) cursor(id task.ID) store.PushRow {
	r.t.Helper()
	rows, err := r.ListPushes(r.t.Context(), store.PushFilter{Task: id, Limit: 10})
	require.NoError(r.t, err)
	require.Len(r.t, rows, 1)
	return rows[0]
}

func (r *replica) attempts(id task.ID) []store.PushAttempt {
	r.t.Helper()
	all, err := r.PushAttempts(r.t.Context(), id, "", 1000)
	require.NoError(r.t, err)
	slices.Reverse(all)
	return all
}

// exec changes the database without the knowledge of any process.
func (r *replica) exec(sql string) {
	r.t.Helper()
	c, err := pgx.Connect(r.t.Context(), r.url)
	require.NoError(r.t, err)
	defer func() { require.NoError(r.t, c.Close(context.WithoutCancel(r.t.Context()))) }()
	_, err = c.Exec(r.t.Context(), sql)
	require.NoError(r.t, err)
}

// said returns the text of a status that a receiver got, in any version; "" for none.
func said(t *testing.T, body []byte) string {
	t.Helper()
	var doc struct {
		Status *struct {
			Message struct{ Parts []struct{ Text string } }
		}
		StatusUpdate *struct {
			Status struct {
				Message struct{ Parts []struct{ Text string } }
			}
		}
	}
	require.NoError(t, json.Unmarshal(body, &doc))
	parts := []struct{ Text string }(nil)
	switch {
	case doc.StatusUpdate != nil:
		parts = doc.StatusUpdate.Status.Message.Parts
	case doc.Status != nil:
		parts = doc.Status.Message.Parts
	}
	if len(parts) == 0 {
		return ""
	}
	return parts[0].Text
}

// Keys reach one replica after the other. Secrets that one replica cannot read wait for a replica that can.
func TestSecretsThatOneReplicaCannotReadAreReadByAnother(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	db := storetest.New(t).URL
	keyed, err := store.Open(t.Context(), store.Options{URL: db, APIConns: 2, SecretKeys: [][]byte{make([]byte, 32)}})
	require.NoError(t, err)
	t.Cleanup(func() { keyed.Close(context.WithoutCancel(t.Context())) })
	without := start(t, db, func(o *push.Options) { o.Schedule.GiveUpAfter, o.Schedule.MinAttempts = time.Hour, 2 })
	of := without.begin(nil)
	c := hook(url, "1.0")
	c.Token = "secret"
	require.NoError(t, keyed.SetPush(t.Context(), of.id, c, 1))
	without.emit(of, status(task.StateCompleted, "end"))
	awaited(t, "attempts", func() bool { return without.cursor(of.id).Failures > 2 })
	row := without.cursor(of.id)
	require.Contains(t, row.LastError, "secrets cannot be read")
	require.Zero(t, row.Config.DisabledAt)
	require.Equal(t, string(push.Internal), without.attempts(of.id)[0].Class)
	require.Empty(t, got)

	start(t, db, func(o *push.Options) { o.Store = keyed })
	r := <-got
	require.Equal(t, "secret", r.Header.Get("X-A2A-Notification-Token"))
	awaited(t, "record", func() bool { return without.cursor(of.id).Failures == 0 })
}

// noted tells of the outcomes before they are recorded.
type noted struct {
	push.Store
	outcomes chan store.PushOutcome
}

func (n *noted) RecordPush(ctx context.Context, o *store.PushOutcome) (ours, more bool, err error) {
	n.outcomes <- *o
	return n.Store.RecordPush(ctx, o)
}

// The sealing key may be in the database. If that does not answer, the webhook has not failed.
func TestASealingKeyOutOfReachReleasesTheClaim(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	db := storetest.New(t).URL
	n := &noted{outcomes: make(chan store.PushOutcome, 100)}
	r := start(t, db+"&lock_timeout=50ms", func(o *push.Options) { n.Store, o.Store = o.Store, n })
	of := r.begin(nil)
	other, err := store.Open(t.Context(), store.Options{URL: db, APIConns: 2})
	require.NoError(t, err)
	t.Cleanup(func() { other.Close(context.WithoutCancel(t.Context())) })
	c := hook(url, "1.0")
	c.Token = "secret"
	require.NoError(t, other.SetPush(t.Context(), of.id, c, 1))
	locker, err := pgx.Connect(t.Context(), db)
	require.NoError(t, err)
	defer func() { require.NoError(t, locker.Close(context.WithoutCancel(t.Context()))) }()
	tx, err := locker.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE holdfast.secrets IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	r.emit(of, status(task.StateCompleted, "end"))
	o := waittest.Within(t, "the outcome", n.outcomes)
	require.False(t, o.Delivered || o.Failed || o.Keep, "%+v", o)
	require.Equal(t, time.Second, o.DueIn)
	require.Empty(t, got)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "secret", waittest.Within(t, "the delivery", got).Header.Get("X-A2A-Notification-Token"))
	awaited(t, "record", func() bool { return len(r.attempts(of.id)) == 1 })
	require.Equal(t, 1, r.attempts(of.id)[0].Attempt, "no failure before")
}

// A log is read in pages, because it may be longer than the database can read at once.
func TestALongLogIsDelivered(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.CoalesceAfter, o.MaxHistory = 10, 1<<20 })
	of := r.begin(hook(url, "0.3"))
	var evs []*task.Event
	for i := range 600 {
		evs = append(evs, status(task.StateWorking, fmt.Sprint(i)))
	}
	r.emit(of, append(evs, status(task.StateCompleted, "end"))...)
	var doc struct{ History []struct{ MessageID string } }
	require.NoError(t, json.Unmarshal(waittest.Within(t, "the task", got).body, &doc))
	require.Len(t, doc.History, 601)
	for i, m := range doc.History[1:] {
		require.Equal(t, fmt.Sprint("m-", i), m.MessageID)
	}
}

// One request with a large message must not make many large deliveries. Every version that shows the history shows the
// newest messages of it.
func TestBodiesBoundTheHistory(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.MaxHistory, o.CoalesceAfter = 64<<10, 50 })
	type document struct {
		History []struct{ MessageID string }
	}
	ids := func(d document) (ids []string) {
		for _, m := range d.History {
			ids = append(ids, m.MessageID)
		}
		return ids
	}
	large := func() *task.Event {
		e := status(task.StateWorking, "large")
		e.Message.Parts = []task.Part{task.Text(strings.Repeat("x", 40<<10))}
		return e
	}
	for version, want := range map[string][]string{"0.1": nil, "0.3": {"m-large", "m-1", "m-2"}} {
		of := r.begin(hook(url, version))
		var body []byte
		for _, e := range []*task.Event{
			status(task.StateWorking, "0"), large(), large(), status(task.StateWorking, "1"), status(task.StateWorking, "2"), status(task.StateCompleted, "3"),
		} {
			r.emit(of, e)
			body = waittest.Within(t, "a delivery", got).body
			require.Less(t, len(body), 128<<10, version)
		}
		var doc document
		require.NoError(t, json.Unmarshal(body, &doc))
		require.Equal(t, want, ids(doc), version)
	}

	// In 1.0 a receiver that lags gets the whole task.
	of := r.begin(hook(url, "1.0"))
	evs := []*task.Event{large(), large()}
	var want []string
	for i := range 60 {
		evs = append(evs, status(task.StateWorking, fmt.Sprint(i)))
	}
	for i := range 59 {
		want = append(want, fmt.Sprint("m-", i))
	}
	r.emit(of, evs...)
	var lagged struct{ Task document }
	require.NoError(t, json.Unmarshal(waittest.Within(t, "the task", got).body, &lagged))
	require.Equal(t, want, ids(lagged.Task))
}

// Bodies that show the whole task have the newest artifacts that fit, whole, and say how many they lack. A chunk may continue an
// artifact that the body before has left out.
func TestBodiesBoundTheArtifacts(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.MaxArtifacts, o.CoalesceAfter = 64<<10, 10 })
	chunk := func(id string, kib int, more bool) *task.Event {
		return &task.Event{Kind: task.EventArtifact, Append: more, Artifact: &task.Artifact{ID: id, Parts: []task.Part{task.Text(strings.Repeat(id, kib<<10))}}}
	}
	type document struct {
		Artifacts []struct {
			Parts []struct{ Text string }
		}
	}
	shown := func(d document) (all []string) {
		for _, a := range d.Artifacts {
			var text string
			for _, p := range a.Parts {
				text += p.Text
			}
			all = append(all, fmt.Sprint(text[:1], len(text)>>10)) // each repeats its id, which 0.1 lacks
		}
		return all
	}
	for _, version := range []string{"0.1", "0.3"} {
		of := r.begin(hook(url, version))
		for _, step := range []struct {
			events []*task.Event
			want   []string
			left   string
		}{
			{[]*task.Event{chunk("a", 40, false)}, []string{"a40"}, ""},
			{[]*task.Event{chunk("b", 20, false)}, []string{"a40", "b20"}, ""},
			{[]*task.Event{chunk("c", 60, false)}, []string{"c60"}, "2"},
			{[]*task.Event{chunk("c", 60, true)}, []string{"a40", "b20"}, "1"},
			{[]*task.Event{chunk("a", 40, true)}, []string{"b20"}, "2"},
		} {
			r.emit(of, append(step.events, status(task.StateWorking, "go on"))...)
			d := waittest.Within(t, "a delivery", got)
			var doc document
			require.NoError(t, json.Unmarshal(d.body, &doc))
			require.Equal(t, step.want, shown(doc), version)
			require.Equal(t, step.left, d.Header.Get("X-Holdfast-Artifacts-Left-Out"), version)
		}
	}

	// In 1.0 a receiver that lags gets the whole task.
	of := r.begin(hook(url, "1.0"))
	all := []*task.Event{chunk("a", 100, false), chunk("b", 20, false)}
	for range 20 {
		all = append(all, status(task.StateWorking, "go on"))
	}
	r.emit(of, all...)
	d := waittest.Within(t, "the task", got)
	var lagged struct{ Task document }
	require.NoError(t, json.Unmarshal(d.body, &lagged))
	require.Equal(t, []string{"b20"}, shown(lagged.Task))
	require.Equal(t, "1", d.Header.Get("X-Holdfast-Artifacts-Left-Out"))
}

func TestEveryEventArrivesInOrder(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, nil)
	for _, version := range []string{"0.1", "0.3", "1.0"} {
		of := r.begin(hook(url, version))
		var want []string
		for i := range 40 {
			text := fmt.Sprint("step ", i)
			r.emit(of, status(task.StateWorking, text), &task.Event{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: text}})
			want = append(want, text)
			if i%7 == 0 {
				awaited(t, "delivery", func() bool { return r.cursor(of.id).Next > task.Seq(2*i) })
			}
		}
		r.emit(of, status(task.StateCompleted, "end"))
		want = append(want, "end")
		ids := map[string]bool{}
		var have []string
		for len(have) == 0 || have[len(have)-1] != "end" {
			g := <-got
			id := g.Header.Get("Idempotency-Key")
			require.NotContains(t, ids, id)
			ids[id] = true
			text := said(t, g.body)
			require.NotEmpty(t, text)
			have = append(have, text)
			if version != "1.0" {
				// The task as of the event and not as it is by now.
				var doc struct{ Artifacts []struct{} }
				require.NoError(t, json.Unmarshal(g.body, &doc))
				n := 40
				_, _ = fmt.Sscanf(text, "step %d", &n)
				require.Len(t, doc.Artifacts, n)
			}
		}
		require.Equal(t, want, have)
		awaited(t, "record", func() bool { return len(r.attempts(of.id)) == len(want) })
		for _, a := range r.attempts(of.id) {
			require.Equal(t, "delivered", a.Class)
			require.Equal(t, http.StatusNoContent, a.Status)
			require.True(t, ids[a.DeliveryID])
		}
	}
}

func TestArtifactsOnRequest(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, nil)
	c := hook(url, "1.0")
	c.Artifacts = true
	of := r.begin(c)
	r.emit(of, &task.Event{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: "x", Parts: []task.Part{task.Text("chunk")}}})
	require.Contains(t, string((<-got).body), `{"artifactUpdate":`)
}

// The receiver fails in every way for a while, and the log grows meanwhile.
func TestAReceiverThatWasDown(t *testing.T) {
	t.Parallel()
	var failures atomic.Int64
	var bodies [][]byte
	var mu sync.Mutex
	url, got := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n := failures.Add(1); {
		case n > 30:
			w.WriteHeader(http.StatusOK)
		case n%3 == 0:
			panic(http.ErrAbortHandler)
		case n%3 == 1:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.Header().Set("Location", "/")
			w.WriteHeader(http.StatusFound)
		}
	})
	r := start(t, storetest.New(t).URL, nil)
	of := r.begin(hook(url, "1.0"))
	go func() {
		for g := range got {
			mu.Lock()
			bodies = append(bodies, g.body)
			mu.Unlock()
		}
	}()
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("step ", i))
		r.emit(of, status(task.StateWorking, want[i]))
	}
	r.emit(of, status(task.StateCompleted, "end"))
	want = append(want, "end")
	awaited(t, "the last one", func() bool {
		return r.cursor(of.id).DueAt.IsZero() && failures.Load() > 50
	})
	mu.Lock()
	defer mu.Unlock()
	var seen []string
	for _, body := range bodies {
		seen = append(seen, said(t, body))
	}
	require.Equal(t, want, slices.Compact(seen))
	classes := map[string]int{}
	for _, a := range r.attempts(of.id) {
		classes[a.Class]++
	}
	// The number of aborted ones varies: on an idle connection the transport retries by itself.
	delete(classes, "network")
	require.Equal(t, map[string]int{"server": 10, "redirect": 10, "delivered": 21}, classes)
	close(got)
}

func TestAReceiverThatLagsGetsTheTask(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	url, got := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		<-hold
		w.WriteHeader(http.StatusOK)
	})
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.CoalesceAfter = 5 })
	of := r.begin(hook(url, "1.0"))
	r.emit(of, status(task.StateWorking, "first"))
	require.Equal(t, "first", said(t, (<-got).body))
	for i := range 6 {
		r.emit(of, status(task.StateWorking, fmt.Sprint(i)))
	}
	close(hold)
	require.Contains(t, string((<-got).body), `{"task":{`, "six events are coalesced")
	awaited(t, "all", func() bool { return r.cursor(of.id).DueAt.IsZero() })
	for i := range 5 {
		r.emit(of, status(task.StateWorking, fmt.Sprint(i)))
	}
	for i := range 5 {
		require.Equal(t, fmt.Sprint(i), said(t, (<-got).body), "five events are not")
	}
	awaited(t, "record", func() bool { return len(r.attempts(of.id)) == 7 })
	snapshot := r.attempts(of.id)[1]
	require.Equal(t, task.Seq(5), snapshot.To-snapshot.From)
}

// An agent with many statuses does not flood a receiver. At its limit a webhook gets the current state, now and then; other
// webhooks are not delayed.
func TestAWebhookAtItsLimitGetsTheTask(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	// One in 3.6 seconds, after the first 250. The backlog alone would not be coalesced.
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.PerHour, o.CoalesceAfter = 1000, 1000 })
	of := r.begin(hook(url, "1.0"))
	var all []*task.Event
	for i := range 600 {
		all = append(all, status(task.StateWorking, fmt.Sprint(i)))
	}
	r.emit(of, all...)
	var bodies []string
	next := func() string {
		bodies = append(bodies, string(waittest.Within(t, "a delivery", got).body))
		return bodies[len(bodies)-1]
	}
	for i := range 250 {
		require.Equal(t, fmt.Sprint(i), said(t, []byte(next())))
	}
	for !strings.Contains(bodies[len(bodies)-1], `{"task":{`) {
		next()
	}
	require.Less(t, len(bodies), 500, "the others are coalesced")
	require.Contains(t, bodies[len(bodies)-1], `"599"`)
	awaited(t, "all", func() bool { return r.cursor(of.id).DueAt.IsZero() })
	attempts := len(r.attempts(of.id))
	require.Equal(t, len(bodies), attempts, "waiting is no attempt")
	require.Zero(t, r.cursor(of.id).Failures)

	elsewhere, gotElsewhere := receiver(t, accept)
	other := r.begin(hook(elsewhere, "1.0"))
	r.emit(other, status(task.StateWorking, "other"))
	require.Equal(t, "other", said(t, waittest.Within(t, "the other webhook", gotElsewhere).body))
	r.emit(of, status(task.StateCompleted, "end"))
	require.Contains(t, next(), "TASK_STATE_COMPLETED")
}

func TestABareMessageIsSilentBefore10(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, nil)
	direct := func() *task.Event {
		e := status(task.StateCompleted, "hi")
		e.Direct = true
		return e
	}
	old := r.begin(hook(url, "0.3"))
	r.emit(old, direct())
	awaited(t, "passing", func() bool { return r.cursor(old.id).Next > 2 })
	require.Empty(t, r.attempts(old.id))
	require.Empty(t, got)
	current := r.begin(hook(url, "1.0"))
	r.emit(current, direct())
	require.Contains(t, string((<-got).body), `{"message":{`)
}

func TestWebhooksAreDisabled(t *testing.T) {
	t.Parallel()
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		o.Schedule = push.Schedule{First: time.Millisecond, Most: time.Millisecond, GiveUpAfter: time.Millisecond, MinAttempts: 4}
	})
	gone, _ := receiver(t, answer(http.StatusGone))
	of := r.begin(hook(gone, "1.0"))
	r.emit(of, status(task.StateWorking, "x"))
	awaited(t, "end", func() bool { return !r.cursor(of.id).Config.DisabledAt.IsZero() })
	require.Equal(t, "the receiver answered 410 Gone", r.cursor(of.id).Config.DisabledFor)
	require.Len(t, r.attempts(of.id), 1)

	var broken atomic.Bool
	broken.Store(true)
	flaky, got := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "no such hook", http.StatusNotFound)
		}
	})
	of = r.begin(hook(flaky, "1.0"))
	r.emit(of, status(task.StateWorking, "first"), status(task.StateWorking, "second"))
	awaited(t, "end", func() bool { return !r.cursor(of.id).Config.DisabledAt.IsZero() })
	require.Contains(t, r.cursor(of.id).Config.DisabledFor, "4 deliveries in a row failed, for")
	require.Contains(t, r.cursor(of.id).Config.DisabledFor, "404 Not Found: no such hook")
	require.Len(t, r.attempts(of.id), 4)
	r.emit(of, status(task.StateCompleted, "third"))

	broken.Store(false)
	for range 4 {
		require.Equal(t, "first", said(t, (<-got).body))
	}
	due, err := r.EnablePush(t.Context(), of.id, "hook")
	require.NoError(t, err)
	require.True(t, due)
	for _, text := range []string{"first", "second", "third"} {
		require.Equal(t, text, said(t, (<-got).body), "no event is lost meanwhile")
	}
}

// A URL whose receiver never accepted anything is a mistake, or a host that does not want the deliveries.
func TestAReceiverThatNeverAcceptsIsGivenUpEarly(t *testing.T) {
	t.Parallel()
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		o.Schedule = push.Schedule{First: time.Millisecond, Most: time.Millisecond, GiveUpAfter: 24 * time.Hour, GiveUpFirstAfter: time.Nanosecond, MinAttempts: 4}
	})
	never, _ := receiver(t, answer(http.StatusNotFound))
	of := r.begin(hook(never, "1.0"))
	r.emit(of, status(task.StateWorking, "x"))
	awaited(t, "end", func() bool { return !r.cursor(of.id).Config.DisabledAt.IsZero() })
	require.Contains(t, r.cursor(of.id).Config.DisabledFor, "its receiver has never accepted a delivery: 4 failed, for")
	require.Contains(t, r.cursor(of.id).Config.DisabledFor, "404 Not Found")
	require.Len(t, r.attempts(of.id), 4)

	once := atomic.Bool{}
	flaky, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		if once.Swap(true) {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	// The first event is delivered by the claim that also fails with the second, and later claims fail again.
	of = r.begin(hook(flaky, "1.0"))
	r.emit(of, status(task.StateWorking, "x"), status(task.StateWorking, "y"))
	awaited(t, "more failures", func() bool { return r.cursor(of.id).Failures >= 8 })
	require.True(t, r.cursor(of.id).Config.DisabledAt.IsZero(), "it may be down for a day")

	unknown, _ := receiver(t, accept)
	of = r.begin(hook(unknown, "7.0"))
	r.emit(of, status(task.StateWorking, "x"))
	awaited(t, "more failures", func() bool { return r.cursor(of.id).Failures >= 8 })
	require.True(t, r.cursor(of.id).Config.DisabledAt.IsZero(), "the receiver was not asked")
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, answer(http.StatusTooManyRequests, "Retry-After", "3600"))
	r := start(t, storetest.New(t).URL, nil)
	of := r.begin(hook(url, "1.0"))
	r.emit(of, status(task.StateWorking, "x"))
	<-got
	awaited(t, "record", func() bool { return len(r.attempts(of.id)) == 1 })
	require.InDelta(t, time.Hour, time.Until(r.cursor(of.id).DueAt), float64(time.Minute))
}

// gauge counts concurrent deliveries.
type gauge struct {
	mu        sync.Mutex
	now, most int
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.most = max(g.most, g.now)
}

func (g *gauge) peak() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// restart measures the peak from now on, and returns its start.
func (g *gauge) restart() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = g.now
	return g.most
}

// hang takes a request and does not answer.
func (g *gauge) hang(_ http.ResponseWriter, r *http.Request) {
	g.add(1)
	defer g.add(-1)
	<-r.Context().Done()
}

// A dead host accepts connections and never answers.
func TestADeadHostStallsNobody(t *testing.T) {
	t.Parallel()
	var held gauge
	dead, _ := receiver(t, held.hang)
	good, got := receiver(t, accept)
	db := storetest.New(t).URL
	r := start(t, db, func(o *push.Options) {
		o.Concurrency, o.PerHost, o.StopGrace = 6, 3, 0
		o.Sender = sender(t, push.SenderOptions{Signer: ring(t, db), Timeout: 10 * time.Minute})
	})
	for range 40 {
		r.emit(r.begin(hook(dead, "1.0")), status(task.StateWorking, "x"))
	}
	for i := range 40 {
		text := fmt.Sprint(i)
		r.emit(r.begin(hook(good, "1.0")), status(task.StateWorking, text))
		require.Equal(t, text, said(t, (<-got).body))
	}
	require.Equal(t, 3, held.peak())
}

// The caller sets webhooks at many hosts that accept connections and never answer.
func TestACallerHasHalfOfTheSlots(t *testing.T) {
	t.Parallel()
	var held gauge
	var dead []string
	for range 5 {
		url, _ := receiver(t, held.hang)
		dead = append(dead, url)
	}
	good, got := receiver(t, accept)
	db := storetest.New(t).URL
	r := start(t, db, func(o *push.Options) {
		o.Concurrency, o.PerHost, o.StopGrace = 6, 2, 0
		o.Sender = sender(t, push.SenderOptions{Signer: ring(t, db), Timeout: 10 * time.Minute})
	})
	for i := range 20 {
		r.emit(r.beginFor("slow", hook(dead[i%len(dead)], "1.0")), status(task.StateWorking, "x"))
	}
	for i := range 20 {
		text := fmt.Sprint(i)
		r.emit(r.beginFor("quick", hook(good, "1.0")), status(task.StateWorking, text))
		require.Equal(t, text, said(t, (<-got).body))
	}
	require.Equal(t, 3, held.peak())
}

// beginning counts deliveries to some URLs when they begin.
type beginning struct {
	webhook.Encoder
	of   []string
	held *gauge
}

func (b *beginning) Body(c *task.PushConfig, t *task.Task, e *task.Event) (body []byte, contentType string, err error) {
	if slices.Contains(b.of, c.URL) {
		b.held.add(1)
	}
	return b.Encoder.Body(c, t, e)
}

// The hosts would fill all slots, with webhooks of callers without an identity.
func TestHostsThatDoNotAnswerHaveHalfOfTheSlots(t *testing.T) {
	t.Parallel()
	var held gauge
	var dead []string
	for range 4 {
		url, _ := receiver(t, new(gauge).hang)
		dead = append(dead, url)
	}
	good, got := receiver(t, accept)
	db := storetest.New(t).URL
	r := start(t, db, func(o *push.Options) {
		o.Concurrency, o.PerHost, o.StopGrace, o.Lock = 6, 2, 0, patience
		o.Sender = sender(t, push.SenderOptions{Signer: ring(t, db), Timeout: 500 * time.Millisecond})
		// A receiver notices a timeout late, perhaps after the next request. So a delivery counts from its body to its record.
		o.Encoder = &beginning{of: dead, held: &held}
		o.Observer.Attempted = func(class string, _ time.Duration) {
			if class == string(push.Timeout) {
				held.add(-1)
			}
		}
	})
	var first []*run
	for i := range 24 {
		of := r.begin(hook(dead[i%len(dead)], "1.0"))
		r.emit(of, status(task.StateWorking, "x"))
		if i < len(dead) {
			first = append(first, of)
		}
	}
	for _, of := range first {
		awaited(t, "timeout", func() bool { return r.cursor(of.id).Failures > 0 })
	}
	awaited(t, "room", func() bool { return held.restart() <= 3 })
	for i := range 20 {
		text := fmt.Sprint(i)
		r.emit(r.begin(hook(good, "1.0")), status(task.StateWorking, text))
		for said(t, waittest.Within(t, "a delivery", got).body) != text { // a late answer is a timeout, and the delivery comes again
		}
	}
	require.LessOrEqual(t, held.peak(), 3)
}

func TestTwoReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	const tasks, steps = 300, 5
	var mu sync.Mutex
	seen := map[string][][]byte{} // by task
	count, underWay := 0, map[string]bool{}
	url, got := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("task")
		mu.Lock()
		twice := underWay[id]
		underWay[id] = true
		mu.Unlock()
		w.WriteHeader(http.StatusOK)
		mu.Lock()
		delete(underWay, id)
		mu.Unlock()
		if twice {
			t.Error("two deliveries of one webhook at a time")
		}
	})
	db := storetest.New(t).URL
	keys := ring(t, db)
	configure := func(o *push.Options) {
		o.PerHost, o.Sender = 32, sender(t, push.SenderOptions{Signer: keys, PerHost: 32})
	}
	replicas := []*replica{start(t, db, configure), start(t, db, configure)}
	var done errgroup.Group
	for n := range 8 {
		r := replicas[n%2]
		done.Go(func() error {
			for i := range tasks / 8 {
				c := hook(fmt.Sprintf("%s/?task=%d-%d", url, n, i), "1.0")
				of := r.begin(c)
				for s := range steps {
					r.emit(of, status(task.StateWorking, fmt.Sprint(s)))
				}
			}
			return nil
		})
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for g := range got {
			mu.Lock()
			id := g.URL.Query().Get("task")
			seen[id] = append(seen[id], g.body)
			count++
			mu.Unlock()
		}
	}()
	require.NoError(t, done.Wait())
	awaited(t, "all", func() bool { mu.Lock(); defer mu.Unlock(); return count >= tasks/8*8*steps })
	for _, r := range replicas {
		r.halt()
	}
	close(got)
	<-finished
	for id, bodies := range seen {
		texts := make([]string, len(bodies))
		for i, body := range bodies {
			texts[i] = said(t, body)
		}
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, texts, id)
	}
	require.Len(t, seen, tasks/8*8)
}

// cut is a store whose first claim with rows also returns an error.
type cut struct {
	*store.Store
	done bool
}

func (c *cut) ClaimPush(ctx context.Context, p *store.PushClaim) (due []*store.PushDue, next time.Duration, err error) {
	due, next, err = c.Store.ClaimPush(ctx, p)
	if err == nil && len(due) > 0 && !c.done {
		c.done = true
		return due, 0, task.Unavailable
	}
	return due, next, err
}

// A webhook that becomes due while all slots are taken is claimed with the next free slot.
func TestAMarkWithoutAFreeSlotIsNotForgotten(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	url, got := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		<-answer
		w.WriteHeader(http.StatusOK)
	})
	var looks atomic.Int64
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		worker := o.Worker
		o.Store, o.Concurrency, o.PollInterval = &cut{Store: o.Store.(*store.Store)}, 1, time.Hour
		o.Worker = func() task.ID {
			looks.Add(1)
			return worker()
		}
	})
	r.emit(r.begin(hook(url, "1.0")), status(task.StateWorking, "first"))
	require.Equal(t, "first", said(t, (<-got).body))
	second := r.begin(hook(url, "1.0"))
	before := looks.Load()
	r.emit(second, status(task.StateWorking, "second"))
	awaited(t, "wake", func() bool { return looks.Load() > before })
	close(answer)
	select {
	case g := <-got:
		require.Equal(t, "second", said(t, g.body))
	case <-time.After(patience):
		t.Fatal("the delivery waits for the poll")
	}
}

// watched is a store that counts claims that name a busy host.
type watched struct {
	*store.Store
	busy atomic.Int64
}

func (w *watched) ClaimPush(ctx context.Context, p *store.PushClaim) (due []*store.PushDue, next time.Duration, err error) {
	due, next, err = w.Store.ClaimPush(ctx, p)
	if len(p.BusyHosts) > 0 {
		w.busy.Add(1)
	}
	return due, next, err
}

// A silent host is bounded by the fair share of all silent hosts. When it answers, its due webhooks are claimed.
func TestAHostThatAnswersAgainIsClaimedFor(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	answer := make(chan struct{})
	url, got := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		<-answer
		w.WriteHeader(http.StatusOK)
	})
	db := storetest.New(t).URL
	var claims *watched
	r := start(t, db, func(o *push.Options) {
		claims = &watched{Store: o.Store.(*store.Store)}
		o.Store, o.Concurrency, o.PollInterval = claims, 2, time.Hour
		o.Sender = sender(t, push.SenderOptions{Signer: ring(t, db), Timeout: 10 * time.Second})
	})
	r.emit(r.begin(hook(url, "1.0")), status(task.StateWorking, "first"))
	for range 2 {
		require.Equal(t, "first", said(t, (<-got).body))
	}
	second := r.begin(hook(url, "1.0"))
	before := claims.busy.Load()
	r.emit(second, status(task.StateWorking, "second"))
	awaited(t, "a claim that names it as busy", func() bool { return claims.busy.Load() > before })
	close(answer)
	for text := "first"; text != "second"; {
		select {
		case g := <-got:
			text = said(t, g.body)
		case <-time.After(patience):
			t.Fatal("the delivery waits for the poll")
		}
	}
}

// forgetful is the store of a process that dies before it can record.
type forgetful struct {
	*store.Store
	dead chan struct{}
}

func (f *forgetful) RecordPush(ctx context.Context, _ *store.PushOutcome) (ours, more bool, err error) {
	close(f.dead)
	return false, false, context.Canceled
}

func TestWhatWasNotRecordedIsSentAgainUnderItsID(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	db := storetest.New(t).URL
	dead := make(chan struct{})
	first := start(t, db, func(o *push.Options) { o.Store = &forgetful{o.Store.(*store.Store), dead} })
	of := first.begin(hook(url, "1.0"))
	first.emit(of, status(task.StateWorking, "x"))
	<-dead
	first.halt()
	second := start(t, db, nil)
	// The claim expires.
	second.exec("UPDATE holdfast.push_cursors SET locked_until = now(), due_at = now()")
	second.Wake()
	before, after := <-got, <-got
	require.Equal(t, before.body, after.body)
	require.Equal(t, before.Header.Get("Idempotency-Key"), after.Header.Get("Idempotency-Key"))
	awaited(t, "record", func() bool { return len(second.attempts(of.id)) == 1 })
	require.Equal(t, before.Header.Get("Idempotency-Key"), second.attempts(of.id)[0].DeliveryID)
	require.Empty(t, got)
}

// crowding is a store whose claims take more of one host than may be under way. It counts extended claims.
type crowding struct {
	*store.Store
	extended atomic.Int64
}

func (c *crowding) ClaimPush(ctx context.Context, p *store.PushClaim) (due []*store.PushDue, next time.Duration, err error) {
	p.PerHost = 8
	return c.Store.ClaimPush(ctx, p)
}

func (c *crowding) RecordPush(ctx context.Context, o *store.PushOutcome) (ours, more bool, err error) {
	if o.Keep && !o.Delivered && !o.Failed {
		c.extended.Add(1)
	}
	return c.Store.RecordPush(ctx, o)
}

func TestClaimsThatWaitAreExtended(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(30 * time.Millisecond)
		w.WriteHeader(http.StatusOK)
	})
	var counter *crowding
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		counter = &crowding{Store: o.Store.(*store.Store)}
		o.Store, o.PerHost, o.Lock = counter, 1, 300*time.Millisecond
	})
	texts := map[string]bool{}
	for i := range 40 {
		r.emit(r.begin(hook(url, "1.0")), status(task.StateWorking, fmt.Sprint(i)))
	}
	for len(texts) < 40 {
		texts[said(t, (<-got).body)] = true
	}
	require.Positive(t, counter.extended.Load())
}

func TestAStopLetsDeliveriesFinish(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	url, got := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		<-hold
		w.WriteHeader(http.StatusOK)
	})
	db := storetest.New(t).URL
	first := start(t, db, func(o *push.Options) { o.PerHost = 1 })
	of := first.begin(hook(url, "1.0"))
	first.emit(of, status(task.StateWorking, "one"), status(task.StateWorking, "two"))
	<-got
	other := first.begin(hook(url, "1.0"))
	first.emit(other, status(task.StateWorking, "other"))
	first.stop()
	close(hold)
	<-first.done
	require.Equal(t, "delivered", first.attempts(of.id)[0].Class)
	require.Len(t, first.attempts(of.id), 1, "no other attempt begins")
	require.Empty(t, got)

	// Another replica continues at once.
	second := start(t, db, nil)
	texts := []string{said(t, (<-got).body), said(t, (<-got).body)}
	slices.Sort(texts)
	require.Equal(t, []string{"other", "two"}, texts)
	awaited(t, "record", func() bool { return len(second.attempts(of.id)) == 2 && len(second.attempts(other.id)) == 1 })
}

func TestAStopWithoutGraceReleasesClaims(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	url, got := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			<-r.Context().Done()
		}
	})
	db := storetest.New(t).URL
	first := start(t, db, func(o *push.Options) { o.StopGrace = 0 })
	of := first.begin(hook(url, "1.0"))
	first.emit(of, status(task.StateWorking, "one"))
	before := <-got
	first.halt()
	require.Empty(t, first.attempts(of.id))
	start(t, db, nil)
	require.Equal(t, before.Header.Get("Idempotency-Key"), (<-got).Header.Get("Idempotency-Key"))
}

func TestAHookThatChangesDuringADelivery(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	old, oldGot := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		<-hold
		w.WriteHeader(http.StatusInternalServerError)
	})
	next, nextGot := receiver(t, accept)
	r := start(t, storetest.New(t).URL, nil)
	of := r.begin(hook(old, "1.0"))
	r.emit(of, status(task.StateWorking, "x"))
	<-oldGot
	require.NoError(t, r.SetPush(t.Context(), of.id, hook(next, "1.0"), 20))
	require.Equal(t, "x", said(t, (<-nextGot).body))
	close(hold)
	awaited(t, "record", func() bool { return len(r.attempts(of.id)) == 1 })
	require.Equal(t, "delivered", r.attempts(of.id)[0].Class, "the outcome of the old one does not count")
}

func TestDeliveriesSurviveLostConnections(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	// No process delivers for a claim whose answer was lost, until the claim expires.
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.Lock = 2 * time.Second })
	of := r.begin(hook(url, "1.0"))
	texts := map[string]bool{}
	for i := range 20 {
		r.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		r.emit(of, status(task.StateWorking, fmt.Sprint(i)))
	}
	for len(texts) < 20 {
		g := <-got
		texts[said(t, g.body)] = true
	}
}

func TestWithoutALeaseNothingIsClaimed(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	var has atomic.Bool
	var id task.ID
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		id = o.Worker()
		o.PollInterval = 20 * time.Millisecond
		o.Worker = func() task.ID {
			if has.Load() {
				return id
			}
			return task.ID{}
		}
	})
	of := r.begin(hook(url, "1.0"))
	r.emit(of, status(task.StateWorking, "x"))
	require.Zero(t, r.cursor(of.id).Failures)
	require.Empty(t, got)
	has.Store(true)
	require.Equal(t, "x", said(t, (<-got).body), "the poll finds it")
}

func TestAFailedRenderingIsRecorded(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		o.Schedule = push.Schedule{First: time.Hour, Most: time.Hour}
	})
	of := r.begin(hook(url, "7.0"))
	r.emit(of, status(task.StateWorking, "x"))
	awaited(t, "record", func() bool { return len(r.attempts(of.id)) == 1 })
	a := r.attempts(of.id)[0]
	require.Equal(t, "internal", a.Class)
	require.Contains(t, a.Error, "A2A 7.0")
	require.Empty(t, got)
}

// A lasting error is not retried each second for ever.
func TestEventsThatCannotBeReadDisableInTheEnd(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	var may atomic.Bool
	r := start(t, storetest.New(t).URL, func(o *push.Options) {
		worker := o.Worker
		o.Worker = func() task.ID {
			if may.Load() {
				return worker()
			}
			return task.ID{}
		}
		o.Schedule.GiveUpAfter, o.Schedule.MinAttempts = time.Nanosecond, 3
	})
	of := r.begin(hook(url, "1.0"))
	r.emit(of, status(task.StateWorking, "x"))
	r.exec("UPDATE holdfast.task_events SET payload = '[]' WHERE kind = 2")
	may.Store(true)
	r.Wake()
	awaited(t, "end", func() bool { return !r.cursor(of.id).Config.DisabledAt.IsZero() })
	require.Contains(t, r.cursor(of.id).Config.DisabledFor, "3 deliveries in a row failed")
	require.Contains(t, r.cursor(of.id).Config.DisabledFor, "its events cannot be read")
	attempts := r.attempts(of.id)
	require.Len(t, attempts, 3)
	for i, a := range attempts {
		require.Equal(t, string(push.Internal), a.Class)
		require.Equal(t, i+1, a.Attempt)
	}
	require.Empty(t, got)
}
