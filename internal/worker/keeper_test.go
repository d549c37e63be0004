package worker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/inmemory"
)

// keep runs a keeper for the rest of the test.
func keep(t *testing.T, o worker.KeeperOptions) *worker.Keeper {
	t.Helper()
	k := worker.NewKeeper(o)
	require.NoError(t, k.Start(t.Context()))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = k.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		k.Stop(context.Background())
		require.True(t, k.ID().IsZero())
	})
	return k
}

func openStore(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: url, APIConns: 2})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func TestKeeperRescuesRunsOfDeadProcesses(t *testing.T) {
	t.Parallel()
	p := start(t, setup{})
	h := p.create("a", "x")
	dead := store.NewID()
	require.NoError(t, p.store.Register(t.Context(), store.Process{ID: dead, Name: "dead"}, 0))
	won, err := p.store.Claim(t.Context(), dead, []store.Demand{{Agent: "a", Slots: 1}})
	require.NoError(t, err)
	require.Len(t, won, 1)
	rescued, peers := make(chan int, 9), make(chan int, 99)
	k := keep(t, worker.KeeperOptions{
		Store: p.store, Process: store.Process{Name: "alive"}, TTL: 600 * time.Millisecond, Grace: time.Millisecond,
		Rescued: func(n int) { rescued <- n },
		OnPeers: func(n int) { peers <- n },
	})
	require.True(t, k.Healthy())
	require.Equal(t, 1, await(t, rescued))
	eventually(t, "only the pool's own process counts", func() bool { return await(t, peers) == 1 })
	owned, err := p.store.Owned(t.Context(), dead)
	require.NoError(t, err)
	require.Empty(t, owned)
	log := p.log(h)
	require.Equal(t, task.RunLost, log[len(log)-1].Run.Outcome)
	require.Equal(t, dead.String(), log[len(log)-1].Run.Worker)
}

func TestDeadProcessRegistersAgain(t *testing.T) {
	t.Parallel()
	s := openStore(t, storetest.New(t).URL)
	lost := make(chan struct{}, 9)
	k := keep(t, worker.KeeperOptions{Store: s, TTL: 600 * time.Millisecond, OnLost: func() { lost <- struct{}{} }})
	old := k.ID()
	require.False(t, old.IsZero())
	require.NoError(t, s.Unregister(t.Context(), old))
	await(t, lost)
	eventually(t, "it has another id", func() bool { id := k.ID(); return !id.IsZero() && id != old })
	eventually(t, "only the new id counts", func() bool {
		n, err := s.Processes(t.Context())
		require.NoError(t, err)
		return n == 1
	})
}

// failingRenewals is a database that is down for renewals.
type failingRenewals struct {
	*store.Store
	away    atomic.Bool
	rescues atomic.Int64
	first   atomic.Int64 // when the first rescue came, in Unix nanoseconds
}

func (s *failingRenewals) Renew(ctx context.Context, id task.ID, ttl time.Duration) error {
	if s.away.Load() {
		return task.Unavailable
	}
	return s.Store.Renew(ctx, id, ttl)
}

func (s *failingRenewals) Rescue(ctx context.Context, grace time.Duration, scan bool) ([]string, []store.Rescued, error) {
	s.first.CompareAndSwap(0, time.Now().UnixNano())
	s.rescues.Add(1)
	return s.Store.Rescue(ctx, grace, scan)
}

// A process that cannot renew is not dead, and does not declare others dead.
func TestKeeperWaitsDuringOutage(t *testing.T) {
	t.Parallel()
	s := &failingRenewals{Store: openStore(t, storetest.New(t).URL)}
	s.away.Store(true)
	k := keep(t, worker.KeeperOptions{Store: s, TTL: 600 * time.Millisecond, OnLost: func() { t.Error("OnLost was called, but the process was not declared dead") }})
	id := k.ID()
	eventually(t, "it notices", func() bool { return !k.Healthy() })
	require.Zero(t, s.rescues.Load())
	s.away.Store(false)
	eventually(t, "it is healthy", k.Healthy)
	require.Equal(t, id, k.ID())
	eventually(t, "the keeper rescues again", func() bool { return s.rescues.Load() > 0 })
}

// A promoted standby may have been up for days, so the uptime of the database says nothing about the
// leases that expired during a failover. A keeper that has just registered leaves them alone.
func TestNewKeeperRescuesNobodyAtOnce(t *testing.T) {
	t.Parallel()
	s := &failingRenewals{Store: openStore(t, storetest.New(t).URL)}
	const ttl = 3 * time.Second
	began := time.Now()
	keep(t, worker.KeeperOptions{Store: s, TTL: ttl, Grace: time.Millisecond})
	eventually(t, "the keeper rescues", func() bool { return s.rescues.Load() > 0 })
	require.GreaterOrEqual(t, time.Unix(0, s.first.Load()).Sub(began), ttl, "others had the time to renew")
}

// hangingRescue is a database that does not answer a rescue.
type hangingRescue struct {
	*store.Store
	renewals atomic.Int64
}

func (s *hangingRescue) Renew(ctx context.Context, id task.ID, ttl time.Duration) error {
	s.renewals.Add(1)
	return s.Store.Renew(ctx, id, ttl)
}

func (s *hangingRescue) Rescue(ctx context.Context, _ time.Duration, _ bool) ([]string, []store.Rescued, error) {
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// A silently dead connection must not cost the lease.
func TestHangingStatementDoesNotDelayRenewal(t *testing.T) {
	t.Parallel()
	s := &hangingRescue{Store: openStore(t, storetest.New(t).URL)}
	keep(t, worker.KeeperOptions{Store: s, TTL: 600 * time.Millisecond})
	eventually(t, "it renews on", func() bool { return s.renewals.Load() >= 3 })
}

// A scan that takes long is followed by a rest, because its rows may be dead ones that vacuum cannot remove. Cancels are
// found meanwhile.
func TestSlowScansRest(t *testing.T) {
	t.Parallel()
	slow := &scans{takes: time.Second}
	a := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	a.Concurrency = 2
	p := start(t, setup{wrap: func(s *store.Store) worker.Store { slow.Store = s; return slow }}, a)
	p.deaf.Store(true)
	h := p.create("a", "x")
	p.become(h, task.StateWorking)
	began := time.Now()
	require.NoError(t, p.pool.Reconcile(t.Context()))
	p.reserve().Release(task.Unavailable) // a reason to scan
	_, err := p.store.Cancel(t.Context(), h, nil)
	require.NoError(t, err)
	rests := time.Since(began) < 2*slow.takes-slow.takes/4
	require.NoError(t, p.pool.Reconcile(t.Context()))
	p.become(h, task.StateCanceled)
	if rests { // on a slow machine its rest may be over; TestScansNeedAReason has its length
		require.Equal(t, int32(1), slow.number.Load())
	}
}

// A scan may read many dead rows. It is rare without a reason, which is a claim or a create without an answer, or a run whose
// end was not recorded.
func TestScansNeedAReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := &scans{Store: inmemory.New(inmemory.Listener{})}
		pool := worker.New(worker.Options{
			Store: seen, Agents: []worker.Agent{{Name: "a", Concurrency: 1}}, Worker: func() task.ID { return task.ID{1} },
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = pool.Run(ctx) })
		during := func(d time.Duration) int {
			before := seen.number.Load()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				require.NoError(t, pool.Reconcile(t.Context()))
			}
			return int(seen.number.Load() - before)
		}
		require.Equal(t, 1, during(15*time.Second))
		require.Equal(t, 4, during(time.Minute))
		seen.fails.Store(true)
		time.Sleep(5 * time.Second)
		seen.fails.Store(false)
		require.Equal(t, 30, during(30*time.Second), "as long as a lost claim may still be committed")
		seen.takes = time.Second
		require.Equal(t, 3, during(20*time.Second), "its rests grow")
		seen.takes = 0
		time.Sleep(15 * time.Second)
		seen.fails.Store(true)
		failed := 0
		for range 12 {
			if pool.Reconcile(t.Context()) != nil {
				failed++
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, 3, failed, "scans, and not all reads")
		stop()
		running.Wait()
	})
}

// scans is a database that counts scans and delays them, as with many dead rows. Its claims and scans may fail.
type scans struct {
	worker.Store
	takes  time.Duration
	number atomic.Int32
	fails  atomic.Bool
}

func (s *scans) Owned(ctx context.Context, w task.ID) ([]store.Owned, error) {
	s.number.Add(1)
	time.Sleep(s.takes)
	if s.fails.Load() {
		return nil, task.Unavailable
	}
	return s.Store.Owned(ctx, w)
}

func (s *scans) Claim(ctx context.Context, w task.ID, want []store.Demand) ([]*store.Claimed, error) {
	if s.fails.Load() {
		return nil, task.Unavailable
	}
	return s.Store.Claim(ctx, w, want)
}

// unresponsive is a database whose renewals fail, or hang whatever their context says.
type unresponsive struct{ hang chan struct{} }

func (unresponsive) Register(context.Context, store.Process, time.Duration) error { return nil }
func (u unresponsive) Renew(context.Context, task.ID, time.Duration) error {
	if u.hang != nil {
		<-u.hang
	}
	return errors.New("away")
}
func (unresponsive) Unregister(context.Context, task.ID) error { return nil }
func (unresponsive) Processes(context.Context) (int, error)    { return 1, nil }
func (unresponsive) Rescue(context.Context, time.Duration, bool) ([]string, []store.Rescued, error) {
	return nil, nil, nil
}

// A watchdog that ended processes during an outage would end their runs.
func TestKeeperIsStuckOnlyWhenItsLoopIs(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var db unresponsive
			if hangs {
				db.hang = make(chan struct{})
				defer close(db.hang)
			}
			k := worker.NewKeeper(worker.KeeperOptions{Store: db})
			require.NoError(t, k.Start(t.Context()))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() { _ = k.Run(ctx) }()
			time.Sleep(20 * time.Second)
			require.False(t, k.Stuck())
			time.Sleep(time.Minute)
			require.False(t, k.Healthy() && !hangs)
			require.Equal(t, hangs, k.Stuck())
		})
	}
}
