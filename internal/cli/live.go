package cli

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/server"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Live returns the real dependencies of the verbs. banner receives the server's lines for the user when it is up; nil for none. agents
// are those that the program implements, by name.
func Live(banner io.Writer, agents map[string]executor.Executor) Deps {
	return Deps{
		Agents: slices.Sorted(maps.Keys(agents)),
		Serve: func(ctx context.Context, cfg *config.Config, log *slog.Logger, changes server.Changes) error {
			return server.Run(ctx, cfg, log, server.Options{
				Executors: agents, Version: Version(), Commit: Commit(), Banner: banner, Hangups: Hangups(ctx), Changes: changes,
			})
		},
		Develop: func(ctx context.Context, cfg *config.Config, log *slog.Logger, o server.Development) error {
			return server.Run(ctx, cfg, log, server.Options{Executors: agents, Version: Version(), Commit: Commit(), Development: o})
		},
		Migrate: func(ctx context.Context, cfg *config.Config, servers string, log *slog.Logger) error {
			db, err := existingDatabase(ctx, cfg, log)
			if err != nil {
				return err
			}
			defer db.Close()
			return db.Migrate(ctx, servers, log)
		},
		MigrationStatus: migrationStatus,
		OpenOperator:    openOperator,
		Examine:         doctor.Examine,
	}
}

// openOperator makes the admin API in this process. Closing it also disconnects from the database.
func openOperator(ctx context.Context, cfg *config.Config, log *slog.Logger) (OperatorAPI, error) {
	db, err := existingDatabase(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	api, err := server.OpenOperators(ctx, cfg, db, account(), Version(), log)
	if err != nil {
		db.Close()
		return nil, err
	}
	return api, nil
}

func migrationStatus(ctx context.Context, cfg *config.Config, log *slog.Logger) ([]schema.Step, error) {
	db, err := existingDatabase(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return schema.Status(ctx, db.DirectURL)
}

// existingDatabase is for all verbs but serve: they must not create a database in the current folder.
func existingDatabase(ctx context.Context, cfg *config.Config, log *slog.Logger) (*server.Database, error) {
	if cfg.DatabaseURL == "" && !pgembed.Exists(cfg.DataDir) {
		return nil, usage("%s has no database; run this where the server runs, name its admin address with --server, or set HOLDFAST_DATABASE_URL", cfg.DataDir)
	}
	return server.OpenDatabase(ctx, ctx, cfg, log)
}
