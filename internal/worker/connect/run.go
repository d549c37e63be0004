package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// ErrOver ends the context of a run that the server has ended: by a timeout or a limit, or because its task was deleted.
var ErrOver = errors.New("the server has ended the run")

// errOutOfStep says that the server and this worker disagree about what is stored. Another try starts from the beginning.
var errOutOfStep = errors.New("the server has other events of the run than this worker has posted")

// run is one attempt that this worker has.
type run struct {
	w     *Worker
	id    string
	token string
	doc   *wire.Document
	agent *Agent
	out   *emitter
	log   *slog.Logger

	states states

	ctx       context.Context //nolint:containedctx // of the agent's code; its cause says why it ended
	interrupt context.CancelCauseFunc
	life      context.Context //nolint:containedctx // of everything that is sent for the run
	end       context.CancelFunc

	// Guarded by w.mu.
	stopping bool            // a heartbeat has said canceled
	gone     bool            // the run belongs to this worker no longer
	metadata json.RawMessage // of the cancel
}

// stop ends the agent's code. After any cause but a cancel and the end of the worker, nothing more is sent for the run.
func (r *run) stop(cause error, metadata json.RawMessage) {
	r.w.mu.Lock()
	switch {
	case errors.Is(cause, executor.ErrCanceled):
		r.stopping = true
		if r.metadata == nil {
			r.metadata = metadata
		}
	case errors.Is(cause, executor.ErrShutdown):
	default:
		r.gone = !errors.Is(cause, errOutOfStep)
		r.end()
	}
	r.w.mu.Unlock()
	r.interrupt(cause)
}

// panicked is the error of the agent's code when it has panicked.
type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprintf("the agent panicked: %v", p.value) }

// work executes the run and ends it.
func (r *run) work() {
	defer r.interrupt(nil)
	defer r.end()
	r.log.Info("run began", "turn", r.doc.Run.Turn, "try", r.doc.Run.Try, "attempt", int(r.doc.Run.Attempt))
	began := time.Now()
	defer func() { r.log.Info("run ended", "outcome", r.outcome(), "took", time.Since(began)) }()
	ended := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				stack := string(debug.Stack())
				r.log.Error("the agent panicked", "panic", v, "stack", stack)
				ended <- &panicked{v, stack}
			}
		}()
		ended <- r.agent.Execute(r.ctx, r.doc.Run, &Memory{r: r}, r.out)
	}()
	err := r.watch(ended)
	r.conclude(err)
	r.callCancel()
}

// errAbandoned says that the agent's code did not return after its context had ended.
var errAbandoned = errors.New("the agent's code has not returned")

// watch waits for the agent's code. It waits without a bound, because the code takes a slot, except at the end of the process.
func (r *run) watch(ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-r.w.abandon.Done():
		return errAbandoned
	}
}

// conclude ends the run by what the agent's code has returned.
func (r *run) conclude(err error) {
	if errors.Is(context.Cause(r.ctx), errOutOfStep) {
		r.log.Error("gave the run back", "error", errOutOfStep)
		r.release()
		return
	}
	if r.out.hasSettled() {
		if r.out.flush(r.life) == nil || r.life.Err() != nil {
			return
		}
		err = nil // the event that ended the run was refused; context.Cause says so
	}
	cause := context.Cause(r.ctx)
	_, refused := errors.AsType[errRefused](cause)
	switch {
	case r.life.Err() != nil: // lost, or over
		r.out.close()
		return
	case errors.Is(cause, executor.ErrCanceled), errors.Is(cause, executor.ErrShutdown) && err != nil:
		r.out.close()
		if r.w.hurry.Err() == nil {
			_ = r.out.flush(r.w.hurry)
		}
		if !r.out.hasSettled() {
			r.end() // post nothing after the release
			r.release()
		}
		return
	case refused:
		err = cause
	}
	if failed := r.finish(err); failed != nil && r.life.Err() == nil {
		if refused, ok := errors.AsType[errRefused](failed); ok {
			failed = r.finish(refused)
		}
		if failed != nil && r.life.Err() == nil {
			r.log.Error("could not record the end of the run", "error", failed)
			r.release()
		}
	}
}

// finish posts the event that ends the run, and waits until the server has it.
func (r *run) finish(err error) error {
	if flushed := r.out.flush(r.life); err == nil && flushed != nil {
		err = flushed
	}
	r.out.reopen()
	end := ending(err)
	switch {
	case end.Action == wire.Retry:
		r.log.Info("the agent asks for a retry", "reason", end.Reason)
	case err != nil:
		r.log.Error("the agent failed", "error", err)
	}
	if posted := r.out.emit(context.WithoutCancel(r.ctx), end); posted != nil {
		return posted
	}
	return r.out.flush(r.life)
}

// outcome returns the result of the run, as the server's log says it.
func (r *run) outcome() string {
	cause := context.Cause(r.ctx)
	lost := errors.Is(cause, executor.ErrLeaseLost) || errors.Is(cause, errOutOfStep)
	switch outcome := r.out.outcome(); {
	case outcome != "" && !lost:
		return outcome
	case lost:
		return "lost"
	case errors.Is(cause, executor.ErrCanceled):
		return "canceled"
	case errors.Is(cause, ErrOver):
		return "over"
	}
	return "returned"
}

// maxReason bounds what operators read about a retry.
const maxReason = 1000

// ending returns the event that ends a run with this result of its code. Only the text of a Failure is for clients; operators get
// the error.
func ending(err error) *wire.Event {
	if err == nil {
		return &wire.Event{Action: wire.Status, State: task.StateCompleted}
	}
	after, again := executor.IsRetryable(err)
	if u, ok := errors.AsType[*executor.Unavailable](err); ok {
		after, again = max(after, u.RetryAfter), true
	}
	if again {
		text := err.Error()
		if len(text) > maxReason {
			text = strings.ToValidUTF8(text[:maxReason], "") + "…"
		}
		return &wire.Event{Action: wire.Retry, Reason: text, After: min(after, wire.MaxRetryAfter)}
	}
	text, cause := "The agent failed.", err
	if f, ok := errors.AsType[*executor.Failure](err); ok {
		text, cause = f.Msg, f.Cause
	}
	var why *wire.Error
	if cause != nil {
		why = &wire.Error{Type: fmt.Sprintf("%T", cause), Message: cause.Error()}
	}
	if p, ok := errors.AsType[*panicked](err); ok {
		why = &wire.Error{Type: "panic", Message: fmt.Sprint(p.value), Trace: p.stack}
	}
	if _, ok := errors.AsType[errRefused](err); ok {
		text = "The agent's output could not be stored."
	}
	return &wire.Event{Action: wire.Status, State: task.StateFailed, Message: &task.Message{Parts: []task.Part{task.Text(text)}}, Error: why}
}

// release gives the run back, for as long as the worker tries.
func (r *run) release() {
	r.w.mu.Lock()
	gone := r.gone
	r.w.mu.Unlock()
	if gone {
		return
	}
	var pause backoff
	for r.w.last.Err() == nil {
		err := r.w.release(r.w.last, []string{r.id}, false)
		if err == nil {
			return
		}
		r.log.Debug("could not give the run back; trying again", "error", err)
		pause.wait(r.w.last, err)
	}
	r.log.Warn("could not give the run back; its lease will end")
}

// cancelTimeout bounds the agent's Cancel.
const cancelTimeout = 5 * time.Second

// callCancel tells the agent that something else has ended its work.
func (r *run) callCancel() {
	if r.out.hasSettled() { // its own event has ended the run, or came too late
		return
	}
	var reason executor.Reason
	switch cause := context.Cause(r.ctx); {
	case errors.Is(cause, executor.ErrCanceled):
		reason = executor.ReasonCanceled
	case errors.Is(cause, executor.ErrLeaseLost), errors.Is(cause, errOutOfStep):
		reason = executor.ReasonLeaseLost
	case errors.Is(cause, ErrOver):
		reason = executor.ReasonOver
	case errors.Is(cause, executor.ErrShutdown):
		reason = executor.ReasonStopping
	default:
		return
	}
	if r.agent.Cancel == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.w.last, cancelTimeout)
	defer cancel()
	d := r.doc.Run
	memory := &Memory{r: r}
	r.w.mu.Lock()
	metadata := r.metadata
	r.w.mu.Unlock()
	err := r.agent.Cancel(ctx, &executor.Cancellation{
		Reason: reason, TaskID: d.TaskID, ContextID: d.ContextID, Agent: d.Agent, Tenant: d.Tenant, Owner: d.Owner, Keys: d.Keys,
		Turn: d.Turn, Attempt: d.Attempt, Try: 1, Key: d.Key, Metadata: metadata, Checkpoint: r.doc.Checkpoint, Stored: memory.State,
	})
	if err != nil {
		r.log.Warn("the agent's Cancel failed", "error", err)
	}
}
