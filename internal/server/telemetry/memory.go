package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-a2a/holdfast/internal/limit"
)

// RegisterMemory exports the memory limit of the process, and its budgets of bytes in flight.
func RegisterMemory(reg prometheus.Registerer, limit int64, each func(visit func(budget string, s limit.BudgetStat))) {
	reg.MustRegister(&memoryCollector{
		limit: float64(limit), each: each,
		bytes: prometheus.NewDesc("holdfast_memory_limit_bytes", "Memory that the process may use.", nil, nil),
		size:  prometheus.NewDesc("holdfast_memory_budget_bytes", "Bytes in flight that are allowed to `headers`, `requests`, `streams`, `runs` and `kept`.", []string{"budget"}, nil),
		used:  prometheus.NewDesc("holdfast_memory_in_flight_bytes", "Bytes in flight. More than the budget: work that is larger than it goes on alone. `runs` that stay full: agents have large messages, or have stopped in the middle of large events.", []string{"budget"}, nil),
		refused: prometheus.NewDesc("holdfast_memory_refused_total",
			"Requests that were refused because the budget stayed full. If it grows, give the process more memory.", []string{"budget"}, nil),
	})
}

type memoryCollector struct {
	limit                      float64
	each                       func(visit func(budget string, s limit.BudgetStat))
	bytes, size, used, refused *prometheus.Desc
}

func (c *memoryCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.bytes, c.size, c.used, c.refused} {
		ch <- d
	}
}

func (c *memoryCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, c.limit)
	c.each(func(budget string, s limit.BudgetStat) {
		ch <- prometheus.MustNewConstMetric(c.size, prometheus.GaugeValue, float64(s.Size), budget)
		ch <- prometheus.MustNewConstMetric(c.used, prometheus.GaugeValue, float64(s.Used), budget)
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(s.Refused), budget)
	})
}
