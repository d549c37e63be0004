package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// clock is the database's clock as this process knows it. The time in a task's id decides how long the task is kept, so
// a machine with a wrong clock must not set it.
type clock struct{ seen atomic.Pointer[moment] }

// moment is one moment on both clocks.
type moment struct{ database, local time.Time }

// precise is how well the clock is known: an answer takes a while, and ids made in turn must ascend.
const precise = time.Second

// learn takes the database's time from the answer to a statement that began at a local time.
func (c *clock) learn(database, began time.Time) {
	if took := time.Since(began); took < precise {
		c.seen.Store(&moment{database, began.Add(took / 2)})
	}
}

// skew returns how far the database's clock is ahead of the local one. It follows a step of the local clock at once,
// because the time since the moment is that of the monotonic clock.
func (c *clock) skew() time.Duration {
	m := c.seen.Load()
	if m == nil {
		return 0
	}
	now := time.Now()
	return m.database.Add(now.Sub(m.local)).Sub(now).Round(precise)
}

// NewTaskID returns the id of a task to be created, with the time of the database's clock.
func (v View) NewTaskID() task.ID {
	id := NewID()
	if skew := v.s.clock.skew(); skew != 0 {
		first := partition.FirstID(partition.TimeOf(id).Add(skew))
		copy(id[:6], first[:6])
	}
	return id
}

// Now returns the time of the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	began := time.Now()
	if err := s.hot.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return time.Time{}, translate("clock", err)
	}
	s.clock.learn(now, began)
	return now, nil
}
