package server

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/upkeep"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/remote"
	"github.com/holdfast-a2a/holdfast/internal/worker/runapi"
)

// server has the parts of a process.
type server struct {
	*env
	ports      *ports
	access     *access
	hub        *hub.Hub
	keeper     *worker.Keeper
	pool       *worker.Pool     // nil without the worker role
	dispatcher *push.Dispatcher // nil without the push role
	api        *rpc.Server      // nil without the api role
	runs       *runapi.API
	remote     *remote.API // nil without the api role
	operators  *admin.API
	duties     *upkeep.Runner
	admin      *adminServer
	watches    []func(context.Context) error // of the agents behind fronts, and of the database
	stopping   atomic.Bool
	replaced   bool // by another server of the process, which has the same ports
}

// replacedDelay is how long a server that was replaced still answers on connections that were idle, before it closes them.
const replacedDelay = 2 * time.Second

// lastAnswers is how long requests and streams may take to end after the last run.
const lastAnswers = 15 * time.Second

// run starts the parts, waits for ctx or for a part that fails, and stops the parts.
func (s *server) run(ctx, base context.Context) error {
	live, stopLive := context.WithCancel(base)
	defer stopLive()
	background, failed := errgroup.WithContext(live)
	for _, run := range s.background() {
		background.Go(func() error { return run(failed) })
	}
	lease := start(failed, s.keeper.Run)
	duties := start(failed, s.duties.Run)
	claims := start(base, s.claim)
	lends := start(base, s.lend)
	deliveries := start(base, s.deliver)
	announce(s.env, s.ports, s.remote)
	s.tell("READY=1\nSTATUS=Serving")
	close(s.up)

	select {
	case <-ctx.Done():
		s.replaced = errors.Is(context.Cause(ctx), errReplaced)
		s.log.Info("stopping", "drain_delay", s.cfg.DrainDelay, "replaced", s.replaced)
	case <-failed.Done():
		s.log.Error("server component failed", "error", context.Cause(failed))
	}
	if s.replaced {
		_ = s.admin.Close() // whose answers are about this server
	} else {
		defer s.unannounce()
		s.tell("STOPPING=1\nSTATUS=Draining")
	}
	for _, step := range s.stop(base, failed, stopLive, lease, duties, claims, lends, deliveries) {
		s.log.Debug("stopping", "step", step.name)
		step.do()
	}
	err := background.Wait()
	s.log.Info("stopped")
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// step is one step of a stop.
type step struct {
	name string
	do   func()
}

// stop returns the steps of a stop, in order. docs/architecture.md, Stopping, describes them.
func (s *server) stop(base, failed context.Context, stopLive func(), lease, duties, claims, lends, deliveries *part) []step {
	var requests *part
	return []step{
		{"end readiness", s.endReadiness},
		{"wait for balancers", func() { s.drain(failed) }},
		{"stop claiming runs", func() { claims.end(); s.dismiss(); lends.stop() }},
		{"close public listeners", func() { requests = start(base, s.shutdown) }},
		// Callers and streams are still served while runs finish.
		{"wait for runs", claims.wait},
		{"stop claiming webhooks", deliveries.end},
		{"end streams", func() { s.hub.Close(); s.runs.Stop(); s.operators.Stop() }},
		{"wait for requests", func() { requests.waitFor(lastAnswers) }},
		{"wait for deliveries", deliveries.wait},
		{"stop duties", duties.stop},
		// Renewal ends first; otherwise it would re-register the process.
		{"stop renewing the lease", lease.stop},
		{"give up the lease", func() { s.giveUpLease(base) }},
		{"stop background parts", stopLive},
		{"close admin server", func() { _ = s.admin.Close() }},
	}
}

// background lists the parts that run until everything else has ended. If one fails, the server stops.
func (s *server) background() []func(context.Context) error {
	parts := append([]func(context.Context) error{
		s.hub.Run,
		s.operators.Run,
		func(context.Context) error { return <-s.admin.served },
		func(ctx context.Context) error { return s.supervisor.watch(ctx, s.keeper.Stuck, s.log.Warn) },
	}, s.access.background...)
	parts = append(parts, s.watches...)
	if s.api != nil {
		parts = append(parts, func(context.Context) error { return s.api.Serve(s.ports.public) })
	}
	if s.ports.grpc != nil {
		parts = append(parts, func(context.Context) error { return s.api.ServeGRPC(s.ports.grpc) })
	}
	return parts
}

// tell tells the supervisor of this process its state.
func (s *server) tell(state string) {
	if err := s.supervisor.tell(state); err != nil {
		s.log.Warn("cannot tell the state to NOTIFY_SOCKET", "error", err)
	}
}

// endReadiness tells balancers and clients to leave. Everything is still served.
func (s *server) endReadiness() {
	s.stopping.Store(true)
	if s.api != nil {
		s.api.Drain()
	}
}

// drain gives balancers the time to see the end of readiness. A second signal ends the wait, and not the process. A part
// that fails also ends it.
func (s *server) drain(failed context.Context) {
	delay := s.cfg.DrainDelay
	if s.replaced {
		delay = max(delay, replacedDelay)
	}
	if s.api == nil || delay == 0 {
		return
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	select {
	case <-time.After(delay):
	case <-again:
		s.log.Info("second signal: not waiting for balancers")
	case <-failed.Done():
	}
}

// claim runs agents until ctx ends, and then waits until the last run has ended or was handed back.
func (s *server) claim(ctx context.Context) error {
	if s.pool == nil {
		return nil
	}
	return s.pool.Run(ctx)
}

// lend claims runs for remote workers until ctx ends.
func (s *server) lend(ctx context.Context) error {
	if s.remote == nil {
		return nil
	}
	return s.remote.Run(ctx)
}

// dismiss sends remote workers to other replicas. Their uploads are still served.
func (s *server) dismiss() {
	if s.remote != nil {
		s.remote.Stop()
	}
}

// deliver sends webhooks until ctx ends, and then waits for the deliveries under way.
func (s *server) deliver(ctx context.Context) error {
	if s.dispatcher == nil {
		return nil
	}
	return s.dispatcher.Run(ctx)
}

// shutdown refuses new connections, and waits for open requests until ctx ends.
func (s *server) shutdown(ctx context.Context) error {
	if s.api == nil {
		return nil
	}
	err := s.api.Shutdown(ctx)
	if err != nil {
		s.log.Warn("open connections closed", "error", err)
	}
	return err
}

func (s *server) giveUpLease(base context.Context) {
	ctx, cancel := context.WithTimeout(base, 5*time.Second)
	defer cancel()
	s.keeper.Stop(ctx)
}

// part is a part that the server stops by itself. The part logs its own errors.
type part struct {
	end   context.CancelFunc
	ended chan struct{}
}

// start runs a part until ctx ends or stop is called.
func start(ctx context.Context, run func(context.Context) error) *part {
	ctx, end := context.WithCancel(ctx)
	p := &part{end: end, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = run(ctx)
	}()
	return p
}

func (p *part) wait() { <-p.ended }

func (p *part) stop() {
	p.end()
	p.wait()
}

// waitFor waits for the part to end, for at most d, and then stops it.
func (p *part) waitFor(d time.Duration) {
	defer time.AfterFunc(d, p.end).Stop()
	p.wait()
	p.end()
}
