package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is a whole server without its API.
type replica struct {
	*engine.Engine
	store *store.Store
	hub   *hub.Hub
	gate  chan struct{} // "hold" waits for it
	begun chan struct{} // receives when "hold" begins
}

type setup struct {
	url       string
	pageKey   string
	push      *engine.Push
	noWorkers bool
	// withoutRowSecurity leaves only the predicates to keep callers apart.
	withoutRowSecurity bool
	maxBlock           time.Duration
	cancelWait         time.Duration
}

// hostOf accepts every URL.
func hostOf(_ context.Context, raw string) (string, error) {
	u, err := url.Parse(raw)
	return u.Host, err
}

func start(t testing.TB, s setup) *replica {
	t.Helper()
	if s.url == "" {
		s.url = storetest.New(t).URL
	}
	if s.cancelWait == 0 {
		s.cancelWait = time.Hour
	}
	if s.push != nil && s.push.Check == nil {
		s.push.Check = hostOf
	}
	r := &replica{gate: make(chan struct{}), begun: make(chan struct{}, 100)}
	var bus signal.Bus
	var err error
	r.store, err = store.Open(t.Context(), store.Options{URL: s.url, APIConns: 4, RowSecurity: !s.withoutRowSecurity, Listener: &bus})
	require.NoError(t, err)
	r.hub = hub.New(hub.Options{URL: s.url, PollInterval: time.Hour, Store: r.store, Signals: &bus})
	o := engine.Options{
		Store: engine.As(r.store), Hub: r.hub, MaxBlock: s.maxBlock, CancelWait: s.cancelWait, PageKey: []byte(s.pageKey), Push: s.push,
		Agents: []engine.Agent{{Name: "a"}, {Name: "strict", RejectBusy: true}, {Name: "direct", DirectReplies: true}, {Name: "dedupe", DedupeMessages: true}, {Name: "shared", TenantVisible: true}},
	}
	ctx, stop := context.WithCancel(context.Background())
	var g errgroup.Group
	if !s.noWorkers {
		id := store.NewID()
		require.NoError(t, r.store.Register(t.Context(), store.Process{ID: id, Name: "test"}, time.Hour))
		wo := worker.Options{
			Store: r.store, PollInterval: 100 * time.Millisecond, StopGrace: time.Millisecond, Worker: func() task.ID { return id },
		}
		for _, a := range o.Agents {
			wo.Agents = append(wo.Agents, worker.Agent{
				Name: a.Name, Executor: executor.Func(r.execute), Concurrency: 8, CancelGrace: time.Hour, DirectReplies: a.DirectReplies,
			})
		}
		pool := worker.New(wo)
		bus.Queues.Subscribe(pool.Wake)
		bus.Cancels.Subscribe(pool.CancelHint)
		o.Reserve = func(agent string) engine.Slot {
			if slot := pool.Reserve(agent); slot != nil {
				return slot
			}
			return nil
		}
		g.Go(func() error { return pool.Run(ctx) })
	}
	g.Go(func() error { return r.hub.Run(ctx) })
	r.Engine = engine.New(o)
	t.Cleanup(func() {
		stop()
		require.NoError(t, g.Wait())
		require.Zero(t, r.hub.Topics(), "a topic was not removed")
		closing := waittest.Context(t)
		r.store.Close(closing)
		if !t.Failed() {
			require.NoError(t, invarianttest.Check(closing, s.url))
		}
	})
	waittest.Eventually(t, "the listener works", func() error {
		_, degraded := r.hub.Health()
		return waittest.Unless(!degraded, "the hub is degraded")
	})
	return r
}

// execute is an agent that does what the message says.
func (r *replica) execute(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	text := run.Message.FirstText()
	what, rest, _ := strings.Cut(text, " ")
	chunk := func(s string) error {
		err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: "out", Parts: []task.Part{task.Text(s)}}, Append: true})
		return err
	}
	say := func(s string) *task.Message { return &task.Message{Parts: []task.Part{task.Text(s)}} }
	switch what {
	case "chunks":
		var n int
		_, _ = fmt.Sscan(rest, &n)
		for i := range n {
			if err := chunk(fmt.Sprint(i)); err != nil {
				return err
			}
		}
		return nil
	case "ask":
		if err := chunk(text); err != nil {
			return err
		}
		return out.Status(ctx, task.StateInputRequired, say("and?"))
	case "hold":
		r.begun <- struct{}{}
		select {
		case <-r.gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if rest == "ask" {
			return out.Status(ctx, task.StateInputRequired, say("and?"))
		}
		return chunk(text)
	case "fail":
		return errors.New("no luck")
	case "bare":
		return out.Reply(ctx, say("bare"))
	}
	return chunk(text)
}

var alice = asker{Caller: task.Caller{Tenant: "t", Subject: "alice"}, Agent: "a"}

// asker is a caller, and the agent that it calls.
type asker struct {
	task.Caller
	Agent string
}

func (r *replica) as(c asker) *engine.View { return r.As(c.Caller, c.Agent) }

// sending is a message with its caller.
type sending struct {
	by asker
	engine.SendRequest
}

func (r *replica) Send(ctx context.Context, q *sending) (*task.Task, error) {
	return r.as(q.by).Send(ctx, &q.SendRequest)
}

func (r *replica) Stream(ctx context.Context, q *sending) (*engine.Stream, error) {
	return r.as(q.by).Stream(ctx, &q.SendRequest)
}

func send(text string) *sending {
	return &sending{alice, engine.SendRequest{
		Dialect: "0.3", Wait: true,
		Message: &task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
	}}
}

func to(r *sending, h *task.Task) *sending {
	r.TaskID = h.PublicID
	return r
}

func (r *replica) must(t testing.TB, q *sending) *task.Task {
	t.Helper()
	got, err := r.Send(t.Context(), q)
	require.NoError(t, err)
	return got
}

// begin sends a message, and does not wait for the end of its run.
func (r *replica) begin(t testing.TB, text string) *task.Task {
	t.Helper()
	q := send(text)
	q.Wait = false
	return r.must(t, q)
}

// refuses sends a message that must be refused.
func (r *replica) refuses(t testing.TB, q *sending, kind task.Kind, why ...any) {
	t.Helper()
	_, err := r.Send(t.Context(), q)
	require.ErrorIs(t, err, kind, why...)
}

func (r *replica) log(t testing.TB, h *task.Task) []*task.Event {
	t.Helper()
	evs, err := r.store.EventsAfter(t.Context(), h, task.Position{}, 100_000)
	require.NoError(t, err)
	return evs
}

func await[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	return waittest.Within(t, "a signal", ch)
}

func TestSend(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	got := r.must(t, send("hi"))
	require.Equal(t, task.StateCompleted, got.Status.State)
	require.Equal(t, "hi", got.Artifacts[0].Parts[0].Text)
	require.Equal(t, got.ID.String(), got.PublicID)
	require.NotEmpty(t, got.ContextID)
	require.False(t, got.CreatedAt.IsZero())
	stored, err := r.as(alice).Get(t.Context(), &engine.GetRequest{TaskID: got.PublicID, WithArtifacts: true})
	require.NoError(t, err)
	same := cmp.Options{cmp.AllowUnexported(task.Task{}), cmpopts.IgnoreFields(task.Task{}, "growing"), cmpopts.EquateEmpty()}
	require.Empty(t, cmp.Diff(stored, got, same), "the task that a blocking caller gets is the stored one")

	got = r.begin(t, "hold")
	require.Equal(t, task.StateSubmitted, got.Status.State)
	require.Len(t, got.History, 1)
	close(r.gate)

	asked := r.must(t, send("ask 1"))
	require.Equal(t, task.StateInputRequired, asked.Status.State)
	done := r.must(t, to(send("done"), asked))
	require.Equal(t, task.StateCompleted, done.Status.State)
	require.Len(t, done.History, 3)
	require.Equal(t, asked.ContextID, done.ContextID)
	r.refuses(t, to(send("more"), done), task.Terminal)

	unknown := send("hi")
	unknown.by.Agent = "nobody"
	r.refuses(t, unknown, task.NotFound)
}

// The size of a task's metadata is limited, because every list that has the task shows it.
func TestMetadataSizeIsLimited(t *testing.T) {
	t.Parallel()
	r := start(t, setup{noWorkers: true})
	of := func(size int) *sending {
		q := send("hi")
		q.Wait = false
		q.Metadata = []byte(`{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}`)
		return q
	}
	got := r.must(t, of(256<<10))
	require.Len(t, got.Metadata, 256<<10)
	_, err := r.Send(t.Context(), of(256<<10+1))
	require.ErrorIs(t, err, task.Invalid)
	require.ErrorContains(t, err, "metadata")
}

func TestBlockingSendIsBounded(t *testing.T) {
	t.Parallel()
	r := start(t, setup{maxBlock: 30 * time.Millisecond})
	got := r.must(t, send("hold"))
	require.False(t, got.Status.State.Settled())
	require.NotZero(t, got.LastSeq)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Send(ctx, send("hold")) // the client is gone; the task stays
	if err != nil {
		require.ErrorIs(t, err, task.Unavailable)
	}
}

func TestMessagesToBusyTask(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	for _, agent := range []string{"a", "strict"} {
		first := send("hold ask")
		first.by.Agent, first.Wait = agent, false
		h := r.must(t, first)
		await(t, r.begun)
		second := to(send("second"), h)
		second.by.Agent = agent
		if agent == "strict" {
			r.refuses(t, second, task.Busy)
			continue
		}
		got := make(chan *task.Task, 1)
		go func() {
			x, err := r.Send(t.Context(), second)
			if err != nil {
				x = &task.Task{}
			}
			got <- x
		}()
		waittest.Eventually(t, "its message is there", func() error { return waittest.Unless(len(r.log(t, h)) >= 3, "not yet") })
		r.gate <- struct{}{}
		require.Equal(t, task.StateCompleted, await(t, got).Status.State, "the second run ends the task")
	}
	close(r.gate)
}

func TestClientChosenIDs(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	named := func(text, id string) *sending {
		q := send(text)
		q.TaskID, q.MayCreate, q.Dialect = id, true, "0.1"
		return q
	}
	for _, id := range []string{"my-task", "de38c76d-d54c-436c-8b9f-4c2703648d64", "with/odd?chars ☃"} {
		first := r.must(t, named("ask", id))
		require.Equal(t, id, first.PublicID)
		require.Equal(t, task.StateInputRequired, first.Status.State)
		again := r.must(t, named("done", id))
		require.Equal(t, first.ID, again.ID)
		require.Equal(t, first.ContextID, again.ContextID)
		require.Equal(t, task.StateCompleted, again.Status.State)
		found, err := r.as(alice).Find(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, first.ID, found.ID)

		other := named("hi", id)
		other.by.Subject = "bob"
		require.NotEqual(t, first.ID, r.must(t, other).ID)
	}
	// An id made by the server is continued by its owner, and stays free as a name for other callers.
	mine := r.must(t, send("ask"))
	require.Equal(t, mine.ID, r.must(t, named("done", mine.PublicID)).ID)
	other := named("hi", mine.PublicID)
	other.by.Subject = "bob"
	require.NotEqual(t, mine.ID, r.must(t, other).ID)

	r.refuses(t, to(send("hi"), &task.Task{PublicID: store.NewID().String()}), task.NotFound, "clients of later versions do not choose ids")
	r.refuses(t, to(send("hi"), &task.Task{PublicID: "my-other-task"}), task.NotFound)
}

func TestContextMustMatchTask(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	q := send("ask")
	q.ContextID = "mine"
	h := r.must(t, q)
	require.Equal(t, "mine", h.ContextID)
	wrong := to(send("x"), h)
	wrong.ContextID, wrong.ContextMember = "other", "message.contextId"
	_, err := r.Send(t.Context(), wrong)
	var e *task.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, task.Invalid, e.Kind)
	require.Equal(t, "message.contextId", e.Field)
	right := to(send("x"), h)
	right.ContextID = "mine"
	require.Equal(t, task.StateCompleted, r.must(t, right).Status.State)
}

// drain reads events of a stream.
func drain(ctx context.Context, st *engine.Stream) (out []*task.Event, err error) {
	evs, err := st.Next(ctx)
	for _, e := range evs {
		out = append(out, e.Event)
	}
	return out, err
}

func seqs(evs []*task.Event) []task.Seq {
	out := make([]task.Seq, len(evs))
	for i, e := range evs {
		out[i] = e.Seq
	}
	return out
}

// settled reads until a parked or terminal status that no event follows.
func settled(ctx context.Context, st *engine.Stream) ([]*task.Event, error) {
	var out []*task.Event
	for {
		evs, err := drain(ctx, st)
		if err != nil {
			return out, err
		}
		for _, e := range evs {
			out = append(out, e)
			if e.Kind == task.EventStatus && e.State.Settled() && !st.Superseded(e) {
				return out, nil
			}
		}
	}
}

func TestStreamGivesEveryEventOnce(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	ctx := waittest.Context(t)
	check := func(st *engine.Stream, evs []*task.Event) {
		t.Helper()
		log := r.log(t, st.Header)
		require.Equal(t, seqs(log[st.Task.LastSeq:]), seqs(evs))
		folded := *st.Task
		for _, e := range evs {
			require.NoError(t, folded.Apply(e))
		}
		require.Equal(t, log[len(log)-1].Seq, folded.LastSeq)
	}
	fresh, err := r.Stream(ctx, send("chunks 700"))
	require.NoError(t, err)
	defer fresh.Close()
	require.False(t, fresh.Hold)
	require.Equal(t, task.StateSubmitted, fresh.Task.Status.State)
	evs, err := settled(ctx, fresh)
	require.NoError(t, err)
	require.Len(t, evs, 702)
	check(fresh, evs)

	parked := r.must(t, send("ask"))
	next, err := r.Stream(ctx, to(send("chunks 20"), parked))
	require.NoError(t, err)
	defer next.Close()
	require.Equal(t, task.StateSubmitted, next.Task.Status.State)
	require.Equal(t, parked.LastSeq+2, next.Task.LastSeq)
	evs, err = settled(ctx, next)
	require.NoError(t, err)
	check(next, evs)

	h := r.begin(t, "hold ask")
	await(t, r.begun)
	busy, err := r.Stream(ctx, to(send("chunks 20"), h))
	require.NoError(t, err)
	defer busy.Close()
	close(r.gate)
	evs, err = settled(ctx, busy)
	require.NoError(t, err)
	require.Equal(t, task.StateCompleted, evs[len(evs)-1].State, "a status that would park the task did not park it")
	check(busy, evs)

	q := send("bare")
	q.by.Agent = "direct"
	bare, err := r.Stream(ctx, q)
	require.NoError(t, err)
	defer bare.Close()
	require.True(t, bare.Hold)
	evs, err = settled(ctx, bare)
	require.NoError(t, err)
	require.Len(t, evs, 1)
	require.True(t, evs[0].Direct)
}

func TestResumeFromAnyEventOnAnyReplica(t *testing.T) {
	t.Parallel()
	a := start(t, setup{url: storetest.New(t).URL})
	asked := a.must(t, send("ask"))
	h := a.must(t, to(send("chunks 10"), asked))
	log := a.log(t, h)
	for i := range len(log) {
		var after task.Position
		if i > 0 {
			after = log[i-1].Position()
		}
		st, err := a.as(alice).Subscribe(t.Context(), &engine.SubscribeRequest{TaskID: h.PublicID, Resume: true, After: after})
		require.NoError(t, err)
		require.Nil(t, st.Task)
		require.False(t, st.Over)
		evs, err := settled(waittest.Context(t), st)
		require.NoError(t, err)
		require.Equal(t, seqs(log[i:]), seqs(evs))
		st.Close()
	}
	st, err := a.as(alice).Subscribe(t.Context(), &engine.SubscribeRequest{TaskID: h.PublicID, Resume: true, After: task.Position{Seq: h.LastSeq}})
	require.NoError(t, err)
	require.True(t, st.Over)
	st.Close()
	for _, q := range []engine.SubscribeRequest{{Resume: true, After: task.Position{Seq: h.LastSeq + 1}}, {}} {
		q.TaskID = h.PublicID
		st, err := a.as(alice).Subscribe(t.Context(), &q)
		require.NoError(t, err)
		require.Equal(t, h.LastSeq, st.Task.LastSeq)
		require.Equal(t, task.StateCompleted, st.Task.Status.State)
		st.Close()
	}
}

// After a failover another event has the number of the one that the client saw last.
func TestResumeAfterReplacedEventBeginsWithSnapshot(t *testing.T) {
	t.Parallel()
	a := start(t, setup{url: storetest.New(t).URL})
	h := a.must(t, send("chunks 30"))
	lost := task.Position{Seq: 10, Mark: task.MarkAt(a.log(t, h)[9].At.Add(time.Second))}
	for _, wanted := range []bool{false, true} {
		st, err := a.as(alice).Subscribe(t.Context(), &engine.SubscribeRequest{TaskID: h.PublicID, Resume: true, After: lost, Live: wanted})
		if wanted {
			require.ErrorIs(t, err, task.Terminal)
			continue
		}
		require.NoError(t, err)
		require.NotNil(t, st.Task)
		require.Equal(t, a.log(t, h)[h.LastSeq-1].Position(), st.Task.Position())
		st.Close()
	}
}

func TestBlockingCallersOnAllReplicasSeeEnd(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	works, asks := start(t, setup{url: url}), start(t, setup{url: url, noWorkers: true})
	for range 5 {
		got := asks.must(t, send("chunks 5"))
		require.Equal(t, task.StateCompleted, got.Status.State)
		require.Equal(t, []task.Part{task.Text("01234")}, got.Artifacts[0].Parts)
	}
	parked := asks.must(t, send("ask"))
	require.Equal(t, task.StateCompleted, works.must(t, to(send("x"), parked)).Status.State)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	a, b := start(t, setup{url: url}), start(t, setup{url: url, noWorkers: true})
	cancel := func(r *replica, h *task.Task) (*task.Task, error) {
		return r.as(alice).Cancel(t.Context(), &engine.CancelRequest{TaskID: h.PublicID})
	}
	for _, r := range []*replica{a, b} {
		h := a.begin(t, "hold")
		await(t, a.begun)
		got, err := cancel(r, h)
		require.NoError(t, err)
		require.Equal(t, task.StateCanceled, got.Status.State, "it waits for the end")
		_, err = cancel(r, h)
		require.ErrorIs(t, err, task.NotCancelable)

		parked := a.must(t, send("ask"))
		got, err = cancel(r, parked)
		require.NoError(t, err)
		require.Equal(t, task.StateCanceled, got.Status.State)
		_, err = cancel(r, &task.Task{PublicID: "unknown"})
		require.ErrorIs(t, err, task.NotFound)
	}
}

func TestCancelWaitIsBounded(t *testing.T) {
	t.Parallel()
	r := start(t, setup{noWorkers: true, cancelWait: 20 * time.Millisecond})
	h := r.begin(t, "x")
	won, err := r.store.Claim(t.Context(), store.NewID(), []store.Demand{{Agent: "a", Slots: 1}})
	require.NoError(t, err)
	require.Len(t, won, 1, "claimed by a process that does nothing")
	got, err := r.as(alice).Cancel(t.Context(), &engine.CancelRequest{TaskID: h.PublicID})
	require.NoError(t, err)
	require.Equal(t, task.StateSubmitted, got.Status.State)
}

// together sends the same at the same time, and returns the one task that all get.
func (r *replica) together(t *testing.T, q func() *sending) task.ID {
	t.Helper()
	var mu sync.Mutex
	ids := map[task.ID]int{}
	var g errgroup.Group
	for range 10 {
		g.Go(func() error {
			got, err := r.Send(t.Context(), q())
			if err != nil {
				return err
			}
			if got.Status.State != task.StateCompleted {
				return errors.New("it is " + got.Status.State.String())
			}
			mu.Lock()
			defer mu.Unlock()
			ids[got.ID]++
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Len(t, ids, 1)
	return slices.Collect(maps.Keys(ids))[0]
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	key := func(q *sending, k string) *sending { q.IdempotencyKey = k; return q }
	r.together(t, func() *sending { return key(send("hi"), "k") })
	r.refuses(t, key(send("something else"), "k"), task.Invalid)
	bob := key(send("something else"), "k")
	bob.by.Subject = "bob"
	r.must(t, bob)

	asked := r.must(t, send("ask"))
	for range 3 {
		got := r.must(t, key(to(send("ask again"), asked), "m"))
		require.Equal(t, task.StateInputRequired, got.Status.State)
		require.Equal(t, asked.ID, got.ID)
		require.Len(t, got.History, 3, "one message for each key")
	}
	r.refuses(t, key(to(send("other"), asked), "m"), task.Invalid)

	named := func(text string) *sending {
		q := key(send(text), "named")
		q.TaskID, q.MayCreate, q.Dialect = "my-task", true, "0.1"
		return q
	}
	first := r.must(t, named("hi"))
	require.Equal(t, first.ID, r.must(t, named("hi")).ID)
	require.Len(t, r.log(t, first), 4)
	st, err := r.Stream(t.Context(), named("hi"))
	require.NoError(t, err)
	defer st.Close()
	require.Equal(t, task.StateCompleted, st.Task.Status.State)
}

func TestRepeatedMessages(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	message := func(text, id string) *sending {
		q := send(text)
		q.by.Agent, q.Message.ID = "dedupe", id
		return q
	}
	id := r.together(t, func() *sending { return message("hi", "m") })
	first := r.must(t, message("hi", "m"))
	require.Equal(t, id, first.ID)
	require.Len(t, r.log(t, first), 4, "one message, one run")

	// Any difference makes it another message.
	inContext := message("hi", "m")
	inContext.ContextID = "c"
	bob := message("hi", "m")
	bob.by.Subject = "bob"
	elsewhere := message("hi", "m")
	elsewhere.by.Agent = "a"
	seen := map[task.ID]bool{first.ID: true}
	for _, tt := range []struct {
		what    string
		q       *sending
		repeats bool // the repetition finds the first task
	}{
		{"another id", message("hi", "m-2"), true},
		{"another text under one id", message("ho", "m"), true},
		{"another context", inContext, true},
		{"another caller", bob, true},
		{"an agent that does not compare messages", elsewhere, false},
		{"no id", message("hi", ""), false},
	} {
		again, text := *tt.q, *tt.q.Message
		again.Message = &text
		got := r.must(t, tt.q)
		require.False(t, seen[got.ID], tt.what)
		seen[got.ID] = true
		require.Equal(t, tt.repeats, r.must(t, &again).ID == got.ID, tt.what)
	}

	asked := r.must(t, message("ask", "q"))
	for range 3 {
		got := r.must(t, to(message("ask again", "q"), asked))
		require.Equal(t, asked.ID, got.ID)
		require.Len(t, got.History, 3, "one message for each key")
	}

	// The client's key overrides the message id: with a new key it is another message.
	keyed := message("hi", "m")
	keyed.IdempotencyKey = "k"
	require.NotEqual(t, first.ID, r.must(t, keyed).ID)
}
