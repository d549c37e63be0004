package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Operators is the API of operators in a command, over a database whose servers are other processes. Its one operator runs the command,
// and may do everything.
type Operators struct {
	api   *admin.API
	store *store.Store
	bell  *hub.Doorbell
	log   *slog.Logger
	stop  func()
	db    *Database
}

// OpenOperators connects to a database, which must have the schema of this program. Close also closes the database.
func OpenOperators(ctx context.Context, cfg *config.Config, db *Database, by task.Caller, version string, log *slog.Logger) (*Operators, error) {
	o := &Operators{bell: hub.NewDoorbell(db.DirectURL), log: log, db: db}
	var err error
	o.store, err = store.Open(ctx, store.Options{
		URL: db.URL, Pooled: db.URL != db.DirectURL, APIConns: 2, Writers: 1, Listener: o.bell, SecretKeys: cfg.Push.SealingKeys(),
		Widths: Widths(cfg), Tells: Tells(cfg), Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("database: %w", schema.Explain(err))
	}
	switch known, err := schema.ReadVersion(ctx, o.store.Pools()["api"]); {
	case err != nil:
		o.store.Close(ctx)
		return nil, fmt.Errorf("database: %w", schema.Explain(err))
	case !known.Current():
		o.store.Close(ctx)
		return nil, fmt.Errorf("the database has schema version %d, but this program needs version %d; start the server or run holdfast migrate",
			known.Applied, known.Latest)
	}
	options, worker := adminOptions(cfg, o.store, version, cfg.BaseURL(cfg.Listen), log), store.NewID()
	options.Local, options.Worker = true, func() task.ID { return worker }
	options.Admit = func(*http.Request) (*admin.Admitted, error) {
		return &admin.Admitted{Caller: by, Right: admin.Administer}, nil
	}
	options.SameOrigin = func(*http.Request, bool) error { return nil }
	o.api = admin.New(options)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	lists := start(run, o.api.Run)
	o.stop = func() { cancel(); lists.wait() }
	return o, nil
}

// ServeHTTP implements http.Handler.
func (o *Operators) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.api.ServeHTTP(w, r)
	if r.Method != http.MethodGet {
		o.ring(r.Context())
	}
}

// ring sends the replicas a hint. Without the hint they find the change in their next round.
func (o *Operators) ring(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := o.bell.Ring(ctx); err != nil {
		o.log.Debug("hint to the replicas not sent", "error", err)
	}
}

// Close disconnects.
func (o *Operators) Close() {
	o.api.Stop()
	o.stop()
	o.store.Close(context.Background())
	o.db.Close()
}
