package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Check is one check of /readyz. Probe returns its state in a few words. It returns an error if the replica should get
// no requests; an error wrapped by Degraded is shown, but the replica stays ready.
type Check struct {
	Name  string
	Probe func(ctx context.Context) (detail string, err error)
}

type degraded struct{ err error }

func (d *degraded) Error() string { return d.err.Error() }
func (d *degraded) Unwrap() error { return d.err }

// Degraded marks an error of a check that does not make the replica unready.
func Degraded(err error) error { return &degraded{err} }

// strangersRead is the time that a client has for an answer that everybody gets.
const strangersRead = 30 * time.Second

// checkTimeout bounds a probe, so that /readyz answers before its client gives up.
const checkTimeout = 2 * time.Second

// sharedFor is how long a shared result is used.
const sharedFor = time.Second

// Shared returns a check that runs once for all requests at the same time or shortly after. Anybody may request
// /readyz, so requests must not multiply the cost of a check.
func (c Check) Shared() Check {
	var (
		mu     sync.Mutex
		made   time.Time
		detail string
		err    error
	)
	return Check{c.Name, func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if made.IsZero() || time.Since(made) >= sharedFor {
			// The result is for all requests, so it must not end with the first one.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
			defer cancel()
			detail, err = c.Probe(ctx)
			made = time.Now()
		}
		return detail, err
	}}
}

// The statuses of a check and of the whole answer.
const (
	statusOK       = "ok"
	statusDegraded = "degraded"
	statusFailed   = "failed"
)

type checkResult struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
}

type readiness struct {
	Status string        `json:"status"`
	Checks []checkResult `json:"checks,omitzero"`
}

// Page is a kind of pages of the admin address. Operators may have some kinds only.
type Page int

// The kinds.
const (
	Health   Page = iota // metrics and the checks of /readyz, which show no task
	Profiles             // of the process, with its memory
	Others
)

// Admit returns nil if a request comes from an operator who may use a page, else a task.Error, which is the answer.
type Admit func(r *http.Request, page Page) error

// Endpoint is a page or an action for operators over HTTP.
type Endpoint struct {
	Pattern string       // in the syntax of http.ServeMux
	Handler http.Handler // admits operators itself, or is for everybody
}

const (
	metricsPattern = "GET /metrics"
	profiles       = "GET /debug/pprof/"
)

// AdminHandler serves /livez, /readyz and the endpoints to everybody. Only operators get /metrics, /debug/pprof/, and the results of each
// check of /readyz: profiles and details are not for clients.
func AdminHandler(metrics prometheus.Gatherer, admit Admit, endpoints []Endpoint, checks ...Check) http.Handler {
	mux, operators := http.NewServeMux(), http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		found := probe(r.Context(), checks)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if found.Status == statusFailed {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if admit(r, Health) != nil {
			found = found.brief()
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	// One failing collector must not hide the others.
	operators.Handle(metricsPattern, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	for _, e := range endpoints {
		mux.Handle(e.Pattern, e.Handler)
	}
	operators.HandleFunc(profiles, pprof.Index)
	operators.HandleFunc(profiles+"cmdline", pprof.Cmdline)
	operators.HandleFunc(profiles+"profile", pprof.Profile)
	operators.HandleFunc(profiles+"symbol", pprof.Symbol)
	operators.HandleFunc(profiles+"trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		page := Others
		switch _, pattern := operators.Handler(r); {
		case pattern == metricsPattern:
			page = Health
		case strings.HasPrefix(pattern, profiles):
			page = Profiles
		}
		// Check before the handler answers, so that others learn nothing about the paths.
		if err := admit(r, page); err != nil {
			refuse(w, err)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a profile may take long
		operators.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Until a handler has admitted the operator, nobody holds an answer by not reading it.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(strangersRead))
		// A browser must not show an error message as a page, because it may quote the request.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

// refuse answers a request of the admin address with an error.
func refuse(w http.ResponseWriter, err error) {
	e := &task.Error{Kind: task.KindOf(err)}
	errors.As(err, &e)
	fault.Headers(e, w.Header().Add)
	w.Header().Set("Cache-Control", "no-store")
	status := fault.Base.Row(e.Kind).HTTP
	http.Error(w, strings.TrimSuffix(http.StatusText(status)+": "+task.Shown(e.Msg), ": "), status)
}

// brief returns the part for everybody: whether the replica is ready.
func (r readiness) brief() readiness {
	if r.Status != statusFailed {
		return readiness{Status: statusOK}
	}
	return readiness{Status: statusFailed}
}

// probe runs all checks at the same time and keeps their order.
func probe(ctx context.Context, checks []Check) readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	answer := readiness{Status: statusOK, Checks: make([]checkResult, len(checks))}
	var wg sync.WaitGroup
	for i, c := range checks {
		wg.Go(func() { answer.Checks[i] = c.run(ctx) })
	}
	wg.Wait()
	for _, r := range answer.Checks {
		switch {
		case r.Status == statusFailed:
			answer.Status = statusFailed
		case r.Status == statusDegraded && answer.Status == statusOK:
			answer.Status = statusDegraded
		}
	}
	return answer
}

func (c Check) run(ctx context.Context) checkResult {
	detail, err := c.Probe(ctx)
	r := checkResult{Name: c.Name, Status: statusOK, Detail: detail}
	if err != nil {
		r.Status, r.Error = statusFailed, err.Error()
		var d *degraded
		if errors.As(err, &d) {
			r.Status = statusDegraded
		}
	}
	return r
}
