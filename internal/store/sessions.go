package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Session is a session of an operator in a browser. Only the browser has its secret; the database has a hash.
type Session struct {
	ID     task.ID
	Hash   []byte // SHA-256
	Scheme string
	KeyID  string // the API key that opened it; "": none
	By     task.Caller

	CreatedAt time.Time
	ExpiresAt time.Time
}

// FindSession reads a session by its id. It returns nil if there is no such session.
func (s *Store) FindSession(ctx context.Context, id [16]byte) (*task.Session, error) {
	r, err := s.q.SessionFind(ctx, s.api, uuid.UUID(id))
	if err = translate("find a session", err); err != nil {
		if task.KindOf(err) == task.NotFound {
			return nil, nil //nolint:nilnil // absence is an answer here and no failure
		}
		return nil, err
	}
	return &task.Session{
		Hash: r.SecretHash, Scheme: r.Scheme, KeyID: r.KeyID, Owner: task.Owner{Tenant: r.Tenant, Subject: r.Subject}, Scopes: r.Scopes,
		Revoked: r.Revoked, Left: time.Duration(r.SecondsLeft * float64(time.Second)), ExpiresAt: r.ExpiresAt,
	}, nil
}

// AddSession opens a session for its operator, who is also the actor in the audit log. It deletes some sessions that have expired.
func (s *Store) AddSession(ctx context.Context, n *Session, lifetime time.Duration) error {
	scopes := n.By.Scopes
	if scopes == nil {
		scopes = []string{}
	}
	err := s.Operator(n.By, false).record(ctx, auditSessionOpened, task.ID{}, n.ID.String(), func(tx pgx.Tx) (done bool, err error) {
		if err := s.q.SessionsForget(ctx, tx); err != nil {
			return false, err
		}
		n.ExpiresAt, err = s.q.SessionAdd(ctx, tx, dbsqlc.SessionAddParams{
			ID: uuid.UUID(n.ID), SecretHash: n.Hash, Scheme: n.Scheme, KeyID: n.KeyID, Tenant: n.By.Tenant, Subject: n.By.Subject,
			Scopes: scopes, Address: n.By.Address, Lifetime: lifetime,
		})
		return true, err
	})
	return translate("open a session", err)
}

// Sessions lists the sessions that the operator may see, the newest first.
func (o *Operator) Sessions(ctx context.Context, limit int) ([]*Session, error) {
	rows, err := o.s.q.Sessions(ctx, o.s.api, o.bound, o.by.Tenant, int32(limit))
	out := make([]*Session, len(rows))
	for i, r := range rows {
		out[i] = &Session{
			ID: task.ID(r.ID), Scheme: r.Scheme, KeyID: r.KeyID, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt,
			By: task.Caller{Tenant: r.Tenant, Subject: r.Subject, Scopes: r.Scopes, Address: r.Address},
		}
	}
	return out, translate("list sessions", err)
}

// EndSession ends a session that the operator may see, and tells the replicas. task.NotFound: there is no such session.
func (o *Operator) EndSession(ctx context.Context, id task.ID) error {
	err := o.record(ctx, auditSessionEnded, task.ID{}, id.String(), func(tx pgx.Tx) (done bool, err error) {
		_, err = o.s.q.SessionEnd(ctx, tx, uuid.UUID(id), o.bound, o.by.Tenant)
		return true, err
	})
	if err = translate("end a session", err); err != nil {
		return err
	}
	if o.s.listener != nil {
		o.s.listener.KeyRevoked(id.String())
	}
	return nil
}
