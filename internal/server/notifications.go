package server

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc/notifications"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// newNotifications makes the handler of the notifications of agents behind fronts, and lets these fronts ask for them. It
// returns nil if the configuration wants none.
func newNotifications(ctx context.Context, e *env, p *ports, agents *agents, st *store.Store, bus *signal.Bus) (*notifications.Handler, error) {
	var handler *notifications.Handler
	for i := range e.cfg.Agents {
		a := &e.cfg.Agents[i]
		if a.Executor.Kind != config.ExecutorA2A || !a.Executor.A2A.Push {
			continue
		}
		if handler == nil {
			tokens, err := newTokens(ctx, st, notifications.Purpose)
			if err != nil {
				return nil, err
			}
			handler = notifications.New(notifications.Options{
				URL: e.cfg.RunAPIURL(p.baseURL(e.cfg)), Tokens: tokens, MaxBody: int64(e.cfg.Limits.MaxBody), Notified: bus.Notified.Announce,
				Counted: e.metrics.Notified,
			})
		}
		front := agents.fronts[a.Name]
		front.Push(handler.Target)
		bus.Notified.Subscribe(front.Notified)
	}
	return handler, nil
}

// pushInterval returns the longest pause between two reads of a task whose agent notifies. Each read is a sign of life.
func pushInterval(a *config.Agent) time.Duration {
	if idle := a.Limits.InactivityTimeout; idle > 0 {
		return min(time.Minute, idle/2)
	}
	return time.Minute
}
