package worker

import "context"

// Committed implements executor.Emitter.
func (e *emitter) Committed(ctx context.Context) error {
	defer e.hold()()
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
		case <-e.r.ctx.Done():
			return context.Cause(e.r.ctx)
		}
	}
}
