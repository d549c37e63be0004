package telemetry

import (
	"context"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Process describes this replica, for metrics that are read at each scrape.
type Process struct {
	Version     string
	Commit      string                  // of the source; "": not known
	Schema      int64                   // the newest migration that the binary knows
	Checks      []Check                 // of /readyz
	LeaseMargin func() time.Duration    // until the lease may expire; negative: it has
	Replicas    func() int              // that are alive, this one included
	Slots       map[string]int          // runs at a time, by agent
	Certificate func() (ends time.Time) // of the public ports; nil: no TLS
	// SigningKey says since when the key exists that signs, and when the next one is due: zero means not known, or never. Nil:
	// this replica signs nothing.
	SigningKey func() (made, next time.Time)
}

// RegisterProcess exports what a replica knows of itself.
func RegisterProcess(reg prometheus.Registerer, p Process) {
	register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "holdfast_build_info",
		Help: "1, with labels about the binary: its version, the commit of its source (empty: not known), its Go, and the newest migration of the schema that it knows.",
	}, []string{"version", "commit", "go", "schema"})).WithLabelValues(p.Version, p.Commit, runtime.Version(), strconv.FormatInt(p.Schema, 10)).Set(1)
	slots := register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "holdfast_runs_limit",
		Help: "Runs that this replica does at a time, of an agent (its `limits.concurrency`); 0 without the role `worker`, and for agents with workers elsewhere.",
	}, []string{"agent"}))
	for agent, n := range p.Slots {
		slots.WithLabelValues(agent).Set(float64(n))
	}
	gauge := func(name, help string, read func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	gauge("holdfast_lease_margin_seconds",
		"Time until the lease of this replica may expire. Below 0 others may take its runs.",
		func() float64 { return p.LeaseMargin().Seconds() })
	gauge("holdfast_replicas",
		"Processes with a lease on this database, as this one last saw them (take the `max`).",
		func() float64 { return float64(p.Replicas()) })
	if p.Certificate != nil {
		gauge("holdfast_certificate_expiry_timestamp_seconds",
			"Unix time at which the certificate of the public ports expires.",
			func() float64 { return float64(p.Certificate().Unix()) })
	}
	if p.SigningKey != nil {
		reg.MustRegister(&signingCollector{
			key: p.SigningKey,
			made: prometheus.NewDesc("holdfast_signing_key_created_timestamp_seconds",
				"Unix time at which the key was made that signs cards and webhooks.", nil, nil),
			next: prometheus.NewDesc("holdfast_signing_key_rotation_timestamp_seconds",
				"Unix time at which the next signing key is due. It signs an hour after it was made.", nil, nil),
		})
	}
	reg.MustRegister(&readinessCollector{
		checks: p.Checks,
		ready:  prometheus.NewDesc("holdfast_ready", "1 if /readyz says that this replica takes requests.", nil, nil),
		check:  prometheus.NewDesc("holdfast_check", "1 for the present status of a check of /readyz, and 0 for its other ones.", []string{"check", "status"}, nil),
	})
}

type signingCollector struct {
	key        func() (made, next time.Time)
	made, next *prometheus.Desc
}

func (c *signingCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.made
	ch <- c.next
}

func (c *signingCollector) Collect(ch chan<- prometheus.Metric) {
	made, next := c.key()
	for d, at := range map[*prometheus.Desc]time.Time{c.made: made, c.next: next} {
		if !at.IsZero() {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(at.Unix()))
		}
	}
}

type readinessCollector struct {
	checks       []Check
	ready, check *prometheus.Desc
}

func (c *readinessCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.ready
	ch <- c.check
}

func (c *readinessCollector) Collect(ch chan<- prometheus.Metric) {
	truth := func(d *prometheus.Desc, is bool, labels ...string) {
		v := 0.0
		if is {
			v = 1
		}
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	found := probe(context.Background(), c.checks)
	truth(c.ready, found.Status != statusFailed)
	for _, check := range found.Checks {
		for _, status := range []string{statusOK, statusDegraded, statusFailed} {
			truth(c.check, check.Status == status, check.Name, status)
		}
	}
}
