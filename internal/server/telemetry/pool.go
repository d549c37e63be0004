package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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

// RegisterPool exports a connection pool under a name such as api or writer.
func RegisterPool(reg prometheus.Registerer, name string, stat func() PoolStat) {
	labels := prometheus.Labels{"pool": name}
	desc := func(metric, help string) *prometheus.Desc {
		return prometheus.NewDesc("holdfast_pool_"+metric, help, nil, labels)
	}
	reg.MustRegister(&poolCollector{stat: stat, metrics: []poolMetric{
		{
			desc("connections_in_use", "Database connections in use."), prometheus.GaugeValue,
			func(s PoolStat) float64 { return float64(s.AcquiredConns()) },
		},
		{
			desc("connections_idle", "Open and free connections."), prometheus.GaugeValue,
			func(s PoolStat) float64 { return float64(s.IdleConns()) },
		},
		{
			desc("connections_max", "Database connections that the pool may have."), prometheus.GaugeValue,
			func(s PoolStat) float64 { return float64(s.MaxConns()) },
		},
		{
			desc("acquires_total", "Database connections handed out."), prometheus.CounterValue,
			func(s PoolStat) float64 { return float64(s.AcquireCount()) },
		},
		{
			desc("waits_total", "Connections handed out after a wait, because no connection was free. If it grows steadily: raise `store.pool_size`, or look for slow queries."), prometheus.CounterValue,
			func(s PoolStat) float64 { return float64(s.EmptyAcquireCount()) },
		},
		{
			desc("wait_seconds_total", "Time spent in waits for a free connection."), prometheus.CounterValue,
			func(s PoolStat) float64 { return s.EmptyAcquireWaitTime().Seconds() },
		},
		{
			desc("canceled_acquires_total", "Waits for a free connection that were canceled."), prometheus.CounterValue,
			func(s PoolStat) float64 { return float64(s.CanceledAcquireCount()) },
		},
	}})
}

type poolMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(PoolStat) float64
}

type poolCollector struct {
	stat    func() PoolStat
	metrics []poolMetric
}

func (c *poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect takes one reading for all metrics, so that they are consistent.
func (c *poolCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.stat()
	for _, m := range c.metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s))
	}
}
