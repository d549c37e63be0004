package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

// cache remembers for a while what credentials have turned out to be, by their digests.
type cache[V any] struct {
	mu      sync.Mutex
	bound   int
	entries map[[sha256.Size]byte]entry[V]
	cleared uint64
}

type entry[V any] struct {
	value V
	until time.Time
}

func newCache[V any](bound int) *cache[V] {
	return &cache[V]{bound: bound, entries: map[[sha256.Size]byte]entry[V]{}}
}

func (c *cache[V]) get(key [sha256.Size]byte) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok || time.Now().After(e.until) {
		return v, false
	}
	return e.value, true
}

// keep is get of a value that is remembered anew because somebody has asked for it.
func (c *cache[V]) keep(key [sha256.Size]byte, ttl time.Duration) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	now := time.Now()
	if !ok || now.After(e.until) {
		return v, false
	}
	c.entries[key] = entry[V]{e.value, now.Add(ttl)}
	return e.value, true
}

// age is to be taken before a value is looked up, and given to put.
func (c *cache[V]) age() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cleared
}

// put remembers a value, unless the cache was cleared while that was looked up.
func (c *cache[V]) put(key [sha256.Size]byte, v V, ttl time.Duration, age uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cleared != age {
		return
	}
	if _, ok := c.entries[key]; !ok && len(c.entries) >= c.bound {
		c.shrink()
	}
	c.entries[key] = entry[V]{v, time.Now().Add(ttl)}
}

// shrink drops what has run out and, when that is little, half of the rest, in the order of the map, which is none.
func (c *cache[V]) shrink() {
	now := time.Now()
	for key, e := range c.entries {
		if now.After(e.until) {
			delete(c.entries, key)
		}
	}
	for key := range c.entries {
		if len(c.entries) <= c.bound/2 {
			break
		}
		delete(c.entries, key)
	}
}

func (c *cache[V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	c.cleared++
}
