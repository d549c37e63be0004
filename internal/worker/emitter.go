package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// window bounds what a run has emitted and not yet committed, in bytes; every
// event counts for at least eventCost. It lets a stream fill commits instead of
// waiting for each, and bounds what a crash makes the next attempt repeat.
const (
	window    = 1 << 20
	eventCost = 4 << 10
)

var (
	errSettled = errors.New("the run has settled: nothing may be emitted after input-required, auth-required, completed, failed, rejected or a reply")
	errSpent   = errors.New("the artifacts of the task are as large as they may be")
	errReply   = &executor.Failure{Msg: "A bare reply must be the first thing that a run emits, and the agent must be configured with direct_replies."}
)

// emitter is one run's pen. It keeps the order of its events: seq is given by the
// database, ordinal counts here.
type emitter struct {
	r      *run
	window *semaphore.Weighted
	last   atomic.Int64 // unix nanoseconds of the last emission
	held   atomic.Int64 // calls that wait for the database
	size   atomic.Int64 // of the task's artifacts, those of earlier runs included
	spent  atomic.Bool  // that was more than it may be: the executor says nothing more

	mu       sync.Mutex
	ordinal  int64
	stored   int64 // how much of ordinal is known to be committed
	waiting  int   // appends not yet answered
	answered chan struct{}
	started  bool       // working was reported, by this attempt or an earlier one
	bare     bool       // the newest status of this attempt is working, and says nothing else
	settled  task.State // unspecified until the run has settled
	closed   bool
	err      error          // of an append; sticky
	index    map[string]int // artifact id → index
	loaded   bool
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

// lastEmission is when the executor last said something. One that cannot, because
// the database is slow or away, is not silent.
func (e *emitter) lastEmission() time.Time {
	if e.held.Load() > 0 {
		return time.Now()
	}
	return time.Unix(0, e.last.Load())
}

// hold says that the executor waits for the database, until the function it returns is called.
func (e *emitter) hold() (release func()) {
	e.held.Add(1)
	return func() {
		e.last.Store(time.Now().UnixNano())
		e.held.Add(-1)
	}
}

// Status implements executor.Emitter.
func (e *emitter) Status(ctx context.Context, s task.State, msg *task.Message) error {
	switch {
	case e.spent.Load():
		return errSpent
	case s == task.StateWorking:
		return e.emit(ctx, e.status(s, msg))
	case s.Parked(), s == task.StateCompleted, s == task.StateFailed, s == task.StateRejected:
		return e.settle(ctx, s, msg)
	}
	return fmt.Errorf("an executor cannot set the state %s", s)
}

// Artifact implements executor.Emitter.
func (e *emitter) Artifact(ctx context.Context, c executor.Chunk) (string, error) {
	a := c.Artifact
	if len(a.Parts) == 0 {
		return "", errors.New("artifact.parts: an artifact has at least one part")
	}
	if a.ID == "" {
		a.ID = uuid.NewString()
	}
	if err := e.cleanArtifact(&a); err != nil {
		return "", err
	}
	metadata, err := e.cleanJSON("metadata", c.Metadata)
	if err != nil {
		return "", err
	}
	if err := e.spend(a.Size()); err != nil {
		return "", err
	}
	if err := e.loadIndex(ctx); err != nil {
		return "", err
	}
	ev := &task.Event{Kind: task.EventArtifact, Artifact: &a, Append: c.Append, Last: c.Last, Metadata: metadata}
	return a.ID, e.emit(ctx, ev)
}

// Reply implements executor.Emitter.
func (e *emitter) Reply(ctx context.Context, msg *task.Message) error {
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
		return errReply
	}
	ev := e.status(task.StateCompleted, msg)
	ev.Direct = true
	return e.emit(ctx, ev)
}

// Checkpoint implements executor.Emitter.
func (e *emitter) Checkpoint(ctx context.Context, data json.RawMessage) error {
	if len(data) == 0 {
		return errors.New("checkpoint: not valid JSON")
	}
	if e.spent.Load() {
		return errSpent
	}
	data, err := e.cleanJSON("checkpoint", data)
	if err != nil {
		return err
	}
	return e.emit(ctx, &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCheckpoint, Checkpoint: data}})
}

// spend counts what goes into an artifact. The chunk that is too much ends the run.
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

// working reports that the run has begun, unless the task is known to be working.
func (e *emitter) working(ctx context.Context) error {
	e.mu.Lock()
	started := e.started
	e.mu.Unlock()
	if started {
		return nil
	}
	return e.emit(ctx, e.status(task.StateWorking, nil))
}

// settle writes the status that ends the run.
func (e *emitter) settle(ctx context.Context, s task.State, msg *task.Message) error {
	return e.emit(ctx, e.status(s, msg))
}

func (e *emitter) status(s task.State, msg *task.Message) *task.Event {
	if msg != nil {
		// The executor keeps its message; what is stored is ours.
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

// emit puts an event, and working before the first one, into the window.
func (e *emitter) emit(ctx context.Context, ev *task.Event) error {
	if ev.Message != nil {
		if err := e.cleanMessage(ev.Message); err != nil {
			return err
		}
	}
	cost := min(eventSize(ev), window)
	release := e.hold()
	err := e.window.Acquire(ctx, cost)
	release()
	if err != nil {
		return context.Cause(ctx)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		e.window.Release(cost)
		return e.err
	case e.settled != task.StateUnspecified, e.closed:
		e.window.Release(cost)
		return errSettled
	}
	if ev.Artifact != nil {
		ev.Artifact.Index = e.indexOf(ev.Artifact.ID)
	}
	bare := ev.Kind == task.EventStatus && ev.State == task.StateWorking && ev.Message == nil
	if bare && e.bare {
		// It is a sign of life, and says nothing new to who reads the task or is told of it.
		e.window.Release(cost)
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
	}
	a := &store.Append{
		Task: e.r.claim.Task.ID, Agent: e.r.agent.Name, Attempt: e.r.attempt, Ordinal: e.ordinal, Events: evs,
		Done: func(_ bool, err error) { e.done(cost, len(evs), err) },
	}
	e.ordinal += int64(len(evs))
	e.waiting++
	e.r.pool.opt.Store.Append(a)
	e.last.Store(time.Now().UnixNano()) // encoding much of it takes a while
	return nil
}

// done is called by the store's writer, in order.
func (e *emitter) done(cost int64, events int, err error) {
	e.window.Release(cost)
	e.mu.Lock()
	e.waiting--
	if err == nil {
		e.stored += int64(events)
	} else if e.err == nil {
		e.err = err
	}
	if e.waiting == 0 && e.answered != nil {
		close(e.answered)
		e.answered = nil
	}
	e.mu.Unlock()
	if errors.Is(err, task.LeaseLost) {
		e.r.interrupt(executor.ErrLeaseLost)
	} else if err != nil {
		e.r.interrupt(err)
	}
}

// finish waits until everything is committed or refused.
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

// refused tells, once everything is answered, of an event that the database will
// not have, and lets the run say one thing more: what came after it was not
// written either.
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

// loadIndex learns the artifacts that earlier runs of the task have made.
func (e *emitter) loadIndex(ctx context.Context) error {
	e.mu.Lock()
	// Not Turn and Try: a run that was handed back does not count, yet may have written.
	known := e.loaded || e.r.claim.Attempt == 1
	e.mu.Unlock()
	if known {
		return nil
	}
	var ids []string
	err := e.r.read(ctx, func() (err error) {
		ids, err = e.r.pool.opt.Store.ArtifactIDs(ctx, e.r.claim.Task.ID)
		return err
	})
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.loaded {
		e.loaded = true
		for _, id := range ids {
			e.indexOf(id)
		}
	}
	return nil
}

func (e *emitter) indexOf(id string) int {
	if e.index == nil {
		e.index = map[string]int{}
	}
	i, ok := e.index[id]
	if !ok {
		i = len(e.index)
		e.index[id] = i
	}
	return i
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
	return max(n, eventCost)
}

// cleanMessage and cleanArtifact make an executor's content storable and ours:
// NUL characters become U+FFFD, opaque JSON must be JSON, and nothing is shared
// that the executor may change or use again.
func (e *emitter) cleanMessage(m *task.Message) (err error) {
	m.ID = e.cleanText(m.ID)
	m.Extensions, m.References = e.cleanList(m.Extensions), e.cleanList(m.References)
	if m.Metadata, err = e.cleanJSON("metadata", m.Metadata); err != nil {
		return err
	}
	m.Parts, err = e.cleanParts(m.Parts)
	return err
}

func (e *emitter) cleanArtifact(a *task.Artifact) (err error) {
	a.ID, a.Name, a.Description = e.cleanText(a.ID), e.cleanText(a.Name), e.cleanText(a.Description)
	a.Extensions = e.cleanList(a.Extensions)
	if a.Metadata, err = e.cleanJSON("artifact.metadata", a.Metadata); err != nil {
		return err
	}
	a.Parts, err = e.cleanParts(a.Parts)
	return err
}

func (e *emitter) cleanParts(parts []task.Part) (_ []task.Part, err error) {
	parts = slices.Clone(parts)
	for i := range parts {
		p := &parts[i]
		p.Text, p.URL = e.cleanText(p.Text), e.cleanText(p.URL)
		p.Filename, p.MediaType = e.cleanText(p.Filename), e.cleanText(p.MediaType)
		p.Raw = bytes.Clone(p.Raw)
		if p.Data, err = e.cleanJSON(fmt.Sprintf("parts[%d].data", i), p.Data); err != nil {
			return nil, err
		}
		if p.Metadata, err = e.cleanJSON(fmt.Sprintf("parts[%d].metadata", i), p.Metadata); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

func (e *emitter) cleanList(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = e.cleanText(list[i])
	}
	return list
}

func (e *emitter) cleanText(s string) string {
	if strings.IndexByte(s, 0) < 0 {
		return s
	}
	e.logNUL()
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

func (e *emitter) cleanJSON(member string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if !jsontext.Value(raw).IsValid() {
		return nil, fmt.Errorf("%s: not valid JSON", member)
	}
	// A copy, and on one line, as an event of a stream has to be.
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Compact(); err != nil {
		return nil, fmt.Errorf("%s: %w", member, err)
	}
	raw = json.RawMessage(v)
	const nul = `\u0000`
	if !bytes.Contains(raw, []byte(nul)) {
		return raw, nil
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch {
		case bytes.HasPrefix(raw[i:], []byte(nul)):
			out = append(out, `\ufffd`...)
			i += len(nul)
			e.logNUL()
		case raw[i] == '\\': // valid, so something follows
			out = append(out, raw[i], raw[i+1])
			i += 2
		default:
			out = append(out, raw[i])
			i++
		}
	}
	return out, nil
}

func (e *emitter) logNUL() {
	e.r.pool.opt.Log.Warn("a NUL character from the agent was replaced", "task_id", e.r.claim.Task.PublicID, "agent", e.r.agent.Name)
}
