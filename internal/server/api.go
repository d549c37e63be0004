package server

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/notifications"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/resumeurl"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/remote"
	"github.com/holdfast-a2a/holdfast/internal/worker/runapi"
)

// newEngine makes the engine, which handles requests; nil without the api role. pool, remote and hooks may be nil.
func newEngine(ctx context.Context, e *env, agents *agents, st *store.Store, h *hub.Hub, pool *worker.Pool, remote *remote.API, hooks *webhooks) (*engine.Engine, error) {
	if !e.cfg.HasRole(config.RoleAPI) {
		return nil, nil
	}
	pageKey, err := st.Secret(ctx, store.SecretPageToken)
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Options{
		Store: engine.As(st), Hub: h, Agents: agents.engine, MaxBlock: e.cfg.Limits.MaxBlock,
		PageKey: pageKey, CancelWait: agents.cancelWait, Reserve: reserve(pool, remote), Push: hooks.engine(), Log: e.log,
	}), nil
}

// newAPI makes the public server with its three bindings; nil without the api role.
func newAPI(
	e *env, agents *agents, access *access, p *ports, eng *engine.Engine, operations *dispatch.Runner, ring *keys.Ring,
	resumes *resumeurl.Handler, runAPI *runapi.API, workerAPI *remote.API, fronts *notifications.Handler,
) *rpc.Server {
	if eng == nil {
		return nil
	}
	cfg, log := e.cfg, e.log
	limits := bodyLimits(cfg)
	formerStatuses := cfg.Protocol.StatusTable == config.Statuses100
	strict := cfg.Protocol.VersionHeader == config.VersionStrict
	o := rpc.Options{
		Agents: agents.rpc, PublicURL: p.baseURL(cfg), Log: log,
		CORS:          rpc.CORS{Origins: cfg.CORS.AllowedOrigins, Headers: cfg.CORS.AllowedHeaders, MaxAge: time.Hour},
		OriginRefused: e.metrics.OriginRefused,
		Unversioned:   renderings[cfg.Protocol.CardUnversioned],
		LocalOnly:     cfg.LocalOnly(),
		Proxies:       cfg.TrustedProxies(),
		Auth:          access.authenticator, TLS: access.tlsConfig(),
		HeaderTimeout: cfg.Limits.HeaderTimeout(), IdleTimeout: cfg.Limits.IdleTimeout, Headers: e.memory.Headers, Refused: e.metrics.ConnectionRefused,
		Tracer: e.tracer,
		JSONRPC: jsonrpc.New(jsonrpc.Options{
			Operations: operations, Limits: limits, StrictVersion: strict, Log: log,
		}),
		REST: rest.New(rest.Options{
			Operations: operations, Limits: limits, StrictVersion: strict,
			FormerStatuses: formerStatuses, Log: log,
		}),
	}
	if p.grpc != nil {
		o.GRPC = grpcapi.New(grpcapi.Options{
			Operations: operations, Limits: limits, StrictVersion: strict, FormerStatuses: formerStatuses, Log: log,
			HeaderTimeout: cfg.Limits.HeaderTimeout(), IdleTimeout: cfg.Limits.IdleTimeout,
			Headers: e.memory.Headers,
			Address: cfg.PublicGRPCAddress, TLS: access.tlsConfig(), Proxies: cfg.TrustedProxies(), Tracer: e.tracer,
		})
	}
	if resumes != nil {
		o.Mounts = append(o.Mounts, rpc.Mount{Path: strings.TrimSuffix(task.ResumePath, "/"), Name: "resume", Handler: resumes})
	}
	if fronts != nil {
		o.Mounts = append(o.Mounts, rpc.Mount{Path: strings.TrimSuffix(notifications.Path, "/"), Name: "notification", Handler: fronts})
	}
	if runAPI != nil {
		o.Mounts = append(o.Mounts, rpc.Mount{Path: runapi.Path, Name: "run API", Handler: runAPI})
	}
	if workerAPI != nil {
		o.Mounts = append(o.Mounts, rpc.Mount{Path: remote.Root, Name: "worker API", Handler: workerAPI})
	}
	if ring != nil {
		o.Keys, o.PlainCards = ring, !cfg.Signing.Cards
	}
	return rpc.New(o)
}

func bodyLimits(cfg *config.Config) web.BodyLimits {
	return web.BodyLimits{Size: int64(cfg.Limits.MaxBody), Depth: cfg.Limits.MaxDepth, Timeout: cfg.Limits.RequestTimeout}
}

// newOperations makes the operations that all bindings call; nil without the api role.
func newOperations(e *env, agents *agents, eng *engine.Engine) *dispatch.Runner {
	if eng == nil {
		return nil
	}
	cfg, m := e.cfg, e.metrics
	return dispatch.New(dispatch.Options{
		Engine:          dispatch.Views(eng.As),
		Streams:         limit.NewPlaces[task.Owner](cfg.Limits.MaxStreams, cfg.Limits.PerPrincipal.Streams),
		Rates:           limit.NewRates[task.Owner](cfg.Limits.PerPrincipal.Rate, burst*cfg.Limits.PerPrincipal.Rate),
		Memory:          e.memory,
		LegacyTaskIDs:   cfg.Protocol.LegacyClientTaskIDs,
		ReopenTerminal:  cfg.Protocol.V01ReopenTerminal,
		EventNames:      cfg.Protocol.V01EventNames,
		ReturnByDefault: cfg.Protocol.BlockingDefault == config.BlockingReturn,
		Ambiguous:       ambiguous[cfg.Protocol.AmbiguousResult],
		Agents:          agents.operation,
		Observer: dispatch.Observer{
			Answered: func(a dispatch.Answer) {
				m.Answered(a.Operation, a.Binding, a.Version, a.Agent, a.Outcome, a.Took)
				logRequest(e.log, cfg.Log.Requests, &a)
			},
			FirstEvent: m.FirstEvent, StreamOpened: m.StreamOpened, Resumed: m.Resumed, Limited: m.Limited,
		},
	})
}

// burst is how many seconds' worth of requests a caller may make at once after a pause.
const burst = 10
