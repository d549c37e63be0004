package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// scraped are metrics that are read together at each scrape, so that they are consistent.
type scraped struct {
	metrics []*metric
	read    func(ch chan<- prometheus.Metric)
}

type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func (s *scraped) gauge(name, help string, labels ...string) *metric {
	m := &metric{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
	s.metrics = append(s.metrics, m)
	return m
}

func (s *scraped) counter(name, help string, labels ...string) *metric {
	m := s.gauge(name, help, labels...)
	m.kind = prometheus.CounterValue
	return m
}

// is sends a value.
func (m *metric) is(ch chan<- prometheus.Metric, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

// Describe implements prometheus.Collector.
func (s *scraped) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range s.metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (s *scraped) Collect(ch chan<- prometheus.Metric) { s.read(ch) }

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// PoolStat is a reading of a connection pool. *pgxpool.Stat is one.
type PoolStat interface {
	AcquiredConns() int32
	IdleConns() int32
	MaxConns() int32
	AcquireCount() int64
	EmptyAcquireCount() int64
	EmptyAcquireWaitTime() time.Duration
	CanceledAcquireCount() int64
}

// RegisterPools exports connection pools under their names, such as api or writer.
func RegisterPools(reg prometheus.Registerer, pools map[string]func() PoolStat) {
	s := &scraped{}
	used := s.gauge("holdfast_pool_connections_in_use", "Database connections in use.", "pool")
	idle := s.gauge("holdfast_pool_connections_idle", "Open and free connections.", "pool")
	most := s.gauge("holdfast_pool_connections_max", "Database connections that the pool may have.", "pool")
	acquires := s.counter("holdfast_pool_acquires_total", "Database connections handed out.", "pool")
	waits := s.counter("holdfast_pool_waits_total",
		"Connections handed out after a wait. If it grows steadily, raise `store.pool_size`, or look for slow queries.", "pool")
	waited := s.counter("holdfast_pool_wait_seconds_total", "Time spent in waits for a free connection.", "pool")
	canceled := s.counter("holdfast_pool_canceled_acquires_total", "Waits for a free connection that were canceled.", "pool")
	s.read = func(ch chan<- prometheus.Metric) {
		for name, stat := range pools {
			now := stat()
			used.is(ch, float64(now.AcquiredConns()), name)
			idle.is(ch, float64(now.IdleConns()), name)
			most.is(ch, float64(now.MaxConns()), name)
			acquires.is(ch, float64(now.AcquireCount()), name)
			waits.is(ch, float64(now.EmptyAcquireCount()), name)
			waited.is(ch, now.EmptyAcquireWaitTime().Seconds(), name)
			canceled.is(ch, float64(now.CanceledAcquireCount()), name)
		}
	}
	reg.MustRegister(s)
}

// RegisterMemory exports the memory limit of the process, and its budgets of bytes in flight.
func RegisterMemory(reg prometheus.Registerer, most int64, each func(visit func(budget string, of limit.BudgetStat))) {
	s := &scraped{}
	bytes := s.gauge("holdfast_memory_limit_bytes", "Memory that the process may use.")
	size := s.gauge("holdfast_memory_budget_bytes",
		"Bytes in flight that are allowed to `headers`, `requests`, `streams`, `runs` and `kept`.", "budget")
	used := s.gauge("holdfast_memory_in_flight_bytes",
		"Bytes in flight. It exceeds the budget while work larger than the budget runs alone.", "budget")
	refused := s.counter("holdfast_memory_refused_total",
		"Requests that were refused because the budget stayed full.", "budget")
	s.read = func(ch chan<- prometheus.Metric) {
		bytes.is(ch, float64(most))
		each(func(budget string, of limit.BudgetStat) {
			size.is(ch, float64(of.Size), budget)
			used.is(ch, float64(of.Used), budget)
			refused.is(ch, float64(of.Refused), budget)
		})
	}
	reg.MustRegister(s)
}

// RegisterPushes exports the state of the webhooks.
func RegisterPushes(reg prometheus.Registerer, counts *Figures[store.PushCounts]) {
	s := &scraped{}
	backlog := s.gauge("holdfast_push_backlog",
		"Webhooks with something to deliver, including those whose receiver is down.")
	oldest := s.gauge("holdfast_push_oldest_seconds",
		"How long the longest overdue webhook has waited for an attempt, without parked ones.")
	disabled := s.gauge("holdfast_push_disabled",
		"Webhooks that are disabled.")
	readable := s.gauge("holdfast_push_readable",
		"1 on the replica that reads the figures of webhooks, 0 on the others. If it is 0 on all for a minute, they cannot be read.")
	s.read = func(ch chan<- prometheus.Metric) {
		n, known := counts.get()
		readable.is(ch, truth(known))
		if known {
			backlog.is(ch, float64(n.Backlog))
			oldest.is(ch, n.Oldest.Seconds())
			disabled.is(ch, float64(n.Disabled))
		}
	}
	reg.MustRegister(s)
}

// RegisterQueue exports the depth of the queue. Agents outside known are summed under the label other.
func RegisterQueue(reg prometheus.Registerer, depths *Figures[[]store.QueueDepth], known ...string) {
	s, agents := &scraped{}, set(known...)
	waiting := s.gauge("holdfast_queue_waiting", "Tasks that wait for a worker.", "agent")
	timers := s.gauge("holdfast_queue_timers", "Tasks whose agent waits for a time.", "agent")
	calls := s.gauge("holdfast_queue_calls", "Tasks whose agent waits for tasks of other agents.", "agent")
	parked := s.gauge("holdfast_tasks_parked",
		"Tasks that wait for their client, counted up to 10,000.", "agent")
	running := s.gauge("holdfast_queue_running", "Tasks that a worker runs, over all replicas.", "agent")
	oldest := s.gauge("holdfast_queue_oldest_seconds",
		"How long the oldest waiting task has been due. Alert on it first: it grows when workers are too few or stuck.", "agent")
	away := s.gauge("holdfast_agent_away_seconds",
		"How long the agent has been away; 0: it is not known to be. v_outages has the reason.", "agent")
	readable := s.gauge("holdfast_queue_readable",
		"1 on the replica that reads the figures of the queue, 0 on the others. If it is 0 on all for a minute, the queue cannot be read.")
	s.read = func(ch chan<- prometheus.Metric) {
		rows, read := depths.get()
		readable.is(ch, truth(read))
		if !read {
			return
		}
		for agent, d := range merged(rows, agents) {
			waiting.is(ch, float64(d.Waiting), agent)
			timers.is(ch, float64(d.Timers), agent)
			calls.is(ch, float64(d.Calls), agent)
			parked.is(ch, float64(d.Parked), agent)
			running.is(ch, float64(d.Running), agent)
			oldest.is(ch, d.OldestSeconds, agent)
			away.is(ch, d.AwaySeconds, agent)
		}
	}
	reg.MustRegister(s)
}

// merged returns one entry per label: zero for a known agent without tasks, and the sum of all unknown agents.
func merged(rows []store.QueueDepth, known map[string]bool) map[string]store.QueueDepth {
	all := map[string]store.QueueDepth{}
	for agent := range known {
		all[agent] = store.QueueDepth{}
	}
	for _, r := range rows {
		label := bounded(known, r.Agent)
		d := all[label]
		all[label] = store.QueueDepth{
			Waiting: d.Waiting + r.Waiting, Timers: d.Timers + r.Timers, Calls: d.Calls + r.Calls, Parked: d.Parked + r.Parked,
			Running: d.Running + r.Running, OldestSeconds: max(d.OldestSeconds, r.OldestSeconds), AwaySeconds: max(d.AwaySeconds, r.AwaySeconds),
		}
	}
	return all
}

// RegisterDatabase exports what the database holds.
func RegisterDatabase(reg prometheus.Registerer, figures *Figures[*store.Figures]) {
	s := &scraped{}
	bytes := s.gauge("holdfast_database_bytes",
		"Size of the database on disk. SQL does not know the free space: watch the disk of the database server.")
	table := s.gauge("holdfast_table_bytes",
		"Size of a table on disk, with indexes and partitions. The logs of tasks are `events_log` (messages, statuses), `events_artifacts` and `events_kept`. `detached`: partitions that wait to be dropped.", "table")
	dead := s.gauge("holdfast_table_dead_rows",
		"Dead rows that vacuum has not removed, estimated. If those of `task_queue` or `tasks_open` grow for hours, a long transaction or a replication slot holds vacuum back.", "table")
	partitions := s.gauge("holdfast_partitions",
		"Partitions of a `family`: `tasks`, `idempotency_keys`, `delivery_attempts`, `audit`. `status`: `attached`, `detaching` (interrupted) or `detached` (waits to be dropped).", "family", "status")
	begin := s.gauge("holdfast_partitions_begin_timestamp_seconds",
		"Unix time at which the oldest partition begins.", "family")
	end := s.gauge("holdfast_partitions_end_timestamp_seconds",
		"Unix time up to which partitions exist without a gap.", "family")
	ahead := s.gauge("holdfast_partitions_ahead_seconds",
		"How far ahead partitions are created, once less than two thirds of it are left.", "family")
	keys := s.gauge("holdfast_api_keys",
		"API keys. `status`: `active`, `expiring` (within 7 days; not keys that live for at most 14 days), `expired`, `revoked`.", "status")
	s.read = func(ch chan<- prometheus.Metric) {
		found, known := figures.get()
		if !known {
			return
		}
		bytes.is(ch, float64(found.Bytes))
		for _, t := range found.Tables {
			table.is(ch, float64(t.Bytes), t.Name)
			dead.is(ch, float64(t.Dead), t.Name)
		}
		for _, p := range found.Partitions {
			partitions.is(ch, float64(p.Attached), p.Family, "attached")
			partitions.is(ch, float64(p.Detaching), p.Family, "detaching")
			partitions.is(ch, float64(p.Detached), p.Family, "detached")
			if !p.Begin.IsZero() {
				begin.is(ch, float64(p.Begin.Unix()), p.Family)
			}
			end.is(ch, float64(p.End.Unix()), p.Family)
			ahead.is(ch, p.Ahead.Seconds(), p.Family)
		}
		keys.is(ch, float64(found.Keys.Active), "active")
		keys.is(ch, float64(found.Keys.Expiring), "expiring")
		keys.is(ch, float64(found.Keys.Expired), "expired")
		keys.is(ch, float64(found.Keys.Revoked), "revoked")
	}
	reg.MustRegister(s)
}
