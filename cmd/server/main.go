// Command server is holdfast: a durable A2A task server on PostgreSQL. It also has tools that talk to agents and
// inspect tasks.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-a2a/holdfast/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal starts a graceful stop; a second one ends the process at once.
	context.AfterFunc(ctx, stop)

	code := cli.Run(ctx, os.Args[1:], cli.IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Environ: os.Environ,
	}, cli.Live(os.Stdout))
	stop()
	os.Exit(code)
}
