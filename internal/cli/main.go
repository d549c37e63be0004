package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Main runs the command line of this process, with the agents that the program implements, by name. It returns the exit
// code.
func Main(agents map[string]executor.Executor) int {
	ctx, stop := UntilSignal(context.Background())
	defer stop()
	return Run(ctx, os.Args[1:], IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Environ: os.Environ,
	}, Live(bannerOn(os.Stdout), agents))
}

// bannerOn returns where a server writes its lines for a person: nowhere if a program reads the output.
func bannerOn(out *os.File) io.Writer {
	if !isTerminal(out) {
		return nil
	}
	return out
}

// UntilSignal returns a context that ends at SIGINT, SIGTERM, or SIGHUP, which does not end it while Hangups is used and the terminal
// of the process is there. A process that dies of one of them leaves its embedded PostgreSQL running. stop ends the handling of
// signals.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, stopHangup := parent, func() {}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ctx, stopHangup = untilHangup(ctx)
	}
	ctx, stopOthers := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	// The first signal starts a graceful stop; a second one ends the process at once.
	context.AfterFunc(ctx, stopOthers)
	return ctx, func() {
		stopOthers()
		stopHangup()
	}
}
