// Package keys holds the keys that a server signs with. They live in the database, so that all replicas sign alike and
// publish the same set; each replica keeps a copy and looks anew every minute.
//
// A key is published an hour before it signs, which is longer than a replica or a client may know an older set, and for
// a while after another one has taken over, for what it has signed. Which key signs is told by the database's clock.
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

// lead is how long a new key is published before it signs.
const lead = time.Hour

// Store keeps the keys.
type Store interface {
	SigningKeys(ctx context.Context) ([]store.SigningKey, error)
	AddSigningKey(ctx context.Context, k store.SigningKey, maxAge, lead time.Duration) (added bool, err error)
	RetireSigningKeys(ctx context.Context, overlap time.Duration) (int, error)
}

// Options configures a Ring.
type Options struct {
	Store       Store
	RotateEvery time.Duration // 0: never
	Overlap     time.Duration // how long a replaced key stays published
	Log         *slog.Logger
}

// Ring is a replica's copy of the keys. It is empty until Refresh.
type Ring struct {
	opt     Options
	current atomic.Pointer[view]
}

// view is the keys as they were at a moment.
type view struct {
	at   time.Time // monotonic
	keys []key     // the last to become active first
	set  []byte    // JSON Web Key Set
}

type key struct {
	id          string
	signer      deterministic
	untilActive time.Duration
}

// New makes a ring.
func New(o Options) *Ring {
	if o.RotateEvery == 0 {
		o.RotateEvery = math.MaxInt64
	}
	return &Ring{opt: o}
}

// Refresh reads the keys, makes one when it is time, and drops those whose time is over. On an error the ring stays as
// it was.
func (r *Ring) Refresh(ctx context.Context) error {
	rows, err := r.opt.Store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	youngest := time.Duration(math.MaxInt64)
	for _, row := range rows {
		youngest = min(youngest, row.Age)
	}
	if len(rows) == 0 || youngest >= r.opt.RotateEvery {
		if err := r.add(ctx); err != nil {
			return err
		}
	}
	retired, err := r.opt.Store.RetireSigningKeys(ctx, r.opt.Overlap)
	if err != nil {
		return err
	}
	if retired > 0 {
		r.opt.Log.Info("signing keys were retired", "keys", retired)
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

// add makes a key, unless another replica does.
func (r *Ring) add(ctx context.Context) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a signing key: %w", err)
	}
	row, err := encode(private)
	if err != nil {
		return err
	}
	added, err := r.opt.Store.AddSigningKey(ctx, row, r.opt.RotateEvery, lead)
	if added {
		r.opt.Log.Info("a signing key was made", "kid", row.ID)
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
		v.keys = append(v.keys, key{row.ID, deterministic{private}, row.UntilActive})
		set.Keys = append(set.Keys, public(row.ID, &private.PublicKey))
	}
	var err error
	v.set, err = json.Marshal(set)
	return v, err
}

// errNone is for a ring that was not filled, or whose keys were all withdrawn.
var errNone = errors.New("there is no signing key")

// active is the key that signs now.
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
	// The one before it was withdrawn: better the next one early than none.
	if n := len(v.keys); n > 0 {
		return &v.keys[n-1], nil
	}
	return nil, errNone
}

// KeyID names the key that signs now, or is empty.
func (r *Ring) KeyID() string {
	k, err := r.active()
	if err != nil {
		return ""
	}
	return k.id
}

// Set is the JSON Web Key Set to publish. It is nil while the ring is empty.
func (r *Ring) Set() []byte {
	if v := r.current.Load(); v != nil {
		return v.set
	}
	return nil
}
