package app

import (
	"context"

	"github.com/holdfast-a2a/holdfast/internal/auth"
)

// hear handles SIGHUP until ctx ends. The parts of a server keep their settings, so it only says what a restart would change.
func (e *env) hear(ctx context.Context, files *auth.Reloader) error {
	for {
		select {
		case <-e.hangups:
		case <-ctx.Done():
			return nil
		}
		files.Look()
		switch keys, err := e.changes(); {
		case err != nil:
			e.log.Error("the configuration has mistakes, and a server would not start with it; nothing of it is used", "error", err)
		case len(keys) > 0:
			e.log.Warn("the configuration has changed; these keys need a restart, and nothing of it is used until then", "keys", keys)
		default:
			e.log.Info("the configuration has not changed")
		}
	}
}
