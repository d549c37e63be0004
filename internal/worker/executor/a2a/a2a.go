package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	transport "github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Front is the executor for one A2A server.
type Front struct {
	opts      Options
	transport transport.Transport
	target    atomic.Pointer[target]
	older     atomic.Bool // the agent has shown that it speaks 0.1
	push      push
	aiming    chan struct{} // full while cards are read

	// While aiming is full:
	extended   *client.Card // the newest
	noExtended bool         // it could not be read the last time
}

// New makes an executor that is a front of the server that opts name. It does not call the server yet.
func New(opts Options) (*Front, error) {
	if opts.Version == auto {
		opts.Version = ""
	}
	if opts.Binding == auto {
		opts.Binding = ""
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	f := &Front{opts: opts, aiming: make(chan struct{}, 1)}
	f.transport = f.carrier()
	f.target.Store(opts.fixed())
	return f, nil
}

// Forward returns the canonical names of the headers of clients that the agent gets.
func (f *Front) Forward() []string { return f.opts.Forward }

// allowed returns those of a request's headers that the agent gets. The configuration may have changed since the request.
func (f *Front) allowed(headers task.Forwarded) task.Forwarded {
	out := task.Forwarded{}
	for _, name := range f.opts.Forward {
		if value, ok := headers[name]; ok {
			out[name] = value
		}
	}
	return out
}

// link is what the front stores of a task: where its other side is.
type link struct {
	Task    string `json:"task,omitempty"`
	Context string `json:"context,omitempty"`
	// Turn is the newest turn whose message the agent has. No run sends it again.
	Turn int `json:"turn,omitempty"`
	// Asked is the id of the agent's question that this message answers.
	Asked string `json:"asked,omitempty"`
	// Left says that a run has canceled the agent's task.
	Left bool `json:"left,omitempty"`
	// Older says that the agent speaks 0.1, although its card does not say so.
	Older bool `json:"older,omitempty"`
}

// run is one execution.
type run struct {
	*Front
	*executor.Run
	to       *target
	refused  error // of the version that was tried first
	loaded   link  // as earlier runs have stored it
	mirror   *mirror
	forwards task.Forwarded // of the client's headers

	link       link
	version    int64 // of the stored link
	context    link  // of the context: only Context is used
	contextVer int64
	// linked is closed when the id of the agent's task is known, so that a cancel can name it.
	linked chan struct{}
}

// Execute implements executor.Executor.
func (f *Front) Execute(ctx context.Context, of *executor.Run, out executor.Emitter) error {
	to, err := f.aim(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	r := &run{Front: f, Run: of, to: to, forwards: f.allowed(of.Forwarded), linked: make(chan struct{})}
	if err := r.load(ctx, out); err != nil {
		return ended(ctx, err)
	}
	err = r.execute(ctx)
	switch {
	case unwanted(ctx, err):
		r.leave(ctx)
	case dropped(ctx) && len(r.forwards) > 0:
		r.drop(ctx)
	}
	return ended(ctx, err)
}

// unwanted reports whether the run's own failure means that nobody wants the agent's task any more. If something else has
// ended the run, the worker calls Cancel.
func unwanted(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	_, again := executor.IsRetryable(err)
	var away *executor.Unavailable
	var failure *executor.Failure
	return errors.As(err, &failure) && !again && !errors.As(err, &away)
}

// dropped reports whether the run was told to end together with its task.
func dropped(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, executor.ErrCanceled) || errors.Is(cause, executor.ErrTimeout) || errors.Is(cause, executor.ErrInactivity)
}

// ended returns why the run ended, if its context did.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// load reads what earlier runs have stored.
func (r *run) load(ctx context.Context, out executor.Emitter) error {
	read := func(of executor.Scope, into *link) (int64, error) {
		state, err := r.Memory.State(ctx, of)
		if err != nil || state.Value == nil {
			return state.Version, err
		}
		if err := json.Unmarshal(state.Value, into); err != nil {
			return 0, fmt.Errorf("the stored %s state is not one of an a2a agent: %w", of, err)
		}
		return state.Version, nil
	}
	var err error
	if r.Attempt > 1 || r.Turn > 1 {
		if r.version, err = read(executor.OfTask, &r.link); err != nil {
			return err
		}
	}
	r.loaded = r.link
	r.to = r.to.known(r.link.Older)
	if r.link.Context == "" {
		if r.contextVer, err = read(executor.OfContext, &r.context); err != nil {
			return err
		}
	}
	have, err := r.Memory.Task(ctx)
	if err != nil {
		return err
	}
	r.mirror = newMirror(out, have, r.opts.DirectReplies, r.maxAnswer())
	r.mirror.asked = r.link.Asked
	return nil
}

func (r *run) execute(ctx context.Context) error {
	switch {
	case r.link.Turn == r.Turn:
		return r.follow(ctx)
	case r.link.Task != "":
		return r.answer(ctx)
	case r.Attempt > 1 && !r.to.Wire.ChoosesIDs():
		// An earlier try may have sent the message and ended before the agent named its task.
		if found, err := r.search(ctx); err != nil || found {
			return after(err, func() error { return r.follow(ctx) })
		}
	case r.to.Wire.ChoosesIDs():
		// The id is ours, so it is known whether the message was sent.
		r.link.Task = r.ID.String()
		if r.Attempt > 1 {
			u, err := r.call(ctx, client.Get, &client.Params{TaskID: r.link.Task})
			if err == nil {
				if u.Task == nil || u.TaskID != r.link.Task {
					return errOtherTask
				}
				return after(r.adopt(ctx, u.TaskID, u.ContextID), func() error { return r.follow(ctx) })
			}
			if !errors.Is(err, task.NotFound) {
				return outcome(err)
			}
		}
	}
	return r.send(ctx)
}

// after calls next if err is nil.
func after(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// answer continues a task of the agent that asked something, if it still waits for the answer.
func (r *run) answer(ctx context.Context) error {
	u, err := r.call(ctx, client.Get, &client.Params{TaskID: r.link.Task})
	switch {
	case errors.Is(err, task.NotFound):
		return r.again(ctx)
	case err != nil:
		return outcome(err)
	case u.Task == nil:
		return errNoTask
	case u.TaskID != r.link.Task:
		return errOtherTask
	}
	state := u.Task.Status.State
	r.link.Asked = ""
	if q := u.Task.Status.Message; state.Parked() && q != nil && q.ID != "" && r.mirror.spoken[q.ID] {
		r.link.Asked = q.ID
	}
	r.mirror.asked = r.link.Asked
	switch {
	case state.Parked() && !said(u.Task, r.IdempotencyKey()):
		return r.send(ctx)
	case state == task.StateFailed, state == task.StateCanceled, state == task.StateRejected:
		return r.again(ctx)
	}
	// It went on by itself, as an agent does when its user has authenticated elsewhere, or an earlier try has sent the
	// message.
	return after(r.adopt(ctx, r.link.Task, u.ContextID), func() error { return r.follow(ctx) })
}

// again begins a new task of the agent in the same context.
func (r *run) again(ctx context.Context) error {
	r.link.Task = ""
	if r.to.Wire.ChoosesIDs() {
		r.link.Task = fmt.Sprintf("%s-%d", r.ID, r.Turn)
	}
	return r.send(ctx)
}

var (
	errNoTask    = &executor.Failure{Msg: "the agent's answer is no task"}
	errOtherTask = &executor.Failure{Msg: "the agent answered with another task than the one that it was asked for"}
)

// said reports whether a task's history has a message.
func said(t *task.Task, id string) bool {
	return slices.ContainsFunc(t.History, func(m task.Message) bool { return m.ID == id })
}

// search looks for the task that the run's message has begun, in the agent's list of the context.
func (r *run) search(ctx context.Context) (found bool, err error) {
	if !r.to.Wire.Has(client.List) || r.contextID() == "" {
		return false, nil
	}
	u, err := r.call(ctx, client.List, &client.Params{Context: r.contextID()})
	var reported *client.Error
	switch {
	case errors.As(err, &reported): // many servers have no list
		return false, nil
	case err != nil:
		return false, outcome(err)
	}
	for _, t := range u.Tasks {
		if said(t, r.IdempotencyKey()) {
			return true, r.adopt(ctx, t.PublicID, t.ContextID)
		}
	}
	return false, nil
}

// contextID returns the agent's context of the conversation, or "". It is never the client's own: all clients share the
// credential of the front, so one that guesses another's context would read it.
func (r *run) contextID() string {
	if r.link.Context != "" {
		return r.link.Context
	}
	return r.context.Context
}

// adopt stores the agent's task before anything of it is emitted.
func (r *run) adopt(ctx context.Context, id, contextID string) error {
	if id == "" {
		return &executor.Failure{Msg: "the agent's task has no id"}
	}
	r.link.Task, r.link.Turn = id, r.Turn
	if contextID != "" {
		r.link.Context = contextID
	}
	// A run that was canceled meanwhile still stores the id, so that the cancel can name it. Others wait for the database.
	ctx, cancel := outliving(ctx, r.opts.CallTimeout)
	defer cancel()
	if err := r.storeLink(ctx); err != nil {
		return err
	}
	close(r.linked)
	return r.shareContext(ctx, contextID)
}

// outliving returns a context that ends so long after its parent.
func outliving(parent context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() { time.AfterFunc(by, cancel) })
	return ctx, func() { stop(); cancel() }
}

func (r *run) storeLink(ctx context.Context) error {
	value, err := json.Marshal(r.link)
	if err != nil {
		return err
	}
	r.version, err = r.Memory.SetState(ctx, executor.OfTask, value, executor.AnyVersion)
	return err
}

// shareContext stores the agent's context for later tasks of ours in the same context.
func (r *run) shareContext(ctx context.Context, contextID string) error {
	if contextID == "" || contextID == r.context.Context {
		return nil
	}
	value, err := json.Marshal(link{Context: contextID})
	if err != nil {
		return err
	}
	_, err = r.Memory.SetState(ctx, executor.OfContext, value, r.contextVer)
	if errors.Is(err, executor.ErrStateChanged) {
		return nil // a task that began at the same time was first
	}
	return err
}

// message returns the run's message as the agent gets it.
func (r *run) message(ctx context.Context) (*task.Message, error) {
	m := *r.Message
	m.ID, m.Role = r.IdempotencyKey(), task.RoleUser
	m.TaskID, m.ContextID, m.References = r.link.Task, r.contextID(), nil
	if len(r.Message.References) == 0 {
		return &m, nil
	}
	// The client's references name our tasks. The agent knows its own.
	refs, err := r.Memory.References(ctx, executor.Bounds{})
	if err != nil {
		return nil, err
	}
	for i := range refs {
		var of link
		if json.Unmarshal(refs[i].Stored, &of) == nil && of.Task != "" {
			m.References = append(m.References, of.Task)
		}
	}
	return &m, nil
}

// send sends the run's message, and reads the answer.
func (r *run) send(ctx context.Context) error {
	message, err := r.message(ctx)
	if err != nil {
		return err
	}
	params := &client.Params{
		TaskID: r.link.Task, Message: message, Metadata: r.TurnMetadata, Modes: r.AcceptedOutputModes, Return: true, Key: r.IdempotencyKey(),
	}
	// A cancel must not close the call before the agent has named its task: then nobody could cancel that.
	callCtx, stop := r.until(ctx)
	defer stop()
	op := client.Send
	if r.to.streams {
		op = client.Stream
	}
	update, stream, err := r.open(callCtx, op, params)
	if op == client.Stream && errors.Is(err, task.Unsupported) {
		update, stream, err = r.open(callCtx, client.Send, params)
	}
	switch {
	case refusedVersion(err) && r.refused != nil: // it speaks neither
		r.link = r.loaded
		return outcome(r.refused)
	case refusedVersion(err) && r.to.guessed:
		r.to, r.refused = r.to.of01(), err
		return r.execute(ctx)
	case refusedVersion(err) && r.to.newer != nil: // it spoke 0.1 before
		r.older.Store(false)
		r.loaded.Older = false
		r.to, r.link, r.refused = r.to.newer, r.loaded, err
		return r.execute(ctx)
	case err != nil:
		return outcome(err)
	}
	r.Began()
	if r.to.newer != nil {
		r.link.Older = true
		r.older.Store(true)
	}
	if stream == nil {
		if done, err := r.take(ctx, update); done || err != nil {
			return err
		}
		return r.follow(ctx)
	}
	defer stream.Close()
	// A connection may be dead without a sign. Reading the task shows it.
	idle := time.AfterFunc(maxIdle, func() {
		select {
		case <-r.linked:
			stop()
		default: // without the id there is nothing to read
		}
	})
	defer idle.Stop()
	stream.Alive = func() { idle.Reset(maxIdle) }
	return r.live(ctx, stream)
}

// until returns a context for the send. When ctx ends it lasts until the agent's task is known, but no longer than the
// timeout of a cancel.
func (r *run) until(ctx context.Context) (context.Context, context.CancelFunc) {
	callCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(r.opts.CancelTimeout)
		defer timer.Stop()
		select {
		case <-r.linked:
		case <-timer.C:
		case <-callCtx.Done():
		}
		stop()
	})
	return callCtx, func() { release(); stop() }
}

// live passes the stream that answers the send on. If it breaks, follow goes on.
func (r *run) live(ctx context.Context, events *transport.Answer) error {
	for {
		_, raw, err := events.Next()
		if err == nil {
			update, err := r.parse(r.to, client.Stream, raw, r.forwards)
			if err != nil {
				return outcome(err)
			}
			if done, err := r.take(ctx, update); done || err != nil {
				return err
			}
			continue
		}
		broke := errors.As(err, new(*transport.CallError)) // that decides nothing: the task says more
		err = r.failed(err, r.forwards)
		var failure *executor.Failure
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !broke && errors.As(err, &failure): // an event that is too long, or no event
			return failure
		case r.link.Turn == r.Turn:
			if errors.Is(err, io.EOF) { // the agent is done with the message, even if its task shows no change
				r.mirror.asked = ""
			}
			return r.follow(ctx)
		case errors.Is(err, io.EOF):
			return executor.Retryable(errors.New("the agent's stream ended without an event"), 0)
		}
		return executor.Retryable(errors.New("the agent's stream broke before its first event: "+err.Error()), 0)
	}
}

// take handles an update of the answer to a send. It reports whether the run has settled.
func (r *run) take(ctx context.Context, u *client.Update) (done bool, err error) {
	known := r.link.Turn == r.Turn
	if u.Message != nil && !known {
		// A bare message: the agent made no task. Only its context lives on.
		if err := r.shareContext(ctx, u.ContextID); err != nil {
			return true, err
		}
		return true, r.mirror.reply(ctx, u.Message)
	}
	switch {
	case u.TaskID == "" && !known:
		return true, &executor.Failure{Msg: "the agent's first event names no task"}
	case !known:
		if want := r.link.Task; want != "" && u.TaskID != want {
			return true, &executor.Failure{Msg: "the agent answered with another task than the message names"}
		}
		if err := r.adopt(ctx, u.TaskID, u.ContextID); err != nil {
			return true, err
		}
	case u.TaskID != "" && u.TaskID != r.link.Task:
		return true, &executor.Failure{Msg: "the agent sent an event of another task"}
	}
	if ctx.Err() != nil {
		return true, context.Cause(ctx)
	}
	return r.mirror.update(ctx, u)
}

// leave cancels the agent's task, and reports whether it did.
func (r *run) leave(ctx context.Context) bool {
	if r.link.Task == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.opts.CancelTimeout)
	defer cancel()
	if err := r.cancel(ctx, r.to, &client.Params{TaskID: r.link.Task, Forwarded: r.forwards}); err != nil {
		r.opts.Log.Warn("could not cancel the agent's task", "task_id", r.TaskID, "agent_task", r.link.Task, "error", err)
		return false
	}
	return true
}

// drop cancels the agent's task with the headers of the client, and stores that: the worker calls Cancel later, which does
// not have these headers.
func (r *run) drop(ctx context.Context) {
	if !r.leave(ctx) {
		return
	}
	r.link.Left = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.opts.CallTimeout)
	defer cancel()
	if err := r.storeLink(ctx); err != nil {
		r.opts.Log.Warn("could not store that the agent's task is canceled; it will be canceled again", "task_id", r.TaskID, "error", err)
	}
}
