package admin

import (
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

type sessionView struct {
	ID        task.ID   `json:"id"`
	Scheme    string    `json:"scheme"`
	Key       string    `json:"key,omitempty"` // the id of the API key that opened it
	Tenant    string    `json:"tenant"`
	Subject   string    `json:"subject"`
	Scopes    []string  `json:"scopes"`
	Address   string    `json:"address"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

type sessionsView struct {
	Sessions []sessionView `json:"sessions"`
}

// sessions lists the open sessions of browsers, the newest first.
func (a *API) sessions(x *exchange) error {
	limit := x.q.limit()
	if err := x.q.done(); err != nil {
		return err
	}
	all, err := x.op.Sessions(x.ctx, limit)
	if err != nil {
		return err
	}
	view := sessionsView{Sessions: []sessionView{}}
	for _, s := range all {
		view.Sessions = append(view.Sessions, sessionView{
			s.ID, s.Scheme, s.KeyID, s.By.Tenant, s.By.Subject, s.By.Scopes, s.By.Address, s.CreatedAt, s.ExpiresAt,
		})
	}
	return x.ok(view)
}

// endSession ends a session of a browser, on all replicas.
func (a *API) endSession(x *exchange) error {
	if err := x.reason(); err != nil {
		return err
	}
	id, err := task.ParseID(x.r.PathValue("id"))
	if err != nil {
		return task.Errorf(task.NotFound, "no session has this id")
	}
	if err := x.op.EndSession(x.ctx, id); err != nil {
		if task.KindOf(err) == task.NotFound {
			err = task.Errorf(task.NotFound, "no session has this id")
		}
		return err
	}
	return x.ok(outcome{Outcome: outcomeEnded})
}
