package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait. A correct test never comes near it.
const patience = 20 * time.Second

// server is the whole public server on a real listener.
type server struct {
	*httptest.Server
	engine *rpctest.Recorder
	logs   *strings.Builder // read it only after an answer
}

func serve(t testing.TB, e *rpctest.Recorder, o rest.Options) *server {
	t.Helper()
	s := serveEngine(t, e.As, o)
	s.engine = e
	return s
}

func serveEngine(t testing.TB, as func(identity.Caller, string) dispatch.Engine, o rest.Options) *server {
	t.Helper()
	s := &server{logs: new(strings.Builder)}
	o.Log = slog.New(slog.NewTextHandler(s.logs, nil))
	o.Operations = dispatch.New(dispatch.Options{Engine: as, Agents: []dispatch.Agent{
		{Name: "demo", Extensions: []dispatch.Extension{{URI: "urn:a"}}}, {Name: "other"},
	}})
	s.Server = httptest.NewServer(rpc.New(rpc.Options{
		Agents: []rpc.Agent{{Name: "demo", Default: true}, {Name: "other"}},
		REST:   rest.New(o), HeaderTimeout: patience, IdleTimeout: patience, Log: o.Log,
	}))
	t.Cleanup(s.Close)
	return s
}

type answer struct {
	*http.Response
	body []byte
}

// do sends a request. headers are pairs of name and value.
func (s *server) do(t testing.TB, verb, path, body string, headers ...string) *answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, verb, s.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	content, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return &answer{resp, content}
}

// fault is an error body of either version.
type fault struct {
	Code    int
	Status  string
	Message string
	Details []struct {
		Reason          string
		FieldViolations []struct{ Field, Description string }
	}
}

// fault10 reads an error of 1.0 and checks what holds for every such error.
func (a *answer) fault10(t testing.TB) *fault {
	t.Helper()
	var members struct{ Error *fault }
	require.NoError(t, json.Unmarshal(a.body, &members), "%s", a.body)
	require.NotNil(t, members.Error, "%s", a.body)
	require.Equal(t, a.StatusCode, members.Error.Code)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.NotEmpty(t, members.Error.Status)
	require.NotEmpty(t, members.Error.Message)
	require.NotEmpty(t, members.Error.Details, "%s", a.body)
	return members.Error
}

// fault03 reads an error of 0.3.
func (a *answer) fault03(t testing.TB) (class string, code int, message string) {
	t.Helper()
	var members struct {
		Error   string
		Code    int
		Message string
	}
	require.NoError(t, json.Unmarshal(a.body, &members), "%s", a.body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.NotEmpty(t, members.Error)
	return members.Error, members.Code, members.Message
}

const (
	send10 = `{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hi"}]}}`
	send03 = `{"message":{"messageId":"m-1","role":"ROLE_USER","content":[{"text":"hi"}]}}`
)

func sample() *task.Task {
	return &task.Task{
		PublicID: "t-1", ContextID: "c-1", Dialect: "0.1", LastSeq: 2,
		Status:  task.Status{State: task.StateCanceled, At: time.Unix(1e9, 0), Seq: 2},
		History: []task.Message{{ID: "m-1", Role: task.RoleUser, Parts: []task.Part{task.Text("hi")}}},
	}
}
