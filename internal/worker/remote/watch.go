package remote

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	workers "github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Watch is what a process does about remote workers and their runs, each second, whether or not workers are connected to it.
type Watch struct {
	o       WatchOptions
	limits  map[string]store.RemoteLimits
	names   []string
	absence absence
	scan    store.Pace
	forgot  time.Time
	swept   time.Time
}

const (
	// keepWorkers is how long a worker stays in the lists after it was seen last.
	keepWorkers = 7 * 24 * time.Hour
	forgetEvery = 10 * time.Minute
	// longestLease is the longest that a configuration may have.
	longestLease = time.Hour
	// sweepEvery is the time between two looks for leases of agents that are not remote any more.
	sweepEvery = time.Minute
)

// WatchOptions configures a Watch.
type WatchOptions struct {
	Store Store
	Pool  *workers.Pool
	// Leases has the remote agents.
	Leases map[string]time.Duration
	// Healthy returns for how long the lease of this process has been renewed without a break. After an outage of the database all
	// leases have run out, so a process lets workers renew theirs first.
	Healthy func() time.Duration
	// Process returns the id of this process; zero while it has none.
	Process func() task.ID
	Expired func(runs int)
	// API is that of this process, or nil.
	API *API
}

// NewWatch makes a Watch. Without remote agents it frees the runs that an earlier configuration has lent.
func NewWatch(o WatchOptions) *Watch {
	w := &Watch{o: o, limits: map[string]store.RemoteLimits{}, absence: absence{away: map[string]bool{}}}
	for name, a := range o.Pool.RemoteAgents() {
		w.names = append(w.names, name)
		w.limits[name] = store.RemoteLimits{Grace: a.CancelGrace, Timeout: a.RunTimeout, Inactivity: a.InactivityTimeout}
	}
	w.absence.next = time.Now().Add(absentEvery) // workers connect again after a restart
	return w
}

// Run frees runs whose lease has expired, ends those whose time is over, and looks after the workers. It is not safe for
// concurrent use.
func (w *Watch) Run(ctx context.Context) (more bool, err error) {
	process := w.o.Process()
	if process.IsZero() {
		return false, nil
	}
	errs := []error{}
	begun := time.Now()
	if w.scan.Due(begun) {
		if more, err = w.leases(ctx); err == nil && !more {
			w.scan.Looked(begun, 0)
		}
		errs = append(errs, err)
	}
	if len(w.names) > 0 {
		errs = append(errs, w.absence.look(ctx, w.o.Store, process, w.names, func(agent string, awayFor time.Duration) {
			if a := w.o.Pool.RemoteAgents()[agent]; a != nil && awayFor >= a.UnreachableFor {
				w.o.Pool.Expire(agent)
			}
		}))
	}
	if begun.Sub(w.forgot) > forgetEvery {
		w.forgot = begun
		_, err := w.o.Store.ForgetRemote(ctx, keepWorkers) // what is left goes with the next ones
		errs = append(errs, err)
	}
	if w.o.API != nil {
		freed, err := w.o.API.record(ctx)
		if freed > 0 {
			w.o.Expired(freed)
		}
		errs = append(errs, err)
	}
	return more, errors.Join(errs...)
}

func (w *Watch) leases(ctx context.Context) (more bool, err error) {
	settled := []string{}
	for name, lease := range w.o.Leases {
		if w.o.Healthy() >= lease {
			settled = append(settled, name)
		}
	}
	others := w.o.Healthy() >= longestLease && time.Since(w.swept) >= sweepEvery
	if len(settled) > 0 || others {
		freed, err := w.o.Store.ExpireRemote(ctx, settled, others)
		if err != nil {
			return false, err
		}
		if others {
			w.swept = time.Now()
		}
		if len(freed) > 0 {
			w.o.Expired(len(freed))
		}
	}
	if len(w.limits) == 0 {
		return false, nil
	}
	overdue, err := w.o.Store.LookRemote(ctx, w.limits)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, o := range overdue {
		cause := executor.ErrInactivity
		switch {
		case o.Canceled:
			cause = executor.ErrCanceled
		case o.TimedOut:
			cause = executor.ErrTimeout
		}
		errs = append(errs, end(ctx, w.o.Pool, o.LentRun, cause))
	}
	return len(overdue) > 0, errors.Join(errs...)
}

// end ends a run. A run that is over already is no error.
func end(ctx context.Context, pool *workers.Pool, run store.LentRun, cause error) error {
	v, err := pool.Visit(ctx, run.Task, run.ClaimedAt, false)
	if _, over := errors.AsType[*workers.Over](err); over || errors.Is(err, task.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer v.Close()
	if err := v.EndOf(cause); err != nil && !errors.Is(err, task.LeaseLost) {
		return err
	}
	return nil
}
