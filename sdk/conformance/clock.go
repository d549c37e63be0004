package conformance

import (
	"context"
	"sync/atomic"
	"time"
)

// tick is the unit of a clock.
const tick = 10 * time.Millisecond

// clock is the time that this process has had: ticks that nobody could take do not count. So a machine that stalls ends no leases,
// because the worker has stalled with it.
type clock struct{ ticks atomic.Int64 }

// newClock returns a clock that runs until ctx ends.
func newClock(ctx context.Context) *clock {
	c := &clock{}
	c.ticks.Store(1) // no moment is zero
	go func() {
		t := time.NewTicker(tick)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				c.ticks.Add(1)
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

func (c *clock) now() time.Duration { return time.Duration(c.ticks.Load()) * tick }

// after is the end of a long poll. Workers are other processes, so it is real time.
func after(d time.Duration) <-chan time.Time { return time.After(d) }
