package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Idempotency identifies a request, so that a retry finds the task of the first request.
type Idempotency struct {
	Key  string // empty for none
	Hash []byte // of the request's content
}

// Existing finds the task that an idempotency key or else a client's id refers to, if the view sees
// it. Errors: task.Invalid if the key was used for a different request, task.NotFound.
func (v View) Existing(ctx context.Context, n *NewTask) (t *task.Task, byKey bool, err error) {
	if n.Idempotency.Key != "" {
		t, hash, err := v.ofKey(ctx, n.Idempotency.Key)
		switch {
		case err == nil && string(hash) != string(n.Idempotency.Hash):
			return nil, true, task.Errorf(task.Invalid, "Idempotency-Key: already used for a different request; use a new key")
		case err == nil:
			// The answer acknowledges the first request, whose own outcome may have been unknown.
			err = v.s.proven(ctx, v.db, func(db dbsqlc.DBTX) error {
				t, _, err = v.ofKeyIn(ctx, db, n.Idempotency.Key)
				return err
			})
			if !errors.Is(err, task.NotFound) {
				return t, true, translate("idempotency key", err)
			}
		case !errors.Is(err, task.NotFound):
			return t, true, err
		}
	}
	t, err = v.FindTask(ctx, n.Task.PublicID)
	return t, false, err
}

// ofKey finds the task of an idempotency key of the view's caller, and the hash of the request that
// used the key. Errors: task.NotFound if the key is free, or its task was deleted or is no longer
// visible.
func (v View) ofKey(ctx context.Context, key string) (*task.Task, []byte, error) {
	return v.ofKeyIn(ctx, v.db, key)
}

func (v View) ofKeyIn(ctx context.Context, db dbsqlc.DBTX, key string) (*task.Task, []byte, error) {
	rows, err := v.s.q.IdempotencyGet(ctx, db, v.by.Tenant, v.by.Subject, key)
	if err != nil {
		return nil, nil, translate("idempotency key", err)
	}
	for _, r := range rows {
		row, err := v.s.q.TaskSeen(ctx, db, dbsqlc.TaskSeenParams{
			ID: r.Task, Tenant: v.by.Tenant, Owner: v.by.Subject, TenantWide: v.sees.TenantWide,
		})
		if !errors.Is(err, pgx.ErrNoRows) {
			t, err := found(&row, err)
			return t, r.RequestHash, err
		}
	}
	return nil, nil, task.NotFound
}

// forgetKey frees an idempotency key whose task does not exist: another create took the task's id
// at the same moment, or the task was deleted.
func (v View) forgetKey(ctx context.Context, i Idempotency) (freed bool, err error) {
	if i.Key == "" {
		return false, nil
	}
	n, err := v.s.q.IdempotencyForget(ctx, v.writes(), v.by.Tenant, v.by.Subject, i.Key)
	return n > 0, translate("idempotency key", err)
}
