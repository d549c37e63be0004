package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
)

// process is what its servers share: one serves, and those that it has replaced stop.
type process struct {
	Options
	log        *slog.Logger
	base       context.Context //nolint:containedctx // of the process
	supervisor supervisor
	sockets    sockets
	db         *Database // of the first server
	servers    sync.WaitGroup
}

// generation is one server of a process.
type generation struct {
	first bool
	up    chan struct{} // closed when it serves
	done  chan struct{} // closed when it has ended, with err
	err   error
	stop  context.CancelCauseFunc
	files *auth.Reloader // known when it is up
}

// errReplaced says that another server of the process has taken over.
var errReplaced = errors.New("replaced by a server with other agents")

func (p *process) begin(ctx context.Context, cfg *config.Config, first bool) *generation {
	g := &generation{first: first, up: make(chan struct{}), done: make(chan struct{})}
	ctx, g.stop = context.WithCancelCause(ctx)
	p.servers.Go(func() {
		defer close(g.done)
		defer g.stop(nil)
		g.err = p.serve(ctx, cfg, g)
		if g.err != nil && errors.Is(context.Cause(ctx), errReplaced) {
			p.log.Error("the server before has failed", "error", g.err)
		}
	})
	return g
}

// run serves until ctx ends or the server fails. It takes a SIGHUP when it serves and no other server stops.
func (p *process) run(ctx context.Context, cfg *config.Config) error {
	current := p.begin(ctx, cfg, true)
	ready, hangups := current.up, (<-chan struct{})(nil)
	for {
		select {
		case <-current.done:
			return current.err
		case <-ready:
			ready, hangups = nil, p.Hangups
		case <-hangups:
			if next := p.reload(ctx, current); next != current {
				ready, hangups, current = current.done, nil, next
			}
		}
	}
}

// reload has another server take over if only agents have changed, and returns the server of now. For other parts it says what a
// restart would change. Until the server before has stopped, the process has the connections and the memory of two.
func (p *process) reload(ctx context.Context, current *generation) *generation {
	current.files.Look()
	change, err := p.Changes()
	switch {
	case err != nil:
		p.log.Error("the configuration has mistakes, and a server would not start with it; nothing of it is used", "error", err)
		return current
	case len(change.Keys) == 0:
		p.log.Info("the configuration has not changed")
		return current
	case !change.OnlyAgents():
		p.log.Warn("the configuration has changed; these keys need a restart, and nothing of it is used until then", "keys", change.Keys)
		return current
	}
	next := p.begin(ctx, change.Config, false)
	select {
	case <-next.up:
	case <-next.done:
		if ctx.Err() == nil {
			p.log.Error("the agents of the configuration cannot be used, and those before stay", "error", next.err)
		}
		return current
	case <-current.done:
		next.stop(nil)
		return current
	}
	change.Took()
	p.log.Info("the agents have changed", "keys", change.Keys)
	current.stop(errReplaced)
	return next
}

// close ends what the servers share when the last one has ended.
func (p *process) close() {
	p.servers.Wait()
	if p.db != nil {
		p.db.Close()
	}
	p.sockets.close()
	p.supervisor.close()
}
