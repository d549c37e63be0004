package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Agent is an executor with its limits. A zero limit means no limit, except for Concurrency and
// MaxAttempts.
type Agent struct {
	Name              string
	Executor          executor.Executor
	Concurrency       int                        // concurrent runs in this process; at least 1
	MaxAttempts       int                        // executor starts per message, including crashes; at least 1
	UnreachableFor    time.Duration              // how long tasks wait for the agent when it is away; default 1 h
	RunTimeout        time.Duration              // of one attempt
	InactivityTimeout time.Duration              // longest time without an emission
	Backoff           time.Duration              // before the first retry; doubles, with jitter; default 1 s
	MaxBackoff        time.Duration              // default 5 min
	CancelGrace       time.Duration              // between asking a run to end and writing its status anyway
	MaxArtifacts      int64                      // maximum bytes of the artifacts of a task; 0: no limit
	MaxCalls          int                        // maximum calls of one event; 0: executor.DefaultCalls
	MaxState          int64                      // maximum bytes of the state of a task or context; 0: no limit
	MaxEvent          int                        // maximum bytes of an event that comes as JSON; 0: wire.DefaultMaxEvent
	ExtensionParams   map[string]json.RawMessage // of the extensions on the agent's card that have parameters, by URI
	DirectReplies     bool                       // may answer with a bare Message: working is not reported before the first emission
	Remote            bool                       // remote workers run it: the pool claims only what has waited too long for one (Expire)
}

// params returns the parameters of those extensions that have some.
func (a *Agent) params(extensions []string) map[string]json.RawMessage {
	of := map[string]json.RawMessage{}
	for _, uri := range extensions {
		if params, ok := a.ExtensionParams[uri]; ok {
			of[uri] = params
		}
	}
	return of
}

// Observer receives the pool's measurements. Every field is optional.
type Observer struct {
	Claimed func(agent string, n int, waited time.Duration)
	Ran     func(agent, outcome string, took time.Duration)
	Running func(agent string, delta int)
	Limited func(agent, limit string)   // a limit ended a run
	Notice  func(agent, outcome string) // a notice of a cancel: delivered, retried or failed
}

// mostResults bounds the results of calls in a run document, in bytes.
const mostResults = 1 << 20

// LimitArtifacts is the name of Agent.MaxArtifacts in Observer.Limited.
const LimitArtifacts = "artifacts"

// Options configures a pool. The zero value of a duration means its default.
type Options struct {
	Store        *store.Store
	Agents       []Agent
	PollInterval time.Duration // of the queue, in case hints are lost; default 1 s
	StopGrace    time.Duration // for runs when the server stops; 0 gives them back at once
	ClaimBatch   int           // maximum runs per agent in one claim; default 100
	Worker       func() task.ID
	Keys         *executor.Keyring // of the memory of agents
	// Memory bounds the messages and the events of runs. One run starts whatever the size of its message. Nil: no bound.
	Memory *limit.Runs
	// RunAPI returns the address of the run API and the token of a run. Nil: there is no run API.
	RunAPI func(id task.ID, run task.Fence) executor.API
	// ResumeURL returns the resume URL of a turn. Nil: no URLs.
	ResumeURL func(id task.ID, turn int) string

	Observer Observer
	Tracer   *tracing.Tracer // nil: no traces
	Log      *slog.Logger
}

// Pool runs agents on this process.
type Pool struct {
	opt    Options
	agents map[string]*slots
	wake   chan struct{}

	mu      sync.Mutex
	running map[task.ID]*run
	hinted  map[task.ID]struct{} // runs with a cancel hint that is not checked yet
	looking bool                 // whether look runs
	suspect *run                 // a run that may end the process; no other such run starts meanwhile
	closing bool                 // no more claims
	// stopping: the grace for runs is over, too
	stopping    bool
	runs        sync.WaitGroup
	notices     context.Context // ends when no more are delivered
	stopNotices context.CancelFunc

	// Results of the previous Reconcile, used only there: runs that only the database knows, and
	// runs that only this process knows.
	missing, unknown map[task.ID]task.Fence
	scan             store.Pace
	scanned          time.Time // when the last scan began
	// until when a claim or a create without an answer may still be committed
	lostAnswerUntil time.Time
}

// slots counts the places for one agent's runs. Pool.mu guards its fields.
type slots struct {
	Agent
	free    int
	ready   bool // a hint came, or a claim won all it asked for: more may be waiting
	since   time.Time
	scanned time.Time // last claim that scanned the whole queue
	notices int       // that are claimed
	breaker breaker
	noted   time.Time // the newest begin that Reconcile has recorded
	expire  bool      // Remote: claim the tasks that have waited for UnreachableFor
}

// New returns a pool. Run starts it.
func New(o Options) *Pool {
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	o.ClaimBatch = cmp.Or(o.ClaimBatch, 100)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	notices, stopNotices := context.WithCancel(context.Background())
	p := &Pool{notices: notices, stopNotices: stopNotices, opt: o, agents: map[string]*slots{}, wake: make(chan struct{}, 1), running: map[task.ID]*run{}, hinted: map[task.ID]struct{}{}}
	for _, a := range o.Agents {
		a.Concurrency, a.MaxAttempts = max(a.Concurrency, 1), max(a.MaxAttempts, 1)
		a.UnreachableFor = cmp.Or(a.UnreachableFor, time.Hour)
		p.agents[a.Name] = &slots{Agent: a, free: a.Concurrency, ready: true, breaker: breaker{most: a.Concurrency}}
	}
	return p
}

// Wake tells the pool that an agent's queue has something to claim; "" means any agent.
func (p *Pool) Wake(agent string) {
	p.mu.Lock()
	if agent == "" {
		for _, s := range p.agents {
			s.ready = true
		}
	} else if s := p.agents[agent]; s != nil {
		s.ready = true
	}
	p.mu.Unlock()
	p.ring()
}

func (p *Pool) ring() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Slot is a reserved place for one run. It is reserved before its task exists, so the statement
// that creates the task can also claim it.
type Slot struct {
	worker task.ID
	pool   *Pool
	agent  *slots
}

// Claimer returns what claims the task.
func (s *Slot) Claimer() store.Slot { return store.Slot{Worker: s.worker} }

// Reserve takes a slot if the agent has a free one, is not away, and no older task is known to wait;
// otherwise it returns nil. The caller must call Start or Release.
func (p *Pool) Reserve(agent string) *Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.agents[agent]
	if s == nil || s.Remote || s.free == 0 || s.ready || s.breaker.open || p.closing || p.opt.Memory.Full() {
		return nil
	}
	w := p.opt.Worker()
	if w.IsZero() {
		return nil
	}
	s.free--
	// The pool must not end before the run of this slot.
	p.runs.Add(1)
	return &Slot{worker: w, pool: p, agent: s}
}

// Start runs the task that was created with the slot.
func (s *Slot) Start(c *store.Claimed) {
	if s.pool.opt.Observer.Claimed != nil {
		s.pool.opt.Observer.Claimed(s.agent.Name, 1, 0)
	}
	s.pool.start(s.agent, c, false)
	s.pool.runs.Done()
}

// Release returns the slot unused. err says why the task was not created.
func (s *Slot) Release(err error) {
	if errors.Is(err, task.Unavailable) {
		s.pool.lostAnswer() // it may have been created all the same
	}
	s.pool.release(s.agent)
	s.pool.runs.Done()
}

func (p *Pool) release(s *slots) {
	p.mu.Lock()
	s.free++
	more := s.ready
	p.mu.Unlock()
	if more {
		p.ring()
	}
}

// CancelHint tells the pool that a client may have canceled a run, or that its agent may have ended it through the run
// API. The pool ends the run only if the database confirms it, because anyone who can log in to the database can send a
// hint.
func (p *Pool) CancelHint(id task.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[id] == nil {
		return
	}
	p.hinted[id] = struct{}{}
	if !p.looking {
		p.looking = true
		p.runs.Go(p.look) // a run is still counted, so Wait on p.runs has not returned
	}
}

// look checks the hinted runs in the database until no hint is left. Hints that arrive during a
// query go into the next one.
func (p *Pool) look() {
	for {
		p.mu.Lock()
		ids := slices.Collect(maps.Keys(p.hinted))
		clear(p.hinted)
		p.looking = len(ids) > 0
		p.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		asking, cancel := context.WithTimeout(context.Background(), claimTimeout)
		held, err := p.opt.Store.Held(asking, p.opt.Worker(), ids)
		cancel()
		if err != nil {
			p.opt.Log.Debug("could not check the hinted cancels; the next reconcile finds them", "error", err)
		}
		runs, fences := map[task.ID]*run{}, map[task.ID]task.Fence{}
		p.cancel(held)
		p.mu.Lock()
		for _, id := range ids {
			if r := p.running[id]; r != nil {
				runs[id], fences[id] = r, r.claim.Fence
			}
		}
		p.mu.Unlock()
		asking, cancel = context.WithTimeout(context.Background(), claimTimeout)
		ended, err := p.opt.Store.Ended(asking, fences)
		cancel()
		if err != nil {
			p.opt.Log.Debug("could not check which of the hinted runs have ended; the next reconcile does", "error", err)
		}
		for id, end := range ended {
			runs[id].endedBy(end)
		}
	}
}

// cancel ends the runs of this process that were canceled.
func (p *Pool) cancel(held []store.Owned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range held {
		if r := p.running[o.Task]; o.CancelRequested && r != nil && r.claim.Fence == o.Fence {
			r.interrupt(executor.ErrCanceled)
		}
	}
}

// LoseAll ends every run because the process was declared dead. All of them are already fenced.
func (p *Pool) LoseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.running {
		r.interrupt(executor.ErrLeaseLost)
	}
}

// Run claims tasks and runs them until ctx ends. Then it drains: it lets runs finish within the
// grace and gives back the rest.
func (p *Pool) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		p.claim(ctx)
		select {
		case <-p.wake:
		case <-time.After(p.pause()):
			p.Wake("")
		case <-ctx.Done():
		}
	}
	p.drain()
	return nil
}

// pause returns how long the claim loop sleeps: until the next poll, or the next probe of an agent that
// is away.
func (p *Pool) pause() time.Duration {
	pause := p.opt.PollInterval/2 + rand.N(p.opt.PollInterval)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.agents {
		if wait := s.breaker.wait(time.Now()); wait > 0 {
			pause = min(pause, wait)
		}
	}
	return pause
}

const (
	fullScanEvery = 5 * time.Second
	claimTimeout  = 5 * time.Second
)

// claim fills free slots once, for all agents in one statement.
func (p *Pool) claim(ctx context.Context) {
	worker := p.opt.Worker()
	if worker.IsZero() {
		// The process has no lease now. Ready agents stay ready until the next poll.
		return
	}
	want := p.demand()
	if len(want) == 0 {
		return
	}
	// A stop must not interrupt a claim: nobody would run what it won until the lease expired.
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	won, err := p.opt.Store.Claim(claiming, worker, want)
	cancel()
	if err != nil {
		p.lostAnswer()
		p.returnSlots(want, nil, false)
		if ctx.Err() == nil {
			p.opt.Log.Warn("claim failed; retrying", "error", err)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return
	}
	counts, expired := map[string]int{}, map[string]bool{}
	for _, d := range want {
		expired[d.Agent] = d.Older > 0
	}
	for _, c := range won {
		counts[c.Task.Agent]++
		if p.opt.Observer.Claimed != nil {
			p.opt.Observer.Claimed(c.Task.Agent, 1, c.Waited)
		}
		p.mu.Lock()
		s := p.agents[c.Task.Agent]
		if c.Since.After(s.since) && !s.breaker.open {
			s.since = c.Since
		}
		p.mu.Unlock()
		p.start(s, c, expired[c.Task.Agent])
	}
	// A claim that is not crowded and yet passes over tasks has won a large one. The next may win those.
	passed := !want[0].Further && slices.ContainsFunc(won, func(c *store.Claimed) bool { return c.Since.IsZero() })
	p.returnSlots(want, counts, passed)
}

// demand returns the runs to claim and reserves their slots, so that Reserve cannot give them away
// again.
func (p *Pool) demand() []store.Demand {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return nil
	}
	fits, crowded := p.opt.Memory.Messages()
	var want []store.Demand
	for name, s := range p.agents {
		if !s.ready || s.free == 0 || s.Remote && !s.expire {
			continue
		}
		now := time.Now()
		d := store.Demand{Agent: name, Slots: min(s.free, p.opt.ClaimBatch), Since: s.since, NoSuspect: p.suspect != nil, Bytes: fits, Further: crowded}
		if s.Remote {
			s.expire, d.Since, d.Older = false, time.Time{}, s.UnreachableFor
		} else if d = s.breaker.demand(now, d, s.UnreachableFor); d.Slots == 0 {
			continue
		}
		s.free -= d.Slots
		// Clear it before the claim reads the queue, so that a hint during the claim is not lost.
		s.ready = false
		if now.Sub(s.scanned) > fullScanEvery {
			s.scanned, d.Since = now, time.Time{}
		}
		want = append(want, d)
	}
	return want
}

// returnSlots frees the slots that the claim did not fill. An agent that won all it asked for may
// have more waiting, and each one after a claim that has passed over tasks. With nil counts the result
// of the claim is unknown.
func (p *Pool) returnSlots(want []store.Demand, counts map[string]int, passed bool) {
	p.mu.Lock()
	again := false
	for _, d := range want {
		s := p.agents[d.Agent]
		n := counts[d.Agent]
		s.free += d.Slots - n
		s.ready = s.ready || counts == nil || passed || n == d.Slots || d.Older > 0
		if d.Older > 0 && n == d.Slots {
			s.breaker.expired, s.expire = false, s.Remote // there may be more
		}
		again = again || (s.ready && s.free > 0)
	}
	p.mu.Unlock()
	if again {
		p.ring()
	}
}

// start runs a claim. If it is expired, the task waited too long for the agent, and the run only says so.
func (p *Pool) start(s *slots, c *store.Claimed, expired bool) {
	r := newRun(p, s, c)
	r.trace()
	p.mu.Lock()
	if expired {
		r.expired = cmp.Or(s.breaker.err, errAway)
	} else {
		r.starting = true
		s.breaker.starting++
	}
	if c.Suspect {
		p.suspect = r
	}
	// A create with a late answer may start a run that was given back and claimed again meanwhile. A run with the same attempt
	// has lost its claim in a failover.
	if old := p.running[c.Task.ID]; old == nil || old.claim.Attempt <= c.Attempt {
		if old != nil {
			old.interrupt(executor.ErrLeaseLost)
		}
		p.running[c.Task.ID] = r
	}
	if p.stopping {
		r.interrupt(executor.ErrShutdown)
	}
	p.mu.Unlock()
	if p.opt.Observer.Running != nil {
		p.opt.Observer.Running(s.Name, 1)
	}
	held := c.Message.Size()
	if c.Wait != nil && c.Wait.Resumed != nil {
		held += int64(len(c.Wait.Resumed.Body))
	}
	free := p.opt.Memory.Hold(held)
	p.runs.Go(func() {
		r.run()
		free()
		if held > limit.SmallBytes/4 {
			// Claims may have left tasks of any agent whose messages did not fit. Several of such may make room.
			p.Wake("")
		}
		p.survived(r)
		p.begin(r, true)
		p.mu.Lock()
		if p.running[c.Task.ID] == r {
			delete(p.running, c.Task.ID)
		}
		p.mu.Unlock()
		if p.opt.Observer.Running != nil {
			p.opt.Observer.Running(s.Name, -1)
		}
		p.release(s)
	})
}

const (
	// scanEvery is the time between two scans for runs that only the database knows, if there is no reason to look for one.
	// The runs of a dead process wait about as long.
	scanEvery = 15 * time.Second
	// scanAgain is the time after a scan that failed, perhaps because it took too long. Cancels are found meanwhile.
	scanAgain = 5 * time.Second
	// lostAnswerFor is longer than PostgreSQL goes on with a claim whose client is gone (statement_timeout).
	lostAnswerFor = 35 * time.Second
)

// lostAnswer says that the database may have a run of this process that the pool does not know.
func (p *Pool) lostAnswer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostAnswerUntil = time.Now().Add(lostAnswerFor)
}

// Reconcile compares the runs that the database assigns to this process with its actual runs. It
// ends runs that a client canceled or whose task was deleted. If an answer was lost, and every 15 seconds, it also looks for
// runs that only the database knows, and gives them back. Such a run counts as lost only if two of these scans in a row miss
// it, because it may be starting. A scan that took long is followed by a rest. Reconcile is not safe for concurrent use.
func (p *Pool) Reconcile(ctx context.Context) error {
	worker := p.opt.Worker()
	if worker.IsZero() {
		p.missing = nil
		return nil
	}
	return errors.Join(p.reconcile(ctx, worker), p.recovered(ctx))
}

func (p *Pool) reconcile(ctx context.Context, worker task.ID) error {
	begun := time.Now()
	p.mu.Lock()
	due := len(p.missing) > 0 || begun.Before(p.lostAnswerUntil) || begun.Sub(p.scanned) >= scanEvery
	ids := slices.Collect(maps.Keys(p.running))
	p.mu.Unlock()
	if !due || !p.scan.Due(begun) {
		held, err := p.opt.Store.Held(ctx, worker, ids)
		if err != nil {
			p.lostAnswer() // a failover may have lost the end of a run
			return err
		}
		p.cancel(held)
		return p.endDeleted(ctx, held)
	}
	owned, err := p.opt.Store.Owned(ctx, worker)
	if err != nil {
		p.lostAnswer()
		p.scan.Looked(time.Now(), scanAgain)
		return err
	}
	p.scan.Looked(begun, 0)
	p.scanned = begun
	p.cancel(owned)
	if err := p.endDeleted(ctx, owned); err != nil {
		return err
	}
	return p.giveBack(ctx, owned)
}

// giveBack gives back the runs that the pool has missed in this scan and in the previous one.
func (p *Pool) giveBack(ctx context.Context, owned []store.Owned) error {
	missing := p.missing
	p.missing = map[task.ID]task.Fence{}
	// A run that a lock blocks must not hold back the next look for cancels.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var g errgroup.Group
	for _, o := range owned {
		p.mu.Lock()
		r := p.running[o.Task]
		p.mu.Unlock()
		switch {
		case r != nil && r.claim.Fence == o.Fence:
		case missing[o.Task] == o.Fence:
			p.missing[o.Task] = o.Fence // until it is given back
			g.Go(func() error { return p.giveBackMissing(ctx, o) })
		default:
			p.missing[o.Task] = o.Fence
		}
	}
	return g.Wait()
}

func (p *Pool) giveBackMissing(ctx context.Context, o store.Owned) error {
	err := p.opt.Store.GiveBack(ctx, store.Requeue{
		Task: o.Task, Fence: o.Fence, Uncount: true, // its executor never started
		Note: task.RunNote{Outcome: task.RunReturned, Error: "the answer to the claim was lost"},
	})
	if err != nil && !errors.Is(err, task.LeaseLost) {
		return err
	}
	p.opt.Log.Warn("returned a run: the answer to its claim was lost", "task", o.Task.String(), "attempt", o.Attempt)
	p.Wake("")
	return nil
}

// recovered ends the outages of the agents that have begun runs since the last call. An outage that
// another process recorded ends, too: the agent is not away from everywhere.
func (p *Pool) recovered(ctx context.Context) error {
	var agents []string
	p.mu.Lock()
	for name, s := range p.agents {
		if b := &s.breaker; b.begun.After(s.noted) && b.begun.After(b.opened) {
			s.noted = b.begun
			agents = append(agents, name)
		}
	}
	p.mu.Unlock()
	if len(agents) == 0 {
		return nil
	}
	locked, err := p.opt.Store.Began(ctx, agents)
	if err != nil {
		locked = agents
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range locked {
		p.agents[name].noted = time.Time{}
	}
	return err
}

// begin records that a run is starting no more: the agent has begun it, or (presumed) has neither begun
// nor refused it for a while.
func (p *Pool) begin(r *run, presumed bool) {
	p.mu.Lock()
	s := p.agents[r.agent.Name]
	if r.starting {
		r.starting = false
		s.breaker.starting--
	}
	back := false
	if !presumed && !r.begun {
		r.begun = true
		back = s.breaker.ran(time.Now())
	}
	more := s.ready && s.breaker.open
	p.mu.Unlock()
	if back {
		p.opt.Log.Info("the agent has begun a run again", "agent", s.Name)
	}
	if more {
		p.ring()
	}
}

// unavailable records that the agent did not begin a run, and reports whether it is away.
func (p *Pool) unavailable(r *run, u *executor.Unavailable) (away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.agents[r.agent.Name]
	known := s.breaker.err != nil
	away = s.breaker.failed(time.Now(), r.claimed, r.claim.Task.ID, u)
	if away {
		s.since, s.ready = time.Time{}, true // the task gets its old place back
		if !known {
			p.opt.Log.Warn("the agent is away; its tasks wait", "agent", s.Name, "error", u.Err)
		}
	}
	return away
}

// awayFor records how long the agent has been away, by the database.
func (p *Pool) awayFor(r *run, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := &p.agents[r.agent.Name].breaker; b.err != nil {
		b.awayFor = max(b.awayFor, d)
	}
}

// survived lets the next run start that may end the process, since this one has not ended it.
func (p *Pool) survived(r *run) {
	p.mu.Lock()
	passed := p.suspect == r
	if passed {
		p.suspect = nil
	}
	p.mu.Unlock()
	if passed {
		p.Wake("")
	}
}

// endDeleted ends the runs of deleted tasks: those that the database did not assign to this process in
// this round and in the previous one. Their next append would be refused, but a run may be silent
// for hours.
func (p *Pool) endDeleted(ctx context.Context, owned []store.Owned) error {
	known := make(map[task.ID]task.Fence, len(owned))
	for _, o := range owned {
		known[o.Task] = o.Fence
	}
	var doubtful []task.ID
	unknown := map[task.ID]task.Fence{}
	p.mu.Lock()
	for id, r := range p.running {
		if known[id] == r.claim.Fence {
			continue
		}
		// The run may have been claimed after the query, or be about to end.
		if unknown[id] = r.claim.Fence; p.unknown[id] == r.claim.Fence {
			doubtful = append(doubtful, id)
		}
	}
	p.mu.Unlock()
	p.unknown = unknown
	if len(doubtful) == 0 {
		return nil
	}
	there, err := p.opt.Store.LastSeqs(ctx, doubtful)
	if err != nil {
		return err
	}
	for _, id := range doubtful {
		if _, ok := there[id]; ok {
			p.CancelHint(id) // the run API may have ended the run
			continue
		}
		p.mu.Lock()
		if p.running[id] != nil {
			p.running[id].interrupt(errDeleted)
		}
		p.mu.Unlock()
	}
	return nil
}

// errDeleted is the cause of a run whose task was deleted.
var errDeleted = fmt.Errorf("the task was deleted: %w", executor.ErrLeaseLost)

// drain stops the pool. It blocks until all runs have ended or were given back, or the last grace
// has passed.
func (p *Pool) drain() {
	defer p.stopNotices()
	p.mu.Lock()
	p.closing = true
	n := len(p.running)
	p.mu.Unlock()
	if n > 0 {
		p.opt.Log.Info("waiting for runs to finish", "runs", n, "grace", p.opt.StopGrace)
	}
	done := make(chan struct{})
	go func() { p.runs.Wait(); close(done) }()
	select {
	case <-done:
		return
	case <-time.After(p.opt.StopGrace):
	}
	p.mu.Lock()
	p.stopping = true
	for _, r := range p.running {
		r.interrupt(executor.ErrShutdown)
	}
	p.mu.Unlock()
	p.stopNotices()
	select {
	case <-done:
	case <-time.After(p.lastGrace()):
		// The database is unavailable, or an executor ignores its context. The lease expires, and
		// the runs are rescued like those of a dead process.
		p.opt.Log.Warn("stopping with unfinished runs; other processes rescue them when the lease expires")
	}
}

// lastGrace returns how long interrupted runs may take until they are given back.
func (p *Pool) lastGrace() time.Duration {
	longest := time.Duration(0)
	for _, s := range p.agents {
		longest = max(longest, s.CancelGrace)
	}
	return longest + 10*time.Second
}
