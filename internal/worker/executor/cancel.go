package executor

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Canceler is an Executor that wants to be told when something else than itself ends its work, because the work may go on
// elsewhere.
//
// Cancel is called at least once for a task that was canceled or has expired after the agent has begun a run of it: also if
// no run lives, and also after a crash. An error means another call with backoff, for at most the agent's unreachable_for. A
// Failure that is not Retryable means no other call. For the other reasons, the worker that had the run calls Cancel at most
// once. ctx ends after a few seconds.
//
// If there was a run, its context has ended before. Its Execute has returned, unless that took longer than the agent's
// cancel_grace. Cancel may run on another process than Execute did.
type Canceler interface {
	Cancel(ctx context.Context, c *Cancellation) error
}

// Reason says why an agent's work has ended.
type Reason string

// The reasons.
const (
	ReasonCanceled  Reason = "canceled"   // a client or an operator has canceled the task
	ReasonExpired   Reason = "expired"    // the task was parked for longer than expire_parked_after, and is canceled
	ReasonTimedOut  Reason = "timed-out"  // the run took longer than run_timeout; the task has failed
	ReasonInactive  Reason = "inactive"   // the agent was silent for longer than inactivity_timeout; the task has failed
	ReasonLimit     Reason = "limit"      // the artifacts exceed max_artifacts; the task has failed
	ReasonDeleted   Reason = "deleted"    // the task was deleted
	ReasonLeaseLost Reason = "lease-lost" // another worker has the task; its run goes on with the same message
	ReasonOver      Reason = "over"       // the server has ended the run of a remote worker: a timeout, a limit, or the task was deleted
	ReasonStopping  Reason = "stopping"   // the server stops; another run goes on with the same message
)

// Ended reports whether the whole task has ended, and not only an attempt.
func (r Reason) Ended() bool { return r != ReasonLeaseLost && r != ReasonStopping }

// Cancellation is what an agent is told about the end of its work.
type Cancellation struct {
	Reason    Reason
	ID        task.ID // internal, unique on the server
	TaskID    string  // public id
	ContextID string
	Agent     string
	Tenant    string
	Owner     string
	Keys      Keys
	// Turn and Attempt are those of the newest run of the task that the agent has begun.
	Turn    int
	Attempt task.Attempt
	Try     int    // 1 for the first call about this cancel
	Key     string // the IdempotencyKey that a server has given to this process; "" in the server itself
	// Metadata is that of the request that canceled the task, or nil.
	Metadata json.RawMessage
	// Checkpoint is the newest checkpoint that a run of the task has stored, in whatever turn, or nil.
	Checkpoint json.RawMessage
	// Stored reads what runs have stored with SetState.
	Stored func(ctx context.Context, of Scope) (State, error)
}

// IdempotencyKey is that of the newest run: its Run.IdempotencyKey.
func (c *Cancellation) IdempotencyKey() string { return cmp.Or(c.Key, idempotencyKey(c.ID, c.Turn)) }
