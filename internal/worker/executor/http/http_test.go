package http_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/http"
)

// agentServer starts an agent and returns the executor that calls it.
func agentServer(t *testing.T, opts http.Options, handler nethttp.HandlerFunc) executor.Executor {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	opts.URL = server.URL + "/run"
	e, err := http.New(opts)
	require.NoError(t, err)
	return e
}

func answering(contentType, body string) nethttp.HandlerFunc {
	return func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

func execute(t *testing.T, e executor.Executor) (*executortest.Recorder, error) {
	t.Helper()
	return executortest.Run(t, e, executortest.NewRun("hello"))
}

// ran is the record of a run that must succeed.
func ran(t *testing.T, e executor.Executor) *executortest.Recorder {
	t.Helper()
	out, err := execute(t, e)
	require.NoError(t, err)
	return out
}

func TestRequest(t *testing.T) {
	t.Parallel()
	var got *nethttp.Request
	var doc map[string]any
	e := agentServer(t, http.Options{Headers: map[string]string{"authorization": "Bearer s3cret", "User-Agent": "mine"}},
		func(w nethttp.ResponseWriter, r *nethttp.Request) {
			got = r
			if err := json.NewDecoder(r.Body).Decode(&doc); err != nil {
				t.Error(err)
			}
			w.WriteHeader(nethttp.StatusNoContent)
		})
	require.Empty(t, ran(t, e).Events())
	require.Equal(t, "POST", got.Method)
	require.Equal(t, "/run", got.URL.Path)
	for name, want := range map[string]string{
		"Authorization":    "Bearer s3cret",
		"User-Agent":       "mine",
		"Content-Type":     "application/json",
		"Idempotency-Key":  "01020304-0506-0708-0900-000000000000:1",
		"Holdfast-Task-Id": "01020304-0506-0708-0900-000000000000",
		"Holdfast-Attempt": "1",
	} {
		require.Equal(t, want, got.Header.Get(name), name)
	}
	require.InDelta(t, 1, doc["version"], 0)
}

func TestAnswerFormats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ contentType, body string }{
		"one event":  {"application/json", `{"type":"text","text":"hi there"}`},
		"plain text": {"application/json; charset=utf-8", `{"text":"hi there"}`},
		"a list":     {"application/json", `{"events":[{"type":"text","text":"hi "},{"type":"text","text":"there"}]}`},
		"sse": {"text/event-stream", ": welcome\n\ndata: {\"type\":\"text\",\ndata: \"text\":\"hi \"}\n\n" +
			"id: 7\ndata: {\"type\":\"text\",\"text\":\"there\"}\n\n"},
	} {
		require.Equal(t, "hi there", ran(t, agentServer(t, http.Options{}, answering(c.contentType, c.body))).Text(t), name)
	}
}

func TestEventsArriveDuringRun(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	e := agentServer(t, http.Options{}, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for word := range next {
			_, _ = fmt.Fprintf(w, "{\"type\":\"text\",\"text\":%q}\n", word)
			_ = nethttp.NewResponseController(w).Flush()
		}
	})
	out := executortest.NewRecorder()
	done := executortest.Go(t.Context(), e, executortest.NewRun("hello"), out)
	for n, word := range []string{"one ", "two ", "three"} {
		next <- word
		out.Await(t, n+1)
	}
	close(next)
	require.NoError(t, executortest.Wait(t, done))
	require.Equal(t, "one two three", out.Text(t))
}

// A cancel closes the request, before the answer and during it.
func TestCancelClosesTheRequest(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{false, true} {
		called, closed := make(chan struct{}), make(chan struct{})
		e := agentServer(t, http.Options{}, func(w nethttp.ResponseWriter, r *nethttp.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if answers {
				w.Header().Set("Content-Type", "application/x-ndjson")
				_, _ = io.WriteString(w, `{"type":"status"}`+"\n")
				_ = nethttp.NewResponseController(w).Flush()
			}
			close(called)
			<-r.Context().Done()
			close(closed)
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		out := executortest.NewRecorder()
		done := executortest.Go(ctx, e, executortest.NewRun("hello"), out)
		<-called
		if answers {
			out.Await(t, 1)
		}
		cancel(executor.ErrCanceled)
		require.ErrorIs(t, executortest.Wait(t, done), executor.ErrCanceled)
		<-closed
	}
}

func TestRunEndsAtSettlingEvent(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	e := agentServer(t, http.Options{}, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"type":"ask","message":"Which?"}`+"\n"+"this is never read\n")
		_ = nethttp.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(released)
	})
	require.Equal(t, task.StateInputRequired, ran(t, e).Task(t).Status.State)
	<-released
}

// An agent that answers 202 has accepted the run, and posts all events to the run API.
func TestAcceptedRuns(t *testing.T) {
	t.Parallel()
	accepts := func(body string) executor.Executor {
		return agentServer(t, http.Options{}, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			if body != "" {
				w.Header().Set("Content-Type", "application/x-ndjson")
			}
			w.WriteHeader(nethttp.StatusAccepted)
			_, _ = io.WriteString(w, body)
		})
	}
	began := make(chan struct{}, 1)
	newRun := func() (run *executor.Run, ended chan struct{}) {
		ended = make(chan struct{})
		run = executortest.NewRun("hello")
		run.API = &executor.API{HandOver: func(ctx context.Context) error {
			began <- struct{}{}
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		return run, ended
	}
	run, ended := newRun()
	done := executortest.Go(t.Context(), accepts(""), run, executortest.NewRecorder())
	<-began
	close(ended)
	require.NoError(t, executortest.Wait(t, done))

	run, _ = newRun()
	ctx, cancel := context.WithCancelCause(t.Context())
	done = executortest.Go(ctx, accepts(""), run, executortest.NewRecorder())
	<-began
	cancel(executor.ErrTimeout)
	require.ErrorIs(t, executortest.Wait(t, done), executor.ErrTimeout)

	out, err := execute(t, accepts(`{"type":"complete"}`))
	require.ErrorContains(t, err, "202 Accepted with a body")
	require.Empty(t, out.Events())
	_, err = execute(t, accepts(""))
	require.ErrorContains(t, err, "no run API")
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code             int
		retryAfter, body string
		want             string
	}{
		"not found":    {404, "", "no such\x00 agent\n<b>", "404 Not Found: no such agent <b>"},
		"long":         {400, "", strings.Repeat("é", 1000), "400 Bad Request: " + strings.Repeat("é", 256)},
		"redirect":     {302, "", "", "302 Found; redirects are not followed"},
		"too many":     {429, "7", "", "429 Too Many Requests; away for 7s"},
		"bad gateway":  {502, "", "", "502 Bad Gateway; away; retry"},
		"server error": {500, "", "", "500 Internal Server Error; retry"},
	} {
		out, err := execute(t, agentServer(t, http.Options{}, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			if c.retryAfter != "" {
				w.Header().Set("Retry-After", c.retryAfter)
			}
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		}))
		require.Equal(t, "the agent answered "+c.want, executortest.Outcome(err), name)
		require.Empty(t, out.Events(), name)
	}
}

func TestEndlessErrorBodyIsReadBriefly(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	e := agentServer(t, http.Options{}, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		w.WriteHeader(nethttp.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "soon")
		_ = nethttp.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	out := executortest.NewRecorder()
	err := executortest.Wait(t, executortest.Go(t.Context(), e, executortest.NewRun("hello"), out))
	require.EqualError(t, err, "the agent answered 503 Service Unavailable: soon")
	<-gone
}

func TestInvalidAnswersFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ contentType, body, want string }{
		"the wrong type": {"text/html", "<p>", `the agent answered with the content type "text/html"; ` +
			"send application/json, application/x-ndjson or text/event-stream"},
		"a bad line": {
			"application/x-ndjson", "\n{\"type\":\"artifact\",\"artifact\":{\"parts\":[{}]}}\n",
			"the agent's answer is not understood: line 2: artifact.parts[0]: needs one of text, raw, url, data",
		},
		"a bad event": {
			"text/event-stream", ":\n\ndata: {\"type\":\"txt\"}\n\n",
			"the agent's answer is not understood: line 3: type: must be one of " +
				"text, artifact, status, ask, auth, complete, fail, reject, reply, checkpoint, record, state, retry, wait, call",
		},
		"lines that call themselves server-sent events": {
			"text/event-stream", "{\"type\":\"complete\"}\n",
			`the agent's answer is not understood: line 1: is not a line of server-sent events: "data: " is missing`,
		},
		"a bad document": {
			"application/json", "hello",
			"the agent's answer is not understood: not JSON: invalid character 'h' at start of value, at byte 1",
		},
		"a long document": {
			"application/json", `{"text":"` + strings.Repeat("x", 2000) + `"}`,
			"the agent's answer is longer than the 1000 bytes that a JSON document may have; send a stream instead",
		},
		"a long line": {
			"application/x-ndjson", strings.Repeat("x", 2000),
			"the agent's answer is not understood: line 1: is longer than the 1000 bytes that an event may have",
		},
	} {
		_, err := execute(t, agentServer(t, http.Options{MaxEvent: 1000}, answering(c.contentType, c.body)))
		require.Equal(t, c.want, executortest.Outcome(err), name)
	}
}

func TestStreamMayExceedEventLimit(t *testing.T) {
	t.Parallel()
	body := strings.Repeat(`{"type":"text","text":"0123456789"}`+"\n", 1000)
	require.Len(t, ran(t, agentServer(t, http.Options{MaxEvent: 100}, answering("application/x-ndjson", body))).Events(), 1000)
}

// rawServer answers one connection with bytes and closes it.
func rawServer(t *testing.T, answer string) executor.Executor {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		request, err := nethttp.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		_, _ = io.WriteString(conn, answer)
	}()
	e, err := http.New(http.Options{URL: "http://" + listener.Addr().String()})
	require.NoError(t, err)
	return e
}

// A connection that breaks ends the run for another try, unless the answer was complete.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	const event, settles = `{"type":"text","text":"a"}` + "\n", `{"type":"complete"}` + "\n"
	const lines, document, chunked = "Content-Type: application/x-ndjson\r\n", "Content-Type: application/json\r\n", "Transfer-Encoding: chunked\r\n"
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(event), event)
	for name, c := range map[string]struct {
		answer string
		broken bool
	}{
		"before the headers":                {"1.1 200 OK\r\nContent-Ty", true},
		"between chunks":                    {"1.1 200 OK\r\n" + lines + chunked + "\r\n" + chunk, true},
		"inside a length":                   {"1.1 200 OK\r\n" + lines + "Content-Length: 100\r\n\r\n" + event, true},
		"inside a document":                 {"1.1 200 OK\r\n" + document + "Content-Length: 100\r\n\r\n{\"text\"", true},
		"without framing":                   {"1.0 200 OK\r\n" + lines + "\r\n" + event, true},
		"in an unframed line":               {"1.0 200 OK\r\n" + lines + "\r\n" + event + `{"type":"te`, true},
		"in an unframed event":              {"1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"type\":\"te", true},
		"in an unframed document":           {"1.0 200 OK\r\n" + document + "\r\n{\"text\":", true},
		"nothing, without framing":          {"1.0 200 OK\r\n\r\n", true},
		"no document, without framing":      {"1.0 200 OK\r\n" + document + "\r\n", true},
		"no lines, without framing":         {"1.0 200 OK\r\n" + lines + "\r\n", true},
		"nothing, framed":                   {"1.1 200 OK\r\n" + chunked + "\r\n0\r\n\r\n", false},
		"no document, framed":               {"1.1 200 OK\r\n" + document + chunked + "\r\n0\r\n\r\n", false},
		"no lines, framed":                  {"1.1 200 OK\r\n" + lines + chunked + "\r\n0\r\n\r\n", false},
		"after the event that ends the run": {"1.0 200 OK\r\n" + lines + "\r\n" + event + settles, false},
		"after a whole unframed document":   {"1.0 200 OK\r\n" + document + "\r\n" + event, false},
	} {
		out, err := execute(t, rawServer(t, "HTTP/"+c.answer))
		_, retry := executor.IsRetryable(err)
		require.Equal(t, c.broken, retry, "%s: %v", name, err)
		if c.broken {
			continue
		}
		require.NoError(t, err, name)
		if strings.Contains(c.answer, event) {
			require.Equal(t, "a", out.Text(t), name)
		}
		if strings.Contains(c.answer, settles) {
			require.Equal(t, task.StateCompleted, out.Task(t).Status.State, name)
		}
	}
}

// An agent whose name, certificate or port cannot be used has not begun the run.
func TestUnusableAddressMeansAway(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(nethttp.NotFoundHandler())
	t.Cleanup(secure.Close)
	for url, outcome := range map[string]string{"http://agent.invalid": "; away", secure.URL: "; away", "http://127.0.0.1:1": "; away; not reached$"} {
		e, err := http.New(http.Options{URL: url})
		require.NoError(t, err)
		_, err = execute(t, e)
		require.Regexp(t, outcome, executortest.Outcome(err), url)
	}
}

func TestHeaderTimeout(t *testing.T) {
	t.Parallel()
	e := agentServer(t, http.Options{HeaderTimeout: time.Millisecond}, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	_, err := execute(t, e)
	require.Regexp(t, "; away; retry$", executortest.Outcome(err))
}

func TestProxyVariablesAreIgnored(t *testing.T) {
	// Not parallel: it changes the environment.
	proxy := httptest.NewServer(nethttp.HandlerFunc(func(nethttp.ResponseWriter, *nethttp.Request) {
		t.Error("the request went to the proxy")
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("NO_PROXY", "")
	// A host name, since Go never sends loopback addresses through a proxy.
	e, err := http.New(http.Options{URL: "http://agent.invalid"})
	require.NoError(t, err)
	_, err = execute(t, e)
	require.ErrorContains(t, err, "agent.invalid")
}

func TestLostLeaseIsReported(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	out.Refuse(executor.ErrLeaseLost)
	e := agentServer(t, http.Options{}, answering("application/json", `{"text":"a"}`))
	require.ErrorIs(t, e.Execute(t.Context(), executortest.NewRun("hello"), out), executor.ErrLeaseLost)
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string]http.Options{
		"http: url: must begin with http:// or https://":                        {URL: "ftp://x"},
		"http: url: has no host":                                                {URL: "http:///x"},
		"http: url: is not a URL":                                               {URL: "http://[x"},
		"http: headers.a b: is not the name of an HTTP header":                  {URL: "http://x", Headers: map[string]string{"a b": ""}},
		"http: headers.X: has a value with characters that HTTP headers forbid": {URL: "http://x", Headers: map[string]string{"X": "a\n"}},
		"http: headers.content-type: is set by Holdfast; remove it":             {URL: "http://x", Headers: map[string]string{"content-type": "a"}},
		"http: headers.Holdfast-Task-Id: is set by Holdfast; remove it":         {URL: "http://x", Headers: map[string]string{"Holdfast-Task-Id": "a"}},
	} {
		_, err := http.New(opts)
		require.EqualError(t, err, want)
	}
}

func cancellation() *executor.Cancellation {
	return &executor.Cancellation{
		Reason: executor.ReasonCanceled, ID: task.ID{1}, TaskID: "trip-7", ContextID: "c-1", Agent: "travel", Owner: "ada", Keys: executor.Keys{Task: "task-key", Context: "context-key"},
		Turn: 2, Attempt: 4, Try: 1, Metadata: json.RawMessage(`{"n":1.0}`), Checkpoint: json.RawMessage(`{"page":12}`),
		Stored: func(_ context.Context, of executor.Scope) (executor.State, error) {
			if of == executor.OfContext {
				return executor.State{}, nil
			}
			return executor.State{Value: json.RawMessage(`{"job":"j-9"}`), Version: 3}, nil
		},
	}
}

func canceler(t *testing.T, handler nethttp.HandlerFunc) executor.Canceler {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	e, err := http.New(http.Options{URL: server.URL, CancelURL: server.URL + "/cancel?key=s3cret", Headers: map[string]string{"X-Key": "k"}})
	require.NoError(t, err)
	return e.(executor.Canceler)
}

func TestCancelDocument(t *testing.T) {
	t.Parallel()
	var got *nethttp.Request
	var doc string
	c := canceler(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, doc = r, string(body)
	})
	require.NoError(t, c.Cancel(t.Context(), cancellation()))
	require.Equal(t, "POST /cancel?key=s3cret", got.Method+" "+got.URL.String())
	id := "01000000-0000-0000-0000-000000000000"
	for name, want := range map[string]string{
		"X-Key": "k", "Content-Type": "application/json", "Idempotency-Key": id + ":2:canceled", "Holdfast-Task-Id": id, "Holdfast-Attempt": "4",
	} {
		require.Equal(t, want, got.Header.Get(name), name)
	}
	require.Equal(t, `{"version":1,"reason":"canceled","idempotencyKey":"`+id+`:2",`+
		`"task":{"id":"trip-7","key":"task-key","contextId":"c-1","contextKey":"context-key","agent":"travel","owner":"ada"},"turn":2,"attempt":4,"try":1,`+
		`"metadata":{"n":1.0},"checkpoint":{"page":12},"state":{"task":{"data":{"job":"j-9"},"version":3}}}`, doc)
}

func TestWithoutCancelURLNobodyIsTold(t *testing.T) {
	t.Parallel()
	e, err := http.New(http.Options{URL: "http://127.0.0.1:1"})
	require.NoError(t, err)
	_, told := e.(executor.Canceler)
	require.False(t, told)
	_, err = http.New(http.Options{URL: "http://127.0.0.1:1", CancelURL: "127.0.0.1/cancel"})
	require.EqualError(t, err, "http: cancel_url: must begin with http:// or https://")
}

func TestHostileCancelReceivers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler nethttp.HandlerFunc
		want    string
		refused bool
		after   time.Duration
	}{
		"redirect": {func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if r.URL.Path != "/cancel" {
				t.Error("followed")
			}
			nethttp.Redirect(w, r, "/elsewhere", nethttp.StatusTemporaryRedirect)
		}, "call the agent's cancel_url: the agent answered 307 Temporary Redirect; redirects are not followed", true, 0},
		"unknown": {func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.WriteHeader(nethttp.StatusNotFound)
			_, _ = io.WriteString(w, "no job")
		}, "call the agent's cancel_url: the agent answered 404 Not Found: no job", true, 0},
		"broken": {func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(nethttp.StatusInternalServerError)
		}, "call the agent's cancel_url: the agent answered 500 Internal Server Error", false, 7 * time.Second},
		"cut": {func(nethttp.ResponseWriter, *nethttp.Request) { panic(nethttp.ErrAbortHandler) }, "call the agent's cancel_url: EOF", false, 0},
	} {
		err := canceler(t, c.handler).Cancel(t.Context(), cancellation())
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "s3cret", name)
		after, again := executor.IsRetryable(err)
		require.Equal(t, c.after, after, name)
		var failure *executor.Failure
		require.Equal(t, c.refused, errors.As(err, &failure) && !again, name)
	}
}

// A receiver that does not finish its answer holds a delivery for a moment only, and one that does not answer until the context ends.
func TestSlowCancelReceivers(t *testing.T) {
	t.Parallel()
	endless := canceler(t, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.WriteString(w, "x")
		_ = nethttp.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	require.NoError(t, endless.Cancel(t.Context(), cancellation()))
	called := make(chan struct{})
	silent := canceler(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(called)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-called; cancel() }()
	require.ErrorIs(t, silent.Cancel(ctx, cancellation()), context.Canceled)
}

type noAgent struct{}

func (noAgent) Execute(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

func (noAgent) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

func TestRecognizesOtherKinds(t *testing.T) {
	t.Parallel()
	const a2aKind, openAI = "; the endpoint speaks A2A: use executor.kind a2a, with a2a.card_url",
		"; the endpoint speaks the API of OpenAI: use executor.kind openai, with openai.base_url and openai.model"
	says := func(code int, body string) nethttp.Handler {
		return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})
	}
	for name, c := range map[string]struct {
		server nethttp.Handler
		want   string // the end of the error
	}{
		"the Go SDK":           {a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(noAgent{})), a2aKind},
		"JSON-RPC with 200":    {says(200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`), a2aKind},
		"JSON-RPC with 400":    {says(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}`), a2aKind},
		"A2A over HTTP+JSON":   {says(404, `{"error":{"code":404,"status":"NOT_FOUND","message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"METHOD_NOT_FOUND","domain":"a2a-protocol.org"}]}}`), a2aKind},
		"OpenAI":               {says(401, `{"error":{"message":"You didn't provide an API key.","type":"invalid_request_error","param":null,"code":null}}`), openAI},
		"a model that answers": {says(200, `{"id":"c","object":"chat.completion","choices":[]}`), openAI},
		"Responses":            {says(200, `{"id":"r","object":"response","output":[]}`), openAI},
		"an agent's error":     {says(400, `{"error":"no"}`), `{"error":"no"}`},
		"another error":        {says(400, `{"error":{"message":"no"}}`), `{"error":{"message":"no"}}`},
		"a crash":              {says(500, `{"error":{"message":"no"}}`), `{"error":{"message":"no"}}`},
		"a bad answer":         {says(200, `{"answer":42}`), "needs one of type, events, text"},
		"a bad event":          {says(200, `{"type":"dance","jsonrpc":"2.0"}`), "type: must be one of"},
		"no JSON":              {says(200, `hello`), ""},
	} {
		_, err := execute(t, agentServer(t, http.Options{}, c.server.ServeHTTP))
		require.ErrorContains(t, err, c.want, name)
		if c.want != a2aKind && c.want != openAI {
			require.NotContains(t, err.Error(), "executor.kind", name)
		}
	}
}
