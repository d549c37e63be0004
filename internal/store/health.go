package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// health is what the store knows about its writes.
type health struct {
	trouble atomic.Pointer[trouble] // the newest failed write; nil after a success

	mu    sync.Mutex
	probe *probe // under way, or the last one
}

type trouble struct {
	err error
	at  time.Time
}

type probe struct {
	began time.Time
	done  chan struct{}
	err   error // valid when done is closed
}

const (
	// slowFlush is how long a flush may take before the replica counts as unable to write. A row lock
	// ends after 4 seconds (lock_timeout).
	slowFlush = 6 * time.Second
	// troubled is for how long a failed write counts when no other write follows.
	troubled = 10 * time.Second
)

// timed makes a flush count for Health.
func timed[T any](s *Store, flush func(context.Context, []T) []T) func(context.Context, []T) []T {
	return func(ctx context.Context, items []T) []T {
		ctx, cancel := context.WithCancel(ctx)
		w := s.flushes.add(cancel)
		defer w.end()
		return flush(ctx, items)
	}
}

// Health reports whether this replica can write: its newest writes were committed, none of them
// waits for long, and a commit through the same connections succeeds now. It blocks until ctx ends
// at most. Errors: task.Unavailable, whose message names the cause.
func (s *Store) Health(ctx context.Context) error {
	unhealthy := func(cause error, format string, args ...any) error {
		return &task.Error{Kind: task.Unavailable, Msg: fmt.Sprintf(format, args...), RetryAfter: retryAfter, Cause: cause}
	}
	if t := s.health.trouble.Load(); t != nil && time.Since(t.at) < troubled {
		var pg *pgconn.PgError
		if errors.As(t.err, &pg) && (pg.Code == diskFull || pg.Code == readOnly) {
			return unhealthy(t.err, "%s", unavailability(t.err))
		}
	}
	if d := s.flushes.longest(); d > slowFlush {
		if t := s.health.trouble.Load(); t != nil {
			return unhealthy(t.err, "a write has failed for %s: %s", d.Round(time.Second), unavailability(t.err))
		}
		return unhealthy(nil, "the database has not answered a write for %s", d.Round(time.Second))
	}
	p := s.probing()
	select {
	case <-p.done:
		if p.err != nil {
			return unhealthy(p.err, "%s", unavailability(p.err))
		}
		return nil
	case <-ctx.Done():
		return unhealthy(ctx.Err(), "the database has not answered a commit for %s: it is silent, or waits for a synchronous standby",
			time.Since(p.began).Round(100*time.Millisecond))
	}
}

// probing returns the probe under way, or starts one. A silent database thus occupies one
// connection, however often Health is called.
func (s *Store) probing() *probe {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	if p := s.health.probe; p != nil {
		select {
		case <-p.done:
		default:
			return p
		}
	}
	p := &probe{began: time.Now(), done: make(chan struct{})}
	s.health.probe = p
	go func() {
		defer close(p.done)
		p.err = s.q.CommitProve(s.base, s.write)
	}()
	return p
}
