package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/login"
	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// filesEvery is the interval between checks of the files with certificates and users.
const filesEvery = 10 * time.Second

// access authenticates callers, and has the TLS of the public ports.
type access struct {
	cfg           *config.Config
	log           *slog.Logger
	authenticator *auth.Authenticator // nil: no agent needs a credential
	workers       *auth.Authenticator // for the worker API; nil: it needs no credential
	admin         *auth.Authenticator // nil: the admin address needs no credential
	tls           *auth.TLS           // nil: no TLS
	files         *auth.Reloader
	basic         *auth.Basic
	apiKeys       *auth.APIKeys
	issuers       map[string]*auth.JWT
	sessions      *auth.Sessions // of operators' browsers; nil: nobody can log in
	origins       *login.Origins
	background    []func(context.Context) error
}

// buildAuth reads the files that the configuration names, so that their mistakes show before anything starts. It
// refuses to let everybody in by accident.
func buildAuth(cfg *config.Config, log *slog.Logger) (*access, error) {
	c := &access{cfg: cfg, log: log, files: auth.NewReloader(filesEvery, log), issuers: map[string]*auth.JWT{}}
	adminExposed(cfg, log)
	var err error
	if c.origins, err = login.NewOrigins(cfg.Admin.PublicURL); err != nil {
		return nil, fmt.Errorf("admin.public_url: %w", err)
	}
	if err := exposed(cfg, log); err != nil {
		return nil, err
	}
	if !c.asks() && !cfg.Admin.TLS {
		return c, nil
	}
	if t := cfg.TLS; t.Enabled() {
		if c.tls, err = auth.LoadTLS(c.files, t.CertFile, t.KeyFile, t.ClientCAFile); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	for i := range cfg.Auth.Schemes {
		if s := &cfg.Auth.Schemes[i]; s.Kind == config.AuthBasic {
			if err := c.loadUsers(s); err != nil {
				return nil, fmt.Errorf("auth.schemes[%d]: %w", i, err)
			}
		}
	}
	c.background = append(c.background, c.files.Run)
	return c, nil
}

// asks reports whether this process serves anything that needs a credential.
func (c *access) asks() bool {
	return c.cfg.HasRole(config.RoleAPI) || c.cfg.AdminAccess() == config.AdminAsks
}

func (c *access) loadUsers(s *config.AuthScheme) (err error) {
	return c.files.Add(func(contents [][]byte) error {
		users, err := auth.ParseUsers(contents[0])
		if err != nil {
			return err
		}
		if agents := c.cfg.TenantVisible(s.Name); len(agents) > 0 {
			for _, u := range users {
				if u.Tenant == "" {
					return fmt.Errorf("user %q has no tenant, but agent %s shows tasks to whole tenants (auth.visibility); give the user a tenant", u.Name, agents[0])
				}
			}
		}
		if c.basic == nil {
			c.basic, err = auth.NewBasic(s.Name, users)
			return err
		}
		return c.basic.SetUsers(users)
	}, s.Basic.UsersFile)
}

// open makes the authenticator. It reads API keys from the store and learns of revocations.
func (c *access) open(st *store.Store, m *telemetry.Metrics, bus *signal.Bus) {
	if len(c.cfg.Auth.Schemes) == 0 || !c.asks() {
		return
	}
	failures := c.cfg.Limits.FailedAuthentications
	o := auth.Options{Observe: m.Authenticated, Failures: limit.NewRates[auth.Guesser](failures, burst*failures), Log: c.log}
	for i := range c.cfg.Auth.Schemes {
		switch s := &c.cfg.Auth.Schemes[i]; s.Kind {
		case config.AuthAPIKey:
			c.apiKeys = auth.NewAPIKeys(s.Name, s.APIKey.Header, st)
			o.Schemes = append(o.Schemes, c.apiKeys)
		case config.AuthBasic:
			o.Schemes = append(o.Schemes, c.basic)
		case config.AuthJWT:
			j := s.JWT
			issuer := auth.NewJWT(auth.JWTOptions{
				Name: s.Name, Issuer: j.Issuer, KeySetURL: j.JWKSURL, Audiences: j.Audience,
				Tenant: j.Tenant, TenantClaim: j.TenantClaim, SubjectClaim: j.SubjectClaim, SubjectPrefix: j.SubjectPrefix,
				ScopesClaim: j.ScopesClaim, Refresh: j.Refresh, Fetched: m.IssuerFetched, Log: c.log,
			})
			c.background = append(c.background, issuer.Run)
			c.issuers[s.Name] = issuer
			o.Schemes = append(o.Schemes, issuer)
		case config.AuthMTLS:
			o.Schemes = append(o.Schemes, auth.NewMTLS(auth.MTLSOptions{
				Name: s.Name, Roots: c.tls.Roots, Tenant: s.MTLS.Tenant, SubjectPrefix: s.MTLS.SubjectPrefix, Scopes: s.MTLS.Scopes,
				TenantFromOrganization: s.MTLS.TenantFrom == config.TenantFromOrganization, SubjectFrom: auth.SubjectFrom(s.MTLS.SubjectFrom),
			}))
		}
	}
	c.authenticator = auth.New(o)
	if c.cfg.AdminAccess() == config.AdminAsks && (c.loginKeys()+c.loginPasswords()+c.cfg.Admin.Login.Scheme != "") {
		c.sessions = auth.NewSessions(login.CookieName(c.cfg.AdminSecure()), c.cfg.Admin.Schemes, st)
	}
	if c.apiKeys != nil || c.sessions != nil {
		bus.Keys.Subscribe(func(string) { c.forgetKeys() })
	}
	c.background = append(c.background, c.authenticator.Run)
	if c.cfg.HasRole(config.RoleAPI) {
		workers := o
		workers.Schemes = c.bearing(o.Schemes)
		c.workers = auth.New(workers)
		c.background = append(c.background, c.workers.Run)
	}
	if c.cfg.AdminAccess() == config.AdminAsks {
		o.Schemes = c.adminSchemes(o.Schemes)
		// Probes without a credential come all the time, so they do not count.
		o.Observe = func(scheme, outcome string) {
			if outcome != string(auth.Missing) {
				m.Authenticated(scheme, outcome)
			}
		}
		c.admin = auth.New(o)
		c.background = append(c.background, c.admin.Run)
	}
}

// forgetKeys makes the authenticators read API keys and sessions again, because one may have been revoked or ended.
func (c *access) forgetKeys() {
	if c.apiKeys != nil {
		c.apiKeys.Forget()
	}
	if c.sessions != nil {
		c.sessions.Forget()
	}
	c.authenticator.Recheck()
	if c.workers != nil {
		c.workers.Recheck()
	}
	if c.admin != nil {
		c.admin.Recheck()
	}
}

// bearing returns the schemes, of which that for API keys also takes them as bearer tokens: all SDKs of workers send them so.
func (c *access) bearing(schemes []auth.Scheme) []auth.Scheme {
	schemes = slices.Clone(schemes)
	for i, s := range schemes {
		if s == auth.Scheme(c.apiKeys) {
			schemes[i] = c.apiKeys.OrBearer()
		}
	}
	return schemes
}

func (c *access) tlsConfig() *tls.Config {
	if c.tls == nil {
		return nil
	}
	return c.tls.Config()
}

// exposed refuses open agents on addresses that other machines can reach, unless the operator allows them.
func exposed(cfg *config.Config, log *slog.Logger) error {
	open, addresses := cfg.OpenAgents(), cfg.Exposed()
	switch {
	case len(open) == 0 || len(addresses) == 0:
		return nil
	case cfg.Auth.None:
		log.Warn("SERVER OPEN: EVERYBODY WHO CAN REACH IT MAY USE THESE AGENTS AND SEE ALL OF THEIR TASKS (auth.none)",
			"listen", addresses, "agents", open)
		return nil
	}
	return fmt.Errorf("other machines can reach %s, and these agents need no credential: %s. "+
		"Set auth.schemes, listen on 127.0.0.1, or allow it with auth.none: true (HOLDFAST_AUTH_NONE=true)",
		strings.Join(addresses, ", "), strings.Join(open, ", "))
}

// security returns a scheme in the form of the cards.
func security(s *config.AuthScheme) card.Security {
	out := card.Security{Name: s.Name, Description: s.Description}
	switch s.Kind {
	case config.AuthAPIKey:
		out.Kind, out.Header = card.APIKey, s.APIKey.Header
		if strings.EqualFold(s.APIKey.Header, "Authorization") {
			out.Kind = card.Bearer
		}
	case config.AuthBasic:
		out.Kind = card.Basic
	case config.AuthMTLS:
		out.Kind = card.MutualTLS
	case config.AuthJWT:
		// An issuer whose keys have their own URL may have no metadata to link to.
		out.Kind = card.BearerJWT
		if s.JWT.JWKSURL == "" {
			out.Kind, out.MetadataURL = card.OpenIDConnect, strings.TrimSuffix(s.JWT.Issuer, "/")+"/.well-known/openid-configuration"
		}
	}
	return out
}
