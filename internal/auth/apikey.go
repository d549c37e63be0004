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
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// KindAPIKey is the kind of the scheme that NewAPIKeys makes.
const KindAPIKey = "api_key"

// An API key is hfk_<id>_<secret><checksum>. The three parts are 10, 32 and 4 bytes in base 32; id and secret are
// random. The checksum lets secret scanners recognize a key, and rejects a mistyped key without a query.
const (
	keyPrefix    = "hfk_"
	idLength     = 16
	secretLength = 52
	sumLength    = 7
	keyLength    = len(keyPrefix) + idLength + 1 + secretLength + sumLength
)

var base = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewAPIKey makes a key. It returns the key that the client shows, its id, and the hash that the database stores.
func NewAPIKey() (key, id string, hash []byte) {
	var random [42]byte
	_, _ = rand.Read(random[:]) // it cannot fail
	id = base.EncodeToString(random[:10])
	head := keyPrefix + id + "_" + base.EncodeToString(random[10:])
	key = head + checksum(head)
	sum := hashKey(key)
	return key, id, sum[:]
}

// hashKey uses a fast hash: the key holds 256 random bits, which no attacker guesses at any speed.
func hashKey(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

func checksum(head string) string {
	return base.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(head))))
}

// keyID returns the id in a string that has the form of a key.
func keyID(key string) (id string, ok bool) {
	if len(key) != keyLength || !strings.HasPrefix(key, keyPrefix) {
		return "", false
	}
	head, sum := key[:keyLength-sumLength], key[keyLength-sumLength:]
	id = head[len(keyPrefix) : len(keyPrefix)+idLength]
	if head[len(keyPrefix)+idLength] != '_' || checksum(head) != sum {
		return "", false
	}
	// Anybody can compute the checksum, so the rest is still unchecked input.
	if _, err := base.DecodeString(id); err != nil {
		return "", false
	}
	return id, true
}

// KeyStore stores API keys.
type KeyStore interface {
	FindAPIKey(ctx context.Context, id string) (*task.Key, error)
	RecordKeyUse(ctx context.Context, id string) error
}

// APIKeys is a scheme: a random secret in a header. The operator gives the secret to the client.
type APIKeys struct {
	named
	header string
	spelt  string // for challenges, as the operator spells it
	either bool   // also accept the key in Authorization
	store  KeyStore
	// A revocation replaces known. A look-up that began earlier then stores its result in the old cache, which nobody
	// reads.
	known *atomic.Pointer[cache[*proof]]
	// lately has the keys that were good within latelyFor, for requests that need no more during an outage of the database.
	lately *atomic.Pointer[cache[*proof]]
	// lookups bounds the queries that unknown keys cause, so that they do not take the connections of other requests.
	lookups chan struct{}
}

const (
	// keyFor is how long a key is accepted without a query, unless a hint says that a key was revoked.
	keyFor = 10 * time.Second
	// keysKept bounds the number of remembered keys.
	keysKept   = 10_000
	keyLookups = 3

	latelyFor = time.Hour
	// latelyWait is how long a request waits for the database if a key that was good lately is enough. A scrape ends after 10 s.
	latelyWait = 2 * time.Second
)

// NewAPIKeys makes the scheme. If header is Authorization, a key is shown as a bearer token.
func NewAPIKeys(name, header string, s KeyStore) *APIKeys {
	keys := &APIKeys{
		named: named{name, KindAPIKey}, header: http.CanonicalHeaderKey(header), spelt: header, store: s,
		known: &atomic.Pointer[cache[*proof]]{}, lately: &atomic.Pointer[cache[*proof]]{}, lookups: make(chan struct{}, keyLookups),
	}
	keys.Forget()
	return keys
}

// OrBearer returns the same scheme, which also accepts keys as bearer tokens. Tools that scrape metrics often cannot
// set another header.
func (s *APIKeys) OrBearer() *APIKeys {
	both := *s
	both.either = true
	return &both
}

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
	p, _ := s.known.Load().get(hashKey(key))
	return p
}

func (s *APIKeys) verify(ctx context.Context, key string, r *Request) (*proof, error) {
	id, ok := keyID(key)
	if !ok {
		return nil, refuse(Malformed, nil)
	}
	hash := hashKey(key)
	known, lately := s.known.Load(), s.lately.Load()
	before, enough := lately.get(hash)
	if enough = enough && r.Lately; enough {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, latelyWait)
		defer cancel()
	}
	k, err := s.find(ctx, id)
	switch {
	case err != nil && enough:
		return before, nil
	case err != nil:
		return nil, err
	}
	lately.Delete(hash)
	switch {
	case k == nil:
		return nil, refuse(Unknown, nil)
	case subtle.ConstantTimeCompare(k.Hash, hash[:]) != 1:
		return nil, &refusal{reason: Unknown, key: id}
	case k.Revoked:
		return nil, &refusal{reason: Revoked, key: id}
	case k.Left <= 0:
		return nil, &refusal{reason: Expired, key: id}
	}
	if k.UseUnrecorded {
		// A failure to record the use does not change the result.
		_ = s.store.RecordKeyUse(ctx, id)
	}
	p := &proof{until: time.Now().Add(k.Left), Caller: task.Caller{
		Tenant: k.Owner.Tenant, Subject: k.Owner.Subject, Scopes: k.Scopes, Credential: s.name + "/" + id,
	}}
	known.put(hash, p, min(k.Left, keyFor))
	lately.put(hash, p, min(k.Left, latelyFor))
	return p, nil
}

func (s *APIKeys) find(ctx context.Context, id string) (*task.Key, error) {
	select {
	case s.lookups <- struct{}{}:
		defer func() { <-s.lookups }()
	case <-ctx.Done():
		return nil, unavailable("the API key look-up timed out", context.Cause(ctx))
	}
	k, err := s.store.FindAPIKey(ctx, id)
	if err != nil {
		err = errors.Join(unavailable("the API key look-up failed", err), err)
	}
	return k, err
}

// Forget makes the next use of each key query the database. It is called when a key was revoked.
func (s *APIKeys) Forget() {
	s.known.Store(newCache[*proof](keysKept))
	s.lately.Store(newCache[*proof](keysKept))
}

func (s *APIKeys) challenge(refused bool) string {
	if s.bearer() || s.either {
		return bearerChallenge(refused)
	}
	return `ApiKey ` + realm + `, header="` + s.spelt + `"`
}
