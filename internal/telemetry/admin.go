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

	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Check is one thing that /readyz looks at. Probe returns a word on how it stands, and
// an error when the replica should get no requests because of it; an error wrapped by
// Degraded is shown but does not take the replica out.
type Check struct {
	Name  string
	Probe func(ctx context.Context) (detail string, err error)
}

type degraded struct{ err error }

func (d *degraded) Error() string { return d.err.Error() }
func (d *degraded) Unwrap() error { return d.err }

// Degraded marks the error of a check as one that the replica can live with.
func Degraded(err error) error { return &degraded{err} }

// checkTimeout bounds a probe, so that /readyz answers before its caller gives up.
const checkTimeout = 2 * time.Second

// sharedFor is how long a shared answer is good.
const sharedFor = time.Second

// Shared is the same check, made once for all who ask at the same time or soon after: anybody may ask for /readyz, and
// what costs something must not cost as much as they like.
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
			// The answer is not only for who asks first, and may leave.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
			defer cancel()
			detail, err = c.Probe(ctx)
			made = time.Now()
		}
		return detail, err
	}}
}

// The statuses of a check and of the whole.
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

// Admit decides whether a request comes from an operator. An error is a task.Error, and its answer.
type Admit func(r *http.Request) error

// AdminHandler serves /livez and /readyz to everybody, and to operators /metrics, /debug/pprof/ and what the checks of
// /readyz have found: profiles and details are not for clients.
func AdminHandler(metrics prometheus.Gatherer, admit Admit, checks ...Check) http.Handler {
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
		if admit(r) != nil {
			found = found.brief()
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	// One failing collector must not hide all the others.
	operators.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	operators.HandleFunc("GET /debug/pprof/", pprof.Index)
	operators.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	operators.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	operators.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	operators.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		// Before it is looked at what they want: who may not learns nothing.
		if err := admit(r); err != nil {
			refuse(w, err)
			return
		}
		operators.ServeHTTP(w, r)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An error message that quotes what somebody sent must not be read as a page.
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

// refuse answers to who is no operator.
func refuse(w http.ResponseWriter, err error) {
	e := &task.Error{Kind: task.KindOf(err)}
	errors.As(err, &e)
	fault.Headers(e, w.Header().Add)
	w.Header().Set("Cache-Control", "no-store")
	status := fault.Base.Row(e.Kind).HTTP
	http.Error(w, strings.TrimSuffix(http.StatusText(status)+": "+e.Msg, ": "), status)
}

// brief is what everybody may know: whether there is something to wait for.
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
