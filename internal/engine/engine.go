// Package engine has one method for each operation of the protocol, independent of protocol
// versions. It turns a request into writes, reads and subscriptions. It knows neither wire formats
// nor SQL.
package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Store is the database as one caller sees it.
type Store interface {
	NewTaskID() task.ID
	Create(ctx context.Context, n *store.NewTask) (*task.Event, error)
	Existing(ctx context.Context, n *store.NewTask) (t *task.Task, byKey bool, err error)
	FindTask(ctx context.Context, publicID string) (*task.Task, error)
	Header(ctx context.Context, id task.ID) (*task.Task, error)
	ReadTask(ctx context.Context, publicID string, withArtifacts bool) (*task.Task, error)
	Snapshot(ctx context.Context, h *task.Task, withArtifacts bool) (*task.Task, error)
	Holds(ctx context.Context, h *task.Task, p task.Position) (bool, error)
	AddMessage(ctx context.Context, n *store.NewMessage) (task.Seq, error)
	Cancel(ctx context.Context, h *task.Task, metadata json.RawMessage) (ended bool, err error)
	List(ctx context.Context, l *store.Listing) (page []*task.Task, more bool, err error)
	Count(ctx context.Context, l *store.Listing, bound int) (int, error)
	SetPush(ctx context.Context, id task.ID, c *task.PushConfig, most int) error
	Pushes(ctx context.Context, id task.ID) ([]task.PushConfig, error)
	DeletePush(ctx context.Context, id task.ID, configID string) (found bool, err error)
}

// viewer is a store that returns a view for a caller.
type viewer interface {
	As(c task.Caller, sees store.Visibility) store.View
}

// As adapts the As method of a store to Options.Store: it returns each caller's view.
func As(s viewer) func(task.Caller, store.Visibility) Store {
	return func(c task.Caller, sees store.Visibility) Store { return s.As(c, sees) }
}

// fanout is the part of the hub that the engine needs.
type fanout interface {
	Subscribe(owner *task.Task) *hub.Subscription
}

// Slot is a reserved place for one run, of this process or of a remote worker that waits at it. It is reserved before its
// task exists. The holder must call Start or Release.
type Slot interface {
	Claimer() store.Slot
	Start(c *store.Claimed)
	Release(err error) // why the task was not created
}

// Agent holds the properties of an agent that the engine needs.
type Agent struct {
	Name          string
	RejectBusy    bool // refuse a message to a task that has a run, instead of queueing it
	DirectReplies bool // may answer with a bare Message
	// DedupeMessages deduplicates messages: a request with the same content and message id counts
	// as a retry.
	DedupeMessages bool
	// InputModes and OutputModes are the media types that the agent and its skills declare; empty
	// means any.
	InputModes  []string
	OutputModes []string
	// TenantVisible makes a task visible to its whole tenant, not only to its owner.
	TenantVisible bool
	// Limits bound the live tasks of each caller and the queue of the agent.
	Limits store.Limits
}

// Options configures an engine. The zero value of a duration means its default.
type Options struct {
	// Store returns the database as a caller sees it. The engine has no other access to the
	// database.
	Store func(c task.Caller, sees store.Visibility) Store
	Hub   fanout
	// Reserve takes a slot, or returns nil.
	Reserve    func(agent string) Slot
	Agents     []Agent
	MaxBlock   time.Duration // longest time that a blocking send waits; default 25 s
	PageKey    []byte        // signs page tokens; the same on every replica
	Push       *Push         // nil: webhooks are disabled
	CancelWait time.Duration // how long Cancel waits for a running task to end; default 10 s
	Log        *slog.Logger
}

// Engine serves the operations of the protocol, which are the methods of its views. It is safe for
// concurrent use.
type Engine struct {
	opt      Options
	agents   map[string]Agent
	modes    sync.Map      // by the agent's name, as SetModes has changed them
	counting chan struct{} // full while an exact count runs
	counters sync.Map      // owners with an exact count that waits or runs
}

// New returns an engine with the defaults filled in.
func New(o Options) *Engine {
	o.MaxBlock = cmp.Or(o.MaxBlock, 25*time.Second)
	o.CancelWait = cmp.Or(o.CancelWait, 10*time.Second)
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

type modes struct{ input, output []string }

// SetModes replaces the media types of an agent, whose card has changed.
func (e *Engine) SetModes(agent string, input, output []string) {
	e.modes.Store(agent, modes{input, output})
}

// View is the engine as one caller sees it at one agent. Each request has its own view. A view is
// not safe for concurrent use.
type View struct {
	*Engine
	caller task.Caller
	agent  string
	sees   store.Visibility
	store  Store
}

// As returns the view of a caller at an agent.
func (e *Engine) As(c task.Caller, agent string) *View {
	// Two callers without a tenant do not share a tenant.
	sees := store.Visibility{Agent: agent, TenantWide: e.agents[agent].TenantVisible && c.Tenant != ""}
	return &View{Engine: e, caller: c, agent: agent, sees: sees, store: e.opt.Store(c, sees)}
}

// Find returns the header of a task, which includes the dialect that created it.
func (v *View) Find(ctx context.Context, taskID string) (*task.Task, error) {
	return v.store.FindTask(ctx, taskID)
}

// Get returns the current task, with artifacts only if the request asks for them.
func (v *View) Get(ctx context.Context, r *GetRequest) (*task.Task, error) {
	return v.store.ReadTask(ctx, r.TaskID, r.WithArtifacts)
}

// Cancel ends a task and returns it. For a running task it asks the worker and blocks up to
// CancelWait. After that it returns the task in its current state. Errors: task.NotCancelable if
// the task had ended before.
func (v *View) Cancel(ctx context.Context, r *CancelRequest) (*task.Task, error) {
	if err := checkMetadata(r.Metadata); err != nil {
		return nil, err
	}
	h, err := v.Find(ctx, r.TaskID)
	if err != nil {
		return nil, err
	}
	if h.Status.State.Terminal() {
		return nil, task.Errorf(task.NotCancelable, "the task is already %s", h.Status.State)
	}
	sub := v.opt.Hub.Subscribe(h)
	defer sub.Close()
	ended, err := v.store.Cancel(ctx, h, r.Metadata)
	if err != nil {
		return nil, err
	}
	t, err := v.snapshot(ctx, h.ID, 0)
	if err != nil || ended {
		return t, err
	}
	sub.Start(t.Position())
	wait, cancel := context.WithTimeout(ctx, v.opt.CancelWait)
	defer cancel()
	return follow(wait, sub, t, task.State.Terminal)
}

// snapshot reads a task from the database; upto, if not zero, is the last event to include.
func (v *View) snapshot(ctx context.Context, id task.ID, upto task.Seq) (*task.Task, error) {
	h, err := v.store.Header(ctx, id)
	if err != nil {
		return nil, err
	}
	if upto > 0 {
		h.LastSeq = min(h.LastSeq, upto)
	}
	return v.store.Snapshot(ctx, h, true)
}

// follow folds events into t until its state satisfies done. If ctx ends or the replica stops
// first, it returns t in its current state without an error; task.Unavailable if t has no events
// yet, or has events that the database has lost.
func follow(ctx context.Context, sub *hub.Subscription, t *task.Task, done func(task.State) bool) (*task.Task, error) {
	for !done(t.Status.State) {
		evs, err := sub.Next(ctx)
		if err != nil {
			if t.LastSeq == 0 || errors.Is(err, hub.ErrRewound) {
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
