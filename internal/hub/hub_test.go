package hub_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const never = time.Hour // a poll interval longer than the test

// replica is a hub with its store.
type replica struct {
	t     testing.TB
	hub   *hub.Hub
	bus   *signal.Bus
	store *store.Store

	rereads, pollFound atomic.Int64
	stop               context.CancelFunc
}

func start(t testing.TB, url string, o hub.Options) *replica {
	t.Helper()
	r := &replica{t: t}
	if o.URL == "" {
		o.URL = url
	}
	o.Observer = hub.Observer{
		Reread:    func() { r.rereads.Add(1) },
		PollFound: func(n int) { r.pollFound.Add(int64(n)) },
	}
	if o.Signals == nil {
		o.Signals = &signal.Bus{}
	}
	r.bus = o.Signals
	r.store = storetest.Must(store.Open(t.Context(), store.Options{URL: url, APIConns: 3, Listener: r.bus}))(t)
	if n, ok := o.Store.(*narrow); ok {
		n.Store = r.store
	} else {
		o.Store = r.store
	}
	r.hub = hub.New(o)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	ended := make(chan error, 1)
	go func() { ended <- r.hub.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		require.Zero(t, r.hub.Topics(), "a topic was not removed")
		r.store.Close(waittest.Context(t))
	})
	return r
}

// mute is a store without a hub: its commits cause no hints.
func mute(t testing.TB, url string) *replica {
	t.Helper()
	s := storetest.Must(store.Open(t.Context(), store.Options{URL: url, APIConns: 3}))(t)
	t.Cleanup(func() { s.Close(waittest.Context(t)) })
	return &replica{t: t, store: s}
}

// listening waits until notifications arrive.
func (r *replica) listening() *replica {
	r.t.Helper()
	r.eventually("it listens", func() bool { _, degraded := r.hub.Health(); return !degraded })
	return r
}

func (r *replica) eventually(what string, holds func() bool) {
	r.t.Helper()
	waittest.Eventually(r.t, what, func() error { return waittest.Unless(holds(), "not yet") })
}

// run is a running task, and how much its only attempt has written.
type run struct {
	h       *task.Task
	ordinal atomic.Int64
}

func (r *replica) run() *run {
	r.t.Helper()
	id := store.NewID()
	n := &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: "c", Dialect: "0.3"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("x")}},
		Slot:    store.Slot{Worker: store.NewID()},
	}
	storetest.Must(r.store.Create(r.t.Context(), n))(r.t)
	h := storetest.Must(r.store.Header(r.t.Context(), id))(r.t)
	return &run{h: h}
}

// write appends n chunks and waits for the commit.
func (r *replica) write(u *run, n int) error {
	return r.append(u, slices.Repeat([]string{"chunk"}, n)...)
}

// append appends chunks with these texts in one commit, and waits for it.
func (r *replica) append(u *run, texts ...string) error {
	evs := make([]*task.Event, len(texts))
	for i, text := range texts {
		evs[i] = &task.Event{Kind: task.EventArtifact, Append: true, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text(text)}}}
	}
	done := make(chan error, 1)
	r.store.Append(&store.Append{
		Task: u.h.ID, Agent: "a", Fence: store.FirstFence(u.h), Ordinal: u.ordinal.Load(), Events: evs,
		Done: func(_ bool, err error) { done <- err },
	})
	u.ordinal.Add(int64(len(texts)))
	return <-done
}

func (r *replica) must(u *run, n int) {
	r.t.Helper()
	require.NoError(r.t, r.write(u, n))
}

// follow subscribes to a run's events behind a position, until the end of the test.
func (r *replica) follow(u *run, after task.Position) *hub.Subscription {
	s := r.hub.Subscribe(u.h)
	r.t.Cleanup(s.Close)
	s.Start(after)
	return s
}

// read reads events up to a seq, and checks that they have no gap.
func read(ctx context.Context, s *hub.Subscription, upto task.Seq) error {
	for s.Seen() < upto {
		seen := s.Seen()
		evs, err := s.Next(ctx)
		if err != nil {
			return fmt.Errorf("after %d: %w", seen, err)
		}
		for _, e := range evs {
			if seen++; e.Seq != seen {
				return fmt.Errorf("event %d came instead of %d", e.Seq, seen)
			}
		}
	}
	return nil
}

func TestHintsReachAnotherReplica(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	a := start(t, url, hub.Options{PollInterval: never}).listening()
	ready, cancels, notified := make(chan string, 100), make(chan task.ID, 1), make(chan task.ID, 1)
	var bus signal.Bus
	bus.Queues.Subscribe(func(agent string) { ready <- agent })
	bus.Cancels.Subscribe(func(id task.ID) { cancels <- id })
	bus.Notified.Subscribe(func(id task.ID) { notified <- id })
	b := start(t, url, hub.Options{PollInterval: never, Signals: &bus}).listening()
	u := a.run()
	s := b.follow(u, task.Position{})
	for i := range 5 {
		a.must(u, 2)
		require.NoError(t, read(waittest.Context(t), s, task.Seq(3+2*i)))
	}
	require.Zero(t, b.pollFound.Load())
	a.bus.Ready("agent")
	a.bus.CancelWanted(u.h.ID)
	a.bus.Notified.Announce(u.h.ID)
	for agent := ""; agent != "agent"; {
		agent = <-ready
	}
	require.Equal(t, u.h.ID, <-cancels)
	require.Equal(t, u.h.ID, <-notified)
}

func TestPollFindsEventWithoutHint(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	a := mute(t, url)
	b := start(t, url, hub.Options{PollInterval: 50 * time.Millisecond}).listening()
	u := a.run()
	s := b.follow(u, task.Position{Seq: 1})
	// The count follows the delivery. The poll that was due before b heard its own test does not count.
	for upto := task.Seq(3); b.pollFound.Load() == 0; upto += 2 {
		a.must(u, 2)
		require.NoError(t, read(waittest.Context(t), s, upto))
	}
}

func TestReconnectedListenerMissesNothing(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	a := start(t, url, hub.Options{PollInterval: never}).listening()
	b := start(t, url, hub.Options{PollInterval: never}).listening()
	u := a.run()
	s := b.follow(u, task.Position{Seq: 1})
	conn := storetest.Connect(t, url)
	written := task.Seq(1)
	for range 3 {
		storetest.Must(conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'holdfast listener'`))(t)
		for range 5 {
			a.must(u, 1)
			written++
		}
		require.NoError(t, read(waittest.Context(t), s, written))
		a.listening()
		b.listening()
	}
}

func TestDeafListenerPolls(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	proxy := pgproxytest.New(t, url)
	proxy.Deafen(true)
	a := start(t, url, hub.Options{PollInterval: never})
	b := start(t, url, hub.Options{URL: proxy.URL, PollInterval: never, PingInterval: 50 * time.Millisecond})
	b.eventually("/readyz says that notifications do not arrive", func() bool {
		detail, degraded := b.hub.Health()
		return degraded && strings.Contains(detail, "do not arrive")
	})
	u := a.run()
	s := b.follow(u, task.Position{Seq: 1})
	a.must(u, 2)
	require.NoError(t, read(waittest.Context(t), s, 3), "a deaf listener polls often, whatever its interval")
	// The connection may recover.
	proxy.Deafen(false)
	b.listening()
}

// The first self-test of a replica may be lost with its connection. It is repeated even while others send hints.
func TestLostSelfTestIsRepeatedDuringTraffic(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	proxy := pgproxytest.New(t, url)
	conn := storetest.Must(pgx.Connect(t.Context(), url))(t)
	ctx, stop := context.WithCancel(context.Background())
	talk := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := conn.Exec(context.Background(), "SELECT pg_notify('holdfast', 'somebody,q:x'), pg_sleep(0.005)"); err != nil {
				talk <- err
				return
			}
		}
		talk <- conn.Close(context.Background())
	}()
	lost := proxy.Lose("NotifySend", pgproxytest.Request, 1)
	b := start(t, url, hub.Options{URL: proxy.URL, PollInterval: never})
	<-lost
	b.listening()
	stop()
	require.NoError(t, <-talk)
}

// narrow is a store that is too slow for pages of more than ten events, as a database that works through large rows.
type narrow struct {
	*store.Store
	catchUps, rereads atomic.Int64 // that failed
}

func (n *narrow) CatchUp(ctx context.Context, at []store.Position, limit int) (*store.CaughtUp, error) {
	read, err := n.Store.CatchUp(ctx, at, limit)
	if err == nil && len(read.Events) > 10 {
		n.catchUps.Add(1)
		return nil, task.Errorf(task.Unavailable, "canceling statement due to statement timeout")
	}
	return read, err
}

func (n *narrow) EventsAfter(ctx context.Context, owner *task.Task, after task.Position, limit int) ([]*task.Event, error) {
	evs, err := n.Store.EventsAfter(ctx, owner, after, limit)
	if err == nil && len(evs) > 10 {
		n.rereads.Add(1)
		return nil, task.Errorf(task.Unavailable, "canceling statement due to statement timeout")
	}
	return evs, err
}

// A page that the database cannot read in time becomes smaller.
func TestPagesShrinkUntilTheyAreReadInTime(t *testing.T) {
	t.Parallel()
	const events = 40
	t.Run("catch-up", func(t *testing.T) {
		t.Parallel()
		url := storetest.New(t).URL
		n := &narrow{}
		r := start(t, url, hub.Options{Store: n, PollInterval: 50 * time.Millisecond})
		elsewhere := mute(t, url)
		var subs []*hub.Subscription
		for range 3 {
			u := elsewhere.run()
			s := r.follow(u, task.Position{Seq: 1})
			subs = append(subs, s)
			elsewhere.must(u, events)
		}
		for _, s := range subs {
			require.NoError(t, read(waittest.Context(t), s, 1+events))
		}
		require.Positive(t, n.catchUps.Load())
	})
	t.Run("reread", func(t *testing.T) {
		t.Parallel()
		n := &narrow{}
		r := start(t, storetest.New(t).URL, hub.Options{Store: n, PollInterval: never, RingEvents: 4})
		u := r.run()
		s := r.follow(u, task.Position{Seq: 1})
		r.must(u, events)
		require.NoError(t, read(waittest.Context(t), s, 1+events))
		require.Positive(t, n.rereads.Load())
	})
}

func TestSlowSubscriberRereads(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]hub.Options{
		"too many events": {PollInterval: never, RingEvents: 4},
		"too many bytes":  {PollInterval: never, RingBytes: 4 * (256 + 128 + 5)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, storetest.New(t).URL, o)
			u := r.run()
			slow, quick := r.hub.Subscribe(u.h), r.hub.Subscribe(u.h)
			defer slow.Close()
			defer quick.Close()
			slow.Start(task.Position{Seq: 1})
			quick.Start(task.Position{Seq: 1})
			for i := range 10 {
				r.must(u, 2)
				require.NoError(t, read(waittest.Context(t), quick, task.Seq(3+2*i)))
			}
			require.Zero(t, r.rereads.Load(), "only the slow subscriber reads the table again")
			require.NoError(t, read(waittest.Context(t), slow, 21))
			require.Positive(t, r.rereads.Load())
		})
	}
}

// When all topics together have too many events, a large one keeps none: its subscribers read the table, within the budget.
func TestTopicsShareTheirMemory(t *testing.T) {
	t.Parallel()
	budget := limit.NewBudget(16 << 20)
	r := start(t, storetest.New(t).URL, hub.Options{PollInterval: never, RingTotal: 1, Memory: budget})
	u := r.run()
	sub := r.hub.Subscribe(u.h)
	sub.Start(task.Position{Seq: 1})
	last := task.Seq(1)
	for range 30 {
		r.must(u, 20) // about 400 bytes each
		last += 20
	}
	require.NoError(t, read(waittest.Context(t), sub, last))
	require.Positive(t, r.rereads.Load())
	sub.Close()
	require.Zero(t, budget.Stat().Used)
}

// A subscriber that starts behind a snapshot gets each later event once, whichever replica writes and however small the ring is.
func TestStartAfterSnapshotMissesNothing(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	o := hub.Options{PollInterval: never, RingEvents: 8}
	a, b := start(t, url, o).listening(), start(t, url, o).listening()
	const tasks, commits = 4, 40
	var writers, readers errgroup.Group
	for i := range tasks {
		u := a.run()
		writer := []*replica{a, b}[i%2]
		last := make(chan task.Seq, 1)
		writers.Go(func() error {
			seq := task.Seq(1)
			for range commits {
				n := 1 + rand.N(4)
				if err := writer.write(u, n); err != nil {
					return err
				}
				seq += task.Seq(n)
			}
			last <- seq
			return nil
		})
		for n := range 4 {
			r := []*replica{a, b}[n%2]
			readers.Go(func() error {
				var subs errgroup.Group
				for range 5 {
					s := r.hub.Subscribe(u.h)
					h, err := r.store.Header(t.Context(), u.h.ID)
					if err != nil {
						s.Close()
						return err
					}
					after := h.LastSeq
					if rand.N(3) == 0 {
						after = rand.N(h.LastSeq + 1) // resumed
					}
					s.Resume(task.Position{Seq: after}, task.Position{Seq: h.LastSeq})
					subs.Go(func() error {
						defer s.Close()
						end := <-last
						last <- end
						return read(waittest.Context(t), s, end)
					})
				}
				return subs.Wait()
			})
		}
	}
	require.NoError(t, writers.Wait())
	require.NoError(t, readers.Wait())
}

func TestCloseEndsSubscriptions(t *testing.T) {
	t.Parallel()
	r := start(t, storetest.New(t).URL, hub.Options{PollInterval: never})
	u := r.run()
	var g errgroup.Group
	for range 8 {
		s := r.hub.Subscribe(u.h)
		s.Start(task.Position{Seq: 1})
		g.Go(func() error {
			defer s.Close()
			_, err := s.Next(t.Context())
			if !errors.Is(err, hub.ErrClosed) {
				return fmt.Errorf("ended with %w", err)
			}
			return nil
		})
	}
	r.hub.Close()
	r.hub.Close()
	require.NoError(t, g.Wait())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	other := start(t, storetest.New(t).URL, hub.Options{PollInterval: never})
	s := other.follow(u, task.Position{Seq: 1})
	_, err := s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestLoneProcessSendsNoHints(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	conn := storetest.Connect(t, url)
	r := start(t, url, hub.Options{PollInterval: never}).listening()
	r.hub.SetPeers(0)
	u := r.run()
	storetest.Must(conn.Exec(t.Context(), "LISTEN "+store.Channel))(t)
	r.must(u, 5)
	r.bus.Ready("a")
	r.bus.CancelWanted(u.h.ID)
	r.bus.Notified.Announce(u.h.ID)
	// The next notification is of the process that has just started. The first replica sends hints when it knows
	// that process.
	other := start(t, url, hub.Options{PollInterval: never}).listening()
	require.Regexp(t, `^[0-9a-f]{12},(h:|t:)`, storetest.Must(conn.WaitForNotification(waittest.Context(t)))(t).Payload)
	s := other.follow(u, task.Position{Seq: 6})
	came := make(chan error, 1)
	go func() {
		_, err := s.Next(waittest.Context(t))
		came <- err
	}()
	r.eventually("a hint arrives", func() bool {
		r.must(u, 1)
		return len(came) > 0
	})
	require.NoError(t, <-came)
}

// Any number of subscribers hold one copy of an event, in the ring or read again from the table, while one of them sends it.
func TestStreamsShareALargeEvent(t *testing.T) {
	t.Parallel()
	for name, ring := range map[string]int{"from the ring": 4 << 20, "from the table": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budget := limit.NewBudget(16 << 20)
			r := start(t, storetest.New(t).URL, hub.Options{PollInterval: never, Memory: budget, RingBytes: ring})
			u := r.run()
			subs := make([]*hub.Subscription, 100)
			for i := range subs {
				subs[i] = r.hub.Subscribe(u.h)
				subs[i].Start(task.Position{Seq: 1})
			}
			require.NoError(t, r.append(u, strings.Repeat("x", 1<<20), "small"))
			var shared *hub.Entry
			for _, s := range subs {
				evs := storetest.Must(s.Next(t.Context()))(t)
				require.Len(t, evs, 1, "a large event comes alone")
				if shared == nil {
					shared = evs[0]
				}
				require.Same(t, shared, evs[0])
				used := budget.Stat().Used
				require.Greater(t, used, int64(1<<20))
				require.Less(t, used, int64(4<<20))
			}
			for _, s := range subs[1:] {
				require.NoError(t, read(waittest.Context(t), s, 3))
			}
			require.Positive(t, budget.Stat().Used, "one still sends it")
			for _, s := range subs {
				s.Close()
			}
			require.Zero(t, budget.Stat().Used)
		})
	}
}

// Streams that show an event at the same moment wait for one encoding.
func TestEventIsEncodedOnce(t *testing.T) {
	t.Parallel()
	e := &hub.Entry{Event: &task.Event{Seq: 1}}
	var calls atomic.Int32
	proceed := make(chan struct{})
	encode := func(*task.Event) ([]byte, error) {
		<-proceed
		return []byte{byte(calls.Add(1))}, nil
	}
	var all errgroup.Group
	for range 10 {
		all.Go(func() error { _, err := e.Encoded(0, encode); return err })
	}
	close(proceed)
	require.NoError(t, all.Wait())
	require.Equal(t, []byte{1}, storetest.Must(e.Encoded(0, encode))(t))
	require.Equal(t, []byte{2}, storetest.Must(e.Encoded(1, encode))(t), "for another version")
	failing := errors.New("no")
	_, err := e.Encoded(3, func(*task.Event) ([]byte, error) { return nil, failing })
	require.ErrorIs(t, err, failing)
}
