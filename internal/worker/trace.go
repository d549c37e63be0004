package worker

import (
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// trace begins the span of the run. It must be called before another goroutine has the run.
func (r *run) trace() {
	tracer := r.pool.opt.Tracer
	if tracer == nil {
		return
	}
	c := r.claim
	about := &tracing.Run{
		Agent: r.agent.Name, TaskID: c.Task.PublicID, ContextID: c.Task.ContextID, Worker: r.pool.opt.Worker().String(),
		Attempt: int(c.Attempt), Try: c.Try, Turn: c.Turn, Created: tracing.Context{Parent: c.Task.Traceparent},
	}
	about.Context = about.Created // of a turn that no message began
	if q := c.Request; q != nil {
		about.Context = tracing.Context{Parent: q.Traceparent, State: q.Tracestate}
	}
	r.ctx, r.span = tracer.Process(r.ctx, about)
}

// endSpan ends the span of the run.
func (r *run) endSpan(outcome string, err error) {
	if r.span == nil {
		return
	}
	r.span.Set(tracing.Outcome.String(outcome))
	switch {
	case outcome == outcomeLost, outcome == outcomeAway, outcome == task.StateFailed.String():
		r.span.Fail(outcome)
	case err != nil && outcome == outcomeRetried:
		r.span.Fail(outcome)
	}
	r.span.End()
}

// invoke calls the executor.
func (r *run) invoke(in *executor.Input) error {
	run := r.execution(in)
	ctx, span := tracing.Invoke(r.ctx, r.agent.Name, r.claim.Task.ContextID)
	if span == nil {
		return r.agent.Executor.Execute(r.ctx, run, r.out)
	}
	defer span.End()
	run.In(span.Context())
	err := r.agent.Executor.Execute(ctx, run, r.out)
	if err != nil {
		span.FailWith(err)
	}
	return err
}
