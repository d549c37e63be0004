package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

type replicaView struct {
	store.AdminProcess
	// This says that the process answers this request.
	This bool `json:"this,omitempty"`
}

type replicasView struct {
	Replicas []replicaView `json:"replicas"`
	// Duties are those that processes have or had.
	Duties []store.Duty `json:"duties"`
}

func (a *API) replicas(x *exchange) error {
	rows, err := a.o.Store.Registered(x.ctx)
	if err != nil {
		return err
	}
	duties, err := a.o.Store.Duties(x.ctx)
	if err != nil {
		return err
	}
	view, this := replicasView{Replicas: []replicaView{}, Duties: duties}, a.o.Worker()
	for _, p := range rows {
		view.Replicas = append(view.Replicas, replicaView{p, p.ID == this})
	}
	return x.ok(view)
}

func (a *API) limits(x *exchange) error {
	q, err := a.queues(x.ctx)
	if err != nil {
		return err
	}
	view := limitsUse{Streams: a.streams.Taken(), MaxStreams: a.o.Streams, Memory: []memoryUse{}, Agents: []agentUse{}}
	a.o.Memory.Each(func(name string, now limit.BudgetStat) {
		view.Memory = append(view.Memory, memoryUse{name, now.Used, now.Size, now.Refused})
	})
	for i := range a.o.Agents {
		name := a.o.Agents[i].Name
		use := agentUse{Agent: name, Parked: q.parked[name]}
		for j := range q.depths {
			if d := &q.depths[j]; d.Agent == name {
				use.Waiting, use.Running = d.Waiting, d.Running
			}
		}
		view.Agents = append(view.Agents, use)
	}
	whole, err := withMember(a.o.Limits, "use", view)
	if err != nil {
		return err
	}
	return x.ok(whole)
}

// limitsUse is how much of the limits is used now: memory and streams of this process, tasks of all.
type limitsUse struct {
	Memory     []memoryUse `json:"memory"`
	Streams    int         `json:"admin_streams"`
	MaxStreams int         `json:"max_admin_streams"`
	Agents     []agentUse  `json:"agents"`
}

type memoryUse struct {
	Budget  string `json:"budget"`
	Used    int64  `json:"used"`
	Size    int64  `json:"size"`
	Refused int64  `json:"refused"` // since the process started
}

type agentUse struct {
	Agent   string `json:"agent"`
	Waiting int64  `json:"waiting"`
	Running int64  `json:"running"`
	Parked  int64  `json:"parked"`
}

// withMember adds a member to a JSON object.
func withMember(object any, name string, value any) (json.RawMessage, error) {
	raw, err := web.Marshal(object)
	if err != nil {
		return nil, err
	}
	more, err := web.Marshal(map[string]any{name: value})
	if err != nil {
		return nil, err
	}
	raw, more = bytes.TrimSpace(raw), bytes.TrimSpace(more)
	return append(append(raw[:len(raw)-1], ','), more[1:]...), nil
}

func (a *API) plan(x *exchange) error {
	steps, err := a.o.Retention.Plan(x.ctx)
	if err != nil {
		return err
	}
	return x.ok(shown.Plan{Steps: append([]retention.Step{}, steps...)})
}

type findingsView struct {
	Status doctor.Status    `json:"status"`
	Checks []doctor.Finding `json:"checks"`
}

// examine makes the checks of doctor, one examination at a time.
func (a *API) examine(x *exchange) error {
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

var _ http.Handler = (*API)(nil)
