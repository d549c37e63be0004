package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Canceler is an Executor that is told when something else than itself ends its work. Implement it if that work may go on
// elsewhere: a job in a queue, a process on another machine, a call to a person.
//
// Cancel is called at least once for a task that was canceled or has expired after the agent has begun a run of it: also if
// no run lives, because the agent has asked something or waits, and also after a crash. If it returns an error, it is called
// again, with growing pauses, for as long as the agent's unreachable_for; Retryable chooses the next pause. A Failure means
// that there is no use in another call.
//
// For the other reasons, the process that had the run calls Cancel at most once.
//
// If there was a run, its context has ended before. Its Execute has returned, unless that took longer than the agent's
// cancel_grace. Cancel may run in another process than Execute did, and has about 5 seconds.
type Canceler interface {
	Cancel(ctx context.Context, c *Cancellation) error
}

// Reason says why an agent's work has ended.
type Reason string

// The reasons. LeaseLost and Stopping end an attempt: another run goes on with the same message. With the others, the task
// has ended.
const (
	ReasonCanceled  = Reason(executor.ReasonCanceled)  // a client or an operator has canceled the task
	ReasonExpired   = Reason(executor.ReasonExpired)   // the task waited for its client for longer than expire_parked_after
	ReasonTimedOut  = Reason(executor.ReasonTimedOut)  // the run took longer than run_timeout
	ReasonInactive  = Reason(executor.ReasonInactive)  // the agent was silent for longer than inactivity_timeout
	ReasonLimit     = Reason(executor.ReasonLimit)     // the artifacts exceed limits.max_artifacts
	ReasonDeleted   = Reason(executor.ReasonDeleted)   // the task was deleted
	ReasonLeaseLost = Reason(executor.ReasonLeaseLost) // the server has lost the task to another replica
	ReasonStopping  = Reason(executor.ReasonStopping)  // the server stops, or the worker of Connect
	ReasonOver      = Reason(executor.ReasonOver)      // the server has ended the run of a worker of Connect, as ErrOver says
)

// Ended reports whether the task has ended, and not only an attempt.
func (r Reason) Ended() bool { return executor.Reason(r).Ended() }

// Cancellation is what an agent is told about the end of its work.
type Cancellation struct {
	Reason     Reason
	TaskID     string
	TaskKey    string // for memory of the task outside of Holdfast; TaskID may be that of another caller, too
	ContextID  string
	ContextKey string // for memory of the context, which no other caller or agent has; clients choose ContextID
	Agent      string // the name under which the agent is configured
	Tenant     string
	Owner      string
	Turn       int // of the newest run that the agent has begun
	Attempt    int // of that run
	Try        int // 1 for the first call about this cancel
	// Metadata is that of the request that canceled the task, or nil.
	Metadata json.RawMessage

	of *executor.Cancellation
}

// IdempotencyKey is that of the newest run that the agent has begun: its Run.IdempotencyKey.
func (c *Cancellation) IdempotencyKey() string {
	if c.of == nil {
		return ""
	}
	return c.of.IdempotencyKey()
}

// Checkpoint decodes the newest checkpoint that a run of the task has stored into v, and reports whether there is one. It
// may be that of an earlier turn.
func (c *Cancellation) Checkpoint(v any) (bool, error) {
	if c.of == nil || c.of.Checkpoint == nil {
		return false, nil
	}
	if err := json.Unmarshal(c.of.Checkpoint, v); err != nil {
		return false, fmt.Errorf("decode the checkpoint: %w", err)
	}
	return true, nil
}

// State decodes the state that a run has stored with Run.SetState into v, and reports whether there is one.
func (c *Cancellation) State(ctx context.Context, of Scope, v any) (bool, error) {
	if c.of == nil {
		return false, nil
	}
	s, err := c.of.Stored(ctx, executor.Scope(of))
	if err != nil {
		return false, fmt.Errorf("read the state: %w", err)
	}
	if s.Value == nil {
		return false, nil
	}
	if err := json.Unmarshal(s.Value, v); err != nil {
		return false, fmt.Errorf("decode the state: %w", err)
	}
	return true, nil
}

// canceler is an adapted Executor with a Cancel method.
type canceler struct {
	executor.Executor
	to Canceler
}

// Cancel implements executor.Canceler.
func (a canceler) Cancel(ctx context.Context, c *executor.Cancellation) error {
	return a.to.Cancel(ctx, fromCancellation(c))
}

func fromCancellation(c *executor.Cancellation) *Cancellation {
	return &Cancellation{
		Reason: Reason(c.Reason), TaskID: c.TaskID, TaskKey: c.Keys.Task, ContextID: c.ContextID, ContextKey: c.Keys.Context,
		Agent: c.Agent, Tenant: c.Tenant, Owner: c.Owner,
		Turn: c.Turn, Attempt: int(c.Attempt), Try: c.Try, Metadata: c.Metadata, of: c,
	}
}
