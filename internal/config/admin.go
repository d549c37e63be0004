package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
)

// Admin says who may use the admin address beyond the probes: metrics, profiles and the details of readiness.
type Admin struct {
	// Schemes are the names of the accepted schemes. If the key is missing and other machines can reach the address,
	// all schemes are accepted.
	Schemes []string `yaml:"schemes"`
	// Scope is the scope of operators who may do everything.
	Scope string `yaml:"scope" default:"holdfast:operator"`
	// AllTenantsScope is the scope of operators who see all tenants. An operator without it sees only its own tenant. Empty:
	// operators without a tenant see all of them.
	AllTenantsScope string `yaml:"all_tenants_scope"`
	// PublicURL is the address at which browsers reach the admin address, if it is not that in admin_listen.
	PublicURL string     `yaml:"public_url" env:"HOLDFAST_ADMIN_PUBLIC_URL"`
	Login     AdminLogin `yaml:"login"`
	// SessionLifetime is how long the session of a browser lasts.
	SessionLifetime time.Duration `yaml:"session_lifetime" default:"8h" range:"1m,720h"`
	// TraceURL is the address of a trace in the operators' tracing tool, with TraceID in the place of the id. Empty: the console links no traces.
	TraceURL string `yaml:"trace_url" env:"HOLDFAST_ADMIN_TRACE_URL"`
	// Prices are what a million tokens of a model cost, by its name, as ParsePrice reads them. The console shows costs with them.
	Prices map[string]string `yaml:"prices"`
	// TLS turns on TLS, with the certificate of the public ports.
	TLS bool `yaml:"tls"`
	// Open lets everybody use it, from any machine.
	Open bool `yaml:"open" env:"HOLDFAST_ADMIN_OPEN"`
}

// Scopes for parts of the admin API; each includes those before it. AdminMetrics is for metrics and the details of
// readiness, and for no more.
const (
	AdminMetrics    = "admin:metrics"
	AdminView       = "admin:view"
	AdminAct        = "admin:act"
	AdminAdminister = "admin:administer"
)

// TraceID stands for the id of a trace in Admin.TraceURL.
const TraceID = "{trace_id}"

// AdminLogin lets operators log in with a browser at an issuer (OpenID Connect).
type AdminLogin struct {
	// Scheme is the name of the scheme of kind jwt with the issuer. Empty: no such login.
	Scheme       string            `yaml:"scheme"`
	ClientID     string            `yaml:"client_id"`
	ClientSecret *secrets.Source   `yaml:"client_secret" env:"HOLDFAST_ADMIN_LOGIN_CLIENT_SECRET"` // read for each login
	Scopes       []string          `yaml:"scopes" default:"openid,profile"`
	Parameters   map[string]string `yaml:"parameters"` // added to the request for a login
	// Claims says which token has the tenant, the subject and the scopes of the operator.
	Claims LoginClaims `yaml:"claims" default:"access_token" one:"access_token,id_token"`
}

// LoginClaims names a token of a login.
type LoginClaims string

// The values of LoginClaims.
const (
	ClaimsOfAccessToken LoginClaims = "access_token"
	ClaimsOfIDToken     LoginClaims = "id_token"
)

// AdminSecure reports whether browsers reach the admin address over TLS.
func (c *Config) AdminSecure() bool {
	if c.Admin.PublicURL != "" {
		return strings.HasPrefix(c.Admin.PublicURL, "https://")
	}
	return c.Admin.TLS
}

// AdminAccess says how the admin address decides who may use more than the probes.
type AdminAccess string

// The values of AdminAccess.
const (
	AdminAsks   AdminAccess = "asks"   // callers with the operators' scope
	AdminLocal  AdminAccess = "local"  // no credential needed; only this machine can reach it
	AdminOpen   AdminAccess = "open"   // no credential needed, because the operator said so
	AdminProbes AdminAccess = "probes" // nobody
)

// AdminAccess returns how the admin address decides.
func (c *Config) AdminAccess() AdminAccess {
	switch {
	case len(c.Admin.Schemes) > 0:
		return AdminAsks
	case c.Admin.Open:
		return AdminOpen
	case !c.AdminExposed():
		return AdminLocal
	}
	return AdminProbes
}

// AdminExposed reports whether other machines can reach the admin address.
func (c *Config) AdminExposed() bool { return reachable(c.AdminListen) }

// AdminURL returns the URL of the admin address, for a listener that was bound to the given address.
func (c *Config) AdminURL(bound string) string {
	if c.Admin.TLS {
		return "https://" + ReachableAddr(bound)
	}
	return "http://" + ReachableAddr(bound)
}

// admin also fills in the settings that the configuration takes from auth.
func (l *loader) admin(c *Config) {
	a := &c.Admin
	if a.TLS && !c.TLS.Enabled() {
		l.at("admin.tls", "needs tls.cert_file and tls.key_file")
	}
	given := l.given("admin.schemes")
	if !given && !a.Open && c.AdminExposed() {
		for i := range c.Auth.Schemes {
			// Without TLS a client cannot show a certificate.
			if s := &c.Auth.Schemes[i]; s.Kind != AuthMTLS || a.TLS {
				a.Schemes = append(a.Schemes, s.Name)
			}
		}
	}
	if given && len(a.Schemes) > 0 && a.Open {
		l.at("admin.open", "cannot be combined with admin.schemes: admit everybody, or only callers with one of those schemes")
	}
	for i, name := range a.Schemes {
		at := slices.IndexFunc(c.Auth.Schemes, func(s AuthScheme) bool { return s.Name == name })
		switch {
		case at < 0:
			l.at("admin.schemes", "%q is not a name in auth.schemes", name)
		case slices.Contains(a.Schemes[:i], name):
			l.at("admin.schemes", "%q is given twice; remove one", name)
		case c.Auth.Schemes[at].Kind == AuthMTLS && !a.TLS:
			l.at("admin.schemes", "%q needs client certificates, which need admin.tls: true", name)
		}
	}
	l.adminLogin(c)
	l.traceURL(a.TraceURL)
	l.prices(a.Prices)
	// Without a scope every caller would be an operator.
	l.scopes("admin.scope", []string{a.Scope})
	if a.AllTenantsScope != "" {
		l.scopes("admin.all_tenants_scope", []string{a.AllTenantsScope})
	}
}

// traceURL checks the address of traces. It becomes a link in the console.
func (l *loader) traceURL(address string) {
	const key = "admin.trace_url"
	if address == "" || !l.webURL(key, address) {
		return
	}
	u, _ := url.Parse(address)
	switch {
	case !strings.Contains(address, TraceID):
		l.at(key, "must have %s in its path, query or fragment, such as https://tempo.example.com/trace/%s", TraceID, TraceID)
	case u.User != nil:
		l.at(key, "must not have a user or a password: the console shows the address to all operators")
	}
}

// ParsePrice reads what a million input and output tokens cost, such as "1.25 / 10 USD". The currency may be left out.
func ParsePrice(text string) (input, output float64, currency string, err error) {
	in, rest, _ := strings.Cut(text, "/")
	words := strings.Fields(rest)
	if len(words) == 2 && len(words[1]) <= 8 {
		currency, words = words[1], words[:1]
	}
	if len(words) == 1 {
		if input, err = strconv.ParseFloat(strings.TrimSpace(in), 64); err == nil {
			output, err = strconv.ParseFloat(words[0], 64)
		}
	}
	const most = 1e6
	if len(words) != 1 || err != nil || !(input >= 0 && input <= most && output >= 0 && output <= most) {
		return 0, 0, "", fmt.Errorf("%q is not a price; write what a million input and output tokens cost: 1.25 / 10 USD", text)
	}
	return input, output, currency, nil
}

// prices checks that sums of costs have one currency.
func (l *loader) prices(prices map[string]string) {
	first, known := "", false
	for _, model := range slices.Sorted(maps.Keys(prices)) {
		_, _, currency, err := ParsePrice(prices[model])
		switch key := "admin.prices." + model; {
		case err != nil:
			l.at(key, "%s", err)
		case known && currency != first:
			l.at(key, "is in the currency %q, and another price in %q; write all in one", currency, first)
		default:
			first, known = currency, true
		}
	}
}

func (l *loader) adminLogin(c *Config) {
	a, o := &c.Admin, &c.Admin.Login
	if a.PublicURL != "" && l.webURL("admin.public_url", a.PublicURL) {
		// Browsers compare origins, and the paths are fixed.
		if u, _ := url.Parse(a.PublicURL); u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			l.at("admin.public_url", "must be a scheme and a host, such as https://holdfast-admin.example.com, without a path")
		}
	}
	if o.Scheme == "" {
		if l.given("admin.login") && o.ClientID != "" {
			l.at("admin.login.scheme", "is missing; write the name of the scheme of kind jwt with the issuer")
		}
		return
	}
	at := slices.IndexFunc(c.Auth.Schemes, func(s AuthScheme) bool { return s.Name == o.Scheme && s.Kind == AuthJWT })
	switch {
	case at < 0:
		l.at("admin.login.scheme", "%q is not the name of a scheme of kind jwt in auth.schemes", o.Scheme)
	case !slices.Contains(a.Schemes, o.Scheme):
		l.at("admin.login.scheme", "%q is not in admin.schemes", o.Scheme)
	}
	if o.ClientID == "" {
		l.at("admin.login.client_id", "is missing; write the id of the client that you have registered at the issuer")
	}
	if a.PublicURL == "" {
		l.at("admin.public_url", "is missing; admin.login needs it, because the issuer sends browsers back to it")
	}
	if !slices.Contains(o.Scopes, "openid") {
		l.at("admin.login.scopes", "must have openid, because the login needs an ID token")
	}
	l.scopes("admin.login.scopes", o.Scopes)
	for name := range o.Parameters {
		if slices.Contains(loginParameters, name) {
			l.at("admin.login.parameters", "cannot set %s, which the login sets itself", name)
		}
	}
}

// loginParameters are those of a login itself.
var loginParameters = []string{
	"response_type", "response_mode", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method", "request", "request_uri",
}
