package auth

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// keySource is our copy of an issuer's keys. Only the goroutine of Run fetches them: at an interval, and when a request
// shows a key that is not in the copy. While the issuer is down, the last copy is used.
type keySource struct {
	opt     JWTOptions
	pace    pace
	current atomic.Pointer[keySet]

	mu    sync.Mutex
	busy  bool          // a fetch is under way, or the first one is still to come
	tried time.Time     // when the last fetch ended
	well  bool          // it has fetched keys
	round chan struct{} // closed when the next fetch ends
	kick  chan struct{}
}

// pace says when the keys are fetched.
type pace struct {
	every  time.Duration // interval without requests for a new key
	retry  time.Duration // first pause after a failure
	apart  time.Duration // least time between two fetches that requests cause
	within time.Duration // timeout of a fetch
	keep   time.Duration // how long the last copy is used during an outage
}

var usualPace = pace{every: 5 * time.Minute, retry: time.Second, apart: 10 * time.Second, within: 5 * time.Second, keep: 24 * time.Hour}

// maxKeySet bounds the issuer's answer, in bytes.
const maxKeySet = 512 << 10

func newKeySource(o JWTOptions) *keySource {
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	client := *o.Client
	// Only the issuer's own host answers for the issuer. A redirect target does not.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &client
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	pace := usualPace
	if o.Refresh > 0 {
		// An operator who sets an interval below that pause wants more frequent fetches.
		pace.every, pace.apart = o.Refresh, min(pace.apart, o.Refresh)
	}
	return &keySource{opt: o, pace: pace, busy: true, round: make(chan struct{}), kick: make(chan struct{}, 1)}
}

// keySet is a fetched set of keys, and the tokens that they verified.
type keySet struct {
	keys    []jose.JSONWebKey
	raw     string
	fetched time.Time
	keep    time.Duration
	good    *cache[*proof]
}

// find returns the keys that may have signed: those with the id, or all if the token names none. A key fits only its
// own algorithm.
func (s *keySet) find(kid, algorithm string) []any {
	if s == nil {
		return nil
	}
	var out []any
	for _, k := range s.keys {
		if (kid == "" || k.KeyID == kid) && (k.Algorithm == "" || k.Algorithm == algorithm) && fits(k.Key, algorithm) {
			out = append(out, k.Key)
		}
	}
	if len(out) > maxCandidates {
		out = out[:maxCandidates]
	}
	return out
}

// maxCandidates bounds how many keys are tried for a token without a key id.
const maxCandidates = 8

func (s *keySet) gone(now time.Time) bool { return s == nil || now.Sub(s.fetched) > s.keep }

// fits reports whether a key has the type that an algorithm needs.
func fits(key any, algorithm string) bool {
	switch key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return strings.HasPrefix(algorithm, "ES")
	case ed25519.PublicKey:
		return algorithm == string(jose.EdDSA)
	}
	return false
}

// Run fetches the keys until ctx ends.
func (s *keySource) Run(ctx context.Context) error {
	pause := s.pace.retry
	for ctx.Err() == nil {
		err := s.try(ctx)
		if s.opt.Fetched != nil && ctx.Err() == nil {
			s.opt.Fetched(s.opt.Name, err)
		}
		wait := s.pace.every
		if err != nil {
			if ctx.Err() == nil {
				s.opt.Log.Warn("issuer keys not fetched", "scheme", s.opt.Name, "keys_loaded", s.current.Load() != nil, "error", err)
			}
			wait, pause = pause, min(2*pause, s.pace.every)
		} else {
			pause = s.pace.retry
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.kick:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// try fetches the keys, and wakes the requests that wait for them.
func (s *keySource) try(ctx context.Context) error {
	s.mu.Lock()
	s.busy = true
	s.mu.Unlock()
	err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.tried, s.well = false, time.Now(), err == nil
	close(s.round)
	s.round = make(chan struct{})
	return err
}

// renew triggers a fetch and waits for it, unless one has just ended. It reports whether the copy is the issuer's
// current answer.
func (s *keySource) renew(ctx context.Context) bool {
	s.mu.Lock()
	recent := !s.busy && time.Since(s.tried) < s.pace.apart
	busy, round, well := s.busy, s.round, s.well
	s.mu.Unlock()
	if recent {
		return well
	}
	if !busy { // else the fetch under way counts
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
	// If Run has ended, no fetch comes.
	timer := time.NewTimer(s.pace.within + time.Second)
	defer timer.Stop()
	select {
	case <-round:
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.well
}

func (s *keySource) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.pace.within)
	defer cancel()
	from := s.opt.KeySetURL
	if from == "" {
		var err error
		if from, err = s.discover(ctx); err != nil {
			return fmt.Errorf("issuer metadata: %w", err)
		}
	}
	raw, err := s.get(ctx, from)
	if err != nil {
		return fmt.Errorf("issuer keys: %w", err)
	}
	keys, err := parseKeySet(raw)
	if err != nil {
		return fmt.Errorf("issuer keys: %w", err)
	}
	set := &keySet{keys: keys, raw: string(raw), fetched: time.Now(), keep: s.pace.keep}
	if old := s.current.Load(); old != nil && old.raw == set.raw {
		set.good = old.good
	} else {
		// Tokens of withdrawn keys must not stay remembered as good.
		set.good = newCache[*proof](10_000)
	}
	s.current.Store(set)
	return nil
}

// discover returns the address of the keys from the issuer's metadata.
func (s *keySource) discover(ctx context.Context) (string, error) {
	raw, err := s.metadata(ctx)
	if err != nil {
		return "", err
	}
	var metadata struct {
		Issuer    string `json:"issuer"`
		KeySetURL string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(raw, &metadata); err != nil {
		return "", err
	}
	if metadata.Issuer != s.opt.Issuer {
		return "", fmt.Errorf("they name the issuer %.200q, not %.200q", metadata.Issuer, s.opt.Issuer)
	}
	u, err := url.Parse(metadata.KeySetURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && !strings.HasPrefix(s.opt.Issuer, "http://") {
		return "", fmt.Errorf("jwks_uri %.200q is not an https URL", metadata.KeySetURL)
	}
	return metadata.KeySetURL, nil
}

// metadata reads the issuer's metadata, at the address of OpenID Connect or of RFC 8414.
func (s *keySource) metadata(ctx context.Context) ([]byte, error) {
	raw, err := s.get(ctx, strings.TrimSuffix(s.opt.Issuer, "/")+"/.well-known/openid-configuration")
	if errors.Is(err, errAbsent) {
		u, parseErr := url.Parse(s.opt.Issuer)
		if parseErr != nil {
			return nil, parseErr
		}
		u.Path = "/.well-known/oauth-authorization-server" + strings.TrimSuffix(u.Path, "/")
		raw, err = s.get(ctx, u.String())
	}
	return raw, err
}

var errAbsent = errors.New("not found")

func (s *keySource) get(ctx context.Context, from string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	answer, err := s.opt.Client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", from, errAbsent)
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s", from, answer.Status)
	}
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxKeySet+1))
	if err == nil && len(b) > maxKeySet {
		err = fmt.Errorf("%s sent more than %d bytes", from, maxKeySet)
	}
	return b, err
}

// minRSA is the shortest accepted RSA key, in bits.
const minRSA = 2048

// parseKeySet returns the public keys for signatures, and skips all others. An empty set is valid: the issuer withdrew
// all keys.
func parseKeySet(raw []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, err
	}
	if set.Keys == nil {
		return nil, errors.New("the key set has no member \"keys\"")
	}
	var out []jose.JSONWebKey
	for _, one := range *set.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(one, &k) != nil || !k.IsPublic() || cmp.Or(k.Use, "sig") != "sig" {
			continue
		}
		if r, ok := k.Key.(*rsa.PublicKey); ok && r.N.BitLen() < minRSA {
			continue
		}
		out = append(out, k)
	}
	return out, nil
}
