package jsonrpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait. A correct test never comes near it.
const patience = 20 * time.Second

// fakeEngine gives every operation the same answer, and remembers its requests.
type fakeEngine struct {
	task *task.Task
	err  error
	call func(ctx context.Context, request any) // called before the answer

	mu     sync.Mutex
	asked  []any
	agents []string // whose view was requested
}

// As returns the engine for every caller.
func (f *fakeEngine) As(_ identity.Caller, agent string) dispatch.Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agents = append(f.agents, agent)
	return f
}

func (f *fakeEngine) ask(ctx context.Context, request any) (*task.Task, error) {
	f.mu.Lock()
	f.asked = append(f.asked, request)
	f.mu.Unlock()
	if f.call != nil {
		f.call(ctx, request)
	}
	if f.err != nil {
		return nil, f.err
	}
	return f.task, nil
}

func (f *fakeEngine) requests() []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fakeEngine) Send(ctx context.Context, r *engine.SendRequest) (*task.Task, error) {
	return f.ask(ctx, r)
}

func (f *fakeEngine) Get(ctx context.Context, r *engine.GetRequest) (*task.Task, error) {
	return f.ask(ctx, r)
}

func (f *fakeEngine) List(ctx context.Context, r *engine.ListRequest) (*engine.Page, error) {
	t, err := f.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	return &engine.Page{Tasks: []*task.Task{t}, Size: r.PageSize, Total: 1}, nil
}

func (f *fakeEngine) Cancel(ctx context.Context, r *engine.CancelRequest) (*task.Task, error) {
	return f.ask(ctx, r)
}

func (f *fakeEngine) Stream(ctx context.Context, r *engine.SendRequest) (*engine.Stream, error) {
	_, err := f.ask(ctx, r)
	return nil, err
}

func (f *fakeEngine) Subscribe(ctx context.Context, r *engine.SubscribeRequest) (*engine.Stream, error) {
	_, err := f.ask(ctx, r)
	return nil, err
}

func (f *fakeEngine) push(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	if _, err := f.ask(ctx, r); err != nil {
		return nil, err
	}
	return &engine.Pushes{TaskID: "t-1", Configs: []task.PushConfig{{ID: "p", URL: "https://hook.example", Token: "secret"}}}, nil
}

func (f *fakeEngine) SetPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return f.push(ctx, r)
}

func (f *fakeEngine) GetPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return f.push(ctx, r)
}

func (f *fakeEngine) ListPush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return f.push(ctx, r)
}

func (f *fakeEngine) DeletePush(ctx context.Context, r *engine.PushRequest) (*engine.Pushes, error) {
	return f.push(ctx, r)
}

// logBook collects log lines.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// server is the whole public server on a real listener.
type server struct {
	*httptest.Server
	rpc  *rpc.Server
	logs *logBook
}

// options are the options of a binding and of the operations behind it.
type options struct {
	Engine          func(identity.Caller, string) dispatch.Engine
	fake            *fakeEngine // used instead of Engine
	MaxBody         int64
	Memory          *memory.Budgets
	Quotas          *limit.Quotas[identity.Owner]
	MaxDepth        int
	BodyTimeout     time.Duration
	KeepAlive       time.Duration
	WriteTimeout    time.Duration
	MaxStreams      int
	LegacyTaskIDs   bool
	EventNames      bool
	ReturnByDefault bool
	Ambiguous       dispatch.Ambiguous
	StrictVersion   bool
	Agents          []dispatch.Agent
	Observer        dispatch.Observer
	Log             *slog.Logger
}

func (o options) binding() *jsonrpc.Binding {
	if o.fake != nil {
		o.Engine = o.fake.As
	}
	return jsonrpc.New(jsonrpc.Options{
		Operations: dispatch.New(dispatch.Options{
			Engine: o.Engine, KeepAlive: o.KeepAlive, MaxStreams: o.MaxStreams, LegacyTaskIDs: o.LegacyTaskIDs, EventNames: o.EventNames,
			Memory: o.Memory, Quotas: o.Quotas, ReturnByDefault: o.ReturnByDefault, Ambiguous: o.Ambiguous, Agents: o.Agents, Observer: o.Observer,
		}),
		Limits: body.Limits{Size: o.MaxBody, Depth: o.MaxDepth, Timeout: o.BodyTimeout}, WriteTimeout: o.WriteTimeout,
		StrictVersion: o.StrictVersion, Log: o.Log,
	})
}

func serve(t testing.TB, o options) *server {
	t.Helper()
	s := &server{logs: new(logBook)}
	o.Log = slog.New(slog.NewTextHandler(s.logs, nil))
	s.rpc = rpc.New(rpc.Options{
		Agents:    []rpc.Agent{{Name: "demo", Default: true}, {Name: "other"}},
		PublicURL: "https://example.com", JSONRPC: o.binding(), HeaderTimeout: patience, IdleTimeout: patience, Log: o.Log,
	})
	s.Server = httptest.NewServer(s.rpc)
	t.Cleanup(s.Close)
	return s
}

// answer is a JSON-RPC response with its HTTP status and headers.
type answer struct {
	*http.Response
	body    []byte
	members map[string]json.RawMessage
	ID      json.RawMessage
	Result  json.RawMessage
	Error   *rpcError
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// newRequest makes a POST. headers are pairs of name and value.
func (s *server) newRequest(t testing.TB, path string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, body)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func (s *server) do(t testing.TB, r *http.Request) *answer {
	t.Helper()
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	a := &answer{Response: resp, body: body}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		frames := strings.SplitAfter(string(body), "\n\n")
		require.Len(t, frames, 2, "one event: %s", body)
		require.Empty(t, frames[1])
		body = []byte(strings.TrimPrefix(frames[0], "data: "))
	}
	a.decode(t, body)
	return a
}

// decode parses a response and checks what holds for every response.
func (a *answer) decode(t testing.TB, body []byte) {
	t.Helper()
	require.NoError(t, json.Unmarshal(body, &a.members), "%s", body)
	require.JSONEq(t, `"2.0"`, string(a.members["jsonrpc"]))
	a.ID, a.Result = a.members["id"], a.members["result"]
	require.NotEmpty(t, a.ID, "%s", body)
	require.Len(t, a.members, 3, "%s", body)
	if a.Result == nil {
		require.NoError(t, json.Unmarshal(a.members["error"], &a.Error), "%s", body)
		require.NotEmpty(t, a.Error.Message)
	}
}

// post sends a body to the common endpoint.
func (s *server) post(t testing.TB, body string, headers ...string) *answer {
	t.Helper()
	return s.do(t, s.newRequest(t, "/", strings.NewReader(body), headers...))
}

// request renders a request.
func request(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

const (
	message01 = `{"role":"user","parts":[{"type":"text","text":"hi"}]}`
	message10 = `{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hi"}]}`
	message03 = `{"kind":"message","messageId":"m-1","role":"user","parts":[{"kind":"text","text":"hi"}]}`
)

// calls contains one valid call of each operation, by version.
var calls = map[string]map[string]string{
	"0.1": {
		"tasks/send":          `{"id":"t-1","message":` + message01 + `}`,
		"tasks/sendSubscribe": `{"id":"t-1","message":` + message01 + `}`,
		"tasks/get":           `{"id":"t-1"}`,
		"tasks/cancel":        `{"id":"t-1"}`,
		"tasks/resubscribe":   `{"id":"t-1"}`,
	},
	"0.3": {
		"message/send":      `{"message":` + message03 + `}`,
		"message/stream":    `{"message":` + message03 + `}`,
		"tasks/get":         `{"id":"t-1"}`,
		"tasks/cancel":      `{"id":"t-1"}`,
		"tasks/resubscribe": `{"id":"t-1"}`,
	},
	"1.0": {
		"SendMessage":          `{"message":` + message10 + `}`,
		"SendStreamingMessage": `{"message":` + message10 + `}`,
		"GetTask":              `{"id":"t-1"}`,
		"ListTasks":            `{"pageSize":5}`,
		"CancelTask":           `{"id":"t-1"}`,
		"SubscribeToTask":      `{"id":"t-1"}`,
	},
}

// sample returns a task of a version.
func sample(version string) *task.Task {
	return &task.Task{
		PublicID: "t-1", ContextID: "c-1", Dialect: version, LastSeq: 2,
		Status:  task.Status{State: task.StateCompleted, At: time.Unix(1e9, 0), Seq: 2},
		History: []task.Message{{ID: "m-1", Role: task.RoleUser, Parts: []task.Part{task.Text("hi")}}},
	}
}
