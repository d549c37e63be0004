package maintenance_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/maintenance"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// process is a store with an id, like that of a server.
type process struct {
	*store.Store
	id   task.ID
	dead atomic.Bool // it cannot reach its database
	took chan bool   // the results of Lead
}

func newProcess(t *testing.T, url string) *process {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: url, APIConns: 1})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	return &process{Store: s, id: store.NewID(), took: make(chan bool, 1000)}
}

func (p *process) Lead(ctx context.Context, duty string, holder task.ID, ttl time.Duration) (bool, error) {
	if p.dead.Load() {
		return false, task.Unavailable
	}
	leads, err := p.Store.Lead(ctx, duty, holder, ttl)
	p.took <- leads
	return leads, err
}

func (p *process) Resign(ctx context.Context, duty string, holder task.ID) error {
	if p.dead.Load() {
		return task.Unavailable
	}
	return p.Store.Resign(ctx, duty, holder)
}

func (p *process) holder() task.ID { return p.id }

// holders lists the holder of each lease.
func holders(t *testing.T, url string) []task.ID {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // the database goes next
	rows, err := conn.Query(t.Context(), "SELECT holder FROM holdfast.leases WHERE until >= now()")
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	require.NoError(t, err)
	out := make([]task.ID, len(ids))
	for i, id := range ids {
		out[i] = id
	}
	return out
}

func execute(t *testing.T, url, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // the database goes next
	_, err = conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// until is a duty that reports its process, and then works until it is interrupted.
func until(who string, began, ended chan<- string) maintenance.Duty {
	return maintenance.Duty{
		Name: "d", Every: 10 * time.Millisecond, Timeout: time.Hour, Alone: true,
		Run: func(ctx context.Context) (bool, error) {
			began <- who
			<-ctx.Done()
			ended <- who
			return true, ctx.Err()
		},
	}
}

func TestDutyMovesFromDeadProcess(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	began, ended := make(chan string, 1000), make(chan string, 1000)
	first, second := newProcess(t, url), newProcess(t, url)
	kill := run(t, maintenance.Options{Duties: []maintenance.Duty{until("first", began, ended)}, Leases: first, Holder: first.holder, TTL: time.Hour})
	require.Equal(t, "first", waittest.Within(t, "it leads", began))
	require.Equal(t, []task.ID{first.id}, holders(t, url))
	run(t, maintenance.Options{Duties: []maintenance.Duty{until("second", began, ended)}, Leases: second, Holder: second.holder, TTL: time.Second})
	require.False(t, waittest.Within(t, "it has looked", second.took), "a process has the duty")

	first.dead.Store(true)
	kill()
	require.Equal(t, "first", waittest.Within(t, "the process has stopped", ended))
	require.Equal(t, []task.ID{first.id}, holders(t, url), "its lease remains")
	require.False(t, waittest.Within(t, "the other process has looked", second.took))
	execute(t, url, "UPDATE holdfast.leases SET until = now() - interval '1 s'") // as if the hour had passed
	require.Equal(t, "second", waittest.Within(t, "the other process takes the duty", began))
}

func TestStopReleasesLease(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	began, ended := make(chan string, 10), make(chan string, 10)
	first, second := newProcess(t, url), newProcess(t, url)
	stop := run(t, maintenance.Options{Duties: []maintenance.Duty{until("first", began, ended)}, Leases: first, Holder: first.holder})
	require.Equal(t, "first", waittest.Within(t, "it leads", began))
	stop()
	require.Equal(t, "first", waittest.Within(t, "the stop interrupts the piece", ended))
	require.Empty(t, holders(t, url))
	run(t, maintenance.Options{Duties: []maintenance.Duty{until("second", began, ended)}, Leases: second, Holder: second.holder})
	require.Equal(t, "second", waittest.Within(t, "it leads", began), "before the lease would run out")
}

// All pieces together take much longer than a lease.
func TestLeaseIsRenewedDuringBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var leases table
		more := make(chan bool) // the ends of the pieces
		leader := run(t, maintenance.Options{
			Duties: []maintenance.Duty{{Name: "d", Every: time.Hour, Alone: true, Run: func(context.Context) (bool, error) {
				return <-more, nil
			}}},
			Leases: &leases, Holder: is(1),
		})
		synctest.Wait()
		runs := 0
		follower := run(t, maintenance.Options{
			Duties: []maintenance.Duty{{Name: "d", Every: time.Second, Alone: true, Run: func(context.Context) (bool, error) { runs++; return false, nil }}},
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
				stop := run(t, maintenance.Options{
					Duties: []maintenance.Duty{duty}, Leases: &leases, TTL: ttl,
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
		stop := run(t, maintenance.Options{
			Duties: []maintenance.Duty{until("it", began, ended)}, Leases: &leases,
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
		stop := run(t, maintenance.Options{
			Duties: []maintenance.Duty{until("it", began, ended)}, Leases: &leases, Holder: is(1), Log: slog.New(slog.NewTextHandler(&said, nil)),
		})
		waittest.Advance(time.Hour)
		require.Equal(t, 1, bytes.Count(said.Bytes(), []byte("duty not taken")), said.String())
		leases.change(func() { leases.err = nil })
		<-began
		stop()
	})
}
