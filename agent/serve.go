package agent

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/cli"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Main is the whole main function of a program with these agents, by name. The program is the holdfast binary with the
// agents in it: it has its verbs, flags, variables and exit codes, and stops as holdfast does. Without a verb it serves.
// Main does not return.
//
// A file gives these agents the executor kind go. Without a file they run with defaults.
func Main(agents map[string]Executor) { os.Exit(cli.Main(adaptAll(agents))) }

// Serve runs a Holdfast server with the agents of this program, by name, for programs with a main function of their own.
// It blocks until ctx ends, the process gets SIGINT or SIGTERM, or its terminal closes. Then runs may finish within the grace;
// unfinished runs are handed back. A second SIGINT or SIGTERM ends the process at once, unless the program handles them.
// Wait until Serve returns before the program ends: it stops the embedded PostgreSQL last.
//
// The environment and the file that HOLDFAST_CONFIG names configure it, as for the holdfast binary. A file gives these
// agents the executor kind go. Without a file they run with defaults, on an embedded PostgreSQL unless
// HOLDFAST_DATABASE_URL names another database. A nil log discards.
func Serve(ctx context.Context, log *slog.Logger, agents map[string]Executor) error {
	// Here and not in the program: one that handles SIGINT alone would die of SIGTERM and leave its PostgreSQL running.
	ctx, stop := cli.UntilSignal(ctx)
	defer stop()
	source := config.Source{Env: os.LookupEnv, Programs: slices.Sorted(maps.Keys(agents))}
	cfg, changes, err := source.Watch()
	if err != nil {
		return err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return server.Run(ctx, cfg, log, server.Options{
		Executors: adaptAll(agents), Version: cli.Version(), Commit: cli.Commit(), Hangups: cli.Hangups(ctx), Changes: changes,
	})
}

func adaptAll(agents map[string]Executor) map[string]executor.Executor {
	executors := make(map[string]executor.Executor, len(agents))
	for name, e := range agents {
		executors[name] = adapt(e)
	}
	return executors
}
