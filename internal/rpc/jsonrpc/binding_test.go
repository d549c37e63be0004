package jsonrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// spoken returns the version of an answer, found by its members.
func spoken(t testing.TB, a *answer) string {
	t.Helper()
	require.Nil(t, a.Error, "%s", a.body)
	switch result := string(a.Result); {
	case strings.Contains(result, `"kind":"task"`):
		require.NotContains(t, result, "sessionId")
		return "0.3"
	case strings.Contains(result, `"sessionId"`):
		return "0.1"
	default:
		t.Fatalf("neither version: %s", result)
		return ""
	}
}

func TestVersionHeader(t *testing.T) {
	t.Parallel()
	const refused = "-32009"
	tests := []struct{ version, method, origin, want string }{
		{"", "tasks/send", "0.1", "0.1"},
		{"", "message/send", "0.3", "0.3"},
		{" ", "message/send", "0.3", "0.3"},
		{"1.0", "message/send", "0.3", "0.3"},
		{"1.0.1", "tasks/send", "0.1", "0.1"},
		{"0.3", "message/send", "0.3", "0.3"},
		{"0.3.0", "message/send", "0.3", "0.3"},
		{"0.2", "message/send", "0.3", "0.3"},
		{"0.2.6", "message/send", "0.3", "0.3"},
		{"0.1", "tasks/send", "0.1", "0.1"},
		{"0.3", "tasks/send", "0.1", "0.1"},
		{"0.1", "message/send", "0.3", "0.3"},
		{"99.0", "message/send", "0.3", refused},
		{"0.5", "tasks/send", "0.1", refused},
		{"latest", "tasks/get", "0.3", refused},
		{"0.3, 0.3", "tasks/get", "0.3", refused},

		// The params of these three methods are the same in both versions.
		{"", "tasks/get", "0.1", "0.1"},
		{"", "tasks/get", "0.3", "0.3"},
		{"", "tasks/get", "0.2 of a future release", "0.3"},
		{"1.0", "tasks/get", "0.1", "0.1"},
		{"0.1", "tasks/get", "0.3", "0.1"},
		{"0.2.1", "tasks/get", "0.1", "0.3"},
		{"0.3", "tasks/cancel", "0.1", "0.3"},
		{"", "tasks/cancel", "0.1", "0.1"},
		{"", "tasks/cancel", "0.3", "0.3"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%q %s of a task of %s", tt.version, tt.method, tt.origin), func(t *testing.T) {
			t.Parallel()
			s := serve(t, options{fake: &fakeEngine{task: sample(tt.origin)}})
			params := calls["0.3"][tt.method]
			if params == "" {
				params = calls["0.1"][tt.method]
			}
			body := request("1", tt.method, params)
			byQuery := s.newRequest(t, "/", strings.NewReader(body))
			byQuery.URL.RawQuery = "x=%zz&A2A-Version=" + strings.ReplaceAll(tt.version, " ", "+")
			for _, a := range []*answer{s.post(t, body, "A2A-Version", tt.version), s.do(t, byQuery)} {
				if tt.want == refused {
					require.Equal(t, -32009, a.Error.Code)
					require.Contains(t, a.Error.Message, tt.version)
					require.Equal(t, "1", string(a.ID))
					require.Equal(t, http.StatusOK, a.StatusCode)
					continue
				}
				require.Equal(t, tt.want, spoken(t, a))
			}
		})
	}
}

func TestErrorPrecedence(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: &fakeEngine{}})
	require.Equal(t, -32601, s.post(t, request("1", "SendMassage", `{}`), "A2A-Version", "99.0").Error.Code)
	require.Equal(t, -32009, s.post(t, request("1", "message/send", `[]`), "A2A-Version", "99.0").Error.Code)
	require.Equal(t, -32009, s.post(t, request("1", "message/send", `{"a":1,"a":1}`), "A2A-Version", "99.0").Error.Code)
	require.Equal(t, -32602, s.post(t, request("1", "message/send", `[]`), "A2A-Version", "1.0").Error.Code)
}

func TestPinnedPaths(t *testing.T) {
	t.Parallel()
	for _, origin := range []string{"0.1", "0.3"} {
		s := serve(t, options{fake: &fakeEngine{task: sample(origin)}})
		for _, base := range []string{"", "/agents/demo", "/agents/other"} {
			for _, pin := range []string{"0.1", "0.3"} {
				for _, path := range []string{base + "/v" + pin, base + "/v" + pin + "/"} {
					for _, header := range []string{"", "0.1", "0.3", "1.0"} {
						a := s.do(t, s.newRequest(t, path, strings.NewReader(request("1", "tasks/get", `{"id":"t-1"}`)), "A2A-Version", header))
						require.Equal(t, pin, spoken(t, a), "%s with A2A-Version %q", path, header)
					}
				}
			}
			a := s.do(t, s.newRequest(t, base+"/v0.1", strings.NewReader(request("1", "message/send", calls["0.3"]["message/send"]))))
			require.Equal(t, -32601, a.Error.Code)
		}
	}
}

func TestUnversionedRequestUsesVersionOfTask(t *testing.T) {
	t.Parallel()
	for origin, want := range map[string]bool{"0.1": false, "0.3": true} {
		s := serve(t, options{fake: &fakeEngine{task: sample(origin)}})
		a := s.post(t, request("1", "tasks/get", `{"id":"t-1"}`))
		require.Equal(t, want, strings.Contains(string(a.Result), `"history"`), origin)
		a = s.post(t, request("1", "tasks/get", `{"id":"t-1","historyLength":1}`))
		require.Contains(t, string(a.Result), `"history"`)
	}
}

// The operator chooses the format of answers to requests without a version. Requests with a version get its format.
func TestAmbiguousResults(t *testing.T) {
	t.Parallel()
	const only01, only03, both = "0.1", "0.3", "both"
	shape := func(document string) string {
		switch old, current := strings.Contains(document, `"type":"text"`), strings.Contains(document, `"kind":"text"`); {
		case old && current:
			return both
		case old:
			return only01
		case current:
			return only03
		}
		return document
	}
	for _, tt := range []struct {
		choice                 dispatch.Ambiguous
		of01, of03, of10, sent string
	}{
		{dispatch.AsOrigin, only01, only03, only03, only01},
		{dispatch.AsUnion, both, only03, only03, only01},
		{dispatch.AsNewest, only03, only03, only03, only01},
	} {
		s := serveStreams(t, options{Ambiguous: tt.choice})
		artifact := task.Event{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text("x")}}}
		for origin, want := range map[string]string{"0.1": tt.of01, "0.3": tt.of03, "1.0": tt.of10} {
			id := s.task(origin, artifact, status(task.StateInputRequired)).String()
			for _, asked := range []struct{ path, header, want string }{
				{"/", "", want}, {"/v0.1", "", only01}, {"/v0.3", "", only03}, {"/", "0.1", only01}, {"/", "0.3", only03},
			} {
				r := s.newRequest(t, asked.path, strings.NewReader(request("1", "tasks/get", `{"id":"`+id+`"}`)), "A2A-Version", asked.header)
				require.Equal(t, asked.want, shape(string(s.do(t, r).Result)), "%d: a task of %s, asked %+v", tt.choice, origin, asked)
			}
			c := s.open(t, request("1", "tasks/resubscribe", `{"id":"`+id+`"}`), "Last-Event-ID", "1")
			require.Equal(t, want, shape(string(c.next(t).answer.Result)), "%d: the stream of a task of %s", tt.choice, origin)
		}
		// Unambiguous requests are not affected.
		go func() { s.add(<-s.created, artifact, status(task.StateCompleted)) }()
		require.Equal(t, tt.sent, shape(string(s.post(t, request("1", "tasks/send", calls["0.1"]["tasks/send"])).Result)))
	}
}

// codes are the codes of dialects.md §7.2, with the HTTP status and headers.
var codes = map[task.Kind]struct {
	v01, v03, http int
	onStream       bool
}{
	task.Internal:             {-32603, -32603, 200, true},
	task.LeaseLost:            {-32603, -32603, 200, true},
	task.NotFound:             {-32001, -32001, 200, true},
	task.NotCancelable:        {-32002, -32002, 200, true},
	task.PushUnsupported:      {-32003, -32003, 200, false},
	task.Unsupported:          {-32004, -32004, 200, false},
	task.StreamingUnsupported: {-32006, -32004, 200, false},
	task.ContentType:          {-32005, -32005, 200, true},
	task.BadAgentReply:        {-32603, -32006, 200, false},
	task.NoExtendedCard:       {-32004, -32007, 200, false},
	task.ExtensionRequired:    {-32602, -32602, 200, false},
	task.Version:              {-32009, -32009, 200, false},
	task.Invalid:              {-32602, -32602, 200, false},
	task.Terminal:             {-32009, -32602, 200, true},
	task.Busy:                 {-32009, -32004, 200, true},
	task.Unauthenticated:      {-32007, -32600, 401, false},
	task.Forbidden:            {-32008, -32600, 403, false},
	task.RateLimited:          {-32010, -32603, 429, false},
	task.Unavailable:          {-32011, -32603, 503, false},
	task.TooLarge:             {-32600, -32600, 413, false},
}

func TestErrorsOfEveryKind(t *testing.T) {
	t.Parallel()
	for kind := range task.Kind(task.KindCount) {
		want, ok := codes[kind]
		require.True(t, ok, "%q", kind)
		for version, methods := range calls {
			for method, params := range methods {
				t.Run(fmt.Sprintf("%s, %s of %s", kind, method, version), func(t *testing.T) {
					t.Parallel()
					e := &fakeEngine{err: &task.Error{Kind: kind, Cause: errors.New("dial 10.0.0.1"), RetryAfter: 1500 * time.Millisecond}}
					s := serve(t, options{fake: e})
					a := s.do(t, s.newRequest(t, "/v"+version, strings.NewReader(request(`"x"`, method, params))))
					require.Equal(t, want.http, a.StatusCode)
					require.Equal(t, `"x"`, string(a.ID))
					require.NotNil(t, a.Error)
					require.Equal(t, map[string]int{"0.1": want.v01, "0.3": want.v03, "1.0": fault.Base.Row(kind).Code}[version], a.Error.Code)
					if version == "1.0" {
						require.Equal(t, fault.Base.Row(kind).Reason, reasons(t, a)[0].Reason)
					}
					require.NotContains(t, string(a.body), "10.0.0.1")

					streams := strings.HasSuffix(method, "ubscribe") || strings.HasSuffix(method, "stream") ||
						method == "SendStreamingMessage" || method == "SubscribeToTask"
					if streams && want.onStream {
						require.Equal(t, "text/event-stream", a.Header.Get("Content-Type"))
					} else {
						require.Equal(t, "application/json", a.Header.Get("Content-Type"))
					}
					if want.http == http.StatusTooManyRequests || want.http == http.StatusServiceUnavailable {
						require.Equal(t, "2", a.Header.Get("Retry-After"))
					} else {
						require.Empty(t, a.Header.Get("Retry-After"))
					}
					if kind != task.Internal && kind != task.LeaseLost {
						require.Empty(t, s.logs.String())
					}
				})
			}
		}
	}
}

func TestRetryAfterIsNeverZero(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: &fakeEngine{err: &task.Error{Kind: task.Unavailable}}})
	require.Equal(t, "1", s.post(t, request("1", "tasks/get", `{"id":"t-1"}`)).Header.Get("Retry-After"))
}

func TestInternalErrorIsLoggedOnceAndHidden(t *testing.T) {
	t.Parallel()
	secret := errors.New("password=hunter2")
	for name, e := range map[string]*fakeEngine{
		"an unclassified error": {err: secret},
		"an internal error":     {err: &task.Error{Kind: task.Internal, Msg: "pool password=hunter2", Cause: secret}},
		"a panic":               {call: func(context.Context, any) { panic(secret) }},
		"a nil pointer":         {}, // no task, no error
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{"tasks/get", "message/stream"} {
				s := serve(t, options{fake: e})
				a := s.post(t, request("1", method, calls["0.3"][method]))
				require.Equal(t, http.StatusOK, a.StatusCode)
				require.Equal(t, -32603, a.Error.Code)
				require.Equal(t, "Internal error", a.Error.Message)
				require.NotContains(t, string(a.body), "hunter2")
				require.Equal(t, 1, strings.Count(s.logs.String(), "level="), "%s", s.logs)
				if name != "a nil pointer" {
					require.Contains(t, s.logs.String(), "hunter2")
				}
				id := strings.Trim(string(a.Error.Data), `{}"`)
				id = id[strings.LastIndexByte(id, '"')+1:]
				require.Len(t, id, 36)
				require.Contains(t, s.logs.String(), "error_id="+id, "the error id in the answer is in the log")
				// The server still answers.
				require.Equal(t, -32601, s.post(t, request("1", "x", "{}")).Error.Code)
			}
		})
	}
}

func TestSendPassesHeadersToEngine(t *testing.T) {
	t.Parallel()
	e := &fakeEngine{task: sample("0.3")}
	s := serve(t, options{fake: e})
	body := request("1", "message/send", calls["0.3"]["message/send"])
	s.do(t, s.newRequest(t, "/agents/other", strings.NewReader(body), "Idempotency-Key", "k-1"))
	s.post(t, request("1", "tasks/send", calls["0.1"]["tasks/send"]))
	asked := e.requests()
	require.Len(t, asked, 2)
	second, first := asked[1].(*engine.SendRequest), asked[0].(*engine.SendRequest)
	require.Equal(t, []string{"other", "demo"}, e.agents)
	require.Equal(t, "k-1", first.IdempotencyKey)
	require.Equal(t, "0.3", first.Dialect)
	require.Equal(t, "message.contextId", first.ContextMember)
	require.True(t, first.Wait)
	require.False(t, first.MayCreate)
	require.Equal(t, "0.1", second.Dialect)
	require.Equal(t, "sessionId", second.ContextMember)
	require.True(t, second.MayCreate)

	for _, key := range []string{strings.Repeat("k", 256), "\xff\xfe"} {
		a := s.post(t, body, "Idempotency-Key", key)
		require.Equal(t, -32602, a.Error.Code)
		require.Contains(t, a.Error.Message, "Idempotency-Key")
	}
	require.Len(t, e.requests(), 2)
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	e := &fakeEngine{task: sample("0.3")}
	s := serve(t, options{fake: e, LegacyTaskIDs: true, ReturnByDefault: true})
	send := func(more string) *answer {
		return s.post(t, request("1", "message/send", `{"message":{"messageId":"m","role":"user","parts":[{"text":"x"}]`+more+`}`))
	}
	require.Nil(t, send(`,"taskId":"mine"}`).Error)
	require.Nil(t, send(`},"configuration":{"blocking":true}`).Error)
	require.Len(t, e.requests(), 2)
	first, second := e.requests()[0].(*engine.SendRequest), e.requests()[1].(*engine.SendRequest)
	require.True(t, first.MayCreate)
	require.False(t, first.Wait)
	require.True(t, second.Wait)
	require.Nil(t, send(`,"taskId":"urn:a/b"}`).Error)
	for _, id := range []string{strings.Repeat("x", 257), `a\nb`} {
		a := send(`,"taskId":"` + id + `"}`)
		require.Equal(t, -32602, a.Error.Code)
		require.Contains(t, a.Error.Message, "message.taskId")
	}
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	counts := make(chan string, 10)
	s := serve(t, options{
		fake:     &fakeEngine{err: task.Errorf(task.NotFound, "no such task")},
		Observer: dispatch.Observer{Answered: func(a dispatch.Answer) { counts <- strings.Join([]string{a.Operation, a.Version, a.Outcome}, " ") }},
	})
	s.post(t, "{")
	require.Equal(t, "none  refused", <-counts)
	s.post(t, request("1", "tasks/send", calls["0.1"]["tasks/send"]))
	require.Equal(t, "send 0.1 TASK_NOT_FOUND", <-counts)
	s.post(t, request("1", "message/stream", calls["0.3"]["message/stream"]))
	require.Equal(t, "stream 0.3 TASK_NOT_FOUND", <-counts)
	s.post(t, request("1", "tasks/get", `{}`))
	require.Equal(t, "get 0.3 INVALID_PARAMS", <-counts)
}
