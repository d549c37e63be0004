// Package app puts a server together: what runs, in which order it starts, and in
// which it stops.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/keys"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/schema"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// Options are what a Go program adds to the configuration.
type Options struct {
	// Executors are the agents of kind go, by name.
	Executors map[string]executor.Executor
	Version   string
	// Banner receives a few lines for people when the server is up. Nil for none.
	Banner io.Writer
}

// Run serves until ctx ends, then stops in order: no new requests, no new claims,
// runs finish within the grace or are handed back, streams end with an id to
// resume from, the lease is released, the database is left.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger, o Options) error {
	// The database must outlive everything that is still being stopped.
	base, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	// Mistakes first: nothing is started for a configuration that cannot serve.
	built, err := buildAgents(cfg, o, log)
	if err != nil {
		return err
	}
	callers, err := buildAuth(cfg, log)
	if err != nil {
		return err
	}
	db, err := OpenDatabase(ctx, base, cfg, log)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := schema.Migrate(ctx, db.DirectURL, log); err != nil {
		return err
	}
	s, err := newServer(ctx, cfg, log, o, db, built, callers)
	if err != nil {
		return err
	}
	return s.run(ctx, base)
}

// server is the parts of a running process.
type server struct {
	cfg      *config.Config
	log      *slog.Logger
	metrics  *telemetry.Metrics
	store    *store.Store
	hub      *hub.Hub
	keeper   *worker.Keeper
	pool     *worker.Pool     // nil without the worker role
	push     *push.Dispatcher // nil without the push role
	api      *rpc.Server      // nil without the api role
	callers  *callers
	keys     *keys.Ring // nil when nothing is signed
	public   net.Listener
	grpcL    net.Listener // nil without the api role, or when gRPC is off
	admin    *http.Server
	adminL   net.Listener
	missing  map[task.ID]task.Attempt // of the previous reconciliation
	ahead    time.Time                // when upkeep was last done
	prunes   bool                     // and its old rows are still being deleted
	keysRead time.Time
	banner   io.Writer
	stopping atomic.Bool
}

func newServer(ctx context.Context, cfg *config.Config, log *slog.Logger, o Options, db *Database, agents *agents, callers *callers) (_ *server, err error) {
	s := &server{cfg: cfg, log: log, banner: o.Banner, callers: callers}
	defer func() {
		if err == nil {
			return
		}
		s.closeListeners()
		if s.store != nil {
			s.store.Close(ctx)
		}
	}()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = telemetry.New(registry)
	connections := limit.NewConnections(limit.ConnectionOptions{
		Most: cfg.Limits.MaxConnections, OfAddress: cfg.Limits.ConnectionsPerAddress,
		Opened: s.metrics.ConnectionOpened, Refused: s.metrics.ConnectionRefused,
	})

	var listen net.ListenConfig
	if cfg.HasRole(config.RoleAPI) {
		if s.public, err = listen.Listen(ctx, "tcp", cfg.Listen); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		s.public = connections.Listener(s.public)
	}
	if cfg.ServesGRPC() {
		if s.grpcL, err = listen.Listen(ctx, "tcp", cfg.GRPCListen); err != nil {
			return nil, fmt.Errorf("grpc_listen: %w", err)
		}
		s.grpcL = connections.Listener(s.grpcL)
	}
	if s.adminL, err = listen.Listen(ctx, "tcp", cfg.AdminListen); err != nil {
		return nil, fmt.Errorf("admin_listen: %w", err)
	}

	hubOptions := hub.Options{
		URL: db.DirectURL, PollInterval: cfg.Hub.PollInterval, Log: log, Observer: s.hubObserver(),
		OnReady: func(agent string) {
			if s.pool != nil {
				s.pool.Wake(agent)
			}
		},
		OnCancel: func(id task.ID) {
			if s.pool != nil {
				s.pool.CancelHint(id)
			}
		},
		OnKeyRevoked: callers.forgetKeys,
	}
	if delivers(cfg) {
		hubOptions.OnPushes = func() {
			if s.push != nil {
				s.push.Wake()
			}
		}
	}
	s.hub = hub.New(hubOptions)
	s.store, err = store.Open(ctx, store.Options{
		URL: db.URL, Pooled: db.URL != db.DirectURL, APIConns: cfg.Store.PoolSize, Writers: cfg.Store.WriterConns,
		Listener: s.hub, PushesDue: s.hub.PushesDue, SecretKeys: SecretKeys(cfg),
		PushPerHost: cfg.Push.ConcurrencyPerHost, PushPerCaller: push.PerCaller(cfg.Push.Concurrency),
		Observer: s.storeObserver(), RowSecurity: cfg.Auth.RowSecurity != config.RowSecurityOff,
		WithoutAudit: !cfg.Audit.Enabled, Log: log,
	})
	if err != nil {
		return nil, err
	}
	if reason := s.store.WithoutRowSecurity(); reason != "" {
		if cfg.Auth.RowSecurity == config.RowSecurityRequire {
			return nil, fmt.Errorf("auth.row_level_security is require, and %s: docs/deployment.md, The database, has the statements", reason)
		}
		log.Warn("callers are kept apart by the server alone, and not by row-level security", "reason", reason)
	}
	s.hub.SetReader(s.store)
	callers.open(s.store, s.metrics)
	s.keeper = worker.NewKeeper(worker.KeeperOptions{
		Store: s.store, TTL: cfg.Worker.LeaseTTL, Log: log,
		Process: store.Process{Name: processName(), Version: o.Version, Roles: roles(cfg)},
		OnPeers: s.hub.SetPeers, OnTick: s.tick,
		OnLost: func() {
			if s.pool != nil {
				s.pool.LoseAll()
			}
		},
		Rescued: s.metrics.Rescued,
	})
	pageKey, err := s.store.Secret(ctx, store.SecretPageToken)
	if err != nil {
		return nil, err
	}
	eng := engine.Options{
		Store: engine.As(s.store), Hub: s.hub, Agents: agents.engine, MaxBlock: cfg.Limits.MaxBlock,
		PageKey: pageKey, CancelWait: agents.cancelWait, Log: log,
	}
	if cfg.HasRole(config.RoleWorker) {
		s.pool = worker.New(worker.Options{
			Store: s.store, Agents: agents.worker, PollInterval: cfg.Worker.PollInterval,
			StopGrace: cfg.Worker.StopGrace, Worker: s.keeper.ID, Observer: s.workerObserver(), Log: log,
		})
		eng.Reserve = func(agent string) engine.Slot {
			if slot := s.pool.Reserve(agent); slot != nil {
				return slot
			}
			return nil
		}
	}
	s.metrics.Agents(agents.names...)
	telemetry.RegisterQueue(registry, s.queueDepths, agents.names...)
	for name, p := range s.store.Pools() {
		telemetry.RegisterPool(registry, name, func() telemetry.PoolStat { return p.Stat() })
	}
	pushes := cfg.Push.Enabled && (s.public != nil || cfg.HasRole(config.RolePush))
	if cfg.Signing.Cards && s.public != nil || pushes {
		s.keys = keys.New(keys.Options{
			Store: s.store, RotateEvery: cfg.Signing.RotateEvery, Overlap: cfg.Signing.Overlap, Log: log,
		})
	}
	if pushes {
		hooks, err := newWebhooks(cfg, s.keys, s.baseURL(), o.Version)
		if err != nil {
			return nil, err
		}
		if len(cfg.Push.SecretKeys) == 0 {
			log.Warn("secrets of webhooks are sealed with a key that lies beside them in the database; set HOLDFAST_SECRET_KEYS")
		}
		eng.Push = hooks.engine()
		if delivers(cfg) {
			s.push = s.dispatcher(hooks)
		}
		telemetry.RegisterPushes(registry, s.pushCounts)
	}
	if s.public != nil {
		operations := operation.New(operation.Options{
			Engine: engine.New(eng), KeepAlive: cfg.SSE.KeepAlive, MaxStreams: cfg.Limits.MaxStreams,
			Callers: perPrincipal(&cfg.Limits.PerPrincipal), MaxParts: cfg.Limits.MaxParts, MaxPart: int64(cfg.Limits.MaxPart),
			LegacyTaskIDs:   cfg.Protocol.LegacyClientTaskIDs,
			ReopenTerminal:  cfg.Protocol.V01ReopenTerminal,
			ReturnByDefault: cfg.Protocol.BlockingDefault == config.BlockingReturn,
			Ambiguous:       ambiguous[cfg.Protocol.AmbiguousResult],
			Agents:          agents.operation,
			Observer:        s.rpcObserver(),
		})
		limits := body.Limits{Size: int64(cfg.Limits.MaxBody), Depth: cfg.Limits.MaxDepth, Timeout: cfg.Limits.BodyTimeout}
		statuses100 := cfg.Protocol.StatusTable == config.Statuses100
		strict := cfg.Protocol.VersionHeader == config.VersionStrict
		api := rpc.Options{
			Agents: agents.rpc, PublicURL: s.baseURL(), Log: log,
			CORS:        rpc.CORS{Origins: cfg.CORS.AllowedOrigins, Headers: cfg.CORS.AllowedHeaders, MaxAge: cfg.CORS.MaxAge},
			Unversioned: renderings[cfg.Protocol.CardUnversioned],
			LocalOnly:   cfg.LocalOnly(),
			Auth:        callers.authenticator, TLS: callers.tlsConfig(),
			HeaderTimeout: cfg.Limits.HeaderTimeout, IdleTimeout: cfg.Limits.IdleTimeout,
			JSONRPC: jsonrpc.New(jsonrpc.Options{
				Operations: operations, Limits: limits, WriteTimeout: cfg.SSE.WriteTimeout, StrictVersion: strict, Log: log,
			}),
			REST: rest.New(rest.Options{
				Operations: operations, Limits: limits, WriteTimeout: cfg.SSE.WriteTimeout, StrictVersion: strict,
				Statuses100: statuses100, Log: log,
			}),
		}
		if s.grpcL != nil {
			api.GRPC = grpcapi.New(grpcapi.Options{
				Operations: operations, Limits: limits, StrictVersion: strict, Statuses100: statuses100, Log: log,
				HeaderTimeout: cfg.Limits.HeaderTimeout, IdleTimeout: cfg.Limits.IdleTimeout,
				KeepAlive: cfg.SSE.KeepAlive, WriteTimeout: cfg.SSE.WriteTimeout,
				Address: cfg.GRPCAddress(s.grpcL.Addr().String()), TLS: callers.tlsConfig(),
			})
		}
		if s.keys != nil {
			api.Keys, api.PlainCards = s.keys, !cfg.Signing.Cards
		}
		s.api = rpc.New(api)
	}
	s.admin = &http.Server{
		Handler:           telemetry.AdminHandler(registry, callers.admits(), s.checks()...),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	if cfg.Admin.TLS {
		s.admin.TLSConfig = callers.tlsConfig()
	}
	return s, nil
}

// run starts everything, waits for ctx, and stops it in order.
func (s *server) run(ctx, base context.Context) error {
	defer s.closeListeners()
	defer func() {
		closing, cancel := context.WithTimeout(base, 10*time.Second)
		defer cancel()
		s.store.Close(closing)
	}()
	if err := s.keeper.Start(ctx); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	// Before the first task, so that none lands in the default partition.
	if _, err := s.store.EnsurePartitions(ctx); err != nil {
		s.log.Warn("partitions are not all there; events go to the default one", "error", err)
	}
	if s.keys != nil {
		if err := s.keys.Refresh(ctx); err != nil {
			return fmt.Errorf("signing keys: %w", err)
		}
		s.keysRead = time.Now()
	}
	live, stopLive := context.WithCancel(base)
	defer stopLive()
	background, bctx := errgroup.WithContext(live)
	background.Go(func() error { return s.hub.Run(bctx) })
	background.Go(func() error { return serveAdmin(s.admin, s.adminL) })
	for _, run := range s.callers.background {
		background.Go(func() error { return run(bctx) })
	}
	if s.api != nil {
		background.Go(func() error { return s.api.Serve(s.public) })
	}
	if s.grpcL != nil {
		background.Go(func() error { return s.api.ServeGRPC(s.grpcL) })
	}
	keeping, stopKeeping := context.WithCancel(bctx)
	defer stopKeeping()
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		_ = s.keeper.Run(keeping)
	}()
	claiming, stopClaiming := context.WithCancel(base)
	defer stopClaiming()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		if s.pool != nil {
			_ = s.pool.Run(claiming)
		}
	}()
	pushing, stopPushing := context.WithCancel(base)
	defer stopPushing()
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		if s.push != nil {
			_ = s.push.Run(pushing)
		}
	}()
	s.announce()

	var failure error
	select {
	case <-ctx.Done():
		s.log.Info("stopping")
	case <-bctx.Done():
		s.log.Error("a part of the server ended", "error", context.Cause(bctx))
	}
	s.stopping.Store(true)
	stopClaiming()
	refused := make(chan struct{})
	closing, cut := context.WithCancel(base)
	defer cut()
	if s.api != nil {
		go func() {
			defer close(refused)
			if err := s.api.Shutdown(closing); err != nil {
				s.log.Warn("connections were cut", "error", err)
			}
		}()
	} else {
		close(refused)
	}
	// While runs finish, their callers and streams are still served.
	<-drained
	stopPushing()
	s.hub.Close()
	defer time.AfterFunc(lastAnswers, cut).Stop()
	<-refused
	<-delivered
	// Not beside Run, which would register the process anew.
	stopKeeping()
	<-kept
	s.keeper.Stop(withTimeout(base, 5*time.Second))
	stopLive()
	_ = s.admin.Close()
	if err := background.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		failure = err
	}
	s.log.Info("stopped")
	return failure
}

// lastAnswers is how long requests and streams may take to end once no run is left.
const lastAnswers = 15 * time.Second

func withTimeout(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func serveAdmin(s *http.Server, l net.Listener) error {
	serve := s.Serve
	if s.TLSConfig != nil {
		serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin server: %w", err)
	}
	return nil
}

func (s *server) closeListeners() {
	for _, l := range []net.Listener{s.public, s.grpcL, s.adminL} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// baseURL is where clients reach this server.
func (s *server) baseURL() string {
	if s.public == nil {
		return s.cfg.BaseURL(s.cfg.Listen)
	}
	return s.cfg.BaseURL(s.public.Addr().String())
}

// announce tells operators where things are, and a newcomer what to do next.
func (s *server) announce() {
	admin := s.cfg.AdminURL(s.adminL.Addr().String())
	if s.banner != nil && s.cfg.AdminExposed() && s.cfg.AdminAccess() == config.AdminOpen {
		_, _ = fmt.Fprintf(s.banner, adminBanner, s.cfg.AdminListen)
	}
	if s.public == nil {
		s.log.Info("holdfast runs agents", "admin", admin)
		return
	}
	url := s.baseURL()
	where := []any{"url", url, "listen", s.public.Addr().String()}
	if s.grpcL != nil {
		where = append(where, "grpc", s.grpcL.Addr().String())
	}
	s.log.Info("holdfast serves", append(where, "admin", admin)...)
	if s.banner != nil {
		_, _ = fmt.Fprintf(s.banner, banner, url)
		if len(s.cfg.OpenAgents()) > 0 && len(s.cfg.Exposed()) > 0 {
			_, _ = fmt.Fprint(s.banner, openBanner)
		}
	}
}

const banner = `
Holdfast serves %[1]s
The agent's card: %[1]s/.well-known/agent-card.json
Try:

  curl -s %[1]s -H 'Content-Type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"message/send",
    "params":{"message":{"messageId":"m-1","role":"user","parts":[{"kind":"text","text":"echo:hello"}]}}}'

`

const openBanner = `Nobody is asked who they are, and more than this machine can reach this server (auth.none).
Whoever does uses its agents and sees all of their tasks.

`

const adminBanner = `Everybody who reaches %s may read metrics and the memory of this process (admin.open).

`

// tick is the keeper's round: what must be looked at regularly, hints or not.
func (s *server) tick(ctx context.Context) {
	if s.pool != nil {
		missing, err := s.pool.Reconcile(ctx, s.missing)
		if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			s.log.Warn("runs were not compared with the database", "error", err)
		}
		s.missing = missing
	}
	if s.keys != nil && time.Since(s.keysRead) > keysEvery {
		s.keysRead = time.Now()
		if err := s.keys.Refresh(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("signing keys could not be looked after", "error", err)
		}
	}
	if time.Since(s.ahead) > upkeepEvery {
		s.ahead = time.Now()
		s.prunes = s.lookAhead(ctx)
	}
	// In small pieces: what hangs here delays the renewal of the lease.
	if s.prunes {
		s.prunes = s.forgetAttempts(ctx)
	}
}

const (
	keysEvery      = time.Minute
	upkeepEvery    = 10 * time.Minute
	dutyPartitions = "partitions"
)

// lookAhead creates next months' partitions, on one process at a time, and reports whether
// this is the one: it deletes what is old, too.
func (s *server) lookAhead(ctx context.Context) (leads bool) {
	leads, err := s.store.Lead(ctx, dutyPartitions, s.keeper.ID(), 2*upkeepEvery)
	if err == nil && leads {
		var made []string
		made, err = s.store.EnsurePartitions(ctx)
		if len(made) > 0 {
			s.log.Info("partitions were created", "partitions", made)
		}
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.log.Warn("partitions could not be looked after", "error", err)
	}
	return leads
}

func perPrincipal(o *config.PerPrincipal) *limit.Callers {
	return limit.New(limit.Options{Rate: o.Rate, Burst: cmp.Or(o.Burst, o.Rate), Streams: o.Streams})
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

func roles(cfg *config.Config) string {
	names := make([]string, len(cfg.Roles))
	for i, r := range cfg.Roles {
		names[i] = string(r)
	}
	return strings.Join(names, ",")
}
