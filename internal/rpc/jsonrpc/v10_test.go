package jsonrpc_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Behaviour of 1.0 over JSON-RPC that older versions do not have.

var stream10 = request("1", "SendStreamingMessage", calls["1.0"]["SendStreamingMessage"])

func subscribe10(id task.ID) string {
	return request(`"s"`, "SubscribeToTask", `{"id":"`+id.String()+`"}`)
}

// reason is an ErrorInfo, or a BadRequest.
type reason struct {
	Type            string `json:"@type"`
	Reason          string
	Domain          string
	Metadata        map[string]string
	FieldViolations []struct{ Field, Description string }
}

func reasons(t testing.TB, a *answer) []reason {
	t.Helper()
	require.NotNil(t, a.Error, "%s", a.body)
	var all []reason
	require.NoError(t, json.Unmarshal(a.Error.Data, &all), "%s", a.body)
	require.NotEmpty(t, all)
	require.Equal(t, "type.googleapis.com/google.rpc.ErrorInfo", all[0].Type)
	require.Equal(t, "a2a-protocol.org", all[0].Domain)
	return all
}

func TestSendStream10(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	c := s.open(t, stream10)
	id := wait(t, s.created)
	c.expect(t, "1 task TASK_STATE_SUBMITTED")
	s.add(id, status(task.StateWorking), chunk("x"), status(task.StateAuthRequired))
	c.expect(t, "2 statusUpdate TASK_STATE_WORKING", "3 artifactUpdate artifact x", "4 statusUpdate TASK_STATE_AUTH_REQUIRED")
	// Many clients read a stream to its end. Only a message of theirs resumes the task.
	c.ends(t)
	s.idle(t)
}

func TestSendStreamWithBareMessage10(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	c := s.openAt(t, "/agents/other", stream10)
	s.add(wait(t, s.created), direct("hello"))
	c.expect(t, "2 message")
	c.ends(t)
}

func TestSubscribe10(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before []task.Event
		last   string
		then   []task.Event
		want   []string
	}{
		{
			name: "a working task", before: []task.Event{status(task.StateWorking), chunk("x")},
			then: []task.Event{chunk("z"), status(task.StateFailed)},
			want: []string{"3 task TASK_STATE_WORKING", "4 artifactUpdate artifact z", "5 statusUpdate TASK_STATE_FAILED"},
		},
		{
			name: "a parked task, until it has ended", before: []task.Event{status(task.StateInputRequired)},
			then: []task.Event{says("Rome"), status(task.StateSubmitted), status(task.StateInputRequired), status(task.StateCanceled)},
			want: []string{
				"2 task TASK_STATE_INPUT_REQUIRED", "4 statusUpdate TASK_STATE_SUBMITTED",
				"5 statusUpdate TASK_STATE_INPUT_REQUIRED", "6 statusUpdate TASK_STATE_CANCELED",
			},
		},
		{
			name: "from the last id of a parked task", last: "2", before: []task.Event{status(task.StateInputRequired)},
			then: []task.Event{says("Rome"), status(task.StateSubmitted), status(task.StateCompleted)},
			want: []string{"4 statusUpdate TASK_STATE_SUBMITTED", "5 statusUpdate TASK_STATE_COMPLETED"},
		},
		{
			name: "from an id of a task that has ended", last: "1", before: []task.Event{chunk("x"), status(task.StateCompleted)},
			want: []string{"2 artifactUpdate artifact x", "3 statusUpdate TASK_STATE_COMPLETED"},
		},
		{name: "from the last id of a task that has ended", last: "2", before: []task.Event{status(task.StateRejected)}},
		{
			name: "past a question that was answered", last: "1",
			before: []task.Event{status(task.StateInputRequired), says("Rome"), status(task.StateSubmitted)},
			then:   []task.Event{status(task.StateCompleted)},
			want: []string{
				"2 statusUpdate TASK_STATE_INPUT_REQUIRED", "4 statusUpdate TASK_STATE_SUBMITTED", "5 statusUpdate TASK_STATE_COMPLETED",
			},
		},
		{
			name: "a task that has ended", before: []task.Event{status(task.StateCompleted)},
			want: []string{"- error -32004"},
		},
		{
			name: "from an id that the log has not reached", last: "99", before: []task.Event{status(task.StateWorking)},
			then: []task.Event{status(task.StateCompleted)},
			want: []string{"2 task TASK_STATE_WORKING", "3 statusUpdate TASK_STATE_COMPLETED"},
		},
		{
			// Like a stream without the header: the server does not know what the client has seen.
			name: "from an id that the log of an ended task has not reached", last: "99", before: []task.Event{status(task.StateCompleted)},
			want: []string{"- error -32004"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serveStreams(t, options{})
			id := s.task("0.1", tt.before...)
			var headers []string
			if tt.last != "" {
				headers = []string{"Last-Event-ID", tt.last}
			}
			c := s.open(t, subscribe10(id), headers...)
			want := tt.want
			if tt.last == "" {
				c.expect(t, want[0]) // the snapshot
				want = want[1:]
			}
			s.add(id, tt.then...)
			c.expect(t, want...)
			c.ends(t)
			s.idle(t)
		})
	}
}

func TestTaskOf10OverOlderMethods(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: &fakeEngine{task: sample("1.0")}})
	require.Equal(t, "0.3", spoken(t, s.post(t, request("1", "tasks/get", `{"id":"t-1"}`))))
	require.Equal(t, "0.1", spoken(t, s.post(t, request("1", "tasks/get", `{"id":"t-1"}`), "A2A-Version", "0.1")))
}

func TestTenantsAreAgents(t *testing.T) {
	t.Parallel()
	e := &fakeEngine{task: sample("1.0")}
	s := serve(t, options{fake: e, Agents: []dispatch.Agent{{Name: "demo"}, {Name: "other"}}})
	for _, tt := range []struct{ path, tenant, agent string }{
		{"/", "", "demo"},
		{"/", "demo", "demo"},
		{"/", "other", "other"},
		{"/v1.0", "other", "other"},
		{"/agents/other", "", "other"},
		{"/agents/other", "other", "other"},
		{"/", "nobody", ""},
		{"/agents/other", "demo", ""},
		{"/agents/demo", "other", ""},
	} {
		for method, params := range calls["1.0"] {
			if method == "SendStreamingMessage" || method == "SubscribeToTask" {
				continue // the engine of this test opens no streams
			}
			params = strings.Replace(params, "{", `{"tenant":"`+tt.tenant+`",`, 1)
			a := s.do(t, s.newRequest(t, tt.path, strings.NewReader(request("1", method, params))))
			if tt.agent == "" {
				require.Equal(t, -32602, a.Error.Code)
				require.Equal(t, "tenant", reasons(t, a)[1].FieldViolations[0].Field)
				continue
			}
			require.Nil(t, a.Error, "%s", a.body)
			require.Equal(t, tt.agent, e.agents[len(e.agents)-1])
		}
	}
}

// An agent gets only the headers of clients that its operator names.
func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	e := &fakeEngine{task: sample("1.0")}
	s := serve(t, options{fake: e, Agents: []dispatch.Agent{{Name: "demo", Forward: []string{"Authorization", "X-Key"}}, {Name: "other"}}})
	long := strings.Repeat("x", 10<<10)
	for _, tt := range []struct {
		path    string
		headers []string
		want    task.Forwarded
		refused string
	}{
		{path: "/", headers: []string{"X-Other", "1"}},
		{path: "/", headers: []string{"x-key", "1", "X-Key", "1", "X-Other", "1"}, want: task.Forwarded{"X-Key": "1"}},
		{path: "/", headers: []string{"Authorization", "Bearer a", "X-Key", long}, want: task.Forwarded{"Authorization": "Bearer a", "X-Key": long}},
		{path: "/agents/other", headers: []string{"X-Key", "1"}},
		{path: "/", headers: []string{"X-Key", "1", "X-Key", "2"}, refused: "X-Key: is given more than once"},
		{path: "/", headers: []string{"X-Key", "\xff"}, refused: "X-Key: is forwarded to the agent, so it must be UTF-8"},
		{path: "/", headers: []string{"Authorization", long, "X-Key", long}, refused: "X-Key: is forwarded to the agent, and makes the forwarded headers longer than 16384 bytes"},
	} {
		r := s.newRequest(t, tt.path, strings.NewReader(request("1", "SendMessage", calls["1.0"]["SendMessage"])))
		for i := 0; i < len(tt.headers); i += 2 {
			r.Header.Add(tt.headers[i], tt.headers[i+1])
		}
		a := s.do(t, r)
		if tt.refused != "" {
			require.NotNil(t, a.Error)
			require.Contains(t, a.Error.Message, tt.refused)
			require.NotContains(t, a.Error.Message, "xxx")
			continue
		}
		require.Nil(t, a.Error, "%s", a.body)
		asked := e.requests()
		require.Equal(t, tt.want, asked[len(asked)-1].(*engine.SendRequest).Forwarded)
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: &fakeEngine{task: sample("1.0")}, Agents: []dispatch.Agent{
		{Name: "demo", Extensions: []dispatch.Extension{{URI: "urn:a"}, {URI: "urn:b"}}},
		{Name: "other", Extensions: []dispatch.Extension{{URI: "urn:must", Required: true}, {URI: "urn:may"}}},
	}})
	for _, tt := range []struct {
		path, method, header, value string
		echoed, echo                string
		refused                     int
	}{
		{path: "/", method: "GetTask"},
		{path: "/", method: "GetTask", header: "A2A-Extensions", value: "urn:z, urn:b,urn:a", echoed: "A2A-Extensions", echo: "urn:a, urn:b"},
		{path: "/", method: "GetTask", header: "X-A2A-Extensions", value: "urn:b", echoed: "A2A-Extensions", echo: "urn:b"},
		{path: "/", method: "message/send", header: "X-A2A-Extensions", value: "urn:b", echoed: "X-A2A-Extensions", echo: "urn:b"},
		{path: "/", method: "message/send", header: "A2A-Extensions", value: "urn:b", echoed: "X-A2A-Extensions", echo: "urn:b"},
		{path: "/agents/other", method: "SendMessage", header: "A2A-Extensions", value: "urn:must", echoed: "A2A-Extensions", echo: "urn:must"},
		{path: "/agents/other", method: "SendMessage", header: "A2A-Extensions", value: "urn:may", refused: -32008},
		{path: "/agents/other", method: "SendMessage", refused: -32008},
		{path: "/agents/other", method: "SendStreamingMessage", refused: -32008},
		{path: "/agents/other", method: "message/send", refused: -32602},
		{path: "/agents/other", method: "tasks/send"}, // 0.1 has no extensions
	} {
		params := calls["1.0"][tt.method] + calls["0.3"][tt.method] + calls["0.1"][tt.method]
		r := s.newRequest(t, tt.path, strings.NewReader(request("1", tt.method, params)))
		if tt.header != "" {
			r.Header.Set(tt.header, tt.value)
		}
		a := s.do(t, r)
		if tt.refused != 0 {
			require.Equal(t, tt.refused, a.Error.Code, "%+v", tt)
			require.Contains(t, a.Error.Message, "urn:must")
			continue
		}
		require.Nil(t, a.Error, "%+v: %s", tt, a.body)
		for _, name := range []string{"A2A-Extensions", "X-A2A-Extensions"} {
			want := ""
			if name == tt.echoed {
				want = tt.echo
			}
			require.Equal(t, want, a.Header.Get(name), "%+v", tt)
		}
	}
}

func TestVersionHeaderOf10(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		s := serve(t, options{fake: &fakeEngine{task: sample("1.0")}, StrictVersion: strict})
		for _, tt := range []struct {
			method, version string
			ok              bool
		}{
			{"GetTask", "1.0", true},
			{"GetTask", "1.0.1", true},
			{"GetTask", "", !strict},
			{"GetTask", "0.3", !strict},
			{"GetTask", "99.0", false},
			{"message/send", "", true},
			{"message/send", "1.0", !strict},
		} {
			params := calls["1.0"][tt.method] + calls["0.3"][tt.method]
			a := s.post(t, request("1", tt.method, params), "A2A-Version", tt.version)
			if tt.ok {
				require.Nil(t, a.Error, "%+v: %s", tt, a.body)
				continue
			}
			require.Equal(t, -32009, a.Error.Code)
			require.Equal(t, http.StatusOK, a.StatusCode)
			if tt.method == "GetTask" {
				require.Equal(t, "VERSION_NOT_SUPPORTED", reasons(t, a)[0].Reason)
			} else {
				require.Nil(t, a.Error.Data)
			}
		}
	}
}

func TestErrorDetails(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: &fakeEngine{err: task.Errorf(task.NotFound, "task not found")}})
	a := s.post(t, request("1", "GetTask", `{"id":"t-9"}`))
	require.Equal(t, -32001, a.Error.Code)
	require.Equal(t, []reason{{
		Type: "type.googleapis.com/google.rpc.ErrorInfo", Reason: "TASK_NOT_FOUND", Domain: "a2a-protocol.org",
		Metadata: map[string]string{"taskId": "t-9"},
	}}, reasons(t, a))

	a = s.post(t, request("1", "ListTasks", `{"pageSize":101}`))
	require.Equal(t, -32602, a.Error.Code)
	require.Equal(t, "pageSize", reasons(t, a)[1].FieldViolations[0].Field)
	require.Equal(t, "must be a number from 1 to 100", reasons(t, a)[1].FieldViolations[0].Description)

	a = s.post(t, `{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}`)
	require.Equal(t, -32004, a.Error.Code)
}

func TestHeadersOf10(t *testing.T) {
	t.Parallel()
	e := &fakeEngine{task: sample("1.0")}
	s := serve(t, options{fake: e, LegacyTaskIDs: true, ReturnByDefault: true})
	require.Nil(t, s.post(t, request("1", "SendMessage", calls["1.0"]["SendMessage"]), "Idempotency-Key", "k-1").Error)
	require.Nil(t, s.post(t, request("1", "ListTasks", `{}`), "Prefer", "respond-async, count=exact").Error)
	require.Nil(t, s.post(t, request("1", "ListTasks", `{}`), "Prefer", "count=estimated").Error)
	asked := e.requests()
	send, ok := asked[0].(*engine.SendRequest)
	require.True(t, ok)
	require.Equal(t, "k-1", send.IdempotencyKey)
	require.Equal(t, "1.0", send.Dialect)
	require.True(t, send.Wait, "the switches of older versions do not apply")
	require.False(t, send.MayCreate)
	for i, exact := range []bool{true, false} {
		list, ok := asked[i+1].(*engine.ListRequest)
		require.True(t, ok)
		require.Equal(t, exact, list.ExactTotal)
	}
}

// When a task takes over an id, its event ids continue after those of the earlier task, wherever
// they appear.
func TestEventIDsOfReopenedTask(t *testing.T) {
	t.Parallel()
	const inside = `"` + dispatch.ResumeURI + `":{"eventId":"`
	s := serveStreams(t, options{Agents: []dispatch.Agent{{Name: "demo", Extensions: []dispatch.Extension{{URI: dispatch.ResumeURI}}}}})
	s.log.Base = 100
	id := s.task("1.0", status(task.StateWorking), chunk("x"))
	for last, want := range map[string]string{"": "task", "102": "artifactUpdate", "99": "task", "104": "task"} {
		headers := []string{"A2A-Extensions", dispatch.ResumeURI}
		if last != "" {
			headers = append(headers, "Last-Event-ID", last)
		}
		f := s.open(t, subscribe10(id), headers...).next(t)
		require.Equal(t, int64(103), f.id, "after %q", last)
		require.Contains(t, string(f.answer.Result), `{"`+want+`":`, "after %q", last)
		require.Contains(t, string(f.answer.Result), inside+f.whole+`"}`, "after %q", last)
	}
}

// A client whose library hides the ids of server-sent events finds them in the documents.
func TestIDsInDocuments(t *testing.T) {
	t.Parallel()
	const in = `"metadata":{"` + dispatch.ResumeURI + `":{"eventId":"`
	agents := []dispatch.Agent{{Name: "demo", Extensions: []dispatch.Extension{{URI: dispatch.ResumeURI}}}}
	for _, body := range []string{stream10, stream03, stream01} {
		for _, named := range []string{"", dispatch.ResumeURI} {
			s := serveStreams(t, options{Agents: agents})
			c := s.open(t, body, "A2A-Extensions", named)
			id := wait(t, s.created)
			wants := named != "" && body != stream01 // 0.1 has no extensions
			f := c.next(t)
			require.Equal(t, wants, strings.Contains(string(f.answer.Result), in+f.whole+`"}}`), "%s", f.answer.Result)
			s.add(id, chunk("x"), task.Event{Kind: task.EventStatus, State: task.StateCompleted, Metadata: []byte(`{"a":1}`)})
			f = c.next(t)
			require.Equal(t, wants, strings.Contains(string(f.answer.Result), in+f.whole+`"}}`), "%s", f.answer.Result)
			f = c.next(t)
			require.Equal(t, wants, strings.Contains(string(f.answer.Result), `"metadata":{"a":1,"`+dispatch.ResumeURI+`":{"eventId":"`+f.whole+`"}}`), "%s", f.answer.Result)
			c.ends(t)
		}
	}
}

// Some clients write null where they have nothing to say.
func TestParamsThatAreNull10(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: &fakeEngine{}})
	for method, code := range map[string]int{"GetExtendedAgentCard": -32004, "SendMessage": -32602, "GetTask": -32602} {
		a := s.post(t, request("1", method, "null"))
		require.NotNil(t, a.Error, method)
		require.Equal(t, code, a.Error.Code, "%s: %s", method, a.body)
		require.NotContains(t, a.Error.Message, "must be an object")
	}
}

// Every version refuses the streams of an agent whose card declares none, as JSON. Sends are served.
func TestAgentWithoutStreams(t *testing.T) {
	t.Parallel()
	for version, code := range map[string]int{"0.1": -32006, "0.3": -32004, "1.0": -32004} {
		s := serve(t, options{fake: &fakeEngine{task: sample(version)}, Agents: []dispatch.Agent{{Name: "demo", NoStreams: true}, {Name: "other"}}})
		for method, params := range calls[version] {
			op, _ := registry.ByVersion(version).Operation(method)
			if !op.Streams() {
				continue
			}
			a := s.post(t, request("1", method, params), "A2A-Version", version)
			require.NotNil(t, a.Error, "%s: %s", method, a.body)
			require.Equal(t, code, a.Error.Code, method)
			require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		}
	}
}
