package connect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// The paths of the two APIs, below the address of the server.
const (
	workerAPI = "/worker/v1"
	runAPI    = "/run/v1"
)

const (
	claimWait    = 30 * time.Second // how long a claim waits for runs
	maxSlots     = 1000             // of an agent in a claim
	maxBeat      = 30 * time.Second // how long a heartbeat may wait
	late         = 15 * time.Second // how long an answer may take beyond the time that it was asked to wait
	missed       = 500 * time.Millisecond
	strangePause = 10 * time.Second       // how long the worker keeps a run that it does not understand
	hasty        = 100 * time.Millisecond // an answer that comes sooner has not waited
	returnGrace  = 5 * time.Second        // how long the agents' code may take after the end of its context, at the end of the worker
	leaveTimeout = 2 * time.Second
	lastGrace    = 10 * time.Second // how long the worker tries to give its runs back
)

// Agent is what runs of an agent execute.
type Agent struct {
	Execute func(ctx context.Context, run *executor.Run, m *Memory, out executor.Emitter) error
	// Cancel is called when something else than the agent has ended its work in this process; it may be nil.
	Cancel func(ctx context.Context, c *executor.Cancellation) error
}

// Options describe a worker.
type Options struct {
	URL         string // of the server
	Agents      map[string]*Agent
	Concurrency int // how many runs of each agent, at least 1
	Name        string
	Version     string
	SDK         string
	Credential  func() (string, error) // called for each request; nil: none
	Drain       time.Duration          // how long runs may go on after the end of the worker's context
	HTTP        *http.Client
	Log         *slog.Logger
}

// Worker claims runs and executes them.
type Worker struct {
	o        Options
	identity *wire.WorkerDocument
	client   *client
	log      *slog.Logger

	draining context.Context //nolint:containedctx // ends when no more runs are wanted
	drain    context.CancelFunc
	hurry    context.Context //nolint:containedctx // ends when the runs are to be given back at once
	abandon  context.Context //nolint:containedctx // ends when the agents' code is waited for no longer
	last     context.Context //nolint:containedctx // ends when nothing is sent any more

	background sync.WaitGroup // what posts events
	working    sync.WaitGroup // the runs

	mu      sync.Mutex
	runs    map[string]*run
	slots   map[string]int // free ones, by agent
	changed chan struct{}  // closed and replaced when a run ends or begins
	lease   time.Duration  // the shortest that the server has named
	named   map[string]bool
	retired bool // the server wants no more claims of this worker
}

// ErrVersion says that the server does not speak this version of the worker API.
var ErrVersion = errors.New("the server does not speak version 1 of the worker API")

// Run works until ctx ends, or until the server retires the worker. Then runs may finish; Options.Drain after the end of ctx the
// others are given back. When hurry ends they are given back at once. It returns nil, or ErrVersion.
func Run(ctx, hurry context.Context, o Options) error {
	w := &Worker{
		o: o, log: o.Log, identity: &wire.WorkerDocument{ID: uuid.NewString(), Name: o.Name, Version: o.Version, SDK: o.SDK},
		client: &client{url: strings.TrimRight(o.URL, "/"), bearer: o.Credential},
		runs:   map[string]*run{}, slots: map[string]int{}, changed: make(chan struct{}), lease: maxBeat, hurry: hurry,
	}
	w.client.http.Store(o.HTTP)
	for name := range o.Agents {
		w.slots[name] = o.Concurrency
	}
	var stops [3]context.CancelFunc
	w.draining, w.drain = context.WithCancel(ctx)
	base := context.WithoutCancel(ctx)
	w.abandon, stops[0] = context.WithCancel(base)
	w.last, stops[1] = context.WithCancel(base)
	beats, stopBeats := context.WithCancel(base)
	stops[2] = stopBeats
	defer func() {
		w.drain()
		for _, stop := range stops {
			stop()
		}
	}()
	beaten := make(chan struct{})
	go func() { defer close(beaten); w.beat(beats) }()
	w.log.Info("the worker starts", "agents", slices.Sorted(maps.Keys(o.Agents)), "url", w.address(), "worker", w.identity.ID)
	err := w.claim()
	w.drain()
	if err == nil {
		w.collect()
	}
	w.end(ctx, stops[0], stops[1])
	stopBeats()
	<-beaten
	w.background.Wait()
	w.announceEnd(base)
	w.client.http.Load().CloseIdleConnections()
	w.log.Info("the worker has stopped")
	return err
}

// announceEnd tells the server that this worker is gone.
func (w *Worker) announceEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := w.release(ctx, []string{}, true); err != nil {
		w.log.Debug("could not tell the server that this worker is gone", "error", err)
	}
}

// release gives runs back. leaves says that it is the last request.
func (w *Worker) release(ctx context.Context, runs []string, leaves bool) error {
	body := encode(&wire.ReleaseRequest{Worker: w.identity, Runs: runs, Leaves: leaves})
	return w.client.do(ctx, &exchange{method: http.MethodPost, path: workerAPI + "/release", body: body})
}

// end waits for the runs.
func (w *Worker) end(ctx context.Context, abandon, last context.CancelFunc) {
	done := make(chan struct{})
	go func() { defer close(done); w.working.Wait() }()
	var timeout <-chan time.Time
	stopped := ctx.Done()
	for waiting := true; waiting; {
		select {
		case <-done:
			return
		case <-stopped: // the server has retired the worker before
			w.log.Info("the worker drains", "runs", len(w.all()), "timeout", w.o.Drain)
			stopped, timeout = nil, time.After(w.o.Drain)
		case <-timeout:
			waiting = false
		case <-w.hurry.Done():
			waiting = false
		}
	}
	w.log.Info("the worker releases its runs", "runs", len(w.all()))
	for _, r := range w.all() {
		r.stop(executor.ErrShutdown, nil)
	}
	grace := time.NewTimer(returnGrace)
	defer grace.Stop()
	select {
	case <-done:
		return
	case <-grace.C:
	case <-w.hurry.Done():
	}
	abandon()
	select {
	case <-done:
	case <-time.After(lastGrace):
		last()
		for _, r := range w.all() {
			r.end()
		}
		<-done
	}
}

func (w *Worker) all() []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*run, 0, len(w.runs))
	for _, r := range w.runs {
		out = append(out, r)
	}
	return out
}

// address returns the address of the server without a password, for logs.
func (w *Worker) address() string {
	u, err := url.Parse(w.o.URL)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

// claim claims runs until the worker drains.
func (w *Worker) claim() error {
	var pause, hops, idle backoff
	connected := false
	for {
		request, free := w.request()
		if !free {
			return nil // the worker drains
		}
		asked := time.Now()
		answer, err := w.post(w.draining, request, claimWait)
		if p, ok := errors.AsType[*problem](err); ok && p.Status == http.StatusNotFound && p.Reason == "version" {
			return fmt.Errorf("%w; it speaks the versions %s", ErrVersion, strings.Join(p.Versions, ", "))
		}
		switch {
		case w.draining.Err() != nil && err != nil:
			return nil //nolint:nilerr // the end of the worker has cut the claim
		case err != nil:
			w.log.Warn("cannot claim runs, will retry", "url", w.address(), "error", err)
			connected = false
			pause.wait(w.draining, err)
			continue
		case !connected:
			w.log.Info("the worker is connected", "url", w.address(), "worker", w.identity.ID)
			connected = true
		}
		pause.reset()
		w.begin(answer)
		switch answer.Drain {
		case wire.DrainReplica:
			w.client.renew()
			if hops.pause > 0 { // every replica stops, or a balancer has not noticed
				hops.wait(w.draining, nil)
			} else {
				hops.pause = firstPause / 2
			}
		case wire.DrainWorker:
			w.retire()
			return nil
		default:
			hops.reset()
			if len(answer.Runs) == 0 && time.Since(asked) < hasty {
				idle.wait(w.draining, nil)
			} else {
				idle.reset()
			}
		}
	}
}

// request waits for free slots, and returns a claim for them. free is false if the worker drains.
func (w *Worker) request() (q *wire.ClaimRequest, free bool) {
	for {
		w.mu.Lock()
		changed := w.changed
		q = &wire.ClaimRequest{Worker: w.identity, Running: []string{}, Wait: new(claimWait.Seconds())}
		for name, n := range w.slots {
			q.Agents = append(q.Agents, wire.SlotsDocument{Name: name, Slots: new(min(n, maxSlots))})
			free = free || n > 0
		}
		for id, r := range w.runs {
			if !r.gone {
				q.Running = append(q.Running, id)
			}
		}
		w.mu.Unlock()
		slices.SortFunc(q.Agents, func(a, b wire.SlotsDocument) int { return cmp.Compare(a.Name, b.Name) })
		switch {
		case w.draining.Err() != nil:
			return q, false
		case free:
			return q, true
		}
		select {
		case <-changed:
		case <-w.draining.Done():
		}
	}
}

func (w *Worker) post(ctx context.Context, q *wire.ClaimRequest, wait time.Duration) (*wire.ClaimAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+late)
	defer cancel()
	var answer wire.ClaimAnswer
	err := w.client.do(ctx, &exchange{method: http.MethodPost, path: workerAPI + "/claims", body: encode(q), into: &answer})
	return &answer, err
}

// collect asks once for runs that the server has given to this worker in an answer that did not arrive, and gives them back.
func (w *Worker) collect() {
	q, _ := w.request()
	for i := range q.Agents {
		q.Agents[i].Slots = new(0)
	}
	q.Wait = new(0.0)
	ctx, cancel := context.WithTimeout(w.last, late)
	defer cancel()
	defer context.AfterFunc(w.hurry, cancel)()
	answer, err := w.post(ctx, q, 0)
	if err != nil {
		w.log.Debug("the last claim failed", "error", err)
		return
	}
	w.begin(answer)
}

// begin begins the runs of an answer. While the worker drains, it gives them back.
func (w *Worker) begin(answer *wire.ClaimAnswer) {
	for _, c := range answer.Runs {
		w.mu.Lock()
		known := w.runs[c.ID] != nil
		w.mu.Unlock()
		if known {
			continue
		}
		doc, err := wire.DecodeRun(c.Run)
		if err != nil {
			w.log.Error("a run cannot be executed; it is given back", "run", c.ID, "error", err)
			doc = &wire.Document{Run: &executor.Run{}}
		}
		r := &run{
			w: w, id: c.ID, doc: doc, agent: w.o.Agents[doc.Run.Agent],
			log: w.log.With("task_id", doc.Run.TaskID, "run", c.ID, "agent", doc.Run.Agent),
		}
		if id := traceID(doc.Run.Traceparent); id != "" {
			r.log = r.log.With("trace_id", id)
		}
		r.out = newEmitter(r)
		r.ctx, r.interrupt = context.WithCancelCause(context.WithoutCancel(w.draining))
		r.life, r.end = context.WithCancel(context.WithoutCancel(w.draining))
		r.states.from(doc)
		if doc.Run.API != nil {
			r.token = doc.Run.API.Token
		}
		w.enter(r, time.Duration(c.Lease*float64(time.Second)))
		w.working.Go(func() {
			defer w.leave(r)
			if r.agent == nil { // the server would give it back to this worker at once
				select {
				case <-w.draining.Done():
				case <-time.After(strangePause):
				}
			}
			if r.agent == nil || w.draining.Err() != nil {
				r.end()
				r.release()
				return
			}
			r.work()
		})
	}
}

func (w *Worker) enter(r *run, lease time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[r.id] = r
	if r.agent != nil {
		w.slots[r.doc.Run.Agent]--
	}
	w.lease = min(w.lease, max(lease, time.Second))
	w.announce()
}

func (w *Worker) leave(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, r.id)
	if r.agent != nil {
		w.slots[r.doc.Run.Agent]++
	}
	w.announce()
}

// announce wakes those who wait for a change of runs. w.mu is held.
func (w *Worker) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// retire says that an operator wants this worker to end. It reports whether that is new.
func (w *Worker) retire() bool {
	w.mu.Lock()
	already := w.retired
	w.retired = true
	w.mu.Unlock()
	if !already {
		w.log.Info("the worker is retired", "runs", len(w.all()))
	}
	w.drain()
	return !already
}

type beatRequest struct {
	wire.HeartbeatRequest
	wait, lease time.Duration // lease is the shortest of the runs
}

// beat renews the leases while there are runs. A heartbeat waits at the server, so that a cancel arrives at once. One that follows
// a heartbeat without an answer does not wait, because nobody knows whether that one has renewed the leases.
func (w *Worker) beat(ctx context.Context) {
	var pause, idle backoff
	hopped, answered := false, true
	for {
		q, changed := w.beatRequest(answered)
		if len(q.Runs) == 0 {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		asked := time.Now()
		answer, err := w.postBeat(ctx, q)
		answered = err == nil
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errMissed): // a run that it does not name would learn of its cancel too late
			continue
		case err != nil:
			w.log.Warn("heartbeat failed, will retry", "error", err)
			pause.waitAtMost(ctx, err, q.lease/6)
			continue
		}
		pause.reset()
		news := w.applyStops(answer)
		if answer.Drain == wire.DrainReplica {
			w.client.renew()
		}
		switch {
		case q.wait == 0: // its answer comes at once
		case (hopped || !news) && time.Since(asked) < hasty:
			idle.waitAtMost(ctx, nil, q.lease/6)
		default:
			idle.reset()
		}
		hopped = answer.Drain == wire.DrainReplica
	}
}

// beatRequest names the runs. A heartbeat that waits does so for a quarter of the lease, and postBeat gives its answer another
// quarter, so that the next one still comes in time.
func (w *Worker) beatRequest(wait bool) (*beatRequest, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &beatRequest{HeartbeatRequest: wire.HeartbeatRequest{Worker: w.identity, Runs: []string{}, Stopping: []string{}}, lease: w.lease}
	if wait {
		q.wait = min(w.lease/4, maxBeat)
	}
	q.Wait = new(q.wait.Seconds())
	w.named = map[string]bool{}
	for id, r := range w.runs {
		if r.gone {
			continue
		}
		w.named[id] = true
		q.Runs = append(q.Runs, id)
		if r.stopping {
			q.Stopping = append(q.Stopping, id)
		}
	}
	return q, w.changed
}

// errMissed ends a heartbeat that does not name all runs.
var errMissed = errors.New("the heartbeat does not name all runs")

// postBeat sends a heartbeat. It gives up one that waits when a new run is not named in it for a moment.
func (w *Worker) postBeat(parent context.Context, q *beatRequest) (*wire.HeartbeatAnswer, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	go func() {
		for q.wait > 0 && ctx.Err() == nil {
			w.mu.Lock()
			changed, missing := w.changed, false
			for id, r := range w.runs {
				missing = missing || !w.named[id] && !r.gone
			}
			w.mu.Unlock()
			if missing {
				select {
				case <-time.After(missed):
					cancel(errMissed)
				case <-ctx.Done():
				}
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	patience := min(max(q.lease/4, 2*time.Second), late)
	timed, stop := context.WithTimeout(ctx, q.wait+patience)
	defer stop()
	var answer wire.HeartbeatAnswer
	err := w.client.do(timed, &exchange{method: http.MethodPost, path: workerAPI + "/heartbeat", body: encode(&q.HeartbeatRequest), into: &answer})
	if err != nil && errors.Is(context.Cause(ctx), errMissed) {
		return nil, errMissed
	}
	return &answer, err
}

// applyStops stops the runs that the answer to a heartbeat names. It reports whether the answer says something new.
func (w *Worker) applyStops(answer *wire.HeartbeatAnswer) (news bool) {
	news = answer.Drain == wire.DrainReplica
	w.mu.Lock()
	if answer.Lease > 0 {
		w.lease = max(time.Duration(answer.Lease*float64(time.Second)), time.Second)
	}
	stops := map[*run]int{}
	for i := range answer.Runs {
		if r := w.runs[answer.Runs[i].ID]; r != nil && !r.gone {
			stops[r] = i
			news = news || !r.stopping
		}
	}
	w.mu.Unlock()
	for r, i := range stops {
		switch s := &answer.Runs[i]; s.Stop {
		case wire.StopCanceled:
			r.stop(executor.ErrCanceled, s.Metadata)
		case wire.StopLost:
			r.stop(executor.ErrLeaseLost, nil)
		case wire.StopOver:
			r.stop(ErrOver, nil)
		}
	}
	if answer.Drain == wire.DrainWorker && w.retire() {
		news = true
	}
	return news
}

// encode writes a request of strings and numbers.
func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // its type cannot be encoded
	}
	return raw
}

// traceID is the trace of a traceparent, or "".
func traceID(traceparent string) string {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 {
		return parts[1]
	}
	return ""
}
