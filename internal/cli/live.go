package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/holdfast-a2a/holdfast/internal/app"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/schema"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Live are the verbs' real dependencies. banner receives what the server has to say
// to a person when it is up.
func Live(banner io.Writer) Deps {
	return Deps{
		Serve: func(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
			return app.Run(ctx, cfg, log, app.Options{Version: Version(), Banner: banner})
		},
		Migrate: func(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
			db, err := app.OpenDatabase(ctx, ctx, cfg, log)
			if err != nil {
				return err
			}
			defer db.Close()
			return schema.Migrate(ctx, db.DirectURL, log)
		},
		MigrationStatus: migrationStatus,
		OpenOperator:    openOperator,
	}
}

func migrationStatus(ctx context.Context, cfg *config.Config, log *slog.Logger) ([]Migration, error) {
	db, err := existingDatabase(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	steps, err := schema.Status(ctx, db.DirectURL)
	out := make([]Migration, len(steps))
	for i, s := range steps {
		out[i] = Migration(s)
	}
	return out, err
}

// existingDatabase is for verbs that only look: they must not create a database in
// whatever folder they were called.
func existingDatabase(ctx context.Context, cfg *config.Config, log *slog.Logger) (*app.Database, error) {
	if cfg.DatabaseURL == "" && !pgembed.Exists(cfg.DataDir) {
		return nil, usage("there is no database in %s: call this where the server runs, or name the database with HOLDFAST_DATABASE_URL", cfg.DataDir)
	}
	return app.OpenDatabase(ctx, ctx, cfg, log)
}

// openOperator connects to the database for the verbs that look into it.
func openOperator(ctx context.Context, cfg *config.Config, log *slog.Logger) (Operator, error) {
	db, err := existingDatabase(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, store.Options{URL: db.URL, APIConns: 2, Writers: 1, Log: log})
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("database: %w", err)
	}
	o := &operator{s, db.Close}
	version, err := schema.ReadVersion(ctx, s.Pools()["api"])
	switch {
	case err != nil:
		err = fmt.Errorf("database: %w", err)
	case !version.Current():
		err = fmt.Errorf("the database's schema has version %d and this program needs %d: start the server, or call holdfast migrate",
			version.Applied, version.Latest)
	default:
		return o, nil
	}
	o.Close()
	return nil, err
}

type operator struct {
	store   *store.Store
	closeDB func()
}

func (o *operator) ListTasks(ctx context.Context, f TaskFilter) ([]TaskRow, error) {
	rows, err := o.store.ListTasks(ctx, store.TaskFilter{
		Agent: f.Agent, ContextID: f.Context, Owner: f.Owner, State: f.State, Limit: f.Limit,
	})
	out := make([]TaskRow, len(rows))
	for i, r := range rows {
		t := r.Task
		out[i] = TaskRow{
			ID: t.ID, PublicID: t.PublicID, Agent: t.Agent, State: t.Status.State, ContextID: t.ContextID,
			Owner: t.Owner, LastSeq: t.LastSeq, StatusAt: t.Status.At, CreatedAt: t.CreatedAt,
		}
	}
	return out, err
}

func (o *operator) GetTask(ctx context.Context, id string) (*task.Task, error) {
	h, err := o.store.Resolve(ctx, id)
	if err != nil {
		return nil, err
	}
	return o.store.Snapshot(ctx, h, true)
}

func (o *operator) TaskEvents(ctx context.Context, id string, after task.Seq) ([]task.Event, error) {
	h, err := o.store.Resolve(ctx, id)
	if err != nil {
		return nil, err
	}
	const page = 1000
	var out []task.Event
	for {
		evs, err := o.store.EventsAfter(ctx, h, after, page)
		if err != nil {
			return nil, err
		}
		for _, e := range evs {
			out, after = append(out, *e), e.Seq
		}
		if len(evs) < page {
			return out, nil
		}
	}
}

func (o *operator) Close() {
	o.store.Close(context.Background())
	o.closeDB()
}
