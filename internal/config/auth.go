package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/auth"
)

// Auth says how callers authenticate, and which tasks they see.
type Auth struct {
	// None lets everybody in even if the server listens on more than loopback.
	None    bool         `yaml:"none" env:"HOLDFAST_AUTH_NONE"`
	Schemes []AuthScheme `yaml:"schemes"`
	// Visibility is the default of agents that set none.
	Visibility  Visibility  `yaml:"visibility" default:"owner" one:"owner,tenant"`
	RowSecurity RowSecurity `yaml:"row_level_security" env:"HOLDFAST_AUTH_ROW_LEVEL_SECURITY" default:"prefer" one:"prefer,require,off"`
}

// Visibility says who sees a task.
type Visibility string

// The values of Visibility.
const (
	VisibleToOwner  Visibility = "owner"  // the caller that created it
	VisibleToTenant Visibility = "tenant" // every caller in the owner's tenant
)

// RowSecurity says whether the database also enforces visibility.
type RowSecurity string

// The values of RowSecurity.
const (
	RowSecurityPrefer  RowSecurity = "prefer"  // if the database role allows it
	RowSecurityRequire RowSecurity = "require" // or the server does not start
	RowSecurityOff     RowSecurity = "off"
)

// AuthScheme is one way to authenticate. Only the section of its kind is used.
type AuthScheme struct {
	Name        string     `yaml:"name"`
	Kind        AuthKind   `yaml:"kind" one:"api_key,basic,jwt,mtls"`
	Description string     `yaml:"description"` // on cards
	APIKey      APIKeyAuth `yaml:"api_key"`
	Basic       BasicAuth  `yaml:"basic"`
	JWT         JWTAuth    `yaml:"jwt"`
	MTLS        MTLSAuth   `yaml:"mtls"`
}

// AuthKind names a kind of scheme.
type AuthKind string

// The kinds of schemes.
const (
	AuthAPIKey AuthKind = auth.KindAPIKey
	AuthBasic  AuthKind = auth.KindBasic
	AuthJWT    AuthKind = auth.KindJWT
	AuthMTLS   AuthKind = auth.KindMTLS
)

// APIKeyAuth is for the keys that holdfast api-keys create makes.
type APIKeyAuth struct {
	Header string `yaml:"header" default:"X-API-Key"`
}

// BasicAuth is for users with passwords.
type BasicAuth struct {
	UsersFile string `yaml:"users_file"`
}

// JWTAuth is for the tokens of one issuer.
type JWTAuth struct {
	Issuer        string   `yaml:"issuer"`
	JWKSURL       string   `yaml:"jwks_url"`
	Audience      []string `yaml:"audience"`
	Tenant        string   `yaml:"tenant"`
	TenantClaim   string   `yaml:"tenant_claim"`
	SubjectClaim  string   `yaml:"subject_claim" default:"sub"`
	SubjectPrefix string   `yaml:"subject_prefix"`
	ScopesClaim   string   `yaml:"scopes_claim"`
	// Refresh is the interval between fetches of the keys.
	Refresh time.Duration `yaml:"refresh" default:"5m" range:"1s,1h"`
	// AllowHTTP allows an issuer on another machine without TLS.
	AllowHTTP bool `yaml:"allow_http"`
}

// MTLSAuth is for client certificates.
type MTLSAuth struct {
	Tenant        string      `yaml:"tenant"`
	TenantFrom    TenantFrom  `yaml:"tenant_from" default:"fixed" one:"fixed,organization"`
	SubjectFrom   SubjectFrom `yaml:"subject_from" default:"san" one:"san,uri,dns,common_name"`
	SubjectPrefix string      `yaml:"subject_prefix"`
	Scopes        []string    `yaml:"scopes"`
}

// SubjectFrom says where a certificate has the subject.
type SubjectFrom string

// The values of SubjectFrom.
const (
	SubjectFromSAN        SubjectFrom = "san" // its URI, or else its first DNS name
	SubjectFromURI        SubjectFrom = "uri"
	SubjectFromDNS        SubjectFrom = "dns"
	SubjectFromCommonName SubjectFrom = "common_name"
)

// TenantFrom says where a certificate has the tenant.
type TenantFrom string

// The values of TenantFrom.
const (
	TenantFixed            TenantFrom = "fixed"
	TenantFromOrganization TenantFrom = "organization"
)

// AgentAuth says who may use an agent.
type AgentAuth struct {
	// Schemes are the names of the accepted schemes. If the key is missing, all are accepted. An empty list lets
	// everybody in.
	Schemes    []string   `yaml:"schemes"`
	Scope      string     `yaml:"scope"`
	Visibility Visibility `yaml:"visibility" one:"owner,tenant"`
}

// TLS configures the server side of TLS on the public ports.
type TLS struct {
	CertFile     string `yaml:"cert_file" env:"HOLDFAST_TLS_CERT_FILE"`
	KeyFile      string `yaml:"key_file" env:"HOLDFAST_TLS_KEY_FILE"`
	ClientCAFile string `yaml:"client_ca_file" env:"HOLDFAST_TLS_CLIENT_CA_FILE"`
}

// Enabled reports whether the public ports speak TLS.
func (t *TLS) Enabled() bool { return t.CertFile != "" }

// OpenAgents returns the names of the agents that need no credential.
func (c *Config) OpenAgents() []string {
	var open []string
	for i := range c.Agents {
		if len(c.Agents[i].Auth.Schemes) == 0 {
			open = append(open, c.Agents[i].Name)
		}
	}
	return open
}

// Exposed returns the addresses of the public API that other machines can reach.
func (c *Config) Exposed() []string {
	var out []string
	if !c.HasRole(RoleAPI) {
		return nil
	}
	for _, address := range []string{c.Listen, c.GRPCListen} {
		if address != GRPCOff && reachable(address) {
			out = append(out, address)
		}
	}
	return out
}

// servesOthers reports whether clients on other machines use the server: they reach its ports, or a proxy on this machine
// that public_url names.
func (c *Config) servesOthers() bool {
	return len(c.Exposed()) > 0 || c.PublicURL != "" && !c.publicIsLocal()
}

// reachable reports whether other machines can reach a listen address.
func reachable(address string) bool {
	// The listener resolves a name in the same way.
	at, err := net.ResolveTCPAddr("tcp", address)
	return err != nil || !at.IP.IsLoopback()
}

// LocalOnly reports whether agents need no credential because only this machine can reach them: by the addresses of the
// server, or, behind a port that a container publishes on loopback, by public_url.
func (c *Config) LocalOnly() bool {
	return len(c.OpenAgents()) > 0 && (len(c.Exposed()) == 0 && !c.Auth.None || c.publicIsLocal())
}

// publicIsLocal reports whether public_url names this machine. A host name, which only DNS can resolve, is another one.
func (c *Config) publicIsLocal() bool {
	u, err := url.Parse(c.PublicURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return strings.EqualFold(u.Hostname(), "localhost") || ip != nil && ip.IsLoopback()
}

// schemeName is the form of a scheme's name: the names are keys in cards.
var schemeName = agentName

func (l *loader) auth(c *Config) {
	byName := map[string]int{}
	kinds := map[AuthKind]int{}
	issuers := map[string]int{}
	for i := range c.Auth.Schemes {
		s, path := &c.Auth.Schemes[i], fmt.Sprintf("auth.schemes[%d]", i)
		if l.hasProblem(path) {
			continue
		}
		if first, twice := byName[s.Name]; twice && s.Name != "" {
			l.at(path+".name", "%q is already the name of auth.schemes[%d]; choose another", s.Name, first)
		}
		byName[s.Name] = i
		l.scheme(path, s)
		first, twice := kinds[s.Kind]
		switch {
		case s.Kind == AuthJWT:
			if other, same := issuers[s.JWT.Issuer]; same {
				l.at(path+".jwt.issuer", "is already the issuer of auth.schemes[%d]; give each issuer one scheme", other)
			}
			issuers[s.JWT.Issuer] = i
		case twice:
			l.at(path+".kind", "auth.schemes[%d] already has this kind; only jwt may appear twice", first)
		}
		kinds[s.Kind] = i
		if s.Kind == AuthMTLS && c.TLS.ClientCAFile == "" {
			l.at(path+".kind", "mtls needs tls.client_ca_file")
		}
	}
	l.subjects(c.Auth.Schemes)
	l.tls(&c.TLS)
}

func (l *loader) scheme(path string, s *AuthScheme) {
	switch name := path + ".name"; {
	case l.hasProblem(name):
	case s.Name == "":
		l.at(name, "is missing")
	case s.Name == auth.KindSession:
		l.at(name, "%q is reserved for the sessions of operators' browsers; choose another", s.Name)
	case !schemeName.MatchString(s.Name):
		l.at(name, "%q is not a valid name; use 1 to 63 lower-case letters, digits, - and _, with a letter or digit first and last", s.Name)
	}
	kind := path + ".kind"
	if l.hasProblem(kind) {
		return
	}
	if s.Kind == "" {
		l.at(kind, "is missing; use %s, %s, %s or %s", AuthAPIKey, AuthBasic, AuthJWT, AuthMTLS)
		return
	}
	for _, section := range []AuthKind{AuthAPIKey, AuthBasic, AuthJWT, AuthMTLS} {
		if key := join(path, string(section)); section != s.Kind && l.given(key) {
			l.at(key, "does not belong to a scheme of kind %s; remove it", s.Kind)
		}
	}
	switch s.Kind {
	case AuthAPIKey:
		if h := s.APIKey.Header; !headerName.MatchString(h) || strings.EqualFold(h, "Cookie") {
			l.at(path+".api_key.header", "%q cannot carry a key; use a header name other than Cookie, such as X-Api-Key", h)
		}
	case AuthBasic:
		if users := path + ".basic.users_file"; s.Basic.UsersFile == "" && !l.hasProblem(users) {
			l.at(users, "is missing; write a file of users, with lines such as htpasswd -nbB -C 12 alice makes")
		}
	case AuthJWT:
		l.jwt(path+".jwt", &s.JWT)
	case AuthMTLS:
		if s.MTLS.TenantFrom == TenantFromOrganization && s.MTLS.Tenant != "" {
			l.at(path+".mtls.tenant", "needs tenant_from: fixed")
		}
		l.scopes(path+".mtls.scopes", s.MTLS.Scopes)
	}
}

func (l *loader) jwt(path string, j *JWTAuth) {
	if j.Issuer == "" {
		l.at(path+".issuer", "is missing; write the iss of the tokens, such as https://id.example.com")
	} else if j.JWKSURL == "" {
		l.issuerURL(path+".issuer", j.Issuer, j.AllowHTTP)
	}
	if j.JWKSURL != "" {
		l.issuerURL(path+".jwks_url", j.JWKSURL, j.AllowHTTP)
	}
	if len(j.Audience) == 0 || slices.Contains(j.Audience, "") {
		l.at(path+".audience", "is missing; write the aud of tokens for this server, because without it any token of the issuer would be accepted")
	}
	if j.SubjectClaim == "" {
		l.at(path+".subject_claim", "must not be empty")
	}
	if j.Tenant != "" && j.TenantClaim != "" {
		l.at(path+".tenant", "cannot be combined with tenant_claim; remove one")
	}
}

// issuerURL requires TLS: an attacker who can change the keys in transit can make any token.
func (l *loader) issuerURL(key, value string, allowHTTP bool) {
	if l.hasProblem(key) || !l.webURL(key, value) {
		return
	}
	u, _ := url.Parse(value)
	if u.RawQuery != "" || u.Fragment != "" {
		l.at(key, "must not have a query or a fragment")
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "http" && !allowHTTP && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		l.at(key, "must begin with https:// unless the host is this machine; set allow_http to accept http://")
	}
}

// subjects refuses schemes where two authorities could name the same subject. Otherwise alice of one authority would
// have the tasks of the other authority's alice. The operator controls users and API keys, and may mean the same person
// by both.
func (l *loader) subjects(schemes []AuthScheme) {
	outside := map[string]*Authority{}
	var paths []string
	for i := range schemes {
		a := schemes[i].Authority()
		if a == nil {
			continue
		}
		path := fmt.Sprintf("auth.schemes[%d].%s", i, schemes[i].Kind)
		for _, other := range paths {
			b := outside[other]
			same := a.AnyTenant || b.AnyTenant || a.Tenant == b.Tenant
			if same && (strings.HasPrefix(a.Prefix, b.Prefix) || strings.HasPrefix(b.Prefix, a.Prefix)) {
				l.at(path+".subject_prefix", "allows the same subjects as %s; give both different prefixes, or each its own tenant", other)
			}
		}
		outside[path], paths = a, append(paths, path)
	}
}

// Authority is a third party that names subjects: of which tenant, and with which prefix.
type Authority struct {
	Tenant    string
	AnyTenant bool // it also names the tenant
	Prefix    string
}

// Authority returns the authority that names the subjects of a scheme. Nil: the operator names them.
func (s *AuthScheme) Authority() *Authority {
	switch s.Kind {
	case AuthJWT:
		return &Authority{Tenant: s.JWT.Tenant, AnyTenant: s.JWT.TenantClaim != "", Prefix: s.JWT.SubjectPrefix}
	case AuthMTLS:
		return &Authority{Tenant: s.MTLS.Tenant, AnyTenant: s.MTLS.TenantFrom == TenantFromOrganization, Prefix: s.MTLS.SubjectPrefix}
	default:
		return nil
	}
}

// MaySpeakOf reports whether an authority may name a subject.
func (a *Authority) MaySpeakOf(tenant, subject string) bool {
	return (a.AnyTenant || a.Tenant == tenant) && strings.HasPrefix(subject, a.Prefix)
}

// scopes are separated by spaces in requests, and quoted in challenges.
func (l *loader) scopes(key string, scopes []string) {
	for _, s := range scopes {
		if !validScope(s) {
			l.at(key, "%q is not a scope; use printable ASCII without spaces, quotes and backslashes", s)
		}
	}
}

func validScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

// agentAuth also fills in the settings that an agent takes from auth.
func (l *loader) agentAuth(path string, a *Agent, all *Auth) {
	schemes := all.Schemes
	if a.Auth.Visibility == "" && (all.Visibility == VisibleToOwner || all.Visibility == VisibleToTenant) {
		a.Auth.Visibility = all.Visibility
	}
	named := a.Auth.Schemes
	if !l.given(path + ".auth.schemes") {
		for i := range schemes {
			a.Auth.Schemes = append(a.Auth.Schemes, schemes[i].Name)
		}
	}
	if a.Auth.Visibility == VisibleToTenant {
		l.tenants(path, a, all)
	}
	for i, name := range named {
		if !slices.ContainsFunc(schemes, func(s AuthScheme) bool { return s.Name == name }) {
			l.at(path+".auth.schemes", "%q is not a name in auth.schemes", name)
		} else if slices.Contains(named[:i], name) {
			l.at(path+".auth.schemes", "%q is given twice; remove one", name)
		}
	}
	open := len(a.Auth.Schemes) == 0
	scope := func(key, scope string) {
		if scope == "" {
			return
		}
		l.scopes(key, []string{scope})
		if open {
			l.at(key, "needs a scheme in auth.schemes, because callers without a credential have no scopes")
		}
	}
	scope(path+".auth.scope", a.Auth.Scope)
	for i := range a.Card.Skills {
		scope(fmt.Sprintf("%s.card.skills[%d].scope", path, i), a.Card.Skills[i].Scope)
	}
}

// tenants refuses tenant visibility for a scheme that sets no tenant. Otherwise all callers without a tenant would see
// each other's tasks. It cannot see the tenants of API keys and of files of users; a caller without a tenant there sees
// only its own tasks.
func (l *loader) tenants(path string, a *Agent, all *Auth) {
	key := path + ".auth.visibility"
	if !l.given(key) {
		key = "auth.visibility"
	}
	for i := range all.Schemes {
		s := &all.Schemes[i]
		if why := s.withoutTenant(); why != "" && slices.Contains(a.Auth.Schemes, s.Name) && !l.hasProblem(key) {
			l.at(key, "is tenant, but auth.schemes[%d] gives its callers no tenant; %s", i, why)
		}
	}
}

// withoutTenant says what a scheme misses to give every caller a tenant, as far as the configuration shows it.
func (s *AuthScheme) withoutTenant() string {
	switch {
	case s.Kind == AuthJWT && s.JWT.Tenant == "" && s.JWT.TenantClaim == "":
		return "set jwt.tenant or jwt.tenant_claim"
	case s.Kind == AuthMTLS && s.MTLS.Tenant == "" && s.MTLS.TenantFrom == TenantFixed:
		return "set mtls.tenant or mtls.tenant_from"
	}
	return ""
}

// TenantVisible returns the names of the agents that accept a scheme and show their tasks to the whole tenant.
func (c *Config) TenantVisible(scheme string) []string {
	var out []string
	for i := range c.Agents {
		if a := &c.Agents[i]; a.Auth.Visibility == VisibleToTenant && slices.Contains(a.Auth.Schemes, scheme) {
			out = append(out, a.Name)
		}
	}
	return out
}

func (l *loader) tls(t *TLS) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		l.at("tls", "needs both cert_file and key_file")
	}
	if t.ClientCAFile != "" && t.CertFile == "" {
		l.at("tls.client_ca_file", "needs tls.cert_file and tls.key_file")
	}
}
