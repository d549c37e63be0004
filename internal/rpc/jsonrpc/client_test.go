package jsonrpc_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// streams is a server with a real engine and a real hub, on a log in memory.
type streams struct {
	*server
	log     *rpctest.Log
	hub     *hub.Hub
	created chan task.ID
	closed  chan struct{} // receives when a stream ends
}

func serveStreams(t testing.TB, o options) *streams {
	t.Helper()
	l := rpctest.NewLog()
	s := &streams{log: l, hub: l.Hub, created: l.Created, closed: make(chan struct{}, 100)}
	o.Engine = l.Engine()
	o.Observer.StreamOpened = func(string) func() { return func() { s.closed <- struct{}{} } }
	s.server = serve(t, o)
	t.Cleanup(l.Hub.Close) // before the server closes, since that waits for streams
	return s
}

// wait receives from a channel.
func wait[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	return waittest.Within(t, "a signal", from)
}

// Short names for the agent's events.
var says, status, chunk, direct = rpctest.Says, rpctest.Status, rpctest.Chunk, rpctest.Direct

// client reads a stream frame by frame.
type client struct {
	*http.Response
	lines *bufio.Reader
	id    string // of the request; every document repeats it
}

// frame is one event, or a comment.
type frame struct {
	name    string
	whole   string // the id, with its mark
	id      int64  // 0 without an id
	comment string
	answer  *answer
}

var streamOf = map[string]string{
	"0.1": call("tasks/sendSubscribe"), "0.3": call("message/stream"), "1.0": call("SendStreamingMessage"),
}

// subscribe follows a task, in the version of the task.
func subscribe(id task.ID) string {
	return request(`"s"`, "tasks/resubscribe", `{"id":"`+id.String()+`"}`)
}

func subscribe10(id task.ID) string {
	return request(`"s"`, "SubscribeToTask", `{"id":"`+id.String()+`"}`)
}

// open posts a request and reads only the headers.
func (s *streams) open(t testing.TB, body string, headers ...string) *client {
	t.Helper()
	return s.openAt(t, "/", body, headers...)
}

func (s *streams) openAt(t testing.TB, path, body string, headers ...string) *client {
	t.Helper()
	c := s.request(t, path, body, headers...)
	require.Equal(t, http.StatusOK, c.StatusCode)
	require.Equal(t, "text/event-stream", c.Header.Get("Content-Type"))
	require.Equal(t, "no-cache", c.Header.Get("Cache-Control"))
	require.Equal(t, "no", c.Header.Get("X-Accel-Buffering"))
	require.Empty(t, c.Header.Get("Content-Length"))
	return c
}

func (s *streams) request(t testing.TB, path, body string, headers ...string) *client {
	t.Helper()
	resp := s.begin(t, path, strings.NewReader(body), headers...)
	t.Cleanup(func() { _ = resp.Body.Close() })
	var env struct{ ID json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(body), &env))
	return &client{Response: resp, lines: bufio.NewReader(resp.Body), id: string(env.ID)}
}

// next reads one frame strictly: at most one name, at most one id, one line of data, an empty line.
func (c *client) next(t testing.TB) frame {
	t.Helper()
	var f frame
	line := c.line(t)
	if strings.HasPrefix(line, ": ") {
		f.comment = line[2:]
	} else {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			f.name = name
			line = c.line(t)
		}
		if digits, ok := strings.CutPrefix(line, "id: "); ok {
			var err error
			f.whole = digits
			number, _, _ := strings.Cut(digits, "-")
			f.id, err = strconv.ParseInt(number, 10, 64)
			require.NoError(t, err)
			line = c.line(t)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		require.True(t, ok, "%q", line)
		f.answer = decode(t, []byte(data))
		require.Equal(t, c.id, string(f.answer.ID))
	}
	require.Empty(t, c.line(t))
	return f
}

func (c *client) line(t testing.TB) string {
	t.Helper()
	line, err := c.lines.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSuffix(line, "\n")
}

// ends expects the stream to end cleanly.
func (c *client) ends(t testing.TB) {
	t.Helper()
	rest, err := io.ReadAll(c.lines)
	require.NoError(t, err)
	require.Empty(t, string(rest))
}

// idle waits until no stream is subscribed to anything.
func (s *streams) idle(t testing.TB) {
	t.Helper()
	waittest.Eventually(t, "no topics are left", func() error { return waittest.Unless(s.hub.Topics() == 0, "%d are left", s.hub.Topics()) })
}

// openWhenFree opens a stream as soon as there is a free place for one.
func (s *streams) openWhenFree(t testing.TB, body string) (c *client) {
	t.Helper()
	waittest.Eventually(t, "a place for a stream is free", func() error {
		c = s.request(t, "/", body)
		return waittest.Unless(c.StatusCode == http.StatusOK, "%s", c.Status)
	})
	return c
}

// shown describes a frame in short: its seq, whether it is a task or a message, its state or its artifact, and whether it is final.
// Versions have other words for the same: the codecs' tests have them.
func shown(f frame) string {
	if f.comment != "" {
		return ": " + f.comment
	}
	seq := "-"
	if f.id > 0 {
		seq = strconv.FormatInt(f.id, 10)
	}
	if f.answer.Error != nil {
		return seq + " error " + strconv.Itoa(f.answer.Error.Code)
	}
	// A document of 1.0 has one member, named after its kind.
	var wrapped map[string]json.RawMessage
	document := f.answer.Result
	wrapper := ""
	if err := json.Unmarshal(document, &wrapped); err == nil && len(wrapped) == 1 {
		for name, inner := range wrapped {
			wrapper, document = name, inner
		}
	}
	var r struct {
		Kind     string
		Status   struct{ State string }
		Final    *bool
		Parts    []any
		Artifact *struct {
			Append bool
			Parts  []struct{ Text string }
		}
	}
	if err := json.Unmarshal(document, &r); err != nil {
		return err.Error()
	}
	words := []string{seq}
	if f.name != "" {
		words = append(words, f.name)
	}
	if kind := cmp.Or(wrapper, r.Kind); kind == "task" || kind == "message" {
		words = append(words, kind)
	}
	if r.Status.State != "" {
		words = append(words, strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(r.Status.State, "TASK_STATE_")), "_", "-"))
	}
	if r.Artifact != nil {
		words = append(words, "artifact")
		for _, p := range r.Artifact.Parts {
			words = append(words, p.Text)
		}
	}
	if r.Final != nil && *r.Final {
		words = append(words, "final")
	}
	return strings.Join(words, " ")
}

// expect reads as many frames as wanted, and compares them.
func (c *client) expect(t testing.TB, want ...string) {
	t.Helper()
	for _, w := range want {
		require.Equal(t, w, shown(c.next(t)))
	}
}

// in is what a client of a version reads of frames that are written as those of 0.3.
func in(version string, frames []string) []string {
	var own []string
	for _, f := range frames {
		switch version {
		case "0.1":
			f = strings.Replace(f, " task ", " ", 1)
		case "1.0":
			f = strings.TrimSuffix(f, " final")
		}
		own = append(own, f)
	}
	return own
}
