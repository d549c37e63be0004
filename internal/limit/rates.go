package limit

import (
	"sync"
	"time"

	"github.com/jellydator/ttlcache/v3"
	"golang.org/x/time/rate"
)

// remembered is how many keys Rates remembers. The least recently used one is forgotten first, and starts again with its full
// burst.
const remembered = 50_000

// Rates bounds the requests per second of each caller or address. A nil Rates allows everything. It is safe for concurrent use.
type Rates[K comparable] struct {
	perSecond, burst int

	mu      sync.Mutex
	buckets *ttlcache.Cache[K, *rate.Limiter]
}

// NewRates allows each key so many requests per second, and burst of them at once after a quiet time. Without a rate (0) it returns
// nil.
func NewRates[K comparable](perSecond, burst int) *Rates[K] {
	if perSecond == 0 {
		return nil
	}
	return newRates[K](perSecond, burst, remembered)
}

func newRates[K comparable](perSecond, burst int, most uint64) *Rates[K] {
	return &Rates[K]{perSecond: perSecond, burst: burst, buckets: ttlcache.New(ttlcache.WithCapacity[K, *rate.Limiter](most))}
}

// Allow takes a request from the rate, or returns how long to wait until the next one is allowed. It does not block.
func (r *Rates[K]) Allow(key K) (wait time.Duration, ok bool) {
	if r == nil {
		return 0, true
	}
	r.mu.Lock()
	item := r.buckets.Get(key)
	if item == nil {
		item = r.buckets.Set(key, rate.NewLimiter(rate.Limit(r.perSecond), r.burst), ttlcache.NoTTL)
	}
	r.mu.Unlock()
	next := item.Value().Reserve()
	if wait = next.Delay(); wait == 0 {
		return 0, true
	}
	next.Cancel()
	return wait, false
}

// Ready reports whether Allow would allow a request, without taking one.
func (r *Rates[K]) Ready(key K) (wait time.Duration, ok bool) {
	if r == nil {
		return 0, true
	}
	item := r.buckets.Get(key)
	if item == nil {
		return 0, true
	}
	missing := 1 - item.Value().Tokens()
	if missing <= 0 {
		return 0, true
	}
	return time.Duration(missing / float64(r.perSecond) * float64(time.Second)), false
}
