package rpctest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Logs collects log lines.
type Logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns all lines.
func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Reply is an answer whose body was read.
type Reply struct {
	*http.Response
	Content []byte
}

// Do sends a request with headers, given in pairs, and reads the answer.
func Do(t testing.TB, s *httptest.Server, verb, path, body string, headers ...string) *Reply {
	t.Helper()
	return Read(t, Begin(t, s, verb, path, strings.NewReader(body), headers...)) //nolint:bodyclose // in Read
}

// Begin sends a request with headers, given in pairs. The caller reads and closes the body of the answer.
func Begin(t testing.TB, s *httptest.Server, verb, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, s.URL+path, body)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	return resp
}

// Read reads the rest of an answer.
func Read(t testing.TB, resp *http.Response) *Reply {
	t.Helper()
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return &Reply{resp, content}
}

// Dial connects to a server and sends bytes unchanged.
func Dial(t testing.TB, s *httptest.Server, raw string) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	if p, ok := s.Listener.(*nettest.Listener); ok {
		c, err = p.Dial(t.Context())
	} else {
		c, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(waittest.Patience)))
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, raw)
	require.NoError(t, err)
	return c
}

// Piped starts a server on a network in memory, for a bubble of testing/synctest.
func Piped(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	var n nettest.Network
	s := n.Serve(t, h)
	s.Client().Transport = n.Client(t).Transport
	return s
}

// Echo is an engine that knows no task and accepts every message, for fuzz targets.
type Echo struct{ Recorder }

// Send answers with a task that has the message.
func (*Echo) Send(_ context.Context, r *engine.SendRequest) (*task.Task, error) {
	t := Sample(r.Dialect)
	t.History[0], t.Metadata = *r.Message, r.Metadata
	return t, nil
}

// Stream refuses every message.
func (*Echo) Stream(context.Context, *engine.SendRequest) (*engine.Stream, error) {
	return nil, &task.Error{Kind: task.Terminal}
}

// Get finds no task.
func (*Echo) Get(context.Context, *engine.GetRequest) (*task.Task, error) {
	return nil, &task.Error{Kind: task.NotFound}
}

// List finds no tasks.
func (*Echo) List(_ context.Context, r *engine.ListRequest) (*engine.Page, error) {
	return &engine.Page{Size: r.PageSize}, nil
}

// Cancel cancels nothing.
func (*Echo) Cancel(context.Context, *engine.CancelRequest) (*task.Task, error) {
	return nil, &task.Error{Kind: task.NotCancelable}
}

// Subscribe finds no task.
func (*Echo) Subscribe(context.Context, *engine.SubscribeRequest) (*engine.Stream, error) {
	return nil, &task.Error{Kind: task.NotFound}
}

// Sample is a task of a version that was canceled.
func Sample(version string) *task.Task {
	return &task.Task{
		PublicID: "t-1", ContextID: "c-1", Dialect: version, LastSeq: 2,
		Status:  task.Status{State: task.StateCanceled, At: time.Unix(1e9, 0), Seq: 2},
		History: []task.Message{{ID: "m-1", Role: task.RoleUser, Parts: []task.Part{task.Text("hi")}}},
	}
}
