package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Pushes is the state of all webhooks, over all replicas.
type Pushes struct {
	Backlog  int64         // webhooks with something to deliver
	Oldest   time.Duration // how long the longest waiting one has been due
	Disabled int64
}

// RegisterPushes exports the state of the webhooks. Each scrape makes one cheap query.
func RegisterPushes(reg prometheus.Registerer, read func(ctx context.Context) (Pushes, error)) {
	reg.MustRegister(&pushCollector{
		counts: reading[Pushes]{read: read},
		backlog: prometheus.NewDesc("holdfast_push_backlog",
			"Webhooks with something to deliver, over all replicas (take the `max`), including those whose receiver is down.", nil, nil),
		oldest: prometheus.NewDesc("holdfast_push_oldest_seconds",
			"How long the webhook that waits longest has had something to deliver. Beyond `push.give_up_after`, no replica delivers.", nil, nil),
		disabled: prometheus.NewDesc("holdfast_push_disabled",
			"Webhooks that are disabled, over all replicas (take the `max`): by 410, after failing for too long or without any success, or by an operator.", nil, nil),
		readable: prometheus.NewDesc("holdfast_push_readable",
			"1 if holdfast_push_backlog, holdfast_push_disabled and holdfast_push_oldest_seconds could be read for this scrape. Read at most once in 5 s.", nil, nil),
	})
}

type pushCollector struct {
	counts                              reading[Pushes]
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
	n, err := c.counts.get()
	if err != nil {
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
