package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// NamedFilter is a filter of tasks, as in an address of the console, that has a name: a view.
type NamedFilter struct {
	Name   string `json:"name"`
	Filter string `json:"filter"`
}

const mostViews = 200

// of returns whose the views of an operator are: those of its tenant, or of the operators of all tenants.
func (o *Operator) of() (bound bool, tenant string) {
	if o.bound {
		return true, o.by.Tenant
	}
	return false, ""
}

// Views lists the views that the operator shares with others, by name.
func (o *Operator) Views(ctx context.Context) ([]NamedFilter, error) {
	bound, tenant := o.of()
	rows, err := o.s.q.Views(ctx, o.s.api, bound, tenant)
	out := make([]NamedFilter, len(rows))
	for i, r := range rows {
		out[i] = NamedFilter(r)
	}
	return out, translate("list views", err)
}

// PutView adds or replaces a view. task.Invalid: there are too many.
func (o *Operator) PutView(ctx context.Context, v NamedFilter) error {
	return translate("save a view", o.record(ctx, auditViewPut, task.ID{}, v.Name, func(tx pgx.Tx) (done bool, err error) {
		bound, tenant := o.of()
		n, err := o.s.q.ViewPut(ctx, tx, dbsqlc.ViewPutParams{Bound: bound, Tenant: tenant, Name: v.Name, Filter: v.Filter, Most: mostViews})
		if err == nil && n == 0 {
			err = &task.Error{Kind: task.Invalid, Field: "name", Msg: fmt.Sprintf("names one more view than the %d that there may be; delete one", mostViews)}
		}
		return true, err
	}))
}

// DeleteView deletes a view. task.NotFound: no view has the name.
func (o *Operator) DeleteView(ctx context.Context, name string) error {
	return translate("delete a view", o.record(ctx, auditViewDeleted, task.ID{}, name, func(tx pgx.Tx) (done bool, err error) {
		bound, tenant := o.of()
		n, err := o.s.q.ViewDelete(ctx, tx, bound, tenant, name)
		if err == nil && n == 0 {
			err = task.Errorf(task.NotFound, "no view has this name")
		}
		return true, err
	}))
}
