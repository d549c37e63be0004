// Package keys holds the keys that a server signs with. They live in the database, sealed by the store, so that all replicas
// sign alike and publish the same set. Each replica keeps a copy and reloads it every minute.
//
// A key is published an hour before it signs. That is longer than a replica or a client may use an older set. A
// replaced key stays published for a while, because its signatures are still in use. The database's clock decides which
// key signs.
//
// Signatures are deterministic (RFC 6979): two replicas give the same bytes for the same document.
package keys

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

const (
	rotateEvery = 90 * 24 * time.Hour // age at which a key gets a successor
	lead        = time.Hour           // how long a new key is published before it signs
	overlap     = 30 * 24 * time.Hour // how long a replaced key stays published: clients keep cards
)

// Store stores the keys.
type Store interface {
	SigningKeys(ctx context.Context) ([]store.SigningKey, error)
	AddSigningKey(ctx context.Context, k store.SigningKey, maxAge, lead time.Duration) (added bool, err error)
	RetireSigningKeys(ctx context.Context, overlap time.Duration) (int, error)
}

// Options configures a Ring.
type Options struct {
	Store Store
	Log   *slog.Logger
}

// Ring is a replica's copy of the keys. It is empty until Refresh.
type Ring struct {
	opt     Options
	current atomic.Pointer[view]
}

// view is the keys at one moment.
type view struct {
	at   time.Time // monotonic
	keys []key     // the last to become active first
	set  []byte    // JSON Web Key Set
}

type key struct {
	id          string
	signer      deterministic
	untilActive time.Duration
	made        time.Time
}

// New makes a ring.
func New(o Options) *Ring {
	return &Ring{opt: o}
}

// Refresh reads the keys. It creates a key when one is due, and deletes keys at the end of their time. On an error the
// ring keeps its keys.
func (r *Ring) Refresh(ctx context.Context) error {
	rows, err := r.opt.Store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	youngest := time.Duration(math.MaxInt64)
	for _, row := range rows {
		youngest = min(youngest, row.Age)
	}
	if len(rows) == 0 || youngest >= rotateEvery {
		if err := r.add(ctx); err != nil {
			return err
		}
	}
	retired, err := r.opt.Store.RetireSigningKeys(ctx, overlap)
	if err != nil {
		return err
	}
	if retired > 0 {
		r.opt.Log.Info("signing keys retired", "keys", retired)
	}
	at := time.Now()
	if rows, err = r.opt.Store.SigningKeys(ctx); err != nil {
		return err
	}
	v, err := newView(at, rows)
	if err != nil {
		return err
	}
	r.current.Store(v)
	return nil
}

// add creates a key, unless another replica does.
func (r *Ring) add(ctx context.Context) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create a signing key: %w", err)
	}
	row, err := encode(private)
	if err != nil {
		return err
	}
	added, err := r.opt.Store.AddSigningKey(ctx, row, rotateEvery, lead)
	if added {
		r.opt.Log.Info("signing key created", "kid", row.ID)
	}
	return err
}

func newView(at time.Time, rows []store.SigningKey) (*view, error) {
	v := &view{at: at}
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, row := range rows {
		private, err := decode(row)
		if err != nil {
			return nil, err
		}
		v.keys = append(v.keys, key{row.ID, deterministic{private}, row.UntilActive, at.Add(-row.Age)})
		set.Keys = append(set.Keys, public(row.ID, &private.PublicKey))
	}
	var err error
	v.set, err = json.Marshal(set)
	return v, err
}

// errNone says that the ring was not filled, or that all its keys were withdrawn.
var errNone = errors.New("no signing key is loaded")

// active returns the key that signs now.
func (r *Ring) active() (*key, error) {
	v := r.current.Load()
	if v == nil {
		return nil, errNone
	}
	passed := time.Since(v.at)
	for i := range v.keys {
		if v.keys[i].untilActive <= passed {
			return &v.keys[i], nil
		}
	}
	// The previous key was withdrawn: sign early with the next one instead of failing.
	if n := len(v.keys); n > 0 {
		return &v.keys[n-1], nil
	}
	return nil, errNone
}

// Times returns when the key was made that signs now, and when the next one is due: zero without such a key. The ages are by the database's clock, the times by that of this process.
func (r *Ring) Times() (made, next time.Time) {
	k, err := r.active()
	if err != nil {
		return time.Time{}, time.Time{}
	}
	for _, k := range r.current.Load().keys {
		if at := k.made.Add(rotateEvery); at.After(next) {
			next = at
		}
	}
	return k.made, next
}

// KeyID returns the id of the key that signs now, or "" without such a key.
func (r *Ring) KeyID() string {
	k, err := r.active()
	if err != nil {
		return ""
	}
	return k.id
}

// Set returns the JSON Web Key Set to publish, or nil while the ring is empty.
func (r *Ring) Set() []byte {
	if v := r.current.Load(); v != nil {
		return v.set
	}
	return nil
}
