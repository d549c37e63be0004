package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
)

// Database is the PostgreSQL that a process uses.
type Database struct {
	URL       string // for queries
	DirectURL string // for LISTEN and migrations, which need a session of their own
	Close     func() // disconnects
}

// Migrate migrates the database, and admits the role of servers unless it is "". Errors: schema.ErrPooled if the only URL
// leads to a pooler.
func (db *Database) Migrate(ctx context.Context, servers string, log *slog.Logger) error {
	if err := db.checkDirect(ctx, log); err != nil {
		return err
	}
	if err := schema.Migrate(ctx, db.DirectURL, log); err != nil || servers == "" {
		return err
	}
	return schema.Admit(ctx, db.DirectURL, servers, log)
}

func (db *Database) checkDirect(ctx context.Context, log *slog.Logger) error {
	if db.URL != db.DirectURL {
		return nil
	}
	return schema.CheckDirect(ctx, db.URL, log)
}

// waitPause is the time between two looks at a schema that another process has to migrate.
const waitPause = time.Second

// prepare makes sure that a server can work with the schema, as migrate says. It calls waits with the reason while it waits.
func (db *Database) prepare(ctx context.Context, mode config.Migrate, log *slog.Logger, waits func(reason string)) error {
	if err := db.checkDirect(ctx, log); err != nil {
		return err
	}
	for last := ""; ; {
		unusable, mayMigrate, err := schema.Look(ctx, db.DirectURL, log)
		switch {
		case err != nil && (mode != config.MigrateWait || last == ""):
			return fmt.Errorf("database: %w", err)
		case err != nil: // the database went away during the wait
			unusable = &schema.Unusable{Reason: err.Error()}
		case mode == config.MigrateAuto && mayMigrate:
			waits("the schema is being migrated")
			return schema.Migrate(ctx, db.DirectURL, log)
		case unusable == nil:
			return nil
		case mode != config.MigrateWait:
			return fmt.Errorf("migrate is %s: %w", mode, unusable)
		}
		waits(unusable.Reason)
		if unusable.Reason != last {
			log.Warn("waiting for the schema (migrate is wait)", "reason", unusable.Reason)
			last = unusable.Reason
		}
		select {
		case <-ctx.Done():
			return nil // stopped, which is no failure
		case <-time.After(waitPause):
		}
	}
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
