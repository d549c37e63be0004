package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

func (a *API) replicas(x *exchange) error {
	rows, err := a.o.Store.Registered(x.ctx)
	if err != nil {
		return err
	}
	duties, err := a.o.Store.Duties(x.ctx)
	if err != nil {
		return err
	}
	view, this := shown.Replicas{Replicas: []shown.Replica{}, Duties: duties}, a.o.Worker()
	for _, p := range rows {
		view.Replicas = append(view.Replicas, shown.Replica{AdminProcess: p, This: p.ID == this})
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
	return x.ok(struct {
		*Limits
		Use limitsUse `json:"use"`
	}{a.o.Limits, view})
}

// Limits has the limits of a server. Sizes are in bytes, times in seconds; 0 means no limit or the default.
type Limits struct {
	MemoryBytes           int64        `json:"memory_bytes"`
	MaxBodyBytes          int64        `json:"max_body_bytes"`
	MaxParts              int          `json:"max_parts"`
	MaxDepth              int          `json:"max_depth"`
	MaxBlockSeconds       float64      `json:"max_block_seconds"`
	MaxStreams            int          `json:"max_streams"`
	MaxConnections        int          `json:"max_connections"`
	ConnectionsPerAddress int          `json:"connections_per_address"`
	Rate                  int          `json:"rate"`
	Burst                 int          `json:"burst"`
	Streams               int          `json:"streams"`
	LiveTasks             int          `json:"live_tasks"`
	Agents                []AgentLimit `json:"agents"`
}

// AgentLimit has the limits of an agent.
type AgentLimit struct {
	Agent             string  `json:"agent"`
	Concurrency       int     `json:"concurrency,omitzero"` // absent: that of its remote workers
	MaxAttempts       int     `json:"max_attempts"`
	Queue             int     `json:"queue"`
	LiveTasks         int     `json:"live_tasks"`
	PendingMessages   int     `json:"pending_messages"`
	RunSeconds        float64 `json:"run_seconds"`
	InactivitySeconds float64 `json:"inactivity_seconds"`
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

func (a *API) plan(x *exchange) error {
	steps, err := a.o.Retention.Plan(x.ctx)
	if err != nil {
		return err
	}
	return x.ok(shown.Plan{Steps: append([]retention.Step{}, steps...)})
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
	made := doctor.NewReport()
	a.o.Examine(ctx, made.Add)
	return x.ok(made)
}

var _ http.Handler = (*API)(nil)
