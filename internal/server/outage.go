package server

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// outages explains warnings about the database, of which there are many at once. It logs when the database goes out of reach and
// when it is back, and which session blocks others. Each duty and listener fails meanwhile, again and again: their warnings of this
// cause, and what they say of its end, become debug lines.
type outages struct {
	log       *slog.Logger
	away      atomic.Bool
	suspected chan struct{}
	locked    chan struct{} // a statement waited too long for a lock
}

func newOutages(log *slog.Logger) *outages {
	return &outages{log: log, suspected: make(chan struct{}, 1), locked: make(chan struct{}, 1)}
}

// logger returns the log of all parts of the server.
func (o *outages) logger() *slog.Logger { return slog.New(&outageHandler{o.log.Handler(), o}) }

const (
	// reachEvery is the interval between connections of run, reachFor the time for one.
	reachEvery = time.Second
	reachFor   = 5 * time.Second
	// namedEvery is the least time between two looks for sessions that block others.
	namedEvery = 30 * time.Second
)

// run logs until ctx ends. It opens its own connections: a lost one alone is no outage.
func (o *outages) run(ctx context.Context, url string) error {
	var named time.Time
	for {
		select {
		case <-o.suspected:
		case <-o.locked:
			if time.Since(named) >= namedEvery && o.name(ctx, url) {
				named = time.Now()
			}
			pause(ctx)
			continue
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		err := reach(ctx, url)
		if err == nil || ctx.Err() != nil {
			pause(ctx)
			continue
		}
		o.away.Store(true)
		o.log.Error("the database is out of reach; failures because of it are logged at debug", "error", err)
		for err != nil && ctx.Err() == nil {
			pause(ctx)
			err = reach(ctx, url)
		}
		if err == nil {
			o.log.Info("the database is back", "took", time.Since(began))
			o.away.Store(false)
		}
	}
}

// pause keeps the connections of run few.
func pause(ctx context.Context) {
	select {
	case <-time.After(reachEvery):
	case <-ctx.Done():
	}
}

// dial opens a connection that leaves no state in a pooler's session.
func dial(ctx context.Context, url string) (*pgx.Conn, error) {
	return pgurl.Connect(ctx, url, func(cfg *pgx.ConnConfig) { cfg.DefaultQueryExecMode = pgx.QueryExecModeExec })
}

// reach connects to a database.
func reach(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, reachFor)
	defer cancel()
	conn, err := dial(ctx, url)
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

// name logs which sessions block others, and reports whether there are any.
func (o *outages) name(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, reachFor)
	defer cancel()
	conn, err := dial(ctx, url)
	if err != nil {
		return false // that is another warning
	}
	defer func() { _ = conn.Close(ctx) }()
	all, _ := store.Blockers(ctx, conn)
	for _, b := range all {
		o.log.Warn("a session blocks others; end it, or see holdfast doctor", "reason", b.String())
	}
	return len(all) > 0
}

// outageHandler lowers warnings during an outage.
type outageHandler struct {
	slog.Handler
	o *outages
}

// Handle implements slog.Handler.
func (h *outageHandler) Handle(ctx context.Context, r slog.Record) error {
	away, blocked := causes(r)
	if blocked {
		ring(h.o.locked)
	}
	if (r.Level == slog.LevelWarn || r.Level == slog.LevelInfo) && away {
		ring(h.o.suspected)
		if r.Level == slog.LevelInfo || h.o.away.Load() {
			r.Level = slog.LevelDebug
			if !h.Enabled(ctx, r.Level) {
				return nil
			}
		}
	}
	return h.Handler.Handle(ctx, r)
}

func ring(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// causes looks for errors in a record.
func causes(r slog.Record) (away, blocked bool) {
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is && err != nil {
			away, blocked = away || store.Away(err), blocked || store.Blocked(err)
		}
		return true
	})
	return away, blocked
}

// WithAttrs implements slog.Handler.
func (h *outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &outageHandler{h.Handler.WithAttrs(attrs), h.o}
}

// WithGroup implements slog.Handler.
func (h *outageHandler) WithGroup(name string) slog.Handler {
	return &outageHandler{h.Handler.WithGroup(name), h.o}
}
