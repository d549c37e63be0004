package admin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// keys lists API keys, never their secrets.
func (a *API) keys(x *exchange) error {
	before, limit := x.q.word("before"), x.q.limit()
	if err := x.q.done(); err != nil {
		return err
	}
	found, err := x.op.ListAPIKeys(x.ctx, before, limit+1)
	if task.KindOf(err) == task.NotFound {
		return web.Invalid("before", "no key has this id; give the next of the page before")
	} else if err != nil {
		return err
	}
	page, now := shown.KeysPage{Keys: []shown.Key{}, Accepted: a.o.KeysAccepted}, time.Now()
	if len(found) > limit {
		found = found[:limit]
		page.Next = found[limit-1].ID
	}
	for _, k := range found {
		page.Keys = append(page.Keys, shown.OfKey(k, now))
	}
	return x.ok(page)
}

type keyRequest struct {
	Reason           string   `json:"reason"`
	Name             string   `json:"name"`
	Tenant           *string  `json:"tenant"`
	Subject          string   `json:"subject"`
	Scopes           []string `json:"scopes"`
	ExpiresInSeconds int64    `json:"expires_in_seconds"`
}

// Bounds of a new key.
const (
	maxKeyName = 255 // bytes
	maxScopes  = 100
	maxScope   = 255 // bytes
	maxKeyLife = 100 * 365 * 24 * time.Hour
)

func (r *keyRequest) check() error {
	switch {
	case r.Subject == "":
		return web.Invalid("subject", "must name the caller that the key stands for")
	case len(r.Name) > maxKeyName || strings.ContainsRune(r.Name, 0):
		return web.Invalid("name", "must not be longer than 255 bytes, and have no NUL")
	case len(r.Scopes) > maxScopes:
		return web.Invalid("scopes", "must not be more than 100")
	case r.ExpiresInSeconds < 0 || r.ExpiresInSeconds > int64(maxKeyLife/time.Second):
		return web.Invalid("expires_in_seconds", "must be from 0 (never) to 100 years")
	}
	for _, scope := range r.Scopes {
		// As RFC 6749 defines scopes.
		if scope == "" || len(scope) > maxScope || strings.ContainsFunc(scope, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }) {
			return web.Invalid("scopes", "a scope is at most 255 visible ASCII characters, without space, quote and backslash")
		}
	}
	return nil
}

// addKey creates an API key. The answer is the only place that has its secret.
func (a *API) addKey(x *exchange) error {
	if x.r.Header.Values("Idempotency-Key") != nil {
		return web.Invalid("Idempotency-Key", "is not for keys: their secret is shown once; list the keys and revoke the one whose answer was lost")
	}
	var body keyRequest
	if err := x.body(&body); err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	k := store.APIKey{Name: body.Name, Subject: body.Subject, Scopes: body.Scopes}
	if body.Tenant != nil {
		k.Tenant = *body.Tenant
	}
	if x.who.Bound {
		own := x.who.Caller.Tenant
		switch {
		case body.Tenant != nil && k.Tenant != own:
			return web.Refuse(http.StatusForbidden, web.ReasonForbidden, "tenant", "operators of one tenant create keys of their tenant only")
		case slices.Contains(k.Scopes, a.o.AllTenantsScope):
			return web.Refuse(http.StatusForbidden, web.ReasonForbidden, "scopes", "operators of one tenant may not give the scope "+a.o.AllTenantsScope)
		}
		k.Tenant = own
	}
	if err := auth.CheckSubject(k.Tenant, k.Subject); err != nil {
		return web.Invalid("subject", err.Error())
	}
	if err := x.reasoned(body.Reason); err != nil {
		return err
	}
	secret, id, hash := auth.NewAPIKey()
	k.ID, k.Hash = id, hash
	made, err := x.op.AddAPIKey(x.ctx, &k, time.Duration(body.ExpiresInSeconds)*time.Second)
	if err != nil {
		return err
	}
	view := shown.OfKey(made, time.Now())
	view.Key = secret
	return x.answer(http.StatusCreated, view)
}

// revokeKey revokes an API key.
func (a *API) revokeKey(x *exchange) error {
	if err := x.reason(); err != nil {
		return err
	}
	k, err := x.op.RevokeAPIKey(x.ctx, x.r.PathValue("id"))
	switch {
	case err != nil:
		return err
	case k == nil:
		return task.Errorf(task.NotFound, "no key has this id")
	}
	return x.ok(shown.OfKey(k, time.Now()))
}
