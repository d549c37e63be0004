package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// hangups are the SIGHUPs of a process.
type hangups struct {
	c    chan struct{}
	used atomic.Bool
}

type hangupsKey struct{}

// Hangups returns a channel that gets a value for a SIGHUP, which then does not end the context of UntilSignal. The channel is nil if
// this context is of another kind, or the process ignores SIGHUP.
func Hangups(ctx context.Context) <-chan struct{} {
	h, _ := ctx.Value(hangupsKey{}).(*hangups)
	if h == nil {
		return nil
	}
	h.used.Store(true)
	return h.c
}

// untilHangup ends a context at SIGHUP. A terminal that closes may send it twice, so it never ends the process at once.
func untilHangup(parent context.Context) (ctx context.Context, stop func()) {
	h := &hangups{c: make(chan struct{}, 1)}
	ctx, end := context.WithCancelCause(context.WithValue(parent, hangupsKey{}, h))
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	had := hasTerminal()
	go func() {
		for range heard {
			if !h.used.Load() || had && !hasTerminal() {
				end(errors.New("hangup signal received"))
				continue
			}
			select {
			case h.c <- struct{}{}:
			default:
			}
		}
	}()
	return ctx, func() {
		signal.Stop(heard)
		close(heard)
		end(context.Canceled)
	}
}

// hasTerminal reports whether the process has a controlling terminal. A terminal that closes is gone before its signal comes.
func hasTerminal() bool {
	f, err := os.Open("/dev/tty")
	if err == nil {
		_ = f.Close()
	}
	return err == nil
}
