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

	"github.com/holdfast-a2a/holdfast/internal/task"
)

var (
	stream01 = request("1", "tasks/sendSubscribe", calls["0.1"]["tasks/sendSubscribe"])
	stream03 = request("1", "message/stream", calls["0.3"]["message/stream"])
)

func TestSendStream(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		stream01: {"1 submitted", "2 working", "4 artifact x", "5 artifact y", "6 completed final"},
		stream03: {
			"1 task submitted", "2 status-update working", "4 artifact-update artifact x", "5 artifact-update artifact y",
			"6 status-update completed final",
		},
	} {
		s := serveStreams(t, options{})
		c := s.open(t, body)
		id := wait(t, s.created)
		c.expect(t, want[0])
		s.add(id, status(task.StateWorking))
		c.expect(t, want[1])
		// An event that clients do not see takes a seq and no frame.
		s.add(id, task.Event{Kind: task.EventRun, Run: &task.RunNote{}}, chunk("x"), chunk("y"))
		c.expect(t, want[2], want[3])
		s.add(id, status(task.StateCompleted))
		c.expect(t, want[4])
		c.ends(t)
		s.idle(t)
	}
}

func TestStreamEndsWhenTaskSettles(t *testing.T) {
	t.Parallel()
	for _, state := range task.States {
		if !state.Settled() {
			continue
		}
		name := map[string]string{stream01: state.String(), stream03: state.String()}
		switch state { //nolint:exhaustive // the two that 0.1 has no name for
		case task.StateRejected:
			name[stream01] = "failed"
		case task.StateAuthRequired:
			name[stream01] = "input-required"
		}
		for body, kinds := range map[string][]string{stream01: {"", ""}, stream03: {"task ", "status-update "}} {
			s := serveStreams(t, options{})
			c := s.open(t, body)
			id := wait(t, s.created)
			c.expect(t, "1 "+kinds[0]+"submitted")
			s.add(id, status(state))
			c.expect(t, "2 "+kinds[1]+name[body]+" final")
			c.ends(t)
		}
	}
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before []task.Event // after the message, which has seq 1
		last   string       // Last-Event-ID
		then   []task.Event
		v01    []string
		v03    []string
	}{
		{
			name: "a working task", before: []task.Event{status(task.StateWorking), chunk("x"), chunk("y")},
			then: []task.Event{chunk("z"), status(task.StateFailed)},
			// Only the end of the opening has an id: a client that lost the end gets the whole opening again.
			v01: []string{"- working", "4 artifact xy", "5 artifact z", "6 failed final"},
			v03: []string{"4 task working", "5 artifact-update artifact z", "6 status-update failed final"},
		},
		{
			name: "a task that has ended", before: []task.Event{status(task.StateWorking), chunk("x"), status(task.StateCompleted)},
			v01: []string{"4 completed final"},
			v03: []string{"- task completed", "4 status-update completed final"},
		},
		{
			name: "a parked task", before: []task.Event{status(task.StateInputRequired)},
			v01: []string{"2 input-required final"},
			v03: []string{"- task input-required", "2 status-update input-required final"},
		},
		{
			name: "from an id", last: "2", before: []task.Event{status(task.StateWorking), chunk("x"), chunk("y")},
			then: []task.Event{status(task.StateCompleted)},
			v01:  []string{"3 artifact x", "4 artifact y", "5 completed final"},
			v03:  []string{"3 artifact-update artifact x", "4 artifact-update artifact y", "5 status-update completed final"},
		},
		{
			name: "from an id up to the end", last: "2", before: []task.Event{status(task.StateWorking), status(task.StateCompleted)},
			v01: []string{"3 completed final"},
			v03: []string{"3 status-update completed final"},
		},
		{
			name: "from the beginning", last: "0", before: []task.Event{status(task.StateWorking), status(task.StateCompleted)},
			v01: []string{"2 working", "3 completed final"},
			v03: []string{"2 status-update working", "3 status-update completed final"},
		},
		{
			name: "from the last id of a running task", last: "2", before: []task.Event{status(task.StateWorking)},
			then: []task.Event{status(task.StateCompleted)},
			v01:  []string{"3 completed final"},
			v03:  []string{"3 status-update completed final"},
		},
		{name: "from the last id of a task that has ended", last: "2", before: []task.Event{status(task.StateCompleted)}},
		{name: "from the last id of a parked task", last: "2", before: []task.Event{status(task.StateAuthRequired)}},
		{
			name: "from an id that the log has not reached", last: "99", before: []task.Event{status(task.StateWorking)},
			then: []task.Event{status(task.StateCompleted)},
			v01:  []string{"2 working", "3 completed final"},
			v03:  []string{"2 task working", "3 status-update completed final"},
		},
		{
			name: "from an id that the log of an ended task has not reached", last: "99", before: []task.Event{status(task.StateCompleted)},
			v01: []string{"2 completed final"},
			v03: []string{"- task completed", "2 status-update completed final"},
		},
		{
			name: "past a question that was answered", last: "1",
			before: []task.Event{status(task.StateInputRequired), says("Rome"), status(task.StateSubmitted)},
			then:   []task.Event{status(task.StateWorking), status(task.StateInputRequired)},
			// At most one status of a stream is final, and it is the last.
			v01: []string{"2 input-required", "4 submitted", "5 working", "6 input-required final"},
			v03: []string{"2 status-update input-required", "4 status-update submitted", "5 status-update working", "6 status-update input-required final"},
		},
		{
			name: "up to a second question", last: "1",
			before: []task.Event{status(task.StateInputRequired), says("Rome"), status(task.StateSubmitted), status(task.StateInputRequired)},
			v01:    []string{"2 input-required", "4 submitted", "5 input-required final"},
			v03:    []string{"2 status-update input-required", "4 status-update submitted", "5 status-update input-required final"},
		},
		{
			name: "a bare message later", before: []task.Event{direct("hello")},
			v01: []string{"2 completed final"},
			v03: []string{"- task completed", "2 status-update completed final"},
		},
	}
	for _, tt := range tests {
		for version, want := range map[string][]string{"0.1": tt.v01, "0.3": tt.v03} {
			t.Run(tt.name+" in "+version, func(t *testing.T) {
				t.Parallel()
				s := serveStreams(t, options{})
				id := s.task(version, tt.before...)
				var headers []string
				if tt.last != "" {
					headers = []string{"Last-Event-ID", tt.last}
				}
				c := s.open(t, subscribe(id), headers...)
				s.add(id, tt.then...)
				c.expect(t, want...)
				c.ends(t)
			})
		}
	}
}

func TestUnversionedSubscribeUsesVersionOfTask(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	old, young := s.task("0.1", status(task.StateCompleted)), s.task("0.3", status(task.StateCompleted))
	for _, tt := range []struct {
		id            task.ID
		path, version string
		want          string
	}{
		{old, "/", "", "2 completed final"},
		{young, "/", "", "- task completed"},
		{old, "/", "1.0", "2 completed final"},
		{old, "/", "0.3", "- task completed"},
		{young, "/", "0.1", "2 completed final"},
		{old, "/v0.3", "0.1", "- task completed"},
		{young, "/v0.1", "", "2 completed final"},
	} {
		s.openAt(t, tt.path, subscribe(tt.id), "A2A-Version", tt.version).expect(t, tt.want)
	}
}

func TestInvalidLastEventID(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	id := s.task("0.3", status(task.StateWorking))
	for _, last := range []string{"-1", "+1", "x", "1.5", "1e3", "99999999999999999999", "1 2", "0x1"} {
		a := s.post(t, subscribe(id), "Last-Event-ID", last)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		require.Equal(t, -32602, a.Error.Code, last)
		require.Contains(t, a.Error.Message, "Last-Event-ID")
	}
}

func TestSubscribeToUnknownTask(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	for _, path := range []string{"/", "/v0.1", "/v0.3"} {
		c := s.openAt(t, path, request("1", "tasks/resubscribe", `{"id":"nobody"}`))
		c.expect(t, "- error -32001")
		c.ends(t)
	}
}

func TestStreamToEndedTask(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	id := s.task("0.3", status(task.StateCompleted)).String()
	c := s.open(t, request("1", "message/stream", `{"message":{"taskId":"`+id+`",`+message03[1:]+`}`))
	c.expect(t, "- error -32602")
	c.ends(t)
	c = s.open(t, request("1", "tasks/sendSubscribe", `{"id":"`+id+`","message":`+message01+`}`))
	c.expect(t, "- error -32009")
	c.ends(t)
}

func TestSecondTurnOnStream(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	id := s.task("0.3", status(task.StateInputRequired))
	c := s.open(t, request("1", "message/stream", `{"message":{"taskId":"`+id.String()+`",`+message03[1:]+`}`))
	c.expect(t, "4 task submitted")
	s.add(id, status(task.StateWorking), status(task.StateCompleted))
	c.expect(t, "5 status-update working", "6 status-update completed final")
	c.ends(t)
}

func TestBareMessage(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{stream01: "2 completed final", stream03: "2 message"} {
		s := serveStreams(t, options{})
		c := s.openAt(t, "/agents/other", body)
		s.add(wait(t, s.created), direct("hello"))
		f := c.next(t)
		require.Equal(t, want, shown(f))
		require.Contains(t, string(f.answer.Result), "hello")
		c.ends(t)
	}
}

func TestAgentMayAnswerWithoutBareMessage(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		stream01: {"1 submitted", "2 working", "3 completed final"},
		stream03: {"1 task submitted", "2 status-update working", "3 status-update completed final"},
	} {
		s := serveStreams(t, options{})
		c := s.openAt(t, "/agents/other", body)
		id := wait(t, s.created)
		s.add(id, status(task.StateWorking))
		c.expect(t, want[:2]...)
		// A bare message is not possible any more: the client has seen the task.
		s.add(id, direct("hello"))
		c.expect(t, want[2])
		c.ends(t)
	}
}

func TestRepeatedRequestShowsFirstResult(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, body string
		end              task.Event
		first, again     []string
	}{
		{"0.1", "/", stream01, status(task.StateCompleted), []string{"1 submitted", "2 completed final"}, []string{"2 completed final"}},
		{
			"0.3", "/", stream03, status(task.StateCompleted),
			[]string{"1 task submitted", "2 status-update completed final"},
			[]string{"- task completed", "2 status-update completed final"},
		},
		{"a bare message in 0.1", "/agents/other", stream01, direct("hello"), []string{"2 completed final"}, []string{"2 completed final"}},
		{"a bare message in 0.3", "/agents/other", stream03, direct("hello"), []string{"2 message"}, []string{"2 message"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serveStreams(t, options{})
			c := s.openAt(t, tt.path, tt.body, "Idempotency-Key", "k")
			s.add(wait(t, s.created), tt.end)
			c.expect(t, tt.first...)
			c.ends(t)
			c = s.openAt(t, tt.path, tt.body, "Idempotency-Key", "k")
			c.expect(t, tt.again...)
			c.ends(t)
		})
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
	s.add(id, task.Event{Kind: task.EventStatus, State: task.StateCompleted, Metadata: []byte("{\n\"x\":\r\n1}")})
	require.Contains(t, string(c.next(t).answer.Result), `{"x":1}`)
	c.ends(t)
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{KeepAlive: 20 * time.Millisecond})
	c := s.open(t, stream03)
	id := wait(t, s.created)
	c.expect(t, "1 task submitted", ": keep-alive", ": keep-alive", ": keep-alive")
	s.add(id, status(task.StateCompleted))
	for {
		if f := shown(c.next(t)); f != ": keep-alive" {
			require.Equal(t, "2 status-update completed final", f)
			break
		}
	}
	c.ends(t)

	// Keep-alives are also sent before the first event.
	c = s.openAt(t, "/agents/other", stream03)
	c.expect(t, ": keep-alive")
}

func TestStreamEndsWhenClientLeaves(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{MaxStreams: 1})
	id := s.task("0.3", status(task.StateWorking))
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
	id := s.task("0.3", status(task.StateWorking))
	first, second := s.open(t, subscribe(id)), s.open(t, subscribe(id))
	for body, code := range map[string]int{subscribe(id): -32603, stream03: -32603, stream01: -32010} {
		a := s.post(t, body)
		require.Equal(t, http.StatusTooManyRequests, a.StatusCode)
		require.Equal(t, "5", a.Header.Get("Retry-After"))
		require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		require.Equal(t, code, a.Error.Code)
	}
	require.Empty(t, s.created, "a refused request has no effect")
	require.Nil(t, s.post(t, request("1", "tasks/get", `{"id":"`+id.String()+`"}`)).Error, "other requests still work")
	s.add(id, status(task.StateCompleted))
	for _, c := range []*client{first, second} {
		c.expect(t, "2 task working", "3 status-update completed final")
		c.ends(t)
	}
	s.openWhenFree(t, subscribe(id))
}

func TestSlowClientDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{WriteTimeout: 5 * time.Second})
	id := s.task("0.3", status(task.StateWorking))
	body := subscribe(id)
	slow := s.dial(t, "")
	require.NoError(t, slow.SetReadBuffer(4<<10))
	_, err := fmt.Fprintf(slow, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.hub.Topics() == 1 }, patience, time.Millisecond)
	quick := s.open(t, body)
	quick.expect(t, "2 task working")

	text := strings.Repeat("x", 64<<10)
	const chunks = 200 // far more than the kernel's socket buffers hold
	start := time.Now()
	go func() {
		for range chunks {
			s.add(id, chunk(text))
		}
	}()
	for i := range chunks {
		require.True(t, strings.HasPrefix(quick.line(t), fmt.Sprintf("id: %d-", i+3)))
		require.Contains(t, quick.line(t), text)
		require.Empty(t, quick.line(t))
	}
	t.Logf("the quick client had %d MiB in %v", chunks*len(text)>>20, time.Since(start))
	wait(t, s.closed) // the write deadline ends the slow stream
	s.add(id, status(task.StateCompleted))
	quick.expect(t, "203 status-update completed final")
	quick.ends(t)
	wait(t, s.closed)
	require.Empty(t, s.logs.String())
	s.idle(t)
}

func TestAnswerToClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	big := sample("0.3")
	big.Artifacts = []task.Artifact{{ID: "a", Parts: []task.Part{task.Text(strings.Repeat("x", 32<<20))}}}
	done := make(chan struct{})
	s := serve(t, options{fake: &fakeEngine{task: big}, BodyTimeout: 300 * time.Millisecond})
	s.Config.Handler = handlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.rpc.ServeHTTP(w, r)
		close(done)
	})
	body := request("1", "tasks/get", `{"id":"t-1"}`)
	c := s.dial(t, "")
	require.NoError(t, c.SetReadBuffer(4<<10))
	_, err := fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	require.NoError(t, err)
	wait(t, done)
}

type handlerFunc func(http.ResponseWriter, *http.Request)

func (f handlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) { f(w, r) }

func TestStreamsEndCleanlyAtStop(t *testing.T) {
	t.Parallel()
	// The write deadline has long passed when the server stops. The end of the body still arrives.
	const timeout = 300 * time.Millisecond
	s := serveStreams(t, options{WriteTimeout: timeout})
	id := s.task("0.3", status(task.StateWorking))
	open := []*client{s.open(t, subscribe(id)), s.open(t, stream03), s.openAt(t, "/agents/other", stream03)}
	open[0].expect(t, "2 task working")
	open[1].expect(t, "1 task submitted")
	<-time.After(timeout) // starts after the last write, so its deadline has passed
	s.hub.Close()
	for _, c := range open {
		c.ends(t)
	}
	require.Empty(t, s.logs.String())
}

func TestFailedStreamEndsWithError(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	s.log.ReadErr = errors.New("password=hunter2")
	id := s.task("0.3", status(task.StateWorking), status(task.StateWorking), status(task.StateWorking))
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
	c := s.open(t, stream03)
	id := wait(t, s.created)
	c.expect(t, "1 task submitted")
	s.add(id, task.Event{Kind: task.EventArtifact}) // an artifact event without an artifact
	c.expect(t, "- error -32603")
	c.ends(t)
	require.Contains(t, s.logs.String(), "panic")
	s.openWhenFree(t, stream03)
}

func TestManySubscribersSeeTheSame(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	id := s.task("0.3", status(task.StateWorking))
	var all []*client
	for range 20 {
		all = append(all, s.open(t, subscribe(id)))
		s.add(id, chunk("x"))
	}
	require.NoError(t, all[3].Body.Close())
	s.add(id, status(task.StateCompleted))
	for i, c := range all {
		if i == 3 {
			continue
		}
		first := c.next(t)
		require.Contains(t, shown(first), "task working")
		for seq := first.id + 1; seq <= 23; seq++ {
			require.Equal(t, seq, c.next(t).id)
		}
		c.ends(t)
	}
}

// The end of a request's context ends its stream, as a client that leaves does.
func TestStreamEndsWithRequestContext(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{})
	id := s.task("0.3", status(task.StateWorking))
	ctx, cancel := context.WithCancel(t.Context())
	r := s.newRequest(t, "/", strings.NewReader(subscribe(id))).WithContext(ctx)
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	cancel()
	wait(t, s.closed)
	require.NoError(t, resp.Body.Close())
}

// Early clients of 0.1 tell events apart by their names.
func TestEventNames(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, options{EventNames: true, KeepAlive: time.Millisecond})
	for version, want := range map[string][]string{
		"0.1": {
			"- task_status_update working", "3 task_artifact_update artifact x", "4 task_artifact_update artifact y",
			"5 task_status_update completed final",
		},
		"0.3": {"3 task working", "4 artifact-update artifact y", "5 status-update completed final"},
	} {
		id := s.task(version, status(task.StateWorking), chunk("x"))
		c := s.open(t, subscribe(id))
		said := func() string {
			for {
				if f := c.next(t); f.comment == "" {
					return shown(f)
				}
			}
		}
		got := []string{said()}
		s.add(id, chunk("y"), status(task.StateCompleted))
		for len(got) < len(want) {
			got = append(got, said())
		}
		require.Equal(t, want, got)
	}
}
