// Package telemetry has the tools of operators: the Prometheus metrics, and the handler of the admin server with health
// checks, metrics and profiles.
//
// Labels come from small fixed sets or from the configuration. Ids, names chosen by clients and message content never
// become labels. docs/operations.md describes every metric; a test keeps that page complete.
package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Metrics counts what the parts of a server do. Its methods match the observers that those parts declare, so that
// wiring is an assignment. They also keep the labels bounded.
type Metrics struct {
	dialects  map[string]bool // the served versions, and none
	claims    *prometheus.CounterVec
	claimWait *prometheus.HistogramVec
	runs      *prometheus.CounterVec
	runTime   *prometheus.HistogramVec
	running   *prometheus.GaugeVec
	rescues   prometheus.Counter
	fenced    prometheus.Counter
	commit    *prometheus.HistogramVec
	batch     *prometheus.HistogramVec
	retries   *prometheus.CounterVec
	events    *prometheus.CounterVec
	hintLag   prometheus.Histogram
	pollFound prometheus.Counter
	rereads   prometheus.Counter
	listening prometheus.Gauge
	streams   *prometheus.GaugeVec
	resumes   *prometheus.CounterVec
	requests  *prometheus.CounterVec
	notices   *prometheus.CounterVec
	limited   *prometheus.CounterVec

	pushAttempts *prometheus.CounterVec
	pushTime     prometheus.Histogram
	pushLag      prometheus.Histogram
	pushActive   prometheus.Gauge
	conns        prometheus.Gauge
	connsOver    prometheus.Counter
	origins      prometheus.Counter
	callers      *prometheus.CounterVec
	keySets      *prometheus.CounterVec
	duties       *prometheus.CounterVec
	dutyTime     *prometheus.HistogramVec
}

// The labels for values outside a fixed set, and for unknown values.
const (
	other = "other"
	none  = "none"
)

// The fixed sets.
var (
	flushKinds  = set("create", "append", "claim", "push_claim", "push_record")
	limits      = set("rate", "streams", "server_streams", "memory", "body", "parts", "live_tasks", "queue", "artifacts")
	retryKinds  = set("create", "append", "message", "cancel", "push_set", "push_delete", "push_record")
	pushClasses = set("delivered", "gone", "redirect", "throttled", "client", "server", "refused", "dns", "tls", "timeout",
		"network", "internal")
	noticeOutcomes = set("delivered", "retried", "failed")
	runOutcomes    = set("completed", "failed", "rejected", "canceled", "parked", "waits", "retried", "returned", "away", "lost")
	operations     = set("send", "stream", "get", "list", "cancel", "subscribe",
		"push_set", "push_get", "push_list", "push_delete", "extended_card", "card", none)
	// The outcomes of a request beyond ok: refused by the binding, or the reason of an error from the table of faults.
	requestOutcomes = set("ok", "refused",
		"CONTENT_TYPE_NOT_SUPPORTED", "EXTENDED_AGENT_CARD_NOT_CONFIGURED", "EXTENSION_SUPPORT_REQUIRED", "FORBIDDEN",
		"INTERNAL_ERROR", "INVALID_AGENT_RESPONSE", "INVALID_PARAMS", "PUSH_NOTIFICATION_NOT_SUPPORTED", "RATE_LIMITED",
		"REQUEST_TOO_LARGE", "TASK_NOT_CANCELABLE", "TASK_NOT_FOUND", "UNAUTHENTICATED", "UNAVAILABLE",
		"UNSUPPORTED_OPERATION", "VERSION_NOT_SUPPORTED")
)

// authOutcomes are the outcomes for a credential: ok, error if the check failed, or the reason of the refusal.
var authOutcomes = set("ok", "error", "missing", "several", "malformed", "unknown", "revoked", "expired", "early", "algorithm",
	"signature", "issuer", "audience", "claims", "certificate", "elsewhere", "limited")

func set(members ...string) map[string]bool {
	m := make(map[string]bool, len(members))
	for _, s := range members {
		m[s] = true
	}
	return m
}

// bounded returns the value if the set has it, else other. So callers cannot create labels without end.
func bounded(allowed map[string]bool, value string) string {
	if allowed[value] {
		return value
	}
	return other
}

// New makes the metrics and registers them with reg. dialects are the A2A versions of requests.
func New(reg prometheus.Registerer, dialects ...string) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return register(reg, prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
	}
	// From a commit on a local disk to a database in trouble.
	latency := []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	// From an echo to an hour of work.
	work := []float64{.005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}

	m := &Metrics{
		dialects: set(append(dialects, none)...),
		claims: counters("holdfast_claims_total",
			"Tasks claimed from the queue.", "agent"),
		claimWait: histograms("holdfast_claim_wait_seconds",
			"Seconds from the time when a task was due to its claim.", latency, "agent"),
		runs: counters("holdfast_runs_total",
			"Runs that ended, by agent and outcome.", "agent", "outcome"),
		runTime: histograms("holdfast_run_seconds",
			"Duration of runs in seconds.", work, "agent"),
		running: gauges("holdfast_runs_active",
			"Runs in progress on this replica.", "agent"),
		notices: counters("holdfast_cancel_notices_total",
			"Tries to tell an agent of a cancel or of another end from outside, by agent and outcome.", "agent", "outcome"),
		rescues: counter("holdfast_rescues_total",
			"Runs that this replica rescued from dead processes."),
		fenced: counter("holdfast_fenced_writes_total",
			"Writes that were refused because their run had lost its lease."),
		commit: histograms("holdfast_commit_seconds",
			"Duration of one flush to the database in seconds, including its commit.", latency, "kind"),
		batch: histograms("holdfast_commit_batch_size",
			"Writes in one flush to the database.", []float64{1, 2, 5, 10, 20, 50, 100, 200, 500}, "kind"),
		limited: counters("holdfast_limited_total",
			"Requests and runs that a limit refused or ended.", "agent", "limit"),
		retries: counters("holdfast_write_retries_total",
			"Writes that were retried after a database error.", "kind"),
		events: counters("holdfast_events_total",
			"Events written to the logs of tasks.", "kind"),
		hintLag: register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_hint_delivery_seconds", Buckets: latency,
			Help: "Seconds from the arrival of another replica's hint to the delivery of its events on this replica.",
		})),
		pollFound: counter("holdfast_hub_poll_found_total",
			"Tasks with subscribers for which the poll found events that no hint had announced."),
		rereads: counter("holdfast_hub_rereads_total",
			"Times that a stream fell behind the events in memory and read the table."),
		listening: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_listener_connected",
			Help: "1 while LISTEN works, 0 while this replica polls instead.",
		})),
		streams: gauges("holdfast_streams_open",
			"Event streams open on this replica.", "dialect"),
		resumes: counters("holdfast_stream_resumes_total",
			"Streams opened with Last-Event-ID.", "dialect"),
		requests: counters("holdfast_requests_total",
			"A2A requests answered, by operation, dialect and outcome.", "operation", "dialect", "outcome"),
		pushAttempts: counters("holdfast_push_attempts_total",
			"Attempts to deliver to webhooks, by the class of their outcome.", "class"),
		pushTime: register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_push_attempt_seconds", Buckets: latency,
			Help: "Duration of attempts to deliver in seconds.",
		})),
		pushLag: register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_push_lag_seconds", Buckets: append([]float64{.002, .005}, work[1:]...),
			Help: "Seconds from the commit of an event to its delivery.",
		})),
		pushActive: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_push_in_flight",
			Help: "Deliveries in progress on this replica.",
		})),
		conns: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_connections_open",
			Help: "Open connections to the public ports.",
		})),
		connsOver: register(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_connections_refused_total",
			Help: "Connections that were closed because their address had reached its limit.",
		})),
		origins: counter("holdfast_origins_refused_total",
			"Requests of web pages whose origin may not use the server."),
		callers: counters("holdfast_authentications_total",
			"Requests by scheme and outcome of authentication.", "scheme", "outcome"),
		keySets: counters("holdfast_issuer_fetches_total",
			"Attempts to fetch an issuer's keys, by scheme and outcome.", "scheme", "outcome"),
		duties: counters("holdfast_duty_runs_total",
			"Pieces of duties that this replica did, by duty and outcome.", "duty", "outcome"),
		dutyTime: histograms("holdfast_duty_seconds",
			"Duration of pieces of duties in seconds.", latency, "duty"),
	}
	m.showZeros()
	return m
}

func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	reg.MustRegister(c)
	return c
}

// showZeros creates the series of the fixed sets at the start: a rate over a counter that appears at 1 misses the first
// event.
func (m *Metrics) showZeros() {
	for kind := range flushKinds {
		m.commit.WithLabelValues(kind)
		m.batch.WithLabelValues(kind)
	}
	for kind := range retryKinds {
		m.retries.WithLabelValues(kind)
	}
	for class := range pushClasses {
		m.pushAttempts.WithLabelValues(class)
	}
	for _, kind := range []task.EventKind{task.EventMessage, task.EventStatus, task.EventArtifact, task.EventRun} {
		m.events.WithLabelValues(kind.String())
	}
	for dialect := range m.dialects {
		if dialect != none {
			m.streams.WithLabelValues(dialect)
			m.resumes.WithLabelValues(dialect)
		}
	}
}

// Agents creates the series of the configured agents at the start.
func (m *Metrics) Agents(names ...string) {
	for _, agent := range names {
		m.claims.WithLabelValues(agent)
		m.claimWait.WithLabelValues(agent)
		m.runTime.WithLabelValues(agent)
		m.running.WithLabelValues(agent)
		for outcome := range runOutcomes {
			m.runs.WithLabelValues(agent, outcome)
		}
		for outcome := range noticeOutcomes {
			m.notices.WithLabelValues(agent, outcome)
		}
	}
}

// Claimed counts n tasks claimed from the queue; waited is how long they had been due. Here and below, agent is a name
// from the configuration.
func (m *Metrics) Claimed(agent string, n int, waited time.Duration) {
	m.claims.WithLabelValues(agent).Add(float64(n))
	m.claimWait.WithLabelValues(agent).Observe(waited.Seconds())
}

// Running changes the number of runs under way.
func (m *Metrics) Running(agent string, delta int) {
	m.running.WithLabelValues(agent).Add(float64(delta))
}

// Ran counts a run by its outcome.
func (m *Metrics) Ran(agent, outcome string, took time.Duration) {
	m.runs.WithLabelValues(agent, bounded(runOutcomes, outcome)).Inc()
	m.runTime.WithLabelValues(agent).Observe(took.Seconds())
}

// Told counts a try to tell an agent of a cancel.
func (m *Metrics) Told(agent, outcome string) {
	m.notices.WithLabelValues(agent, bounded(noticeOutcomes, outcome)).Inc()
}

// Rescued counts runs taken from dead workers.
func (m *Metrics) Rescued(runs int) { m.rescues.Add(float64(runs)) }

// Fenced counts writes that were refused because another worker has the lease.
func (m *Metrics) Fenced(writes int) { m.fenced.Add(float64(writes)) }

// Flushed records one flush of a batcher: how many writes it carried and how long the
// database took.
func (m *Metrics) Flushed(kind string, items int, took time.Duration) {
	kind = bounded(flushKinds, kind)
	m.commit.WithLabelValues(kind).Observe(took.Seconds())
	m.batch.WithLabelValues(kind).Observe(float64(items))
}

// Retried counts a retry of a write after a database error.
func (m *Metrics) Retried(kind string) {
	m.retries.WithLabelValues(bounded(retryKinds, kind)).Inc()
}

// Limited counts requests, streams and runs that a limit has refused or ended.
func (m *Metrics) Limited(agent, limit string) {
	m.limited.WithLabelValues(agent, bounded(limits, limit)).Inc()
}

// Event counts an event that was committed.
func (m *Metrics) Event(kind task.EventKind) {
	m.events.WithLabelValues(kind.String()).Inc()
}

// Delivered records how long a hint waited for its events to be delivered.
func (m *Metrics) Delivered(lag time.Duration) { m.hintLag.Observe(lag.Seconds()) }

// PollFound counts tasks with events that no hint had announced.
func (m *Metrics) PollFound(topics int) { m.pollFound.Add(float64(topics)) }

// Reread counts a stream that fell behind.
func (m *Metrics) Reread() { m.rereads.Inc() }

// Listening records whether hints arrive by LISTEN.
func (m *Metrics) Listening(connected bool) {
	m.listening.Set(0)
	if connected {
		m.listening.Set(1)
	}
}

// StreamOpened counts an open stream. Call closed when it ends.
func (m *Metrics) StreamOpened(dialect string) (closed func()) {
	g := m.streams.WithLabelValues(bounded(m.dialects, dialect))
	g.Inc()
	return g.Dec
}

// Resumed counts a stream that was opened with Last-Event-ID.
func (m *Metrics) Resumed(dialect string) {
	m.resumes.WithLabelValues(bounded(m.dialects, dialect)).Inc()
}

// ConnectionOpened counts an open connection. Call closed when it ends.
func (m *Metrics) ConnectionOpened() (closed func()) {
	m.conns.Inc()
	return m.conns.Dec
}

// ConnectionRefused counts a connection beyond the limit.
func (m *Metrics) ConnectionRefused() { m.connsOver.Inc() }

// OriginRefused counts a request of a web page that may not use the server.
func (m *Metrics) OriginRefused() { m.origins.Inc() }

// Authenticated counts a request by scheme and outcome. scheme is a name from the configuration or "".
func (m *Metrics) Authenticated(scheme, outcome string) {
	if scheme == "" {
		scheme = none
	}
	m.callers.WithLabelValues(scheme, bounded(authOutcomes, outcome)).Inc()
}

// IssuerFetched counts an attempt to fetch the keys of an issuer, by the name of its scheme.
func (m *Metrics) IssuerFetched(scheme string, err error) {
	m.keySets.WithLabelValues(scheme, outcome(err)).Inc()
}

// Duties creates the series of the periodic work at the start.
func (m *Metrics) Duties(names ...string) {
	for _, duty := range names {
		m.dutyTime.WithLabelValues(duty)
		m.duties.WithLabelValues(duty, "ok")
		m.duties.WithLabelValues(duty, "error")
	}
}

// DutyRan counts a run of periodic work. duty is a name that was given to Duties.
func (m *Metrics) DutyRan(duty string, took time.Duration, err error) {
	m.duties.WithLabelValues(duty, outcome(err)).Inc()
	m.dutyTime.WithLabelValues(duty).Observe(took.Seconds())
}

func outcome(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

// Request counts an answered request. operation is a name such as send or push_set. dialect is a version such as 0.3,
// or empty if none was recognized. outcome is ok, refused, or the reason of an error. Unknown values count as other.
func (m *Metrics) Request(operation, dialect, outcome string) {
	if dialect == "" {
		dialect = none
	}
	m.requests.WithLabelValues(
		bounded(operations, operation), bounded(m.dialects, dialect), bounded(requestOutcomes, outcome)).Inc()
}
