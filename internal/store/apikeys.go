package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// APIKey is a client's API key. Only the client has its secret; the database has a hash.
type APIKey struct {
	ID      string   `json:"id"`
	Hash    []byte   `json:"-"` // SHA-256
	Name    string   `json:"name,omitempty"`
	Tenant  string   `json:"tenant"`
	Subject string   `json:"subject"`
	Scopes  []string `json:"scopes"`

	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`   // zero: never
	RevokedAt  time.Time `json:"revoked_at,omitzero"`   // zero: not revoked
	LastUsedAt time.Time `json:"last_used_at,omitzero"` // accurate to five minutes; zero: never
}

// FindAPIKey reads a key by its id. It returns nil if the key does not exist.
func (s *Store) FindAPIKey(ctx context.Context, id string) (*task.Key, error) {
	r, err := s.q.APIKeyFind(ctx, s.api, cleanName(id))
	if err = translate("find an API key", err); err != nil {
		if task.KindOf(err) == task.NotFound {
			return nil, nil //nolint:nilnil // absence is an answer here and no failure
		}
		return nil, err
	}
	return &task.Key{
		Hash: r.KeyHash, Owner: task.Owner{Tenant: r.Tenant, Subject: r.Subject}, Scopes: r.Scopes, Revoked: r.Revoked,
		Left: time.Duration(r.SecondsLeft * float64(time.Second)), UseUnrecorded: r.UseUnrecorded,
	}, nil
}

// RecordKeyUse notes that a key was used.
func (s *Store) RecordKeyUse(ctx context.Context, id string) error {
	return translate("record the use of an API key", s.q.APIKeyUsed(ctx, s.brief(s.api), id))
}

// AddAPIKey adds a key that expires after lifetime; 0 means never.
func (v View) AddAPIKey(ctx context.Context, k *APIKey, lifetime time.Duration) (*APIKey, error) {
	scopes := k.Scopes
	if scopes == nil {
		scopes = []string{}
	}
	var r dbsqlc.APIKey
	err := v.record(ctx, auditKeyCreated, task.ID{}, k.ID, func(tx pgx.Tx) (done bool, err error) {
		r, err = v.s.q.APIKeyAdd(ctx, tx, dbsqlc.APIKeyAddParams{
			KeyID: k.ID, KeyHash: k.Hash, Name: k.Name, Tenant: k.Tenant, Subject: k.Subject, Scopes: scopes, Lifetime: lifetime,
		})
		return true, err
	})
	if err != nil {
		return nil, translate("add an API key", err)
	}
	return apiKey(&r), nil
}

// RevokeAPIKey revokes a key and tells the replicas. A second call changes nothing. It returns nil
// if there is no such key.
func (v View) RevokeAPIKey(ctx context.Context, id string) (*APIKey, error) {
	return v.revokeKey(ctx, id, nil)
}

// RevokeAPIKey is that of View for the keys that the operator sees.
func (o *Operator) RevokeAPIKey(ctx context.Context, id string) (*APIKey, error) {
	return o.revokeKey(ctx, id, o.Tenant())
}

// revokeKey revokes a key, if it is of the tenant (nil: of any).
func (v View) revokeKey(ctx context.Context, id string, tenant *string) (*APIKey, error) {
	id = cleanName(id)
	of := ""
	if tenant != nil {
		of = *tenant
	}
	var r dbsqlc.APIKey
	err := v.record(ctx, auditKeyRevoked, task.ID{}, id, func(tx pgx.Tx) (done bool, err error) {
		r, err = v.s.q.APIKeyRevoke(ctx, tx, id, tenant != nil, of)
		return true, err
	})
	if err = translate("revoke an API key", err); err != nil {
		if task.KindOf(err) == task.NotFound {
			return nil, nil //nolint:nilnil // absence is an answer here and no failure
		}
		return nil, err
	}
	if v.s.listener != nil {
		v.s.listener.KeyRevoked(r.KeyID)
	}
	return apiKey(&r), nil
}

func apiKey(r *dbsqlc.APIKey) *APIKey {
	return &APIKey{
		ID: r.KeyID, Hash: r.KeyHash, Name: r.Name, Tenant: r.Tenant, Subject: r.Subject, Scopes: r.Scopes,
		CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt.Time, RevokedAt: r.RevokedAt.Time, LastUsedAt: r.LastUsedAt.Time,
	}
}
