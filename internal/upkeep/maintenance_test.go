package upkeep_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/upkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table holds leases without a database, for tests with a fake clock.
type table struct {
	mu   sync.Mutex
	rows map[string]row
	err  error // the result of every call
	hang bool  // calls block until their context ends
}

type row struct {
	holder task.ID
	until  time.Time
}

func (l *table) Lead(ctx context.Context, duty string, holder task.ID, ttl time.Duration) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hang {
		l.mu.Unlock()
		<-ctx.Done()
		l.mu.Lock()
		return false, ctx.Err()
	}
	if l.err != nil {
		return false, l.err
	}
	if r, there := l.rows[duty]; there && r.holder != holder && time.Now().Before(r.until) {
		return false, nil
	}
	if l.rows == nil {
		l.rows = map[string]row{}
	}
	l.rows[duty] = row{holder, time.Now().Add(ttl)}
	return true, nil
}

func (l *table) Resign(_ context.Context, duty string, holder task.ID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rows[duty].holder == holder {
		delete(l.rows, duty)
	}
	return l.err
}

// change alters the table under its lock.
func (l *table) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// is returns an id that does not change.
func is(id byte) func() task.ID { return func() task.ID { return task.ID{id} } }

// run starts a runner. The returned function stops it and waits.
func run(t *testing.T, o upkeep.Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- upkeep.New(o).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// around checks an interval with a jitter of a quarter.
func around(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.GreaterOrEqual(t, got, want*3/4)
	require.LessOrEqual(t, got, want*5/4)
}

func TestDutyIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, wake, start := make(chan time.Time), make(chan struct{}, 1), time.Now()
		rounds := 0
		stop := run(t, upkeep.Options{Duties: []upkeep.Duty{{
			Name: "d", Every: time.Minute, Wake: wake, Run: func(context.Context) (bool, error) {
				began <- time.Now()
				if rounds++; rounds == 2 {
					return false, errors.New("no")
				}
				return false, nil
			},
		}}})
		require.Equal(t, start, <-began)
		wake <- struct{}{}
		require.Equal(t, start, <-began)
		wake <- struct{}{} // after an error the duty waits until it may try again
		retried := <-began
		around(t, time.Second, retried.Sub(start))
		require.Equal(t, retried, <-began, "it has not forgotten the wake")
		stop()
	})
}

func TestDutyRunsAtOnceAndPeriodically(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := make(chan time.Time)
		start := time.Now()
		stop := run(t, upkeep.Options{Duties: []upkeep.Duty{{
			Name: "d", Every: time.Minute,
			Run: func(context.Context) (bool, error) { began <- time.Now(); return false, nil },
		}}})
		last := <-began
		require.Equal(t, start, last)
		for range 20 {
			next := <-began
			around(t, time.Minute, next.Sub(last))
			last = next
		}
		stop()
	})
}

func TestPiecesFollowWhileMoreIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left, pieces := 5, 0
		stop := run(t, upkeep.Options{
			Duties: []upkeep.Duty{{
				Name: "d", Every: time.Minute,
				Run: func(context.Context) (bool, error) { left--; return left > 0, nil },
			}},
			Ran: func(string, time.Duration, error) { pieces++ },
		})
		synctest.Wait() // no time passes
		require.Equal(t, 5, pieces)
		stop()
	})
}

func TestErrorsAreRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for every, waits := range map[time.Duration][]time.Duration{
		time.Minute:            {time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute},
		time.Second:            {time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 15 * time.Second},
		100 * time.Millisecond: {100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond},
	} {
		t.Run(every.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, outcome := make(chan time.Time), make(chan error)
				var said bytes.Buffer
				var seen []error
				stop := run(t, upkeep.Options{
					Duties: []upkeep.Duty{{
						Name: "d", Every: every,
						// More may be left, but the error decides.
						Run: func(context.Context) (bool, error) { began <- time.Now(); err := <-outcome; return err != nil, err },
					}},
					Ran: func(_ string, _ time.Duration, err error) { seen = append(seen, err) },
					Log: slog.New(slog.NewJSONHandler(&said, nil)),
				})
				var want []error
				for range 2 { // a success resets the backoff
					last := <-began
					for _, wait := range waits {
						outcome <- broken
						want = append(want, broken)
						next := <-began
						around(t, wait, next.Sub(last))
						last = next
					}
					outcome <- nil
					want = append(want, nil)
				}
				synctest.Wait()
				require.Equal(t, want, seen)
				require.Contains(t, said.String(), `"msg":"duty failed","duty":"d","error":"broken","retry_in":"`+waits[0].String()+`"`)
				require.Contains(t, said.String(), fmt.Sprintf(`"msg":"duty recovered","duty":"d","failures":%d`, len(waits)))
				stop()
			})
		})
	}
}

func TestSlowPieceDelaysNoOtherDuty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		hangs := func(bound chan<- time.Duration) func(context.Context) (bool, error) {
			return func(ctx context.Context) (bool, error) {
				<-ctx.Done()
				bound <- waittest.Elapsed(start)
				return false, ctx.Err()
			}
		}
		short, usual := make(chan time.Duration, 99), make(chan time.Duration, 99)
		quick := 0
		stop := run(t, upkeep.Options{Duties: []upkeep.Duty{
			{Name: "short", Every: time.Hour, Timeout: 7 * time.Second, Run: hangs(short)},
			{Name: "usual", Every: time.Hour, Run: hangs(usual)},
			{Name: "quick", Every: time.Second, Run: func(context.Context) (bool, error) { quick++; return false, nil }},
		}})
		require.Equal(t, 7*time.Second, <-short)
		require.Equal(t, 30*time.Second, <-usual)
		stop()
		require.GreaterOrEqual(t, quick, 30*4/5)
	})
}

func TestStopInterruptsPieceWithoutFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := make(chan struct{})
		var said bytes.Buffer
		stop := run(t, upkeep.Options{
			Duties: []upkeep.Duty{{Name: "d", Every: time.Second, Run: func(ctx context.Context) (bool, error) {
				close(began)
				<-ctx.Done()
				return true, ctx.Err()
			}}},
			Ran: func(string, time.Duration, error) { t.Error("Ran was called for an interrupted piece") },
			Log: slog.New(slog.NewTextHandler(&said, nil)),
		})
		<-began
		stop()
		require.Empty(t, said.String())
	})
}
