package auth

import (
	"crypto/sha256"
	"time"

	"github.com/jellydator/ttlcache/v3"
)

// cache remembers results for a while by the digests of credentials. A full cache evicts the least recently used entry.
type cache[V any] struct {
	*ttlcache.Cache[[sha256.Size]byte, V]
}

func newCache[V any](bound uint64) *cache[V] {
	return &cache[V]{ttlcache.New(
		ttlcache.WithCapacity[[sha256.Size]byte, V](bound),
		ttlcache.WithDisableTouchOnHit[[sha256.Size]byte, V](),
	)}
}

func (c *cache[V]) get(key [sha256.Size]byte) (v V, ok bool) {
	item := c.Get(key)
	if item == nil {
		return v, false
	}
	return item.Value(), true
}

// put stores a value. It ignores a ttl that is not positive: the library would take that as no expiry.
func (c *cache[V]) put(key [sha256.Size]byte, v V, ttl time.Duration) {
	if ttl > 0 {
		c.Set(key, v, ttl)
	}
}
