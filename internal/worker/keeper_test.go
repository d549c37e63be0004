package worker_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// ttl is the default of a keeper.
const ttl = 10 * time.Second

// processes is the table of leases. Its statements are tested in package store; here it keeps the time of a bubble.
type processes struct {
	mu      sync.Mutex
	until   map[task.ID]time.Time
	runs    map[task.ID]int
	down    error         // of renewals
	hang    chan struct{} // renewals wait for it, whatever their context says
	mute    bool          // rescues get no answer
	renewed int
	rescued []time.Time
}

func newProcesses() *processes {
	return &processes{until: map[task.ID]time.Time{}, runs: map[task.ID]int{}}
}

func (p *processes) Register(_ context.Context, of store.Process, ttl time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until[of.ID] = time.Now().Add(ttl)
	return p.down
}

func (p *processes) Renew(_ context.Context, id task.ID, ttl time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hang := p.hang; hang != nil {
		p.mu.Unlock()
		<-hang
		p.mu.Lock()
	}
	if _, alive := p.until[id]; !alive && p.down == nil {
		return task.LeaseLost
	}
	if p.down == nil {
		p.until[id] = time.Now().Add(ttl)
		p.renewed++
	}
	return p.down
}

func (p *processes) Unregister(_ context.Context, id task.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.until, id)
	return nil
}

func (p *processes) Processes(context.Context) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.until), nil
}

func (p *processes) Rescue(ctx context.Context, grace time.Duration, _ bool) (dead []string, runs []store.Rescued, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rescued = append(p.rescued, time.Now())
	if p.mute {
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		return nil, nil, ctx.Err()
	}
	for id, until := range p.until {
		if time.Now().After(until.Add(grace)) {
			dead = append(dead, id.String())
			runs = append(runs, make([]store.Rescued, p.runs[id])...)
			delete(p.until, id)
		}
	}
	return dead, runs, nil
}

// set changes the table.
func (p *processes) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// rescues are the times of all rescues.
func (p *processes) rescues() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.rescued)
}

// keep runs a keeper in a bubble, and checks that a stop gives up its lease.
func keep(t *testing.T, db *processes, o worker.KeeperOptions) *worker.Keeper {
	t.Helper()
	o.Store = db
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
		id := k.ID()
		k.Stop(context.Background())
		require.True(t, k.ID().IsZero())
		db.set(func() { require.NotContains(t, db.until, id) })
	})
	return k
}

// A keeper renews its lease three times in a TTL. It rescues the runs of dead processes, but not before others had a whole TTL
// to renew: a promoted standby may have been up for days, so the uptime of the database says nothing about the leases that
// expired during a failover.
func TestKeeperRescuesRunsOfDeadProcesses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := newProcesses()
		var peers, rescued atomic.Int32
		peers.Store(-1)
		dead := store.NewID()
		require.NoError(t, db.Register(t.Context(), store.Process{ID: dead}, 0))
		db.runs[dead] = 3
		began := time.Now()
		k := keep(t, db, worker.KeeperOptions{
			Grace: time.Second, OnPeers: func(n int) { peers.Store(int32(n)) }, Rescued: func(n int) { rescued.Add(int32(n)) },
			OnLost: func() { t.Error("this process is alive") },
		})
		require.True(t, k.Healthy())
		waittest.Advance(ttl - 1)
		require.EqualValues(t, 1, peers.Load())
		require.Empty(t, db.rescues())
		waittest.Advance(2 * time.Second)
		require.GreaterOrEqual(t, db.rescues()[0].Sub(began), ttl)
		require.EqualValues(t, 3, rescued.Load())
		waittest.Advance(ttl)
		require.Zero(t, peers.Load(), "the dead process does not count")
		require.Equal(t, 1, k.Processes())
		require.EqualValues(t, 3, rescued.Load())
		waittest.Advance(time.Hour)
		db.set(func() { require.InDelta(t, 3600/4, db.renewed, 150) })
		require.Greater(t, k.Margin(), ttl/2)
	})
}

func TestDeadProcessRegistersAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := newProcesses()
		var lost atomic.Int32
		k := keep(t, db, worker.KeeperOptions{OnLost: func() { lost.Add(1) }})
		old := k.ID()
		require.NoError(t, db.Unregister(t.Context(), old))
		waittest.Advance(ttl)
		require.EqualValues(t, 1, lost.Load())
		require.False(t, k.ID().IsZero())
		require.NotEqual(t, old, k.ID())
		db.set(func() { require.Len(t, db.until, 1, "only the new id counts") })
	})
}

// A process that cannot renew is not dead, and does not declare others dead. When the database is back, they get a whole TTL.
func TestKeeperWaitsDuringOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := newProcesses()
		k := keep(t, db, worker.KeeperOptions{OnLost: func() { t.Error("the process was not declared dead") }})
		id := k.ID()
		waittest.Advance(ttl / 2)
		db.set(func() { db.down = task.Unavailable })
		waittest.Advance(time.Hour)
		require.False(t, k.Healthy())
		require.Zero(t, k.HealthyFor())
		require.False(t, k.Stuck(), "a watchdog that ended processes during an outage would end their runs")
		require.Negative(t, k.Margin())
		require.Empty(t, db.rescues())
		db.set(func() { db.down = nil })
		waittest.Advance(2 * time.Second)
		require.True(t, k.Healthy())
		require.Equal(t, id, k.ID())
		back := time.Now().Add(-k.HealthyFor())
		waittest.Advance(ttl + ttl/3)
		require.NotEmpty(t, db.rescues())
		require.GreaterOrEqual(t, db.rescues()[0].Sub(back), ttl)
	})
}

// A silently dead connection must not cost the lease. A loop that does not come round is stuck.
func TestHangingStatements(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		db := newProcesses()
		db.mute = true
		k := keep(t, db, worker.KeeperOptions{})
		for range 100 {
			waittest.Advance(ttl)
			require.Positive(t, k.Margin())
		}
		require.NotEmpty(t, db.rescues())
		hang := make(chan struct{})
		db.set(func() { db.hang = hang })
		waittest.Advance(20 * time.Second)
		require.False(t, k.Stuck())
		waittest.Advance(time.Minute)
		require.True(t, k.Stuck())
		db.set(func() { db.hang = nil })
		close(hang)
	})
}

// A scan may read many dead rows that vacuum cannot remove. It is rare without a reason, which is a claim or a create without
// an answer, or a run whose end was not recorded. One that takes long is followed by a rest. Cancels are found meanwhile.
func TestScansNeedAReason(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		number, takes := 0, time.Duration(0)
		var fails atomic.Bool
		on := statements{
			"QueueClaim": func([]any) bool { return !fails.Load() },
			"RunsOwned": func([]any) bool {
				number++
				waittest.Advance(takes)
				return !fails.Load()
			},
		}
		a := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error { return waits(ctx) })
		a.Concurrency = 2
		p := startInBubble(t, setup{deaf: true, poll: time.Second, on: on}, a)
		waittest.Advance(0)
		during := func(d time.Duration) int {
			before := number
			for end := time.Now().Add(d); time.Now().Before(end); waittest.Advance(time.Second) {
				require.NoError(t, p.pool.Reconcile(t.Context()))
			}
			return number - before
		}
		require.Equal(t, 1, during(15*time.Second))
		require.Equal(t, 4, during(time.Minute))
		fails.Store(true)
		waittest.Advance(5 * time.Second)
		fails.Store(false)
		require.Equal(t, 30, during(30*time.Second), "as long as a lost claim may still be committed")
		takes = time.Second
		require.Equal(t, 3, during(20*time.Second), "its rests grow")
		h := p.create("a", "x")
		p.is(h, task.StateWorking)
		p.pool.Reserve("a").Release(task.Unavailable) // a reason to scan
		p.cancel(h)
		require.Zero(t, during(time.Second))
		p.is(h, task.StateCanceled)
		takes = 0
		waittest.Advance(45 * time.Second)
		fails.Store(true)
		failed := 0
		for range 12 {
			if err := p.pool.Reconcile(t.Context()); err != nil {
				require.ErrorIs(t, err, task.Unavailable)
				failed++
			}
			waittest.Advance(time.Second)
		}
		require.Equal(t, 3, failed, "scans, and not all reads")
	})
}
