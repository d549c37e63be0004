package limit

import (
	"cmp"
	"sync"
	"time"

	"github.com/jellydator/ttlcache/v3"
	"golang.org/x/time/rate"
)

// Options are the limits. 0 means no limit.
type Options struct {
	Rate    int // requests per second
	Burst   int // requests at once after a quiet time; at least 1
	Streams int // open at a time
	// Accounts is how many accounts without open streams are remembered; default 50000. The least recently used one is
	// evicted first, and starts again with its full burst.
	Accounts int
}

// Quotas keeps an account for each caller or address. Its methods may be called from many goroutines.
type Quotas[K comparable] struct {
	opt Options
	mu  sync.Mutex
	// An account with open streams is in busy. Others are in idle, which is bounded.
	busy map[K]*account
	idle *ttlcache.Cache[K, *account]
}

type account struct {
	bucket  *rate.Limiter
	streams int
}

// New makes the accounts of a replica. It returns nil when nothing is limited; a nil Quotas allows everything.
func New[K comparable](o Options) *Quotas[K] {
	if o.Rate == 0 && o.Streams == 0 {
		return nil
	}
	o.Accounts = cmp.Or(o.Accounts, 50_000)
	idle := ttlcache.New(ttlcache.WithCapacity[K, *account](uint64(o.Accounts)))
	return &Quotas[K]{opt: o, busy: map[K]*account{}, idle: idle}
}

// Allow takes a request from the rate, or returns how long to wait until the next one is allowed. It does not block.
func (q *Quotas[K]) Allow(key K) (wait time.Duration, ok bool) {
	if q == nil || q.opt.Rate == 0 {
		return 0, true
	}
	q.mu.Lock()
	bucket := q.of(key).bucket
	q.mu.Unlock()
	r := bucket.Reserve()
	if wait = r.Delay(); wait == 0 {
		return 0, true
	}
	r.Cancel()
	return wait, false
}

// Ready reports whether Allow would allow a request, without taking one.
func (q *Quotas[K]) Ready(key K) (wait time.Duration, ok bool) {
	if q == nil || q.opt.Rate == 0 {
		return 0, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.find(key)
	if a == nil {
		return 0, true
	}
	missing := 1 - a.bucket.Tokens()
	if missing <= 0 {
		return 0, true
	}
	return time.Duration(missing / float64(q.opt.Rate) * float64(time.Second)), false
}

// Open takes a place for a stream. If ok, call closed when the stream ends.
func (q *Quotas[K]) Open(key K) (closed func(), ok bool) {
	if q == nil || q.opt.Streams == 0 {
		return func() {}, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.of(key)
	if a.streams == q.opt.Streams {
		return nil, false
	}
	a.streams++
	q.idle.Delete(key)
	q.busy[key] = a
	return sync.OnceFunc(func() { q.close(key, a) }), true
}

func (q *Quotas[K]) close(key K, a *account) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.streams--; a.streams == 0 {
		delete(q.busy, key)
		q.idle.Set(key, a, ttlcache.NoTTL)
	}
}

// of finds or creates the account of a key. The caller holds the lock.
func (q *Quotas[K]) of(key K) *account {
	a := q.find(key)
	if a == nil {
		a = &account{bucket: rate.NewLimiter(rate.Limit(q.opt.Rate), max(q.opt.Burst, 1))}
		q.idle.Set(key, a, ttlcache.NoTTL)
	}
	return a
}

// find returns the account of a key, or nil. The caller holds the lock.
func (q *Quotas[K]) find(key K) *account {
	if a := q.busy[key]; a != nil {
		return a
	}
	if item := q.idle.Get(key); item != nil {
		return item.Value()
	}
	return nil
}
