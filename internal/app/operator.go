package app

import (
	"context"
	"log/slog"

	"github.com/holdfast-a2a/holdfast/internal/cli"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// OpenOperator connects to the database for the verbs that look into it.
func OpenOperator(ctx context.Context, cfg *config.Config, log *slog.Logger) (cli.Operator, error) {
	url, closeDB, err := Database(ctx, ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, store.Options{URL: url, APIConns: 2, Writers: 1, Log: log})
	if err != nil {
		closeDB()
		return nil, err
	}
	return &operator{s, closeDB}, nil
}

type operator struct {
	store   *store.Store
	closeDB func()
}

func (o *operator) ListTasks(ctx context.Context, f cli.TaskFilter) ([]cli.TaskRow, error) {
	rows, err := o.store.ListTasks(ctx, store.TaskFilter{
		Agent: f.Agent, ContextID: f.Context, Owner: f.Owner, State: f.State, Limit: f.Limit,
	})
	out := make([]cli.TaskRow, len(rows))
	for i, r := range rows {
		t := r.Task
		out[i] = cli.TaskRow{
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
