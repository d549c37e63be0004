package retention

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// Policy is how long an agent's tasks are kept. 0 means forever.
type Policy struct {
	Tasks     time.Duration // after they have ended
	Artifacts time.Duration // after their task has ended
	Parked    time.Duration // before a task that waits for a client is canceled
}

func (p Policy) tasks() time.Duration     { return p.Tasks }
func (p Policy) artifacts() time.Duration { return p.Artifacts }

// Options configures how long data is kept. The zero value of a duration means forever.
type Options struct {
	Store   *store.Store
	Default Policy
	Agents  map[string]Policy // agents with their own policy

	Keys, Attempts, Audit, Processes time.Duration

	// Export is the directory that tasks are exported to before they are deleted; "" means no
	// export.
	Export string
	Log    *slog.Logger
}

// Retention deletes old data. Each method does a piece of work that takes seconds at most, and
// reports whether more is left. Several processes may run them at once.
type Retention struct {
	Options
	now func(context.Context) (time.Time, error)
}

// New returns a Retention.
func New(o Options) *Retention {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Retention{Options: o, now: o.Store.Now}
}

// Widths returns the partition widths that fit the policies: a period is a fraction of the shortest
// retention.
func (o *Options) Widths() store.Widths {
	shortest := o.Default.shortest()
	for _, p := range o.Agents {
		if d := p.shortest(); d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return store.Widths{Tasks: partition.For(shortest), Attempts: partition.For(o.Attempts), Audit: partition.For(o.Audit)}
}

func (p Policy) shortest() time.Duration {
	if p.Tasks == 0 || p.Artifacts > 0 && p.Artifacts < p.Tasks {
		return p.Artifacts
	}
	return p.Tasks
}

// Of returns the policy of an agent. An agent that is no longer configured has the default policy.
func (r *Retention) Of(agent string) Policy {
	if p, ok := r.Agents[agent]; ok {
		return p
	}
	return r.Default
}

// ExpireParked cancels tasks that have been parked for longer than their policy allows.
func (r *Retention) ExpireParked(ctx context.Context) (more bool, err error) {
	agents, err := r.Store.ParkedAgents(ctx)
	for _, agent := range agents {
		after := r.Of(agent).Parked
		if after == 0 {
			continue
		}
		reason := fmt.Sprintf("The server canceled this task: it waited for its client for more than %s.", plain(after))
		n, left, err := r.Store.ExpireParked(ctx, agent, after, reason)
		if err != nil {
			return false, err
		}
		if n > 0 {
			r.Log.Info("parked tasks expired", "agent", agent, "tasks", n)
		}
		more = more || left
	}
	return more, err
}

// plain formats a duration for people.
func plain(d time.Duration) string {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}} {
		if n := d / unit.d; n > 0 && d%unit.d == 0 {
			if n == 1 {
				return "a " + unit.name
			}
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return d.String()
}

// EraseLogs deletes the logs of tasks whose rows were deleted individually.
func (r *Retention) EraseLogs(ctx context.Context) (more bool, err error) {
	return r.Store.EraseLogs(ctx)
}
