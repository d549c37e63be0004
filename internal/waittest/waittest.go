// Package waittest waits in tests: for a channel, or by repeating a check. Every wait ends when its condition holds,
// and fails the test after Patience. No test waits for a fixed time.
package waittest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience bounds every wait. It is long, because the machine may be busy; no passing test needs it.
const Patience = 60 * time.Second

// interval is the pause between two checks of Eventually.
const interval = 5 * time.Millisecond

// Eventually repeats a check until it succeeds. Use it for conditions that nothing signals.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	EventuallyWithin(t, Patience, what, check)
}

// EventuallyWithin is Eventually with a longer deadline.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; <-time.After(interval) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(t, "timed out: "+what, err.Error())
		}
	}
}

// Within receives from a channel.
func Within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return WithinLimit(t, Patience, what, c)
}

// WithinLimit is Within with a longer deadline.
func WithinLimit[T any](t testing.TB, limit time.Duration, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		require.FailNow(t, "timed out: "+what)
		panic("unreachable")
	}
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
