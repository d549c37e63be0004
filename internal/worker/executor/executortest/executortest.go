// Package executortest runs an executor without a server. A Recorder replaces the worker's Emitter and keeps its rules
// about order and settling. Memory replaces the log.
package executortest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// ErrSettled is the error of a Recorder after the run has been settled.
var ErrSettled = errors.New("the run is already settled")

// Memory is the log that an executor reads. Reads counts the queries that a server would have made.
type Memory struct {
	Messages []task.Message
	Events   []task.Event
	Stored   json.RawMessage
	Log      []task.Event    // of the whole task
	Said     []executor.Said // of the task; in the context, Before comes first
	Before   []executor.Said
	Refs     []executor.Reference
	Reads    int

	mu     sync.Mutex
	states map[executor.Scope]executor.State
	writes int64
}

// Dialogue returns Said, and with OfContext Before, within the bounds.
func (m *Memory) Dialogue(_ context.Context, of executor.Scope, within executor.Bounds) ([]executor.Said, error) {
	m.Reads++
	said := slices.Clone(m.Said)
	if of == executor.OfContext {
		said = append(slices.Clone(m.Before), said...)
	}
	return within.Newest(said), nil
}

// References returns Refs.
func (m *Memory) References(context.Context, executor.Bounds) ([]executor.Reference, error) {
	m.Reads++
	return m.Refs, nil
}

// State returns what SetState has stored.
func (m *Memory) State(_ context.Context, of executor.Scope) (executor.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Reads++
	return m.states[of], nil
}

// SetState stores a value, as the database would.
func (m *Memory) SetState(_ context.Context, of executor.Scope, value json.RawMessage, version int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version != executor.AnyVersion && version != m.states[of].Version {
		return 0, executor.ErrStateChanged
	}
	if m.states == nil {
		m.states = map[executor.Scope]executor.State{}
	}
	if value == nil || string(value) == "null" {
		delete(m.states, of)
		return 0, nil
	}
	m.writes++
	m.states[of] = executor.State{Value: value, Version: m.writes}
	return m.writes, nil
}

// History returns Messages.
func (m *Memory) History(context.Context) ([]task.Message, error) {
	m.Reads++
	return m.Messages, nil
}

// Snapshot folds Events.
func (m *Memory) Snapshot(context.Context) (*task.Task, int, error) {
	m.Reads++
	t, err := task.Fold(task.Task{History: m.Messages}, m.Events)
	return t, 0, err
}

// Earlier returns Events.
func (m *Memory) Earlier(context.Context) ([]task.Event, error) {
	m.Reads++
	return m.Events, nil
}

// Checkpoint returns Stored.
func (m *Memory) Checkpoint(context.Context) (json.RawMessage, error) {
	m.Reads++
	return m.Stored, nil
}

// Task returns the fold of Log.
func (m *Memory) Task(context.Context) (*task.Task, error) {
	m.Reads++
	return task.Fold(task.Task{}, m.Log)
}

// NewRun returns the first run of a new task for a message with one text part.
func NewRun(text string) *executor.Run {
	return &executor.Run{
		ID: task.ID{1, 2, 3, 4, 5, 6, 7, 8, 9}, TaskID: "task-1", ContextID: "context-1",
		Agent: "agent", Tenant: "tenant", Owner: "owner", Keys: executor.Keys{Task: "task-key", Context: "context-key"},
		Message: &task.Message{ID: "message-1", Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
		Attempt: 1, Try: 1, Turn: 1,
		Memory: &Memory{},
	}
}

// Recorder is an Emitter that records events.
type Recorder struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every event
	events  []task.Event
	ids     int
	settled bool
	refuse  error
}

// NewRecorder makes an empty Recorder.
func NewRecorder() *Recorder { return &Recorder{changed: make(chan struct{})} }

// Refuse makes every later call fail, as after a lost lease.
func (r *Recorder) Refuse(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = err
}

// Status records a status event.
func (r *Recorder) Status(ctx context.Context, s task.State, msg *task.Message) error {
	return r.StatusAbout(ctx, s, msg, executor.About{})
}

// StatusAbout records a status event.
func (r *Recorder) StatusAbout(ctx context.Context, s task.State, msg *task.Message, more executor.About) error {
	return r.record(ctx, task.Event{Kind: task.EventStatus, State: s, Message: msg, Metadata: more.Metadata, Cause: more.Cause}, s.Settled())
}

// Ask records a status event.
func (r *Recorder) Ask(ctx context.Context, a executor.Ask) error {
	if err := a.Resume.Check(); err != nil {
		return err
	}
	event := task.Event{Kind: task.EventStatus, State: a.State, Message: a.Shown(ResumeURL), Metadata: a.Metadata}
	if a.Resume != nil {
		event.Resumable = cmp.Or(a.Resume.For, executor.DefaultResume)
	}
	return r.record(ctx, event, true)
}

// ResumeURL is the resume URL that a Recorder shows.
const ResumeURL = "https://holdfast.example/resume/1"

// Artifact records an artifact event and gives the artifact an id if it has none.
func (r *Recorder) Artifact(ctx context.Context, c executor.Chunk) error {
	a := c.Artifact
	if a.ID == "" {
		r.mu.Lock()
		r.ids++
		a.ID = fmt.Sprintf("artifact-%d", r.ids)
		r.mu.Unlock()
	}
	event := task.Event{Kind: task.EventArtifact, Artifact: &a, Append: c.Append, Last: c.Last, Metadata: c.Metadata}
	if c.Grows {
		event.Append = slices.ContainsFunc(r.Events(), func(e task.Event) bool { return e.Artifact != nil && e.Artifact.ID == a.ID })
	}
	return r.record(ctx, event, false)
}

// Reply records a bare message, which must be the first event.
func (r *Recorder) Reply(ctx context.Context, msg *task.Message) error {
	if len(r.Events()) > 0 {
		return errors.New("a reply must be the first thing a run emits")
	}
	event := task.Event{Kind: task.EventStatus, State: task.StateCompleted, Direct: true, Message: msg}
	return r.record(ctx, event, true)
}

// Checkpoint records a checkpoint.
func (r *Recorder) Checkpoint(ctx context.Context, data json.RawMessage) error {
	note := &task.RunNote{Outcome: task.RunCheckpoint, Checkpoint: data}
	return r.record(ctx, task.Event{Kind: task.EventRun, Run: note}, false)
}

// Wait records a run note with the wait.
func (r *Recorder) Wait(ctx context.Context, w executor.Wait) error {
	if err := w.Check(time.Now()); err != nil {
		return err
	}
	note := &task.RunNote{Outcome: task.RunWaits, Until: w.Until, For: w.For, Interruptible: w.Interruptible}
	return r.record(ctx, task.Event{Kind: task.EventRun, Run: note}, true)
}

// Call records a run note with the calls.
func (r *Recorder) Call(ctx context.Context, calls []executor.Call) error {
	if err := executor.CheckCalls(calls, 0); err != nil {
		return err
	}
	note := &task.RunNote{Outcome: task.RunCalls}
	for i := range calls {
		c := &calls[i]
		id, _ := task.ParseID(c.TaskID)
		note.Calls = append(note.Calls, task.Call{
			ID: c.CallID(i), Agent: c.Agent, Task: id, Answers: c.TaskID != "", ContextID: c.ContextID, Message: c.Message, Metadata: c.Metadata, Relay: c.Relay,
		})
	}
	return r.record(ctx, task.Event{Kind: task.EventRun, Run: note}, true)
}

func (r *Recorder) record(ctx context.Context, e task.Event, settles bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.refuse != nil:
		return r.refuse
	case r.settled:
		return ErrSettled
	}
	e.Seq = task.Seq(len(r.events) + 1)
	r.events = append(r.events, e)
	r.settled = settles
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

// Events returns the events recorded so far.
func (r *Recorder) Events() []task.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)]
}

// Await waits for at least n events and returns them.
func (r *Recorder) Await(t testing.TB, n int) []task.Event {
	t.Helper()
	return r.Until(t, func(events []task.Event) bool { return len(events) >= n })
}

// Until waits until the events are enough and returns them.
func (r *Recorder) Until(t testing.TB, enough func([]task.Event) bool) []task.Event {
	t.Helper()
	for {
		r.mu.Lock()
		events, changed := r.events[:len(r.events):len(r.events)], r.changed
		r.mu.Unlock()
		if enough(events) {
			return events
		}
		waittest.Within(t, fmt.Sprintf("an event after %d", len(events)), changed)
	}
}

// Task folds the recorded events as the server does.
func (r *Recorder) Task(t testing.TB) *task.Task {
	t.Helper()
	folded, err := task.Fold(task.Task{}, r.Events())
	if err != nil {
		t.Fatal(err)
	}
	return folded
}

// Text returns the text of all parts of all artifacts, joined.
func (r *Recorder) Text(t testing.TB) string {
	t.Helper()
	var text string
	for _, a := range r.Task(t).Artifacts {
		for _, p := range a.Parts {
			text += p.Text
		}
	}
	return text
}

// Go runs an executor in the background. The channel yields its error.
func Go(ctx context.Context, e executor.Executor, run *executor.Run, out executor.Emitter) <-chan error {
	done := make(chan error, 1)
	go func() { done <- e.Execute(ctx, run, out) }()
	return done
}

// Wait returns the error of a run that Go started.
func Wait(t testing.TB, done <-chan error) error {
	t.Helper()
	return waittest.Within(t, "the run ends", done)
}

// Run runs an executor to its end.
func Run(t testing.TB, e executor.Executor, run *executor.Run) (*Recorder, error) {
	t.Helper()
	out := NewRecorder()
	return out, Wait(t, Go(t.Context(), e, run, out))
}

// Outcome says in a line how a run ended for its task: what the client reads, and what the worker does next.
func Outcome(err error) string {
	var said []string
	if failure, ok := errors.AsType[*executor.Failure](err); ok {
		said = append(said, failure.Msg)
	} else if err != nil {
		said = append(said, err.Error())
	}
	if away, ok := errors.AsType[*executor.Unavailable](err); ok {
		said = append(said, after("away", away.RetryAfter))
		if !away.Answered {
			said = append(said, "not reached")
		}
	}
	if wait, again := executor.IsRetryable(err); again {
		said = append(said, after("retry", wait))
	}
	return strings.Join(said, "; ")
}

func after(what string, d time.Duration) string {
	if d > 0 {
		return fmt.Sprintf("%s for %s", what, d)
	}
	return what
}
