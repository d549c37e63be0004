package limit

import (
	"context"
	"sync"
	"time"

	"github.com/jellydator/ttlcache/v3"
)

// keptFor is how long Kept has a value.
const keptFor = 5 * time.Minute

// Kept has values for further readers, within half of a budget. It has a value for five minutes, however often it is
// read: what was deleted elsewhere must not stay. The least recently read one makes room. A nil Kept has none. It is safe for
// concurrent use.
type Kept[K comparable, V any] struct {
	values *ttlcache.Cache[K, V]
	bytes  *Budget
	most   int64
	cost   func(V) int64
	puts   sync.Mutex
}

// NewKept makes a Kept of values that cost so many bytes each, of which one gets at most a share of that half, such as an eighth
// (8). Without a budget it returns nil.
func NewKept[K comparable, V any](bytes *Budget, share int64, cost func(V) int64) *Kept[K, V] {
	if bytes == nil {
		return nil
	}
	size := bytes.each
	k := &Kept[K, V]{bytes: bytes, most: size / share, cost: cost, values: ttlcache.New(
		ttlcache.WithTTL[K, V](keptFor),
		ttlcache.WithDisableTouchOnHit[K, V](),
		ttlcache.WithMaxCost(uint64(size), func(i ttlcache.CostItem[K, V]) uint64 { return uint64(cost(i.Value)) }),
	)}
	k.values.OnEviction(func(_ context.Context, _ ttlcache.EvictionReason, i *ttlcache.Item[K, V]) {
		bytes.Give(Holder{}, cost(i.Value()))
	})
	return k
}

// Get returns the value of a key.
func (k *Kept[K, V]) Get(key K) (v V, ok bool) {
	if k == nil {
		return v, false
	}
	item := k.values.Get(key)
	if item == nil {
		return v, false
	}
	return item.Value(), true
}

// Fits reports whether a value of so many bytes may be kept.
func (k *Kept[K, V]) Fits(n int64) bool { return k != nil && n <= k.most }

// Put keeps a value, if it fits.
func (k *Kept[K, V]) Put(key K, v V) {
	if k == nil || !k.Fits(k.cost(v)) {
		return
	}
	k.puts.Lock()
	defer k.puts.Unlock()
	k.values.Delete(key) // an update would not be told as the end of the old value
	k.bytes.Add(Holder{}, k.cost(v))
	k.values.Set(key, v, ttlcache.DefaultTTL)
}

// Delete drops the values of keys.
func (k *Kept[K, V]) Delete(keys ...K) {
	if k == nil {
		return
	}
	for _, key := range keys {
		k.values.Delete(key)
	}
}

// Expire drops what was kept for too long, until done. A nil Kept returns at once.
func (k *Kept[K, V]) Expire(done <-chan struct{}) {
	if k == nil {
		return
	}
	tick := time.NewTicker(keptFor / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.values.DeleteExpired()
		case <-done:
			return
		}
	}
}

// Stat returns what the values take of the budget.
func (k *Kept[K, V]) Stat() BudgetStat { return k.bytes.Stat() }
