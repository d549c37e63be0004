package jsonrpc_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// memory is a log without a database: what the engine and the hub ask of the store.
// The agent is the test, which calls add.
type memory struct {
	hub *hub.Hub

	mu      sync.Mutex
	headers map[task.ID]task.Task
	events  map[task.ID][]task.Event
	keys    map[string]task.ID
	created chan task.ID
	readErr error // of EventsAfter
}

// streams is a server with a real engine and a real hub on a memory.
type streams struct {
	*server
	*memory
	closed chan struct{} // receives when a stream ends
}

func serveStreams(t testing.TB, o options) *streams {
	t.Helper()
	m := &memory{
		headers: map[task.ID]task.Task{}, events: map[task.ID][]task.Event{}, keys: map[string]task.ID{},
		created: make(chan task.ID, 100), hub: hub.New(hub.Options{}),
	}
	m.hub.SetReader(m)
	s := &streams{memory: m, closed: make(chan struct{}, 100)}
	o.Engine = engine.New(engine.Options{
		Store: m, Hub: m.hub,
		Agents: []engine.Agent{{Name: "demo"}, {Name: "other", DirectReplies: true}},
	})
	o.Observer.StreamOpened = func(string) func() { return func() { s.closed <- struct{}{} } }
	s.server = serve(t, o)
	t.Cleanup(m.hub.Close) // before the server closes, which waits for streams
	return s
}

func (m *memory) header(id task.ID) *task.Task {
	h := m.headers[id]
	t, err := task.Fold(h, m.events[id])
	if err != nil {
		panic(err)
	}
	h.LastSeq, h.Status, h.Direct = t.LastSeq, t.Status, t.Direct
	return &h
}

func (m *memory) append(id task.ID, e task.Event) *task.Event {
	e.Task, e.Seq, e.At = id, task.Seq(len(m.events[id])+1), time.Unix(1e9, 0)
	m.events[id] = append(m.events[id], e)
	return &e
}

// add is the agent's doing: events are stored, then published.
func (m *memory) add(id task.ID, evs ...task.Event) {
	m.mu.Lock()
	out := make([]*task.Event, len(evs))
	for i, e := range evs {
		out[i] = m.append(id, e)
	}
	m.mu.Unlock()
	m.hub.Committed(out)
}

// task makes a task of a version with a message and further events.
func (m *memory) task(version string, evs ...task.Event) task.ID {
	id := store.NewID()
	m.mu.Lock()
	m.headers[id] = task.Task{ID: id, PublicID: id.String(), Agent: "demo", ContextID: "c-1", Dialect: version}
	m.append(id, says("hi"))
	m.mu.Unlock()
	m.add(id, evs...)
	return id
}

func says(text string) task.Event {
	return task.Event{Kind: task.EventMessage, Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text(text)}}}
}

func status(s task.State) task.Event { return task.Event{Kind: task.EventStatus, State: s} }

func chunk(text string) task.Event {
	return task.Event{Kind: task.EventArtifact, Append: true, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text(text)}}}
}

func direct(text string) task.Event {
	return task.Event{Kind: task.EventStatus, State: task.StateCompleted, Direct: true, Message: &task.Message{
		ID: "r", Role: task.RoleAgent, Parts: []task.Part{task.Text(text)},
	}}
}

func (m *memory) List(context.Context, *store.Listing) ([]*task.Task, bool, error) {
	return nil, false, nil
}

func (m *memory) Count(context.Context, *store.Listing, int) (int, error) { return 0, nil }

func (m *memory) Create(_ context.Context, n *store.NewTask) (*task.Event, error) {
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
	m.hub.Committed([]*task.Event{e})
	m.created <- n.Task.ID
	return e, nil
}

func (m *memory) Existing(_ context.Context, n *store.NewTask) (*task.Task, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.keys[n.Idempotency.Key]; ok {
		return m.header(id), true, nil
	}
	return nil, false, task.NotFound
}

func (m *memory) FindTask(_ context.Context, _ store.Owner, publicID string) (*task.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, h := range m.headers {
		if h.PublicID == publicID {
			return m.header(id), nil
		}
	}
	return nil, task.Errorf(task.NotFound, "there is no such task")
}

func (m *memory) Header(_ context.Context, id task.ID) (*task.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.header(id), nil
}

func (m *memory) Snapshot(_ context.Context, h *task.Task, _ bool) (*task.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return task.Fold(*store.Empty(h), m.events[h.ID][:h.LastSeq])
}

func (m *memory) AddMessage(_ context.Context, n *store.NewMessage) (task.Seq, error) {
	m.mu.Lock()
	h := m.header(n.Task.ID)
	if h.Status.State.Terminal() {
		m.mu.Unlock()
		return 0, task.Errorf(task.Terminal, "the task is already %s", h.Status.State)
	}
	out := []*task.Event{m.append(h.ID, task.Event{Kind: task.EventMessage, Message: n.Message})}
	if h.Status.State.Parked() {
		out = append(out, m.append(h.ID, status(task.StateSubmitted)))
	}
	m.mu.Unlock()
	m.hub.Committed(out)
	m.created <- h.ID
	return out[len(out)-1].Seq, nil
}

func (m *memory) Cancel(_ context.Context, h *task.Task) (bool, error) {
	m.add(h.ID, status(task.StateCanceled))
	return true, nil
}

func (m *memory) EventsAfter(_ context.Context, owner *task.Task, after task.Seq, limit int) ([]*task.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readErr != nil {
		return nil, m.readErr
	}
	var out []*task.Event
	for _, e := range m.events[owner.ID][after:min(len(m.events[owner.ID]), int(after)+limit)] {
		out = append(out, &e)
	}
	return out, nil
}

func (m *memory) CatchUp(context.Context, []store.Position, int) ([]*task.Event, error) {
	return nil, nil
}

func (m *memory) LastSeqs(context.Context, []task.ID) (map[task.ID]task.Seq, error) { return nil, nil }

// client reads a stream frame by frame.
type client struct {
	*http.Response
	lines *bufio.Reader
	id    string // of the request, which every document repeats
}

// frame is one event, or a comment.
type frame struct {
	id      int64 // 0 when there was none
	comment string
	answer  *answer
}

// open posts a request and reads no further than the headers.
func (s *streams) open(t testing.TB, body string, headers ...string) *client {
	t.Helper()
	return s.openAt(t, "/", body, headers...)
}

func (s *streams) openAt(t testing.TB, path, body string, headers ...string) *client {
	t.Helper()
	c := s.request(t, path, body, headers...)
	require.Equal(t, http.StatusOK, c.StatusCode)
	require.Equal(t, "text/event-stream", c.Header.Get("Content-Type"))
	require.Equal(t, "no-cache", c.Header.Get("Cache-Control"))
	require.Equal(t, "no", c.Header.Get("X-Accel-Buffering"))
	require.Empty(t, c.Header.Get("Content-Length"))
	return c
}

func (s *streams) request(t testing.TB, path, body string, headers ...string) *client {
	t.Helper()
	resp, err := s.Client().Do(s.newRequest(t, path, strings.NewReader(body), headers...))
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	var env struct{ ID json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(body), &env))
	return &client{Response: resp, lines: bufio.NewReader(resp.Body), id: string(env.ID)}
}

func subscribe(id task.ID) string {
	return request(`"s"`, "tasks/resubscribe", `{"id":"`+id.String()+`"}`)
}

// next reads one frame strictly: an id or none, one line of data, an empty line.
func (c *client) next(t testing.TB) frame {
	t.Helper()
	var f frame
	line := c.line(t)
	if strings.HasPrefix(line, ": ") {
		f.comment = line[2:]
	} else {
		if digits, ok := strings.CutPrefix(line, "id: "); ok {
			var err error
			f.id, err = strconv.ParseInt(digits, 10, 64)
			require.NoError(t, err)
			line = c.line(t)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		require.True(t, ok, "%q", line)
		f.answer = &answer{body: []byte(data)}
		f.answer.decode(t, f.answer.body)
		require.Equal(t, c.id, string(f.answer.ID))
	}
	require.Empty(t, c.line(t))
	return f
}

func (c *client) line(t testing.TB) string {
	t.Helper()
	line, err := c.lines.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSuffix(line, "\n")
}

// ends expects the stream to be over, and cleanly.
func (c *client) ends(t testing.TB) {
	t.Helper()
	rest, err := io.ReadAll(c.lines)
	require.NoError(t, err)
	require.Empty(t, string(rest))
}

// idle waits until nobody is subscribed to anything.
func (s *streams) idle(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return s.hub.Topics() == 0 }, patience, time.Millisecond)
}

// openWhenFree opens a stream as soon as there is room for one.
func (s *streams) openWhenFree(t testing.TB, body string) *client {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if c := s.request(t, "/", body); c.StatusCode == http.StatusOK || time.Now().After(deadline) {
			require.Equal(t, http.StatusOK, c.StatusCode)
			return c
		}
	}
}

// shown puts frames into short words: seq, what it is, and whether it is final.
func shown(f frame) string {
	if f.comment != "" {
		return ": " + f.comment
	}
	seq := "-"
	if f.id > 0 {
		seq = strconv.FormatInt(f.id, 10)
	}
	if f.answer.Error != nil {
		return seq + " error " + strconv.Itoa(f.answer.Error.Code)
	}
	// A document of 1.0 is one member, whose name says what it is.
	var wrapped map[string]json.RawMessage
	document := f.answer.Result
	wrapper := ""
	if err := json.Unmarshal(document, &wrapped); err == nil && len(wrapped) == 1 {
		for name, inner := range wrapped {
			wrapper, document = name, inner
		}
	}
	var r struct {
		Kind     string
		Status   struct{ State string }
		Final    *bool
		Parts    []any
		Artifact *struct {
			Append bool
			Parts  []struct{ Text string }
		}
	}
	if err := json.Unmarshal(document, &r); err != nil {
		return err.Error()
	}
	words := []string{seq}
	if kind := cmp.Or(wrapper, r.Kind); kind != "" {
		words = append(words, kind)
	}
	if r.Status.State != "" {
		words = append(words, r.Status.State)
	}
	if r.Artifact != nil {
		words = append(words, "artifact")
		for _, p := range r.Artifact.Parts {
			words = append(words, p.Text)
		}
	}
	if r.Final != nil && *r.Final {
		words = append(words, "final")
	}
	return strings.Join(words, " ")
}

// expect reads as many frames as are wanted, and compares.
func (c *client) expect(t testing.TB, want ...string) {
	t.Helper()
	for _, w := range want {
		require.Equal(t, w, shown(c.next(t)))
	}
}

func wait[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}
