package worker

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// handOver makes the run API the writer of the run, and blocks until it has ended the run, perhaps in another process. From
// then on the executor must emit nothing.
func (r *run) handOver(ctx context.Context) error {
	if err := r.out.Committed(ctx); err != nil {
		return err
	}
	// Before the statement: the agent may post all events before its answer comes.
	r.out.mu.Lock()
	r.out.ending = true
	r.out.mu.Unlock()
	err := r.untilAvailable(ctx, func() error { return r.pool.opt.Store.HandOver(ctx, r.claim.Task.ID, r.claim.Fence) })
	if err != nil {
		return err
	}
	select {
	case <-r.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endedBy ends a run whose attempt is over in the database, unless it is ending by itself. If the run API writes it, its executor
// has nothing to wait for any more. Otherwise the executor must not go on.
func (r *run) endedBy(end store.Ending) {
	e := r.out
	e.mu.Lock()
	defer e.mu.Unlock()
	going := e.settled == task.StateUnspecified && !e.closed
	switch {
	case end.Fence != r.claim.Fence, going && !e.ending:
		r.interrupt(executor.ErrLeaseLost)
		return
	case !going:
		return
	}
	e.settled = end.State
	switch {
	case end.State.Parked():
		e.elsewhere = outcomeParked
	case end.State.Settled():
		e.elsewhere = end.State.String()
	case end.Waits:
		e.settled, e.elsewhere = task.StateWorking, outcomeWaits
	default: // in the queue
		e.settled, e.elsewhere = task.StateWorking, outcomeRetried
	}
	close(r.over)
}

// endedElsewhere returns the outcome of a run that the run API has ended, or "".
func (e *emitter) endedElsewhere() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.elsewhere
}

// silent reports whether the agent has not called the run API either. While the database does not say, it is not silent.
func (r *run) silent() bool {
	if r.pool.opt.RunAPI == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(r.ctx, claimTimeout)
	defer cancel()
	d, never, err := r.pool.opt.Store.Silence(ctx, r.claim.Task.ID, r.claim.Fence)
	switch {
	case err != nil:
		r.pool.opt.Log.Debug("could not check whether an agent is silent", "task_id", r.claim.Task.PublicID, "error", err)
		return false
	case never || d > r.agent.InactivityTimeout:
		return true
	}
	r.out.last.Store(time.Now().Add(-d).UnixNano())
	return false
}
