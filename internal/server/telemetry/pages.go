package telemetry

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

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

// strangersRead is the time that a client has for an answer that everybody gets.
const strangersRead = 30 * time.Second

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
