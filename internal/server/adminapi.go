package server

import (
	"context"
	"log/slog"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/admin/console"
	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// newAdminAPI makes the API of operators. api is nil without the role api.
func newAdminAPI(e *env, access *access, p *ports, st *store.Store, h *hub.Hub, bus *signal.Bus, keeper *worker.Keeper, ring *keys.Ring, api *rpc.Server) *admin.API {
	o := adminOptions(e.cfg, st, e.Version, p.baseURL(e.cfg), e.log)
	o.Hub, o.Signals, o.Worker, o.Memory = h, bus, keeper.ID, e.memory
	o.Admit, o.Need, o.SameOrigin, o.Login = access.operator, access.needs, access.origins.Check, access.loginView()
	o.Unsigned = unsigned(e.cfg, ring)
	o.KeySet = func() []byte {
		if ring == nil {
			return nil
		}
		return ring.Set()
	}
	if api == nil {
		return admin.New(o)
	}
	o.Talk = &admin.Talk{Serve: api.ServeAs, URL: p.baseURL(e.cfg)}
	for i := range e.cfg.Auth.Schemes {
		s := &e.cfg.Auth.Schemes[i]
		scheme := admin.Scheme{Name: s.Name, Kind: string(s.Kind)}
		switch s.Kind {
		case config.AuthAPIKey:
			scheme.Header = s.APIKey.Header
		case config.AuthBasic, config.AuthJWT:
			scheme.Header = "Authorization"
		case config.AuthMTLS:
		}
		o.Talk.Schemes = append(o.Talk.Schemes, scheme)
	}
	for i := range o.Agents {
		a := &o.Agents[i]
		a.Card = func() ([]byte, error) { return api.PublicCard(a.Name, p.baseURL(e.cfg)) }
	}
	return admin.New(o)
}

// Bounds of the streams of the admin API, in total and from one address.
const (
	adminStreams          = 256
	adminStreamsOfAddress = 32
)

// adminOptions returns what the API of operators takes from the configuration and the database.
func adminOptions(cfg *config.Config, st *store.Store, version, url string, log *slog.Logger) admin.Options {
	o := admin.Options{
		Store: st, Retention: NewRetention(cfg, st, log), Version: version, Log: log, Limits: limitsOf(cfg),
		Examine: func(ctx context.Context, report func(doctor.Finding)) {
			doctor.Examine(ctx, doctor.Options{Config: cfg, Sources: "the running server"}, report)
		},
		TryWebhook: func(ctx context.Context, hook *task.PushConfig, agent string, owner task.Owner) (*shown.Trial, error) {
			return tryWebhook(ctx, cfg, st, hook, agent, owner, version, url, log)
		},
		Reseals: len(cfg.Push.SecretKeys) > 0, Streams: adminStreams, StreamsOfAddress: adminStreamsOfAddress,
		TraceURL: cfg.Admin.TraceURL, AllTenantsScope: cfg.Admin.AllTenantsScope,
		KeysAccepted: slices.ContainsFunc(cfg.Auth.Schemes, func(s config.AuthScheme) bool { return s.Kind == config.AuthAPIKey }),
	}
	o.Documents, o.Prices = console.HasDocuments(), admin.Prices{}
	for model, text := range cfg.Admin.Prices {
		var p admin.Price
		p.Input, p.Output, o.Currency, _ = config.ParsePrice(text) // Load has checked it
		o.Prices[model] = p
	}
	if cfg.DatabaseURL == "" {
		o.Disk = func() (admin.Disk, bool) {
			free, size, ok := doctor.DiskOf(cfg.DataDir)
			return admin.Disk{Free: int64(free), Size: int64(size)}, ok
		}
	}
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		o.Agents = append(o.Agents, admin.Agent{
			Name: a.Name, Default: a.Default, Kind: string(a.Executor.Kind), Concurrency: a.Slots(), MaxAttempts: a.Limits.MaxAttempts,
			Schemes: a.Auth.Schemes, Scope: a.Auth.Scope, Remote: a.Executor.Kind == config.ExecutorWorker,
		})
	}
	return o
}

// unsigned says why the cards of this server have no signatures; "": they have them.
func unsigned(cfg *config.Config, ring *keys.Ring) string {
	switch {
	case !cfg.Signing.Cards:
		return "signing.cards is false"
	case cfg.PublicURL == "":
		return "public_url is not set, and a signature names the URL of the keys"
	case ring == nil:
		return "this process signs nothing"
	}
	return ""
}

func limitsOf(cfg *config.Config) *admin.Limits {
	l := &cfg.Limits
	v := &admin.Limits{
		MemoryBytes: int64(l.Memory), MaxBodyBytes: int64(l.MaxBody), MaxParts: dispatch.MaxParts, MaxDepth: l.MaxDepth,
		MaxBlockSeconds: l.MaxBlock.Seconds(), MaxStreams: l.MaxStreams, MaxConnections: l.MaxConnections, ConnectionsPerAddress: l.ConnectionsPerAddress,
		Rate: l.PerPrincipal.Rate, Burst: burst * l.PerPrincipal.Rate, Streams: l.PerPrincipal.Streams, LiveTasks: l.PerPrincipal.LiveTasks,
	}
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		v.Agents = append(v.Agents, admin.AgentLimit{
			Agent: a.Name, Concurrency: a.Slots(), MaxAttempts: a.Limits.MaxAttempts, Queue: a.Limits.Queue, LiveTasks: a.Limits.LiveTasks,
			PendingMessages: store.PendingMessages, RunSeconds: a.Limits.RunTimeout.Seconds(), InactivitySeconds: a.Limits.InactivityTimeout.Seconds(),
		})
	}
	return v
}
