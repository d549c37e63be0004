package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// reopen creates a task that takes over the id of one that has ended. It is rare, so
// it does not wait for others to be written with.
func (s *Store) reopen(ctx context.Context, c *create) createResult {
	t := &c.Task
	arg := dbsqlc.TaskReopenParams{
		Old: uuid.UUID(c.Reopens.ID), ID: uuid.UUID(t.ID), ClientID: t.PublicID, Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner,
		ContextID: t.ContextID, Dialect: t.Dialect, Metadata: string(t.Metadata), Payload: c.payload,
		Key: c.Idempotency.Key, RequestHash: c.Idempotency.Hash,
	}
	if arg.RequestHash == nil {
		arg.RequestHash = []byte{}
	}
	row, err := s.q.TaskReopen(ctx, s.api, arg)
	for try := 0; err != nil && unavailable(err) && try < 5; try++ {
		s.retried("reopen", err, try)
		if pause(ctx, try) != nil {
			break
		}
		row, err = s.q.TaskReopen(ctx, s.api, arg)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		// Another message was first, or the first copy of this one was, whose connection died.
		own, err := s.q.TaskByID(ctx, s.api, arg.ID)
		if errors.Is(err, pgx.ErrNoRows) {
			return createResult{}
		}
		t.StreamBase = task.Seq(own.StreamBase.Int64)
		return createResult{at: own.CreatedAt, made: err == nil, err: translate("reopen", err)}
	}
	t.StreamBase = task.Seq(row.StreamBase)
	return createResult{at: row.CreatedAt, made: err == nil, err: translate("reopen", err)}
}
