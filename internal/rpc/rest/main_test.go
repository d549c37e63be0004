package rest_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the whole public server on a real listener.
type server struct {
	*httptest.Server
	logs *rpctest.Logs
}

func serve(t testing.TB, e *rpctest.Recorder, o rest.Options) *server {
	t.Helper()
	return serveEngine(t, e.As, o)
}

func serveEngine(t testing.TB, as func(identity.Caller, string) dispatch.Engine, o rest.Options) *server {
	t.Helper()
	s := &server{logs: new(rpctest.Logs)}
	s.Server = httptest.NewServer(handler(as, o, s.logs))
	t.Cleanup(s.Close)
	return s
}

func handler(as func(identity.Caller, string) dispatch.Engine, o rest.Options, logs io.Writer) http.Handler {
	o.Log = slog.New(slog.NewTextHandler(logs, nil))
	o.Operations = dispatch.New(dispatch.Options{Engine: as, Agents: []dispatch.Agent{
		{Name: "demo", Extensions: []dispatch.Extension{{URI: "urn:a"}}}, {Name: "other"},
	}})
	return rpc.New(rpc.Options{Agents: []rpc.Agent{{Name: "demo", Default: true}, {Name: "other"}}, REST: rest.New(o), Log: o.Log})
}

func recorder() *rpctest.Recorder { return &rpctest.Recorder{Task: rpctest.Sample("0.1")} }

type answer struct {
	*http.Response
	body []byte
}

// do sends a request. headers are pairs of name and value.
func (s *server) do(t testing.TB, verb, path, body string, headers ...string) *answer {
	t.Helper()
	r := rpctest.Do(t, s.Server, verb, path, body, headers...)
	return &answer{r.Response, r.Content}
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
