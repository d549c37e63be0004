package adminapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/doctor"
	"github.com/holdfast-a2a/holdfast/internal/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

type agentView struct {
	Name        string      `json:"name"`
	Default     bool        `json:"default,omitempty"`
	Kind        string      `json:"kind"`
	Concurrency int         `json:"concurrency"`
	MaxAttempts int         `json:"max_attempts"`
	Away        *awayView   `json:"away,omitempty"`
	Queue       *depthsView `json:"queue,omitempty"`
}

type awayView struct {
	Since  time.Time `json:"since"`
	LastAt time.Time `json:"last_at"`
	Error  string    `json:"error,omitempty"`
}

type depthsView struct {
	Waiting       int64   `json:"waiting"`
	Running       int64   `json:"running"`
	Timers        int64   `json:"timers"`
	Calls         int64   `json:"calls"`
	Parked        int64   `json:"parked"` // counted up to 10,000
	OldestSeconds float64 `json:"oldest_seconds"`
}

type agentsView struct {
	Agents []*agentView `json:"agents"`
}

// agentViews shows the configured agents, with their health, and their queues to operators who see all tenants.
func (a *API) agentViews(x *exchange) ([]*agentView, error) {
	all, byName := make([]*agentView, len(a.o.Agents)), map[string]*agentView{}
	names := make([]string, len(all))
	for i := range a.o.Agents {
		g := &a.o.Agents[i]
		all[i] = &agentView{Name: g.Name, Default: g.Default, Kind: g.Kind, Concurrency: g.Concurrency, MaxAttempts: g.MaxAttempts}
		names[i], byName[g.Name] = g.Name, all[i]
	}
	outages, err := a.o.Store.Outages(x.ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range outages {
		if v := byName[o.Agent]; v != nil {
			v.Away = &awayView{o.Since.UTC(), o.LastAt.UTC(), bounded(o.Error)}
		}
	}
	if x.who.Bound {
		return all, nil
	}
	depths, err := a.o.Store.QueueDepths(x.ctx)
	if err != nil {
		return nil, err
	}
	parked, err := a.o.Store.Parked(x.ctx, names)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		v.Queue = &depthsView{Parked: parked[v.Name]}
	}
	for i := range depths {
		d := &depths[i]
		if v := byName[d.Agent]; v != nil {
			v.Queue.Waiting, v.Queue.Running, v.Queue.Timers, v.Queue.Calls, v.Queue.OldestSeconds = d.Waiting, d.Running, d.Timers, d.Calls, d.Oldest.Seconds()
		}
	}
	return all, nil
}

func (a *API) agents(x *exchange) error {
	if err := x.q.done(); err != nil {
		return err
	}
	all, err := a.agentViews(x)
	if err != nil {
		return err
	}
	return x.ok(agentsView{all})
}

type agentDetail struct {
	*agentView
	Card json.RawMessage `json:"card,omitempty"`
}

func (a *API) agent(x *exchange) error {
	if err := x.q.done(); err != nil {
		return err
	}
	all, err := a.agentViews(x)
	if err != nil {
		return err
	}
	for i, v := range all {
		if v.Name != x.r.PathValue("name") {
			continue
		}
		d := agentDetail{agentView: v}
		if card := a.o.Agents[i].Card; card != nil {
			if d.Card, err = card(); err != nil {
				return err
			}
		}
		return x.ok(d)
	}
	return task.Errorf(task.NotFound, "no agent of the configuration has this name")
}

type replicaView struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Roles      string    `json:"roles"`
	StartedAt  time.Time `json:"started_at"`
	LeaseUntil time.Time `json:"lease_until"`
	Alive      bool      `json:"alive"`
	Running    int64     `json:"running"`
	Duties     []string  `json:"duties"`
	// This says that the process answers this request.
	This bool `json:"this,omitempty"`
}

type replicasView struct {
	Replicas []replicaView `json:"replicas"`
}

func (a *API) replicas(x *exchange) error {
	if err := x.q.done(); err != nil {
		return err
	}
	rows, err := a.o.Store.Registered(x.ctx)
	if err != nil {
		return err
	}
	view, this := replicasView{Replicas: []replicaView{}}, a.o.Worker()
	for _, p := range rows {
		view.Replicas = append(view.Replicas, replicaView{
			ID: p.ID.String(), Name: p.Name, Version: p.Version, Roles: p.Roles, StartedAt: p.StartedAt.UTC(), LeaseUntil: p.LeaseUntil.UTC(),
			Alive: p.Alive, Running: p.Running, Duties: p.Duties, This: p.ID == this,
		})
	}
	return x.ok(view)
}

func (a *API) limits(x *exchange) error {
	if err := x.q.done(); err != nil {
		return err
	}
	return x.ok(a.o.Limits)
}

type planView struct {
	Steps []shown.Step `json:"steps"`
}

func (a *API) plan(x *exchange) error {
	if err := x.q.done(); err != nil {
		return err
	}
	steps, err := a.o.Retention.Plan(x.ctx)
	if err != nil {
		return err
	}
	view := planView{Steps: []shown.Step{}}
	for i := range steps {
		view.Steps = append(view.Steps, shown.OfStep(&steps[i]))
	}
	return x.ok(view)
}

type findingsView struct {
	Status doctor.Status    `json:"status"`
	Checks []doctor.Finding `json:"checks"`
}

// examine makes the checks of doctor, one examination at a time.
func (a *API) examine(x *exchange) error {
	if err := x.q.done(); err != nil {
		return err
	}
	select {
	case a.doctor <- struct{}{}:
		defer func() { <-a.doctor }()
	default:
		return &task.Error{Kind: task.RateLimited, Msg: "another examination is under way", RetryAfter: 5 * time.Second}
	}
	// The checks have limits of their own.
	ctx, cancel := context.WithTimeout(x.r.Context(), 5*time.Minute)
	defer cancel()
	view := findingsView{Status: doctor.OK, Checks: []doctor.Finding{}}
	a.o.Examine(ctx, func(f doctor.Finding) {
		view.Checks = append(view.Checks, f)
		if f.Status == doctor.Fail || f.Status == doctor.Warn && view.Status == doctor.OK {
			view.Status = f.Status
		}
	})
	return x.ok(view)
}

type keysPage struct {
	Keys []shown.Key `json:"keys"`
	Next string      `json:"next,omitempty"`
}

// keys lists API keys, never their secrets.
func (a *API) keys(x *exchange) error {
	before, limit := x.q.word("before"), x.q.limit()
	if err := x.q.done(); err != nil {
		return err
	}
	all, err := a.o.Store.APIKeys(x.ctx)
	if err != nil {
		return err
	}
	page, now, begun := keysPage{Keys: []shown.Key{}}, time.Now(), before == ""
	for _, k := range all {
		switch {
		case x.who.Bound && k.Tenant != x.who.Caller.Tenant:
		case !begun:
			begun = k.ID == before
		case len(page.Keys) == limit:
			page.Next = page.Keys[limit-1].ID
			return x.ok(page)
		default:
			page.Keys = append(page.Keys, shown.OfKey(k, now))
		}
	}
	if !begun {
		return invalid("before", "no key has this id; give the next of the page before")
	}
	return x.ok(page)
}

type auditView struct {
	At      time.Time       `json:"at"`
	Chain   int             `json:"chain"`
	N       int64           `json:"n"`
	Login   string          `json:"login"`
	Entries json.RawMessage `json:"entries"`
}

type auditPage struct {
	Rows []auditView `json:"rows"`
	Next string      `json:"next,omitempty"`
}

func (a *API) audit(x *exchange) error {
	before, since, limit := x.q.auditPlace(), x.q.time("since"), x.q.limit()
	if err := x.q.done(); err != nil {
		return err
	}
	rows, err := a.o.Store.Audit(x.ctx, before, since, limit+1)
	if err != nil {
		return err
	}
	page := auditPage{Rows: []auditView{}}
	if len(rows) > limit {
		rows = rows[:limit]
		last := rows[limit-1]
		page.Next = strconv.FormatInt(last.At.UnixMicro(), 10) + "." + strconv.Itoa(last.Chain) + "." + strconv.FormatInt(last.N, 10)
	}
	for _, r := range rows {
		page.Rows = append(page.Rows, auditView{r.At.UTC(), r.Chain, r.N, r.Login, r.Entries})
	}
	return x.ok(page)
}

// auditPlace reads the parameter before of the audit log: microseconds, chain and row.
func (q *query) auditPlace() (p store.AuditPlace) {
	v := q.word("before")
	if v == "" {
		return p
	}
	var n [3]int64
	parts := strings.Split(v, ".")
	for i := range parts {
		var err error
		if i < len(n) {
			n[i], err = strconv.ParseInt(parts[i], 10, 64)
		}
		if err != nil || len(parts) != len(n) || n[i] < 0 || i == 0 && n[0] > 1<<53 || i == 1 && n[1] > 64 {
			q.bad("before", "%q is not a place in the log; give the next of the page before", v)
			return p
		}
	}
	return store.AuditPlace{At: time.UnixMicro(n[0]), Chain: int(n[1]), N: n[2]}
}

var _ http.Handler = (*API)(nil)
