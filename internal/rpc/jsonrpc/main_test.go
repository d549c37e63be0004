package jsonrpc_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the whole public server on a listener.
type server struct {
	*httptest.Server
	logs *rpctest.Logs
}

// options are the options of a binding and of the operations behind it.
type options struct {
	Engine          func(identity.Caller, string) dispatch.Engine
	fake            *rpctest.Recorder // used instead of Engine
	piped           bool              // for a bubble: a listener without a network
	MaxBody         int64
	Memory          *memory.Budgets
	Quotas          *limit.Quotas[identity.Owner]
	MaxDepth        int
	BodyTimeout     time.Duration
	KeepAlive       time.Duration
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
		Limits: body.Limits{Size: o.MaxBody, Depth: o.MaxDepth, Timeout: o.BodyTimeout}, StrictVersion: o.StrictVersion, Log: o.Log,
	})
}

func serve(t testing.TB, o options) *server {
	t.Helper()
	s := &server{logs: new(rpctest.Logs)}
	o.Log = slog.New(slog.NewTextHandler(s.logs, nil))
	h := rpc.New(rpc.Options{
		Agents:    []rpc.Agent{{Name: "demo", Default: true}, {Name: "other"}},
		PublicURL: "https://example.com", JSONRPC: o.binding(), Log: o.Log,
	})
	if o.piped {
		s.Server = rpctest.Piped(t, h)
		return s
	}
	s.Server = httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// answer is a JSON-RPC response with its HTTP status and headers.
type answer struct {
	*http.Response
	body   []byte
	ID     json.RawMessage
	Result json.RawMessage
	Error  *rpcError
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// decode parses a response and checks what holds for every response.
func decode(t testing.TB, body []byte) *answer {
	t.Helper()
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &members), "%s", body)
	require.JSONEq(t, `"2.0"`, string(members["jsonrpc"]))
	a := &answer{body: body, ID: members["id"], Result: members["result"]}
	require.NotEmpty(t, a.ID, "%s", body)
	require.Len(t, members, 3, "%s", body)
	if a.Result == nil {
		require.NoError(t, json.Unmarshal(members["error"], &a.Error), "%s", body)
		require.NotEmpty(t, a.Error.Message)
	}
	return a
}

// begin posts a body. headers are pairs of name and value.
func (s *server) begin(t testing.TB, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	if !slices.Contains(headers, "Content-Type") {
		headers = append([]string{"Content-Type", "application/json"}, headers...)
	}
	return rpctest.Begin(t, s.Server, http.MethodPost, path, body, headers...)
}

// post sends a body to the common endpoint.
func (s *server) post(t testing.TB, body string, headers ...string) *answer {
	t.Helper()
	return s.postAt(t, "/", body, headers...)
}

func (s *server) postAt(t testing.TB, path, body string, headers ...string) *answer {
	t.Helper()
	return whole(t, s.begin(t, path, strings.NewReader(body), headers...)) //nolint:bodyclose // in whole
}

// whole reads a response: a document, or a stream of one event.
func whole(t testing.TB, resp *http.Response) *answer {
	t.Helper()
	r := rpctest.Read(t, resp)
	document := r.Content
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		frames := strings.SplitAfter(string(document), "\n\n")
		require.Len(t, frames, 2, "one event: %s", document)
		require.Empty(t, frames[1])
		document = []byte(strings.TrimPrefix(frames[0], "data: "))
	}
	a := decode(t, document)
	a.Response = resp
	return a
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

// call renders the valid call of a method, in the newest version that has it.
func call(method string) string {
	for _, version := range []string{"1.0", "0.3", "0.1"} {
		if params, ok := calls[version][method]; ok {
			return request("1", method, params)
		}
	}
	panic(method)
}

// wants answers every operation with a task of a version.
func wants(version string) *rpctest.Recorder { return &rpctest.Recorder{Task: rpctest.Sample(version)} }

// fails answers every operation with an error.
func fails(err error) *rpctest.Recorder { return &rpctest.Recorder{Err: err} }

var unknown = task.Errorf(task.NotFound, "no such task")
