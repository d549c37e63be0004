package worker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Remote agents run in other processes, which connect and claim runs (package workerapi). Their runs have leases of their
// own, so they belong to no server process: what follows acts for a run as a visit does.

// ErrNotLent says that a run has ended in Lend: nobody gets it.
var ErrNotLent = errors.New("the run has ended before an agent began it")

// Lend begins a run that a remote worker has claimed. It writes the status working as for other agents, and ends a run that
// must not start: ErrNotLent. ctx is that of the visit.
func (p *Pool) Lend(ctx context.Context, c *store.Claimed) (*Visit, error) {
	r, err := p.elsewhere(ctx, c)
	if err != nil {
		return nil, err
	}
	if outcome, err := r.unfit(); outcome != "" {
		p.opt.Log.Info("a run of a remote agent ended before it began", "task_id", c.Task.PublicID, "agent", c.Task.Agent,
			"attempt", int(c.Attempt), "outcome", outcome, "error", err)
		return nil, ErrNotLent
	}
	in, err := r.input()
	if err != nil {
		return nil, err
	}
	if !r.agent.DirectReplies {
		if err := r.out.working(r.ctx); err != nil {
			return nil, err
		}
	}
	return &Visit{run: r, found: &store.Run{Claimed: c, Owned: true, Posted: true, Since: r.claimed}, Run: r.execution(in)}, nil
}

// EndOf ends the run for a reason that is not its agent's: executor.ErrCanceled, ErrTimeout or ErrInactivity.
func (v *Visit) EndOf(cause error) error {
	v.run.out.ending = true
	v.run.interrupt(cause)
	return v.End(cause)
}

// Expire tells the pool that no worker of a remote agent has been connected for UnreachableFor: the tasks that have waited
// for so long fail.
func (p *Pool) Expire(agent string) {
	p.mu.Lock()
	if s := p.agents[agent]; s != nil && s.Remote {
		s.expire, s.ready = true, true
	}
	p.mu.Unlock()
	p.ring()
}

// RemoteAgents returns the agents that remote workers run, by name.
func (p *Pool) RemoteAgents() map[string]*Agent {
	out := map[string]*Agent{}
	for name, s := range p.agents {
		if s.Remote {
			out[name] = &s.Agent
		}
	}
	return out
}

// GiveBackRemote ends an attempt of a remote worker without counting it.
func (p *Pool) GiveBackRemote(ctx context.Context, c *store.Claimed, why string) error {
	err := p.opt.Store.GiveBack(ctx, store.Requeue{
		Task: c.Task.ID, Agent: c.Task.Agent, Fence: c.Fence, Uncount: true, Posted: true,
		Note: task.RunNote{Outcome: task.RunReturned, Error: why},
	})
	if errors.Is(err, task.LeaseLost) {
		return nil
	}
	return err
}

// HealthyFor returns for how long the lease of the process has been renewed without a break; 0 while it is not.
func (k *Keeper) HealthyFor() time.Duration {
	since := k.healthy.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}
