package worker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Visit is one request of the run API, in the name of an attempt that a worker of any process has. It knows nothing of that
// process: the database tells it the attempt, and fences what it writes. Only one goroutine may use it.
type Visit struct {
	run   *run
	found *store.Run
	// Run is what the executor of the attempt was told. Without the message, Message has no content.
	Run *executor.Run
}

// Over says that an attempt is over.
type Over struct {
	// State is that of the task, if this was its newest attempt. Otherwise another attempt has followed.
	State  task.State
	Newest bool
	Posted int64 // how many events of the newest attempt were posted
}

func (o *Over) Error() string {
	if o.Newest {
		return "the run is over: the task is " + o.State.String()
	}
	return "the run is over: another attempt at the task has followed"
}

// Visit begins a visit to the run that was claimed at a time (Fence.ClaimedAt); ctx is that of the whole visit. Errors: Over,
// task.NotFound for a deleted task, task.Unavailable.
func (p *Pool) Visit(ctx context.Context, id task.ID, claimedAt int64, withMessage bool) (*Visit, error) {
	found, err := p.opt.Store.FindRun(ctx, id, withMessage)
	if err != nil {
		return nil, err
	}
	if found.ClaimedAt != claimedAt || !found.Owned {
		return nil, &Over{State: found.Task.Status.State, Newest: found.ClaimedAt == claimedAt, Posted: posted(found)}
	}
	if found.Unreadable != nil {
		return nil, found.Unreadable
	}
	r, err := p.elsewhere(ctx, found.Claimed)
	if err != nil {
		return nil, err
	}
	r.claimed = found.Since
	r.out.ordinal, r.out.stored = posted(found), posted(found)
	r.out.placement.posted = func(ctx context.Context, artifact string) (bool, error) {
		return p.opt.Store.Begun(ctx, found.Task.ID, found.Attempt, artifact)
	}
	var in *executor.Input
	if withMessage {
		if in, err = r.input(); err != nil {
			return nil, err
		}
	}
	return &Visit{run: r, found: found, Run: r.execution(in)}, nil
}

// elsewhere returns a run whose agent is not in this process, to act for it during ctx.
func (p *Pool) elsewhere(ctx context.Context, c *store.Claimed) (*run, error) {
	slots := p.agents[c.Task.Agent]
	if slots == nil {
		return nil, task.Errorf(task.Unavailable, "this replica does not serve the agent %s", c.Task.Agent)
	}
	r := newRun(p, slots, c)
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.begun = true
	r.out.visit, r.out.bare = true, r.out.started
	return r, nil
}

// posted returns how many events of an attempt the run API has written.
func posted(r *store.Run) int64 {
	if !r.Posted {
		return 0
	}
	return r.Ordinal
}

// Posts reports whether the run API writes the events of the run.
func (v *Visit) Posts() bool { return v.found.Posted }

// Answered reports whether the worker of the run has written events of its agent, besides the status working.
func (v *Visit) Answered() bool { return !v.found.Posted && v.found.Ordinal > 1 }

// Live ends with the visit, and when the attempt turns out to be over.
func (v *Visit) Live() context.Context { return v.run.ctx }

// Close ends the visit. Events that are not committed yet will be.
func (v *Visit) Close() { v.run.cancel(nil) }

// Agent returns the limits of the agent.
func (v *Visit) Agent() *Agent { return v.run.agent }

// Task returns the header of the task.
func (v *Visit) Task() *task.Task { return v.found.Task }

// Claimed returns the attempt as its worker has claimed it.
func (v *Visit) Claimed() *store.Claimed { return v.found.Claimed }

// Next returns the ordinal of the next event: the number of those that were posted, with those of this visit.
func (v *Visit) Next() int64 {
	e := v.run.out
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(e.stored, e.ordinal)
}

// At begins the event with an ordinal, and returns the emitter for it.
func (v *Visit) At(ordinal int64) executor.Emitter {
	e := v.run.out
	e.mu.Lock()
	e.position = ordinal + 1
	e.mu.Unlock()
	return e
}

// Flush blocks until all events are committed and counted. Errors: task.LeaseLost, store.ErrPosted if another upload has
// come between, that of an event which the database refused.
func (v *Visit) Flush(ctx context.Context) error {
	e := v.run.out
	if err := e.await(ctx, context.Background()); err != nil {
		return err
	}
	e.mu.Lock()
	from, to, over := e.ordinal, e.position, e.settled != task.StateUnspecified || e.closed
	e.mu.Unlock()
	if over || to <= from {
		return nil
	}
	if _, err := v.run.pool.opt.Store.Beat(ctx, v.found.Task.ID, v.found.Fence, from, to); err != nil {
		return err
	}
	e.mu.Lock()
	e.ordinal, e.stored = to, to
	e.mu.Unlock()
	return nil
}

// Committed returns how many events are known to be committed and counted.
func (v *Visit) Committed() int64 {
	e := v.run.out
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stored
}

// Settled reports whether an event has ended the run.
func (v *Visit) Settled() bool {
	_, settled := v.run.out.settledIn()
	return settled
}

// Spent reports whether the artifacts of the task exceed their limit, which ends the run.
func (v *Visit) Spent() bool { return v.run.out.spent.Load() }

// End ends the run as if its executor had returned err: a retryable error, or one of a limit.
func (v *Visit) End(err error) error {
	if v.run.agent.Remote && v.found.CancelRequested {
		v.run.interrupt(executor.ErrCanceled) // no worker may be there to claim it again
	}
	outcome, err := v.run.conclude(err)
	if outcome == outcomeLost {
		return task.LeaseLost
	}
	v.run.pool.opt.Log.Info("the run API ended a run", "task_id", v.found.Task.PublicID, "agent", v.run.agent.Name,
		"attempt", int(v.found.Attempt), "outcome", outcome, "error", err)
	return nil
}

// Heartbeat notes a sign of life, and reports whether the run was asked to end. Errors: task.LeaseLost.
func (v *Visit) Heartbeat(ctx context.Context) (canceled bool, err error) {
	return v.run.pool.opt.Store.Beat(ctx, v.found.Task.ID, v.found.Fence, -1, 0)
}

// request returns the id of a write to a state. That of a posted event is the same when it is posted again.
func (e *emitter) request() task.ID {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.visit || e.position == 0 {
		return store.NewID()
	}
	id := e.r.claim.Task.ID
	of := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(id[:], uint64(e.r.claim.ClaimedAt)), uint64(e.position))
	sum := sha256.Sum256(of)
	return task.ID(sum[:16])
}
