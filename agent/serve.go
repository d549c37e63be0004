package agent

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/app"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/executor"
)

// Serve runs a Holdfast server with the agents of this program, by name. It blocks until ctx ends. Then runs may finish
// within the grace; unfinished runs are handed back.
//
// The environment and the file that HOLDFAST_CONFIG names configure it, as for the holdfast binary. A file gives these
// agents the executor kind go. Without a file they run with defaults, on an embedded PostgreSQL unless
// HOLDFAST_DATABASE_URL names another database. A nil log discards.
func Serve(ctx context.Context, log *slog.Logger, agents map[string]Executor) error {
	cfg, err := config.Load(config.Source{Env: os.LookupEnv, Programs: slices.Sorted(maps.Keys(agents))})
	if err != nil {
		return err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	executors := make(map[string]executor.Executor, len(agents))
	for name, e := range agents {
		executors[name] = adapt(e)
	}
	return app.Run(ctx, cfg, log, app.Options{Executors: executors})
}
