package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pgembed"
)

// Database is the configured PostgreSQL, or an embedded one that is started for
// the purpose and watched until base ends. close leaves it.
func Database(ctx, base context.Context, cfg *config.Config, log *slog.Logger) (url string, closeDB func(), err error) {
	if cfg.DatabaseURL != "" {
		return cfg.DatabaseURL, func() {}, nil
	}
	pg, err := pgembed.Start(ctx, pgembed.Options{Dir: cfg.DataDir, Log: log})
	if err != nil {
		return "", nil, err
	}
	watching, stop := context.WithCancel(base)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = pg.Watch(watching)
	}()
	return pg.DSN(), func() {
		stop()
		<-watched
		closing, cancel := context.WithTimeout(context.WithoutCancel(base), 20*time.Second)
		defer cancel()
		if err := pg.Stop(closing); err != nil {
			log.Warn("postgresql was not stopped", "error", err)
		}
	}, nil
}
