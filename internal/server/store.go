package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// openStore connects the store, which publishes its commits on bus.
func openStore(ctx context.Context, e *env, db *Database, bus *signal.Bus) (*store.Store, error) {
	cfg, m := e.cfg, e.metrics
	options := store.Options{
		URL: db.URL, Pooled: db.URL != db.DirectURL, APIConns: cfg.Store.PoolSize, Writers: cfg.Store.WriterConns,
		Listener: bus, SecretKeys: cfg.Push.SealingKeys(), Widths: Widths(cfg), Ended: e.memory.Kept,
		Observer:    store.Observer{Flushed: m.Flushed, Fenced: m.Fenced, Retried: m.Retried, Event: m.Event, Limited: m.Limited, Canceled: m.Canceled, Ended: m.LogRead},
		RowSecurity: cfg.Auth.RowSecurity != config.RowSecurityOff, Tells: Tells(cfg), Tracer: e.tracer.Statements(), Log: e.log,
	}
	var st *store.Store
	err := persist(ctx, e.log, "connect to the database", func() (err error) {
		st, err = store.Open(ctx, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	if reason := st.WithoutRowSecurity(); reason != "" {
		if cfg.Auth.RowSecurity == config.RowSecurityRequire {
			st.Close(ctx)
			return nil, fmt.Errorf("auth.row_level_security is require, but %s; docs/database.md, The database, has the statements", reason)
		}
		e.log.Warn("row-level security is off: only the server keeps callers apart", "reason", reason)
	}
	return st, nil
}

// persist repeats a step of the start for up to a minute while the database does not answer. The database may be busy, or in a
// failover.
func persist(ctx context.Context, log *slog.Logger, step string, do func() error) error {
	unavailable := func(err error) bool { return errors.Is(err, task.Unavailable) }
	err := schema.Persist(ctx, do, unavailable, func(err error) {
		log.Warn("the start waits for the database; retrying", "step", step, "error", err)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

// closeStore writes the queued data and disconnects.
func closeStore(base context.Context, st *store.Store) {
	closing, cancel := context.WithTimeout(base, 10*time.Second)
	defer cancel()
	st.Close(closing)
}

// newHub makes the hub. It relays the store's signals to other replicas, and publishes theirs here.
func newHub(e *env, db *Database, st *store.Store, bus *signal.Bus) *hub.Hub {
	m := e.metrics
	return hub.New(hub.Options{
		Store: st, Signals: bus, URL: db.DirectURL, Log: e.log,
		// Events in rings have their encodings beside them.
		Memory: e.memory.Streams, Ended: e.memory.Kept, RingTotal: e.memory.Streams.Stat().Size / 2,
		// By then other replicas have rescued the runs of this one.
		Outage:   e.cfg.Worker.LeaseTTL + 5*time.Second,
		Observer: hub.Observer{Delivered: m.Delivered, PollFound: m.PollFound, Listening: m.Listening, Reread: m.Reread},
	})
}

// newRing makes the keys that sign cards and webhooks; nil if this process signs nothing.
func newRing(e *env, st *store.Store) *keys.Ring {
	signsCards := e.cfg.Signing.Cards && e.cfg.HasRole(config.RoleAPI)
	if !signsCards && !usesWebhooks(e.cfg) {
		return nil
	}
	return keys.New(keys.Options{Store: st, Log: e.log})
}
