package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// sealedPush is a configuration with its secrets, sealed for its task.
type sealedPush struct {
	config *task.PushConfig
	sealed []byte
}

// pushesOf returns the webhooks of a task that takes over an id. The client had set them for the
// id, so they go with it, except disabled ones and one that the new message replaces.
func (s *Store) pushesOf(ctx context.Context, c *create) ([]sealedPush, error) {
	rows, err := s.q.PushConfigs(ctx, s.api, uuid.UUID(c.Reopens.ID))
	if err != nil {
		return nil, translate("list pushes", err)
	}
	var all []sealedPush
	if c.Push != nil {
		all = append(all, sealedPush{c.Push, c.secrets})
	}
	for i := range rows {
		r := &rows[i]
		if r.DisabledAt.Valid || c.Push != nil && c.Push.ID == r.PushConfig.ConfigID {
			continue
		}
		config, err := pushConfig(&r.PushConfig, r.Host, r.Artifacts)
		if err != nil {
			return nil, err
		}
		if err := s.openSecrets(ctx, r.PushConfig.Task, &config, r.PushConfig.Secrets); err != nil {
			return nil, err
		}
		sealed, err := s.sealSecrets(ctx, c.Task.ID, &config)
		if err != nil {
			return nil, err
		}
		all = append(all, sealedPush{&config, sealed})
	}
	return all, nil
}

// reopen creates a task that takes over the id of an ended one. It is rare, so it is not batched.
// Like a batched create it does not run under a caller's policies, because they do not see the new
// task before the statement has ended.
func (s *Store) reopen(ctx context.Context, c *create) createResult {
	t := &c.Task
	id := uuid.UUID(t.ID)
	arg := dbsqlc.TaskRenameParams{
		Old: uuid.UUID(c.Reopens.ID), ID: id, ClientID: t.PublicID, Agent: t.Agent, Tenant: t.Tenant, Owner: t.Owner,
	}
	admit := admitParams([]*create{c})
	admit.ClientIds[0] = "" // TaskRename gives it the name
	leave, err := s.turns.enter(ctx, c.Reopens.ID)
	if err != nil {
		return createResult{err: err}
	}
	defer leave()
	hooks, err := s.pushesOf(ctx, c)
	if err != nil {
		return createResult{err: err}
	}
	var done creation
	err = s.View.again(ctx, "reopen", func() error {
		return pgx.BeginFunc(ctx, s.writes(), func(tx pgx.Tx) error {
			base, err := s.q.TaskRename(ctx, tx, arg)
			if err != nil {
				return err
			}
			rows, err := s.q.TaskAdmit(ctx, tx, admit)
			if err != nil {
				return err
			}
			if len(done.admit([]*create{c}, rows)) == 0 {
				return pgx.ErrNoRows // takes the name back
			}
			t.StreamBase = task.Seq(base)
			if err := s.created(ctx, tx, createParams([]*create{c}), &done); err != nil {
				return err
			}
			for _, h := range hooks {
				if _, err := s.setPush(ctx, tx, t.ID, h.config, h.sealed, len(hooks)); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if errors.Is(err, pgx.ErrNoRows) && done.refused[id] != 0 {
		return createResult{refused: done.refused[id]}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		// Another message reopened the task first, or the first try of this one was committed
		// before its connection died.
		var own dbsqlc.Task
		err := s.proven(ctx, s.api, func(db dbsqlc.DBTX) (err error) {
			own, err = s.q.TaskByID(ctx, db, id)
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return createResult{}
		}
		t.StreamBase = task.Seq(own.StreamBase.Int64)
		return createResult{at: own.CreatedAt, made: err == nil, err: translate("reopen", err)}
	}
	return createResult{at: done.at, made: err == nil, err: translate("reopen", err)}
}
