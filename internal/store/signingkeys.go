package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// SigningKey is a key that replicas sign with. Its durations are by the database's clock.
type SigningKey struct {
	ID          string
	Algorithm   string
	Private     []byte // PKCS #8; in the database sealed with the first of the configured keys, if there are any
	Age         time.Duration
	UntilActive time.Duration // negative: active for that long
}

// signingPlace keeps the private key of one row from being copied to another.
func signingPlace(id string) string { return "signing key " + id }

// derSequence begins every PKCS #8 document, and no sealed value.
const derSequence = 0x30

// SigningKeys lists the keys in descending order of the time when they become active. If secret keys are configured, it seals
// the private keys that earlier servers, or servers without secret keys, have left plain.
func (s *Store) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	rows, err := s.q.SigningKeys(ctx, s.api)
	if err != nil {
		return nil, translate("signing keys", err)
	}
	ring, err := s.sealing(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]SigningKey, len(rows))
	for i, r := range rows {
		private := r.PrivateKey
		switch {
		case secrets.Sealed(private):
			if private, err = ring.Open(r.PrivateKey, signingPlace(r.KeyID)); err != nil {
				return nil, fmt.Errorf("signing key %s: %w", r.KeyID, err)
			}
		case len(s.secretKeys) > 0:
			if _, err := s.resealSigningKey(ctx, ring, r.KeyID, private); err != nil {
				return nil, translate("seal a signing key", err)
			}
		}
		out[i] = SigningKey{ID: r.KeyID, Algorithm: r.Algorithm, Private: private, Age: r.Age, UntilActive: r.UntilActive}
	}
	return out, nil
}

// resealSigningKey seals a private key with the first key of the ring, and returns how many rows it changed: none if that is done.
func (s *Store) resealSigningKey(ctx context.Context, ring *secrets.Keys, id string, stored []byte) (int64, error) {
	var fresh []byte
	switch {
	case secrets.Sealed(stored):
		var err error
		if fresh, err = resealed(ring, stored, signingPlace(id)); err != nil || fresh == nil {
			return 0, err
		}
	case len(stored) > 0 && stored[0] == derSequence:
		fresh = ring.Seal(stored, signingPlace(id))
	default:
		return 0, nil // not a key: the ring reports that
	}
	n, err := s.q.SigningKeyReseal(ctx, s.api, fresh, id, stored)
	return n, translate("reseal", err)
}

// AddSigningKey adds a key that becomes active after lead, or at once when it is the first. It adds
// no key while another one is younger than maxAge. Of several replicas that try at once, one
// succeeds.
func (s *Store) AddSigningKey(ctx context.Context, k SigningKey, maxAge, lead time.Duration) (added bool, err error) {
	private := k.Private
	if len(s.secretKeys) > 0 {
		ring, err := s.sealing(ctx)
		if err != nil {
			return false, err
		}
		private = ring.Seal(private, signingPlace(k.ID))
	}
	err = pgx.BeginFunc(ctx, s.api, func(tx pgx.Tx) error {
		if err := s.q.SigningKeysLock(ctx, tx); err != nil {
			return err
		}
		n, err := s.q.SigningKeyAdd(ctx, tx, dbsqlc.SigningKeyAddParams{
			KeyID: k.ID, Algorithm: k.Algorithm, PrivateKey: private, Lead: lead, MaxAge: maxAge,
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
