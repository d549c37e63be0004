package telemetry

import (
	"context"
	"sync"
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

// Queue reads the depth of the queue with one query, cheap enough for every scrape.
type Queue func(ctx context.Context) ([]QueueDepth, error)

const (
	// queueInterval is how long a reading is reused. So several scrapers, or one with a short interval, cost the
	// database no more than one.
	queueInterval = 5 * time.Second
	queueTimeout  = 2 * time.Second
)

// RegisterQueue exports the depth of the queue. Agents outside known are summed under the label other.
func RegisterQueue(reg prometheus.Registerer, read Queue, known ...string) {
	c := &queueCollector{
		known: set(known...),
		waiting: prometheus.NewDesc("holdfast_queue_waiting",
			"Tasks that wait for a worker, over all replicas (take the `max`).", []string{"agent"}, nil),
		timers: prometheus.NewDesc("holdfast_queue_timers",
			"Tasks whose agent waits for a time, over all replicas (take the `max`).", []string{"agent"}, nil),
		calls: prometheus.NewDesc("holdfast_queue_calls",
			"Tasks whose agent waits for tasks of other agents that it has called, over all replicas (take the `max`).", []string{"agent"}, nil),
		parked: prometheus.NewDesc("holdfast_tasks_parked",
			"Tasks that wait for their client (input-required, auth-required), over all replicas (take the `max`), counted up to 10,000.", []string{"agent"}, nil),
		running: prometheus.NewDesc("holdfast_queue_running",
			"Tasks that a worker runs, over all replicas (take the `max`).", []string{"agent"}, nil),
		oldest: prometheus.NewDesc("holdfast_queue_oldest_seconds",
			"How long the oldest waiting task has been due. The first thing to alert on: it grows when workers are too few or stuck.", []string{"agent"}, nil),
		away: prometheus.NewDesc("holdfast_agent_away_seconds",
			"How long the agent has been away; 0: it is not known to be. Its tasks wait; v_outages has them.", []string{"agent"}, nil),
		readable: prometheus.NewDesc("holdfast_queue_readable",
			"1 if the queue could be read for this scrape. At 0 the other metrics of the queue, holdfast_tasks_parked and holdfast_agent_away_seconds are absent. Read at most once in 5 s.", nil, nil),
	}
	c.depths.read = func(ctx context.Context) ([]QueueDepth, error) {
		rows, err := read(ctx)
		return c.merge(rows), err
	}
	reg.MustRegister(c)
}

type queueCollector struct {
	depths                                                          reading[[]QueueDepth]
	known                                                           map[string]bool
	waiting, timers, calls, parked, running, oldest, away, readable *prometheus.Desc
}

// reading caches a value from the database for a short time.
type reading[T any] struct {
	read func(ctx context.Context) (T, error)

	mu    sync.Mutex // held while reading, so that concurrent scrapes share a query
	at    time.Time
	value T
	err   error
}

func (r *reading[T]) get() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < queueInterval {
		return r.value, r.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
	defer cancel()
	r.value, r.err = r.read(ctx)
	r.at = time.Now()
	return r.value, r.err
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
	depths, err := c.depths.get()
	if err != nil {
		// Export no old numbers: a queue that cannot be read must not look calm.
		gauge(c.readable, 0)
		return
	}
	gauge(c.readable, 1)
	for _, d := range depths {
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
