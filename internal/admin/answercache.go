package admin

import (
	"context"
	"sync"
	"time"
)

// shared keeps answers for a short time. However many consoles are open, the database answers each question once in that time.
type shared[K comparable, V any] struct {
	keep time.Duration

	mu  sync.Mutex
	all map[K]*sharing[V]
}

type sharing[V any] struct {
	done chan struct{} // closed once the answer is there
	at   time.Time     // when it was asked for
	v    V
	err  error
}

// maxShared bounds how many answers are kept.
const maxShared = 200

// get returns an answer that is at most keep old, or asks for one. The question goes on when the one who asked first leaves.
func (s *shared[K, V]) get(ctx context.Context, key K, ask func(ctx context.Context) (V, error)) (V, error) {
	s.mu.Lock()
	e := s.all[key]
	if e == nil || e.over(s.keep) {
		if s.all == nil || len(s.all) >= maxShared {
			s.all = map[K]*sharing[V]{}
		}
		e = &sharing[V]{done: make(chan struct{}), at: time.Now()}
		s.all[key] = e
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
			defer cancel()
			defer close(e.done)
			e.v, e.err = ask(ctx)
		}()
	}
	s.mu.Unlock()
	select {
	case <-e.done:
		return e.v, e.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// over reports whether a new question is due: the answer is old, or an error.
func (e *sharing[V]) over(keep time.Duration) bool {
	select {
	case <-e.done:
		return e.err != nil || time.Since(e.at) > keep
	default:
		return false
	}
}
