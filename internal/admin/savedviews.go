package admin

import (
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

type viewsView struct {
	Views []store.NamedFilter `json:"views"`
}

// views lists the views that the operator shares with others of its tenant.
func (a *API) views(x *exchange) error {
	views, err := x.op.Views(x.ctx)
	if err != nil {
		return err
	}
	return x.ok(viewsView{views})
}

const outcomeSaved, outcomeDeleted = "saved", "deleted"

// putView adds or replaces a view.
func (a *API) putView(x *exchange) error {
	var body struct {
		Filter string `json:"filter"`
	}
	if err := x.body(&body); err != nil {
		return err
	}
	name := x.r.PathValue("name")
	switch {
	case strings.TrimSpace(name) != name || len(name) > 200 || badText(name):
		return web.Invalid("name", "must be 1 to 200 bytes, without NUL and without spaces at its ends")
	case body.Filter == "" || len(body.Filter) > 4096 || strings.ContainsRune(body.Filter, 0):
		return web.Invalid("filter", "must be 1 to 4096 bytes, without NUL; write the query of an address of the console: state=failed&since=24h")
	}
	if err := x.op.PutView(x.ctx, store.NamedFilter{Name: name, Filter: body.Filter}); err != nil {
		return err
	}
	return x.ok(outcome{Outcome: outcomeSaved})
}

// deleteView deletes a view.
func (a *API) deleteView(x *exchange) error {
	if err := x.op.DeleteView(x.ctx, x.r.PathValue("name")); err != nil {
		return err
	}
	return x.ok(outcome{Outcome: outcomeDeleted})
}
