// Package server composes a server: its parts, the order in which they start, and the order in which they stop.
package server

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfast-a2a/holdfast/internal/admin/console"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	dialects "github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/runapi"
)

// Options are the additions of a Go program to the configuration.
type Options struct {
	// Executors are the agents of kind go, by name.
	Executors map[string]executor.Executor
	Version   string
	Commit    string // of the source; "": not known
	// Banner receives a few lines for the user when the server is up. Nil for none.
	Banner io.Writer
	Development
	// Hangups gets a value for each SIGHUP. Nil: nothing comes.
	Hangups <-chan struct{}
	Changes Changes
}

// Changes loads the configuration again, or returns its mistakes.
type Changes = func() (*config.Change, error)

// Development is what holdfast dev wants.
type Development struct {
	Ready   func(Developing) // is called when the server is up. Nil for none
	Movable []string         // the keys of addresses whose port may be the next free one
}

// Developing is the server of holdfast dev.
type Developing struct {
	URL, Console string   // of the API and of the console
	Moved        []string // what is said of ports that are in use
	Ended        func()   // the agent's process has ended
}

// Run serves until ctx ends, then stops in order. It refuses new requests and makes no new claims. Runs finish within
// the grace or are handed back. Streams end with an id to resume from. Last, it releases the lease and disconnects from
// the database. At SIGHUP another server with the agents of now takes over.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger, o Options) (err error) {
	// The database must outlive every part that is still stopping.
	base, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	p := &process{Options: o, log: log, base: base}
	if p.supervisor, err = newSupervisor(os.Getenv); err != nil {
		return err
	}
	defer p.close()
	// Then the listeners of servers that stop are the last: their ports refuse connections.
	defer context.AfterFunc(ctx, p.sockets.close)()
	return p.run(ctx, cfg)
}

// serve is one server, until ctx ends.
func (p *process) serve(ctx context.Context, cfg *config.Config, g *generation) error {
	base, release := context.WithCancel(p.base)
	defer release()
	outages := newOutages(p.log)
	log := outages.logger()
	registry, metrics := newMetrics()
	// Check first: an invalid configuration starts nothing.
	agents, err := buildAgents(ctx, cfg, p.Options, metrics, log)
	if err != nil {
		return err
	}
	access, err := buildAuth(cfg, log)
	if err != nil {
		return err
	}
	g.files = access.files
	e := &env{
		process: p, generation: g, cfg: cfg, log: log, registry: registry, metrics: metrics,
		memory: budgets(p.base, g.first, cfg, registry, log), figures: newFigures(cfg), outages: outages,
	}
	if e.tracer, err = tracing.FromEnvironment(base, tracing.Service{Version: p.Version, Instance: processName()}, log); err != nil {
		return err
	}
	defer closeTracer(base, e)
	ports, err := listen(ctx, e)
	if err != nil {
		return err
	}
	defer ports.close()
	admin := startAdmin(e, access, ports.admin)
	defer func() { _ = admin.Close() }()
	if p.db == nil {
		if p.db, err = OpenDatabase(ctx, p.base, cfg, log); err != nil {
			return err
		}
	}
	db := p.db
	migrate := cfg.Migrate
	if !g.first {
		migrate = config.MigrateOff // the server before works with the schema; this one waits for nobody
	}
	if err := db.prepare(ctx, migrate, log, func(reason string) { admin.waiting.Store(&reason) }); err != nil || ctx.Err() != nil {
		return err
	}
	return serve(ctx, base, e, ports, admin, db, agents, access)
}

// env is the environment of every stage of the composition.
type env struct {
	cfg      *config.Config
	log      *slog.Logger
	registry *prometheus.Registry
	metrics  *telemetry.Metrics
	figures  *figures
	memory   *limit.Budgets
	tracer   *tracing.Tracer // nil: no traces

	outages *outages
	*process
	*generation
}

func newMetrics() (*prometheus.Registry, *telemetry.Metrics) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry, telemetry.New(registry, dialects.Versions()...)
}

// serve composes the parts in order, each from earlier ones, and runs them. Parts subscribe to signals when they are
// built, so before the first part runs.
func serve(ctx, base context.Context, e *env, ports *ports, admin *adminServer, db *Database, agents *agents, access *access) error {
	bus := &signal.Bus{}
	st, err := openStore(ctx, e, db, bus)
	if err != nil {
		return err
	}
	defer closeStore(base, st)
	access.open(st, e.metrics, bus)
	ring := newRing(e, st)

	h := newHub(e, db, st, bus)
	keeper := newKeeper(e, st, h, bus)
	turns, err := newTokens(ctx, st, task.ResumePurpose)
	if err != nil {
		return err
	}
	attempts, err := newTokens(ctx, st, runapi.Purpose)
	if err != nil {
		return err
	}
	memory, err := st.Secret(ctx, store.SecretMemory)
	if err != nil {
		return err
	}
	visited := newPool(e, agents, st, keeper, bus, executor.NewKeyring(memory), resumeURL(e, ports, turns), runAPI(e, ports, attempts))
	pool := visited
	if !e.cfg.HasRole(config.RoleWorker) {
		pool = nil
	}
	hooks, err := newHooks(e, ring, ports)
	if err != nil {
		return err
	}
	dispatcher := newDispatcher(e, hooks, st, keeper, bus)
	remote := newWorkerAPI(e, agents, access, st, visited, bus)
	eng, err := newEngine(ctx, e, agents, st, h, pool, remote, hooks)
	if err != nil {
		return err
	}
	operations := newOperations(e, agents, eng)
	runs := newRunAPI(e, agents, st, visited, attempts)
	notifications, err := newNotifications(ctx, e, ports, agents, st, bus)
	if err != nil {
		return err
	}
	api := newAPI(e, agents, access, ports, eng, operations, ring, newCallbacks(e, agents, st, turns), runs, remote, notifications)
	operators := newAdminAPI(e, access, ports, st, h, bus, keeper, ring, api)
	s := &server{
		env: e, ports: ports, hub: h, keeper: keeper, pool: pool, dispatcher: dispatcher, runs: runs, remote: remote, operators: operators,
		api: api, duties: newDuties(e, st, keeper, pool, newCaller(e, agents, st, bus), newWatch(e, agents, st, visited, keeper, remote), ring, operators), access: access,
		watches: append(agents.watch(e.cfg, eng, operations, api), func(ctx context.Context) error { return e.outages.run(ctx, db.URL) }),
	}
	probes := checks(&s.stopping, st, keeper, h)
	logins, err := newLogins(ctx, e, access, st, operators)
	if err != nil {
		return err
	}
	page, err := console.Handler()
	if err != nil {
		return err
	}
	documents, err := console.Documents()
	if err != nil {
		return err
	}
	pages := adminPages(e, access, operators, logins, page, documents, probes)
	s.admin = admin
	if err := export(e, agents, access, st, keeper, ring, probes); err != nil {
		return err
	}
	if err := prepare(ctx, e, st, keeper, ring); err != nil {
		return err
	}
	admin.pages.Store(&pages)
	return s.run(ctx, base)
}

// closeTracer exports the last spans.
func closeTracer(base context.Context, e *env) {
	ctx, cancel := context.WithTimeout(base, 5*time.Second)
	defer cancel()
	if err := e.tracer.Close(ctx); err != nil {
		e.log.Warn("the last traces were not exported", "error", err)
	}
}
