// Package engine has one method for each operation of the protocol, in no
// version's words. It is where a request becomes writes, reads and subscriptions;
// it knows neither wire formats nor SQL.
package engine

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Store is what the engine asks of the database for one caller.
type Store interface {
	Create(ctx context.Context, n *store.NewTask) (*task.Event, error)
	Existing(ctx context.Context, o store.Owner, n *store.NewTask) (t *task.Task, byKey bool, err error)
	FindTask(ctx context.Context, o store.Owner, publicID string) (*task.Task, error)
	Header(ctx context.Context, id task.ID) (*task.Task, error)
	ReadTask(ctx context.Context, o store.Owner, publicID string, withArtifacts bool) (*task.Task, error)
	Snapshot(ctx context.Context, h *task.Task, withArtifacts bool) (*task.Task, error)
	AddMessage(ctx context.Context, n *store.NewMessage) (task.Seq, error)
	Cancel(ctx context.Context, h *task.Task) (ended bool, err error)
	List(ctx context.Context, l *store.Listing) (page []*task.Task, more bool, err error)
	Count(ctx context.Context, l *store.Listing, bound int) (int, error)
	SetPush(ctx context.Context, id task.ID, c *task.PushConfig, most int) error
	Pushes(ctx context.Context, id task.ID) ([]task.PushConfig, error)
	DeletePush(ctx context.Context, id task.ID, configID string) (found bool, err error)
}

// viewer is a store that has views.
type viewer interface {
	As(c store.Caller) store.View
}

// As gives each caller its view of a store.
func As(s viewer) func(store.Caller) Store {
	return func(c store.Caller) Store { return s.As(c) }
}

// fanout is what the engine asks of the hub.
type fanout interface {
	Subscribe(owner *task.Task) *hub.Subscription
}

// Slot is room for one run on this process, reserved before its task exists. Start
// or Release follows.
type Slot interface {
	WorkerID() task.ID
	Start(c *store.Claimed)
	Release()
}

// Agent is what the engine must know of an agent.
type Agent struct {
	Name          string
	RejectBusy    bool // a message to a task that has a run is refused, not queued behind it
	DirectReplies bool // may answer with a bare Message
	// DedupeMessages takes a message that says again what was said, its id included, for a repetition.
	DedupeMessages bool
	// InputModes and OutputModes are the media types that it and its skills declare; none: any.
	InputModes  []string
	OutputModes []string
	// TenantVisible shows a task to all of its tenant, not to its owner alone.
	TenantVisible bool
	// Limits bound the tasks of each caller, and those that wait.
	Limits store.Limits
}

// Options configures an engine. The zero value of a duration means its default.
type Options struct {
	Store func(store.Caller) Store // as a caller sees it: there is no other way to the database
	Hub   fanout
	// Reserve takes a slot of this process's own workers, or returns nil. Nil where it has none.
	Reserve    func(agent string) Slot
	Agents     []Agent
	MaxBlock   time.Duration // bound of a blocking send; default 60 s
	PageKey    []byte        // signs page tokens; the same on every replica
	Push       *Push         // nil: there are no webhooks
	CancelWait time.Duration // how long Cancel waits for a running task to end; default 10 s
	Log        *slog.Logger
}

// Engine serves operations. Its methods may be called from many goroutines.
type Engine struct {
	opt      Options
	agents   map[string]Agent
	counting chan struct{} // held while a list is counted to its end
	counters sync.Map      // the callers who wait for it or hold it
}

// New makes an engine.
func New(o Options) *Engine {
	if o.MaxBlock == 0 {
		o.MaxBlock = 60 * time.Second
	}
	if o.CancelWait == 0 {
		o.CancelWait = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Push != nil {
		p := *o.Push
		p.MaxPerTask = cmp.Or(p.MaxPerTask, 20)
		o.Push = &p
	}
	e := &Engine{opt: o, agents: map[string]Agent{}, counting: make(chan struct{}, 1)}
	for _, a := range o.Agents {
		e.agents[a.Name] = a
	}
	return e
}

// Find returns the header of a task, which tells the dialect it was created in.
func (e *Engine) Find(ctx context.Context, c Caller, taskID string) (*task.Task, error) {
	return e.as(c).FindTask(ctx, e.owner(c), taskID)
}

// Get returns a task as it stands, with what the request will show of it.
func (e *Engine) Get(ctx context.Context, r *GetRequest) (*task.Task, error) {
	return e.as(r.Caller).ReadTask(ctx, e.owner(r.Caller), r.TaskID, r.WithArtifacts)
}

// Cancel ends a task and returns it. A running one is asked to end; if that takes
// longer than CancelWait the task is returned as it still is. task.NotCancelable:
// it had ended before.
func (e *Engine) Cancel(ctx context.Context, r *CancelRequest) (*task.Task, error) {
	h, err := e.Find(ctx, r.Caller, r.TaskID)
	if err != nil {
		return nil, err
	}
	if h.Status.State.Terminal() {
		return nil, task.Errorf(task.NotCancelable, "the task is already %s", h.Status.State)
	}
	sub := e.opt.Hub.Subscribe(h)
	defer sub.Close()
	ended, err := e.as(r.Caller).Cancel(ctx, h)
	if err != nil {
		return nil, err
	}
	t, err := e.snapshot(ctx, r.Caller, h.ID, 0)
	if err != nil || ended {
		return t, err
	}
	sub.Start(t.LastSeq)
	wait, cancel := context.WithTimeout(ctx, e.opt.CancelWait)
	defer cancel()
	return follow(wait, sub, t, task.State.Terminal)
}

// snapshot reads a task afresh; upto, if not zero, ends it at that event.
func (e *Engine) snapshot(ctx context.Context, c Caller, id task.ID, upto task.Seq) (*task.Task, error) {
	v := e.as(c)
	h, err := v.Header(ctx, id)
	if err != nil {
		return nil, err
	}
	if upto > 0 {
		h.LastSeq = min(h.LastSeq, upto)
	}
	return v.Snapshot(ctx, h, true)
}

// follow folds events into t until its state satisfies done, or ctx ends, or the
// replica stops: then t is as it stands, which is an answer too.
func follow(ctx context.Context, sub *hub.Subscription, t *task.Task, done func(task.State) bool) (*task.Task, error) {
	for !done(t.Status.State) {
		evs, err := sub.Next(ctx)
		if err != nil {
			if t.LastSeq == 0 {
				return nil, &task.Error{Kind: task.Unavailable, RetryAfter: time.Second, Cause: err}
			}
			return t, nil
		}
		for _, ev := range evs {
			if err := t.Apply(ev.Event); err != nil {
				return nil, err
			}
			if done(t.Status.State) {
				break
			}
		}
	}
	return t, nil
}

// as is the store as a caller sees it.
func (e *Engine) as(c Caller) Store {
	return e.opt.Store(store.Caller{
		Owner: e.owner(c), Method: c.Principal.Method, Credential: c.Principal.Credential, Address: c.Address,
	})
}

// owner is whose tasks a caller sees.
func (e *Engine) owner(c Caller) store.Owner {
	return store.Owner{
		Tenant: c.Principal.Tenant, Subject: c.Principal.Subject, Agent: c.Agent,
		// Those without a tenant have none in common.
		TenantWide: e.agents[c.Agent].TenantVisible && c.Principal.Tenant != "",
	}
}
