package a2a

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

const (
	firstPause = 250 * time.Millisecond
	// maxAway is how long a run waits for an agent that is away. Then the task waits in the queue.
	maxAway = 20 * time.Second
	// maxUnknown is how often an agent may not know its own task yet: some store it a moment after they answer.
	maxUnknown = 4
	// maxIdle is how long a stream may be silent before the run reads the task instead.
	maxIdle = time.Minute
)

// follow reads the agent's task until it has settled, and emits what is new each time. It asks for notifications, which end
// its pauses. It does not subscribe: an official server stores each event again for each subscriber (decision 0047).
func (r *run) follow(ctx context.Context) error {
	pause, unknown := firstPause, 0
	var away time.Time // since when
	watch, stop := r.watch()
	defer stop()
	for {
		asked := time.Now()
		u, err := r.call(ctx, client.Get, &client.Params{TaskID: r.link.Task})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case err != nil:
		case u.Task == nil:
			return errNoTask
		case u.TaskID != r.link.Task:
			return errOtherTask
		}
		var absent *callError
		switch {
		case err == nil:
			r.Began()
			r.mirror.moved, away, unknown = false, time.Time{}, 0
			done, err := r.mirror.update(ctx, u)
			if done || r.mirror.moved {
				r.found(watch)
				pause = firstPause
			}
			if done || err != nil {
				return err
			}
			if r.subscribe(ctx, watch) {
				continue
			}
		case errors.Is(err, task.NotFound):
			if unknown++; unknown >= maxUnknown {
				// The message is not sent again: the agent may have done its work.
				return &executor.Failure{Msg: "the agent lost its task", Cause: err}
			}
		case errors.As(err, &absent), errors.Is(err, task.Internal):
			if away.IsZero() {
				away = asked
			}
			if time.Since(away) > maxAway {
				return r.absent(err)
			}
			if absent != nil && absent.After > 0 {
				if absent.After > maxAway {
					return r.absent(err)
				}
				pause = absent.After
			}
		default:
			return outcome(err)
		}
		if err := r.pause(ctx, watch, pause, time.Since(asked), err == nil); err != nil {
			return err
		}
		pause = min(pause*3/2, r.opts.PollInterval)
	}
}

// absent returns the error of a run whose agent has been away for long. If the run has emitted nothing, the task waits for
// the agent without using up a try.
func (r *run) absent(err error) error {
	var away *callError
	if !errors.As(err, &away) {
		return executor.Retryable(err, 0)
	}
	return &executor.Unavailable{Err: executor.Retryable(away.Err, away.After), RetryAfter: away.After, Answered: !away.Broke}
}

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
