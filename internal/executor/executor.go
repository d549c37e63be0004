// Package executor is the contract between the worker pool, which owns leases,
// retries and the log, and the code that runs an agent. The built-in kinds are
// its subpackages; the public package agent adapts Go users' code to it.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Executor runs an agent for one message of one task.
//
// Execute runs at least once per message: after a crash, or when the lease is
// lost, another worker calls it again with a higher Attempt, so outside effects
// want an idempotency key: Run.IdempotencyKey. ctx ends when the task is canceled,
// the lease is lost, a timeout passes or the server stops; context.Cause tells which.
//
// Returning nil completes the task unless the run has already settled it. An
// error fails it: a Failure's text is shown to the client, any other error is
// logged and the client reads that the agent failed. Retryable errors are run
// again with backoff up to the agent's max attempts.
type Executor interface {
	Execute(ctx context.Context, run *Run, out Emitter) error
}

// Func makes a function an Executor.
type Func func(ctx context.Context, run *Run, out Emitter) error

// Execute calls f.
func (f Func) Execute(ctx context.Context, run *Run, out Emitter) error { return f(ctx, run, out) }

// Run describes one invocation.
type Run struct {
	ID        task.ID // internal, unique on the server
	TaskID    string  // public id
	ContextID string
	Agent     string
	Tenant    string
	Owner     string
	Message   *task.Message   // the user's message that this run answers; do not change it
	Metadata  json.RawMessage // of the task's first request
	Attempt   task.Attempt    // the fencing token
	Try       int             // 1 for the first invocation for this message
	Turn      int             // 1 for the task's first message

	Memory Memory
}

// IdempotencyKey is the same for every attempt at one message and different for
// everything else on the server. It uses the internal id, since clients of A2A
// 0.1 choose the public one.
func (r *Run) IdempotencyKey() string { return fmt.Sprintf("%s:%d", r.ID, r.Turn) }

// Memory reads what the log already holds about a task. Each call is a query.
type Memory interface {
	// History is the conversation of the task before this run's message, oldest first.
	History(ctx context.Context) ([]task.Message, error)
	// Earlier is what earlier attempts for the same message have already emitted.
	Earlier(ctx context.Context) ([]task.Event, error)
	// Checkpoint is the last one that earlier attempts for this message left, or nil.
	Checkpoint(ctx context.Context) (json.RawMessage, error)
}

// Chunk is an artifact or a piece of one.
type Chunk struct {
	Artifact task.Artifact // an empty ID means a new artifact; Index is assigned by the worker
	Append   bool          // the parts continue those of the same ID
	Last     bool
	Metadata json.RawMessage // of the event
}

// Emitter writes to the task's log. Calls keep their order. A call returns when
// the event is on its way within a bounded window, and the run's end waits for
// all of them to be committed; nothing reaches a client before its commit.
//
// Messages may leave ID, Role, TaskID and ContextID empty. After a settling
// status (input-required, auth-required, completed, failed, rejected) or Reply
// further calls return an error, as they do when the lease is lost.
type Emitter interface {
	// Status reports working (with a message, or as a sign of life) or settles the run.
	Status(ctx context.Context, s task.State, msg *task.Message) error
	// Artifact emits a whole artifact or a chunk. The id of the artifact is returned
	// so that an executor may leave the choice to the server.
	Artifact(ctx context.Context, c Chunk) (id string, err error)
	// Reply ends the run with a bare Message in place of a task. It must be the
	// first thing that the run emits.
	Reply(ctx context.Context, msg *task.Message) error
	// Checkpoint stores where the run stands, for the next attempt if there is one.
	Checkpoint(ctx context.Context, data json.RawMessage) error
}

// Causes of a run's context, for context.Cause.
var (
	ErrCanceled   = errors.New("the task was canceled")
	ErrLeaseLost  = errors.New("the lease was lost")
	ErrTimeout    = errors.New("the run took longer than the agent allows")
	ErrInactivity = errors.New("the agent was silent for too long")
	ErrShutdown   = errors.New("the server is stopping")
)

// Failure is an error whose text the client may read.
type Failure struct {
	Msg   string
	Cause error
}

func (f *Failure) Error() string {
	if f.Cause != nil {
		return f.Msg + ": " + f.Cause.Error()
	}
	return f.Msg
}

func (f *Failure) Unwrap() error { return f.Cause }

type retryable struct {
	err   error
	after time.Duration
}

func (r *retryable) Error() string { return r.err.Error() }
func (r *retryable) Unwrap() error { return r.err }

// Retryable marks an error as worth another attempt, after the given delay or,
// when it is zero, after the worker's own backoff.
func Retryable(err error, after time.Duration) error { return &retryable{err, after} }

// IsRetryable tells whether err asks for another attempt, and after how long.
func IsRetryable(err error) (after time.Duration, ok bool) {
	var r *retryable
	if errors.As(err, &r) {
		return r.after, true
	}
	return 0, false
}
