package worker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// leases is the part of the database that the keeper needs.
type leases interface {
	Register(ctx context.Context, p store.Process, ttl time.Duration) error
	Renew(ctx context.Context, id task.ID, ttl time.Duration) error
	Unregister(ctx context.Context, id task.ID) error
	Processes(ctx context.Context) (int, error)
	Rescue(ctx context.Context, grace time.Duration, scan bool) (dead []string, runs []store.Rescued, err error)
}

// KeeperOptions configures a Keeper. The zero value of a duration means its default.
type KeeperOptions struct {
	Store   leases
	Process store.Process // the keeper chooses its ID
	TTL     time.Duration // of the lease; default 10 s
	Grace   time.Duration // how long after its expiry others leave a lease alone; default 2 s
	Log     *slog.Logger
	OnPeers func(others int)
	OnLost  func() // called when the process was declared dead
	Rescued func(runs int)
}

// Keeper renews the process's lease and rescues the runs of dead processes.
type Keeper struct {
	opt     KeeperOptions
	id      atomic.Pointer[task.ID]
	healthy atomic.Int64 // unix nanoseconds of the first of the unbroken renewals; 0 while they fail
	renewed atomic.Int64 // unix nanoseconds at which the last renewal that succeeded was sent
	turned  atomic.Int64 // unix nanoseconds of the last turn of Run
	peers   atomic.Int64
	scan    store.Pace
}

// NewKeeper returns a keeper. Start registers its process.
func NewKeeper(o KeeperOptions) *Keeper {
	if o.TTL == 0 {
		o.TTL = 10 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Keeper{opt: o}
}

// ID returns the process's current id, zero while it has none.
func (k *Keeper) ID() task.ID {
	if id := k.id.Load(); id != nil {
		return *id
	}
	return task.ID{}
}

// Healthy reports whether the lease is being renewed.
func (k *Keeper) Healthy() bool { return k.healthy.Load() != 0 }

// Margin returns the time until the lease may expire. It is negative if it has.
func (k *Keeper) Margin() time.Duration {
	return k.opt.TTL - time.Since(time.Unix(0, k.renewed.Load()))
}

// Stuck reports whether Run has not come round for longer than its statements may take. An outage of the database is no
// reason: statements fail, and Run comes round.
func (k *Keeper) Stuck() bool {
	return time.Since(time.Unix(0, k.turned.Load())) > 2*k.opt.TTL+10*time.Second
}

// Processes returns how many processes had a lease at the last renewal, this one included.
func (k *Keeper) Processes() int { return int(k.peers.Load()) + 1 }

// Start registers the process under a new id.
func (k *Keeper) Start(ctx context.Context) error {
	sent := time.Now()
	p := k.opt.Process
	p.ID = store.NewID()
	if err := k.opt.Store.Register(ctx, p, k.opt.TTL); err != nil {
		return err
	}
	k.id.Store(&p.ID)
	k.renewed.Store(sent.UnixNano())
	k.healthy.Store(time.Now().UnixNano())
	k.turned.Store(time.Now().UnixNano())
	return nil
}

// Run renews the lease and rescues until ctx ends. It does not give the lease up; Stop does, after
// the last run has ended.
func (k *Keeper) Run(ctx context.Context) error {
	var renewed, rescued time.Time
	renewed = time.Now()
	for {
		select {
		case <-time.After(700*time.Millisecond + rand.N(600*time.Millisecond)):
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		k.turned.Store(now.UnixNano())
		if now.Sub(renewed) >= k.opt.TTL/3 || !k.Healthy() {
			if !k.renew(ctx) {
				continue
			}
			renewed = now
		}
		// The first process back after a database outage must not declare the others dead. A process
		// that has just started cannot know whether there was one: the uptime of a promoted standby
		// does not show the failover.
		since := k.healthy.Load()
		settled := since != 0 && now.Sub(time.Unix(0, since)) >= k.opt.TTL
		if !settled || now.Sub(rescued) < k.opt.TTL/3 {
			continue
		}
		rescued = now
		k.bounded(ctx, k.rescue)
	}
}

// bounded limits the time of a statement. A statement that hangs, for example on a silently dead
// connection, would otherwise delay the next renewal until the lease has expired.
func (k *Keeper) bounded(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, max(k.opt.TTL/3, time.Second))
	defer cancel()
	do(ctx)
}

func (k *Keeper) renew(ctx context.Context) (ok bool) {
	k.bounded(ctx, func(ctx context.Context) { ok = k.tryRenew(ctx) })
	return ok
}

func (k *Keeper) tryRenew(ctx context.Context) bool {
	var err error
	sent := time.Now()
	if id := k.ID(); id.IsZero() {
		err = k.Start(ctx)
	} else {
		err = k.opt.Store.Renew(ctx, id, k.opt.TTL)
	}
	switch {
	case errors.Is(err, task.LeaseLost):
		k.opt.Log.Warn("this process was declared dead and its runs are fenced; registering under a new id", "worker", k.ID().String())
		k.id.Store(nil)
		k.healthy.Store(0)
		if k.opt.OnLost != nil {
			k.opt.OnLost()
		}
		return false
	case err != nil:
		if k.healthy.Swap(0) != 0 && !errors.Is(ctx.Err(), context.Canceled) {
			k.opt.Log.Warn("cannot renew the lease; runs continue and their writes wait for the database", "error", err)
		}
		return false
	}
	k.renewed.Store(sent.UnixNano())
	if k.healthy.CompareAndSwap(0, time.Now().UnixNano()) {
		k.opt.Log.Info("the lease is renewed again")
	}
	if n, err := k.opt.Store.Processes(ctx); err == nil {
		k.peers.Store(int64(n - 1))
		if k.opt.OnPeers != nil {
			k.opt.OnPeers(n - 1)
		}
	}
	return true
}

func (k *Keeper) rescue(ctx context.Context) {
	begun := time.Now()
	scan := k.scan.Due(begun)
	dead, runs, err := k.opt.Store.Rescue(ctx, k.opt.Grace, scan)
	if err == nil && len(runs) == 0 { // otherwise there may be more
		k.scan.Looked(begun, 0)
	}
	if len(dead) > 0 {
		k.opt.Log.Warn("declared processes dead that stopped renewing their leases", "processes", dead)
	}
	if len(runs) > 0 {
		k.opt.Log.Warn("rescued the runs of dead processes", "runs", len(runs))
		if k.opt.Rescued != nil {
			k.opt.Rescued(len(runs))
		}
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		k.opt.Log.Warn("rescue failed; retrying", "error", err)
	}
}

// Stop gives up the lease.
func (k *Keeper) Stop(ctx context.Context) {
	if id := k.id.Swap(nil); id != nil {
		if err := k.opt.Store.Unregister(ctx, *id); err != nil {
			k.opt.Log.Warn("could not release the lease; it will expire", "error", err)
		}
	}
}
