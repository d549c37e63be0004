// Package auth finds out who calls: a request shows a credential of one of the server's
// schemes, and that makes a principal, or a reason why not.
//
// A request shows one credential. Two of them, or one header twice, are refused and not
// ranked: whoever is in front of this server might rank them in another way. What is
// wrong with a credential is for the log and the metrics; the caller hears that it was
// not accepted.
package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Request is what a caller shows.
type Request struct {
	// Header gives the values of a header, or of gRPC metadata, by its canonical name.
	Header func(name string) []string
	// Chain is the client's end of the connection: its certificate, and those that lead to an
	// authority. Empty when it has shown none.
	Chain []*x509.Certificate
	// Address is where the connection came from.
	Address string

	// before says that the same credential was good before.
	before bool
}

// Reason says what is wrong with a credential. It is a label in metrics.
type Reason string

// The reasons.
const (
	Missing     Reason = "missing"     // none was shown
	Several     Reason = "several"     // more than one was
	Malformed   Reason = "malformed"   // it does not have the form of its scheme
	Unknown     Reason = "unknown"     // no such key, user or issuer, or a wrong secret
	Revoked     Reason = "revoked"     //
	Expired     Reason = "expired"     //
	Early       Reason = "early"       // it is not valid yet
	Algorithm   Reason = "algorithm"   // not one that the scheme allows
	Signature   Reason = "signature"   // by no key of the issuer
	Issuer      Reason = "issuer"      //
	Audience    Reason = "audience"    // it is meant for somebody else
	Claims      Reason = "claims"      // one that is needed is missing or of no use
	Certificate Reason = "certificate" // not by one of our authorities, or without an identity
	Elsewhere   Reason = "elsewhere"   // the agent does not take this scheme
)

// refusal is an error that is the credential's fault.
type refusal struct {
	reason Reason
	cause  error
}

func (r *refusal) Error() string {
	if r.cause == nil {
		return string(r.reason)
	}
	return string(r.reason) + ": " + r.cause.Error()
}

func (r *refusal) Unwrap() error { return r.cause }

func refuse(reason Reason, cause error) error { return &refusal{reason, cause} }

// Scheme is one way to show who one is.
type Scheme interface {
	// Name is what configuration, cards and logs call it.
	Name() string
	kind() string
	// shown finds its credentials in a request.
	shown(r *Request, authorization *authorization) []string
	// remembered is what a credential has shown not long ago, or nil.
	remembered(credential string, r *Request) *proof
	// verify finds out whose a credential is. An error that is no refusal is nobody's fault,
	// and may be gone with the next request.
	verify(ctx context.Context, credential string, r *Request) (*proof, error)
	// challenge is how 401 asks for it. Refused: such a credential was shown.
	challenge(refused bool) string
}

// proof is what a credential shows.
type proof struct {
	engine.Principal
	until time.Time // when it ends; zero: when somebody says so
}

// Observer counts what came of requests: with "ok" or a Reason, by the name of the scheme ("" for none).
type Observer func(scheme, outcome string)

// Options configures an Authenticator.
type Options struct {
	Schemes []Scheme
	Observe Observer
	// Failures bounds how often credentials that might be guessed may be refused from one address. Nil: any number.
	Failures *limit.Callers
	Log      *slog.Logger
}

// Authenticator is the schemes of a server. Its methods may be called from many goroutines.
type Authenticator struct {
	opt    Options
	byName map[string]Scheme
	// issuer is the one scheme that takes tokens. Nil: none does, or several do.
	issuer *JWT
	// good has the credentials that were good once.
	good *cache[struct{}]
	// key is that of their digests, which are of passwords, too.
	key [32]byte
	// troubles are, by scheme, of what could not be checked.
	troubles map[string]*trouble
	*watch
}

// New makes an authenticator.
func New(o Options) *Authenticator {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authenticator{opt: o, byName: map[string]Scheme{}, good: newCache[struct{}](goodKept), troubles: map[string]*trouble{}, watch: newWatch()}
	_, _ = rand.Read(a.key[:])
	var issuers []*JWT
	for _, s := range o.Schemes {
		a.byName[s.Name()] = s
		a.troubles[s.Name()] = &trouble{}
		if j, ok := s.(*JWT); ok {
			issuers = append(issuers, j)
		}
	}
	if len(issuers) == 1 {
		a.issuer = issuers[0]
	}
	return a
}

// Identity is what a request has shown.
type Identity struct {
	proof
	scheme string // "" when none was found out
	err    error  // nil when principal is who calls
	// What was shown, to look at it again.
	credential string
	chain      []*x509.Certificate
	told       uint64 // of watch, before it was looked at
}

// errMissing is of most requests without an identity, and always the same.
var errMissing = refuse(Missing, nil)

// Authenticate finds out who calls, for one of the gates; without gates, for any. It never fails: what is wrong shows when
// the identity is to be used. What none of the gates takes is not looked at.
func (a *Authenticator) Authenticate(ctx context.Context, r *Request, gates ...*Gate) *Identity {
	if len(gates) > 0 && !slices.ContainsFunc(gates, func(g *Gate) bool { return !g.Open() }) {
		return &Identity{err: errMissing}
	}
	told := a.told.Load()
	id := a.find(ctx, r, gates)
	id.told = told
	scheme, err := id.scheme, id.err
	outcome := "ok"
	switch {
	case err == nil:
		id.Method = a.byName[scheme].kind()
	case task.KindOf(err) == task.RateLimited:
		outcome = "limited"
	default:
		outcome = "error"
		var bad *refusal
		if errors.As(err, &bad) {
			outcome = string(bad.reason)
		}
	}
	if a.opt.Observe != nil {
		a.opt.Observe(scheme, outcome)
	}
	switch {
	case outcome == "ok", outcome == string(Missing):
	case outcome == "error" && !errors.Is(ctx.Err(), context.Canceled): // which is that the client has left
		// During an outage that is so with every request.
		if count := a.troubles[scheme].tell(); count > 0 {
			a.opt.Log.Warn("credentials could not be checked", "scheme", scheme, "requests", count, "error", err)
		}
	default:
		// Anybody can cause these, in any number.
		a.opt.Log.Debug("a credential was refused", "scheme", scheme, "reason", err)
	}
	return id
}

// trouble is told of once in a while.
type trouble struct {
	mu    sync.Mutex
	count int // of what is not told yet
	told  time.Time
}

// troubleEvery is how often it is told.
const troubleEvery = 10 * time.Second

// tell counts one more, and returns how many there were if it is time to say so.
func (t *trouble) tell() (count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	if now := time.Now(); now.Sub(t.told) >= troubleEvery {
		count, t.count, t.told = t.count, 0, now
	}
	return count
}

// maxCredential bounds a credential, in bytes.
const maxCredential = 16 << 10

func (a *Authenticator) find(ctx context.Context, r *Request, gates []*Gate) *Identity {
	header := readAuthorization(r)
	header.issuer = a.issuer
	var (
		scheme     Scheme
		credential string
		count      int
	)
	for _, s := range a.opt.Schemes {
		for _, c := range s.shown(r, header) {
			scheme, credential = s, c
			count++
		}
	}
	switch {
	case header.read && header.count > 1:
		return &Identity{err: refuse(Several, nil)}
	case header.read && header.count == 1 && !header.taken:
		return &Identity{err: refuse(Malformed, errors.New("it is of no scheme that is served"))}
	case count == 0:
		return &Identity{err: errMissing}
	case count > 1:
		return &Identity{err: refuse(Several, nil)}
	}
	id := &Identity{scheme: scheme.Name(), credential: credential, chain: r.Chain}
	switch {
	case len(gates) > 0 && !slices.ContainsFunc(gates, func(g *Gate) bool { return slices.Contains(g.Schemes, id.scheme) }):
		id.err = refuse(Elsewhere, nil)
	case len(credential) > maxCredential:
		id.err = refuse(Malformed, errors.New("it is too long"))
	default:
		a.check(ctx, id, r)
	}
	return id
}

// check finds out whose the credential is. What is remembered to be good is so for whoever shows it; of what is not, and
// might be guessed, an address may have a certain number refused. Who stands behind the same address with something that
// was good once is not kept from having it checked.
func (a *Authenticator) check(ctx context.Context, id *Identity, r *Request) {
	scheme := a.byName[id.scheme]
	if p := scheme.remembered(id.credential, r); p != nil {
		id.proof = *p
		if scheme.kind() == KindBasic {
			// A password is remembered for as long as it is shown. A key is looked up anew every few seconds.
			a.good.put(a.digest(id), struct{}{}, goodFor, 0)
		}
		return
	}
	if !guessable(scheme) {
		id.verify(ctx, scheme, r)
		return
	}
	from := limit.Caller{Subject: limit.Sender(r.Address)}
	shown := a.digest(id)
	asked := *r
	_, asked.before = a.good.get(shown)
	if wait, ok := a.opt.Failures.Ready(from); !ok && !asked.before {
		id.err = &task.Error{Kind: task.RateLimited, Msg: "too many credentials from your address were not accepted", RetryAfter: wait}
		return
	}
	id.verify(ctx, scheme, &asked)
	switch {
	case id.err == nil:
		a.good.put(shown, struct{}{}, goodFor, 0)
	case asked.before: // by which nobody guesses; it was looked at whatever others did, and takes nothing from them
	case errors.As(id.err, new(*refusal)):
		a.opt.Failures.Allow(from)
	}
}

// guessable reports whether credentials of a scheme may be tried one after the other, or cost more than they cost who
// shows them. Nobody guesses a signature, and what is signed is new every hour: it cannot have been good before.
func guessable(s Scheme) bool { return s.kind() == KindAPIKey || s.kind() == KindBasic }

// digest names what was shown in memory, without being a password that could be tried elsewhere.
func (a *Authenticator) digest(id *Identity) (d [sha256.Size]byte) {
	mac := hmac.New(sha256.New, a.key[:])
	_, _ = mac.Write([]byte(id.scheme + "\x00" + id.credential))
	mac.Sum(d[:0])
	return d
}

// goodFor is how long a credential is known to have been good, goodKept how many are.
const (
	goodFor  = 24 * time.Hour
	goodKept = 50_000
)

// verify fills in whose the credential is, or what is wrong with it.
func (id *Identity) verify(ctx context.Context, scheme Scheme, r *Request) {
	p, err := scheme.verify(ctx, id.credential, r)
	if err == nil {
		err = check(&p.Principal)
	}
	if id.err = err; err == nil {
		id.proof = *p
	}
}

// authorization is the header of this name.
type authorization struct {
	scheme     string // in lower case
	credential string
	count      int
	read       bool // a scheme looks at this header
	taken      bool // and has found its own
	issuer     *JWT // that takes every token, for there is no other
}

func readAuthorization(r *Request) *authorization {
	values := r.Header("Authorization")
	a := &authorization{count: len(values)}
	if len(values) != 1 {
		return a
	}
	scheme, credential, found := strings.Cut(values[0], " ")
	credential = strings.Trim(credential, " ")
	if !found || credential == "" || strings.ContainsFunc(credential, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return a
	}
	a.scheme, a.credential = strings.ToLower(scheme), credential
	return a
}

// take is the credential of a scheme, for the Scheme that says it is its own.
func (a *authorization) take(scheme string, own func(credential string) bool) []string {
	a.read = true
	if a.scheme != scheme || a.taken || !own(a.credential) {
		return nil
	}
	a.taken = true
	return []string{a.credential}
}

// maxName bounds tenants and subjects, in bytes: they are in keys of indexes.
const maxName = 255

func check(p *engine.Principal) error {
	if err := CheckSubject(p.Tenant, p.Subject); err != nil {
		return refuse(Claims, err)
	}
	return nil
}

// CheckSubject refuses what the database could not hold, or logs would not show as it is.
func CheckSubject(tenant, subject string) error {
	if subject == "" || !plain(subject) || !plain(tenant) {
		return errors.New("tenant and subject must be UTF-8 without control characters, not longer than 255 bytes, and the subject not empty")
	}
	return nil
}

func plain(s string) bool {
	return len(s) <= maxName && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// unavailable is the error of a credential that cannot be checked at the moment.
func unavailable(msg string, cause error) error {
	return &task.Error{Kind: task.Unavailable, Msg: msg, RetryAfter: 2 * time.Second, Cause: cause}
}
