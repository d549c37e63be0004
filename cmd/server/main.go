// Command server is holdfast: a durable A2A task server on PostgreSQL, and the tools
// to talk to agents and to look at tasks.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-a2a/holdfast/internal/app"
	"github.com/holdfast-a2a/holdfast/internal/cli"
	"github.com/holdfast-a2a/holdfast/internal/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a graceful stop; a second one ends the process at once.
	context.AfterFunc(ctx, stop)

	code := cli.Run(ctx, os.Args[1:], cli.IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv}, deps())
	stop()
	os.Exit(code)
}

// deps connects the verbs with the parts of the server that they start.
func deps() cli.Deps {
	return cli.Deps{
		Serve: func(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
			return app.Run(ctx, cfg, log, app.Options{Version: cli.Version()})
		},
		Migrate:         app.Migrate,
		MigrationStatus: app.MigrationStatus,
		OpenOperator:    app.OpenOperator,
	}
}
