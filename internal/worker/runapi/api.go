// Package runapi is the run API: an agent acts for one run from elsewhere than the answer of the call that began it. It
// reads what the run document left out, stores states, and posts events. docs/run-api.yaml describes it.
//
// A request may reach any replica. Its token names the task and the claim of the attempt, and the database knows whether the
// attempt still has the task: each read looks, and each write is fenced. So a token is of no use when its attempt is over.
package runapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

const (
	// Path is where the run API is.
	Path = "/run/v1"

	// TokenPrefix begins the token of an attempt, so that a scanner for leaked secrets recognises it.
	TokenPrefix = "hfrun_"

	// Purpose names the keys of the tokens to store.Derive.
	Purpose = "run api"
)

// Options configures the run API.
type Options struct {
	Store   *store.Store
	Pool    *worker.Pool            // whose agents may post; it need not run them
	History map[string]wire.History // of run documents, by agent
	Tokens  *task.Tokens            // of runs, by when they were claimed
	Memory  *limit.Budgets
	Limits  web.BodyLimits // of bodies that are one document, and the time to send a body or to read an answer
	Log     *slog.Logger
	// Answered, if not nil, is called after each request to a known path. outcome is ok, or the reason of the problem.
	Answered func(operation, outcome string, took time.Duration)
}

// API answers the requests of agents.
type API struct {
	o       Options
	routes  *web.Routes
	stopped context.Context //nolint:containedctx // of all uploads
	stop    context.CancelFunc
}

// readTimeout bounds a request that posts no events, also while the database is away.
const readTimeout = 30 * time.Second

// New makes the run API.
func New(o Options) *API {
	o.Limits = o.Limits.OrDefaults()
	a := &API{o: o}
	a.stopped, a.stop = context.WithCancel(context.Background())
	a.routes = web.NewRoutes("docs/run-api.yaml", a.fail)
	a.handle("GET", "", "run", a.during(true, a.run))
	a.handle("GET", "/history", "history", a.during(false, a.history))
	a.handle("GET", "/records", "records", a.during(false, a.records))
	a.handle("GET", "/artifacts", "artifacts", a.during(false, a.artifacts))
	a.handle("GET", "/artifacts/{id...}", "artifact", a.during(false, a.artifact))
	a.handle("GET", "/tasks", "tasks", a.during(false, a.tasks))
	a.handle("GET", "/tasks/{id...}", "task", a.during(false, a.task))
	a.handle("GET", "/state/{scope}", "state", a.during(false, a.state))
	a.handle("PUT", "/state/{scope}", "set_state", a.during(false, a.setState))
	a.handle("DELETE", "/state/{scope}", "remove_state", a.during(false, a.removeState))
	a.handle("POST", "/heartbeat", "heartbeat", a.during(false, a.heartbeat))
	a.handle("POST", "/events", "events", a.events)
	return a
}

type handler = func(http.ResponseWriter, *http.Request) error

// handle serves an operation, and reports its requests.
func (a *API) handle(method, path, operation string, do handler) {
	a.routes.Handle(method+" "+Path+path, func(w http.ResponseWriter, r *http.Request) error {
		began := time.Now()
		err := do(w, r)
		outcome := "ok"
		if err != nil {
			outcome = toProblem(err).Reason
		}
		if a.o.Answered != nil {
			a.o.Answered(operation, outcome, time.Since(began))
		}
		return err
	})
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.o.Limits.Begin(w)
	a.routes.ServeHTTP(w, r)
}

// Stop ends the uploads that are under way, after the events that have arrived. Their agents go on at another replica.
func (a *API) Stop() { a.stop() }

// exchange is a request with its visit.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
	*worker.Visit
	query   url.Values
	ctx     context.Context //nolint:containedctx // of the request, with the account
	account *limit.Account
}

// bearer returns the run that a request acts for: its task, and when it was claimed.
func (a *API) bearer(r *http.Request) (id task.ID, claimedAt int64, err error) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	text, ours := strings.CutPrefix(strings.TrimSpace(text), TokenPrefix)
	id, claimedAt, ok := a.o.Tokens.Read(text)
	if !ok || !ours || !strings.EqualFold(scheme, "Bearer") {
		return id, 0, web.Refuse(http.StatusUnauthorized, reasonUnauthenticated, "Authorization",
			"needs the token of a run, as Authorization: Bearer <runApi.token>")
	}
	return id, claimedAt, nil
}

// during makes a handler of one that acts during an attempt.
func (a *API) during(withMessage bool, do func(*exchange) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
		defer cancel()
		x, err := a.begin(ctx, w, r, withMessage)
		if err != nil {
			return err
		}
		defer x.end()
		return do(x)
	}
}

// begin visits the attempt of a request.
func (a *API) begin(ctx context.Context, w http.ResponseWriter, r *http.Request, withMessage bool) (*exchange, error) {
	id, attempt, err := a.bearer(r)
	if err != nil {
		return nil, err
	}
	limit.Accept(ctx)
	v, err := a.o.Pool.Visit(ctx, id, attempt, withMessage)
	if errors.Is(err, task.NotFound) {
		err = web.Refuse(http.StatusGone, reasonOver, "", "the run is over: its task was deleted")
	}
	if err != nil {
		return nil, err
	}
	x := &exchange{w: w, r: r, query: r.URL.Query(), Visit: v, account: a.o.Memory.Open(limit.Holder{Agent: v.Agent().Name})}
	x.ctx = limit.WithAccount(ctx, x.account)
	return x, nil
}

func (x *exchange) end() {
	x.Close()
	x.account.Close()
}

// answer writes a document.
func (a *API) answer(w http.ResponseWriter, r *http.Request, doc any) error {
	raw, err := wire.Marshal(doc)
	if err != nil {
		return err
	}
	a.send(w, r, raw)
	return nil
}

func (a *API) send(w http.ResponseWriter, r *http.Request, raw []byte) {
	web.AnswerRaw(w, r, a.o.Limits.Timeout, http.StatusOK, "application/json", raw)
}

func (a *API) ok(x *exchange, doc any) error { return a.answer(x.w, x.r, doc) }

// run answers with the run document.
func (a *API) run(x *exchange) error {
	if err := x.parameters(); err != nil {
		return err
	}
	raw, err := wire.EncodeRun(x.ctx, x.Run, a.o.History[x.Run.Agent])
	if err != nil {
		return err
	}
	a.send(x.w, x.r, raw)
	return nil
}

type heartbeat struct {
	Next int64  `json:"next"`
	Stop string `json:"stop,omitempty"`
}

// heartbeat notes that the agent is there, and tells it whether the client has canceled the task.
func (a *API) heartbeat(x *exchange) error {
	if err := x.parameters(); err != nil {
		return err
	}
	canceled, err := x.Heartbeat(x.ctx)
	if err != nil {
		return err
	}
	doc := heartbeat{Next: x.Next()}
	if canceled {
		doc.Stop = "canceled"
	}
	return a.ok(x, doc)
}

// scope returns whose state the path names.
func (x *exchange) scope() (executor.Scope, error) {
	return scopeOf("scope", x.r.PathValue("scope"))
}

func scopeOf(field, name string) (executor.Scope, error) {
	switch name {
	case executor.OfTask.String():
		return executor.OfTask, nil
	case executor.OfContext.String():
		return executor.OfContext, nil
	}
	return 0, web.Invalid(field, "must be task or context")
}
