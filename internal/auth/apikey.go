package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// KindAPIKey is the kind of scheme that NewAPIKeys makes.
const KindAPIKey = "api_key"

// An API key is hfk_<id>_<secret><checksum>, in base 32: 10, 32 and 4 random bytes. The
// checksum lets scanners of secrets tell one from its like, and spares the database what
// was typed wrong.
const (
	keyPrefix    = "hfk_"
	idLength     = 16
	secretLength = 52
	sumLength    = 7
	keyLength    = len(keyPrefix) + idLength + 1 + secretLength + sumLength
)

var base = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewAPIKey makes a key: what the client shows, its id, and what is stored of it.
func NewAPIKey() (key, id string, hash []byte) {
	var random [42]byte
	_, _ = rand.Read(random[:]) // it does not return without
	id = base.EncodeToString(random[:10])
	head := keyPrefix + id + "_" + base.EncodeToString(random[10:])
	key = head + checksum(head)
	sum := hashKey(key)
	return key, id, sum[:]
}

// hashKey is no slow hash: the key holds 256 random bits, which nobody guesses at any speed.
func hashKey(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

func checksum(head string) string {
	return base.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(head))))
}

// keyID is the id in what looks like a key.
func keyID(key string) (id string, ok bool) {
	if len(key) != keyLength || !strings.HasPrefix(key, keyPrefix) {
		return "", false
	}
	head, sum := key[:keyLength-sumLength], key[keyLength-sumLength:]
	id = head[len(keyPrefix) : len(keyPrefix)+idLength]
	if head[len(keyPrefix)+idLength] != '_' || checksum(head) != sum {
		return "", false
	}
	// The checksum is no secret, and what is behind it may be anything.
	if _, err := base.DecodeString(id); err != nil {
		return "", false
	}
	return id, true
}

// KeyStore has the keys.
type KeyStore interface {
	FindAPIKey(ctx context.Context, id string) (*store.KnownKey, error)
	RecordKeyUse(ctx context.Context, id string) error
}

// APIKeys is a scheme: a random secret in a header, which the operator has given to the client.
type APIKeys struct {
	name   string
	header string
	spelt  string // in challenges, as the operator has it
	either bool   // in Authorization, too
	store  KeyStore
	known  *cache[*proof]
	// lookups bounds the queries that unknown keys cause, so that they take no connection from anybody.
	lookups chan struct{}
}

const (
	// keyFor is how long a key is believed without a look at the database, if no hint says that one was revoked.
	keyFor = 10 * time.Second
	// keysKept bounds what is remembered.
	keysKept   = 10_000
	keyLookups = 3
)

// NewAPIKeys makes the scheme. In the header Authorization a key is a bearer's.
func NewAPIKeys(name, header string, s KeyStore) *APIKeys {
	return &APIKeys{
		name: name, header: http.CanonicalHeaderKey(header), spelt: header, store: s, known: newCache[*proof](keysKept), lookups: make(chan struct{}, keyLookups),
	}
}

// OrBearer is the same scheme for those who show keys as bearer tokens, too: what scrapes metrics often knows no other
// header.
func (s *APIKeys) OrBearer() *APIKeys {
	both := *s
	both.either = true
	return &both
}

// Name implements Scheme.
func (s *APIKeys) Name() string { return s.name }

func (s *APIKeys) kind() string { return KindAPIKey }

func (s *APIKeys) bearer() bool { return s.header == "Authorization" }

func (s *APIKeys) shown(r *Request, a *authorization) []string {
	var keys []string
	if s.bearer() || s.either {
		keys = a.take("bearer", func(c string) bool { return strings.HasPrefix(c, keyPrefix) })
	}
	if s.bearer() {
		return keys
	}
	return append(keys, r.Header(s.header)...)
}

func (s *APIKeys) remembered(key string, _ *Request) *proof {
	p, _ := s.known.get(hashKey(key))
	return p
}

func (s *APIKeys) verify(ctx context.Context, key string, _ *Request) (*proof, error) {
	id, ok := keyID(key)
	if !ok {
		return nil, refuse(Malformed, nil)
	}
	hash := hashKey(key)
	age := s.known.age()
	k, err := s.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case k == nil || subtle.ConstantTimeCompare(k.Hash, hash[:]) != 1:
		return nil, refuse(Unknown, nil)
	case k.Revoked:
		return nil, refuse(Revoked, nil)
	case k.Left <= 0:
		return nil, refuse(Expired, nil)
	}
	if k.UseUnrecorded {
		// Whether this is written decides nothing.
		_ = s.store.RecordKeyUse(ctx, id)
	}
	p := &proof{until: time.Now().Add(k.Left), Principal: engine.Principal{
		Tenant: k.Tenant, Subject: k.Subject, Scopes: k.Scopes, Credential: s.name + "/" + id,
	}}
	s.known.put(hash, p, min(k.Left, keyFor), age)
	return p, nil
}

func (s *APIKeys) find(ctx context.Context, id string) (*store.KnownKey, error) {
	select {
	case s.lookups <- struct{}{}:
		defer func() { <-s.lookups }()
	case <-ctx.Done():
		return nil, unavailable("the API key could not be looked up in time", context.Cause(ctx))
	}
	k, err := s.store.FindAPIKey(ctx, id)
	if err != nil {
		err = errors.Join(unavailable("the API key could not be looked up", err), err)
	}
	return k, err
}

// Forget makes the next use of each key look at the database. It is called when one was revoked.
func (s *APIKeys) Forget() { s.known.clear() }

func (s *APIKeys) challenge(refused bool) string {
	if s.bearer() || s.either {
		return bearerChallenge(refused)
	}
	return `ApiKey ` + realm + `, header="` + s.spelt + `"`
}
