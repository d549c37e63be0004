package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is a request as the fake agent saw it.
type request struct {
	Method      string
	LastEventID string
	Params      string
}

// agent answers the nth request with the nth handler, and records the requests.
type agent struct {
	*Client
	seen []request
}

func newAgent(t *testing.T, answers ...http.HandlerFunc) *agent {
	t.Helper()
	a := &agent{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Method string
			Params json.RawMessage
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("read the request: %v", err)
			return
		}
		a.seen = append(a.seen, request{body.Method, r.Header.Get("Last-Event-ID"), string(body.Params)})
		if n := len(a.seen); n <= len(answers) {
			answers[n-1](w, r)
			return
		}
		http.Error(w, "no more answers", http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	a.Client, err = Open(t.Context(), Options{Endpoint: server.URL, Version: "0.3", HTTP: &http.Client{Transport: transport}})
	require.NoError(t, err)
	return a
}

// A server without ids gets no subscription: what it sends then is anybody's guess. Its task says everything.
func TestFollowReadsTheTaskOfAServerWithoutIDs(t *testing.T) {
	t.Parallel()
	bare := func(events ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range events {
				_, result, _ := strings.Cut(e, " ")
				_, _ = fmt.Fprintf(w, "id: 0f9a-not-a-number\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", result)
			}
		}
	}
	a := newAgent(t, bare(opened, working), now("working"), status(503, "", "", ""), now("working"), now("completed"))
	var states []string
	cuts := 0
	err := a.Follow(t.Context(), &Message{Parts: []task.Part{task.Text("hi")}}, FollowOptions{
		Attempts: 3, Wait: time.Millisecond, MaxWait: time.Millisecond, Cut: func(_ error, after string) {
			cuts++
			require.Empty(t, after)
		},
	}, func(e *Event) error {
		states = append(states, e.State().String())
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, cuts)
	require.Equal(t, []string{"submitted", "working", "working", "completed"}, states, "a task that has not changed is not shown again")
	require.Equal(t, []string{"message/stream", "tasks/get", "tasks/get", "tasks/get", "tasks/get"}, a.methods())
}

// A stream that was resumed repeats questions, and may stay open after the last one.
func TestFollowEndsAtTheLastQuestionOfAResumedStream(t *testing.T) {
	t.Parallel()
	const asks = `%d {"kind":"status-update","taskId":"t1","contextId":"c1","status":{"state":"input-required"},"final":false}`
	a := newAgent(t, stream(opened, cut), func(w http.ResponseWriter, r *http.Request) {
		stream(fmt.Sprintf(asks, 2), chunk3, fmt.Sprintf(asks, 4))(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, now("working"), now("input-required"))
	ids, err := a.follow(t)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2", "3", "4"}, ids)
}

func (a *agent) methods() []string {
	var m []string
	for _, r := range a.seen {
		m = append(m, strings.TrimSpace(r.Method+" "+r.LastEventID))
	}
	return m
}

func answer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

// now answers with the state of the task.
func now(state string) http.HandlerFunc {
	return answer(`{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t1","contextId":"c1","status":{"state":"` + state + `"}}}`)
}

func status(code int, header, value, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if header != "" {
			w.Header().Set(header, value)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// cut is a line of a script at which the connection is closed.
const cut = "cut"

// stream sends events, each written as id and result, and then closes or is cut.
func stream(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		flush := http.NewResponseController(w)
		for _, e := range events {
			if e == cut {
				_, _ = io.WriteString(w, "id: 99\ndata: {\"jsonrpc\"")
				_ = flush.Flush()
				panic(http.ErrAbortHandler)
			}
			id, result, _ := strings.Cut(e, " ")
			_, _ = fmt.Fprintf(w, ": keep-alive\n\nid: %s\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", id, result)
			_ = flush.Flush()
		}
	}
}

const (
	opened  = `1 {"kind":"task","id":"t1","contextId":"c1","status":{"state":"submitted"}}`
	working = `2 {"kind":"status-update","taskId":"t1","contextId":"c1","status":{"state":"working"},"final":false}`
	chunk3  = `3 {"kind":"artifact-update","taskId":"t1","contextId":"c1","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"x"}]}}`
	chunk4  = `4 {"kind":"artifact-update","taskId":"t1","contextId":"c1","append":true,"artifact":{"artifactId":"a","parts":[{"kind":"text","text":"y"}]}}`
	done    = `5 {"kind":"status-update","taskId":"t1","contextId":"c1","status":{"state":"completed"},"final":true}`
)

// follow collects the ids of the events that Follow shows.
func (a *agent) follow(t *testing.T) (ids []string, err error) {
	t.Helper()
	err = a.Follow(t.Context(), &Message{Parts: []task.Part{task.Text("hi")}}, FollowOptions{
		Attempts: 3, Wait: time.Millisecond, MaxWait: 5 * time.Millisecond, Cut: func(error, string) {},
	}, func(e *Event) error {
		ids = append(ids, e.ID)
		return nil
	})
	return ids, err
}

func TestFollowResumesAfterEveryCut(t *testing.T) {
	t.Parallel()
	all := []string{"1", "2", "3", "4", "5"}
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		methods []string
	}{
		"no cut": {
			[]http.HandlerFunc{stream(opened, working, chunk3, chunk4, done)},
			[]string{"message/stream"},
		},
		"the connection is torn down in the middle of an event": {
			[]http.HandlerFunc{stream(opened, working, cut), stream(chunk3, cut), stream(chunk4, done)},
			[]string{"message/stream", "tasks/resubscribe 2", "tasks/resubscribe 3"},
		},
		"the server closes politely before the end": {
			[]http.HandlerFunc{stream(opened, working, chunk3), stream(chunk4, done)},
			[]string{"message/stream", "tasks/resubscribe 3"},
		},
		"the server is away for a while": {
			[]http.HandlerFunc{
				stream(opened, cut),
				status(503, "Retry-After", "0", `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"database is away"}}`),
				status(502, "", "", "bad gateway"),
				stream(working, chunk3, chunk4, done),
			},
			[]string{"message/stream", "tasks/resubscribe 1", "tasks/resubscribe 1", "tasks/resubscribe 1"},
		},
		"more cuts than attempts, each after progress": {
			[]http.HandlerFunc{stream(opened, cut), stream(working, cut), stream(chunk3, cut), stream(chunk4, cut), stream(done)},
			[]string{"message/stream", "tasks/resubscribe 1", "tasks/resubscribe 2", "tasks/resubscribe 3", "tasks/resubscribe 4"},
		},
	} {
		a := newAgent(t, c.answers...)
		ids, err := a.follow(t)
		require.NoError(t, err, name)
		require.Empty(t, cmp.Diff(all, ids), name)
		require.Empty(t, cmp.Diff(c.methods, a.methods()), name)
	}
}

func TestFollowFailsOnFinalCut(t *testing.T) {
	t.Parallel()
	away := status(503, "", "", "")
	stillWorks := now("working")
	refused := answer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}`)
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		calls   int
		cutAt   string
	}{
		"the server stays away": {[]http.HandlerFunc{stream(opened, working, cut), away, away, away, away}, 4, "2"},
		"streams that end without any event": {
			[]http.HandlerFunc{stream(opened, working), stream(), stillWorks, stream(), stillWorks, stream(), stillWorks}, 7, "2",
		},
		"the task is gone":                       {[]http.HandlerFunc{stream(opened, working, cut), refused}, 2, "2"},
		"a cut before the task is known":         {[]http.HandlerFunc{stream(cut)}, 1, ""},
		"a stream that closes without any event": {[]http.HandlerFunc{stream()}, 1, ""},
	} {
		a := newAgent(t, c.answers...)
		_, err := a.follow(t)
		var cutErr *CutError
		require.ErrorAs(t, err, &cutErr, name)
		require.Equal(t, c.cutAt, cutErr.LastEventID, name)
		require.Len(t, a.seen, c.calls, name)
	}
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string][]http.HandlerFunc{
		"with a bare message": {stream(`9 {"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"hi"}]}`)},
		"with the snapshot of a task that has ended": {
			stream(opened, cut), stream(`9 {"kind":"task","id":"t1","contextId":"c1","status":{"state":"failed"}}`),
		},
	} {
		ids, err := newAgent(t, answers...).follow(t)
		require.NoError(t, err, name)
		require.Equal(t, []string{"1", "9"}[2-len(answers):], ids, name)
	}
	t.Run("with an error on the stream", func(t *testing.T) {
		t.Parallel()
		a := newAgent(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32004,\"message\":\"no\"}}\n\n")
		})
		_, err := a.follow(t)
		var refused *client.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, -32004, refused.Code)
		require.Len(t, a.seen, 1, "a refused request is not retried")
	})
	t.Run("when the caller returns an error", func(t *testing.T) {
		t.Parallel()
		a := newAgent(t, stream(opened, done))
		full := errors.New("disk full")
		err := a.Follow(t.Context(), &Message{}, FollowOptions{Attempts: 3}, func(*Event) error { return full })
		require.ErrorIs(t, err, full)
		require.Len(t, a.seen, 1)
	})
	t.Run("when its context is canceled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		a := newAgent(t, func(w http.ResponseWriter, r *http.Request) {
			stream(opened)(w, r)
			<-r.Context().Done()
		})
		err := a.Follow(ctx, &Message{}, FollowOptions{Attempts: 3}, func(*Event) error {
			cancel()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, a.seen, 1)
	})
}

func TestCalls(t *testing.T) {
	t.Parallel()
	const found = `{"kind":"task","id":"t1","contextId":"c1","status":{"state":"completed"},"metadata":{"big":12345678901234567890}}`
	reply := answer(`{"jsonrpc":"2.0","id":1,"result":` + found + `}`)
	a := newAgent(t, reply, reply, reply)

	got, err := a.Send(t.Context(), &Message{
		Parts: []task.Part{task.Text("hi"), {Kind: task.PartData, Data: json.RawMessage(`{"n":1.0}`)}}, TaskID: "t1",
	})
	require.NoError(t, err)
	require.Equal(t, task.StateCompleted, got.State())
	require.Empty(t, cmp.Diff(found, string(got.Raw)), "the result is unchanged")

	_, err = a.Get(t.Context(), "t1")
	require.NoError(t, err)
	_, err = a.Cancel(t.Context(), "t1")
	require.NoError(t, err)
	require.Equal(t, []string{"message/send", "tasks/get", "tasks/cancel"}, a.methods())
	require.JSONEq(t, `{"id":"t1"}`, a.seen[1].Params)

	var sent struct {
		Message       struct{ MessageID, TaskID, Role string }
		Configuration struct{ Blocking bool }
	}
	require.NoError(t, json.Unmarshal([]byte(a.seen[0].Params), &sent))
	require.True(t, sent.Configuration.Blocking)
	require.NotEmpty(t, sent.Message.MessageID)
	require.Equal(t, "t1", sent.Message.TaskID)
	require.Equal(t, "user", sent.Message.Role)
}

func TestErrorAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"an error of JSON-RPC": {answer(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"message.parts: is empty"}}`), "error -32602: message.parts: is empty"},
		"one with a status":    {status(401, "", "", `{"jsonrpc":"2.0","id":1,"error":{"code":-32007,"message":"who are you"}}`), "error -32007: who are you"},
		"one that is final":    {status(500, "", "", `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no such task"}}`), "error -32001: no such task"},
		"a status alone":       {status(404, "", "", "no such page\n"), "HTTP 404 Not Found: no such page"},
		"no JSON":              {answer("<html>"), "the server's answer is not A2A 0.3 over JSONRPC"},
	} {
		_, err := newAgent(t, c.answer).Get(t.Context(), "t1")
		require.ErrorContains(t, err, c.want, name)
	}
}

func TestCardAtOldPath(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/a/.well-known/agent.json", answer(`{"name":"Old","url":"http://x","extra":1}`))
	server := httptest.NewServer(mux)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, url := range []string{"/a", "/a/", "/a/.well-known/agent.json"} {
		card, err := ReadCard(t.Context(), Options{Server: server.URL + url, HTTP: &http.Client{Transport: transport}})
		require.NoError(t, err)
		require.Equal(t, "Old", card.Name)
		require.JSONEq(t, `{"name":"Old","url":"http://x","extra":1}`, string(card.Raw))
	}
}

// Nobody wants the answer of another agent: the card of the host counts only if it names the URL.
func TestCardOfTheHost(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/agent-card.json", answer(`{"name":"Concierge","url":"http://public.example/a2a/","version":"1","additionalInterfaces":[{"url":"http://x/rest","transport":"HTTP+JSON"}]}`))
	server := httptest.NewServer(mux)
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	read := func(path string) (*Document, error) {
		return ReadCard(t.Context(), Options{Server: server.URL + path, HTTP: &http.Client{Transport: transport}})
	}
	for _, path := range []string{"", "/", "/a2a", "/a2a/", "/rest"} {
		card, err := read(path)
		require.NoError(t, err, path)
		require.Equal(t, "Concierge", card.Name)
	}
	for _, path := range []string{"/agents/typo", "/a2", "/a2a/x"} {
		_, err := read(path)
		require.ErrorContains(t, err, server.URL+path+" has no agent card, and "+server.URL+"/.well-known/agent-card.json is that of another agent, \"Concierge\"", path)
	}
}

// A redirect to another host gets neither the message nor the credentials.
func TestRedirectsToOtherHostsAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("it got %s %v", r.Method, r.Header)
	}))
	t.Cleanup(other.Close)
	answer := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t-1","contextId":"c","status":{"state":"completed"}}}`)
	}
	a := newAgent(t,
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/x", http.StatusTemporaryRedirect)
		},
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		answer)
	a.header = http.Header{"X-Api-Key": {"secret"}}
	ask := func() error {
		_, err := a.Get(t.Context(), "t-1")
		return err
	}
	var refused *CallError
	require.ErrorAs(t, ask(), &refused)
	require.Equal(t, http.StatusTemporaryRedirect, refused.Status)
	require.Contains(t, refused.Error(), "the server redirects to "+other.URL+"/x; if you trust it, call it at that address")
	require.NoError(t, ask(), "a redirect on the same host")
}

// Credentials in a file do not show in the list of processes.
func TestHeadersFromAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "headers")
	require.NoError(t, os.WriteFile(path, []byte("# mine\nAuthorization: Bearer s3cret\r\n\nX-A:b\n"), 0o600))
	header, err := ReadHeaders(strings.NewReader("X-D: e\n"), []string{"X-C: d", "@" + path, "@-"})
	require.NoError(t, err)
	require.Equal(t, http.Header{"Authorization": {"Bearer s3cret"}, "X-A": {"b"}, "X-C": {"d"}, "X-D": {"e"}}, header)
	require.NoError(t, os.WriteFile(path, []byte("s3cret"), 0o600))
	_, err = ReadHeaders(strings.NewReader("X-D: e\n"), []string{"@" + path})
	require.EqualError(t, err, "line 1 of "+path+` is not a header; write "Name: value"`)
	_, err = ReadHeaders(strings.NewReader("X-D: e\n"), []string{"@/nowhere/file"})
	require.ErrorContains(t, err, "/nowhere/file")
}
