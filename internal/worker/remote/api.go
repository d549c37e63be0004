package remote

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	workers "github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

const (
	// Path is where the worker API is.
	Path = "/worker/v" + version
	// Root is where all versions of the worker API are.
	Root = "/worker"
	// version is that of the protocol.
	version = "1"

	reasonVersion = "version" // of a problem

	// ScopePrefix begins the scope that a worker needs for an agent.
	ScopePrefix = "worker:"
	// AllAgents is the scope for all agents.
	AllAgents = ScopePrefix + "*"
)

// Store is what the worker API needs of the database.
type Store interface {
	FindRun(ctx context.Context, id task.ID, withMessage bool) (*store.Run, error)
	Claim(ctx context.Context, worker task.ID, want []store.Demand) ([]*store.Claimed, error)
	RenewRemote(ctx context.Context, worker task.ID, runs []store.LentRun, leases map[string]time.Duration) ([]store.Renewal, error)
	Lent(ctx context.Context, worker task.ID, agents []string) ([]store.LentRun, error)
	ExpireRemote(ctx context.Context, agents []string, others bool) ([]store.Rescued, error)
	PartRemote(ctx context.Context, replica string, workers []task.ID, runs []store.Renewal) ([]store.Rescued, error)
	LookRemote(ctx context.Context, agents map[string]store.RemoteLimits) ([]store.Overdue, error)
	SeenRemote(ctx context.Context, replica string, workers []store.RemoteWorker) (retired []task.ID, err error)
	RetiredRemote(ctx context.Context, within time.Duration) (retired, gone []task.ID, err error)
	AbsentRemote(ctx context.Context, process task.ID, agents []string) (map[string]time.Duration, error)
	ForgetRemote(ctx context.Context, age time.Duration) (more bool, err error)
	Began(ctx context.Context, agents []string) (locked []string, err error)
	NoticeFacts(ctx context.Context, id task.ID) (store.NoticeFacts, error)
}

// Observer receives measurements. Every field is optional.
type Observer struct {
	Claimed func(agent string, n int, waited time.Duration)
	Waiting func(delta int) // claims that wait
	Beat    func(runs int)  // a heartbeat
}

// Options configures the worker API.
type Options struct {
	Store   Store
	Pool    *workers.Pool            // has the agents
	Leases  map[string]time.Duration // of runs, by remote agent
	History map[string]wire.History  // of run documents, by agent
	// GoneAfter is how long after its connection broke a worker without a new one is gone; 0: 3 s.
	GoneAfter time.Duration
	// Forgiving says that a worker whose connection breaks is gone at once, and its runs count no try: their author has changed
	// or broken their program.
	Forgiving bool
	// Auth authenticates workers by any of these schemes. Without schemes, workers need no credential.
	Auth    *auth.Authenticator
	Schemes []string
	Memory  *limit.Budgets
	Limits  web.BodyLimits
	// Claims bounds the requests that wait, in total and for each caller.
	Claims   *limit.Places[limit.Holder]
	Poll     time.Duration // of the queue, in case hints are lost
	Replica  string        // name of this process
	Observer Observer
	Log      *slog.Logger
}

// API answers the requests of workers.
type API struct {
	o        Options
	gate     *auth.Gate
	routes   *web.Routes
	broker   *broker
	registry *registry
	beats    *beats
	stopped  context.Context //nolint:containedctx // of claims and heartbeats that wait
	stop     context.CancelFunc
}

// readTimeout bounds the work of a request, also while the database is away. It does not bound waits.
const readTimeout = 30 * time.Second

// New makes the worker API. Run must be running while it serves.
func New(o Options) *API {
	o.Limits = o.Limits.OrDefaults()
	o.Limits.Size = min(o.Limits.Size, maxBody)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := &API{
		o: o, gate: &auth.Gate{Schemes: o.Schemes},
		registry: &registry{all: map[task.ID]*worker{}}, beats: &beats{of: map[task.ID][]*beat{}},
	}
	agents := map[string]*queue{}
	for name, agent := range o.Pool.RemoteAgents() {
		q := &queue{name: name, lease: o.Leases[name], look: o.Leases[name]}
		for _, most := range []time.Duration{agent.RunTimeout, agent.InactivityTimeout} {
			if most > 0 {
				q.look = min(q.look, most)
			}
		}
		agents[name] = q
	}
	a.broker = newBroker(&broker{
		store: o.Store, poll: o.Poll, memory: o.Memory.Runs, log: o.Log, agents: agents,
		count: func(agent string, waited time.Duration) {
			if o.Observer.Claimed != nil {
				o.Observer.Claimed(agent, 1, waited)
			}
		},
	})
	a.stopped, a.stop = context.WithCancel(context.Background())
	a.routes = web.NewRoutes("docs/worker-api.yaml", a.fail)
	a.routes.Handle("POST "+Path+"/claims", a.during(a.claim))
	a.routes.Handle("POST "+Path+"/heartbeat", a.during(a.heartbeat))
	a.routes.Handle("POST "+Path+"/release", a.during(a.release))
	return a
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.o.Limits.Begin(w)
	if !strings.HasPrefix(r.URL.Path+"/", Path+"/") {
		p := web.Refuse(http.StatusNotFound, reasonVersion, "", "this server does not speak this version of the worker protocol")
		p.Versions = []string{version}
		a.fail(w, r, p)
		return
	}
	a.routes.ServeHTTP(w, r)
}

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, context.Canceled) { // else the worker has left
		web.ProblemOf(err).Answer(w, r, a.o.Limits.Timeout, a.o.Log)
	}
}

// Run claims runs for the claims that wait, until ctx ends.
func (a *API) Run(ctx context.Context) error {
	a.broker.run(ctx)
	return nil
}

// Stop answers the claims and heartbeats that wait: their workers go on at another replica.
func (a *API) Stop() { a.stop() }

// Ended tells the API that a process with workers has ended. They are those without a request.
func (a *API) Ended() { a.registry.brokeIdle() }

// Reserve takes the place of a claim that waits here for runs of the agent, or returns nil. The caller must call Start or Release.
func (a *API) Reserve(agent string) *Slot { return a.broker.reserve(agent) }

// Wake tells the API that an agent's queue has something to claim; "" means any agent.
func (a *API) Wake(agent string) { a.broker.hint(agent) }

// Hint tells the API that a run may have been canceled or may have ended.
func (a *API) Hint(id task.ID) { a.beats.hint(id) }

// record writes about the workers that this replica has answered, removes those that are gone, and looks for those that an
// operator has retired. It returns how many runs of gone workers are free again.
func (a *API) record(ctx context.Context) (freed int, err error) {
	if !a.registry.any() {
		return 0, nil
	}
	now := time.Now()
	after := cmp.Or(a.o.GoneAfter, goneAfter)
	if a.o.Forgiving {
		after = 0
	}
	freed, err = a.removeWorkers(ctx, a.registry.gone(now.Add(-after)))
	errs := []error{err}
	for list := range slices.Chunk(a.registry.due(now), 1000) {
		retired, err := a.o.Store.SeenRemote(ctx, a.o.Replica, list)
		if err == nil {
			a.registry.recorded(list, now)
		}
		a.registry.retire(retired)
		errs = append(errs, err)
	}
	retired, gone, err := a.o.Store.RetiredRemote(ctx, forgetAfter)
	a.registry.retire(retired)
	a.registry.recordAgain(gone, now)
	return freed, errors.Join(append(errs, err)...)
}

// removeWorkers records that workers are gone, and frees their runs.
func (a *API) removeWorkers(ctx context.Context, gone []*worker) (freed int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	ids, unknown, runs := a.registry.markGone(gone)
	if _, err := a.o.Store.SeenRemote(ctx, a.o.Replica, unknown); err != nil {
		a.registry.broke(gone...)
		return 0, err // the next look tries again
	}
	if a.o.Forgiving {
		for _, run := range runs {
			if _, err := a.handBack(ctx, run.LentRun); err != nil {
				return 0, err // their leases end
			}
		}
		runs = nil
	}
	rescued, err := a.o.Store.PartRemote(ctx, a.o.Replica, ids, runs)
	if err != nil {
		a.registry.broke(gone...)
	}
	return len(rescued), err
}

// exchange is a request with its caller.
type exchange struct {
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context //nolint:containedctx // of the work of the request, not of its wait
	holder  limit.Holder
	body    []byte
	caller  task.Caller
	id      *auth.Authentication // nil: nobody needs a credential
	account *limit.Account
}

// during makes a handler of one that acts for a caller. It checks the credential before it reads the body.
func (a *API) during(do func(*exchange) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		x := &exchange{w: w, r: r, ctx: r.Context(), holder: limit.Holder{Worker: true, Address: limit.Sender(r.RemoteAddr)}}
		if a.gate.Open() && r.Header.Get("Origin") != "" {
			return web.Refuse(http.StatusForbidden, web.ReasonForbidden, "Origin", "pages in browsers may not use the worker API of a server without credentials")
		}
		if a.o.Auth != nil {
			shown := &auth.Request{Header: r.Header.Values, Address: r.RemoteAddr}
			if r.TLS != nil {
				shown.Chain = r.TLS.PeerCertificates
			}
			x.id = a.o.Auth.Authenticate(r.Context(), shown, a.gate)
			caller, err := a.o.Auth.Admit(x.id, a.gate)
			if err != nil {
				return err
			}
			x.caller = caller
			if !a.gate.Open() {
				x.holder = limit.Holder{Worker: true, Owner: caller.Owner()}
			}
		}
		limit.Accept(r.Context())
		if q := r.URL.Query(); len(q) > 0 {
			return web.Invalid(slices.Sorted(maps.Keys(q))[0], "is not a parameter of this path")
		}
		if !web.IsJSON(r.Header.Get("Content-Type")) || r.Header.Get("Content-Type") == "" {
			return web.Refuse(http.StatusUnsupportedMediaType, web.ReasonInvalid, "Content-Type", "must be application/json")
		}
		x.account = a.o.Memory.Open(x.holder)
		defer x.account.Close()
		raw, fault := a.o.Limits.Read(w, r, x.account)
		if fault != nil {
			return fault
		}
		x.body, x.ctx = raw, limit.WithAccount(r.Context(), x.account)
		return do(x)
	}
}

// drop drops the body, which a request that waits does not need.
func (x *exchange) drop() {
	x.body = nil
	x.account.Stored()
}

// may reports whether the caller may run an agent.
func (a *API) may(x *exchange, agent string) bool {
	return a.gate.Open() || x.caller.Has(ScopePrefix+agent) || x.caller.Has(AllAgents)
}

// allowed returns the remote agents that the caller may run, with their leases.
func (a *API) allowed(x *exchange) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for name, lease := range a.o.Leases {
		if a.may(x, name) {
			out[name] = lease
		}
	}
	if len(out) == 0 {
		return nil, web.Refuse(http.StatusForbidden, web.ReasonForbidden, "", "a scope such as "+ScopePrefix+"<agent> is needed")
	}
	return out, nil
}

// watched returns a context that ends with the request, when the server stops, or when the credential is not good any more.
func (a *API) watched(x *exchange) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	unwatch := func() {}
	if x.id != nil {
		unwatch = a.o.Auth.Watch(x.id, a.gate, func(err error) { cancel(err) })
	}
	return ctx, func() { unwatch(); cancel(nil) }
}

// ok answers with a document.
func (a *API) ok(x *exchange, doc any) error {
	return web.Answer(x.w, x.r, a.o.Limits.Timeout, http.StatusOK, "application/json", doc)
}

// drainPause is how long a claim waits at a replica that stops: the worker may find no other one for a while.
const drainPause = 250 * time.Millisecond

func (a *API) drain(w *worker) string {
	switch {
	case w.retired.Load():
		return wire.DrainWorker
	case a.stopped.Err() != nil:
		return wire.DrainReplica
	}
	return ""
}

// claim answers with runs, as soon as there are some.
func (a *API) claim(x *exchange) error {
	r, bad := readClaim(x.body, a.o.Limits.Depth)
	if bad != nil {
		return bad
	}
	for i, name := range r.worker.Agents {
		field := "agents[" + strconv.Itoa(i) + "].name"
		if !a.may(x, name) {
			return web.Refuse(http.StatusForbidden, web.ReasonForbidden, field, "the scope "+ScopePrefix+name+" is needed")
		}
		if _, ok := a.o.Leases[name]; !ok {
			return web.Refuse(http.StatusNotFound, web.ReasonNotFound, field, "is not an agent with executor.kind worker")
		}
	}
	leave, ok := a.o.Claims.Take(x.holder)
	if !ok {
		return a.full()
	}
	defer leave()
	entry, ok := a.registry.beginRequest(r.worker, true)
	if !ok {
		return a.full()
	}
	defer a.leave(x, entry)
	x.drop()
	replaced, earlier, looks := a.registry.beginClaim(entry)
	if earlier != nil {
		a.broker.end(earlier)
	}
	answer := wire.ClaimAnswer{Runs: []wire.ClaimedRun{}}
	defer func() { a.registry.endClaim(entry, replaced, len(answer.Runs) > 0) }()
	if looks {
		if err := a.again(x, entry, &r, &answer); err != nil {
			entry.unsure.Store(true)
			return err
		}
	}
	if err := a.wait(x, entry, &r, replaced, &answer); err != nil {
		return err
	}
	answer.Drain = a.drain(entry)
	return a.ok(x, answer)
}

// full refuses a request beyond the number that may wait.
func (a *API) full() *web.Problem {
	p := web.Refuse(http.StatusTooManyRequests, "busy", "", "too many claims wait")
	p.After = 5 * time.Second
	return p
}

// maxAgain is how many bytes of run documents an answer has, after which the runs that the worker has not got wait for the next
// claim.
const maxAgain = 16 << 20

// again adds the runs that were given to the worker, and that it does not have.
func (a *API) again(x *exchange, entry *worker, r *claimRequest, answer *wire.ClaimAnswer) error {
	ctx, cancel := context.WithTimeout(x.ctx, readTimeout)
	defer cancel()
	lent, err := a.o.Store.Lent(ctx, entry.id, r.worker.Agents)
	if err != nil {
		return err
	}
	running := make(map[store.LentRun]bool, len(r.running))
	for _, run := range r.running {
		running[run] = true
	}
	size := 0
	for _, run := range lent {
		if running[run] {
			continue
		}
		if size >= maxAgain {
			return nil // claim notes that the next claim looks again
		}
		v, err := a.o.Pool.Visit(ctx, run.Task, run.ClaimedAt, true)
		if _, over := errors.AsType[*workers.Over](err); over || errors.Is(err, task.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		doc, err := a.document(ctx, v)
		v.Close()
		if err != nil {
			return err
		}
		answer.Runs = append(answer.Runs, doc)
		size += len(doc.Run)
	}
	return nil
}

// wait waits for runs, unless the answer has some.
func (a *API) wait(x *exchange, entry *worker, r *claimRequest, replaced chan struct{}, answer *wire.ClaimAnswer) error {
	wait := r.wait
	if a.drain(entry) != "" {
		wait, r.slots = min(wait, drainPause), nil
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	if len(answer.Runs) > 0 {
		return nil
	}
	ctx, stop := a.watched(x)
	defer stop()
	for {
		w := a.broker.enter(entry, r.slots)
		if !a.registry.waits(entry, w, replaced) {
			a.broker.end(w) // the later claim has not seen it, and must not share a statement with it
		}
		a.waiting(1)
		left := error(nil)
		ended := true
		stopped := a.stopped.Done()
		retirement := entry.retirement
		if r.slots == nil { // it is drained already, and waits for a moment only
			stopped, retirement = nil, nil
		}
		select {
		case <-w.served:
			ended = false
		case <-over.C:
		case <-replaced:
		case <-retirement:
		case <-stopped:
		case <-ctx.Done():
			left = context.Cause(ctx)
		}
		got := a.broker.leave(w)
		a.waiting(-1)
		select {
		case <-replaced: // nobody may read this answer
			a.giveBack(got, "the worker has claimed again")
			return nil
		default:
		}
		if left != nil {
			a.giveBack(got, "the worker has left")
			return left
		}
		if err := a.lend(x, entry, got, answer); err != nil {
			return err
		}
		// A worker that may have got a run looks for it with its next claim.
		if len(answer.Runs) > 0 || ended || len(got) == 0 {
			return nil
		}
		// The runs had ended before they began. The slots are free again.
		for _, c := range got {
			r.slots[c.Task.Agent]++
		}
	}
}

// leave ends a request of a worker, and notes if its connection has broken.
func (a *API) leave(x *exchange, entry *worker) {
	if x.r.Context().Err() != nil && a.stopped.Err() == nil {
		a.registry.broke(entry)
	}
	a.registry.endRequest(entry)
}

func (a *API) waiting(delta int) {
	if a.o.Observer.Waiting != nil {
		a.o.Observer.Waiting(delta)
	}
}

// lend begins claimed runs, and adds them to the answer.
func (a *API) lend(x *exchange, entry *worker, got []*store.Claimed, answer *wire.ClaimAnswer) error {
	if len(got) == 0 {
		return nil
	}
	for _, c := range got {
		defer a.o.Memory.Runs.Hold(c.Message.Size())() // until all are sent
	}
	ctx, cancel := context.WithTimeout(x.ctx, readTimeout)
	defer cancel()
	visits := make([]*workers.Visit, len(got))
	docs := make([]wire.ClaimedRun, len(got))
	for i, c := range got {
		v, err := a.o.Pool.Lend(ctx, c)
		if err == nil {
			visits[i] = v
			docs[i], err = a.document(ctx, v)
		}
		if err != nil && !errors.Is(err, workers.ErrNotLent) {
			a.o.Log.Warn("could not hand a run to a worker; another one gets it", "task_id", c.Task.PublicID, "agent", c.Task.Agent, "error", err)
			visits[i] = nil
			a.giveBack(got[i:i+1], "the run document could not be made")
		}
	}
	for i, v := range visits {
		if v == nil {
			continue
		}
		err := v.Flush(ctx)
		v.Close()
		switch {
		case err == nil:
			answer.Runs = append(answer.Runs, docs[i])
			run, lease := store.LentRun{Task: got[i].Task.ID, ClaimedAt: got[i].ClaimedAt}, a.o.Leases[got[i].Task.Agent]
			a.registry.lend(entry, store.Renewal{LentRun: run, Renewed: true, Until: time.UnixMicro(got[i].ClaimedAt).Add(lease)})
		case errors.Is(err, task.LeaseLost): // it was deleted meanwhile
		default:
			a.giveBack(got[i:i+1], "the beginning of the run could not be stored")
		}
	}
	return nil
}

// document makes the run document of a run.
func (a *API) document(ctx context.Context, v *workers.Visit) (wire.ClaimedRun, error) {
	raw, err := wire.EncodeRun(ctx, v.Run, a.o.History[v.Run.Agent])
	return wire.ClaimedRun{
		ID:  runID(store.LentRun{Task: v.Task().ID, ClaimedAt: v.Claimed().ClaimedAt}),
		Run: raw, Lease: a.o.Leases[v.Run.Agent].Seconds(),
	}, err
}

// giveBack gives back runs that their worker does not get.
func (a *API) giveBack(runs []*store.Claimed, why string) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	for _, c := range runs {
		if err := a.o.Pool.GiveBackRemote(ctx, c, why); err != nil {
			a.o.Log.Warn("could not give back a run; it waits until its lease ends", "task_id", c.Task.PublicID, "error", err)
		}
	}
}

// heartbeat renews leases, and waits for a reason to stop a run.
func (a *API) heartbeat(x *exchange) error {
	r, bad := readBeat(x.body, a.o.Limits.Depth)
	if bad != nil {
		return bad
	}
	leases, err := a.allowed(x)
	if err != nil {
		return err
	}
	entry, ok := a.registry.beginRequest(r.worker, false)
	if !ok {
		return a.full()
	}
	defer a.leave(x, entry)
	if a.o.Observer.Beat != nil {
		a.o.Observer.Beat(len(r.runs))
	}
	x.drop()
	heard, quiet := a.beats.listen(r.runs)
	defer quiet()
	answer := wire.HeartbeatAnswer{Runs: []wire.StoppedRun{}}
	news, err := a.renew(x, entry, &r, r.runs, leases, &answer)
	if err != nil {
		return err
	}
	if !news {
		if err := a.await(x, entry, &r, heard, leases, &answer); err != nil {
			return err
		}
	}
	answer.Drain = a.drain(entry)
	return a.ok(x, answer)
}

// renew renews the leases of runs, and adds the runs to stop to the answer. news says that the worker does not stop one of them
// yet.
func (a *API) renew(x *exchange, entry *worker, r *beatRequest, runs []store.LentRun, leases map[string]time.Duration, answer *wire.HeartbeatAnswer) (news bool, err error) {
	ctx, cancel := context.WithTimeout(x.ctx, readTimeout)
	defer cancel()
	renewed, err := a.o.Store.RenewRemote(ctx, entry.id, runs, leases)
	if err != nil {
		return false, err
	}
	a.registry.renewed(entry, r.runs, renewed)
	shortest := time.Duration(math.MaxInt64)
	for _, n := range renewed {
		s := wire.StoppedRun{ID: runID(n.LentRun)}
		switch {
		case n.Owned && !n.Canceled:
		case n.Owned:
			s.Stop = wire.StopCanceled
			facts, err := a.o.Store.NoticeFacts(ctx, n.Task)
			if err != nil && !errors.Is(err, task.NotFound) {
				return false, err
			}
			s.Metadata = facts.Metadata
		case n.Over:
			s.Stop = wire.StopOver
		default:
			s.Stop = wire.StopLost
		}
		if n.Renewed {
			shortest = min(shortest, n.Lease)
		}
		if s.Stop != "" {
			answer.Runs = slices.DeleteFunc(answer.Runs, func(old wire.StoppedRun) bool { return old.ID == s.ID })
			answer.Runs = append(answer.Runs, s)
			news = news || !r.stopping[n.LentRun]
		}
	}
	if answer.Lease == 0 && shortest < math.MaxInt64 {
		answer.Lease = shortest.Seconds()
	}
	return news, nil
}

// await waits until there is a reason to stop a run.
func (a *API) await(x *exchange, entry *worker, r *beatRequest, heard *beat, leases map[string]time.Duration, answer *wire.HeartbeatAnswer) error {
	wait := r.wait
	if answer.Lease > 0 {
		wait = min(wait, time.Duration(answer.Lease*float64(time.Second)/3))
	}
	stopped, retirement := a.stopped.Done(), entry.retirement
	if a.stopped.Err() != nil {
		wait, stopped = min(wait, drainPause), nil
	}
	if entry.retired.Load() {
		retirement = nil // it knows, or learns it with this answer
	}
	if wait <= 0 {
		return nil
	}
	leave, ok := a.o.Claims.Take(x.holder)
	if !ok {
		return nil // the leases are renewed; the worker asks again
	}
	defer leave()
	ctx, unwatch := a.watched(x)
	defer unwatch()
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		select {
		case <-over.C:
			return nil
		case <-stopped:
			return nil
		case <-retirement:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-heard.wake:
			hinted := heard.take(r.runs)
			if len(hinted) == 0 {
				continue
			}
			news, err := a.renew(x, entry, r, hinted, leases, answer)
			if err != nil || news {
				return err
			}
		}
	}
}

// release gives runs back.
func (a *API) release(x *exchange) error {
	var r wire.ReleaseRequest
	if bad := decode(x.body, a.o.Limits.Depth, &r); bad != nil {
		return bad
	}
	sender, runs, bad := readOf(r.Worker, r.Runs)
	if bad != nil {
		return bad
	}
	leases, err := a.allowed(x)
	if err != nil {
		return err
	}
	entry, ok := a.registry.beginRequest(sender, false)
	if !ok {
		return a.full()
	}
	defer a.leave(x, entry)
	ctx, cancel := context.WithTimeout(x.ctx, readTimeout)
	defer cancel()
	owned, err := a.o.Store.RenewRemote(ctx, entry.id, runs, leases)
	if err != nil {
		return err
	}
	done := make([]bool, len(owned))
	var all errgroup.Group
	all.SetLimit(8)
	for i, n := range owned {
		if !n.Owned {
			continue
		}
		all.Go(func() (err error) {
			done[i], err = a.handBack(ctx, n.LentRun)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err // the worker repeats the request; runs that it has released already are passed over
	}
	if r.Leaves {
		if _, err := a.removeWorkers(ctx, []*worker{entry}); err != nil {
			return err
		}
	}
	answer := struct {
		Released []string `json:"released"`
	}{Released: []string{}}
	for i, n := range owned {
		if done[i] {
			answer.Released = append(answer.Released, runID(n.LentRun))
		}
	}
	return a.ok(x, answer)
}

// handBack gives back one run. A canceled one ends instead: no worker may be there to claim it.
func (a *API) handBack(ctx context.Context, run store.LentRun) (done bool, err error) {
	found, err := a.o.Store.FindRun(ctx, run.Task, false)
	if errors.Is(err, task.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !found.Owned || found.ClaimedAt != run.ClaimedAt {
		return false, nil
	}
	if found.CancelRequested {
		err = end(ctx, a.o.Pool, run, executor.ErrCanceled)
	} else {
		err = a.o.Pool.GiveBackRemote(ctx, found.Claimed, "the worker gave it back")
	}
	return err == nil, err
}
