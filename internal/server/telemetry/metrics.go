// Package telemetry has the tools of operators: the Prometheus metrics, and the handler of the admin server with health
// checks, metrics and profiles.
//
// Labels come from small fixed sets or from the configuration. Ids, names chosen by clients and message content never
// become labels. docs/metrics.md is written from their helps.
package telemetry

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Metrics counts what the parts of a server do. Its methods match the observers that those parts declare, so that
// wiring is an assignment. They also keep the labels bounded.
type Metrics struct {
	versions  map[string]bool // of A2A that are served, and none
	agents    map[string]bool
	claims    *prometheus.CounterVec
	claimWait *prometheus.HistogramVec
	runs      *prometheus.CounterVec
	runTime   *prometheus.HistogramVec
	running   *prometheus.GaugeVec
	rescues   prometheus.Counter
	expired   prometheus.Counter
	held      prometheus.Gauge
	beats     prometheus.Counter
	renewals  prometheus.Counter
	fenced    prometheus.Counter
	commit    *prometheus.HistogramVec
	batch     *prometheus.HistogramVec
	retries   *prometheus.CounterVec
	events    *prometheus.CounterVec
	hintLag   prometheus.Histogram
	pollFound prometheus.Counter
	rereads   prometheus.Counter
	logReads  *prometheus.CounterVec
	listening prometheus.Gauge
	streams   *prometheus.GaugeVec
	resumes   *prometheus.CounterVec
	requests  *prometheus.HistogramVec
	answered  *prometheus.HistogramVec
	runAPI    *prometheus.HistogramVec
	faults    *prometheus.CounterVec
	notices   *prometheus.CounterVec
	limited   *prometheus.CounterVec
	cancels   *prometheus.HistogramVec
	upstream  *prometheus.CounterVec
	upTime    *prometheus.HistogramVec

	pushAttempts *prometheus.CounterVec
	pushTime     prometheus.Histogram
	pushLag      prometheus.Histogram
	pushActive   prometheus.Gauge
	conns        prometheus.Gauge
	connsOver    prometheus.Counter
	origins      prometheus.Counter
	notified     *prometheus.CounterVec
	callers      *prometheus.CounterVec
	keySets      *prometheus.CounterVec
	keySetAt     *prometheus.GaugeVec
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
	limits      = set("rate", "streams", "server_streams", "memory", "body", "parts", "live_tasks", "queue", "pending_messages", "artifacts")
	retryKinds  = set("create", "append", "message", "cancel", "push_set", "push_delete", "push_record")
	pushClasses = set("delivered", "gone", "redirect", "throttled", "client", "server", "refused", "dns", "tls", "timeout",
		"network", "internal")
	notified       = set("accepted", "refused")
	noticeOutcomes = set("delivered", "retried", "failed")
	runOutcomes    = set("completed", "failed", "rejected", "canceled", "parked", "waits", "calls", "retried", "returned", "away", "lost")
	operations     = set("send", "stream", "get", "list", "cancel", "subscribe",
		"push_set", "push_get", "push_list", "push_delete", "extended_card", "card", none)
	runOperations = []string{"run", "history", "artifacts", "artifact", "tasks", "task", "state", "set_state", "remove_state", "heartbeat", "events"}
	bindings      = set("jsonrpc", "rest", "grpc")
	// The outcomes that are faults of the server or of an agent, and not of the request.
	serverFaults = []string{"INTERNAL_ERROR", "UNAVAILABLE", "INVALID_AGENT_RESPONSE"}
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

// New makes the metrics and registers them with reg. versions are the served versions of A2A.
func New(reg prometheus.Registerer, versions ...string) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
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
		versions: set(append(versions, none)...), agents: map[string]bool{},
		claims: counters("holdfast_claims_total",
			"Tasks that this replica took from the queue.", "agent"),
		claimWait: histograms("holdfast_claim_wait_seconds",
			"How long a task had been due when this replica took it from the queue.", latency, "agent"),
		runs: counters("holdfast_runs_total",
			"Runs that ended: `completed`, `failed`, `rejected`, `canceled`, `parked` (it waits for its client), `waits` (for a time), `calls` (for other agents), `retried`, `returned` (the server stops), `away` (the agent did not begin it), `lost` (another worker got the lease), `other`.", "agent", "outcome"),
		runTime: histograms("holdfast_run_seconds",
			"Duration of runs, however they ended.", work, "agent"),
		running: gauges("holdfast_runs_active",
			"Runs under way on this replica. At `limits.concurrency` it claims no further tasks of the agent.", "agent"),
		notices: counters("holdfast_cancel_notices_total",
			"Tries to tell an agent that its work was ended from outside: `delivered`, `retried`, `failed` (v_cancels has the error).", "agent", "outcome"),
		cancels: histograms("holdfast_cancel_seconds",
			"From the first cancel of a running task to its end, canceled or not.", work, "agent"),
		upstream: counters("holdfast_upstream_requests_total",
			"Requests of this replica to agents. `kind`: `http`, `a2a`, `openai` (the model), `tools`. `class`: `ok`, `redirect` (not followed), `refused` (other 4xx), `overloaded` (429, 503, 529), `gateway` (502, 504), `error` (other 5xx), `timeout`, `unreachable`, `broken` (the connection broke before an answer), `canceled` (the run ended first). An agent that is `overloaded` or `unreachable` is away.", "agent", "kind", "class"),
		upTime: histograms("holdfast_upstream_seconds",
			"Time of these requests until the head of the answer, or their failure.", work, "agent", "kind"),
		rescues: counter("holdfast_rescues_total",
			"Runs taken from a dead worker. More than a few mean that replicas die or cannot renew their lease."),
		held: gauge("holdfast_worker_claims_waiting",
			"Claims of remote workers that wait at this replica: one for each worker with free slots."),
		beats: counter("holdfast_worker_heartbeats_total",
			"Heartbeats of remote workers that this replica answered."),
		renewals: counter("holdfast_worker_lease_renewals_total",
			"Runs that these heartbeats named."),
		expired: counter("holdfast_worker_leases_expired_total",
			"Runs taken from a remote worker that did not renew its lease. More than a few mean that workers die or are cut off."),
		fenced: counter("holdfast_fenced_writes_total",
			"Writes of runs that were refused because another worker had the lease. Harmless; many mean that leases are too short."),
		commit: histograms("holdfast_commit_seconds",
			"Time of one flush to the database: `create` (new tasks and messages), `append` (events), `claim`, `push_claim`, `push_record`.", latency, "kind"),
		batch: histograms("holdfast_commit_batch_size",
			"Writes that shared one flush. It grows with load; near 500 the writers are saturated.", []float64{1, 2, 5, 10, 20, 50, 100, 200, 500}, "kind"),
		limited: counters("holdfast_limited_total",
			"Requests and streams refused by a limit: `rate`, `streams` (of a caller), `server_streams`, `memory`, `body`, `parts`, `live_tasks`, `queue`, `pending_messages`; runs ended by `artifacts`.", "agent", "limit"),
		retries: counters("holdfast_write_retries_total",
			"Writes retried because the database failed: `create`, `append`, `message`, `cancel`, `push_set`, `push_delete`, `push_record`, `other`.", "kind"),
		events: counters("holdfast_events_total",
			"Events written: `message`, `status`, `artifact`, `run`.", "kind"),
		hintLag: histogram("holdfast_hint_delivery_seconds",
			"From another replica's hint to the delivery of its events to streams here.", latency),
		pollFound: counter("holdfast_hub_poll_found_total",
			"Watched tasks whose events the poll found without a hint. It grows when NOTIFYs get lost, or while LISTEN does not work."),
		rereads: counter("holdfast_hub_rereads_total",
			"Streams that fell behind the events in memory and read the table: mostly slow clients."),
		logReads: counters("holdfast_log_reads_total",
			"Logs of tasks that answers needed: from `memory`, or from the `database`.", "from"),
		listening: gauge("holdfast_listener_connected",
			"1 while LISTEN works, 0 while this replica polls."),
		streams: gauges("holdfast_streams_open",
			"Open event streams on this replica.", "version"),
		resumes: counters("holdfast_stream_resumes_total",
			"Streams opened with `Last-Event-ID`.", "version"),
		requests: histograms("holdfast_request_seconds",
			"Time until the answer was ready, or the stream open. A `send` that waits for the task takes as long as the agent. `operation`: `send`, `stream`, `get`, `list`, `cancel`, `subscribe`, `push_set`, `push_get`, `push_list`, `push_delete`, `extended_card`, `card`, `none` (not recognised), `other`. `outcome`: `ok`, `refused` (not a valid JSON-RPC request), or the reason of the error, such as `TASK_NOT_FOUND`.",
			work, "operation", "binding", "version", "agent", "outcome"),
		answered: histograms("holdfast_first_event_seconds",
			"Time from a `stream` request to the first event of the agent.", work, "agent"),
		runAPI: histograms("holdfast_run_api_seconds",
			"Time of requests of agents to the run API. `operation`: `run`, `history`, `artifacts`, `artifact`, `tasks`, `task`, `state`, `set_state`, `remove_state`, `heartbeat`, `events`. `outcome`: `ok`, or the reason of the problem, such as `over` (the run has ended), `ordinal`, `token` or `unavailable`.",
			work, "operation", "outcome"),
		faults: counters("holdfast_faults_total",
			"Requests that failed by a fault: `INTERNAL_ERROR` (of the server), `UNAVAILABLE` (a part was away or full), `INVALID_AGENT_RESPONSE`. Alert on these.",
			"agent", "outcome"),
		pushAttempts: counters("holdfast_push_attempts_total",
			"Attempts to deliver from this replica: `delivered` (2xx), `gone` (410), `redirect` (3xx, not followed), `throttled` (408, 425, 429), `client` (other 4xx), `server` (5xx), `refused` (by the rules for addresses), `dns`, `tls`, `timeout`, `network`, `internal` (a fault of the server), `other`.", "class"),
		pushTime: histogram("holdfast_push_attempt_seconds",
			"Duration of attempts to deliver.", latency),
		pushLag: histogram("holdfast_push_lag_seconds",
			"From the commit of an event to its delivery.", append([]float64{.002, .005}, work[1:]...)),
		pushActive: gauge("holdfast_push_in_flight",
			"Deliveries in flight on this replica, up to `push.concurrency`."),
		conns: gauge("holdfast_connections_open",
			"Open connections to the public ports, including gRPC. At `limits.max_connections` further ones wait."),
		connsOver: counter("holdfast_connections_refused_total",
			"Connections closed because their address had reached `limits.connections_per_address`, and requests refused because too many were open without an accepted credential, or because their headers had no memory."),
		origins: counter("holdfast_origins_refused_total",
			"Requests of web pages whose origin `cors.allowed_origins` does not have. The log names one a minute."),
		notified: counters("holdfast_notifications_total",
			"Notifications of A2A servers behind fronts: `accepted`, `refused` (without a task's token).", "outcome"),
		callers: counters("holdfast_authentications_total",
			"Requests at agents that require a credential. `scheme`: its name, or `none`. `outcome`: `ok`; `error` (database or issuer unavailable); `limited` (not checked: too many were refused, or too many passwords wait); or the reason of the refusal: `missing`, `several`, `malformed`, `unknown`, `revoked`, `expired`, `early`, `algorithm`, `signature`, `issuer`, `audience`, `claims`, `certificate`, `elsewhere` (the agent does not accept the scheme).", "scheme", "outcome"),
		keySets: counters("holdfast_issuer_fetches_total",
			"Attempts to fetch the keys of a token issuer: `ok`, `error`.", "scheme", "outcome"),
		keySetAt: gauges("holdfast_issuer_keys_timestamp_seconds",
			"Unix time at which this replica last fetched the keys of a token issuer; 0: never. Keys older than 24 h are not used.", "scheme"),
		duties: counters("holdfast_duty_runs_total",
			"Periodic work of this replica. `outcome`: `ok`, `error` (the log has the reason; it is retried). `duty`: `runs`, `timers`, `calls`, `relays` and `cancels` on every worker; `signing_keys`, `remote_runs` and `admin_jobs` on every replica; `partitions`, `expire_parked`, `retention_tasks`, `retention_records`, `erase_logs`, `queue_figures`, `push_figures` and `database_figures` on one replica at a time. Alert when the sum of `ok` does not grow.", "duty", "outcome"),
		dutyTime: histograms("holdfast_duty_seconds",
			"Duration of a piece of periodic work.", latency, "duty"),
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
	for _, operation := range runOperations {
		m.runAPI.WithLabelValues(operation, "ok")
	}
	for outcome := range notified {
		m.notified.WithLabelValues(outcome)
	}
	for class := range pushClasses {
		m.pushAttempts.WithLabelValues(class)
	}
	for _, kind := range task.EventKinds {
		m.events.WithLabelValues(kind.String())
	}
	m.logReads.WithLabelValues("memory")
	m.logReads.WithLabelValues("database")
	for version := range m.versions {
		if version != none {
			m.streams.WithLabelValues(version)
			m.resumes.WithLabelValues(version)
		}
	}
}

// Agents creates the counters and gauges of the configured agents at the start. Call it before the first request. A histogram has
// some 16 series for each agent, so those begin with the first value.
func (m *Metrics) Agents(names ...string) {
	for _, agent := range names {
		m.agents[agent] = true
		for _, outcome := range serverFaults {
			m.faults.WithLabelValues(agent, outcome)
		}
		for limit := range limits {
			m.limited.WithLabelValues(agent, limit)
		}
		m.claims.WithLabelValues(agent)
		m.running.WithLabelValues(agent)
		for outcome := range runOutcomes {
			m.runs.WithLabelValues(agent, outcome)
		}
		for outcome := range noticeOutcomes {
			m.notices.WithLabelValues(agent, outcome)
		}
	}
}

// Schemes creates the series of the configured schemes of authentication at the start, and those of the issuers among them.
func (m *Metrics) Schemes(names, issuers []string) {
	for _, scheme := range append([]string{none}, names...) {
		for outcome := range authOutcomes {
			m.callers.WithLabelValues(scheme, outcome)
		}
	}
	for _, scheme := range issuers {
		m.keySets.WithLabelValues(scheme, "ok")
		m.keySets.WithLabelValues(scheme, "error")
		m.keySetAt.WithLabelValues(scheme)
	}
}

// Upstream returns the observer of the requests to what is behind an agent, and creates their counters.
func (m *Metrics) Upstream(agent, kind string) web.Observer {
	for _, class := range web.Classes {
		m.upstream.WithLabelValues(agent, kind, string(class))
	}
	return func(class web.Class, took time.Duration) {
		m.upstream.WithLabelValues(agent, kind, string(class)).Inc()
		m.upTime.WithLabelValues(agent, kind).Observe(took.Seconds())
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

// Notice counts a notice of a cancel to an agent.
func (m *Metrics) Notice(agent, outcome string) {
	m.notices.WithLabelValues(agent, bounded(noticeOutcomes, outcome)).Inc()
}

// Canceled measures the end of a task whose run a client had canceled.
func (m *Metrics) Canceled(agent string, took time.Duration) {
	m.cancels.WithLabelValues(agent).Observe(took.Seconds())
}

// Rescued counts runs taken from dead workers.
func (m *Metrics) Rescued(runs int) { m.rescues.Add(float64(runs)) }

// ClaimsWaiting changes the number of claims of remote workers that wait.
func (m *Metrics) ClaimsWaiting(delta int) { m.held.Add(float64(delta)) }

// Heartbeat counts a heartbeat of a remote worker, and the runs that it names.
func (m *Metrics) Heartbeat(runs int) { m.beats.Inc(); m.renewals.Add(float64(runs)) }

// LeasesExpired counts runs taken from remote workers.
func (m *Metrics) LeasesExpired(runs int) { m.expired.Add(float64(runs)) }

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

// LogRead counts the log of a task that an answer needed.
func (m *Metrics) LogRead(kept bool) {
	from := "database"
	if kept {
		from = "memory"
	}
	m.logReads.WithLabelValues(from).Inc()
}

// Listening records whether hints arrive by LISTEN.
func (m *Metrics) Listening(connected bool) {
	m.listening.Set(truth(connected))
}

// StreamOpened counts an open stream. Call closed when it ends.
func (m *Metrics) StreamOpened(version string) (closed func()) {
	g := m.streams.WithLabelValues(bounded(m.versions, version))
	g.Inc()
	return g.Dec
}

// Resumed counts a stream that was opened with Last-Event-ID.
func (m *Metrics) Resumed(version string) {
	m.resumes.WithLabelValues(bounded(m.versions, version)).Inc()
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

// Notified counts a notification of an A2A server.
func (m *Metrics) Notified(outcome string) {
	m.notified.WithLabelValues(bounded(notified, outcome)).Inc()
}

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
	if err == nil {
		m.keySetAt.WithLabelValues(scheme).SetToCurrentTime()
	}
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

// Answered measures an answered request. version is empty if none was recognized. outcome is ok, refused, or the reason
// of an error. Unknown values count as other.
func (m *Metrics) Answered(operation, binding, version, agent, outcome string, took time.Duration) {
	if version == "" {
		version = none
	}
	agent, outcome = bounded(m.agents, agent), bounded(requestOutcomes, outcome)
	m.requests.WithLabelValues(bounded(operations, operation), bounded(bindings, binding), bounded(m.versions, version), agent, outcome).
		Observe(took.Seconds())
	if slices.Contains(serverFaults, outcome) {
		m.faults.WithLabelValues(agent, outcome).Inc()
	}
}

// RunAPIAnswered measures a request of an agent to the run API. Both labels come from fixed sets.
func (m *Metrics) RunAPIAnswered(operation, outcome string, took time.Duration) {
	m.runAPI.WithLabelValues(operation, outcome).Observe(took.Seconds())
}

// FirstEvent measures the first event of an agent on the stream of a new message.
func (m *Metrics) FirstEvent(agent string, took time.Duration) {
	m.answered.WithLabelValues(bounded(m.agents, agent)).Observe(took.Seconds())
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
