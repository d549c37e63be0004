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
	s := &scraped{}
	build := s.gauge("holdfast_build_info",
		"1, with labels about the binary: its version, commit (empty: not known), Go, and newest migration.",
		"version", "commit", "go", "schema")
	slots := s.gauge("holdfast_runs_limit",
		"Runs that this replica does at a time (`limits.concurrency`); 0 without the role `worker`, and for agents with workers elsewhere.", "agent")
	margin := s.gauge("holdfast_lease_margin_seconds",
		"Time until the lease of this replica may expire. Below 0 others may take its runs.")
	replicas := s.gauge("holdfast_replicas",
		"Processes with a lease on this database, as this one last saw them (take the `max`).")
	certificate := s.gauge("holdfast_certificate_expiry_timestamp_seconds",
		"Unix time at which the certificate of the public ports expires.")
	made := s.gauge("holdfast_signing_key_created_timestamp_seconds",
		"Unix time at which the key was made that signs cards and webhooks.")
	next := s.gauge("holdfast_signing_key_rotation_timestamp_seconds",
		"Unix time at which the next signing key is due. It signs an hour after it was made.")
	ready := s.gauge("holdfast_ready", "1 if /readyz says that this replica takes requests.")
	one := s.gauge("holdfast_check", "1 for the present status of a check of /readyz, 0 for its other ones.", "check", "status")
	s.read = func(ch chan<- prometheus.Metric) {
		build.is(ch, 1, p.Version, p.Commit, runtime.Version(), strconv.FormatInt(p.Schema, 10))
		for agent, n := range p.Slots {
			slots.is(ch, float64(n), agent)
		}
		margin.is(ch, p.LeaseMargin().Seconds())
		replicas.is(ch, float64(p.Replicas()))
		if p.Certificate != nil {
			certificate.is(ch, float64(p.Certificate().Unix()))
		}
		if p.SigningKey != nil {
			since, until := p.SigningKey()
			for m, at := range map[*metric]time.Time{made: since, next: until} {
				if !at.IsZero() {
					m.is(ch, float64(at.Unix()))
				}
			}
		}
		found := probe(context.Background(), p.Checks)
		ready.is(ch, truth(found.Status != statusFailed))
		for _, check := range found.Checks {
			for _, status := range []string{statusOK, statusDegraded, statusFailed} {
				one.is(ch, truth(check.Status == status), check.Name, status)
			}
		}
	}
	reg.MustRegister(s)
}
