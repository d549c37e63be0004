package app

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/keys"
	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/push/guard"
	"github.com/holdfast-a2a/holdfast/internal/rpc/webhook"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// delivers reports whether this process sends webhooks.
func delivers(cfg *config.Config) bool { return cfg.Push.Enabled && cfg.HasRole(config.RolePush) }

// SecretKeys are those that the secrets of webhooks are sealed with. The configuration was
// validated.
func SecretKeys(cfg *config.Config) [][]byte {
	keys := make([][]byte, len(cfg.Push.SecretKeys))
	for i, text := range cfg.Push.SecretKeys {
		keys[i], _ = base64.StdEncoding.DecodeString(text)
	}
	return keys
}

// webhooks is what setting and delivering have in common: the rules, and a client that keeps
// to them.
type webhooks struct {
	cfg    *config.Push
	guard  *guard.Guard
	sender *push.Sender
}

func newWebhooks(cfg *config.Config, signer push.Signer, issuer, version string) (*webhooks, error) {
	p := &cfg.Push
	rules := guard.Options{HTTPSOnly: p.HTTPSOnly, AllowPrivate: p.AllowPrivate}
	for _, text := range p.AllowedNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("push.allowed_networks: %w", err)
		}
		rules.Networks = append(rules.Networks, network)
	}
	for _, text := range p.AllowedPorts {
		ports, err := guard.ParsePorts(text)
		if err != nil {
			return nil, fmt.Errorf("push.allowed_ports: %w", err)
		}
		rules.Ports = append(rules.Ports, ports)
	}
	var secrets []push.Secret
	for _, text := range p.WebhookSecrets {
		secret, err := push.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("push.webhook_secrets: %w", err)
		}
		secrets = append(secrets, secret)
	}
	w := &webhooks{cfg: p, guard: guard.New(rules)}
	w.sender = push.NewSender(push.SenderOptions{
		Guard: w.guard, Signer: signer, Issuer: issuer, Secrets: secrets, UserAgent: "Holdfast/" + version,
		Timeout: p.Timeout, ConnectTimeout: p.ConnectTimeout, PerHost: p.ConcurrencyPerHost,
	})
	return w, nil
}

// engine is what clients may set.
func (w *webhooks) engine() *engine.Push {
	return &engine.Push{
		MaxPerTask: w.cfg.MaxPerTask, Artifacts: w.cfg.Artifacts,
		Check: func(ctx context.Context, c *task.PushConfig) error {
			if err := w.guard.Check(ctx, c.URL); err != nil || !w.cfg.Challenge {
				return err
			}
			return w.sender.Challenge(ctx, c.URL)
		},
	}
}

// pushGrace is how long deliveries under way may take at a stop. Meanwhile requests and
// streams end, which may take longer.
const pushGrace = 10 * time.Second

// dispatcher is what delivers.
func (s *server) dispatcher(w *webhooks) *push.Dispatcher {
	m := s.metrics
	return push.New(push.Options{
		Store: s.store, Sender: w.sender, Worker: s.keeper.ID,
		Encoder: encoder(s.cfg),
		Schedule: push.Schedule{
			First: w.cfg.RetryFirst, Most: w.cfg.RetryMost, GiveUpAfter: w.cfg.GiveUpAfter, MinAttempts: w.cfg.MinAttempts,
		},
		Concurrency: w.cfg.Concurrency, PerHost: w.cfg.ConcurrencyPerHost, CoalesceAfter: w.cfg.CoalesceAfter,
		StopGrace: pushGrace, Log: s.log,
		Observer: push.Observer{Attempted: m.PushAttempted, Lag: m.PushLag, InFlight: m.PushInFlight},
	})
}

func encoder(cfg *config.Config) webhook.Encoder {
	return webhook.Encoder{
		MinimalV01: cfg.Push.BodyV01 == config.BodyMinimal,
		PlainJSON:  cfg.Protocol.StatusTable == config.Statuses100,
	}
}

// Trial is a delivery of a task that does not exist, and what came of it.
type Trial struct {
	push.Answer
	DeliveryID, TaskID string
	Issuer             string // whom the receiver has to know
	ContentType        string
}

// TryWebhook checks a webhook as when a client sets it, and makes one delivery to it as the
// dispatcher would. The keys that sign are the server's; if it has none yet, they are made.
func TryWebhook(ctx context.Context, cfg *config.Config, s *store.Store, c *task.PushConfig, version string, log *slog.Logger) (*Trial, error) {
	ring := keys.New(keys.Options{Store: s, RotateEvery: cfg.Signing.RotateEvery, Overlap: cfg.Signing.Overlap, Log: log})
	if err := ring.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("signing keys: %w", err)
	}
	id := store.NewID()
	t := &Trial{TaskID: id.String(), Issuer: cfg.BaseURL(cfg.Listen)}
	hooks, err := newWebhooks(cfg, ring, t.Issuer, version)
	if err != nil {
		return nil, err
	}
	defer hooks.sender.Close()
	now := time.Now()
	said := task.Message{
		ID: store.NewID().String(), Role: task.RoleAgent,
		Parts: []task.Part{task.Text("This delivery tries a webhook. There is no such task.")},
	}
	of := &task.Task{
		ID: id, PublicID: t.TaskID, ContextID: store.NewID().String(), Dialect: c.Dialect, CreatedAt: now, LastSeq: 1,
		Status: task.Status{State: task.StateCompleted, Message: &said, At: now, Seq: 1},
	}
	e := &task.Event{Task: id, Seq: 1, At: now, Kind: task.EventStatus, State: task.StateCompleted, Message: &said}
	delivery := &push.Delivery{ID: push.DeliveryID(id, c, e.Seq, false), TaskID: t.TaskID, Config: c}
	if delivery.Body, delivery.ContentType, err = encoder(cfg).Body(c, of, e); err != nil {
		return nil, err
	}
	t.DeliveryID, t.ContentType = delivery.ID, delivery.ContentType
	if err := hooks.engine().Check(ctx, c); err != nil {
		t.Answer = push.Answer{Class: push.Refused, Error: err.Error()}
		return t, nil
	}
	t.Answer = hooks.sender.Send(ctx, delivery)
	return t, ctx.Err()
}

// forgetAttempts deletes some of what is known of old attempts, and reports whether to go on
// with the next round.
func (s *server) forgetAttempts(ctx context.Context) (more bool) {
	n, more, err := s.store.PruneAttempts(ctx, s.cfg.Push.KeepAttempts)
	if n > 0 {
		s.log.Info("old attempts to deliver were deleted", "attempts", n)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("old attempts to deliver could not be deleted", "error", err)
	}
	return more
}
