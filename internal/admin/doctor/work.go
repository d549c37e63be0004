package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
)

// These checks look at the tables of Holdfast.

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
	rows, err := d.pool.Query(ctx, `SELECT name, version, roles, extract(epoch FROM now() - lease_until)::float8 FROM holdfast.workers ORDER BY name`)
	if err != nil {
		return nil, err
	}
	type process struct {
		name, version, roles string
		late                 float64
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (p process, err error) {
		return p, r.Scan(&p.name, &p.version, &p.roles, &p.late)
	})
	if err != nil {
		return nil, err
	}
	live, working := 0, 0
	var dead []string
	versions := map[string]bool{}
	for _, p := range all {
		if p.late > 0 {
			dead = append(dead, fmt.Sprintf("%s (for %s)", p.name, seconds(p.late)))
			continue
		}
		live++
		versions[p.version] = true
		if slices.Contains(strings.Split(p.roles, ","), "worker") {
			working++
		}
	}
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

// longWait is how long a task may wait for a worker before doctor reports it.
const longWait = time.Minute

// outages reports the agents that workers cannot reach.
func (d *database) outages(ctx context.Context) ([]Finding, error) {
	var missing bool // a database of an earlier version
	if err := d.pool.QueryRow(ctx, "SELECT to_regclass('holdfast.v_outages') IS NULL").Scan(&missing); err != nil || missing {
		return nil, err
	}
	rows, err := d.pool.Query(ctx, "SELECT agent, extract(epoch FROM now() - since)::float8, error, waiting FROM holdfast.v_outages ORDER BY agent")
	if err != nil {
		return nil, err
	}
	type outage struct {
		agent, text string
		away        float64
		waiting     int64
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (o outage, err error) {
		return o, r.Scan(&o.agent, &o.away, &o.text, &o.waiting)
	})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return oks("none"), nil
	}
	var found findings
	for _, o := range all {
		found = append(found, warns("%s: away for %s, %d tasks wait: %s", o.agent, seconds(o.away), o.waiting, o.text).
			advise("start the agent; its tasks wait for at most agents[].limits.unreachable_for")...)
	}
	return found, nil
}

func (d *database) queue(ctx context.Context) ([]Finding, error) {
	rows, err := d.pool.Query(ctx, `SELECT agent, count(*) FILTER (WHERE worker_id IS NULL AND wakes_at IS NULL), count(*) FILTER (WHERE wakes_at < 'infinity'), count(*) FILTER (WHERE wakes_at = 'infinity'),
		count(*) FILTER (WHERE worker_id IS NOT NULL),
		coalesce(extract(epoch FROM now() - min(available_at) FILTER (WHERE worker_id IS NULL AND wakes_at IS NULL AND available_at <= now())), 0)::float8
		FROM holdfast.task_queue GROUP BY agent ORDER BY agent`)
	if err != nil {
		return nil, err
	}
	type depth struct {
		agent         string
		waits, timers int64
		calls         int64
		runs          int64
		oldestSeconds float64
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (q depth, err error) {
		return q, r.Scan(&q.agent, &q.waits, &q.timers, &q.calls, &q.runs, &q.oldestSeconds)
	})
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for i := range d.Config.Agents {
		known[d.Config.Agents[i].Name] = true
	}
	var found findings
	for _, q := range all {
		detail := fmt.Sprintf("%s: %d queued, %d running", q.agent, q.waits, q.runs)
		if q.timers > 0 {
			detail += fmt.Sprintf(", %d with a timer", q.timers)
		}
		if q.calls > 0 {
			detail += fmt.Sprintf(", %d with calls", q.calls)
		}
		if q.oldestSeconds > 0 {
			detail += ", the oldest due for " + seconds(q.oldestSeconds)
		}
		switch {
		case q.waits+q.timers+q.calls > 0 && !known[q.agent] && !d.Unnamed:
			found = append(found, warns("%s; this configuration has no such agent", detail).
				advise("configure the agent, or run holdfast tasks cancel; if no replica has the agent, the tasks wait forever")...)
		case q.oldestSeconds > longWait.Seconds():
			found = append(found, warns("%s", detail).
				advise("find out whether workers are too few or stuck: see workers above, the agent's limits.concurrency and holdfast_runs_active")...)
		default:
			found = append(found, oks("%s", detail)...)
		}
	}
	return found.orOK("empty"), nil
}

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
