package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Store is what the pool asks of the database.
type Store interface {
	Claim(ctx context.Context, worker task.ID, want []store.Demand) ([]*store.Claimed, error)
	Append(a *store.Append)
	GiveBack(ctx context.Context, r store.Requeue) error
	Owned(ctx context.Context, worker task.ID) ([]store.Owned, error)
	Canceled(ctx context.Context, worker task.ID, ids []task.ID) (map[task.ID]task.Attempt, error)
	ArtifactIDs(ctx context.Context, id task.ID) ([]string, error)
	Header(ctx context.Context, id task.ID) (*task.Task, error)
	Conversation(ctx context.Context, h *task.Task, message task.Seq) ([]task.Message, error)
	EventsAfter(ctx context.Context, owner *task.Task, after task.Seq, limit int) ([]*task.Event, error)
}

// Agent is an executor with its limits. Zero limits mean none, but for
// Concurrency and MaxAttempts.
type Agent struct {
	Name              string
	Executor          executor.Executor
	Concurrency       int           // runs at a time in this process; at least 1
	MaxAttempts       int           // executor starts per message, crashes included; at least 1
	RunTimeout        time.Duration // for one attempt
	InactivityTimeout time.Duration // without an emission
	Backoff           time.Duration // before the first retry; doubles, with jitter; default 1 s
	MaxBackoff        time.Duration // default 5 min
	CancelGrace       time.Duration // between asking a run to end and writing its status anyway
	MaxArtifacts      int64         // bytes that the artifacts of a task may take; 0: any number
	DirectReplies     bool          // may answer with a bare Message: working is not reported before the first emission
}

// Observer takes the pool's measurements. Every field is optional.
type Observer struct {
	Claimed func(agent string, n int, waited time.Duration)
	Ran     func(agent, outcome string, took time.Duration)
	Running func(agent string, delta int)
	Limited func(agent, limit string) // a run was ended by one
}

// LimitArtifacts is Agent.MaxArtifacts, as Observer.Limited names it.
const LimitArtifacts = "artifacts"

// Options configures a pool. The zero value of a duration means its default.
type Options struct {
	Store        Store
	Agents       []Agent
	PollInterval time.Duration // of the queue, behind the hints; default 1 s
	StopGrace    time.Duration // for runs when the server stops; 0 hands them back at once
	ClaimBatch   int           // runs won by one claim at most, per agent; default 100
	Worker       func() task.ID
	Observer     Observer
	Log          *slog.Logger
}

// Pool runs agents on this process.
type Pool struct {
	opt    Options
	agents map[string]*slots
	wake   chan struct{}

	mu      sync.Mutex
	running map[task.ID]*run
	hinted  map[task.ID]struct{} // runs that are said to have been asked to end
	looking bool                 // whether that is so
	closing bool                 // no more claims
	// stopping: the grace for runs is over as well
	stopping bool
	runs     sync.WaitGroup
}

// slots is the room for one agent's runs. Its fields are guarded by Pool.mu.
type slots struct {
	Agent
	free    int
	ready   bool // a hint, or a claim that took all it asked for, says that more is waiting
	since   time.Time
	scanned time.Time // last claim that looked at the whole queue
}

// New makes a pool; Run starts it.
func New(o Options) *Pool {
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	o.ClaimBatch = cmp.Or(o.ClaimBatch, 100)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{opt: o, agents: map[string]*slots{}, wake: make(chan struct{}, 1), running: map[task.ID]*run{}, hinted: map[task.ID]struct{}{}}
	for _, a := range o.Agents {
		a.Concurrency, a.MaxAttempts = max(a.Concurrency, 1), max(a.MaxAttempts, 1)
		p.agents[a.Name] = &slots{Agent: a, free: a.Concurrency, ready: true}
	}
	return p
}

// Wake says that an agent's queue has something to claim; "" means any.
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

// Slot is room for one run, reserved before its task exists, so that the
// statement that creates the task can claim it as well.
type Slot struct {
	worker task.ID
	pool   *Pool
	agent  *slots
}

// WorkerID is who claims the task.
func (s *Slot) WorkerID() task.ID { return s.worker }

// Reserve takes a slot if the agent has one free and nothing is known to wait
// before the new task. Start or Release must follow.
func (p *Pool) Reserve(agent string) *Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.agents[agent]
	if s == nil || s.free == 0 || s.ready || p.closing {
		return nil
	}
	w := p.opt.Worker()
	if w.IsZero() {
		return nil
	}
	s.free--
	// The pool does not end before what the slot is for.
	p.runs.Add(1)
	return &Slot{worker: w, pool: p, agent: s}
}

// Start runs the task that was created with the slot.
func (s *Slot) Start(c *store.Claimed) {
	if s.pool.opt.Observer.Claimed != nil {
		s.pool.opt.Observer.Claimed(s.agent.Name, 1, 0)
	}
	s.pool.start(s.agent, c)
	s.pool.runs.Done()
}

// Release gives the slot back unused.
func (s *Slot) Release() {
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

// CancelHint says that a run may have been asked to end. It is ended if the database
// says so: whoever may log in there can send a hint.
func (p *Pool) CancelHint(id task.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[id] == nil {
		return
	}
	p.hinted[id] = struct{}{}
	if !p.looking {
		p.looking = true
		p.runs.Go(p.look) // a run is still counted, so nobody has done waiting
	}
}

// look asks about everything hinted until nothing is left: at once when it is idle, and
// for all that has come together while it asked.
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
		canceled, err := p.opt.Store.Canceled(asking, p.opt.Worker(), ids)
		cancel()
		if err != nil {
			p.opt.Log.Debug("a cancel hint is left to the next round", "error", err)
		}
		p.mu.Lock()
		for id, attempt := range canceled {
			if r := p.running[id]; r != nil && r.attempt == attempt {
				r.interrupt(executor.ErrCanceled)
			}
		}
		p.mu.Unlock()
	}
}

// LoseAll ends every run because the process was declared dead: all are fenced already.
func (p *Pool) LoseAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.running {
		r.interrupt(executor.ErrLeaseLost)
	}
}

// Run claims and runs until ctx ends, then lets runs finish within the grace and
// hands back the rest.
func (p *Pool) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		p.claim(ctx)
		select {
		case <-p.wake:
		case <-time.After(p.opt.PollInterval/2 + rand.N(p.opt.PollInterval)):
			p.Wake("")
		case <-ctx.Done():
		}
	}
	p.drain()
	return nil
}

// watermarkSlack covers clocks of transactions that became visible late.
const (
	watermarkSlack = 2 * time.Second
	fullScanEvery  = 5 * time.Second
	claimTimeout   = 5 * time.Second
)

// claim fills free slots once, for all agents in one statement.
func (p *Pool) claim(ctx context.Context) {
	worker := p.opt.Worker()
	if worker.IsZero() {
		// The process has no lease at this moment. What is ready stays so until the next poll.
		return
	}
	want := p.demand()
	if len(want) == 0 {
		return
	}
	// A stop does not cut a claim short: what it won would be nobody's until the lease ran out.
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	won, err := p.opt.Store.Claim(claiming, worker, want)
	cancel()
	if err != nil {
		p.returnSlots(want, nil)
		if ctx.Err() == nil {
			p.opt.Log.Warn("claim is repeated", "error", err)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return
	}
	counts := map[string]int{}
	for _, c := range won {
		counts[c.Task.Agent]++
		if p.opt.Observer.Claimed != nil {
			p.opt.Observer.Claimed(c.Task.Agent, 1, c.Waited)
		}
		p.mu.Lock()
		s := p.agents[c.Task.Agent]
		if mark := c.AvailableAt.Add(-watermarkSlack); mark.After(s.since) {
			s.since = mark
		}
		p.mu.Unlock()
		p.start(s, c)
	}
	p.returnSlots(want, counts)
}

// demand reserves the slots that it asks for, so that Reserve cannot give them away twice.
func (p *Pool) demand() []store.Demand {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return nil
	}
	var want []store.Demand
	for name, s := range p.agents {
		if !s.ready || s.free == 0 {
			continue
		}
		n := min(s.free, p.opt.ClaimBatch)
		s.free -= n
		// Cleared before the claim reads the queue, so that a hint during it is not forgotten.
		s.ready = false
		d := store.Demand{Agent: name, Slots: n, Since: s.since}
		if now := time.Now(); now.Sub(s.scanned) > fullScanEvery {
			s.scanned, d.Since = now, time.Time{}
		}
		want = append(want, d)
	}
	return want
}

// returnSlots frees what was asked for and not won. An agent that won all it
// asked for has more waiting; counts nil means that nothing is known.
func (p *Pool) returnSlots(want []store.Demand, counts map[string]int) {
	p.mu.Lock()
	again := false
	for _, d := range want {
		s := p.agents[d.Agent]
		n := counts[d.Agent]
		s.free += d.Slots - n
		s.ready = s.ready || counts == nil || n == d.Slots
		again = again || (s.ready && s.free > 0)
	}
	p.mu.Unlock()
	if again {
		p.ring()
	}
}

func (p *Pool) start(s *slots, c *store.Claimed) {
	r := newRun(p, s, c)
	p.mu.Lock()
	// A create whose answer came late may start what has been given back and claimed again since.
	if old := p.running[c.Task.ID]; old == nil || old.attempt < r.attempt {
		p.running[c.Task.ID] = r
	}
	if p.stopping {
		r.interrupt(executor.ErrShutdown)
	}
	p.mu.Unlock()
	if p.opt.Observer.Running != nil {
		p.opt.Observer.Running(s.Name, 1)
	}
	p.runs.Go(func() {
		r.run()
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

// Reconcile compares what the database says this process runs with what it does
// run: cancels what was asked to end, and gives back what was won by a claim
// whose answer got lost. missing carries what was not running at the previous
// call, so that a run in the middle of starting is not taken for lost.
func (p *Pool) Reconcile(ctx context.Context, missing map[task.ID]task.Attempt) (map[task.ID]task.Attempt, error) {
	worker := p.opt.Worker()
	if worker.IsZero() {
		return nil, nil
	}
	owned, err := p.opt.Store.Owned(ctx, worker)
	if err != nil {
		return missing, err
	}
	now := map[task.ID]task.Attempt{}
	for _, o := range owned {
		p.mu.Lock()
		r := p.running[o.Task]
		p.mu.Unlock()
		switch {
		case r != nil && r.attempt == o.Attempt:
			if o.CancelRequested {
				r.interrupt(executor.ErrCanceled)
			}
		case missing[o.Task] == o.Attempt:
			err := p.opt.Store.GiveBack(ctx, store.Requeue{
				Task: o.Task, Attempt: o.Attempt, Uncount: true, // its executor was never started
				Note: task.RunNote{Outcome: task.RunReturned, Error: "the claim's answer was lost"},
			})
			if err != nil && !errors.Is(err, task.LeaseLost) {
				return now, err
			}
			p.opt.Log.Warn("a claim whose answer was lost is given back", "task_id", o.Task.String(), "attempt", o.Attempt)
			p.Wake("")
		default:
			now[o.Task] = o.Attempt
		}
	}
	return now, nil
}

// drain is the stop of the pool.
func (p *Pool) drain() {
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
	select {
	case <-done:
	case <-time.After(p.lastGrace()):
		// The database is away or an executor ignores everything. The lease runs out, and the
		// runs are rescued like those of a process that died.
		p.opt.Log.Warn("stopping with runs that could not be handed back")
	}
}

// lastGrace is how long runs may take to be handed back after they were interrupted.
func (p *Pool) lastGrace() time.Duration {
	longest := time.Duration(0)
	for _, s := range p.agents {
		longest = max(longest, s.CancelGrace)
	}
	return longest + 10*time.Second
}
