// Package rpctest has the engines for tests of the bindings: one that answers every operation alike, and a real
// engine with a real hub on a log without a database.
package rpctest

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Log is a log without a database: it has the methods of the store that the engine and the hub call. The test plays
// the agent and calls Add.
type Log struct {
	engine.Store // methods that no test of a stream calls

	Hub     *hub.Hub
	signals signal.Bus

	mu      sync.Mutex
	headers map[task.ID]task.Task
	events  map[task.ID][]task.Event
	keys    map[string]task.ID
	Created chan task.ID // receives each task that is created or gets a message
	ReadErr error        // returned by EventsAfter
	Base    task.Seq     // StreamBase of the tasks that Task creates
}

// NewLog makes an empty log.
func NewLog() *Log { return NewLogWithin(nil) }

// NewLogWithin makes an empty log whose streams share a budget of memory.
func NewLogWithin(b *limit.Budget) *Log {
	m := &Log{
		headers: map[task.ID]task.Task{}, events: map[task.ID][]task.Event{}, keys: map[string]task.ID{},
		Created: make(chan task.ID, 100),
	}
	m.Hub = hub.New(hub.Options{Store: m, Signals: &m.signals, Memory: b})
	return m
}

// Engine returns an engine on the log, with the agents demo and other; other may reply directly.
func (m *Log) Engine() func(task.Caller, string) dispatch.Engine {
	return dispatch.Views(engine.New(engine.Options{
		Store: func(task.Caller, store.Visibility) engine.Store { return m }, Hub: m.Hub,
		Agents: []engine.Agent{{Name: "demo"}, {Name: "other", DirectReplies: true}},
	}).As)
}

func (m *Log) header(id task.ID) *task.Task {
	h := m.headers[id]
	t, err := task.Fold(h, m.events[id])
	if err != nil {
		panic(err)
	}
	h.LastSeq, h.Status, h.Direct = t.LastSeq, t.Status, t.Direct
	return &h
}

func (m *Log) append(id task.ID, e task.Event) *task.Event {
	e.Task, e.Seq, e.At = id, task.Seq(len(m.events[id])+1), time.Unix(1e9, 0)
	m.events[id] = append(m.events[id], e)
	return &e
}

// NewTaskID returns a new id.
func (m *Log) NewTaskID() task.ID { return store.NewID() }

// Add plays the agent: it stores events, then publishes them.
func (m *Log) Add(id task.ID, evs ...task.Event) {
	m.mu.Lock()
	out := make([]*task.Event, len(evs))
	for i, e := range evs {
		out[i] = m.append(id, e)
	}
	m.mu.Unlock()
	m.signals.Committed(out)
}

// Task creates a task of a version with a message and further events.
func (m *Log) Task(version string, evs ...task.Event) task.ID {
	id := store.NewID()
	m.mu.Lock()
	m.headers[id] = task.Task{ID: id, PublicID: id.String(), Agent: "demo", ContextID: "c-1", Dialect: version, StreamBase: m.Base}
	m.append(id, Says("hi"))
	m.mu.Unlock()
	m.Add(id, evs...)
	return id
}

// Says is a user's message.
func Says(text string) task.Event {
	return task.Event{Kind: task.EventMessage, Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text(text)}}}
}

// Status is a change of status.
func Status(s task.State) task.Event { return task.Event{Kind: task.EventStatus, State: s} }

// Chunk is a chunk of the artifact a.
func Chunk(text string) task.Event {
	return task.Event{Kind: task.EventArtifact, Append: true, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text(text)}}}
}

// Direct is a bare reply.
func Direct(text string) task.Event {
	return task.Event{Kind: task.EventStatus, State: task.StateCompleted, Direct: true, Message: &task.Message{
		ID: "r", Role: task.RoleAgent, Parts: []task.Part{task.Text(text)},
	}}
}

// List returns no tasks.
func (m *Log) List(context.Context, *store.Listing) ([]*task.Task, bool, error) {
	return nil, false, nil
}

// Count returns 0.
func (m *Log) Count(context.Context, *store.Listing, int) (int, error) { return 0, nil }

// Create stores a task.
func (m *Log) Create(_ context.Context, n *store.NewTask) (*task.Event, error) {
	m.mu.Lock()
	if _, taken := m.keys[n.Idempotency.Key]; taken {
		m.mu.Unlock()
		return nil, store.ErrTaken
	}
	if n.Idempotency.Key != "" {
		m.keys[n.Idempotency.Key] = n.Task.ID
	}
	m.headers[n.Task.ID] = n.Task
	e := m.append(n.Task.ID, task.Event{Kind: task.EventMessage, Message: n.Message})
	m.mu.Unlock()
	m.signals.Committed([]*task.Event{e})
	m.Created <- n.Task.ID
	return e, nil
}

// Existing finds the task of a key.
func (m *Log) Existing(_ context.Context, n *store.NewTask) (*task.Task, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.keys[n.Idempotency.Key]; ok {
		return m.header(id), true, nil
	}
	return nil, false, task.NotFound
}

// FindTask finds a task by its public id.
func (m *Log) FindTask(_ context.Context, publicID string) (*task.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, h := range m.headers {
		if h.PublicID == publicID {
			return m.header(id), nil
		}
	}
	return nil, task.Errorf(task.NotFound, "there is no such task")
}

// ReadTask finds a task and reads it.
func (m *Log) ReadTask(ctx context.Context, publicID string, withArtifacts bool) (*task.Task, error) {
	h, err := m.FindTask(ctx, publicID)
	if err != nil {
		return nil, err
	}
	return m.Snapshot(ctx, h, withArtifacts)
}

// Header reads a task without its events.
func (m *Log) Header(_ context.Context, id task.ID) (*task.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.header(id), nil
}

// Snapshot reads a task.
func (m *Log) Snapshot(_ context.Context, h *task.Task, _ bool) (*task.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return task.Fold(*store.Empty(h), m.events[h.ID][:h.LastSeq])
}

// AddMessage stores a message.
func (m *Log) AddMessage(_ context.Context, n *store.NewMessage) (task.Seq, error) {
	m.mu.Lock()
	h := m.header(n.Task.ID)
	if h.Status.State.Terminal() {
		m.mu.Unlock()
		return 0, task.Errorf(task.Terminal, "the task is already %s", h.Status.State)
	}
	out := []*task.Event{m.append(h.ID, task.Event{Kind: task.EventMessage, Message: n.Message})}
	if h.Status.State.Parked() {
		out = append(out, m.append(h.ID, Status(task.StateSubmitted)))
	}
	m.mu.Unlock()
	m.signals.Committed(out)
	m.Created <- h.ID
	return out[len(out)-1].Seq, nil
}

// Cancel ends a task.
func (m *Log) Cancel(_ context.Context, h *task.Task, _ json.RawMessage) (bool, error) {
	m.Add(h.ID, Status(task.StateCanceled))
	return true, nil
}

// Holds looks an event up.
func (m *Log) Holds(_ context.Context, h *task.Task, p task.Position) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return p.Mark.Fits(m.events[h.ID][p.Seq-1].Position().Mark), nil
}

// EventsAfter reads events.
func (m *Log) EventsAfter(_ context.Context, owner *task.Task, at task.Position, limit int) ([]*task.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ReadErr != nil {
		return nil, m.ReadErr
	}
	after := at.Seq
	if after > 0 && !at.Mark.Fits(m.events[owner.ID][after-1].Position().Mark) {
		return nil, store.ErrReplaced
	}
	var out []*task.Event
	for _, e := range m.events[owner.ID][after:min(len(m.events[owner.ID]), int(after)+limit)] {
		out = append(out, &e)
	}
	return out, nil
}

// Unchanged is never asked: the hub of a log keeps no pages.
func (m *Log) Unchanged(context.Context, task.ID, task.Position, []*task.Event) (bool, error) {
	return false, nil
}

// CatchUp reads nothing, because all commits are local.
func (m *Log) CatchUp(context.Context, []store.Position, int) (*store.CaughtUp, error) {
	return &store.CaughtUp{}, nil
}

// LastSeqs reads nothing, because all commits are local.
func (m *Log) LastSeqs(context.Context, []task.ID) (map[task.ID]task.Seq, error) { return nil, nil }
