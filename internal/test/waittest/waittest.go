// Package waittest waits in tests: for a channel, for a condition, or, in a bubble of testing/synctest, for time that
// passes at once. No test waits for a fixed real time, and none has a deadline of its own.
package waittest

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience is how long a test waits without any progress. Only a hang reaches it, however busy the machine is.
const Patience = 3 * time.Minute

// interval is the pause between two checks of Eventually.
const interval = 5 * time.Millisecond

// Eventually repeats a check until it succeeds. It gives up after Patience in which the check's error stayed the same, so an
// error that counts ("3 of 500 tasks have ended") lets long work end. Use it for conditions that nothing signals.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	for last, since := "", time.Now(); ; <-time.After(interval) {
		err := check()
		if err == nil {
			return
		}
		if err.Error() != last {
			last, since = err.Error(), time.Now()
		} else if time.Since(since) > Patience {
			hang(t, what, last)
		}
	}
}

// Within receives from a channel.
func Within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		hang(t, what, "")
		panic("unreachable")
	}
}

// Tries repeats a call that may hang. Each try has twice the time of the one before it, so no machine is too slow for all.
func Tries(t testing.TB, what string, call func(context.Context) error) {
	t.Helper()
	for limit := 100 * time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := call(ctx)
		cancel()
		if err == nil {
			return
		}
		if limit > Patience {
			hang(t, what, err.Error())
		}
	}
}

// hang fails the test. It names what the test waited for, and where each goroutine of the test process is. The cleanups
// of clustertest add the last lines of the servers' logs.
func hang(t testing.TB, what, last string) {
	t.Helper()
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	require.FailNow(t, "no progress for "+Patience.String()+": "+what, last)
}

// Unless returns nil if the condition holds, and otherwise an error with the message.
func Unless(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// Context returns a context that ends with the test, or after Patience.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Advance lets the time of a bubble pass, and everything that is due in it happen. It panics outside of a bubble.
func Advance(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

// Elapsed is the time of a bubble since a moment. It panics outside of a bubble.
func Elapsed(since time.Time) time.Duration {
	synctest.Wait()
	return time.Since(since)
}
