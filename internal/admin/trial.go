package admin

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// trialRequest describes a webhook that no task has.
type trialRequest struct {
	Reason      string `json:"reason"`
	URL         string `json:"url"`
	Dialect     string `json:"dialect"` // of the body and the headers; "": the newest
	Token       string `json:"token"`
	Scheme      string `json:"scheme"`
	Credentials string `json:"credentials"`
	// Agent, Tenant and Owner say whose task the signatures claim.
	Agent  string `json:"agent"`
	Tenant string `json:"tenant"`
	Owner  string `json:"owner"`
}

// trialTimeout is more than a challenge and a delivery take.
const trialTimeout = 5 * time.Minute

// tryWebhook makes one delivery to a receiver. Its signature may be in the name of any caller, so the audit log has it.
func (a *API) tryWebhook(x *exchange) error {
	var body trialRequest
	if err := x.body(&body); err != nil {
		return err
	}
	versions := registry.Versions()
	if body.Dialect == "" {
		body.Dialect = versions[len(versions)-1]
	}
	switch {
	case body.URL == "":
		return web.Invalid("url", "must be the URL of a receiver")
	case !slices.Contains(versions, body.Dialect):
		return web.Invalid("dialect", fmt.Sprintf("%q is not a version that this server speaks; use one of %s", body.Dialect, fmt.Sprint(versions)))
	case (body.Scheme == "") != (body.Credentials == ""):
		return web.Invalid("scheme", "needs credentials, and credentials need it")
	}
	if err := x.reasoned(body.Reason); err != nil {
		return err
	}
	owner := task.Owner{Tenant: body.Tenant, Subject: body.Owner}
	if err := x.op.AuditTrial(x.ctx, body.Agent, owner); err != nil {
		return err
	}
	hook := &task.PushConfig{ID: "test", URL: body.URL, Dialect: body.Dialect, Token: body.Token, Credentials: body.Credentials, CreatedAt: time.Now()}
	if body.Scheme != "" {
		hook.Schemes = []string{body.Scheme}
	}
	ctx, cancel := a.within(x.r.Context(), trialTimeout)
	defer cancel()
	did, err := a.o.TryWebhook(ctx, hook, body.Agent, owner)
	if err != nil {
		return err
	}
	return x.ok(did)
}

// resealTimeout bounds a reseal. Another one continues it.
const resealTimeout = 5 * time.Minute

// reseal seals stored secrets with the first key of this process.
func (a *API) reseal(x *exchange) error {
	if err := x.reason(); err != nil {
		return err
	}
	if !a.o.Reseals {
		return task.Errorf(task.Unsupported, "HOLDFAST_SECRET_KEYS has no key; make one with openssl rand -base64 32")
	}
	ctx, cancel := a.within(x.r.Context(), resealTimeout)
	defer cancel()
	n, err := x.op.Reseal(ctx)
	view := shown.Resealed{Sealed: n}
	if failed := (*task.Error)(nil); errors.As(err, &failed) {
		return err
	} else if err != nil {
		view.Error = bounded(err.Error())
	}
	return x.ok(view)
}
