// Package auth finds out who calls. A request shows a credential of one of the server's schemes. The result is an
// task.Caller, or the reason for a refusal.
//
// A request shows one credential. Two credentials, or one header twice, are refused and not ranked: a proxy in front of
// this server might rank them in another way. The log and the metrics say what is wrong with a credential; the caller
// only hears that it was not accepted.
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

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Request is the part of a request that can identify its caller.
type Request struct {
	// Header gives the values of a header, or of gRPC metadata, by its canonical name.
	Header func(name string) []string
	// Chain is the client certificate of the connection, and the certificates that lead to an authority. It is empty
	// when the client shows no certificate.
	Chain []*x509.Certificate
	// Address is where the connection came from.
	Address string

	// Lately accepts an API key that was good within the last hour if the database does not answer.
	Lately bool

	// before says that the same credential was good before. Basic then skips the bounds of its queue.
	before bool
}

// Reason says what is wrong with a credential. It is a label in metrics.
type Reason string

// The reasons.
const (
	Missing     Reason = "missing"     // no credential
	Several     Reason = "several"     // more than one credential
	Malformed   Reason = "malformed"   // not in the form of its scheme
	Unknown     Reason = "unknown"     // no such key, user or issuer, or a wrong secret
	Revoked     Reason = "revoked"     //
	Expired     Reason = "expired"     //
	Early       Reason = "early"       // not valid yet
	Algorithm   Reason = "algorithm"   // not one that the scheme allows
	Signature   Reason = "signature"   // not made by a key of the issuer
	Issuer      Reason = "issuer"      //
	Audience    Reason = "audience"    // meant for another server
	Claims      Reason = "claims"      // a required claim is missing or unusable
	Certificate Reason = "certificate" // not from one of our authorities, or without an identity
	Elsewhere   Reason = "elsewhere"   // the agent does not accept this scheme
)

// refusal is an error that the credential causes, not the server.
type refusal struct {
	reason Reason
	cause  error
	key    string // id of the API key that exists, but was refused; "" for other credentials
}

func (r *refusal) Error() string {
	if r.cause == nil {
		return string(r.reason)
	}
	return string(r.reason) + ": " + r.cause.Error()
}

func (r *refusal) Unwrap() error { return r.cause }

func refuse(reason Reason, cause error) error { return &refusal{reason: reason, cause: cause} }

// Scheme is one way to authenticate.
type Scheme interface {
	// Name is the name of the scheme in configuration, cards and logs.
	Name() string
	kind() string
	// shown returns the credentials of this scheme in a request.
	shown(r *Request, authorization *authorization) []string
	// remembered returns the recent result for a credential, or nil.
	remembered(credential string, r *Request) *proof
	// verify finds the caller of a credential. An error that is not a refusal means that the check failed; a retry may
	// succeed.
	verify(ctx context.Context, credential string, r *Request) (*proof, error)
	// challenge is the WWW-Authenticate value of a 401. refused says that the request showed a credential of this
	// scheme.
	challenge(refused bool) string
}

// named has the name and the kind of a scheme.
type named struct{ name, method string }

// Name implements Scheme.
func (n named) Name() string { return n.name }

func (n named) kind() string { return n.method }

// proof is the result of a good credential.
type proof struct {
	task.Caller
	until time.Time // expiry; zero: none, until a revocation
}

// Observer counts the outcomes of requests: "ok", "limited", "error" or a Reason. scheme is "" when none was found.
type Observer func(scheme, outcome string)

// Options configures an Authenticator.
type Options struct {
	Schemes []Scheme
	Observe Observer
	// Failures bounds the refused guessable credentials of one address. Nil: no bound.
	Failures *limit.Rates[Guesser]
	Log      *slog.Logger
}

// Authenticator has the schemes of a server. Its methods may be called from many goroutines.
type Authenticator struct {
	opt    Options
	byName map[string]Scheme
	// issuer is the only scheme that takes tokens. It is nil if there is no such scheme, or more than one.
	issuer *JWT
	// good has the digests of credentials that were good before.
	good *cache[struct{}]
	// key is the key of these digests. It is random because some digests are of passwords.
	key [32]byte
	// checks are the running checks of credentials that were not good before, by address.
	checks *limit.Places[string]
	// troubles has, for each scheme, the failed checks that are not logged yet.
	troubles map[string]*trouble
	*watch
}

// New makes an authenticator.
func New(o Options) *Authenticator {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authenticator{opt: o, byName: map[string]Scheme{}, good: newCache[struct{}](goodKept), checks: limit.NewPlaces[string](maxChecks, maxChecksOfAddress), troubles: map[string]*trouble{}, watch: newWatch()}
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

// Authentication is the result of authenticating a request.
type Authentication struct {
	proof
	scheme string // "" when no scheme was found
	err    error  // nil when the caller is known
	// credential and chain are kept for later rechecks.
	credential string
	chain      []*x509.Certificate
	told       uint64 // watch.told before the check
}

// errMissing is shared: most requests without an identity get it.
var errMissing = refuse(Missing, nil)

// Authenticate finds the caller for one of the gates; without gates, for any. It returns no error: Admit returns the
// error when the identity is used. It does not check a credential that no gate accepts.
func (a *Authenticator) Authenticate(ctx context.Context, r *Request, gates ...*Gate) *Authentication {
	if len(gates) > 0 && !slices.ContainsFunc(gates, func(g *Gate) bool { return !g.Open() }) {
		return &Authentication{err: errMissing, proof: proof{Caller: task.Caller{Address: r.Address}}}
	}
	told := a.told.Load()
	id := a.find(ctx, r, gates)
	id.told, id.Address = told, r.Address
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
	case outcome == "error" && !errors.Is(ctx.Err(), context.Canceled): // canceled: the client has left
		// During an outage every request fails, so these lines are limited.
		if count := a.troubles[scheme].tell(); count > 0 {
			a.opt.Log.Warn("credential check failed", "scheme", scheme, "requests", count, "error", err)
		}
	default:
		// Anybody can cause these, in any number.
		a.opt.Log.Debug("credential refused", "scheme", scheme, "reason", err)
	}
	return id
}

// trouble counts failed checks and limits how often they are logged.
type trouble struct {
	mu    sync.Mutex
	count int // not logged yet
	told  time.Time
}

// troubleEvery is the least time between two log lines.
const troubleEvery = 10 * time.Second

// tell counts a failure. It returns the number of failures to log, or 0 if no line is due.
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

func (a *Authenticator) find(ctx context.Context, r *Request, gates []*Gate) *Authentication {
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
		return &Authentication{err: refuse(Several, nil)}
	case header.read && header.count == 1 && !header.taken:
		return &Authentication{err: refuse(Malformed, errors.New("no configured scheme accepts this Authorization header"))}
	case count == 0:
		return &Authentication{err: errMissing}
	case count > 1:
		return &Authentication{err: refuse(Several, nil)}
	}
	id := &Authentication{scheme: scheme.Name(), credential: credential, chain: r.Chain}
	switch {
	case len(gates) > 0 && !slices.ContainsFunc(gates, func(g *Gate) bool { return slices.Contains(g.Schemes, id.scheme) }):
		id.err = refuse(Elsewhere, nil)
	case len(credential) > maxCredential:
		id.err = refuse(Malformed, errors.New("the credential is longer than 16 KiB"))
	default:
		a.check(ctx, id, r)
	}
	return id
}

// maxChecks bounds the running checks of credentials that were not good before, in total and from one address. A check
// may wait for the database, an issuer or a processor.
const (
	maxChecks          = 4000
	maxChecksOfAddress = 1000
)

// check finds the caller of a credential. A remembered credential is accepted from any address. Other guessable
// credentials use the failure budget of their address when they are refused. A credential that was good before is
// checked even when that budget is empty.
func (a *Authenticator) check(ctx context.Context, id *Authentication, r *Request) {
	scheme := a.byName[id.scheme]
	if p := scheme.remembered(id.credential, r); p != nil {
		id.proof = *p
		if scheme.kind() == KindBasic {
			// A password is remembered while clients keep showing it. A key is looked up again every few seconds.
			a.good.put(a.digest(id), struct{}{}, goodFor)
		}
		return
	}
	from := limit.Sender(r.Address)
	shown := a.digest(id)
	asked := *r
	_, asked.before = a.good.get(shown)
	if !asked.before {
		leave, ok := a.checks.Take(from)
		if !ok {
			id.err = &task.Error{Kind: task.RateLimited, Msg: "too many credentials from your address are being checked", RetryAfter: time.Second}
			return
		}
		defer leave()
	}
	if !guessable(scheme) {
		id.verify(ctx, scheme, r)
		return
	}
	budgets := []Guesser{{Address: from}}
	if key, ok := keyID(id.credential); ok && scheme.kind() == KindAPIKey {
		budgets = append(budgets, Guesser{from, key})
	}
	for _, budget := range budgets {
		if wait, ok := a.opt.Failures.Ready(budget); !ok && !asked.before {
			id.err = &task.Error{Kind: task.RateLimited, Msg: "too many refused credentials from your address", RetryAfter: wait}
			return
		}
	}
	id.verify(ctx, scheme, &asked)
	var bad *refusal
	switch {
	case id.err == nil:
		a.good.put(shown, struct{}{}, goodFor)
	case asked.before: // not a guess: it was checked without the failure budget, and does not use it
	case !errors.As(id.err, &bad), bad.reason == Malformed: // a malformed credential is no guess, and was cheap to check
	case bad.key != "":
		a.opt.Failures.Allow(Guesser{from, bad.key})
	default:
		a.opt.Failures.Allow(Guesser{Address: from})
	}
}

// Guesser is who has a failure budget: an address, and one API key at it. Refusals of a key that exists do not use the budget
// that all clients behind a proxy share.
type Guesser struct{ Address, Key string }

// guessable reports whether an attacker could guess credentials of a scheme, or make the server pay more for a check
// than the client does. Signatures cannot be guessed. Signed tokens change every hour, so an earlier good one would not
// be known.
func guessable(s Scheme) bool { return s.kind() == KindAPIKey || s.kind() == KindBasic }

// digest identifies a credential in memory. It does not reveal a password that could be tried elsewhere.
func (a *Authenticator) digest(id *Authentication) (d [sha256.Size]byte) {
	mac := hmac.New(sha256.New, a.key[:])
	_, _ = mac.Write([]byte(id.scheme + "\x00" + id.credential))
	mac.Sum(d[:0])
	return d
}

// goodFor is how long a credential is remembered as good before, goodKept how many are remembered.
const (
	goodFor  = 24 * time.Hour
	goodKept = 50_000
)

// verify sets the caller of the credential, or the error.
func (id *Authentication) verify(ctx context.Context, scheme Scheme, r *Request) {
	p, err := scheme.verify(ctx, id.credential, r)
	if err == nil {
		err = check(&p.Caller)
	}
	if id.err = err; err == nil {
		id.proof = *p
	}
}

// authorization is the header Authorization.
type authorization struct {
	scheme     string // in lower case
	credential string
	count      int
	read       bool // a scheme reads this header
	taken      bool // and has found its own credential in it
	issuer     *JWT // the only issuer, which takes every token
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

// take returns the credential if it is of the given scheme and own accepts it.
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

func check(p *task.Caller) error {
	if err := CheckSubject(p.Tenant, p.Subject); err != nil {
		return refuse(Claims, err)
	}
	return nil
}

// CheckSubject refuses names that the database cannot store, or that logs would not show as they are.
func CheckSubject(tenant, subject string) error {
	if subject == "" || !plain(subject) || !plain(tenant) {
		return errors.New("tenant and subject must be UTF-8 without control characters and at most 255 bytes; the subject must not be empty")
	}
	return nil
}

func plain(s string) bool {
	return len(s) <= maxName && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// unavailable returns the error of a credential that cannot be checked at the moment.
func unavailable(msg string, cause error) error {
	return &task.Error{Kind: task.Unavailable, Msg: msg, RetryAfter: 2 * time.Second, Cause: cause}
}
