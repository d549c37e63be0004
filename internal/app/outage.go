package app

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/store/schema"
)

// outages logs when the database goes out of reach and when it is back. Each duty and listener fails meanwhile, again and again;
// their warnings of this cause, and what they say of its end, become debug lines.
type outages struct {
	log       *slog.Logger
	away      atomic.Bool
	suspected chan struct{}
}

func newOutages(log *slog.Logger) *outages {
	return &outages{log: log, suspected: make(chan struct{}, 1)}
}

// logger returns the log of all parts of the server.
func (o *outages) logger() *slog.Logger { return slog.New(&outageHandler{o.log.Handler(), o}) }

const (
	// reachEvery is the interval between tries during an outage, reachFor the time for one.
	reachEvery = time.Second
	reachFor   = 5 * time.Second
)

// run logs outages until ctx ends. reach opens a connection: a lost one alone is no outage.
func (o *outages) run(ctx context.Context, reach func(context.Context) error) error {
	for {
		select {
		case <-o.suspected:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		err := reach(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		o.away.Store(true)
		o.log.Error("the database is out of reach; failures because of it are logged at debug", "error", err)
		for err != nil {
			select {
			case <-time.After(reachEvery):
			case <-ctx.Done():
				return nil
			}
			err = reach(ctx)
		}
		o.log.Info("the database is back", "took", time.Since(began))
		o.away.Store(false)
	}
}

// reacher connects to a database for run.
func reacher(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, reachFor)
		defer cancel()
		conn, err := pgurl.Connect(ctx, url)
		if err == nil {
			err = conn.Ping(ctx) // a pooler accepts connections without the database
			_ = conn.Close(ctx)
		}
		var unreached *schema.Unreached
		if errors.As(schema.Explain(err), &unreached) {
			return errors.New(unreached.Detail)
		}
		return err
	}
}

// outageHandler lowers warnings during an outage.
type outageHandler struct {
	slog.Handler
	o *outages
}

// Handle implements slog.Handler.
func (h *outageHandler) Handle(ctx context.Context, r slog.Record) error {
	if (r.Level == slog.LevelWarn || r.Level == slog.LevelInfo) && ofOutage(r) {
		select {
		case h.o.suspected <- struct{}{}:
		default:
		}
		if r.Level == slog.LevelInfo || h.o.away.Load() {
			r.Level = slog.LevelDebug
			if !h.Enabled(ctx, r.Level) {
				return nil
			}
		}
	}
	return h.Handler.Handle(ctx, r)
}

func ofOutage(r slog.Record) (found bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, is := a.Value.Any().(error)
		found = is && store.Away(err)
		return !found
	})
	return found
}

// WithAttrs implements slog.Handler.
func (h *outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &outageHandler{h.Handler.WithAttrs(attrs), h.o}
}

// WithGroup implements slog.Handler.
func (h *outageHandler) WithGroup(name string) slog.Handler {
	return &outageHandler{h.Handler.WithGroup(name), h.o}
}
