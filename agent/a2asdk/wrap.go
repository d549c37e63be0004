package a2asdk

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/holdfast-a2a/holdfast/agent"
)

// Option changes what Wrap does.
type Option func(*wrapper)

// WithInterceptors runs interceptors before Execute and Cancel, as a2asrv.WithExecutorContextInterceptor does.
func WithInterceptors(interceptors ...a2asrv.ExecutorContextInterceptor) Option {
	return func(w *wrapper) { w.interceptors = append(w.interceptors, interceptors...) }
}

// Wrap makes an executor of the SDK an agent of Holdfast. If it implements a2asrv.AgentExecutionCleaner, Cleanup is called
// after each run and each Cancel; the Task of its result has no history, and no artifacts.
func Wrap(e a2asrv.AgentExecutor, options ...Option) agent.Executor {
	w := &wrapper{executor: e}
	for _, o := range options {
		o(w)
	}
	return w
}

type wrapper struct {
	executor     a2asrv.AgentExecutor
	interceptors []a2asrv.ExecutorContextInterceptor
	canceled     recentTasks
}

// cancelTime bounds the context of Cancel. The worker does not wait for longer than cancel_grace.
const cancelTime = time.Minute

// Execute implements agent.Executor.
func (w *wrapper) Execute(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	stored, err := run.Task(ctx)
	if err != nil {
		return err
	}
	s := newSession(run, out, stored)
	canceled := make(chan any, 1) // the panic of Cancel, or nil
	stop := context.AfterFunc(ctx, func() {
		defer func() { canceled <- recover() }()
		if errors.Is(context.Cause(ctx), agent.ErrCanceled) {
			w.cancel(ctx, s, run, stored)
		}
	})
	err = w.execute(ctx, s, run, stored)
	if !stop() {
		if v := <-canceled; v != nil {
			panic(v) // as if Execute had panicked: the worker logs it
		}
	}
	if ctx.Err() != nil && !s.over() {
		return context.Cause(ctx)
	}
	return err
}

func (w *wrapper) execute(ctx context.Context, s *session, run *agent.Run, stored *agent.Task) error {
	exec, err := newContext(run, stored)
	if err != nil {
		return err
	}
	if exec.RelatedTasks, err = relatedTasks(ctx, run); err != nil {
		return err
	}
	return w.play(ctx, s, exec, w.executor.Execute)
}

// cancel calls the executor's Cancel. The task ends as canceled, whatever its error.
func (w *wrapper) cancel(ctx context.Context, s *session, run *agent.Run, stored *agent.Task) {
	w.canceled.add(keyed(run).TaskID)
	ctx, done := context.WithTimeout(context.WithValue(context.WithoutCancel(ctx), cancelKey{}, true), cancelTime)
	defer done()
	exec, err := newContext(run, stored)
	if err != nil {
		return
	}
	exec.Message, exec.Metadata = nil, nil // as in the SDK: a request to cancel. The run is not told its metadata
	if exec.StoredTask == nil {
		exec.StoredTask = &a2a.Task{ID: exec.TaskID, ContextID: exec.ContextID, Status: a2a.TaskStatus{State: a2a.TaskStateWorking}}
	}
	_ = w.play(ctx, s, exec, w.executor.Cancel)
}

type sequence func(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error]

// play emits what the executor yields, until the run is over.
func (w *wrapper) play(ctx context.Context, s *session, exec *a2asrv.ExecutorContext, call sequence) (err error) {
	ctx, err = w.begin(context.WithValue(ctx, sessionKey{}, s), exec)
	if cleaner, ok := w.executor.(a2asrv.AgentExecutionCleaner); ok {
		defer func() { cleaner.Cleanup(context.WithoutCancel(ctx), exec, s.outcome(err), err) }()
	}
	if err != nil {
		return failure(err)
	}
	for event, err := range call(ctx, exec) {
		if err != nil {
			return failure(err)
		}
		if over, err := s.emit(ctx, event); err != nil || over {
			return err
		}
	}
	return nil
}

// begin makes the context of a call, as the SDK's server does.
func (w *wrapper) begin(ctx context.Context, exec *a2asrv.ExecutorContext) (context.Context, error) {
	ctx, call := a2asrv.NewCallContext(ctx, exec.ServiceParams)
	call.User = exec.User
	for _, uri := range call.Extensions().RequestedURIs() {
		call.Extensions().Activate(&a2a.AgentExtension{URI: uri})
	}
	for _, i := range w.interceptors {
		next, err := i.Intercept(ctx, exec)
		if err != nil {
			return ctx, fmt.Errorf("intercept: %w", err)
		}
		ctx = next
	}
	return ctx, nil
}

// failure gives clients the text of an error that the SDK would show them.
func failure(err error) error {
	shown, ok := errors.AsType[*a2a.Error](err)
	if !ok || shown.Message == "" {
		return err
	}
	return agent.Failure(shown.Message, err)
}

type sessionKey struct{}

// RunFrom returns the run that the executor answers, from the context of Execute or Cancel.
func RunFrom(ctx context.Context) (*agent.Run, bool) {
	s, ok := ctx.Value(sessionKey{}).(*session)
	if !ok {
		return nil, false
	}
	return s.run, true
}

// Checkpoint stores a JSON value for the next try at the message, should there be one; Run.Checkpoint reads it. The
// context is that of Execute.
func Checkpoint(ctx context.Context, v any) error {
	s, ok := ctx.Value(sessionKey{}).(*session)
	if !ok {
		return errors.New("a2asdk: the context is not that of Execute")
	}
	return s.out.Checkpoint(ctx, v)
}
