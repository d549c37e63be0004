package upkeep_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/upkeep"
)

// process is a process that has the leases until it dies.
type process struct {
	*table
	dead atomic.Bool
}

func (p *process) Lead(ctx context.Context, duty string, holder task.ID, ttl time.Duration) (bool, error) {
	if p.dead.Load() {
		return false, task.Unavailable
	}
	return p.table.Lead(ctx, duty, holder, ttl)
}

func (p *process) Resign(ctx context.Context, duty string, holder task.ID) error {
	if p.dead.Load() {
		return task.Unavailable
	}
	return p.table.Resign(ctx, duty, holder)
}

// until is a duty that reports its process, and then works until it is interrupted.
func until(who string, began, ended chan<- string) upkeep.Duty {
	return upkeep.Duty{
		Name: "d", Every: 10 * time.Millisecond, Timeout: time.Hour, Alone: true,
		Run: func(ctx context.Context) (bool, error) {
			began <- who
			<-ctx.Done()
			ended <- who
			return true, ctx.Err()
		},
	}
}

func TestDutyMovesToAnotherProcess(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	for name, c := range map[string]struct {
		dead   bool
		from   time.Duration // the earliest
		within time.Duration // the latest
	}{
		"it stops": {false, 0, ttl / 2 * 5 / 4},
		"it dies":  {true, ttl * 2 / 3, ttl + ttl/2*5/4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, ended := make(chan string, 10), make(chan string, 10)
				first := &process{table: new(table)}
				stop := run(t, upkeep.Options{Duties: []upkeep.Duty{until("first", began, ended)}, Leases: first, Holder: is(1), TTL: ttl})
				require.Equal(t, "first", <-began)
				other := run(t, upkeep.Options{Duties: []upkeep.Duty{until("second", began, ended)}, Leases: first.table, Holder: is(2), TTL: ttl})
				waittest.Advance(time.Minute)
				require.Empty(t, began, "a process has the duty")
				at := time.Now()
				first.dead.Store(c.dead)
				stop()
				require.Equal(t, "first", <-ended, "the stop interrupts the piece")
				require.Equal(t, "second", <-began)
				took := waittest.Elapsed(at)
				require.GreaterOrEqual(t, took, c.from)
				require.LessOrEqual(t, took, c.within)
				other()
			})
		})
	}
}

// All pieces together take much longer than a lease.
func TestLeaseIsRenewedDuringBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var leases table
		more := make(chan bool) // the ends of the pieces
		leader := run(t, upkeep.Options{
			Duties: []upkeep.Duty{{Name: "d", Every: time.Hour, Alone: true, Run: func(context.Context) (bool, error) {
				return <-more, nil
			}}},
			Leases: &leases, Holder: is(1),
		})
		synctest.Wait()
		runs := 0
		follower := run(t, upkeep.Options{
			Duties: []upkeep.Duty{{Name: "d", Every: time.Second, Alone: true, Run: func(context.Context) (bool, error) { runs++; return false, nil }}},
			Leases: &leases, Holder: is(2),
		})
		for left := range 50 {
			waittest.Advance(10 * time.Second)
			more <- left < 49
		}
		waittest.Advance(10 * time.Minute) // it keeps the lease while it waits for the next round
		require.Zero(t, runs)
		leader()
		waittest.Advance(time.Minute)
		follower()
		require.Positive(t, runs)
	})
}

func TestHolderStopsWithoutLease(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	for name, c := range map[string]struct {
		happens func(leases *table, holder *atomic.Uint32)
		from    time.Duration // the earliest
		within  time.Duration // the latest
		reason  string
		next    byte // the holder at the end
	}{
		"taken by another process": {
			func(l *table, _ *atomic.Uint32) {
				l.change(func() { l.rows["d"] = row{task.ID{9}, time.Now().Add(time.Hour)} })
			},
			0, ttl / 4 * 5 / 4, "another process took the lease", 9,
		},
		"the database is away": {
			func(l *table, _ *atomic.Uint32) { l.change(func() { l.err = errors.New("away") }) },
			// The last renewal was up to a quarter of the lease, with its jitter, before.
			ttl * 2 / 3, ttl, "the lease was not renewed in time", 1,
		},
		"the database does not answer": {
			func(l *table, _ *atomic.Uint32) { l.change(func() { l.hang = true }) },
			ttl * 2 / 3, ttl, "the lease was not renewed in time", 1,
		},
		"the process was declared dead": {
			func(_ *table, holder *atomic.Uint32) { holder.Store(2) },
			0, ttl / 4 * 5 / 4, "this process was declared dead", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var leases table
				var holder atomic.Uint32
				holder.Store(1)
				var said bytes.Buffer
				began, ended, lost := make(chan string, 10), make(chan string, 10), make(chan string, 10)
				duty := until("it", began, ended)
				duty.Lost = func() { lost <- <-ended } // the last piece has ended before
				stop := run(t, upkeep.Options{
					Duties: []upkeep.Duty{duty}, Leases: &leases, TTL: ttl,
					Holder: func() task.ID { return task.ID{byte(holder.Load())} },
					Log:    slog.New(slog.NewTextHandler(&said, nil)),
				})
				<-began
				waittest.Advance(time.Minute - time.Millisecond) // several renewals
				require.Empty(t, ended)
				at := time.Now()
				c.happens(&leases, &holder)
				require.Equal(t, "it", <-lost)
				took := waittest.Elapsed(at)
				require.GreaterOrEqual(t, took, c.from)
				require.LessOrEqual(t, took, c.within)
				require.Contains(t, said.String(), `msg="duty lost" duty=d reason="`+c.reason+`"`)
				leases.change(func() { leases.err, leases.hang = nil, false })
				if c.next != 9 {
					<-began
				}
				waittest.Advance(time.Minute)
				leases.change(func() { require.Equal(t, task.ID{c.next}, leases.rows["d"].holder) })
				stop()
			})
		})
	}
}

func TestProcessWithoutIDTakesNoLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, ended := make(chan string, 10), make(chan string, 10)
		var leases table
		var id atomic.Uint32
		stop := run(t, upkeep.Options{
			Duties: []upkeep.Duty{until("it", began, ended)}, Leases: &leases,
			Holder: func() task.ID { return task.ID{byte(id.Load())} },
		})
		waittest.Advance(time.Hour)
		require.Empty(t, began)
		id.Store(1)
		<-began
		stop()
	})
}

func TestLeaseErrorIsLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leases := table{err: errors.New("no such table")}
		var said bytes.Buffer
		began, ended := make(chan string, 10), make(chan string, 10)
		stop := run(t, upkeep.Options{
			Duties: []upkeep.Duty{until("it", began, ended)}, Leases: &leases, Holder: is(1), Log: slog.New(slog.NewTextHandler(&said, nil)),
		})
		waittest.Advance(time.Hour)
		require.Equal(t, 1, bytes.Count(said.Bytes(), []byte("duty not taken")), said.String())
		leases.change(func() { leases.err = nil })
		<-began
		stop()
	})
}
