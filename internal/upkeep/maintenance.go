package upkeep

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Duty is a piece of periodic work.
type Duty struct {
	Name    string        // name of its lease and in its metrics, in snake_case
	Every   time.Duration // interval between two rounds, plus or minus a quarter; required
	Timeout time.Duration // of one piece; default 30 s
	Alone   bool          // one process at a time runs it
	// Wake begins the next round when it receives, unless the last one failed. Not with Alone; nil: the interval alone does.
	Wake <-chan struct{}
	// Run does one piece and reports whether more is left; if so, the runner calls it again at
	// once. The runner may call it again after any error. Run must return soon after ctx has ended.
	Run func(ctx context.Context) (more bool, err error)
	// Lost is called after the last piece when this process has the lease of an Alone duty no longer. Optional.
	Lost func()
}

// Options configures a Runner. The zero value of a duration means its default.
type Options struct {
	Duties []Duty
	Leases leases
	Holder func() task.ID // returns the id of this process, zero while it has none
	TTL    time.Duration  // of the lease of a duty; default 30 s
	// Ran receives the duration and the error of each piece. Optional.
	Ran func(duty string, took time.Duration, err error)
	Log *slog.Logger
}

// Runner runs the duties of one process.
type Runner struct{ opt Options }

// New returns a runner. Run starts it.
func New(o Options) *Runner {
	o.TTL = cmp.Or(o.TTL, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Ran == nil {
		o.Ran = func(string, time.Duration, error) {}
	}
	return &Runner{opt: o}
}

// Run runs the duties until ctx ends. Then it waits for the current pieces and gives the leases
// back.
func (r *Runner) Run(ctx context.Context) error {
	var duties sync.WaitGroup
	for _, d := range r.opt.Duties {
		d.Timeout = cmp.Or(d.Timeout, 30*time.Second)
		do := r.repeat
		if d.Alone {
			do = r.campaign
		}
		duties.Go(func() { do(ctx, &d) })
	}
	duties.Wait()
	return nil
}

// repeat runs a duty at once and then periodically, until ctx ends.
func (r *Runner) repeat(ctx context.Context, d *Duty) {
	log := r.opt.Log.With("duty", d.Name)
	var last error
	for failures := 0; ; {
		wait, wake := d.Every, d.Wake
		switch err := r.round(ctx, d); {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait, wake = backoff(d.Every, failures), nil
			failures, last = failures+1, err
			log.Warn("duty failed", "error", err, "retry_in", wait.String())
		case failures > 0:
			log.Info("duty recovered", "failures", failures, "error", last)
			failures = 0
		}
		if !sleep(ctx, wait, wake) {
			return
		}
	}
}

// round runs pieces until nothing is left.
func (r *Runner) round(ctx context.Context, d *Duty) error {
	for {
		more, err := r.piece(ctx, d)
		if err != nil || !more || ctx.Err() != nil {
			return err
		}
	}
}

func (r *Runner) piece(ctx context.Context, d *Duty) (more bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	began := time.Now()
	more, err = d.Run(bounded)
	// An interrupted piece has not failed.
	if err == nil || ctx.Err() == nil {
		r.opt.Ran(d.Name, time.Since(began), err)
	}
	return more, err
}

// backoff returns the wait after an error: one second, doubled with each further error, up to the
// interval of the duty or 15 s. A duty with an interval of one second retries no sooner than it
// runs.
func backoff(every time.Duration, failures int) time.Duration {
	return min(max(every, 15*time.Second), min(every, time.Second)<<min(failures, 12))
}

// sleep blocks for d, plus or minus a quarter, so that processes that started together do not act
// together, or until wake receives. It reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d*3/4 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-wake:
		return true
	case <-ctx.Done():
		return false
	}
}
