// Package limit bounds what each caller may ask of this replica: how often, and how many
// streams at a time. What must hold over all replicas is bounded by the store.
package limit

import (
	"cmp"
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Caller is whose requests share a limit.
type Caller struct{ Tenant, Subject string }

// Options are the limits. 0 means none.
type Options struct {
	Rate    int // requests in a second
	Burst   int // requests at once, when there were fewer before; at least 1
	Streams int // open at a time
	// Callers is how many are remembered while they have nothing open; default 50000. The one that
	// was not heard of for longest is forgotten first, and has all of its burst when it comes back.
	Callers int
}

// Callers keeps count of each. Its methods may be called from many goroutines.
type Callers struct {
	opt Options
	mu  sync.Mutex
	all map[Caller]*account
	// idle has the accounts without streams, the one that was used last in front.
	idle *list.List
}

type account struct {
	caller  Caller
	bucket  *rate.Limiter
	streams int
	at      *list.Element // in idle; nil while streams are open
}

// New makes the accounts of a replica, or nil when nothing is limited; nil allows everything.
func New(o Options) *Callers {
	if o.Rate == 0 && o.Streams == 0 {
		return nil
	}
	o.Callers = cmp.Or(o.Callers, 50_000)
	return &Callers{opt: o, all: map[Caller]*account{}, idle: list.New()}
}

// Allow takes a request, or says how long to wait before the next is taken.
func (c *Callers) Allow(who Caller) (wait time.Duration, ok bool) {
	if c == nil || c.opt.Rate == 0 {
		return 0, true
	}
	c.mu.Lock()
	bucket := c.of(who).bucket
	c.mu.Unlock()
	r := bucket.Reserve()
	if wait = r.Delay(); wait == 0 {
		return 0, true
	}
	r.Cancel()
	return wait, false
}

// Ready says whether Allow would take a request, and takes none.
func (c *Callers) Ready(who Caller) (wait time.Duration, ok bool) {
	if c == nil || c.opt.Rate == 0 {
		return 0, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.all[who]
	if a == nil {
		return 0, true
	}
	missing := 1 - a.bucket.Tokens()
	if missing <= 0 {
		return 0, true
	}
	return time.Duration(missing / float64(c.opt.Rate) * float64(time.Second)), false
}

// Open takes a place for a stream, which the caller gives back with closed when it was ok.
func (c *Callers) Open(who Caller) (closed func(), ok bool) {
	if c == nil || c.opt.Streams == 0 {
		return func() {}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.of(who)
	if a.streams == c.opt.Streams {
		return nil, false
	}
	a.streams++
	if a.at != nil {
		c.idle.Remove(a.at)
		a.at = nil
	}
	return sync.OnceFunc(func() { c.close(a) }), true
}

func (c *Callers) close(a *account) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.streams--; a.streams == 0 {
		a.at = c.idle.PushFront(a)
		c.forget()
	}
}

// of finds or makes the account of a caller. The lock is held.
func (c *Callers) of(who Caller) *account {
	a := c.all[who]
	switch {
	case a == nil:
		a = &account{caller: who, bucket: rate.NewLimiter(rate.Limit(c.opt.Rate), max(c.opt.Burst, 1))}
		c.all[who] = a
		a.at = c.idle.PushFront(a)
		c.forget()
	case a.at != nil:
		c.idle.MoveToFront(a.at)
	}
	return a
}

// forget keeps the number of accounts bounded. The lock is held.
func (c *Callers) forget() {
	for c.idle.Len() > c.opt.Callers {
		oldest := c.idle.Remove(c.idle.Back()).(*account)
		delete(c.all, oldest.caller)
	}
}
