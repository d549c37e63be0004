package worker

import "context"

// Committed implements executor.Emitter.
func (e *emitter) Committed(ctx context.Context) error {
	defer e.hold()()
	return e.await(ctx, e.r.ctx)
}

// await blocks until all events are committed, or until one of the contexts ends.
func (e *emitter) await(ctx, run context.Context) error {
	for {
		e.mu.Lock()
		err, waiting := e.err, e.waiting > 0
		if waiting && e.answered == nil {
			e.answered = make(chan struct{})
		}
		answered := e.answered
		e.mu.Unlock()
		if err != nil || !waiting {
			return err
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-run.Done():
			return context.Cause(run)
		}
	}
}
