package resumeurl_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/resumeurl"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
)

// tasks has the task with the id one, of an agent that is configured or not.
type tasks struct {
	agent            string
	refuses, expires error // answers of Resumable, and of Resume

	mu   sync.Mutex
	came []*task.ResumeRequest
}

var one = task.ID{0x01, 0x94, 15: 1}

func (f *tasks) Resumable(_ context.Context, id task.ID, _ int) (agent string, err error) {
	if id != one {
		return "", task.NotFound
	}
	return f.agent, f.refuses
}

func (f *tasks) Resume(_ context.Context, r *task.ResumeRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = append(f.came, r)
	return f.expires
}

// rig is the public server with resume URLs. The agent web accepts GET, and the agent post does not.
type rig struct {
	t *testing.T
	*httptest.Server
	*tasks
	tokens *task.Tokens
	log    rpctest.Logs
}

func newRig(t *testing.T, of *tasks, set ...func(*resumeurl.Options)) *rig {
	t.Helper()
	f := &rig{t: t, tasks: of, tokens: task.NewTokens([][]byte{[]byte("a key of thirty-two bytes.......")})}
	log := slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := resumeurl.Options{
		Tokens: f.tokens, Tasks: of, NewID: func() task.ID { return task.ID{7} }, Timeout: time.Minute, Log: log,
		Agents: map[string]resumeurl.Agent{"web": {ByGet: true, MaxBody: 8}, "post": {MaxBody: 128 << 10}},
	}
	for _, change := range set {
		change(&o)
	}
	f.Server = httptest.NewServer(rpc.New(rpc.Options{Mounts: []rpc.Mount{{Path: "/resume", Handler: resumeurl.New(o)}}, Log: log}))
	t.Cleanup(f.Close)
	return f
}

func (f *rig) path() string { return task.ResumePath + f.tokens.Make(one, 3) }

// do sends a request, and checks what holds for every answer. It returns the status and the text.
func (f *rig) do(method, path, body string, headers ...string) (a answer, text string) {
	f.t.Helper()
	res := rpctest.Do(f.t, f.Server, method, path, body, headers...)
	require.Equal(f.t, "no-referrer", res.Header.Get("Referrer-Policy"))
	require.Equal(f.t, "no-store", res.Header.Get("Cache-Control"))
	require.Equal(f.t, "nosniff", res.Header.Get("X-Content-Type-Options"))
	require.Equal(f.t, "text/plain; charset=utf-8", res.Header.Get("Content-Type"))
	require.Empty(f.t, res.Header.Get("Access-Control-Allow-Origin"))
	return answer{res.StatusCode, res.Header}, strings.TrimSpace(string(res.Content))
}

type answer struct {
	StatusCode int
	Header     http.Header
}

func TestRequestsThatResume(t *testing.T) {
	t.Parallel()
	f := newRig(t, &tasks{agent: "web"})
	res, text := f.do("POST", f.path()+"?code=1&x=<b>", "a body", "Content-Type", "text/x", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "Authorization", "Bearer nonsense")
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.Equal(t, "Thank you. The task goes on, and you can close this window.", text)
	res, _ = f.do("GET", f.path()+"?code=2", "")
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	res, _ = f.do("POST", f.path(), "12345678")
	require.Equal(t, http.StatusAccepted, res.StatusCode, "the limit itself is allowed")
	want := []*task.Resumed{
		{Method: "POST", Query: "code=1&x=<b>", ContentType: "text/x", Body: []byte("a body")},
		{Method: "GET", Query: "code=2"},
		{Method: "POST", Body: []byte("12345678")},
	}
	require.Len(t, f.came, len(want))
	for i, r := range f.came {
		require.Equal(t, want[i], r.Content)
		host, _, err := net.SplitHostPort(r.Address)
		require.NoError(t, err)
		require.Equal(t, []any{task.ID{7}, one, 3, "web", "127.0.0.1"}, []any{r.ID, r.Task, r.Turn, r.Agent, host})
	}
}

func TestMethodsThatDoNotResume(t *testing.T) {
	t.Parallel()
	for agent, allowed := range map[string]string{"web": "GET, POST", "post": "POST"} {
		f := newRig(t, &tasks{agent: agent})
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "post"} {
			if strings.Contains(allowed, method) {
				continue
			}
			res, _ := f.do(method, f.path(), "")
			require.Equal(t, http.StatusMethodNotAllowed, res.StatusCode, method)
			require.Equal(t, allowed, res.Header.Get("Allow"))
		}
		for _, header := range []string{"Sec-Purpose", "Purpose", "X-Moz"} {
			res, _ := f.do(strings.Split(allowed, ",")[0], f.path(), "", header, "prefetch;prerender")
			require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, header)
		}
		require.Empty(t, f.came)
	}
}

// Somebody who guesses cannot tell a forged token from one of a task that does not exist, or of an agent that is no longer configured.
func TestUnknownURLsAreAlike(t *testing.T) {
	t.Parallel()
	known, gone := newRig(t, &tasks{agent: "web"}), newRig(t, &tasks{agent: "removed"})
	foreign := task.NewTokens([][]byte{[]byte("another key of the same length..")})
	for name, from := range map[string]struct {
		*rig
		path string
	}{
		"no token":       {known, "/resume/"},
		"garbage":        {known, "/resume/garbage"},
		"a longer path":  {known, known.path() + "/x"},
		"another server": {known, task.ResumePath + foreign.Make(one, 3)},
		"no such task":   {known, task.ResumePath + known.tokens.Make(task.ID{2}, 1)},
		"no such agent":  {gone, gone.path()},
	} {
		for _, method := range []string{"GET", "POST", "PUT"} {
			res, text := from.do(method, from.path, "x")
			require.Equal(t, http.StatusNotFound, res.StatusCode, name)
			require.Equal(t, "There is nothing here.", text, name)
			require.Empty(t, res.Header.Get("Allow"), name)
		}
		require.Empty(t, from.came, name)
	}
}

// A refusal says to people what happened, and nothing of the cause.
func TestRefusals(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial tcp 10.1.2.3: relation tasks is broken")
	for name, c := range map[string]struct {
		err    error
		status int
		text   string
		after  string
		logged bool
	}{
		"dead":      {task.Errorf(task.Terminal, "This link has expired."), http.StatusGone, "This link has expired.", "", false},
		"dead kind": {task.Terminal, http.StatusGone, "This link is not valid any more.", "", false},
		"unknown":   {task.NotFound, http.StatusNotFound, "There is nothing here.", "", false},
		"away":      {&task.Error{Kind: task.Unavailable, Msg: "db", Cause: secret}, http.StatusServiceUnavailable, "This does not work now. Try again.", "1", false},
		"busy":      {&task.Error{Kind: task.Unavailable, RetryAfter: 2500 * time.Millisecond, Cause: secret}, http.StatusServiceUnavailable, "This does not work now. Try again.", "3", false},
		"limited":   {&task.Error{Kind: task.RateLimited}, http.StatusServiceUnavailable, "This does not work now. Try again.", "1", false},
		"broken":    {fmt.Errorf("resume: %w", secret), http.StatusInternalServerError, "Something went wrong here.", "", true},
	} {
		for when, of := range map[string]*tasks{"before the body": {agent: "web", refuses: c.err}, "after the body": {agent: "web", expires: c.err}} {
			f := newRig(t, of)
			res, text := f.do("POST", f.path()+"?code=hush", "hush")
			require.Equal(t, c.status, res.StatusCode, name+", "+when)
			require.Equal(t, c.text, text, name)
			require.Equal(t, c.after, res.Header.Get("Retry-After"), name)
			require.Equal(t, c.logged, strings.Contains(f.log.String(), secret.Error()), name)
			require.NotContains(t, f.log.String(), strings.TrimPrefix(f.path(), task.ResumePath))
			require.NotContains(t, f.log.String(), "hush")
			require.Len(t, f.came, map[string]int{"after the body": 1}[when])
		}
	}
}

func TestBodiesThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newRig(t, &tasks{agent: "web"})
	res, text := f.do("POST", f.path(), "123456789")
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	require.Equal(t, "the limit is 8 bytes", text)
	for what, c := range map[string]struct {
		sent   string
		hangUp bool
		status int
	}{
		"of unknown length":  {"Transfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n", false, http.StatusRequestEntityTooLarge},
		"that does not come": {"Content-Length: 8\r\n\r\n123", false, http.StatusRequestTimeout},
		"that breaks off":    {"Content-Length: 8\r\n\r\n123", true, http.StatusBadRequest},
	} {
		at := f
		if c.status == http.StatusRequestTimeout {
			at = newRig(t, &tasks{agent: "web"}, func(o *resumeurl.Options) { o.Timeout = 100 * time.Millisecond })
		}
		conn := rpctest.Dial(t, at.Server, "POST "+at.path()+" HTTP/1.1\r\nHost: x\r\n"+c.sent)
		if c.hangUp {
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, what)
		_ = res.Body.Close()
		require.Equal(t, c.status, res.StatusCode, "a body "+what)
		require.NoError(t, conn.Close())
		require.Empty(t, at.came)
		require.NotContains(t, at.log.String(), strings.TrimPrefix(at.path(), task.ResumePath))
	}
}

// A server without memory for a large body says so, and takes it later. The bytes of a request are free after it.
func TestBodiesHoldMemory(t *testing.T) {
	t.Parallel()
	budgets := limit.NewBudgets(16 << 20)
	budgets.Requests.Large.Patience = time.Millisecond
	f := newRig(t, &tasks{agent: "post"}, func(o *resumeurl.Options) { o.Memory = budgets })
	large := strings.Repeat("x", 128<<10)
	all := budgets.Requests.Large.Stat().Size
	require.NoError(t, budgets.Requests.Large.Take(t.Context(), limit.Holder{}, all))
	res, _ := f.do("POST", f.path(), large)
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	require.Empty(t, f.came)
	budgets.Requests.Large.Give(limit.Holder{}, all)
	res, _ = f.do("POST", f.path(), large)
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	f.Close() // after the handler
	require.Zero(t, budgets.Requests.Stat().Used)
}
