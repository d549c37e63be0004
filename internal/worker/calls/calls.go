// Package calls lets agents call each other: it creates the tasks that agents have called, gives callers the results, ends
// what an ended task has called, and shows the progress of called tasks in their callers.
//
// All state is in the database (migration 00005, decision 0053). Each step may be repeated, and any process
// may do it, at the same time as others. No step waits for another session's lock for long: what a lock blocks is retried
// later, and holds back nothing else.
package calls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// Agent is what a call needs to know of an agent.
type Agent struct {
	Name          string
	Schemes       []string // that admit its callers; none: it is open
	Scope         string   // that its callers need
	RejectBusy    bool
	Limits        store.Limits
	MaxDepth      int  // of the tasks that it calls
	Recursive     bool // may call itself and the agents of its callers
	TenantVisible bool // the owner's tenant sees its tasks
}

// Options configures a Runner.
type Options struct {
	Store  *store.Store
	Agents []Agent
	Tracer *tracing.Tracer // nil: no traces
	Log    *slog.Logger
}

// Runner does the work of calls for one process.
type Runner struct {
	opt     Options
	agents  map[string]*Agent
	wake    chan struct{}
	hinted  atomic.Bool
	blocked blocked
	retry   *time.Timer // rings when blocked work is due

	owned, shared []string   // the agents whose tasks their owner, or the whole tenant, sees
	pace          store.Pace // between looks for progress
}

// New returns a runner.
func New(o Options) *Runner {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{opt: o, agents: map[string]*Agent{}, wake: make(chan struct{}, 1)}
	for i := range o.Agents {
		a := &o.Agents[i]
		r.agents[a.Name] = a
		if a.TenantVisible {
			r.shared = append(r.shared, a.Name)
		} else {
			r.owned = append(r.owned, a.Name)
		}
	}
	return r
}

// Hint says that this process has committed calls, or the end of a task with a lineage. It does not block.
func (r *Runner) Hint() {
	r.hinted.Store(true)
	r.ring()
}

func (r *Runner) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Wake receives after a hint.
func (r *Runner) Wake() <-chan struct{} { return r.wake }

const (
	// othersAfter leaves a process the time to begin the calls that it has committed itself.
	othersAfter = time.Second
	callsAtOnce = 200
	notesAtOnce = 4
	endsAtOnce  = 4
	// relaysAtOnce bounds the memory for messages of called tasks, with the largest message that is relayed, to 6.4 MB.
	relaysAtOnce = 100
)

// Run begins calls, joins results, and ends what ended tasks have called, once. more says that there may be further work at
// once. An error of one call or task does not hold back the others. It is not safe for concurrent use.
func (r *Runner) Run(ctx context.Context) (more bool, err error) {
	older := othersAfter
	if r.hinted.Swap(false) {
		older = 0
	}
	r.blocked.next()
	begun, failed := r.begin(ctx, older)
	err = errors.Join(failed, r.join(ctx))
	if r.retry != nil {
		r.retry.Stop()
	}
	if later := r.blocked.later(); later > 0 {
		r.retry = time.AfterFunc(later, r.ring)
	}
	if begun && older == 0 {
		r.hinted.Store(true)
	}
	return begun && err == nil, err
}

// join joins results, and ends what ended tasks have called.
func (r *Runner) join(ctx context.Context) (err error) {
	var g errgroup.Group
	g.SetLimit(endsAtOnce)
	var locked error
	for j := (store.Joined{More: true}); j.More; {
		var failed error
		if j, failed = r.opt.Store.JoinCalls(ctx, j); failed != nil {
			err = failed
			break
		}
		if j.Blocked {
			locked = store.ErrBlocked
		}
		for _, t := range j.Ended {
			if r.blocked.has(t.Task) {
				continue
			}
			g.Go(func() error { return r.blocked.unless(t.Task, r.end(ctx, t)) })
		}
	}
	return errors.Join(err, g.Wait(), r.blocked.unless(joins{}, locked))
}

// begin begins calls, and reports whether there may be more.
func (r *Runner) begin(ctx context.Context, older time.Duration) (more bool, err error) {
	var g errgroup.Group
	g.SetLimit(notesAtOnce)
	var begun atomic.Int64
	var after store.NewCall
	for full := true; full && begun.Load() == 0; {
		found, err := r.opt.Store.NewCalls(ctx, older, after, callsAtOnce)
		if err != nil {
			return false, errors.Join(err, g.Wait())
		}
		if full = len(found) == callsAtOnce; full {
			after = found[len(found)-1]
		}
		found = slices.DeleteFunc(found, func(c store.NewCall) bool { return r.blocked.has(place(c)) })
		for rest := found; len(rest) > 0; {
			n := slices.IndexFunc(rest, func(c store.NewCall) bool { return c.Parent != rest[0].Parent || c.Note != rest[0].Note })
			if n < 0 {
				n = len(rest)
			}
			note := rest[:n]
			rest = rest[n:]
			g.Go(func() error {
				n, err := r.beginNote(ctx, note)
				begun.Add(int64(n))
				return err
			})
		}
		err = g.Wait()
		if err != nil || begun.Load() > 0 {
			return full && err == nil, err
		}
	}
	return false, nil
}

// beginNote begins calls of one run note, and returns how many it has begun or refused.
func (r *Runner) beginNote(ctx context.Context, calls []store.NewCall) (begun int, err error) {
	note, err := r.opt.Store.CallNote(ctx, calls[0].Parent, calls[0].Note)
	switch {
	case errors.Is(err, task.NotFound):
		return 0, nil // deleted: end follows
	case err != nil:
		return 0, err
	case note.Parent.Status.State.Terminal():
		return 0, nil // end follows
	}
	var g errgroup.Group // the creates share commits
	var done atomic.Int64
	for _, c := range calls {
		g.Go(func() error {
			err := r.beginOrRefuse(ctx, note, c)
			if err == nil {
				done.Add(1)
			}
			return r.blocked.unless(place(c), err)
		})
	}
	err = g.Wait()
	return int(done.Load()), err
}

func (r *Runner) beginOrRefuse(ctx context.Context, note *store.CallNote, c store.NewCall) error {
	err := r.beginCall(ctx, note, c)
	switch kind := task.KindOf(err); {
	case err == nil, errors.Is(err, store.ErrTaken):
		return nil
	case kind == task.Unavailable:
		return err
	case kind == task.Internal:
		r.opt.Log.Error("call failed", "task_id", note.Parent.PublicID, "agent", note.Parent.Agent, "called", c.Agent, "error", err)
		return r.opt.Store.RefuseCall(ctx, c, "the task could not be created")
	}
	return r.opt.Store.RefuseCall(ctx, c, err.Error())
}

// beginCall begins a call. An error other than task.Unavailable refuses it; its text is for the caller.
func (r *Runner) beginCall(ctx context.Context, note *store.CallNote, c store.NewCall) error {
	if c.Nth > len(note.Calls) {
		return task.Errorf(task.Internal, "run note %d has no call %d", c.Note, c.Nth)
	}
	call, parent := &note.Calls[c.Nth-1], note.Parent
	request := &task.Request{}
	if q := note.Request; q != nil {
		request.Scopes, request.Traceparent, request.Tracestate = q.Scopes, q.Traceparent, q.Tracestate
	}
	if note.Trace != "" {
		request.Traceparent = note.Trace
	}
	ctx, span := r.opt.Tracer.Call(ctx, tracing.Context{Parent: request.Traceparent, State: request.Tracestate}, c.Agent)
	if span != nil {
		defer span.End()
		of := span.Context()
		request.Traceparent, request.Tracestate = of.Parent, of.State
		span.Set(tracing.TaskID.String(c.Task.String()))
	}
	by := task.Caller{Tenant: parent.Tenant, Subject: parent.Owner, Scopes: request.Scopes, Method: task.MethodAgent}
	if c.Answers {
		return r.answer(ctx, by, c, call, request)
	}
	called := r.agents[c.Agent]
	if err := r.admit(called, &by, c, parent.Agent); err != nil {
		return err
	}
	n := &store.NewTask{
		Task: task.Task{
			ID: c.Task, PublicID: c.Task.String(), Agent: c.Agent, Tenant: parent.Tenant, Owner: parent.Owner,
			ContextID: call.ContextID, Dialect: parent.Dialect, Metadata: call.Metadata, Traceparent: request.Traceparent,
		},
		Message: call.Message, Request: request, Limits: called.Limits, Called: true,
	}
	if n.Task.ContextID == "" {
		n.Task.ContextID = parent.ContextID
	}
	_, err := r.opt.Store.As(by, store.Visibility{Agent: c.Agent}).Create(ctx, n)
	return err
}

// admit returns why an agent may not make a call, or nil.
//
// How the client has authenticated is not known any more. So the called agent must accept each of the schemes that admit
// callers of the calling one.
func (r *Runner) admit(called *Agent, by *task.Caller, c store.NewCall, caller string) error {
	calling := r.agents[caller]
	switch {
	case called == nil:
		return task.Errorf(task.NotFound, "there is no agent %q", c.Agent)
	case calling == nil:
		return task.Errorf(task.Forbidden, "the configuration has no agent %q any more", caller)
	case len(c.Callers) > calling.MaxDepth:
		return task.Errorf(task.RateLimited, "the call has the depth %d; the limit is %d", len(c.Callers), calling.MaxDepth)
	case !calling.Recursive && slices.Contains(c.Callers, c.Agent):
		return task.Errorf(task.Forbidden, "agent %q is the caller or a caller of it", c.Agent)
	case len(called.Schemes) == 0:
		return nil
	case len(calling.Schemes) == 0:
		return task.Errorf(task.Forbidden, "agent %q needs a credential, and the client has shown none", c.Agent)
	case !by.Has(called.Scope):
		return task.Errorf(task.Forbidden, "agent %q needs the scope %s", c.Agent, called.Scope)
	}
	for _, scheme := range calling.Schemes {
		if !slices.Contains(called.Schemes, scheme) {
			return task.Errorf(task.Forbidden, "agent %q does not accept all credentials that agent %q accepts", c.Agent, caller)
		}
	}
	return nil
}

// answer sends the message of a call to a task of an earlier call.
func (r *Runner) answer(ctx context.Context, by task.Caller, c store.NewCall, call *task.Call, request *task.Request) error {
	known, err := r.opt.Store.HasCalled(ctx, c.Parent, c.Task)
	if err != nil {
		return err
	}
	if !known {
		return task.Errorf(task.NotFound, "task %s was not called by this task", c.Task)
	}
	h, err := r.opt.Store.Header(ctx, c.Task)
	if err != nil {
		return deleted(err)
	}
	n := &store.NewMessage{Task: h, Message: call.Message, Request: request, Enqueue: true, RequestID: call.RequestID}
	request.Metadata = call.Metadata
	if a := r.agents[h.Agent]; a != nil {
		n.Enqueue, n.MostPending = !a.RejectBusy, store.PendingMessages
	}
	n.Message.TaskID, n.Message.ContextID = h.PublicID, h.ContextID
	seq, err := r.opt.Store.As(by, store.Visibility{Agent: h.Agent}).Once().AddMessage(ctx, n)
	switch {
	case errors.Is(err, task.Terminal):
		if h, err = r.opt.Store.Header(ctx, c.Task); err != nil {
			return deleted(err)
		}
		return r.opt.Store.BeginAnswer(ctx, c, h.Status.Seq-1, true)
	case err != nil:
		return deleted(err)
	}
	return r.opt.Store.BeginAnswer(ctx, c, seq, false)
}

func deleted(err error) error {
	if errors.Is(err, task.NotFound) {
		return task.Errorf(task.NotFound, "the task was deleted")
	}
	return err
}

// end cancels the tasks that an ended task has called.
func (r *Runner) end(ctx context.Context, t store.Settled) error {
	open, err := r.opt.Store.OpenCalls(ctx, t.Task)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(endsAtOnce)
	var locked atomic.Int64
	// In any order, so that those that no lock blocks have their turn.
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for _, h := range open {
		if locked.Load() >= endsAtOnce {
			break
		}
		g.Go(func() error {
			by := task.Caller{Tenant: h.Tenant, Subject: h.Owner, Method: task.MethodAgent}
			_, err := r.opt.Store.As(by, store.Visibility{Agent: h.Agent}).Once().Cancel(ctx, h, nil)
			switch {
			case store.Blocked(err):
				locked.Add(1)
			case err != nil && !errors.Is(err, task.NotCancelable) && !errors.Is(err, task.NotFound):
				return fmt.Errorf("cancel called task %s: %w", h.PublicID, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if locked.Load() > 0 {
		return store.ErrBlocked
	}
	return r.opt.Store.ForgetSettled(ctx, t)
}

// Relay shows the progress of called tasks in their callers once. more says that there may be further work at once. A look
// rests after one that took long: it may read many calls that have nothing to show. Only one goroutine may call it.
func (r *Runner) Relay(ctx context.Context) (more bool, err error) {
	begun := time.Now()
	if !r.pace.Due(begun) {
		return false, nil
	}
	found, full, err := r.opt.Store.Relays(ctx, r.owned, r.shared, relaysAtOnce)
	if err != nil {
		return false, err
	}
	if !full {
		r.pace.Looked(begun, 0)
	}
	for _, to := range found {
		n, err := r.opt.Store.Relay(ctx, to)
		if err != nil {
			return false, err
		}
		more = more || full && n > 0
	}
	return more, nil
}
