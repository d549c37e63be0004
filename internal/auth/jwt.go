package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// KindJWT is the kind of the scheme that NewJWT makes.
const KindJWT = "jwt"

// JWTOptions configures the scheme of one issuer.
type JWTOptions struct {
	Name string
	// Issuer is the iss of the tokens. Without KeySetURL the issuer's metadata give the address of the keys.
	Issuer    string
	KeySetURL string
	Audiences []string // aud must have one of them
	// Tenant is the tenant of all callers, unless TenantClaim names the claim that has it.
	Tenant        string
	TenantClaim   string
	SubjectClaim  string
	SubjectPrefix string
	ScopesClaim   string // "" for scope or scp
	// Refresh is the interval between fetches of the keys; 0 for five minutes.
	Refresh time.Duration
	Client  *http.Client
	// Fetched counts the attempts to fetch the keys.
	Fetched func(scheme string, err error)
	Log     *slog.Logger
}

// algorithms are the asymmetric signature algorithms. With a symmetric one, anybody who reads the issuer's published
// key could sign. Which of them fits a token, its key says.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// JWT is a scheme: a token that an issuer has signed. The caller must call Run.
type JWT struct {
	named
	opt JWTOptions
	*keySource
}

const (
	// leeway is the accepted difference between the clocks of issuer and server.
	leeway = 30 * time.Second
	// tokenFor is how long a token is remembered as good.
	tokenFor = time.Minute
)

// NewJWT makes the scheme.
func NewJWT(o JWTOptions) *JWT {
	return &JWT{named: named{o.Name, KindJWT}, opt: o, keySource: newKeySource(o)}
}

// shown takes a token that names this issuer. If there is no other issuer, it takes every token.
func (s *JWT) shown(_ *Request, a *authorization) []string {
	return a.take("bearer", func(c string) bool {
		return !strings.HasPrefix(c, keyPrefix) && (a.issuer == s || issuerOf(c) == s.opt.Issuer)
	})
}

// issuerOf returns the issuer that a token claims.
func issuerOf(token string) string {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	var claims struct {
		Issuer string `json:"iss"`
	}
	if b, err := base64.RawURLEncoding.DecodeString(payload); err != nil || json.Unmarshal(b, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

func (s *JWT) remembered(token string, _ *Request) *proof {
	set := s.current.Load()
	if set == nil {
		return nil
	}
	p, _ := set.good.get(sha256.Sum256([]byte(token)))
	return p
}

func (s *JWT) verify(ctx context.Context, token string, _ *Request) (*proof, error) {
	digest := sha256.Sum256([]byte(token))
	set, c, err := s.verified(ctx, token)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	caller, expires, err := s.caller(c, s.opt.Audiences, now)
	if err != nil {
		return nil, err
	}
	p := &proof{*caller, expires.Add(leeway)}
	set.good.put(digest, p, min(tokenFor, p.until.Sub(now)))
	return p, nil
}

// parse makes the checks that need no key. Tokens that fail them cannot cause a fetch of keys.
func (s *JWT) parse(token string) (*jwt.JSONWebToken, error) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	var algorithm *jose.ErrUnexpectedSignatureAlgorithm
	switch {
	case errors.As(err, &algorithm):
		return nil, refuse(Algorithm, nil)
	case err != nil:
		return nil, refuse(Malformed, nil)
	}
	// A token for another use, such as a logout token, is not accepted.
	switch typ, _ := parsed.Headers[0].ExtraHeaders[jose.HeaderType].(string); strings.ToLower(typ) {
	case "", "jwt", "at+jwt", "application/at+jwt":
	default:
		return nil, refuse(Malformed, errors.New("typ is not that of an access token"))
	}
	if issuerOf(token) != s.opt.Issuer {
		return nil, refuse(Issuer, nil)
	}
	return parsed, nil
}

// claims is the content of a token.
type claims struct {
	standard jwt.Claims
	all      map[string]any
}

// verified returns the claims of a token that a key of the issuer has signed, and the set with that key.
func (s *JWT) verified(ctx context.Context, token string) (set *keySet, c *claims, err error) {
	parsed, err := s.parse(token)
	if err != nil {
		return nil, nil, err
	}
	kid, algorithm := parsed.Headers[0].KeyID, parsed.Headers[0].Algorithm
	set = s.current.Load()
	found := set.find(kid, algorithm)
	if len(found) == 0 {
		// The issuer may have a newer key than our copy.
		answered := s.renew(ctx)
		set = s.current.Load()
		if found = set.find(kid, algorithm); len(found) == 0 && !answered {
			return nil, nil, unavailable("the issuer's newest keys could not be fetched", nil)
		}
	}
	if set.gone(time.Now()) {
		return nil, nil, unavailable("the issuer's keys are missing or too old", nil)
	}
	for _, key := range found {
		c := &claims{}
		// The library matches names exactly and rejects duplicate names.
		err := parsed.Claims(key, &c.standard, &c.all)
		switch {
		case err == nil:
			return set, c, nil
		case !errors.Is(err, jose.ErrCryptoFailure):
			return nil, nil, refuse(Claims, nil)
		}
	}
	return nil, nil, refuse(Signature, nil)
}

// caller reads the claims of a verified token for one of the audiences.
func (s *JWT) caller(c *claims, audiences []string, now time.Time) (p *task.Caller, expires time.Time, err error) {
	standard, all := &c.standard, c.all
	switch err := standard.ValidateWithLeeway(jwt.Expected{Issuer: s.opt.Issuer, AnyAudience: audiences, Time: now}, leeway); {
	case errors.Is(err, jwt.ErrExpired):
		return nil, expires, refuse(Expired, nil)
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return nil, expires, refuse(Early, nil)
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, expires, refuse(Audience, nil)
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return nil, expires, refuse(Issuer, nil)
	case err != nil:
		return nil, expires, refuse(Claims, err)
	case standard.Expiry == nil:
		return nil, expires, refuse(Claims, errors.New("the token has no exp"))
	}
	subject, _ := claim(all, cmp.Or(s.opt.SubjectClaim, "sub")).(string)
	if subject == "" {
		return nil, expires, refuse(Claims, errors.New("the token has no subject"))
	}
	p = &task.Caller{Tenant: s.opt.Tenant, Subject: s.opt.SubjectPrefix + subject, Scopes: s.scopes(all), Credential: s.name}
	if standard.ID != "" && plain(standard.ID) {
		p.Credential += "/" + standard.ID
	}
	if s.opt.TenantClaim != "" {
		if p.Tenant, _ = claim(all, s.opt.TenantClaim).(string); p.Tenant == "" {
			return nil, expires, refuse(Claims, errors.New("the token has no tenant"))
		}
	}
	// Check before the token is remembered as good.
	return p, standard.Expiry.Time(), check(p)
}

func (s *JWT) scopes(all map[string]any) []string {
	value := claim(all, s.opt.ScopesClaim)
	if s.opt.ScopesClaim == "" {
		if value = all["scope"]; value == nil {
			value = all["scp"]
		}
	}
	var out []string
	switch v := value.(type) {
	case string:
		out = strings.Fields(v)
	case []any:
		for _, one := range v {
			if scope, ok := one.(string); ok {
				out = append(out, scope)
			}
		}
	}
	return out
}

// claim returns a claim by its name. A name that begins with a slash is a path through nested objects.
func claim(all map[string]any, name string) any {
	path, nested := strings.CutPrefix(name, "/")
	if !nested {
		return all[name]
	}
	var at any = all
	for step := range strings.SplitSeq(path, "/") {
		object, _ := at.(map[string]any)
		at = object[step]
	}
	return at
}

func (s *JWT) challenge(refused bool) string { return bearerChallenge(refused) }

func bearerChallenge(refused bool) string {
	if refused {
		return `Bearer ` + realm + `, error="invalid_token"`
	}
	return `Bearer ` + realm
}
