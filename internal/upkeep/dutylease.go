package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// leases is the part of the database that the runner needs. store.Store implements it.
type leases interface {
	Lead(ctx context.Context, duty string, holder task.ID, ttl time.Duration) (bool, error)
	Resign(ctx context.Context, duty string, holder task.ID) error
}

// Reasons why a leader gives up before it is stopped.
var (
	errTaken    = errors.New("another process took the lease")
	errExpired  = errors.New("the lease was not renewed in time")
	errDeclared = errors.New("this process was declared dead")
)

// campaign runs a duty whenever this process gets its lease, until ctx ends.
func (r *Runner) campaign(ctx context.Context, d *Duty) {
	log := r.opt.Log.With("duty", d.Name)
	for failing := false; ; {
		began := time.Now()
		holder := r.opt.Holder()
		leads, err := r.take(ctx, d, holder)
		if leads {
			log.Debug("duty taken")
			r.lead(ctx, d, holder, began)
		}
		if err != nil && !failing && ctx.Err() == nil {
			log.Warn("duty not taken", "error", err)
		}
		failing = err != nil
		if !sleep(ctx, r.opt.TTL/2, nil) {
			return
		}
	}
}

// lead runs a duty until ctx ends or the lease is lost. began is when the process asked for the
// lease.
func (r *Runner) lead(ctx context.Context, d *Duty, holder task.ID, began time.Time) {
	leading, lose := context.WithCancelCause(ctx)
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		r.renew(leading, lose, d, holder, began)
	}()
	r.repeat(leading, d)
	<-renewing
	if d.Lost != nil {
		d.Lost()
	}
	if ctx.Err() == nil {
		r.opt.Log.Warn("duty lost", "duty", d.Name, "reason", context.Cause(leading))
	}
	// The next leader need not wait until the lease expires. If resigning fails, it waits.
	resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(r.opt.TTL, 2*time.Second))
	defer cancel()
	_ = r.opt.Leases.Resign(resigning, d.Name, holder)
}

// renew keeps the lease until ctx ends, and ends ctx when the lease is lost.
func (r *Runner) renew(ctx context.Context, lose context.CancelCauseFunc, d *Duty, holder task.ID, began time.Time) {
	expiry := time.AfterFunc(r.opt.TTL-time.Since(began), func() { lose(errExpired) })
	defer expiry.Stop()
	for sleep(ctx, r.opt.TTL/4, nil) {
		if r.opt.Holder() != holder {
			lose(errDeclared)
			return
		}
		began := time.Now()
		leads, err := r.take(ctx, d, holder)
		switch {
		case err != nil: // retry while there is time; expiry ends it
		case leads:
			expiry.Reset(r.opt.TTL - time.Since(began))
		default:
			lose(errTaken)
			return
		}
	}
}

// take acquires or renews the lease.
func (r *Runner) take(ctx context.Context, d *Duty, holder task.ID) (bool, error) {
	if holder.IsZero() {
		return false, nil
	}
	asking, cancel := context.WithTimeout(ctx, r.opt.TTL/4)
	defer cancel()
	return r.opt.Leases.Lead(asking, d.Name, holder, r.opt.TTL)
}
