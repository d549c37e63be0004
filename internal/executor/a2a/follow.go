package a2a

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	firstPause = 250 * time.Millisecond
	// heardPause is the least time between two reads of a task whose subscription has news: a chatty stream causes few
	// reads.
	heardPause = 100 * time.Millisecond
	// heardFactor multiplies the longest pause while a subscription is open, which tells of news.
	heardFactor = 6
	// maxAway is how long a run waits for an agent that is away. Then the task waits in the queue.
	maxAway = 20 * time.Second
	// maxUnknown is how often an agent may not know its own task yet: some store it a moment after they answer.
	maxUnknown = 4
	// maxIdle is how long a stream may be silent before the run reads the task instead.
	maxIdle = time.Minute
)

// follow reads the agent's task until it has settled, and emits what is new each time.
func (r *run) follow(ctx context.Context) error {
	watch := &watch{run: r, news: make(chan struct{}, 1)}
	defer watch.stop()
	pause, unknown := firstPause, 0
	var away time.Time // since when
	for {
		asked := time.Now()
		u, err := r.call(ctx, r.to, client.Get, &client.Params{TaskID: r.link.Task})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && (u.Task == nil || u.Task.PublicID != r.link.Task) {
			return errNoTask
		}
		var absent *callError
		switch {
		case err == nil:
			r.Began()
			r.mirror.moved, away, unknown = false, time.Time{}, 0
			if done, err := r.mirror.update(ctx, u); done || err != nil {
				return err
			}
			if r.mirror.moved {
				pause = firstPause
			}
			watch.start(ctx)
		case errors.Is(err, task.NotFound):
			if unknown++; unknown >= maxUnknown {
				// The message is not sent again: the agent may have done its work.
				return &executor.Failure{Msg: "the agent lost its task", Cause: err}
			}
		case errors.As(err, &absent), errors.Is(err, task.Internal):
			watch.stop()
			if away.IsZero() {
				away = asked
			}
			if time.Since(away) > maxAway {
				return r.absent(err)
			}
			if absent != nil && absent.after > 0 {
				if absent.after > maxAway {
					return r.absent(err)
				}
				pause = absent.after
			}
		default:
			return outcome(err)
		}
		if err := r.rest(ctx, watch, pause, time.Since(asked)); err != nil {
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
	return &executor.Unavailable{Err: executor.Retryable(away.err, away.after), RetryAfter: away.after, Answered: away.answered}
}

// rest waits until the task should be read again. took is how long the last read took: a large task is read less often.
func (r *run) rest(ctx context.Context, w *watch, pause, took time.Duration) error {
	least := max(heardPause, 2*took)
	if w.open() {
		pause = max(pause, heardFactor*r.opts.PollInterval)
	}
	pause += rand.N(pause/4 + 1)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	began := time.Now()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	case <-w.news:
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(least - time.Since(began)):
		return nil
	}
}

// watch is a subscription to the agent's task, which says when to read it.
type watch struct {
	run  *run
	news chan struct{}

	mu      sync.Mutex
	cancel  context.CancelFunc
	ended   chan struct{}
	useless bool // the agent offers no subscription to this task
	live    bool
}

// start subscribes, unless a subscription is open or useless.
func (w *watch) start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil || w.useless || !w.run.to.streams || !w.run.to.wire.Has(client.Subscribe) {
		return
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.ended = make(chan struct{})
	go w.listen(ctx, w.ended)
}

func (w *watch) listen(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	useless := w.hear(ctx)
	w.mu.Lock()
	w.useless, w.live = useless, false
	if ctx.Err() == nil {
		w.cancel()
		w.cancel = nil // the next read may subscribe again
	}
	w.mu.Unlock()
	w.tell()
}

// hear reads the subscription until it ends. It reports whether another one would be useless.
func (w *watch) hear(ctx context.Context) (useless bool) {
	a, err := w.run.open(ctx, w.run.to, client.Subscribe, &client.Params{TaskID: w.run.link.Task}, "")
	var away *callError
	if err != nil {
		return !errors.As(err, &away)
	}
	if a.body == nil {
		return true
	}
	defer a.body.Close()
	w.mu.Lock()
	w.live = true
	w.mu.Unlock()
	w.tell() // something may have happened since the last read
	for {
		raw, _, err := a.stream.Next()
		if err != nil {
			return false
		}
		if _, err := w.run.parse(w.run.to, client.Subscribe, raw); err != nil {
			return true
		}
		w.tell()
	}
}

func (w *watch) tell() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *watch) open() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live
}

// stop ends the subscription and waits for it.
func (w *watch) stop() {
	w.mu.Lock()
	cancel, ended := w.cancel, w.ended
	w.cancel = nil
	w.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if ended != nil {
		<-ended
	}
}

// heard is the body of a stream that closes after silence. Any byte counts, also that of a comment.
type heard struct {
	io.ReadCloser
	timer *time.Timer
}

// Read implements io.Reader.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if h.timer != nil && n > 0 {
		h.timer.Reset(maxIdle)
	}
	return n, err
}
