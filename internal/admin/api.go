// Package admin is the API of operators, at the admin address: tasks with all their facts, actions on one task or on all that a
// filter selects, live lists, and the state of the cluster. docs/admin-api.yaml describes it.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Path is where the admin API is.
const Path = "/admin/v1"

// Right is what an operator may do. Each includes those before it.
type Right int

// The rights.
const (
	View       Right = iota + 1 // read tasks, webhooks, agents and replicas
	Act                         // act on tasks and webhooks
	Administer                  // delete tasks; read keys, the audit log and the findings of doctor
)

// String returns the name of the right.
func (r Right) String() string {
	return [...]string{"none", "view", "act", "administer"}[r]
}

// Admitted is the operator of a request, and what it may do.
type Admitted struct {
	Caller task.Caller
	Right  Right
	// Bound says that the operator sees only its own tenant.
	Bound bool
	// ReadOnly says why this address takes no writes, whatever the right; "": it does.
	ReadOnly string
	// Session is the browser's session that admitted the operator; nil: another credential did.
	Session *BrowserSession
	// Watch calls end, perhaps more than once, when the operator's credential would no longer be admitted. Nil: it has none.
	Watch func(end func(error)) (stop func())
}

// BrowserSession is a session of a browser in which an operator has logged in.
type BrowserSession struct {
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"expires_at"`
	LogoutURL string    `json:"logout_url"`
}

// Login says how a browser can log in. Answers with the status 401 have it.
type Login struct {
	URL    string `json:"url,omitempty"` // begins a login at the issuer, and takes return_to
	Issuer string `json:"issuer,omitempty"`
	KeyURL string `json:"key_url,omitempty"` // takes an API key
	// PasswordURL takes a user and a password.
	PasswordURL string `json:"password_url,omitempty"`
}

// Agent is what the API shows of an agent.
type Agent struct {
	Name        string
	Default     bool
	Kind        string // of its executor
	Concurrency int
	MaxAttempts int
	Remote      bool                   // its runs are those of remote workers
	Card        func() ([]byte, error) // nil: this process serves no cards
	Schemes     []string               // of its callers; none: they are anonymous
	Scope       string                 // that its callers need, or ""
}

// Options configures the API.
type Options struct {
	Store     *store.Store
	Hub       *hub.Hub
	Signals   *signal.Bus
	Retention *retention.Retention
	Agents    []Agent
	// Local says that the process is a command on a database whose servers are other processes: no request has a time limit, a job
	// runs in the request that adds it, and live lists look for changes because no hints arrive. The configuration may lack agents.
	Local bool
	// Admit returns the operator of a request. Its error is the answer.
	Admit func(r *http.Request) (*Admitted, error)
	// Need returns the error for an operator who lacks a right.
	Need func(r Right) error
	// SameOrigin returns an error for a write that a page of another origin makes a browser send. cookie says that a cookie is its
	// credential.
	SameOrigin func(r *http.Request, cookie bool) error
	Login      *Login // nil: browsers cannot log in
	// Examine makes the checks of doctor.
	Examine func(ctx context.Context, report func(doctor.Finding))
	Limits  *Limits
	// TryWebhook makes one delivery to a receiver, without a task.
	TryWebhook func(ctx context.Context, hook *task.PushConfig, agent string, owner task.Owner) (*shown.Trial, error)
	// Reseals says that this process has secret keys of its own, with the first of which it seals.
	Reseals bool
	// Talk serves requests to agents in the names of callers. Nil: this process does not have the role api.
	Talk    *Talk
	Version string
	Worker  func() task.ID // the id of this process; zero while it has none
	Memory  *limit.Budgets
	// KeySet returns the keys with which clients verify cards. Unsigned says why cards have no signature; "": they have one.
	KeySet   func() []byte
	Unsigned string
	// Disk returns the free space of the database's file system. Nil: it is on another machine, or not known.
	Disk func() (d Disk, known bool)
	// Streams and StreamsOfAddress bound the open streams of this process, in total and from one address.
	Streams, StreamsOfAddress int
	// TraceURL is the address of a trace, with {trace_id} in the place of its id, or "".
	TraceURL string
	// Documents says that the admin address has them, too.
	Documents bool
	// Prices are those of models, in Currency, which may be empty.
	Prices   Prices
	Currency string
	// AllTenantsScope is the scope that shows an operator all tenants. KeysAccepted says that some scheme takes API keys.
	AllTenantsScope string
	KeysAccepted    bool
	Log             *slog.Logger
}

// API answers the requests of operators.
type API struct {
	o         Options
	routes    *web.Routes
	feed      *feed
	streams   *limit.Places[string]
	doctor    chan struct{} // holds an element while an examination runs
	verifying chan struct{} // the same for a verification of the audit log
	queued    shared[struct{}, *queues]
	judged    shared[statsKey, []store.AgentHealth]
	measured  shared[statsKey, *statsView]
	sized     shared[struct{}, *measure]
	lagging   shared[struct{}, *store.PushLags]
	ended     shared[struct{}, []string]
	stopping  context.Context //nolint:containedctx // of all streams
	stop      context.CancelFunc
}

// requestTimeout bounds a request that is no stream, also while the database is away.
const requestTimeout = 30 * time.Second

// New makes the API. Run starts its live lists. It must be called before the first part runs, because it subscribes to signals.
func New(o Options) *API {
	a := &API{o: o, streams: limit.NewPlaces[string](o.Streams, o.StreamsOfAddress), doctor: make(chan struct{}, 1), verifying: make(chan struct{}, 1)}
	a.queued.keep, a.judged.keep, a.lagging.keep = 2*time.Second, 2*time.Second, 2*time.Second
	a.ended.keep = 3 * time.Second
	a.measured.keep, a.sized.keep = 5*time.Second, 15*time.Second
	a.stopping, a.stop = context.WithCancel(context.Background())
	a.feed = newFeed(o)
	if o.Local {
		a.feed.poll = func(ctx context.Context, since time.Time) ([]*store.AdminTask, bool, error) {
			return a.changedSince(ctx, since, polled)
		}
	}
	a.routes = web.NewRoutes("docs/admin-api.yaml", a.fail)
	for _, r := range a.operations() {
		a.routes.Handle(r.method+" "+Path+r.path, func(w http.ResponseWriter, req *http.Request) error {
			return a.handle(&r, w, req, req.Context().Value(whoKey{}).(*Admitted))
		})
	}
	return a
}

// Run runs the live lists until ctx ends.
func (a *API) Run(ctx context.Context) error { return a.feed.run(ctx) }

// Stop ends the streams. Their clients go on at another replica.
func (a *API) Stop() { a.stop() }

// route is an operation of the API.
type route struct {
	method, path string
	right        Right
	// whole says that the operation shows more than one tenant, so an operator of one tenant may not use it.
	whole  bool
	stream bool
	query  bool // it reads parameters and checks them itself; others have none
	do     func(x *exchange) error
}

func (a *API) operations() []route {
	return []route{
		{method: "GET", path: "/me", right: View, do: a.me},
		{method: "GET", path: "/tasks", right: View, query: true, do: a.tasks},
		{method: "GET", path: "/tasks/counts", right: View, query: true, do: a.counts},
		{method: "GET", path: "/tasks/stream", right: View, stream: true, query: true, do: a.tasksStream},
		{method: "GET", path: "/inbox", right: View, query: true, do: a.inbox},
		{method: "GET", path: "/views", right: View, do: a.views},
		{method: "PUT", path: "/views/{name}", right: Act, do: a.putView},
		{method: "DELETE", path: "/views/{name}", right: Act, do: a.deleteView},
		{method: "GET", path: "/tasks/{id}", right: View, do: a.task},
		{method: "GET", path: "/tasks/{id}/log", right: View, query: true, do: a.log},
		{method: "GET", path: "/tasks/{id}/log/stream", right: View, stream: true, query: true, do: a.logStream},
		{method: "GET", path: "/tasks/{id}/runs", right: View, do: a.runs},
		{method: "GET", path: "/tasks/{id}/lineage", right: View, do: a.lineage},
		{method: "GET", path: "/tasks/{id}/artifacts", right: View, query: true, do: a.artifacts},
		{method: "GET", path: "/tasks/{id}/artifacts/{artifact}", right: View, do: a.artifact},
		{method: "GET", path: "/tasks/{id}/artifacts/{artifact}/parts/{part}", right: View, stream: true, do: a.artifactPart},
		{method: "GET", path: "/tasks/{id}/usage", right: View, do: a.usage},
		{method: "GET", path: "/tasks/{id}/webhooks", right: View, query: true, do: a.webhooksOfTask},
		{method: "GET", path: "/tasks/{id}/attempts", right: View, query: true, do: a.attempts},
		{method: "POST", path: "/tasks/{id}/cancel", right: Act, do: a.single(actCancel)},
		{method: "POST", path: "/tasks/{id}/retry", right: Act, do: a.single(actRetry)},
		{method: "POST", path: "/tasks/{id}/hold", right: Act, do: a.single(actHold)},
		{method: "POST", path: "/tasks/{id}/release", right: Act, do: a.single(actRelease)},
		{method: "POST", path: "/tasks/{id}/purge", right: Administer, do: a.single(actPurge)},
		{method: "POST", path: "/tasks/{id}/answer", right: Act, do: a.answer},
		{method: "POST", path: "/tasks/{id}/webhooks/{config}/redeliver", right: Act, do: a.single(actRedeliver)},
		{method: "POST", path: "/tasks/{id}/webhooks/{config}/disable", right: Act, do: a.single(actDisable)},
		{method: "POST", path: "/tasks/{id}/webhooks/{config}/enable", right: Act, do: a.single(actEnable)},
		{method: "GET", path: "/webhooks", right: View, query: true, do: a.webhooks},
		{method: "POST", path: "/webhooks/test", right: Administer, whole: true, do: a.tryWebhook},
		{method: "GET", path: "/webhooks/lags", right: View, whole: true, do: a.lags},
		{method: "GET", path: "/agents", right: View, do: a.agents},
		{method: "GET", path: "/agents/{name}", right: View, do: a.agent},
		{method: "GET", path: "/agents/{name}/failures", right: View, query: true, do: a.failures},
		{method: "GET", path: "/stats", right: View, query: true, do: a.stats},
		{method: "GET", path: "/workers", right: View, whole: true, query: true, do: a.workers},
		{method: "POST", path: "/workers/{id}/retire", right: Act, whole: true, do: a.retire},
		{method: "GET", path: "/replicas", right: View, whole: true, do: a.replicas},
		{method: "GET", path: "/limits", right: View, whole: true, do: a.limits},
		{method: "GET", path: "/retention/plan", right: View, whole: true, do: a.plan},
		{method: "GET", path: "/doctor", right: Administer, whole: true, do: a.examine},
		{method: "GET", path: "/partitions", right: View, whole: true, do: a.partitions},
		{method: "GET", path: "/database", right: View, whole: true, do: a.database},
		{method: "GET", path: "/keys", right: Administer, query: true, do: a.keys},
		{method: "POST", path: "/keys", right: Administer, do: a.addKey},
		{method: "POST", path: "/keys/{id}/revoke", right: Administer, do: a.revokeKey},
		{method: "GET", path: "/sessions", right: Administer, query: true, do: a.sessions},
		{method: "POST", path: "/sessions/{id}/end", right: Administer, do: a.endSession},
		{method: "GET", path: "/audit", right: Administer, whole: true, query: true, do: a.audit},
		{method: "GET", path: "/audit/verify", right: Administer, whole: true, do: a.verify},
		{method: "POST", path: "/audit/verify", right: Administer, whole: true, do: a.verify},
		{method: "POST", path: "/secrets/reseal", right: Administer, whole: true, do: a.reseal},
		{method: "GET", path: "/jobs", right: View, query: true, do: a.jobs},
		{method: "POST", path: "/jobs", right: Act, do: a.addJob},
		{method: "GET", path: "/jobs/{id}", right: View, do: a.job},
		{method: "POST", path: "/jobs/{id}/cancel", right: Act, do: a.cancelJob},
		{method: "GET", path: "/talk", right: Act, do: a.talks},
		{method: "GET", path: "/talk/{agent}/{path...}", right: Act, stream: true, query: true, do: a.talk},
		{method: "POST", path: "/talk/{agent}/{path...}", right: Act, stream: true, query: true, do: a.talk},
		{method: "DELETE", path: "/talk/{agent}/{path...}", right: Act, stream: true, query: true, do: a.talk},
	}
}

// Operation is an operation of the API, for tests of its document.
type Operation struct {
	Method, Path string // below Path
	Right        Right
	Whole        bool
	Stream       bool
}

// Operations lists the operations.
func Operations() []Operation {
	var out []Operation
	for _, r := range (&API{}).operations() {
		out = append(out, Operation{r.method, strings.ReplaceAll(r.path, "...", ""), r.right, r.whole, r.stream})
	}
	return out
}

// exchange is a request and its answer.
type exchange struct {
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context //nolint:containedctx // of the request, with its account of memory
	who *Admitted
	op  *store.Operator
	q   *query
}

// ServeHTTP implements http.Handler. It admits operators before it looks at the path, so that others learn nothing about it.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	who, err := a.o.Admit(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // telemetry.AdminHandler has set one for strangers
	a.routes.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, who)))
}

type whoKey struct{}

// Refuse answers a request beside the API with an error.
func (a *API) Refuse(w http.ResponseWriter, r *http.Request, err error) { a.fail(w, r, err) }

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has left
	}
	if e := (*task.Error)(nil); errors.As(err, &e) && e.Kind == task.Unauthenticated {
		// A browser would answer this challenge with a dialog of its own, in front of the console's login.
		e.Challenges = slices.DeleteFunc(e.Challenges, func(c string) bool { return strings.HasPrefix(c, "Basic ") })
	}
	p := web.ProblemOf(err)
	if p.Status == http.StatusUnauthorized && a.o.Login != nil {
		p.Login = a.o.Login
	}
	p.Answer(w, r, writeTimeout, a.o.Log)
}

func (a *API) handle(r *route, w http.ResponseWriter, req *http.Request, who *Admitted) error {
	switch {
	case who.Right < r.right:
		return a.o.Need(r.right)
	case r.whole && who.Bound:
		return web.Refuse(http.StatusForbidden, web.ReasonForbidden, "", "operators of one tenant may not see what belongs to the whole server (admin.all_tenants_scope)")
	case r.method != http.MethodGet && who.ReadOnly != "":
		return web.Refuse(http.StatusForbidden, web.ReasonForbidden, "", who.ReadOnly)
	}
	if r.method != http.MethodGet {
		if err := a.o.SameOrigin(req, who.Session != nil); err != nil {
			return err
		}
	}
	ctx := req.Context()
	if !r.stream {
		var cancel context.CancelFunc
		ctx, cancel = a.within(ctx, requestTimeout)
		defer cancel()
		account := a.o.Memory.Open(limit.Holder{Operator: true})
		defer account.Close()
		ctx = limit.WithAccount(ctx, account)
	}
	q, err := parseQuery(req.URL.RawQuery)
	if err != nil {
		return err
	}
	if !r.query {
		if err := q.done(); err != nil {
			return err
		}
	}
	x := &exchange{w: w, r: req, ctx: ctx, who: who, q: q}
	x.op = a.o.Store.Operator(who.Caller, who.Bound)
	return r.do(x)
}

// within bounds a request.
func (a *API) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if a.o.Local {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// found finds the task of the path.
func (x *exchange) found() (*store.AdminTask, error) {
	return x.op.Find(x.ctx, x.r.PathValue("id"))
}

// ok writes a document.
func (x *exchange) ok(doc any) error { return x.answer(http.StatusOK, doc) }

func (x *exchange) answer(status int, doc any) error {
	return web.Answer(x.w, x.r, writeTimeout, status, "application/json", doc)
}

// writeTimeout bounds how long a client may take to read an answer.
const writeTimeout = time.Minute

// maxBody bounds the body of a request, in bytes.
const maxBody = 1 << 20

// body reads the body of a write. An unknown member is an error, because a misspelt one would do something else.
func (x *exchange) body(into any) error {
	// A page in a browser cannot send this type without a preflight request.
	if kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return web.Refuse(http.StatusUnsupportedMediaType, web.ReasonInvalid, "Content-Type", "must be application/json")
	}
	d := json.NewDecoder(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); more == nil {
			return web.Invalid("", "the body must be one JSON object")
		}
		return nil
	}
	var (
		large *http.MaxBytesError
		typed *json.UnmarshalTypeError
	)
	switch name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); {
	case errors.As(err, &large):
		return web.Refuse(http.StatusRequestEntityTooLarge, web.ReasonTooLarge, "", "the body must not be longer than 1 MiB")
	case errors.As(err, &typed):
		return web.Invalid(typed.Field, "must not be a JSON "+typed.Value)
	case unknown:
		return web.Invalid(strings.Trim(name, `"`), "is no member of this request")
	}
	return web.Invalid("", "the body is not a JSON object: "+err.Error())
}
