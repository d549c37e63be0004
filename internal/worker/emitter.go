package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// window bounds the uncommitted events of a run, in bytes; every event counts for at least
// eventCost. With it a stream can fill commits instead of waiting for each one. It also bounds the
// work that the next attempt repeats after a crash.
const (
	window    = 1 << 20
	eventCost = 4 << 10
)

var (
	errSettled = errors.New("the run has settled: emit nothing after input-required, auth-required, completed, failed, rejected, a wait, calls or a reply")
	errSpent   = errors.New("the artifacts of the task exceed max_artifacts")
)

// eventFactor is the bytes of memory for each byte of an event until its commit: the event, the copy of what the executor
// may reuse, its stored form, and that in the statement's arguments and in the buffer of the connection.
const eventFactor = 5

// emitter writes the events of one run and keeps their order. The database assigns seq; the emitter
// counts ordinal.
type emitter struct {
	r       *run
	window  *semaphore.Weighted
	last    atomic.Int64                // unix nanoseconds of the last emission
	held    atomic.Int64                // number of calls that wait for the database
	size    atomic.Int64                // bytes of the task's artifacts, including those of earlier runs
	emitted atomic.Bool                 // the executor emitted something
	spent   atomic.Bool                 // size went past MaxArtifacts: refuse further events of the executor
	queued  atomic.Int64                // part of the window in use
	reading atomic.Pointer[limit.Event] // which the executor reads; nil: it is small

	mu        sync.Mutex
	ordinal   int64
	stored    int64 // ordinal up to which all events are known to be committed
	visit     bool  // the events come through the run API: ordinals count posted events
	position  int64 // of a posted event: the ordinal after it
	ending    bool  // the server ends a run that the run API writes
	waiting   int   // appends without a result yet
	answered  chan struct{}
	started   bool       // working was reported, by this attempt or an earlier one
	bare      bool       // the newest status of this attempt is working without a message
	settled   task.State // unspecified until the run has settled; working if it ended in a wait
	elsewhere string     // the outcome, if the run API has ended the run
	calls     bool       // that wait is one for calls
	closed    bool
	err       error // first error of an append; sticky
	placement placement
	index     map[string]int // artifact id → index
	loaded    bool
}

func newEmitter(r *run) *emitter {
	e := &emitter{
		r: r, window: semaphore.NewWeighted(window),
		started: r.claim.Task.Status.State == task.StateWorking,
	}
	e.last.Store(time.Now().UnixNano())
	e.size.Store(r.claim.ArtifactBytes)
	return e
}

// lastEmission returns the time of the executor's last emission. An executor that waits for a slow
// or unavailable database does not count as inactive.
func (e *emitter) lastEmission() time.Time {
	if e.held.Load() > 0 {
		return time.Now()
	}
	return time.Unix(0, e.last.Load())
}

// hold marks the executor as waiting for the database until release is called.
func (e *emitter) hold() (release func()) {
	e.held.Add(1)
	return func() {
		e.last.Store(time.Now().UnixNano())
		e.held.Add(-1)
	}
}

// Status implements executor.Emitter.
func (e *emitter) Status(ctx context.Context, s task.State, msg *task.Message) error {
	return e.StatusAbout(ctx, s, msg, executor.About{})
}

// StatusAbout implements executor.Emitter.
func (e *emitter) StatusAbout(ctx context.Context, s task.State, msg *task.Message, more executor.About) error {
	e.began()
	metadata, err := e.cleanShown("metadata", more.Metadata)
	if err != nil {
		return err
	}
	ev := e.status(s, msg)
	ev.Metadata = metadata
	if more.Cause != "" {
		ev.Cause = e.cleanCause(errors.New(more.Cause))
	}
	switch {
	case e.spent.Load():
		return errSpent
	case s == task.StateWorking, s.Parked(), s == task.StateCompleted, s == task.StateFailed, s == task.StateRejected:
		return e.emit(ctx, ev)
	}
	return fmt.Errorf("an executor cannot set the state %s; it can set working, input-required, auth-required, completed, failed and rejected", s)
}

// Ask implements executor.Emitter.
func (e *emitter) Ask(ctx context.Context, a executor.Ask) error {
	if !a.State.Parked() {
		return fmt.Errorf("a question leaves the task input-required or auth-required, not %s", a.State)
	}
	if err := a.Resume.Check(); err != nil {
		return err
	}
	url := e.r.resumeURL()
	if a.Resume != nil && url == "" {
		return errors.New("resume: this server has no resume URLs")
	}
	e.began()
	metadata, err := e.cleanShown("metadata", a.Metadata)
	if err != nil {
		return err
	}
	if e.spent.Load() {
		return errSpent
	}
	ev := e.status(a.State, a.Shown(url))
	ev.Metadata = metadata
	if a.Resume != nil {
		ev.Resumable = cmp.Or(a.Resume.For, executor.DefaultResume)
	}
	return e.emit(ctx, ev)
}

// Artifact implements executor.Emitter.
func (e *emitter) Artifact(ctx context.Context, c executor.Chunk) error {
	e.began()
	if len(c.Artifact.Parts) == 0 {
		return errors.New("artifact.parts: must hold at least one part")
	}
	if !c.Grows && c.Artifact.ID != "" {
		return e.artifact(ctx, c)
	}
	e.placement.mu.Lock()
	defer e.placement.mu.Unlock()
	if err := e.place(ctx, &c); err != nil {
		return err
	}
	if err := e.artifact(ctx, c); err != nil {
		return err
	}
	e.placement.has(c.Artifact.ID)
	return nil
}

func (e *emitter) artifact(ctx context.Context, c executor.Chunk) error {
	a := c.Artifact
	in, err := e.admit(ctx, eventSize(&task.Event{Artifact: &a, Metadata: c.Metadata}))
	if err != nil {
		return err
	}
	defer func() { e.leave(in) }()
	if err := e.cleanArtifact(&a); err != nil {
		return err
	}
	metadata, err := e.cleanShown("metadata", c.Metadata)
	if err != nil {
		return err
	}
	if err := e.spend(a.Size()); err != nil {
		return err
	}
	if err := e.loadIndex(ctx); err != nil {
		return err
	}
	ev := &task.Event{Kind: task.EventArtifact, Artifact: &a, Append: c.Append, Last: c.Last, Metadata: metadata}
	admitted := in
	in = admission{} // queue leaves
	return e.queue(ev, admitted)
}

// Reply implements executor.Emitter.
func (e *emitter) Reply(ctx context.Context, msg *task.Message) error {
	e.began()
	if msg == nil {
		return errors.New("a reply needs a message")
	}
	if e.spent.Load() {
		return errSpent
	}
	e.mu.Lock()
	first := e.ordinal == 0 && !e.started && e.r.claim.Turn == 1
	e.mu.Unlock()
	if !first || !e.r.agent.DirectReplies {
		return executor.ErrReply
	}
	ev := e.status(task.StateCompleted, msg)
	ev.Direct = true
	return e.emit(ctx, ev)
}

// Checkpoint implements executor.Emitter.
func (e *emitter) Checkpoint(ctx context.Context, data json.RawMessage) error {
	return e.keep(ctx, task.RunCheckpoint, data, 0)
}

// Record implements executor.Emitter.
func (e *emitter) Record(ctx context.Context, record json.RawMessage) error {
	return e.keep(ctx, task.RunRecord, record, e.r.agent.MaxState)
}

// keep emits a note that keeps what the attempt wrote before it. most bounds its bytes; 0: nothing but the event does.
func (e *emitter) keep(ctx context.Context, outcome string, data json.RawMessage, most int64) error {
	e.began()
	if len(data) == 0 {
		return errors.New(outcome + ": not valid JSON")
	}
	if e.spent.Load() {
		return errSpent
	}
	data, err := e.cleanJSON(outcome, data)
	if err != nil {
		return err
	}
	if most > 0 && int64(len(data)) > most {
		return &executor.Failure{Msg: fmt.Sprintf("A %s of the agent has %d bytes; the limit is %d (limits.max_state).", outcome, len(data), most)}
	}
	return e.emit(ctx, &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: outcome, Checkpoint: data}})
}

// Wait implements executor.Emitter.
func (e *emitter) Wait(ctx context.Context, w executor.Wait) error {
	e.began()
	if err := w.Check(time.Now()); err != nil {
		return err
	}
	if e.spent.Load() {
		return errSpent
	}
	return e.emit(ctx, &task.Event{Kind: task.EventRun, Run: &task.RunNote{
		Outcome: task.RunWaits, Until: w.Until, For: w.For, Interruptible: w.Interruptible,
	}})
}

// Call implements executor.Emitter.
func (e *emitter) Call(ctx context.Context, calls []executor.Call) error {
	e.began()
	if err := executor.CheckCalls(calls, e.r.agent.MaxCalls); err != nil {
		return &executor.Failure{Msg: "The agent's calls are wrong.", Cause: err}
	}
	if e.spent.Load() {
		return errSpent
	}
	note := &task.RunNote{Outcome: task.RunCalls, Traceparent: e.r.span.Context().Parent}
	ev := &task.Event{Kind: task.EventRun, Run: note}
	for i := range calls {
		c := &calls[i]
		m := *c.Message // the executor may go on to use its own
		m.Role, m.TaskID, m.ContextID = task.RoleUser, "", ""
		if m.ID == "" {
			m.ID = uuid.NewString()
		}
		out := task.Call{ID: e.cleanText(c.CallID(i)), Agent: e.cleanText(c.Agent), ContextID: e.cleanText(c.ContextID), Message: &m, Metadata: c.Metadata, Relay: c.Relay}
		if c.TaskID != "" {
			out.Answers, out.RequestID = true, store.NewID()
			out.Task, _ = task.ParseID(c.TaskID) // checked
		} else {
			out.Task = e.r.pool.opt.Store.NewTaskID()
		}
		note.Calls = append(note.Calls, out)
	}
	in, err := e.admit(ctx, eventSize(ev))
	if err != nil {
		return err
	}
	for i := range note.Calls {
		c := &note.Calls[i]
		if err = e.cleanMessage(c.Message); err == nil {
			c.Metadata, err = e.cleanShown("metadata", c.Metadata)
		}
		if err != nil {
			e.leave(in)
			return fmt.Errorf("calls[%d].%w", i, err)
		}
	}
	return e.queue(ev, in)
}

// began records the first emission of the executor: the agent is there.
func (e *emitter) began() {
	if !e.emitted.Swap(true) {
		e.r.pool.begin(e.r, false)
	}
}

// spend adds size to the bytes of the task's artifacts. Above MaxArtifacts it ends the run.
func (e *emitter) spend(size int64) error {
	total, most := e.size.Add(size), e.r.agent.MaxArtifacts
	if most == 0 || total <= most {
		return nil
	}
	if !e.spent.Swap(true) {
		e.r.interrupt(errSpent)
		if limited := e.r.pool.opt.Observer.Limited; limited != nil {
			limited(e.r.agent.Name, LimitArtifacts)
		}
	}
	return errSpent
}

// working emits the status working, unless the task is known to be working.
func (e *emitter) working(ctx context.Context) error {
	e.mu.Lock()
	started := e.started
	e.mu.Unlock()
	if started {
		return nil
	}
	return e.emit(ctx, e.status(task.StateWorking, nil))
}

// settle emits the status that ends the run. The cause is for operators.
func (e *emitter) settle(ctx context.Context, s task.State, msg *task.Message, cause string) error {
	ev := e.status(s, msg)
	ev.Cause = cause
	return e.emit(ctx, ev)
}

func (e *emitter) status(s task.State, msg *task.Message) *task.Event {
	if msg != nil {
		// Copy the message: the executor may go on to use its own.
		m := *msg
		if m.ID == "" {
			m.ID = uuid.NewString()
		}
		if m.Role == task.RoleUnspecified {
			m.Role = task.RoleAgent
		}
		m.TaskID, m.ContextID = e.r.claim.Task.PublicID, e.r.claim.Task.ContextID
		msg = &m
	}
	return &task.Event{Kind: task.EventStatus, State: s, Message: msg}
}

// admission is what an uncommitted event has of the run's window and of the process's memory.
type admission struct {
	cost, bytes int64
	of          *limit.Event // has the bytes
}

// admit blocks while the window is full, or while the process has no memory for a large event. While there is no memory
// for more small events, the window is smaller.
func (e *emitter) admit(ctx context.Context, size int64) (in admission, err error) {
	defer e.hold()()
	// The bytes that were read for this event go beside the budget with it.
	in = admission{cost: min(size, window), of: e.reading.Load()}
	large := size > limit.SmallBytes
	needs := large || e.queued.Load()+size > limit.SmallBytes
	if needs && in.of == nil {
		in.of = e.r.pool.opt.Memory.Event(e.r.agent.Name)
	}
	spared := int64(0)
	switch bytes := size * eventFactor; {
	case !needs:
	case large:
		err, in.bytes = in.of.Complete(ctx, bytes), bytes
	case in.of.TryGrow(bytes):
		in.bytes = bytes
	default:
		spared = window - limit.SmallBytes
	}
	if err != nil {
		return admission{}, context.Cause(ctx)
	}
	if err := e.window.Acquire(ctx, in.cost+spared); err != nil {
		in.of.Give(in.bytes)
		return admission{}, context.Cause(ctx)
	}
	e.window.Release(spared)
	e.queued.Add(in.cost)
	return in, nil
}

// leave ends an admission: its event is committed or dropped.
func (e *emitter) leave(in admission) {
	e.queued.Add(-in.cost)
	e.window.Release(in.cost)
	in.of.Give(in.bytes)
}

// emit queues an event, and the status working before the first one. It blocks while the window or
// the memory is full.
func (e *emitter) emit(ctx context.Context, ev *task.Event) error {
	in, err := e.admit(ctx, eventSize(ev))
	if err != nil {
		return err
	}
	if ev.Message != nil {
		if err := e.cleanMessage(ev.Message); err != nil {
			e.leave(in)
			return err
		}
	}
	return e.queue(ev, in)
}

// queue queues an event that was admitted.
func (e *emitter) queue(ev *task.Event, in admission) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		e.leave(in)
		return e.err
	case e.settled != task.StateUnspecified, e.closed:
		e.leave(in)
		return errSettled
	}
	if ev.Artifact != nil {
		ev.Artifact.Index = e.indexOf(ev.Artifact.ID)
	}
	bare := ev.Kind == task.EventStatus && ev.State == task.StateWorking && ev.Message == nil && ev.Metadata == nil
	if bare && e.bare {
		// A repeated working status without content is a heartbeat. Readers and webhooks need no second one, so
		// only the clock is updated.
		e.leave(in)
		e.last.Store(time.Now().UnixNano())
		return nil
	}
	evs := []*task.Event{ev}
	if !e.started && !ev.Direct && ev.State != task.StateCanceled {
		e.started = true
		if ev.State != task.StateWorking {
			evs = []*task.Event{e.status(task.StateWorking, nil), ev}
			e.bare = true
		}
	}
	if ev.Kind == task.EventStatus {
		e.bare = bare
		if ev.State.Settled() {
			e.settled = ev.State
		}
		if ev.State.Parked() {
			ev.Artifacts = e.listing()
		}
	}
	if ev.Waits() {
		e.settled, e.calls = task.StateWorking, ev.Run.Outcome == task.RunCalls
	}
	ordinal, after := e.ordinal, e.ordinal+int64(len(evs))
	if e.visit {
		after = e.position
	}
	if e.ending {
		ordinal = store.AnyOrdinal
	}
	a := &store.Append{
		Task: e.r.claim.Task.ID, Agent: e.r.agent.Name, Fence: e.r.claim.Fence, Ordinal: ordinal, After: after, Events: evs,
		Posted: e.visit, Done: func(_ bool, err error) { e.done(in, after, err) },
	}
	e.ordinal = after
	e.waiting++
	e.r.pool.opt.Store.Append(a)
	e.last.Store(time.Now().UnixNano()) // after the append, because encoding a large event takes a while
	return nil
}

// done handles the result of an append. The store's writer calls it, in order but for two uploads of the same events at the same time:
// if the other one's event was written instead of one of this upload, its result may come after those that follow it.
func (e *emitter) done(in admission, after int64, err error) {
	e.leave(in)
	e.mu.Lock()
	e.waiting--
	if err == nil {
		e.stored = max(e.stored, after)
	} else if e.err == nil {
		e.err = err
	}
	if e.waiting == 0 && e.answered != nil {
		close(e.answered)
		e.answered = nil
	}
	e.mu.Unlock()
	switch {
	case errors.Is(err, task.LeaseLost):
		e.r.interrupt(executor.ErrLeaseLost)
	case err != nil:
		e.r.interrupt(err)
	}
}

// finish blocks until every event is committed or refused.
func (e *emitter) finish() error {
	e.mu.Lock()
	if e.waiting > 0 {
		if e.answered == nil {
			e.answered = make(chan struct{})
		}
		ch := e.answered
		e.mu.Unlock()
		<-ch
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	return e.err
}

// refused blocks until every append has a result. It returns the error of an event that the
// database refused, and lets the run emit one more status. The events after the refused one were
// not written either.
func (e *emitter) refused() error {
	err := e.finish()
	if err == nil || errors.Is(err, task.LeaseLost) || errors.Is(err, task.Unavailable) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.ordinal, e.settled, e.closed = nil, e.stored, task.StateUnspecified, false
	return err
}

// bufferFactor is the bytes of memory for each byte that the executor has read of an event: the buffer, and that from which it
// grew or the event that it becomes.
const bufferFactor = 2

// buffer is what the executor has read of an event, from which it makes one that it emits, or several. The first SmallBytes are
// free. The wait for memory does not count as inactivity.
type buffer struct {
	out  *emitter
	held int64
}

// Grow implements executor.Buffer.
func (b *buffer) Grow(ctx context.Context, n int) error {
	more := max(int64(n)-limit.SmallBytes, 0)*bufferFactor - b.held
	if more <= 0 {
		return nil
	}
	e := b.out.reading.Load()
	if e == nil {
		e = b.out.r.pool.opt.Memory.Event(b.out.r.agent.Name)
		b.out.reading.Store(e)
	}
	if !e.TryGrow(more) {
		defer b.out.hold()()
		if e.Grow(ctx, more) != nil {
			return context.Cause(ctx)
		}
	}
	b.held += more
	return nil
}

// Release implements executor.Buffer.
func (b *buffer) Release() {
	b.out.reading.Swap(nil).Give(b.held)
	b.held = 0
}

func (e *emitter) settledIn() (task.State, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settled, e.settled != task.StateUnspecified
}

// close refuses further emissions.
func (e *emitter) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
}

func eventSize(ev *task.Event) int64 {
	n := int64(len(ev.Metadata))
	count := func(parts []task.Part) {
		for i := range parts {
			n += parts[i].Size()
		}
	}
	if ev.Message != nil {
		count(ev.Message.Parts)
	}
	if ev.Artifact != nil {
		count(ev.Artifact.Parts)
	}
	if ev.Run != nil {
		n += int64(len(ev.Run.Checkpoint))
		for i := range ev.Run.Calls {
			count(ev.Run.Calls[i].Message.Parts)
			n += int64(len(ev.Run.Calls[i].Metadata))
		}
	}
	return max(n, eventCost)
}
