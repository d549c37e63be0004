package limit

import (
	"cmp"
	"math"
	"sync"
)

// Places bounds what is open at a time, in total and for each key. A nil Places bounds nothing.
type Places[K comparable] struct {
	all, each int
	mu        sync.Mutex
	taken     int
	by        map[K]int
}

// NewPlaces makes all places, of which each key gets at most each. 0 means any number.
func NewPlaces[K comparable](all, each int) *Places[K] {
	return &Places[K]{all: cmp.Or(all, math.MaxInt), each: cmp.Or(each, math.MaxInt), by: map[K]int{}}
}

// Take takes a place without blocking. If ok, call leave once to give it back.
func (p *Places[K]) Take(key K) (leave func(), ok bool) {
	if p == nil {
		return func() {}, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == p.all || p.by[key] == p.each {
		return nil, false
	}
	p.taken++
	p.by[key]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		if p.by[key]--; p.by[key] == 0 {
			delete(p.by, key)
		}
	}, true
}

// Taken returns how many places are taken.
func (p *Places[K]) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Full reports whether no key gets a place.
func (p *Places[K]) Full() bool { return p != nil && p.Taken() == p.all }
