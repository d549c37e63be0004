package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/admin/console"
	"github.com/holdfast-a2a/holdfast/internal/admin/login"
	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// newLogins makes the logins of operators' browsers. Nil: there is nothing to log in with, or no need.
func newLogins(ctx context.Context, e *env, c *access, st *store.Store, api *admin.API) (*login.Handler, error) {
	if c.sessions == nil {
		return nil, nil //nolint:nilnil // none is an answer here and no failure
	}
	keys, err := st.Derive(ctx, login.Purpose)
	if err != nil {
		return nil, err
	}
	sealing, err := secrets.NewKeys(keys...)
	if err != nil {
		return nil, err
	}
	a := &e.cfg.Admin
	o := login.Options{
		Keys: c.loginKeys() != "", Passwords: c.loginPasswords() != "", PublicURL: a.PublicURL, Secure: e.cfg.AdminSecure(), Lifetime: a.SessionLifetime, Seal: sealing,
		Admit: c.admitTyped, Permits: c.permits, Origins: c.origins, Refuse: api.Refuse, Current: c.currentSession,
		Store: st, Home: console.Path, Log: e.log,
	}
	if s := &a.Login; s.Scheme != "" {
		o.Issuer = &login.Issuer{
			Scheme: c.issuers[s.Scheme], Client: s.ClientID, Secret: clientSecret(s), Scopes: s.Scopes, Parameters: s.Parameters,
			FromID: s.Claims == config.ClaimsOfIDToken,
		}
	}
	return login.New(o), nil
}

// clientSecret returns the secret of the client at the issuer; nil: it has none.
func clientSecret(s *config.AdminLogin) func(context.Context) (string, error) {
	if s.ClientSecret == nil {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		text, err := s.ClientSecret.Recent(ctx)
		return strings.TrimSpace(text), err
	}
}

// loginKeys returns the name of the scheme for API keys, if operators may use it; "": they may not.
func (c *access) loginKeys() string {
	if c.apiKeys != nil && slices.Contains(c.cfg.Admin.Schemes, c.apiKeys.Name()) {
		return c.apiKeys.Name()
	}
	return ""
}

// loginPasswords is loginKeys for users with passwords.
func (c *access) loginPasswords() string {
	if c.basic != nil && slices.Contains(c.cfg.Admin.Schemes, c.basic.Name()) {
		return c.basic.Name()
	}
	return ""
}

// loginView says how a browser can log in; nil: it cannot.
func (c *access) loginView() *admin.Login {
	if c.sessions == nil {
		return nil
	}
	v := &admin.Login{}
	if s := c.cfg.Admin.Login.Scheme; s != "" {
		v.URL = login.Path
		for i := range c.cfg.Auth.Schemes {
			if c.cfg.Auth.Schemes[i].Name == s {
				v.Issuer = c.cfg.Auth.Schemes[i].JWT.Issuer
			}
		}
	}
	if c.loginKeys() != "" {
		v.KeyURL = login.KeyPath
	}
	if c.loginPasswords() != "" {
		v.PasswordURL = login.UserPath
	}
	return v
}

// admitTyped finds the caller of an API key or a password.
func (c *access) admitTyped(ctx context.Context, r *auth.Request) (caller task.Caller, scheme, keyID string, err error) {
	gate := &auth.Gate{Schemes: slices.DeleteFunc([]string{c.loginKeys(), c.loginPasswords()}, func(s string) bool { return s == "" })}
	if caller, err = c.admin.Admit(c.admin.Authenticate(ctx, r, gate), gate); err != nil {
		return caller, "", "", err
	}
	if scheme, keyID, _ = strings.Cut(caller.Credential, "/"); scheme != c.loginKeys() {
		keyID = ""
	}
	return caller, scheme, keyID, nil
}

// permits returns an error for a caller who is no operator, and makes others the actors of the audit log.
func (c *access) permits(caller *task.Caller, scheme string) error {
	if right, _ := c.rightOf(caller); right == 0 {
		return c.needs(admin.View)
	}
	kind := auth.KindJWT
	switch scheme {
	case c.loginKeys():
		kind = auth.KindAPIKey
	case c.loginPasswords():
		kind = auth.KindBasic
	}
	*caller = acting(*caller, kind)
	return nil
}

// currentSession returns the session of a request, and its operator.
func (c *access) currentSession(r *http.Request) (id task.ID, by task.Caller, err error) {
	gate := &auth.Gate{Schemes: []string{auth.KindSession}}
	shown := c.admin.Authenticate(r.Context(), rpc.Shown(r), gate)
	if by, err = c.admin.Admit(shown, gate); err != nil {
		return id, by, err
	}
	id, err = task.ParseID(by.Credential[strings.LastIndex(by.Credential, "/")+1:])
	return id, acting(by, by.Method), err
}
