package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Pushes is the state of all webhooks, over all replicas.
type Pushes struct {
	Backlog  int64         // webhooks with something to deliver
	Oldest   time.Duration // how long the longest overdue one has waited for an attempt
	Disabled int64
}

// RegisterPushes exports the state of the webhooks.
func RegisterPushes(reg prometheus.Registerer, counts *Figures[Pushes]) {
	reg.MustRegister(&pushCollector{
		counts: counts,
		backlog: prometheus.NewDesc("holdfast_push_backlog",
			"Webhooks with something to deliver, over all replicas, including those whose receiver is down.", nil, nil),
		oldest: prometheus.NewDesc("holdfast_push_oldest_seconds",
			"How long the longest overdue webhook has waited for an attempt. One whose receiver failed counts from its next retry, one that is parked does not count.", nil, nil),
		disabled: prometheus.NewDesc("holdfast_push_disabled",
			"Webhooks that are disabled, over all replicas: by 410, after failing for too long or without any success, or by an operator.", nil, nil),
		readable: prometheus.NewDesc("holdfast_push_readable",
			"1 on the replica that reads holdfast_push_backlog, holdfast_push_disabled and holdfast_push_oldest_seconds (every 10 s), 0 on the others, which do not have them. If it is 0 on all for a minute, they cannot be read.", nil, nil),
	})
}

type pushCollector struct {
	counts                              *Figures[Pushes]
	backlog, oldest, disabled, readable *prometheus.Desc
}

func (c *pushCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.backlog
	ch <- c.oldest
	ch <- c.disabled
	ch <- c.readable
}

func (c *pushCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	n, known := c.counts.get()
	if !known {
		gauge(c.readable, 0)
		return
	}
	gauge(c.readable, 1)
	gauge(c.backlog, float64(n.Backlog))
	gauge(c.oldest, n.Oldest.Seconds())
	gauge(c.disabled, float64(n.Disabled))
}

// PushAttempted counts a delivery attempt by its class.
func (m *Metrics) PushAttempted(class string, took time.Duration) {
	m.pushAttempts.WithLabelValues(bounded(pushClasses, class)).Inc()
	m.pushTime.Observe(took.Seconds())
}

// PushLag records the time from an event to its delivery.
func (m *Metrics) PushLag(lag time.Duration) { m.pushLag.Observe(lag.Seconds()) }

// PushInFlight changes the number of deliveries under way.
func (m *Metrics) PushInFlight(delta int) { m.pushActive.Add(float64(delta)) }
