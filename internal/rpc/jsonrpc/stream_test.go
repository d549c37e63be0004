package jsonrpc_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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

// withoutIDs is what a client of 0.1 reads: a client in JavaScript overlooks events that do not begin with their data.
func withoutIDs(frames []string) []string {
	var bare []string
	for _, f := range frames {
		bare = append(bare, "-"+strings.TrimLeft(f, "0123456789-"))
	}
	return bare
}

// TestSendStream shows what the stream of a message, and the stream of its repetition, has.
func TestSendStream(t *testing.T) {
	t.Parallel()
	run := task.Event{Kind: task.EventRun, Run: &task.RunNote{}}
	for _, tt := range []struct {
		name  string
		path  string // the common endpoint by default
		does  []task.Event
		want  []string
		again map[string][]string // by version
	}{
		{
			// An event that clients do not see takes a seq and no frame.
			name: "a task", does: []task.Event{status(task.StateWorking), run, chunk("x"), chunk("y"), status(task.StateCompleted)},
			want:  []string{"1 task submitted", "2 working", "4 artifact x", "5 artifact y", "6 completed final"},
			again: map[string][]string{"0.1": {"6 completed final"}, "0.3": {"- task completed", "6 completed final"}, "1.0": {"6 task completed"}},
		},
		{
			// Many clients read a stream to its end. Only a message of theirs resumes the task.
			name: "a question", does: []task.Event{status(task.StateInputRequired)},
			want: []string{"1 task submitted", "2 input-required final"},
			again: map[string][]string{
				"0.1": {"2 input-required final"}, "0.3": {"- task input-required", "2 input-required final"}, "1.0": {"2 task input-required"},
			},
		},
		{
			name: "a bare message", path: "/agents/other", does: []task.Event{direct("hello")}, want: []string{"2 message"},
			again: map[string][]string{"0.1": {"2 completed final"}, "0.3": {"2 message"}, "1.0": {"2 message"}},
		},
		{
			// A bare message is not possible any more: the client has seen the task.
			name: "no bare message", path: "/agents/other", does: []task.Event{status(task.StateWorking), direct("hello")},
			want: []string{"1 task submitted", "2 working", "3 completed final"},
		},
	} {
		for version, request := range streamOf {
			t.Run(tt.name+" in "+version, func(t *testing.T) {
				t.Parallel()
				s := serveStreams(t, options{})
				open := func() *client {
					return s.openAt(t, cmp.Or(tt.path, "/"), request, "Idempotency-Key", "k")
				}
				want, again := in(version, tt.want), tt.again[version]
				if version == "0.1" && tt.name == "a bare message" { // it has none
					want = again
				}
				c := open()
				id := wait(t, s.created)
				s.log.Add(id, tt.does[0])
				if version == "0.1" {
					want, again = withoutIDs(want), withoutIDs(again)
				}
				first := min(2, len(want))
				c.expect(t, want[:first]...)
				s.log.Add(id, tt.does[1:]...)
				c.expect(t, want[first:]...)
				c.ends(t)
				if tt.again != nil {
					c = open()
					c.expect(t, again...)
					c.ends(t)
				}
				s.idle(t)
			})
		}
	}
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		before   []task.Event // after the message, which has seq 1
		last     string       // Last-Event-ID
		then     []task.Event
		want     []string
		v01, v10 []string // instead of want
	}{
		{
			name: "a working task", before: []task.Event{status(task.StateWorking), chunk("x"), chunk("y")},
			then: []task.Event{chunk("z"), status(task.StateFailed)},
			want: []string{"4 task working", "5 artifact z", "6 failed final"},
			// Only the end of the opening has an id: a client that lost the end gets the whole opening again.
			v01: []string{"- working", "4 artifact xy", "5 artifact z", "6 failed final"},
		},
		{
			name: "a task that has ended", before: []task.Event{status(task.StateWorking), chunk("x"), status(task.StateCompleted)},
			want: []string{"- task completed", "4 completed final"}, v01: []string{"4 completed final"}, v10: []string{"- error -32004"},
		},
		{
			// Streams of 1.0 go on until the task has ended.
			name: "a parked task", before: []task.Event{status(task.StateAuthRequired)},
			then: []task.Event{says("Rome"), status(task.StateSubmitted), status(task.StateInputRequired), status(task.StateCanceled)},
			want: []string{"- task auth-required", "2 auth-required final"}, v01: []string{"2 input-required final"},
			v10: []string{"2 task auth-required", "4 submitted", "5 input-required", "6 canceled"},
		},
		{
			name: "from an id", last: "2", before: []task.Event{status(task.StateWorking), chunk("x"), chunk("y")},
			then: []task.Event{status(task.StateCompleted)}, want: []string{"3 artifact x", "4 artifact y", "5 completed final"},
		},
		{
			name: "from the beginning to the end", last: "0", before: []task.Event{status(task.StateWorking), status(task.StateCompleted)},
			want: []string{"2 working", "3 completed final"},
		},
		{
			name: "from the last id of a running task", last: "2", before: []task.Event{status(task.StateWorking)},
			then: []task.Event{status(task.StateCompleted)}, want: []string{"3 completed final"},
		},
		{name: "from the last id of a task that has ended", last: "2", before: []task.Event{status(task.StateRejected)}},
		{
			name: "from the last id of a parked task", last: "2", before: []task.Event{status(task.StateInputRequired)},
			then: []task.Event{says("Rome"), status(task.StateSubmitted), status(task.StateCompleted)}, v10: []string{"4 submitted", "5 completed"},
		},
		{
			name: "from an id that the log has not reached", last: "99", before: []task.Event{status(task.StateWorking)},
			then: []task.Event{status(task.StateCompleted)}, want: []string{"2 task working", "3 completed final"},
		},
		{
			// Like a stream without the header: the server does not know what the client has seen.
			name: "from an id that the log of an ended task has not reached", last: "99", before: []task.Event{status(task.StateCompleted)},
			want: []string{"- task completed", "2 completed final"}, v01: []string{"2 completed final"}, v10: []string{"- error -32004"},
		},
		{
			name: "past a question that was answered", last: "1",
			before: []task.Event{status(task.StateInputRequired), says("Rome"), status(task.StateSubmitted)},
			then:   []task.Event{status(task.StateWorking), status(task.StateInputRequired), status(task.StateCompleted)},
			// At most one status of a stream is final, and it is the last.
			want: []string{"2 input-required", "4 submitted", "5 working", "6 input-required final"},
			v10:  []string{"2 input-required", "4 submitted", "5 working", "6 input-required", "7 completed"},
		},
		{
			name: "up to a second question", last: "1",
			before: []task.Event{status(task.StateInputRequired), says("Rome"), status(task.StateSubmitted), status(task.StateInputRequired)},
			then:   []task.Event{status(task.StateCanceled)},
			want:   []string{"2 input-required", "4 submitted", "5 input-required final"},
			v10:    []string{"2 input-required", "4 submitted", "5 input-required", "6 canceled"},
		},
		{
			name: "a bare message later", before: []task.Event{direct("hello")},
			want: []string{"- task completed", "2 completed final"}, v01: []string{"2 completed final"}, v10: []string{"- error -32004"},
		},
	} {
		for version, own := range map[string][]string{"0.1": tt.v01, "0.3": nil, "1.0": tt.v10} {
			t.Run(tt.name+" in "+version, func(t *testing.T) {
				t.Parallel()
				want := own
				if own == nil {
					want = in(version, tt.want)
				}
				if version == "0.1" && tt.last == "" {
					want = withoutIDs(want)
				}
				s := serveStreams(t, options{})
				id := s.log.Task(version, tt.before...)
				body := subscribe(id)
				if version == "1.0" {
					body = subscribe10(id)
				}
				var headers []string
				if tt.last != "" {
					headers = []string{"Last-Event-ID", tt.last}
				}
				c := s.open(t, body, headers...)
				if tt.last == "" {
					c.expect(t, want[0]) // the snapshot
					want = want[1:]
				}
				s.log.Add(id, tt.then...)
				c.expect(t, want...)
				c.ends(t)
				s.idle(t)
			})
		}
	}
}

func TestStreamDocumentIsOneLine(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	params := "{\"message\":{\"messageId\":\"m\",\"role\":\"user\",\"metadata\":{\r\n  \"a\":\n\n 1.0,\t\"b\": \"line\\none\\r\\u2028\"\r},\n" +
		"\"parts\":[{\"kind\":\"data\",\"data\":{\n\"k\" : [\r\n1 ,\n2]\n}}]},\"metadata\":{\n\n\"c\":\r[\n]}}"
	c := s.open(t, request(`"s"`, "message/stream", params))
	id := wait(t, s.created)
	f := c.next(t)
	require.Contains(t, string(f.answer.Result), `{"k":[1,2]}`)
	require.Contains(t, string(f.answer.Result), `{"a":1.0,"b":"line\none\r`)
	s.log.Add(id, task.Event{Kind: task.EventStatus, State: task.StateCompleted, Metadata: []byte("{\n\"x\":\r\n1}")})
	require.Contains(t, string(c.next(t).answer.Result), `{"x":1}`)
	c.ends(t)
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const every = 20 * time.Second
		s := serveStreams(t, options{KeepAlive: every, piped: true})
		c := s.open(t, streamOf["0.3"])
		began := time.Now()
		c.expect(t, "1 task submitted", ": keep-alive", ": keep-alive", ": keep-alive")
		require.Equal(t, 3*every, waittest.Elapsed(began))
		s.log.Add(<-s.created, status(task.StateCompleted))
		c.expect(t, "2 completed final")
		c.ends(t)

		// Keep-alives are also sent before the first event.
		c = s.openAt(t, "/agents/other", streamOf["0.3"])
		c.expect(t, ": keep-alive")
		s.hub.Close()
		c.ends(t)
	})
}

func TestStreamEndsWhenClientLeaves(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{MaxStreams: 1})
	id := s.log.Task("0.3", status(task.StateWorking))
	for range 3 {
		c := s.openWhenFree(t, subscribe(id))
		c.expect(t, "2 task working")
		require.Equal(t, 1, s.hub.Topics())
		require.NoError(t, c.Body.Close())
		s.idle(t)
	}
	require.Empty(t, s.logs.String(), "a client that leaves is no error")
}

func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{MaxStreams: 2})
	id := s.log.Task("0.3", status(task.StateWorking))
	first, second := s.open(t, subscribe(id)), s.open(t, subscribe(id))
	for body, code := range map[string]int{subscribe(id): -32603, streamOf["0.3"]: -32603, streamOf["0.1"]: -32010} {
		a := s.post(t, body)
		require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
		require.Equal(t, "5", a.Header.Get("Retry-After"))
		require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		require.Equal(t, code, a.Error.Code)
	}
	require.Empty(t, s.created, "a refused request has no effect")
	require.Nil(t, s.post(t, request("1", "tasks/get", `{"id":"`+id.String()+`"}`)).Error, "other requests still work")
	s.log.Add(id, status(task.StateCompleted))
	for _, c := range []*client{first, second} {
		c.expect(t, "2 task working", "3 completed final")
		c.ends(t)
	}
	s.openWhenFree(t, subscribe(id))
}

func TestAnswerToClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		big := rpctest.Sample("0.3")
		big.Artifacts = []task.Artifact{{ID: "a", Parts: []task.Part{task.Text(strings.Repeat("x", 64<<10))}}}
		s := serve(t, options{fake: &rpctest.Recorder{Task: big}, BodyTimeout: time.Minute, piped: true})
		body := call("tasks/get")
		c := rpctest.Dial(t, s.Server, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body))
		waittest.Advance(time.Minute)
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Less(t, len(got), 64<<10, "the server has closed the connection")
	})
}

func TestFailedStreamEndsWithError(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	s.log.ReadErr = errors.New("password=hunter2")
	id := s.log.Task("0.3", status(task.StateWorking), status(task.StateWorking), status(task.StateWorking))
	// The live stream puts the newest event into the topic's ring. The resumed stream is behind the ring, so it reads the
	// older events from the log, which fails.
	live := s.open(t, subscribe(id))
	live.expect(t, "4 task working")
	c := s.open(t, subscribe(id), "Last-Event-ID", "1")
	c.expect(t, "- error -32603")
	c.ends(t)
	require.Equal(t, 1, strings.Count(s.logs.String(), "level="))
	require.Contains(t, s.logs.String(), "hunter2")
}

func TestPanicBecomesStreamEvent(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{MaxStreams: 1})
	c := s.open(t, streamOf["0.3"])
	id := wait(t, s.created)
	c.expect(t, "1 task submitted")
	s.log.Add(id, task.Event{Kind: task.EventArtifact}) // an artifact event without an artifact
	c.expect(t, "- error -32603")
	c.ends(t)
	require.Contains(t, s.logs.String(), "panic")
	s.openWhenFree(t, streamOf["0.3"])
}

// Early clients of 0.1 tell events apart by their names.
func TestEventNames(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{EventNames: true})
	for version, want := range map[string][]string{
		"0.1": {
			"- task_status_update working", "- task_artifact_update artifact x", "- task_artifact_update artifact y",
			"- task_status_update completed final",
		},
		"0.3": {"3 task working", "4 artifact y", "5 completed final"},
	} {
		id := s.log.Task(version, status(task.StateWorking), chunk("x"))
		c := s.open(t, subscribe(id))
		c.expect(t, want[0])
		s.log.Add(id, chunk("y"), status(task.StateCompleted))
		c.expect(t, want[1:]...)
		c.ends(t)
	}
}

// When a task takes over an id, its event ids continue after those of the earlier task, wherever they appear.
func TestEventIDsOfReopenedTask(t *testing.T) {
	t.Parallel()
	const inside = `"` + dispatch.ResumeURI + `":{"eventId":"`
	s := serveStreams(t, options{Agents: []dispatch.Agent{{Name: "demo", Extensions: []dispatch.Extension{{URI: dispatch.ResumeURI}}}}})
	s.log.Base = 100
	id := s.log.Task("1.0", status(task.StateWorking), chunk("x"))
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
	agents := []dispatch.Agent{{Name: "demo", Extensions: []dispatch.Extension{{URI: dispatch.ResumeURI}}}}
	for version, body := range streamOf {
		for _, named := range []string{"", dispatch.ResumeURI} {
			s := serveStreams(t, options{Agents: agents})
			c := s.open(t, body, "A2A-Extensions", named)
			s.log.Add(wait(t, s.created), chunk("x"),
				task.Event{Kind: task.EventStatus, State: task.StateCompleted, Metadata: []byte(`{"a":1}`)})
			wants := named != "" && version != "0.1" // 0.1 has no extensions
			for _, before := range []string{"", "", `"a":1,`} {
				f := c.next(t)
				metadata := `"metadata":{` + before + `"` + dispatch.ResumeURI + `":{"eventId":"` + f.whole + `"}}`
				require.Equal(t, wants, strings.Contains(string(f.answer.Result), metadata), "%s", f.answer.Result)
			}
			c.ends(t)
		}
	}
}
