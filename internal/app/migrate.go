package app

import (
	"context"
	"log/slog"

	"github.com/holdfast-a2a/holdfast/internal/cli"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/store/schema"
)

// Migrate brings the schema up to date.
func Migrate(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	url, closeDB, err := Database(ctx, ctx, cfg, log)
	if err != nil {
		return err
	}
	defer closeDB()
	return schema.Migrate(ctx, url, log)
}

// MigrationStatus lists every step of the schema, oldest first.
func MigrationStatus(ctx context.Context, cfg *config.Config, log *slog.Logger) ([]cli.Migration, error) {
	url, closeDB, err := Database(ctx, ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer closeDB()
	steps, err := schema.Status(ctx, url)
	out := make([]cli.Migration, len(steps))
	for i, s := range steps {
		out[i] = cli.Migration{Version: s.Version, Name: s.Name, AppliedAt: s.AppliedAt}
	}
	return out, err
}
