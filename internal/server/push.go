package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc/webhook"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// delivers reports whether this process sends webhooks.
func delivers(cfg *config.Config) bool { return cfg.Push.Enabled && cfg.HasRole(config.RolePush) }

// usesWebhooks reports whether this process sends webhooks or lets clients set them.
func usesWebhooks(cfg *config.Config) bool {
	return delivers(cfg) || cfg.Push.Enabled && cfg.HasRole(config.RoleAPI)
}

// webhookPorts are those of the web and those that no privilege is needed for. The others are of services that a webhook must
// not reach, such as mail and DNS.
var webhookPorts = []web.Ports{{First: 80, Last: 80}, {First: 443, Last: 443}, {First: 1024, Last: 65535}}

// perHost is how many deliveries to one host and port a replica makes at once.
func perHost(p *config.Push) int { return max(8, p.Concurrency/8) }

const (
	// giveUpFirstAfter bounds the failures of a receiver that has never accepted a delivery. It is time to start a receiver
	// that was set too early. A mistyped URL, or a host that does not want the deliveries, gets about 14 requests instead of 36.
	giveUpFirstAfter = time.Hour
	// leastAttempts come before a webhook is disabled: a receiver is not away because of a single failure long ago.
	leastAttempts = 10
)

// webhooks has the parts that setting and delivering webhooks share: the rules, and a client that follows them.
type webhooks struct {
	cfg    *config.Push
	guard  *web.Guard
	sender *push.Sender
}

func newWebhooks(cfg *config.Config, signer push.Signer, issuer, version string, tracer *tracing.Tracer) (*webhooks, error) {
	p := &cfg.Push
	networks, err1 := parsed("push.allowed_networks", p.AllowedNetworks, netip.ParsePrefix)
	denied, err2 := parsed("push.denied_networks", p.DeniedNetworks, netip.ParsePrefix)
	secrets, err3 := parsed("push.webhook_secrets", p.WebhookSecrets, push.ParseSecret)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	w := &webhooks{cfg: p, guard: web.NewGuard(web.GuardOptions{
		HTTPSOnly: p.HTTPSOnly, AllowPrivate: p.AllowPrivate, Networks: networks, Denied: denied, Ports: webhookPorts,
	})}
	w.sender = push.NewSender(push.SenderOptions{
		Guard: w.guard, Signer: signer, Issuer: issuer, Secrets: secrets, UserAgent: "Holdfast/" + version,
		Timeout: p.Timeout, PerHost: perHost(p), Headers: webhook.Headers, Tracer: tracer,
	})
	return w, nil
}

func parsed[T any](setting string, texts []string, parse func(string) (T, error)) ([]T, error) {
	values := make([]T, len(texts))
	for i, text := range texts {
		var err error
		if values[i], err = parse(text); err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
	}
	return values, nil
}

// newHooks makes the shared parts of setting and delivering webhooks; nil if this process does neither.
func newHooks(e *env, ring *keys.Ring, p *ports) (*webhooks, error) {
	if !usesWebhooks(e.cfg) {
		return nil, nil
	}
	if len(e.cfg.Push.SecretKeys) == 0 && e.Ready == nil { // a developer has nobody to hide them from
		e.log.Warn("clients' secrets are sealed with a key in the same database; set HOLDFAST_SECRET_KEYS")
	}
	return newWebhooks(e.cfg, ring, p.baseURL(e.cfg), e.Version, e.tracer)
}

// engine returns the rules for clients that set webhooks; nil without webhooks.
func (w *webhooks) engine() *engine.Push {
	if w == nil {
		return nil
	}
	return &engine.Push{
		Artifacts: w.cfg.Artifacts,
		Check: func(ctx context.Context, url string) (host string, err error) {
			to, err := w.guard.Check(ctx, url)
			if err == nil && w.cfg.Challenge {
				err = w.sender.Challenge(ctx, to)
			}
			if err != nil {
				return "", err
			}
			return to.Host, nil
		},
	}
}

// pushGrace is how long deliveries under way may take after a stop begins. Meanwhile requests and streams end, which
// may take longer.
const pushGrace = 10 * time.Second

// newDispatcher makes the dispatcher; nil without the push role.
func newDispatcher(e *env, w *webhooks, st *store.Store, keeper *worker.Keeper, bus *signal.Bus) *push.Dispatcher {
	if !delivers(e.cfg) {
		return nil
	}
	m := e.metrics
	d := push.New(push.Options{
		Store: st, Sender: w.sender, Worker: keeper.ID,
		Encoder: encoder(e.cfg),
		Schedule: push.Schedule{
			First: w.cfg.RetryFirst, Most: w.cfg.RetryMost, GiveUpAfter: w.cfg.GiveUpAfter,
			GiveUpFirstAfter: min(giveUpFirstAfter, w.cfg.GiveUpAfter), MinAttempts: leastAttempts,
		},
		Concurrency: w.cfg.Concurrency, PerHost: perHost(w.cfg), CoalesceAfter: w.cfg.CoalesceAfter,
		MaxBody: int64(w.cfg.MaxBody), StopGrace: pushGrace, Log: e.log,
		Observer: push.Observer{Attempted: m.PushAttempted, Lag: m.PushLag, InFlight: m.PushInFlight},
	})
	bus.Webhooks.Subscribe(func(struct{}) { d.Wake() })
	return d
}

func encoder(cfg *config.Config) webhook.Encoder {
	return webhook.Encoder{PlainJSON: cfg.Protocol.StatusTable == config.Statuses100}
}

// tryWebhook checks a webhook as when a client sets it, and makes one delivery to it as the dispatcher does, in the name of a task that
// does not exist. It signs with the server's keys, and creates them if they are missing.
func tryWebhook(
	ctx context.Context, cfg *config.Config, s *store.Store, c *task.PushConfig, agent string, owner task.Owner, version, issuer string, log *slog.Logger,
) (*shown.Trial, error) {
	ring := keys.New(keys.Options{Store: s, Log: log})
	if err := ring.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("signing keys: %w", err)
	}
	hooks, err := newWebhooks(cfg, ring, issuer, version, nil)
	if err != nil {
		return nil, err
	}
	defer hooks.sender.Close()
	id, now := store.NewID(), time.Now()
	said := task.Message{
		ID: store.NewID().String(), Role: task.RoleAgent,
		Parts: []task.Part{task.Text("This delivery tests a webhook. There is no such task.")},
	}
	of := &task.Task{
		ID: id, PublicID: id.String(), ContextID: store.NewID().String(), Dialect: c.Dialect, CreatedAt: now, LastSeq: 1,
		Status: task.Status{State: task.StateCompleted, Message: &said, At: now, Seq: 1},
	}
	e := &task.Event{Task: id, Seq: 1, At: now, Kind: task.EventStatus, State: task.StateCompleted, Message: &said}
	delivery := &push.Delivery{ID: push.DeliveryID(id, c, e.Seq, false), TaskID: of.PublicID, Task: id, Agent: agent, Owner: owner, Config: c}
	if delivery.Body, delivery.ContentType, err = encoder(cfg).Body(c, of, e); err != nil {
		return nil, err
	}
	answer := push.Answer{Class: push.Refused}
	if _, err := hooks.engine().Check(ctx, c.URL); err != nil {
		answer.Error = err.Error()
	} else {
		answer = hooks.sender.Send(ctx, delivery)
	}
	return &shown.Trial{
		URL: c.URL, Dialect: c.Dialect, ContentType: delivery.ContentType, TaskID: of.PublicID, DeliveryID: delivery.ID, Issuer: issuer,
		Class: string(answer.Class), Status: answer.Status, Error: answer.Error, TookMS: float64(answer.Took.Microseconds()) / 1000,
	}, ctx.Err()
}
