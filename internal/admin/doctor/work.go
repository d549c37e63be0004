package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// These checks look at the tables of Holdfast, most of them by the figures of the admin API.

func (d *database) partitions(ctx context.Context) ([]Finding, error) {
	var now time.Time
	if err := d.pool.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return nil, err
	}
	var found findings
	for _, f := range partition.Families {
		there, err := partition.List(ctx, d.pool, f)
		if err != nil {
			return nil, err
		}
		var present, ahead bool
		for _, p := range there {
			present = present || !p.From.After(now) && p.To.After(now)
			ahead = ahead || p.From.After(now)
			if p.Detaching {
				found = append(found, warns("%s is half detached", p.Table).
					advise("a server finishes this when it drops old partitions; until then no other partition of %s can be dropped", p.Parent)...)
			}
		}
		if !present || !ahead {
			found = append(found, warns("%s: the partition for now or for the next period is missing", f.Name).
				advise("start a server, or look for \"partitions\" in its log; a server creates partitions when it starts and every few minutes")...)
		}
	}
	return found.orOK("the partitions for now and for the next period exist"), nil
}

func (d *database) workers(ctx context.Context) ([]Finding, error) {
	s, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.Registered(ctx)
	if err != nil {
		return nil, err
	}
	var dead []string
	versions := map[string]bool{}
	for _, p := range all {
		if p.Alive {
			versions[p.Version] = true
		} else {
			dead = append(dead, fmt.Sprintf("%s (for %s)", p.Name, time.Since(p.LeaseUntil).Round(time.Second)))
		}
	}
	live, working := len(all)-len(dead), withRole(all, config.RoleWorker)
	var found findings
	if len(dead) > 0 {
		found = append(found, warns("%d processes do not renew their lease: %s", len(dead), strings.Join(dead, ", ")).
			advise("they died or cannot reach the database; a live server rescues their runs")...)
	}
	switch {
	case live == 0:
		found = append(found, warns("no process is alive, so tasks wait").advise("start a server")...)
	case working == 0:
		found = append(found, warns("%d processes are alive, but none has the role worker, so tasks wait", live).advise("start one with the role worker")...)
	case len(versions) > 1:
		found = append(found, warns("%d processes are alive, with %d different versions", live, len(versions)).advise("finish the upgrade; during one this is normal")...)
	}
	return found.orOK("%d processes are alive, %d with the role worker", live, working), nil
}

// withRole counts the processes that are alive and have a role.
func withRole(all []store.AdminProcess, role config.Role) (n int) {
	for _, p := range all {
		if p.Alive && slices.Contains(strings.Split(p.Roles, ","), string(role)) {
			n++
		}
	}
	return n
}

// longWait is how long a task may wait for a worker before doctor reports it.
const longWait = time.Minute

// agents reports, once for each agent, why its tasks wait or fail, if they do.
func (d *database) agents(ctx context.Context) ([]Finding, error) {
	s, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	depths, err := s.QueueDepths(ctx)
	if err != nil {
		return nil, err
	}
	queues, names := map[string]store.QueueDepth{}, []string{}
	for _, q := range depths {
		queues[q.Agent] = q
		names = append(names, q.Agent)
	}
	served, err := s.AgentsServed(ctx)
	if err != nil {
		return nil, err
	}
	names = slices.AppendSeq(names, maps.Keys(served))
	slices.Sort(names)
	healths, err := s.Operator(task.Caller{}, false).AgentHealths(ctx, slices.Compact(names))
	if err != nil {
		return nil, err
	}
	var found findings
	for _, h := range healths {
		of := d.agent(&h, queues[h.Agent], len(served) > 0)
		of[0].Agent = h.Agent
		found = append(found, of...)
	}
	return found.orOK("none has tasks"), nil
}

// agent judges one agent. Without a live process the check of workers says why tasks wait.
func (d *database) agent(h *store.AgentHealth, q store.QueueDepth, live bool) findings {
	detail := fmt.Sprintf("%s: %d queued, %d running", h.Agent, q.Waiting, q.Running)
	if q.Timers > 0 {
		detail += fmt.Sprintf(", %d with a timer", q.Timers)
	}
	if q.Calls > 0 {
		detail += fmt.Sprintf(", %d with calls", q.Calls)
	}
	if q.OldestSeconds > 0 {
		detail += ", the oldest due for " + seconds(q.OldestSeconds)
	}
	sick := fmt.Sprintf("%s; %s: %s", detail, h.Health, h.Reason)
	if !h.Since.IsZero() {
		sick = fmt.Sprintf("%s; %s for %s: %s", detail, h.Health, time.Since(h.Since).Round(time.Second), h.Reason)
	}
	known := d.Unnamed || slices.ContainsFunc(d.Config.Agents, func(a config.Agent) bool { return a.Name == h.Agent })
	switch {
	case q.Waiting+q.Timers+q.Calls > 0 && !known:
		return warns("%s; this configuration has no such agent", detail).
			advise("configure the agent, or run holdfast tasks cancel; if no replica has the agent, the tasks wait forever")
	case h.Health == store.HealthAway:
		return warns("%s", sick).advise("start the agent; its tasks wait for at most agents[].limits.unreachable_for")
	case live && q.Waiting > 0 && (h.Health == store.HealthNoWorker || h.Health == store.HealthDraining):
		return warns("%s", sick).advise("start a worker of the agent; its tasks wait for at most agents[].limits.unreachable_for")
	case h.Health == store.HealthFailing:
		return warns("%s", sick).advise("see why: the page of the agent in the console, or holdfast tasks list --agent %s --state failed", h.Agent)
	case live && q.OldestSeconds > longWait.Seconds():
		return warns("%s", detail).
			advise("find out whether workers are too few or stuck: see the agent's limits.concurrency and holdfast_runs_active")
	}
	return oks("%s", detail)
}

// webhooks checks the backlog of deliveries, and which replicas deliver.
func (d *database) webhooks(ctx context.Context) ([]Finding, error) {
	if !d.Config.Push.Enabled {
		return oks("push.enabled is false: clients cannot set webhooks, and nothing is delivered"), nil
	}
	s, err := d.open(ctx)
	if err != nil {
		return nil, err
	}
	processes, err := s.Registered(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := s.CountPushes(ctx)
	if err != nil {
		return nil, err
	}
	lags, err := s.PushLags(ctx)
	if err != nil {
		return nil, err
	}
	var found findings
	delivering := withRole(processes, config.RolePush)
	if live := slices.ContainsFunc(processes, func(p store.AdminProcess) bool { return p.Alive }); live && delivering == 0 {
		found = append(found, warns("no live process has the role push: nothing is delivered").
			advise("start one with the role push, or set push.enabled to false so that clients do not rely on webhooks")...)
	}
	if counts.Oldest > longWait {
		found = append(found, warns("the longest overdue one has waited for %s for a replica", counts.Oldest.Round(time.Second)).
			advise("no replica delivers, or they are too slow: see workers above, push.concurrency, and holdfast_push_in_flight")...)
	}
	for _, h := range lags.Hosts {
		if since := time.Since(h.Since); h.Failing > h.Disabled && since > longFailing {
			found = append(found, warns("%d to %s fail, the first for %s: %s", h.Failing-h.Disabled, h.Host, since.Round(time.Second), h.Error).
				advise("the receiver is down or refuses: see holdfast webhooks list --failing; after push.give_up_after, or earlier if it never accepted one, the server disables them")...)
		}
	}
	if counts.Disabled > 0 {
		found = append(found, warns("%d are disabled", counts.Disabled).
			advise("see holdfast webhooks list --disabled for the reasons; when a receiver is back, resume with holdfast webhooks enable")...)
	}
	return found.orOK("%d have something to deliver; %d processes deliver", counts.Backlog, delivering), nil
}

// longFailing is how long a receiver may fail before doctor reports it.
const longFailing = 10 * time.Minute

// runs looks for running tasks without a live worker, and for open tasks that are not in the queue.
func (d *database) runs(ctx context.Context) ([]Finding, error) {
	var orphans, lost int
	var example *string
	err := d.pool.QueryRow(ctx, `SELECT
		(SELECT count(*)::int FROM holdfast.task_queue q WHERE q.worker_id IS NOT NULL
		   AND CASE WHEN q.lease_until IS NOT NULL THEN q.lease_until < now() -- of a remote worker
		            ELSE NOT EXISTS (SELECT FROM holdfast.workers w WHERE w.id = q.worker_id AND w.lease_until >= now()) END),
		l.n::int, l.example FROM (SELECT count(*) AS n, min(t.id::text) AS example FROM holdfast.tasks t
		 WHERE t.state < 3 AND NOT EXISTS (SELECT FROM holdfast.task_queue q WHERE q.id = t.id)) l`).Scan(&orphans, &lost, &example)
	if err != nil {
		return nil, err
	}
	var found findings
	if lost > 0 {
		found = append(found, fails("%d tasks are submitted or working but not in the queue, so no worker will run them (such as %s)", lost, *example).
			advise("please report this, unless the database was edited or restored in part; holdfast tasks events shows their logs")...)
	}
	if orphans > 0 {
		found = append(found, warns("%d tasks have a run on a dead process", orphans).
			advise("a live server rescues them within its lease_ttl and a few seconds; if none is alive, start one")...)
	}
	return found.orOK("every run has a live worker"), nil
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
