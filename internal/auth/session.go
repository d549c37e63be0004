package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// KindSession is the kind and the name of the scheme that NewSessions makes. No configured scheme has this name.
const KindSession = "session"

// A session's cookie is its id, which is public, and a random secret, in base64.
const (
	sessionIDSize = 16
	sessionSize   = sessionIDSize + 32
)

// NewSession makes a session. It returns the value of the cookie, the id, and the hash that the database stores.
func NewSession() (cookie string, id [sessionIDSize]byte, hash []byte) {
	var raw [sessionSize]byte
	id = uuid.Must(uuid.NewV7())
	copy(raw[:], id[:])
	_, _ = rand.Read(raw[sessionIDSize:]) // it cannot fail
	sum := sha256.Sum256(raw[sessionIDSize:])
	return base64.RawURLEncoding.EncodeToString(raw[:]), id, sum[:]
}

// SessionID returns the id in the value of a session's cookie. It does not check the secret.
func SessionID(cookie string) (id [sessionIDSize]byte, ok bool) {
	raw, ok := readSession(cookie)
	copy(id[:], raw)
	return id, ok
}

func readSession(cookie string) (raw []byte, ok bool) {
	if len(cookie) != base64.RawURLEncoding.EncodedLen(sessionSize) {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(cookie)
	return raw, err == nil && len(raw) == sessionSize // the decoder skips line breaks
}

// SessionStore stores the sessions of operators' browsers.
type SessionStore interface {
	FindSession(ctx context.Context, id [sessionIDSize]byte) (*task.Session, error)
}

// Sessions is a scheme: the cookie of a browser in which an operator has logged in.
type Sessions struct {
	named
	cookie  string
	schemes []string // whose operators are still admitted
	store   SessionStore
	known   *atomic.Pointer[cache[*proof]] // as for API keys
	lookups chan struct{}
}

// NewSessions makes the scheme. schemes are those that operators may use: when one is removed, its sessions end.
func NewSessions(cookie string, schemes []string, s SessionStore) *Sessions {
	out := &Sessions{named: named{KindSession, KindSession}, cookie: cookie, schemes: schemes, store: s, known: &atomic.Pointer[cache[*proof]]{}, lookups: make(chan struct{}, keyLookups)}
	out.Forget()
	return out
}

func (s *Sessions) shown(r *Request, _ *authorization) (out []string) {
	for _, line := range r.Header("Cookie") {
		cookies, err := http.ParseCookie(line)
		if err != nil {
			continue // a cookie of another application on this host, or nothing
		}
		for _, c := range cookies {
			if c.Name == s.cookie {
				out = append(out, c.Value)
			}
		}
	}
	return out
}

func (s *Sessions) remembered(cookie string, _ *Request) *proof {
	p, _ := s.known.Load().get(sha256.Sum256([]byte(cookie)))
	return p
}

func (s *Sessions) verify(ctx context.Context, cookie string, _ *Request) (*proof, error) {
	raw, ok := readSession(cookie)
	if !ok {
		return nil, refuse(Malformed, nil)
	}
	known, id := s.known.Load(), uuid.UUID(raw[:sessionIDSize])
	select {
	case s.lookups <- struct{}{}:
		defer func() { <-s.lookups }()
	case <-ctx.Done():
		return nil, unavailable("the session look-up timed out", context.Cause(ctx))
	}
	found, err := s.store.FindSession(ctx, id)
	if err != nil {
		return nil, errors.Join(unavailable("the session look-up failed", err), err)
	}
	hash := sha256.Sum256(raw[sessionIDSize:])
	switch {
	case found == nil, subtle.ConstantTimeCompare(found.Hash, hash[:]) != 1:
		return nil, refuse(Unknown, nil)
	case !slices.Contains(s.schemes, found.Scheme):
		return nil, refuse(Elsewhere, nil)
	case found.Revoked:
		return nil, refuse(Revoked, nil)
	case found.Left <= 0:
		return nil, refuse(Expired, nil)
	}
	credential := found.Scheme
	if found.KeyID != "" {
		credential += "/" + found.KeyID
	}
	p := &proof{until: time.Now().Add(found.Left), Caller: task.Caller{
		Tenant: found.Owner.Tenant, Subject: found.Owner.Subject, Scopes: found.Scopes, Credential: credential + "/" + id.String(),
	}}
	known.put(sha256.Sum256([]byte(cookie)), p, min(found.Left, keyFor))
	return p, nil
}

// Forget makes the next use of each session query the database. It is called when a session was ended, or a key revoked.
func (s *Sessions) Forget() { s.known.Store(newCache[*proof](keysKept)) }

// challenge returns "": HTTP has no challenge for cookies.
func (s *Sessions) challenge(bool) string { return "" }

// Scheme returns the name of the scheme that found the caller; "": none did.
func (id *Authentication) Scheme() string { return id.scheme }

// Until returns when the credential expires; zero: it does not.
func (id *Authentication) Until() time.Time { return id.until }
