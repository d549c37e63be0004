package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// SigningKey is a key that replicas sign with. Its durations are by the database's clock.
type SigningKey struct {
	ID          string
	Algorithm   string
	Private     []byte
	Age         time.Duration
	UntilActive time.Duration // negative: active for that long
}

// SigningKeys lists the keys in descending order of the time when they become active.
func (s *Store) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	rows, err := s.q.SigningKeys(ctx, s.api)
	if err != nil {
		return nil, translate("signing keys", err)
	}
	out := make([]SigningKey, len(rows))
	for i, r := range rows {
		out[i] = SigningKey{ID: r.KeyID, Algorithm: r.Algorithm, Private: r.PrivateKey, Age: r.Age, UntilActive: r.UntilActive}
	}
	return out, nil
}

// AddSigningKey adds a key that becomes active after lead, or at once when it is the first. It adds
// no key while another one is younger than maxAge. Of several replicas that try at once, one
// succeeds.
func (s *Store) AddSigningKey(ctx context.Context, k SigningKey, maxAge, lead time.Duration) (added bool, err error) {
	err = pgx.BeginFunc(ctx, s.api, func(tx pgx.Tx) error {
		if err := s.q.SigningKeysLock(ctx, tx); err != nil {
			return err
		}
		n, err := s.q.SigningKeyAdd(ctx, tx, dbsqlc.SigningKeyAddParams{
			KeyID: k.ID, Algorithm: k.Algorithm, PrivateKey: k.Private, Lead: lead, MaxAge: maxAge,
		})
		added = n > 0
		return err
	})
	return added && err == nil, translate("add a signing key", err)
}

// RetireSigningKeys deletes the keys that were replaced longer than overlap ago.
func (s *Store) RetireSigningKeys(ctx context.Context, overlap time.Duration) (int, error) {
	n, err := s.q.SigningKeysRetire(ctx, s.api, overlap)
	return int(n), translate("retire signing keys", err)
}
