package limits

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// mostEcho bounds an error in bytes: message, member and task, each of them shortened.
const mostEcho = 8 << 10

// refusal does an operation that must fail, and returns all that the client gets of the error.
func refusal(t *testing.T, r *clustertest.Replica, w *a2atest.Wire, op a2atest.Op, a *a2atest.Args) string {
	t.Helper()
	reply, err := r.TryBegin(w, op, a)
	require.NoError(t, err)
	defer reply.Close()
	for {
		_, err := reply.Next()
		if err == nil {
			continue
		}
		if w.Binding != a2atest.GRPC {
			require.NotZero(t, reply.Code, "%s, %s: %v %s", w, op, err, reply.Body)
			return reply.Body
		}
		s := grpcstatus.Convert(err)
		require.NotEqual(t, codes.OK, s.Code())
		require.NotEqual(t, codes.Unknown, s.Code(), "%s, %s: %s", w, op, s.Message())
		raw, err := proto.Marshal(s.Proto())
		require.NoError(t, err)
		return string(raw)
	}
}

// A client that names something by a long text gets a short error, over every binding and in every version, and the log keeps short
// lines.
func TestErrorsRepeatLittle(t *testing.T) {
	t.Parallel()
	r := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Steady + "admin: {open: true}\nlog: {requests: all}\n",
	})
	there := r.Send(a2atest.V03, a2atest.Say("ask:what?")).ID
	for _, w := range a2atest.Wires {
		huge := strings.Repeat("x", 20<<10) // fits into a path
		for _, op := range []a2atest.Op{
			a2atest.Send, a2atest.Stream, a2atest.Get, a2atest.Cancel, a2atest.Subscribe, a2atest.SetHook, a2atest.GetHook, a2atest.ListHooks,
			a2atest.DeleteHook, a2atest.List,
		} {
			if !w.Has(op) {
				continue
			}
			arguments := map[string]*a2atest.Args{"task": a2atest.Say("hello").To(huge)}
			if op == a2atest.SetHook {
				arguments["task"].Hook = "https://example.com/hook"
			}
			if op == a2atest.Send {
				arguments["context"] = &a2atest.Args{Texts: []string{"hello"}, Task: there, Context: huge}
			}
			if op == a2atest.GetHook && w != a2atest.V01 { // its tasks have one webhook, without an id
				arguments["webhook"] = &a2atest.Args{Task: there, Config: huge}
			}
			if op == a2atest.List {
				arguments = map[string]*a2atest.Args{"page": {Page: huge}}
			}
			for name, a := range arguments {
				got := refusal(t, r, w, op, a)
				require.Less(t, len(got), mostEcho, "%s, %s: %s", w, op, name)
			}
		}
		got := refusal(t, r, w, a2atest.Get, a2atest.Say().To(huge))
		if strings.Contains(got, "xxxxx") { // as the details of 1.0 do
			require.Contains(t, got, "x…x", w)
		}
	}
	for _, line := range strings.Split(r.Log(), "\n") {
		require.Less(t, len(line), mostEcho, "%.200s", line)
	}

	huge := strings.Repeat("x", 64<<10)
	post := func(path, body string, header ...string) (int, string) {
		t.Helper()
		status, got, _ := r.Exchange(http.MethodPost, path, []byte(body), header...)
		return status, got
	}
	for name, body := range map[string]string{
		"a method":           `{"jsonrpc":"2.0","id":1,"method":"HUGE"}`,
		"a version":          `{"jsonrpc":"HUGE","id":1,"method":"tasks/get","params":{"id":"x"}}`,
		"a member twice":     `{"jsonrpc":"2.0","id":1,"method":"tasks/get","HUGE":1,"HUGE":2}`,
		"a parameter twice":  `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"HUGE":1,"HUGE":2}}`,
		"a NUL":              `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"HUGE":"\u0000"}}`,
		"a syntax error":     `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"HUGE":nil}}`,
		"the end":            `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"HUGE":`,
		"a role":             `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"HUGE","parts":[]}}}`,
		"a kind":             `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"HUGE"}]}}}`,
		"a role of 1.0":      `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"HUGE","parts":[]}}}`,
		"two spellings":      `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"HUGE_y":1,"HUGEY":2}}}`,
		"a webhook":          `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]},"configuration":{"pushNotificationConfig":{"url":"HUGE"}}}}`,
		"a state":            `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"status":"HUGE"}}`,
		"a tenant":           `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"tenant":"HUGE","id":"x"}}`,
		"an id of a request": `{"jsonrpc":"2.0","id":"HUGE","method":"tasks/get","params":{"id":"x"}}`,
	} {
		for _, version := range []string{"", "1.0"} {
			status, got := post("", strings.ReplaceAll(body, "HUGE", huge), "A2A-Version", version)
			require.Less(t, status, http.StatusInternalServerError, name)
			require.Contains(t, got, `"error"`, name)
			require.Less(t, len(got), mostEcho, name)
		}
	}
	for path, body := range map[string]string{
		"/message:send":                     `{"message":{"HUGE":1,"HUGE":2}}`,
		"/message:stream":                   `{"message":{"HUGE":nil}}`,
		"/v1/message:send":                  `{"HUGE":"\u0000"}`,
		"/tasks/x/pushNotificationConfigs":  `{"url":"HUGE"}`,
		"/v1/tasks/x:cancel":                `{"HUGE":1,"HUGE":1}`,
		"/agents/" + huge[:20<<10]:          `{}`,
		"/" + huge[:20<<10] + "/tasks/x:yz": `{}`,
	} {
		status, got := post(path, strings.ReplaceAll(body, "HUGE", huge))
		require.GreaterOrEqual(t, status, http.StatusBadRequest, "%.40s", path)
		require.Less(t, status, http.StatusInternalServerError, "%.40s", path)
		require.Less(t, len(got), mostEcho, "%.40s", path)
	}

	// Headers, and addresses beside the protocol.
	long := huge[:20<<10]
	for _, header := range []string{"A2A-Version", "A2A-Extensions", "Idempotency-Key", "Last-Event-ID", "Content-Type", "Prefer"} {
		_, got := post("", `{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":"`+there+`x"}}`, header, long)
		require.Less(t, len(got), mostEcho, header)
	}
	for _, address := range []string{
		r.URL + "/agents?" + long + "=1", r.URL + "/agents?capability=" + long, r.URL + "/agents?inputMode=" + long, r.URL + "/agents/" + long,
		r.URL + "/tasks?status=" + long, r.URL + "/tasks?pageSize=" + long, r.URL + "/tasks/x?historyLength=" + long, r.URL + "/" + long,
		r.Admin + "/admin/v1/tasks?since=" + long, r.Admin + "/admin/v1/tasks?state=" + long, r.Admin + "/admin/v1/tasks?" + long + "=1",
		r.Admin + "/admin/v1/tasks/" + long, r.Admin + "/admin/v1/" + long, r.Admin + "/" + long, r.Admin + "/admin/v1/tasks?state=" + url.QueryEscape(strings.Repeat("é", 5<<10)),
	} {
		status, got, _ := (&a2atest.Peer{T: t, URL: address}).Exchange(http.MethodGet, "", nil)
		require.GreaterOrEqual(t, status, http.StatusBadRequest, "%.80s", address)
		require.Less(t, len(got), mostEcho, "%.80s", address)
		require.NotContains(t, got, "�", "%.80s: cut within a character", address)
	}
	err := r.Conn().Invoke(t.Context(), "/lf.a2a.v1.A2AService/"+huge[:7<<10], nil, nil)
	require.Less(t, len(err.Error()), mostEcho)
	require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:x")).State(), "it serves on")
	for _, line := range strings.Split(r.Log(), "\n") {
		require.Less(t, len(line), mostEcho, "%.200s", line)
	}
}
