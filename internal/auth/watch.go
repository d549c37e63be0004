package auth

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// watch ends long calls, such as streams, when their credential would no longer be admitted. A credential's expiry ends
// its calls at once. A revoked key ends them when the replica hears of it. The next round finds changes without a
// signal: a removed user, an issuer's withdrawn key, a removed authority.
type watch struct {
	mu   sync.Mutex
	all  map[*ongoing]struct{}
	kick chan struct{}
	// told counts the calls of Recheck.
	told atomic.Uint64
	// within is the timeout of one check. Tests change it, and get a call of looked at the end of a round.
	within time.Duration
	looked func()
}

// ongoing is one long call.
type ongoing struct {
	id   *Authentication
	gate *Gate
	end  func(error)
	// expiry ends the call when its credential expires. Nil: no timer.
	expiry *time.Timer
}

const (
	watchEvery = time.Minute // the interval between rounds
	soon       = 24 * time.Hour
	// awayAfter is the number of consecutive failed checks after which a round skips the rest of a scheme.
	awayAfter = 3
)

func newWatch() *watch {
	return &watch{all: map[*ongoing]struct{}{}, kick: make(chan struct{}, 1), within: 5 * time.Second, looked: func() {}}
}

// Watch calls end when the gate would no longer admit the identity, with the error for the caller. It calls end from
// another goroutine and perhaps more than once. Call stop when there is nothing more to end. Run must be running.
func (a *Authenticator) Watch(id *Authentication, g *Gate, end func(error)) (stop func()) {
	if g.Open() {
		return func() {}
	}
	w := &ongoing{id: id, gate: g, end: end}
	// The rounds find an expiry that is further off.
	if !id.until.IsZero() && time.Until(id.until) < soon {
		w.expiry = time.AfterFunc(time.Until(id.until), func() { end(a.refused(refuse(Expired, nil), id.scheme, g)) })
	}
	a.mu.Lock()
	a.all[w] = struct{}{}
	a.mu.Unlock()
	if a.told.Load() != id.told { // Recheck was called since admission, and its round may have missed this call
		a.Recheck()
	}
	return func() {
		if w.expiry != nil {
			w.expiry.Stop()
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.all, w)
	}
}

// Recheck starts a round soon.
func (w *watch) Recheck() {
	w.told.Add(1)
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Run rechecks the long calls until ctx ends.
func (a *Authenticator) Run(ctx context.Context) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-a.kick:
		case <-ctx.Done():
			return nil
		}
		a.look(ctx)
		a.looked()
	}
}

// look ends the calls that would no longer be admitted.
func (a *Authenticator) look(ctx context.Context) {
	a.mu.Lock()
	all := make([]*ongoing, 0, len(a.all))
	for w := range a.all {
		all = append(all, w)
	}
	a.mu.Unlock()
	failed := map[string]int{} // in a row, by scheme
	for _, w := range all {
		if failed[w.id.scheme] == awayAfter || ctx.Err() != nil {
			continue
		}
		switch err := a.again(ctx, w); task.KindOf(err) {
		case task.Unauthenticated, task.Forbidden:
			a.opt.Log.Debug("call ended because its credential is no longer valid", "scheme", w.id.scheme, "reason", err)
			w.end(err)
			failed[w.id.scheme] = 0
		default:
			if err == nil {
				failed[w.id.scheme] = 0
				continue
			}
			// A check that could not be made withdraws nothing. It may concern this credential only. After a few in a
			// row, the round skips the rest of the scheme.
			failed[w.id.scheme]++
		}
	}
}

// again admits the call as if its request came now.
func (a *Authenticator) again(ctx context.Context, w *ongoing) error {
	ctx, cancel := context.WithTimeout(ctx, a.within)
	defer cancel()
	now := &Authentication{scheme: w.id.scheme, credential: w.id.credential}
	scheme, r := a.byName[now.scheme], &Request{Chain: w.id.chain, before: true}
	if p := scheme.remembered(now.credential, r); p != nil {
		now.proof = *p
	} else {
		now.verify(ctx, scheme, r)
	}
	if now.err == nil && (now.Owner() != w.id.Owner()) {
		now.err = refuse(Unknown, errors.New("the credential now belongs to another caller"))
	}
	_, err := a.Admit(now, w.gate)
	return err
}
