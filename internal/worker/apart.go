package worker

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// farewell is how long an executor may go on after the run API has ended its run: the agent may be about to finish its
// answer.
const farewell = time.Second

// over ends a run whose attempt is over in the database: its agent has ended it through the run API, perhaps in another
// process. If another attempt runs already, the executor must not go on. It reports false if the run is ending by itself.
func (r *run) over(end store.Ending) bool {
	if end.Fence != r.claim.Fence {
		r.interrupt(executor.ErrLeaseLost)
		return true
	}
	if !r.out.endApart(end) {
		return false
	}
	close(r.apart)
	time.AfterFunc(farewell, func() { r.interrupt(executor.ErrEnded) })
	return true
}

// fenced ends a run whose write was refused. Another worker has the task, or the run API has ended the attempt before the
// hint of that came.
func (r *run) fenced() {
	ctx, cancel := context.WithTimeout(r.ctx, claimTimeout)
	defer cancel()
	id := r.claim.Task.ID
	ended, err := r.pool.opt.Store.Ended(ctx, map[task.ID]task.Fence{id: r.claim.Fence})
	if end, ok := ended[id]; err != nil || !ok || !r.over(end) {
		r.interrupt(executor.ErrLeaseLost)
	}
}

// endApart refuses further emissions, because the run is over. It reports false if the run is ending by itself.
func (e *emitter) endApart(end store.Ending) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.settled != task.StateUnspecified || e.closed {
		return false
	}
	e.settled = end.State
	switch {
	case end.State.Parked():
		e.apart = outcomeParked
	case end.State.Settled():
		e.apart = end.State.String()
	case end.Waits:
		e.settled, e.apart = task.StateWorking, outcomeWaits
	default: // in the queue
		e.settled, e.apart = task.StateWorking, outcomeRetried
	}
	return true
}

// endedApart returns the outcome of a run that the run API has ended, or "".
func (e *emitter) endedApart() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.apart
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
