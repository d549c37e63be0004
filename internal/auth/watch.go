package auth

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// watch looks after what goes on when its request was let in, such as a stream, for as long as the same credential would
// be let in again. It ends with the credential; a key that was revoked ends it when that is heard of, and what is not told
// (a user who was removed, a key of an issuer that is withdrawn, an authority) with the next look at all.
type watch struct {
	mu   sync.Mutex
	all  map[*ongoing]struct{}
	kick chan struct{}
	// told counts how often Recheck was called.
	told atomic.Uint64
	// looked is told that a round has ended, for tests.
	looked func()
}

// ongoing is one of these.
type ongoing struct {
	id   *Identity
	gate *Gate
	end  func(error)
	// expiry ends it with its credential. Nil: that has no end.
	expiry *time.Timer
}

const (
	// watchEvery is how often all credentials are looked at, watchFor how long one may take.
	watchEvery = time.Minute
	watchFor   = 5 * time.Second
	soon       = 24 * time.Hour
	// awayAfter is after how many credentials in a row that could not be checked a round leaves the rest of their scheme alone.
	awayAfter = 3
)

func newWatch() *watch {
	return &watch{all: map[*ongoing]struct{}{}, kick: make(chan struct{}, 1), looked: func() {}}
}

// Watch calls end, from another goroutine and perhaps more than once, when the identity that a gate has let in would not be
// let in any more, with what the caller is to hear. Stop must be called when there is nothing more to end. Run must be running.
func (a *Authenticator) Watch(id *Identity, g *Gate, end func(error)) (stop func()) {
	if g.Open() {
		return func() {}
	}
	w := &ongoing{id: id, gate: g, end: end}
	// What is further off is found by looking.
	if !id.until.IsZero() && time.Until(id.until) < soon {
		w.expiry = time.AfterFunc(time.Until(id.until), func() { end(a.refused(refuse(Expired, nil), id.scheme, g)) })
	}
	a.mu.Lock()
	a.all[w] = struct{}{}
	a.mu.Unlock()
	if a.told.Load() != id.told { // since it was let in, and perhaps looked at without this
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

// Recheck looks at all soon.
func (w *watch) Recheck() {
	w.told.Add(1)
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// Run looks at what goes on until ctx ends.
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

// look ends what would not be let in any more.
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
			a.opt.Log.Debug("what a credential had begun was ended", "scheme", w.id.scheme, "reason", err)
			w.end(err)
			failed[w.id.scheme] = 0
		default:
			if err == nil {
				failed[w.id.scheme] = 0
				continue
			}
			// Who cannot be asked does not take anything back. That may be so of one credential only; after a few in a row
			// the others of the scheme need not wait for it, too.
			failed[w.id.scheme]++
		}
	}
}

// again admits as if the request came now.
func (a *Authenticator) again(ctx context.Context, w *ongoing) error {
	ctx, cancel := context.WithTimeout(ctx, watchFor)
	defer cancel()
	now := &Identity{scheme: w.id.scheme, credential: w.id.credential}
	scheme, r := a.byName[now.scheme], &Request{Chain: w.id.chain, before: true}
	if p := scheme.remembered(now.credential, r); p != nil {
		now.proof = *p
	} else {
		now.verify(ctx, scheme, r)
	}
	if now.err == nil && (now.Tenant != w.id.Tenant || now.Subject != w.id.Subject) {
		now.err = refuse(Unknown, errors.New("it is somebody else's by now"))
	}
	_, err := a.Admit(now, w.gate)
	return err
}
