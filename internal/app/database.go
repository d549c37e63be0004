package app

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/store/schema"
)

// Database is the PostgreSQL that a process uses.
type Database struct {
	URL       string // for queries
	DirectURL string // for LISTEN and migrations, which need a session of their own
	Close     func() // disconnects
}

// Migrate migrates the database. Errors: schema.ErrPooled if the only URL leads to a pooler.
func (db *Database) Migrate(ctx context.Context, log *slog.Logger) error {
	if db.URL == db.DirectURL {
		if err := schema.CheckDirect(ctx, db.URL, log); err != nil {
			return err
		}
	}
	return schema.Migrate(ctx, db.DirectURL, log)
}

// OpenDatabase returns the configured PostgreSQL, or starts an embedded one and watches it until base ends.
func OpenDatabase(ctx, base context.Context, cfg *config.Config, log *slog.Logger) (*Database, error) {
	if cfg.DatabaseURL != "" {
		return &Database{
			URL: cfg.DatabaseURL, DirectURL: cmp.Or(cfg.ListenDatabaseURL, cfg.DatabaseURL), Close: func() {},
		}, nil
	}
	pg, err := pgembed.Start(ctx, pgembed.Options{Dir: cfg.DataDir, Log: log})
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(base)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = pg.Watch(watching)
	}()
	return &Database{URL: pg.DSN(), DirectURL: pg.DSN(), Close: func() {
		stop()
		<-watched
		closing, cancel := context.WithTimeout(context.WithoutCancel(base), 20*time.Second)
		defer cancel()
		if err := pg.Stop(closing); err != nil {
			log.Warn("postgresql not stopped", "error", err)
		}
	}}, nil
}
