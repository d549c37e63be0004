package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// TaskFilter selects tasks for operators. An empty field selects all.
type TaskFilter struct {
	Agent, ContextID, Owner string
	Tenant                  *string // not nil: only of this tenant
	State                   task.State
	Before                  task.ID // continue a listing after this task
	Limit                   int
}

// tenant returns the parameters of a query that select by tenant.
func (f *TaskFilter) tenant() (by bool, tenant string) {
	if f.Tenant == nil {
		return false, ""
	}
	return true, *f.Tenant
}

// TaskRow is a line of an operator's listing.
type TaskRow struct {
	Task    *task.Task // header
	Attempt task.Attempt
	Runs    int
}

// Retried notes the task that a retry has made of another.
func (s *Store) Retried(ctx context.Context, old, again task.ID) error {
	err := s.q.TaskRetried(ctx, s.hot, dbsqlc.TaskRetriedParams{ID: uuid.UUID(old), Again: uuid.UUID(again)})
	return translate("note a retry", err)
}

// ListTasks lists tasks of all owners, the newest first.
func (s *Store) ListTasks(ctx context.Context, f TaskFilter) ([]TaskRow, error) {
	before := uuid.Max
	if !f.Before.IsZero() {
		before = uuid.UUID(f.Before)
	}
	var rows []dbsqlc.Task
	byTenant, tenant := f.tenant()
	// A plan for these filters finds the index of a rare state or a context; one for all reads every task.
	err := s.planned(ctx, func(tx pgx.Tx) (err error) {
		rows, err = s.q.OpsTasks(ctx, tx, dbsqlc.OpsTasksParams{
			Before: before, Agent: f.Agent, State: int16(f.State), ContextID: f.ContextID, Owner: f.Owner,
			ByTenant: byTenant, Tenant: tenant, MaxRows: int32(f.Limit),
		})
		return err
	})
	if err != nil {
		return nil, translate("list tasks", err)
	}
	out := make([]TaskRow, len(rows))
	for i := range rows {
		out[i] = TaskRow{header(&rows[i]), task.Attempt(rows[i].Attempt), int(rows[i].Runs)}
	}
	return out, nil
}

// planned runs a statement that PostgreSQL plans for its arguments, in a transaction that only reads.
func (s *Store) planned(ctx context.Context, read func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.api, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL plan_cache_mode = force_custom_plan"); err != nil {
			return err
		}
		return read(tx)
	})
}

// Resolve finds a task for an operator, by UUID or by the id that a client chose. If several owners
// chose that id, the error lists their tasks.
func (s *Store) Resolve(ctx context.Context, id string) (*task.Task, error) {
	if u, err := task.ParseID(id); err == nil {
		t, err := s.Header(ctx, u)
		if err == nil || !errors.Is(err, task.NotFound) {
			return t, err
		}
	}
	ids, err := s.q.OpsTasksNamed(ctx, s.api, cleanName(id))
	switch {
	case err != nil:
		return nil, translate("find task", err)
	case len(ids) == 0:
		return nil, task.NotFound
	case len(ids) > 1:
		msg := "several tasks have this id; name one by its UUID:"
		for _, u := range ids {
			msg += " " + u.String()
		}
		return nil, task.Errorf(task.Invalid, "%s", msg)
	}
	return s.Header(ctx, task.ID(ids[0]))
}

// Now returns the time of the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	began := time.Now()
	if err := s.hot.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return time.Time{}, translate("clock", err)
	}
	s.clock.learn(now, began)
	return now, nil
}
