package push_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc/webhook"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

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
	r.Store = storetest.Must(store.Open(t.Context(), store.Options{URL: url, APIConns: 4, Listener: &bus}))(t)
	o := push.Options{
		Store: r.Store, Encoder: webhook.Encoder{}, Worker: func() task.ID { return r.id }, Schedule: quick,
		StopGrace: time.Hour, Lock: time.Minute,
	}
	if change != nil {
		change(&o)
	}
	if o.Sender == nil {
		o.Sender = sender(t, push.SenderOptions{})
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
	id := store.NewID()
	created := storetest.Must(r.Create(r.t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: "c", Dialect: "1.0"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("hello")}},
		Slot:    store.Slot{Worker: r.id}, Push: c,
	}))(r.t)
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

func (r *replica) attempts(id task.ID) []store.PushAttempt {
	r.t.Helper()
	all := storetest.Must(r.PushAttempts(r.t.Context(), id, "", 1000))(r.t)
	slices.Reverse(all)
	return all
}

// recorded waits until a task's webhook has n attempts, and returns them.
func (r *replica) recorded(id task.ID, n int) (all []store.PushAttempt) {
	r.t.Helper()
	waittest.Eventually(r.t, "the records of attempts", func() error {
		all = r.attempts(id)
		return waittest.Unless(len(all) >= n, "%d of %d", len(all), n)
	})
	require.Len(r.t, all, n)
	return all
}

// exec changes the database without the knowledge of any process.
func (r *replica) exec(sql string) {
	r.t.Helper()
	c := storetest.Must(pgx.Connect(r.t.Context(), r.url))(r.t)
	defer func() { require.NoError(r.t, c.Close(context.WithoutCancel(r.t.Context()))) }()
	storetest.Must(c.Exec(r.t.Context(), sql))(r.t)
}

// document is what a receiver got, in any version.
type document struct {
	Task, StatusUpdate *document
	Status             struct{ Message text }
	History            []struct{ MessageID string }
	Artifacts          []text
	Metadata           json.RawMessage
}

type text struct{ Parts []struct{ Text string } }

func (t text) String() (all string) {
	for _, p := range t.Parts {
		all += p.Text
	}
	return all
}

func read(t *testing.T, body []byte) *document {
	t.Helper()
	var d document
	require.NoError(t, json.Unmarshal(body, &d), "%s", body)
	return cmp.Or(d.Task, d.StatusUpdate, &d)
}

// said returns the text of a status.
func said(t *testing.T, body []byte) string {
	t.Helper()
	return read(t, body).Status.Message.String()
}

// The sealing key may be in the database. If that does not answer, the webhook has not failed.
func TestASealingKeyOutOfReachIsUnavailable(t *testing.T) {
	t.Parallel()
	db := storetest.New(t).URL
	r := start(t, db+"&lock_timeout=50ms", func(o *push.Options) { o.Worker = func() task.ID { return task.ID{} } }) // it claims nothing
	of := r.begin(nil)
	other := storetest.Must(store.Open(t.Context(), store.Options{URL: db, APIConns: 2}))(t)
	t.Cleanup(func() { other.Close(context.WithoutCancel(t.Context())) })
	c := hook("http://127.0.0.1", "1.0")
	c.Token = "secret"
	require.NoError(t, other.SetPush(t.Context(), of.id, c, 1))
	r.emit(of, status(task.StateCompleted, "end"))
	locker := storetest.Must(pgx.Connect(t.Context(), db))(t)
	defer func() { require.NoError(t, locker.Close(context.WithoutCancel(t.Context()))) }()
	storetest.Must(locker.Exec(t.Context(), "BEGIN; LOCK TABLE holdfast.secrets IN ACCESS EXCLUSIVE MODE"))(t)
	due, _, err := r.ClaimPush(t.Context(), &store.PushClaim{Worker: r.id, Limit: 1, PerHost: 1, PerCaller: 1, Lock: time.Hour})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, task.Unavailable, task.KindOf(due[0].Unreadable))
}

// says is a status with a message of some size.
func says(text string, kib int) *task.Event {
	e := status(task.StateWorking, text)
	e.Message.Parts = append(e.Message.Parts, task.Text(strings.Repeat("x", kib<<10)))
	return e
}

func chunk(id string, kib int, more bool) *task.Event {
	return &task.Event{Kind: task.EventArtifact, Append: more, Artifact: &task.Artifact{ID: id, Parts: []task.Part{task.Text(strings.Repeat(id, kib<<10))}}}
}

// Bodies that show the whole task have the newest messages. A body or an event that is too large becomes a reference; later
// deliveries are whole again if they fit.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.MaxBody, o.CoalesceAfter = 128<<10, 10 })
	next := func() (text, messages, artifacts string, reference bool) {
		t.Helper()
		d := waittest.Within(t, "a delivery", got)
		require.LessOrEqual(t, len(d.body), 128<<10)
		doc := read(t, d.body)
		if parts := doc.Status.Message.Parts; len(parts) > 0 {
			text = parts[0].Text
		}
		for _, m := range doc.History {
			messages += strings.TrimPrefix(m.MessageID, "m-") + " "
		}
		for _, a := range doc.Artifacts {
			artifacts += fmt.Sprint(a.String()[:1], len(a.String())>>10, " ") // each repeats its id, which 0.1 lacks
		}
		return text, messages, artifacts, d.Header.Get("X-Holdfast-Reference") == "true"
	}
	for _, version := range []string{"0.1", "0.3"} {
		of := r.begin(hook(url, version))
		for i, step := range []struct {
			events              []*task.Event // before a status
			kib                 int           // of the status
			messages, artifacts string
			text, reference     bool
		}{
			{[]*task.Event{chunk("a", 20, false)}, 40, "m ", "a20 ", true, false},
			{[]*task.Event{chunk("b", 20, false)}, 30, "m 0 ", "a20 b20 ", true, false},
			{nil, 0, "1 ", "a20 b20 ", true, false},
			{[]*task.Event{chunk("a", 90, true)}, 0, "", "", true, true},
			{[]*task.Event{chunk("a", 10, false)}, 0, "1 2 3 ", "a10 b20 ", true, false},
			{nil, 200, "", "", false, true},
			{nil, 0, "", "a10 b20 ", true, false},
			{nil, 0, "6 ", "a10 b20 ", true, false},
		} {
			r.emit(of, append(step.events, says(fmt.Sprint(i), step.kib))...)
			text, messages, artifacts, reference := next()
			if version != "0.1" { // whose bodies have no history
				require.Equal(t, step.messages, messages, i)
			}
			require.Equal(t, step.artifacts, artifacts, "%s %d", version, i)
			require.Equal(t, step.reference, reference, "%s %d", version, i)
			require.Equal(t, step.text, text == fmt.Sprint(i), "%s %d", version, i)
		}
	}

	c := hook(url, "1.0")
	c.Artifacts = true
	of := r.begin(c)
	r.emit(of, chunk("a", 200, false))
	d := waittest.Within(t, "the artifact", got)
	require.Regexp(t, `^{"task":{"id":"[^"]+","contextId":"c","status":{"state":"TASK_STATE_WORKING","timestamp":"[^"]+"}}}$`, string(d.body))
	require.Equal(t, "true", d.Header.Get("X-Holdfast-Reference"))
	r.emit(of, chunk("a", 1, false))
	require.Contains(t, string(waittest.Within(t, "the next", got).body), `{"artifactUpdate":`)
	// A receiver that lags gets the whole task.
	of = r.begin(hook(url, "1.0"))
	all := []*task.Event{chunk("b", 20, false), says("large", 60), says("large", 40)}
	want := ""
	for i := range 20 {
		all = append(all, says(fmt.Sprint(i), 0))
		if i < 19 {
			want += fmt.Sprint(i, " ")
		}
	}
	r.emit(of, all...)
	_, messages, artifacts, reference := next()
	require.Equal(t, "large "+want, messages)
	require.Equal(t, "b20 ", artifacts)
	require.False(t, reference)
}

// The smallest push.max_body. Only what is too large is a reference or left out, whatever comes with it.
func TestSmallBodies(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, func(o *push.Options) { o.MaxBody, o.CoalesceAfter = 16<<10, 10 })
	// next returns a body: its texts, and whether it is a reference.
	next := func() (history []string, text, metadata string, reference bool) {
		t.Helper()
		d := waittest.Within(t, "a delivery", got)
		require.LessOrEqual(t, len(d.body), 16<<10)
		doc := read(t, d.body)
		for _, m := range doc.History {
			history = append(history, m.MessageID)
		}
		return history, doc.Status.Message.String(), string(doc.Metadata), d.Header.Get("X-Holdfast-Reference") == "true"
	}
	of := r.begin(hook(url, "1.0"))
	sizes := []int{12, 20, 12, 12, 3, 20, 20, 3, 12, 0}
	var all []*task.Event
	for i, kib := range sizes {
		all = append(all, says(fmt.Sprint(i), kib))
	}
	r.emit(of, all...)
	for i, kib := range sizes {
		_, text, _, reference := next()
		require.Equal(t, kib > 16, reference, i)
		require.Equal(t, kib <= 16, strings.HasPrefix(text, fmt.Sprint(i)), i)
	}

	of = r.begin(hook(url, "0.3"))
	note := &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCheckpoint, Checkpoint: []byte(`"` + strings.Repeat("x", 20<<10) + `"`)}}
	large, larger := says("2", 20), says("4", 0)
	large.Metadata, larger.Metadata = []byte(`{"key":"value"}`), []byte(`{"large":"`+strings.Repeat("x", 20<<10)+`"}`)
	for i, step := range []struct {
		events    []*task.Event
		history   []string
		metadata  string
		reference bool
	}{
		{[]*task.Event{says("0", 0)}, []string{"m"}, "", false},
		{[]*task.Event{note, says("1", 0)}, []string{"m", "m-0"}, "", false},
		{[]*task.Event{large}, nil, "", true},
		{[]*task.Event{says("3", 0)}, nil, `{"key":"value"}`, false},
		{[]*task.Event{larger}, nil, "", true},
		{[]*task.Event{says("5", 0)}, nil, "", true}, // it lacks what the task has since the one before
	} {
		r.emit(of, step.events...)
		history, _, metadata, reference := next()
		require.Equal(t, step.reference, reference, i)
		require.Equal(t, step.history, history, i)
		require.Equal(t, step.metadata, metadata, i)
	}

	// Also the current task, for a receiver that lags.
	for _, version := range []string{"0.3", "1.0"} {
		of = r.begin(hook(url, version))
		all = []*task.Event{chunk("a", 20, false)}
		for i := range 20 {
			all = append(all, says(fmt.Sprint(i), 0))
		}
		r.emit(of, all...)
		_, text, _, reference := next()
		require.True(t, reference)
		require.Equal(t, "19", text)
		// Its status is too large, and not the newest event.
		of = r.begin(hook(url, version))
		r.emit(of, append(all[1:], says("large", 20), note)...)
		_, text, _, reference = next()
		require.True(t, reference)
		require.Empty(t, text)
	}
}

func TestEveryEventArrivesInOrder(t *testing.T) {
	t.Parallel()
	const steps = 20
	url, got := receiver(t, accept)
	r := start(t, storetest.New(t).URL, nil)
	for _, version := range []string{"0.1", "0.3", "1.0"} {
		of := r.begin(hook(url, version))
		ids := map[string]bool{}
		for i := range steps + 1 {
			text := fmt.Sprint("step ", i)
			r.emit(of, status(task.StateWorking, text), &task.Event{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: text}})
			if i%5 != 0 {
				continue // the next ones are delivered with it
			}
			for n := max(i-4, 0); n <= i; n++ {
				g := waittest.Within(t, "a delivery", got)
				require.Equal(t, fmt.Sprint("step ", n), said(t, g.body))
				ids[g.Header.Get("Idempotency-Key")] = true
				if version != "1.0" {
					// The task as of the event and not as it is by now.
					require.Len(t, read(t, g.body).Artifacts, n)
				}
			}
		}
		require.Len(t, ids, steps+1)
		for _, a := range r.recorded(of.id, steps+1) {
			require.Equal(t, "delivered", a.Class)
			require.Equal(t, http.StatusNoContent, a.Status)
			require.True(t, ids[a.DeliveryID])
		}
	}
	c := hook(url, "1.0")
	c.Artifacts = true
	r.emit(r.begin(c), &task.Event{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: "x", Parts: []task.Part{task.Text("chunk")}}})
	require.Contains(t, string(waittest.Within(t, "the artifact", got).body), `{"artifactUpdate":`)
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
		texts[said(t, waittest.Within(t, "a delivery", got).body)] = true
	}
}
