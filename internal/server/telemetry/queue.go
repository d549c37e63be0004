package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// QueueDepth is the queue of one agent, over all replicas.
type QueueDepth struct {
	Agent            string
	Waiting, Running int64         // tasks that a worker could claim now; tasks that a worker runs
	Timers           int64         // tasks whose agent waits for a time
	Calls            int64         // tasks whose agent waits for tasks that it has called
	Parked           int64         // tasks that wait for their client, up to 10,000
	Oldest           time.Duration // how long the oldest waiting task has been due; 0 if no task waits
	Away             time.Duration // how long the agent has been away; 0 if it is not known to be away
}

// RegisterQueue exports the depth of the queue. Agents outside known are summed under the label other.
func RegisterQueue(reg prometheus.Registerer, depths *Figures[[]QueueDepth], known ...string) {
	reg.MustRegister(&queueCollector{
		depths: depths,
		known:  set(known...),
		waiting: prometheus.NewDesc("holdfast_queue_waiting",
			"Tasks that wait for a worker, over all replicas.", []string{"agent"}, nil),
		timers: prometheus.NewDesc("holdfast_queue_timers",
			"Tasks whose agent waits for a time, over all replicas.", []string{"agent"}, nil),
		calls: prometheus.NewDesc("holdfast_queue_calls",
			"Tasks whose agent waits for tasks of other agents that it has called, over all replicas.", []string{"agent"}, nil),
		parked: prometheus.NewDesc("holdfast_tasks_parked",
			"Tasks that wait for their client (input-required, auth-required), over all replicas, counted up to 10,000.", []string{"agent"}, nil),
		running: prometheus.NewDesc("holdfast_queue_running",
			"Tasks that a worker runs, over all replicas.", []string{"agent"}, nil),
		oldest: prometheus.NewDesc("holdfast_queue_oldest_seconds",
			"How long the oldest waiting task has been due. The first thing to alert on: it grows when workers are too few or stuck.", []string{"agent"}, nil),
		away: prometheus.NewDesc("holdfast_agent_away_seconds",
			"How long the agent has been away; 0: it is not known to be. Its tasks wait; v_outages has them.", []string{"agent"}, nil),
		readable: prometheus.NewDesc("holdfast_queue_readable",
			"1 on the replica that reads the queue (every 10 s), 0 on the others. If it is 0 on all for a minute, the queue cannot be read. At 0 the other metrics of the queue, holdfast_tasks_parked and holdfast_agent_away_seconds are absent.", nil, nil),
	})
}

type queueCollector struct {
	depths                                                          *Figures[[]QueueDepth]
	known                                                           map[string]bool
	waiting, timers, calls, parked, running, oldest, away, readable *prometheus.Desc
}

func (c *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.waiting
	ch <- c.timers
	ch <- c.calls
	ch <- c.parked
	ch <- c.running
	ch <- c.oldest
	ch <- c.away
	ch <- c.readable
}

func (c *queueCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	depths, known := c.depths.get()
	if !known {
		gauge(c.readable, 0)
		return
	}
	gauge(c.readable, 1)
	for _, d := range c.merge(depths) {
		gauge(c.waiting, float64(d.Waiting), d.Agent)
		gauge(c.timers, float64(d.Timers), d.Agent)
		gauge(c.calls, float64(d.Calls), d.Agent)
		gauge(c.parked, float64(d.Parked), d.Agent)
		gauge(c.running, float64(d.Running), d.Agent)
		gauge(c.oldest, d.Oldest.Seconds(), d.Agent)
		gauge(c.away, d.Away.Seconds(), d.Agent)
	}
}

// merge returns one entry per label: zero for a known agent without tasks, and the sum of all unknown agents.
func (c *queueCollector) merge(rows []QueueDepth) []QueueDepth {
	byLabel := map[string]QueueDepth{}
	for agent := range c.known {
		byLabel[agent] = QueueDepth{Agent: agent}
	}
	for _, r := range rows {
		label := bounded(c.known, r.Agent)
		d := byLabel[label]
		byLabel[label] = QueueDepth{
			Agent:   label,
			Waiting: d.Waiting + r.Waiting,
			Timers:  d.Timers + r.Timers,
			Calls:   d.Calls + r.Calls,
			Parked:  d.Parked + r.Parked,
			Running: d.Running + r.Running,
			Oldest:  max(d.Oldest, r.Oldest),
			Away:    max(d.Away, r.Away),
		}
	}
	merged := make([]QueueDepth, 0, len(byLabel))
	for _, d := range byLabel {
		merged = append(merged, d)
	}
	return merged
}
