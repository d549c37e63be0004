package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/a2a"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// agent is a scripted A2A 1.0 server on JSON-RPC, on a network in memory: it may be in a bubble.
type agent struct {
	script[func(w http.ResponseWriter, c call)]
	t       *testing.T
	network nettest.Network
	url     string
	card    string
	status  int // of the card

	cardReads atomic.Int64
	keyReads  atomic.Int64
}

type call struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Header http.Header     `json:"-"`
	ctx    context.Context
}

// script has the answers of an agent, and the calls that it got.
type script[A any] struct {
	mu      sync.Mutex
	calls   []call
	answers map[string][]A
}

// on adds an answer to a method. Answers are used in their order, the last one for good.
func (s *script[A]) on(method string, answer A) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil {
		s.answers = map[string][]A{}
	}
	s.answers[method] = append(s.answers[method], answer)
}

// forget removes the answers to a method.
func (s *script[A]) forget(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.answers, method)
}

// answerTo notes a call, and returns its answer.
func (s *script[A]) answerTo(c call) (answer A, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	all := s.answers[c.Method]
	if len(all) == 0 {
		return answer, false
	}
	if len(all) > 1 {
		s.answers[c.Method] = all[1:]
	}
	return all[0], true
}

// called returns the calls of a method.
func (s *script[A]) called(method string) (calls []call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.Method == method {
			calls = append(calls, c)
		}
	}
	return calls
}

const streamingCard = `{"name":"Up","description":"d","version":"1","capabilities":{"streaming":true},"skills":[],
	"supportedInterfaces":[{"url":"%s/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`

// newAgent starts a server whose answers on adds, and the executor in front of it.
func newAgent(t *testing.T, opts a2a.Options) (*agent, *a2a.Front) {
	t.Helper()
	a := &agent{t: t, card: streamingCard, status: 200}
	a.url = a.network.Serve(t, a).URL
	opts.PollInterval = 20 * time.Millisecond
	return a, a.front(opts)
}

// front makes an executor in front of the agent. Only a bubble lets its times pass.
func (a *agent) front(opts a2a.Options) *a2a.Front {
	a.t.Helper()
	if opts.CardURL == "" && opts.URL == "" {
		opts.CardURL = a.url
	}
	if opts.CancelTimeout == 0 {
		opts.CancelTimeout = never
	}
	if opts.CallTimeout == 0 {
		opts.CallTimeout = never
	}
	f, err := a2a.New(opts)
	require.NoError(a.t, err)
	f.Over(a.network.Client(a.t).Transport)
	return f
}

// never is longer than any test.
const never = 24 * time.Hour

// show changes the card.
func (a *agent) show(code int, card string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.card = code, card
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		if r.URL.Path == "/keys" {
			a.keyReads.Add(1)
		}
		if r.URL.Path != "/.well-known/agent-card.json" {
			http.NotFound(w, r)
			return
		}
		a.mu.Lock()
		code, card := a.status, a.card
		a.mu.Unlock()
		w.WriteHeader(code)
		_, _ = io.WriteString(w, strings.ReplaceAll(card, "%s", a.url))
		a.cardReads.Add(1)
		return
	}
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		a.t.Error(err)
	}
	c.Header, c.ctx = r.Header, r.Context()
	_, _ = io.Copy(io.Discard, r.Body)
	answer, ok := a.answerTo(c)
	if !ok {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`)
		return
	}
	answer(w, c)
}

// says answers with a document.
func says(result string) func(http.ResponseWriter, call) {
	return func(w http.ResponseWriter, _ call) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":`+result+`}`)
	}
}

func fails(code int, message string) func(http.ResponseWriter, call) {
	return func(w http.ResponseWriter, _ call) {
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":%q}}`, code, message)
	}
}

// streams answers with events, and ends the stream. With the event "cut" it breaks the connection, with "hold" it waits
// until the client leaves.
func streams(events ...string) func(http.ResponseWriter, call) {
	return func(w http.ResponseWriter, c call) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			switch e {
			case "cut":
				panic(http.ErrAbortHandler)
			case "hold":
				<-c.ctx.Done()
				return
			}
			_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":1,"result":`+e+"}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func taskIn(state, more string) string {
	return `{"id":"up-1","contextId":"ctx-1","status":{"state":"TASK_STATE_` + state + `"}` + more + `}`
}

func working(more string) string { return `{"task":` + taskIn("WORKING", more) + `}` }

func status(state, message string) string {
	if message != "" {
		message = `,"message":{"messageId":"s-` + message + `","role":"ROLE_AGENT","parts":[{"text":"` + message + `"}]}`
	}
	return `{"statusUpdate":{"taskId":"up-1","contextId":"ctx-1","status":{"state":"TASK_STATE_` + state + `"` + message + `}}}`
}

func chunk(text string, more bool) string {
	return fmt.Sprintf(`{"artifactUpdate":{"taskId":"up-1","contextId":"ctx-1","append":%t,"artifact":{"artifactId":"a","parts":[{"text":%q}]}}}`, more, text)
}

// artifact is a member of a task: an artifact with a part for each text.
func artifact(texts ...string) string {
	parts := make([]string, len(texts))
	for i, text := range texts {
		parts[i] = fmt.Sprintf(`{"text":%q}`, text)
	}
	return `,"artifacts":[{"artifactId":"a","parts":[` + strings.Join(parts, ",") + `]}]`
}

func execute(t *testing.T, e executor.Executor, run *executor.Run) (*executortest.Recorder, error) {
	t.Helper()
	return executortest.Run(t, e, run)
}

// completes runs an executor, which must return no error.
func completes(t *testing.T, e executor.Executor, run *executor.Run) *executortest.Recorder {
	t.Helper()
	out, err := execute(t, e, run)
	require.NoError(t, err)
	return out
}

// next returns the run after another one: its next try, with what that one has emitted in the log.
func next(run *executor.Run, out *executortest.Recorder) *executor.Run {
	again, memory := *run, run.Memory.(*executortest.Memory)
	again.Attempt, again.Try = run.Attempt+1, run.Try+1
	memory.Log = append(memory.Log, out.Events()...)
	for i := range memory.Log {
		memory.Log[i].Seq = task.Seq(i + 1)
	}
	return &again
}

// nextTurn returns the first run for a further message.
func nextTurn(run *executor.Run, out *executortest.Recorder, text string) *executor.Run {
	turn := next(run, out)
	turn.Turn, turn.Try = run.Turn+1, 1
	turn.Message = &task.Message{ID: "message-2", Role: task.RoleUser, Parts: []task.Part{task.Text(text)}}
	return turn
}

// linkedFirst fails if something is emitted before the link is stored.
type linkedFirst struct {
	executor.Emitter
	t   *testing.T
	run *executor.Run
}

func (l *linkedFirst) check(ctx context.Context) {
	state, err := l.run.Memory.State(ctx, executor.OfTask)
	if err != nil || !strings.Contains(string(state.Value), `"up-1"`) {
		l.t.Errorf("emitted without a link: %s %v", state.Value, err)
	}
}

func (l *linkedFirst) StatusAbout(ctx context.Context, s task.State, msg *task.Message, more executor.About) error {
	l.check(ctx)
	return l.Emitter.StatusAbout(ctx, s, msg, more)
}

func (l *linkedFirst) Artifact(ctx context.Context, c executor.Chunk) error {
	l.check(ctx)
	return l.Emitter.Artifact(ctx, c)
}

func TestPassesAStreamOn(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{Headers: map[string]string{"X-Mine": "1"}, Auth: a2a.Auth{Bearer: secrets.Text("s3cret")}})
	a.on("SendStreamingMessage", streams(working(""), status("WORKING", "reading"), chunk("one ", false), chunk("two", true), status("COMPLETED", "done")))
	run, out := executortest.NewRun("hello"), executortest.NewRecorder()
	run.Metadata, run.TurnMetadata = json.RawMessage(`{"of":"the task"}`), json.RawMessage(`{"n":1.0}`)
	run.Message.Parts = append(run.Message.Parts, task.Part{Kind: task.PartData, Data: json.RawMessage(`{"big":12345678901234567890}`)})
	require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), e, run, &linkedFirst{out, t, run})))

	got := out.Task(t)
	require.Equal(t, task.StateCompleted, got.Status.State)
	require.Equal(t, "done", got.Status.Message.FirstText())
	require.Equal(t, "one two", out.Text(t))
	require.Equal(t, "s-reading", got.History[0].ID)
	sent := a.called("SendStreamingMessage")
	require.Len(t, sent, 1)
	require.JSONEq(t, `{"message":{"messageId":"01020304-0506-0708-0900-000000000000:1","role":"ROLE_USER","parts":[{"text":"hello"},
		{"data":{"big":12345678901234567890}}]},"configuration":{},"metadata":{"n":1.0}}`, string(sent[0].Params))
	require.Contains(t, string(sent[0].Params), `"n":1.0`)
	for name, want := range map[string]string{
		"A2A-Version": "1.0", "Authorization": "Bearer s3cret", "X-Mine": "1", "Idempotency-Key": "01020304-0506-0708-0900-000000000000:1",
	} {
		require.Equal(t, want, sent[0].Header.Get(name), name)
	}
}

func TestRequestFactsReachTheAgent(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{OwnExtensions: []string{"urn:ours"}})
	a.card = strings.Replace(a.card, `"streaming":true`, `"streaming":true,"extensions":[{"uri":"urn:theirs"},{"uri":"urn:also"},{"uri":"urn:ours"}]`, 1)
	a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
	run := executortest.NewRun("hello")
	run.AcceptedOutputModes = []string{"text/plain", "image/*"}
	run.Extensions = []string{"urn:theirs", "urn:ours", "urn:another-agent", "urn:also"}
	run.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	run.Message.References = []string{"1", "2", "3"}
	run.Memory.(*executortest.Memory).Refs = []executor.Reference{
		{TaskID: "1", Stored: json.RawMessage(`{"task":"up-0","turn":1}`)}, {TaskID: "2"}, {TaskID: "3", Stored: json.RawMessage(`{"context":"c"}`)},
	}
	completes(t, e, run)
	sent := a.called("SendStreamingMessage")[0]
	require.Equal(t, "urn:theirs, urn:also", sent.Header.Get("A2A-Extensions"))
	require.Equal(t, run.Traceparent, sent.Header.Get("Traceparent"))
	require.Contains(t, string(sent.Params), `"acceptedOutputModes":["text/plain","image/*"]`)
	require.Contains(t, string(sent.Params), `"referenceTaskIds":["up-0"]`)
}

func TestMetadataComesBack(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{})
	with := func(state, message, metadata string) string {
		return `{"statusUpdate":{"taskId":"up-1","contextId":"ctx-1","metadata":` + metadata + `,"status":{"state":"TASK_STATE_` + state + `"` + message + `}}}`
	}
	message := `,"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}],"metadata":{"n":1.0},"extensions":["urn:x"],"referenceTaskIds":["up-0"]}`
	a.on("SendStreamingMessage", streams(working(""), with("WORKING", "", `{"progress":0.5}`), with("WORKING", message, `{"progress":0.9}`),
		with("COMPLETED", "", `{"tokens":10}`)))
	out := completes(t, e, executortest.NewRun("hello"))
	var got []string
	for _, ev := range out.Events() {
		if ev.Metadata != nil {
			got = append(got, string(ev.Metadata))
		}
	}
	require.Equal(t, []string{`{"progress":0.5}`, `{"progress":0.9}`, `{"tokens":10}`}, got)
	said := out.Task(t).History[0]
	require.Equal(t, `{"n":1.0}`, string(said.Metadata))
	require.Equal(t, []string{"urn:x"}, said.Extensions)
	require.Empty(t, said.References, "clients of ours do not know the agent's tasks")
}

// A run whose stream breaks off reads the agent's task, and sends the message no second time.
func TestGoesOnAfterACut(t *testing.T) {
	t.Parallel()
	status := func(code int, after string) func(http.ResponseWriter, call) {
		return func(w http.ResponseWriter, _ call) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(code)
		}
	}
	grows := []func(http.ResponseWriter, call){
		says(taskIn("WORKING", artifact("one ", "two ", "three "))),
		says(taskIn("COMPLETED", artifact("one ", "two ", "three ", "four")+`,"history":[{"messageId":"h-1","role":"ROLE_AGENT","parts":[{"text":"said"}]}]`)),
	}
	away := []func(http.ResponseWriter, call){
		status(502, ""), func(http.ResponseWriter, call) { panic(http.ErrAbortHandler) }, fails(-32001, "not yet"), fails(-32603, "the store is away"),
	}
	for name, c := range map[string]struct {
		cut  string
		gets []func(http.ResponseWriter, call)
		want string // "": the run ends well
	}{
		"a broken connection":     {"cut", grows, ""},
		"a clean end":             {"", grows, ""},
		"an agent that is away":   {"cut", append(away, grows...), ""},
		"one that is away longer": {"cut", []func(http.ResponseWriter, call){status(503, "60")}, "the agent answered 503 Service Unavailable; away for 1m0s"},
		"one that loses its task": {"cut", []func(http.ResponseWriter, call){fails(-32001, "Task not found")}, "the agent lost its task"},
		"another task": {
			"",
			[]func(http.ResponseWriter, call){says(strings.ReplaceAll(taskIn("COMPLETED", ""), "up-1", "up-2"))},
			"the agent answered with another task than the one that it was asked for",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, e := newAgent(t, a2a.Options{})
			events := []string{working(""), chunk("one ", false), chunk("two ", true)}
			if c.cut != "" {
				events = append(events, c.cut)
			}
			a.on("SendStreamingMessage", streams(events...))
			for _, get := range c.gets {
				a.on("GetTask", get)
			}
			out, err := execute(t, e, executortest.NewRun("hello"))
			require.Contains(t, executortest.Outcome(err), c.want)
			require.Len(t, a.called("SendStreamingMessage"), 1)
			require.Empty(t, a.called("SubscribeToTask"))
			if c.want != "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "one two three four", out.Text(t))
			require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
			require.Equal(t, "h-1", out.Task(t).History[0].ID)
			require.Len(t, out.Events(), 8, "four pieces, one message, and statuses: nothing is emitted twice")
		})
	}
}

func TestNextTryDoesNotSendAgain(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{})
	a.on("SendStreamingMessage", streams(working(""), status("WORKING", "reading"), chunk("one ", false), "hold"))
	ctx, cancel := context.WithCancelCause(t.Context())
	run, out := executortest.NewRun("hello"), executortest.NewRecorder()
	done := executortest.Go(ctx, e, run, out)
	out.Await(t, 3)
	cancel(executor.ErrShutdown)
	require.ErrorIs(t, executortest.Wait(t, done), executor.ErrShutdown)

	a.on("GetTask", says(taskIn("COMPLETED", artifact("one two")+
		`,"history":[{"messageId":"s-reading","role":"ROLE_AGENT","parts":[{"text":"reading"}]}]`)))
	out = completes(t, e, next(run, out))
	require.Equal(t, "two", out.Text(t), "only the rest")
	require.Empty(t, out.Task(t).History)
	require.Len(t, a.called("SendStreamingMessage"), 1)
	require.Empty(t, a.called("CancelTask"))
}

func TestPollsAgentsWithoutStreams(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(a *agent, o *a2a.Options){
		"by the card":          func(a *agent, _ *a2a.Options) { a.card = strings.Replace(streamingCard, "true", "false", 1) },
		"by the configuration": func(_ *agent, o *a2a.Options) { o.Poll = true },
		"by the answer":        func(a *agent, _ *a2a.Options) { a.on("SendStreamingMessage", fails(-32004, "no streams")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := a2a.Options{}
			prepare(&agent{}, &opts)
			a, e := newAgent(t, opts)
			prepare(a, &opts)
			a.on("SendMessage", says(working("")))
			a.on("GetTask", says(taskIn("SUBMITTED", "")))
			a.on("GetTask", says(taskIn("WORKING", artifact("one "))))
			a.on("GetTask", says(taskIn("COMPLETED", artifact("one two"))))
			require.Equal(t, "one two", completes(t, e, executortest.NewRun("hello")).Text(t))
			require.Contains(t, string(a.called("SendMessage")[0].Params), `"returnImmediately":true`)
		})
	}
}

func TestBareMessages(t *testing.T) {
	t.Parallel()
	const bare = `{"message":{"messageId":"m","contextId":"ctx-1","role":"ROLE_AGENT","parts":[{"text":"hi"}],"metadata":{"k":1.0}}}`
	for _, direct := range []bool{false, true} {
		a, e := newAgent(t, a2a.Options{DirectReplies: direct})
		a.on("SendStreamingMessage", streams(bare))
		run := executortest.NewRun("hello")
		out := completes(t, e, run)
		got := out.Task(t)
		require.Equal(t, task.StateCompleted, got.Status.State)
		require.Equal(t, direct, got.Direct)
		require.Equal(t, "hi", got.Status.Message.FirstText())
		require.JSONEq(t, `{"k":1.0}`, string(got.Status.Message.Metadata))
		shared, err := run.Memory.State(t.Context(), executor.OfContext)
		require.NoError(t, err)
		require.JSONEq(t, `{"context":"ctx-1"}`, string(shared.Value))
	}
}

func TestLaterTasksContinueTheContext(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{})
	a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
	run := executortest.NewRun("hello")
	completes(t, e, run)
	later, memory := executortest.NewRun("again"), &executortest.Memory{}
	later.Memory = memory
	shared, err := run.Memory.State(t.Context(), executor.OfContext)
	require.NoError(t, err)
	_, err = memory.SetState(t.Context(), executor.OfContext, shared.Value, 0)
	require.NoError(t, err)
	completes(t, e, later)
	sent := a.called("SendStreamingMessage")
	require.NotContains(t, string(sent[0].Params), "contextId", "the client's own context is not the agent's")
	require.Contains(t, string(sent[1].Params), `"contextId":"ctx-1"`)
	require.NotContains(t, string(sent[1].Params), "taskId")
}

// asked runs the first turn of a task in which the agent asks.
func asked(t *testing.T, a *agent, e executor.Executor, state string) (*executor.Run, *executortest.Recorder) {
	t.Helper()
	a.on("SendStreamingMessage", streams(working(""), chunk("one ", false), status(state, "which")))
	run := executortest.NewRun("hello")
	out := completes(t, e, run)
	require.True(t, out.Task(t).Status.State.Parked())
	return run, out
}

// The servers of an official SDK answer an answer with the task as it was, and then with what the agent does.
func TestOldQuestionIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	before := `{"id":"up-1","contextId":"ctx-1","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":` +
		`{"messageId":"s-which","role":"ROLE_AGENT","parts":[{"text":"which"}]}}` + artifact("one ") + `}`
	for name, c := range map[string]struct {
		poll   bool
		answer func(http.ResponseWriter, call)
		gets   []func(http.ResponseWriter, call)
		state  task.State
	}{
		"then an event": {
			answer: streams(`{"task":`+before+`}`, chunk("two", true), status("COMPLETED", "")), state: task.StateCompleted,
		},
		"then a cut": {
			answer: streams(`{"task":`+before+`}`, "cut"), state: task.StateCompleted,
			gets: []func(http.ResponseWriter, call){says(before), says(taskIn("COMPLETED", artifact("one two")))},
		},
		"without a stream": {
			poll: true, answer: says(`{"task":` + before + `}`), state: task.StateCompleted,
			gets: []func(http.ResponseWriter, call){says(before), says(taskIn("COMPLETED", artifact("one two")))},
		},
		"then another question": {
			answer: streams(`{"task":`+before+`}`, status("INPUT_REQUIRED", "really")), state: task.StateInputRequired,
		},
		"then the end of the stream": {
			answer: streams(`{"task":` + before + `}`), gets: []func(http.ResponseWriter, call){says(before)}, state: task.StateInputRequired,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, e := newAgent(t, a2a.Options{Poll: c.poll})
			send := "SendStreamingMessage"
			if c.poll {
				send = "SendMessage"
				a.on(send, says(`{"task":`+before+`}`))
			} else {
				a.on(send, streams(working(""), chunk("one ", false), status("INPUT_REQUIRED", "which")))
			}
			run := executortest.NewRun("hello")
			out := completes(t, e, run)
			require.True(t, out.Task(t).Status.State.Parked())
			a.forget(send)
			a.on(send, c.answer)
			for _, get := range append([]func(http.ResponseWriter, call){says(before)}, c.gets...) {
				a.on("GetTask", get)
			}
			out = completes(t, e, nextTurn(run, out, "Oslo"))
			require.Equal(t, c.state, out.Task(t).Status.State)
			require.Len(t, a.called(send), 2)
			if c.state == task.StateCompleted {
				require.Equal(t, "two", out.Text(t))
			}
		})
	}
}

func TestAnswersToTasksThatWentOn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now   func(http.ResponseWriter, call)
		sends int
		text  string
		fails string
	}{
		"it completed":            {now: says(taskIn("COMPLETED", artifact("one two"))), sends: 1, text: "two"},
		"it failed":               {now: says(taskIn("FAILED", "")), sends: 2, text: "new"},
		"it is gone":              {now: fails(-32001, "Task not found"), sends: 2, text: "new"},
		"it has the answer":       {now: says(taskIn("INPUT_REQUIRED", `,"history":[{"messageId":"01020304-0506-0708-0900-000000000000:2","role":"ROLE_USER","parts":[]}]`)), sends: 1},
		"it waits for the answer": {now: says(taskIn("AUTH_REQUIRED", "")), sends: 2, text: "new"},
		"it is another one": {
			now: says(strings.ReplaceAll(taskIn("COMPLETED", ""), "up-1", "up-2")), sends: 1, fails: "another task than the one that it was asked for",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, e := newAgent(t, a2a.Options{})
			run, out := asked(t, a, e, "AUTH_REQUIRED")
			a.on("GetTask", c.now)
			a.forget("SendStreamingMessage")
			a.on("SendStreamingMessage", streams(working(""), chunk("new", false), status("COMPLETED", "")))
			out, err := execute(t, e, nextTurn(run, out, "done"))
			sent := a.called("SendStreamingMessage")
			require.Len(t, sent, c.sends)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.text, out.Text(t))
			switch name {
			case "it failed":
				require.NotContains(t, string(sent[1].Params), "taskId")
				require.Contains(t, string(sent[1].Params), `"contextId":"ctx-1"`)
			case "it waits for the answer":
				require.Contains(t, string(sent[1].Params), `"taskId":"up-1","contextId":"ctx-1"`)
				require.Contains(t, string(sent[1].Params), `"messageId":"01020304-0506-0708-0900-000000000000:2"`)
			}
		})
	}
}

// The worker calls Cancel when the headers of the client are gone. So a run that has some cancels the agent's task with them.
func TestCancelReachesTheAgent(t *testing.T) {
	t.Parallel()
	for cause, reason := range map[error]executor.Reason{
		executor.ErrCanceled: executor.ReasonCanceled, executor.ErrTimeout: executor.ReasonTimedOut, executor.ErrInactivity: executor.ReasonTimedOut,
		executor.ErrLeaseLost: executor.ReasonLeaseLost, executor.ErrShutdown: executor.ReasonStopping,
	} {
		for _, forwarded := range []task.Forwarded{nil, {"X-Key": "s3cret"}} {
			t.Run(fmt.Sprint(cause, forwarded), func(t *testing.T) {
				t.Parallel()
				a, e := newAgent(t, a2a.Options{Forward: []string{"X-Key"}})
				a.on("SendStreamingMessage", streams(working(""), chunk("one", false), "hold"))
				a.on("CancelTask", says(taskIn("CANCELED", "")))
				ctx, cancel := context.WithCancelCause(t.Context())
				out := executortest.NewRecorder()
				run := executortest.NewRun("hello")
				run.Forwarded = forwarded
				done := executortest.Go(ctx, e, run, out)
				out.Await(t, 2)
				cancel(cause)
				require.ErrorIs(t, executortest.Wait(t, done), cause)
				require.Equal(t, forwarded != nil && reason.Ended(), len(a.called("CancelTask")) == 1, "of the run itself")
				require.NoError(t, cancelRun(t, e, run, reason))
				sent := a.called("CancelTask")
				if !reason.Ended() {
					require.Empty(t, sent)
					return
				}
				require.Len(t, sent, 1)
				require.Equal(t, forwarded["X-Key"], sent[0].Header.Get("X-Key"))
				if forwarded == nil {
					require.JSONEq(t, `{"id":"up-1","metadata":{"why":"x"}}`, string(sent[0].Params))
				}
			})
		}
	}
}

// cancelRun tells the executor why a run has ended, as the worker does.
func cancelRun(t *testing.T, e executor.Executor, run *executor.Run, reason executor.Reason) error {
	t.Helper()
	return e.(executor.Canceler).Cancel(t.Context(), &executor.Cancellation{
		Reason: reason, ID: run.ID, TaskID: run.TaskID, Turn: run.Turn, Attempt: run.Attempt, Stored: run.Memory.State,
		Metadata: json.RawMessage(`{"why":"x"}`),
	})
}

// A task that the agent has never named has nothing to cancel, and one that has ended is canceled enough.
func TestCancelWithoutTask(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{-32001: "", -32002: "", -32004: "the agent answered with"} {
		a, e := newAgent(t, a2a.Options{})
		run := executortest.NewRun("hello")
		require.NoError(t, cancelRun(t, e, run, executor.ReasonCanceled))
		require.Empty(t, a.called("CancelTask"))
		_, err := run.Memory.SetState(t.Context(), executor.OfTask, json.RawMessage(`{"task":"up-1"}`), 0)
		require.NoError(t, err)
		require.NoError(t, cancelRun(t, e, run, executor.ReasonDeleted))
		require.Empty(t, a.called("CancelTask"), "its id is deleted, too")
		a.on("CancelTask", fails(code, "no"))
		err = cancelRun(t, e, run, executor.ReasonExpired)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// awayMemory is a database that stores after a while.
type awayMemory struct {
	executor.Memory
	away time.Duration
}

func (m awayMemory) SetState(ctx context.Context, of executor.Scope, value json.RawMessage, version int64) (int64, error) {
	if err := nettest.Pause(ctx, m.away); err != nil {
		return 0, &task.Error{Kind: task.Unavailable, Msg: "the request ended before the database answered", Cause: err}
	}
	return m.Memory.SetState(ctx, of, value, version)
}

// The time limit of calls is for the agent, not for the database.
func TestRunsWaitForTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, e := newAgent(t, a2a.Options{CallTimeout: 3 * time.Second})
		a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
		run := executortest.NewRun("hello")
		run.Memory = awayMemory{run.Memory, 4 * time.Second}
		require.Equal(t, task.StateCompleted, completes(t, e, run).Task(t).Status.State)
	})
}

func TestCancelWaitsForTheTaskToHaveAName(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{})
	called, name := make(chan struct{}), make(chan struct{})
	a.on("SendStreamingMessage", func(w http.ResponseWriter, c call) {
		close(called)
		<-name
		streams(working(""), "hold")(w, c)
	})
	a.on("CancelTask", says(taskIn("CANCELED", "")))
	ctx, cancel := context.WithCancelCause(t.Context())
	run := executortest.NewRun("hello")
	done := executortest.Go(ctx, e, run, executortest.NewRecorder())
	<-called
	cancel(executor.ErrCanceled)
	close(name)
	require.ErrorIs(t, executortest.Wait(t, done), executor.ErrCanceled)
	require.NoError(t, cancelRun(t, e, run, executor.ReasonCanceled))
	require.Len(t, a.called("CancelTask"), 1)
}

func TestAgentCancelsItsTask(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{})
	a.on("SendStreamingMessage", streams(working(""), status("CANCELED", "")))
	out := completes(t, e, executortest.NewRun("hello"))
	require.Equal(t, task.StateFailed, out.Task(t).Status.State)
	require.Equal(t, "The agent canceled the task.", out.Task(t).Status.Message.FirstText())
}

func TestLaterTryLooksForTheTask(t *testing.T) {
	t.Parallel()
	const key = "01020304-0506-0708-0900-000000000000:1"
	for name, c := range map[string]struct {
		list  func(http.ResponseWriter, call)
		sends int
	}{
		"it is there": {says(`{"tasks":[{"id":"other","status":{"state":2}},{"id":"up-1","contextId":"ctx-1","status":{"state":2},
			"history":[{"messageId":"` + key + `","role":"ROLE_USER","parts":[]}]}]}`), 0},
		"it is not":        {says(`{"tasks":[]}`), 1},
		"there is no list": {fails(-32601, "Method not found"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, e := newAgent(t, a2a.Options{})
			a.on("ListTasks", c.list)
			a.on("GetTask", says(taskIn("COMPLETED", artifact("done"))))
			a.on("SendStreamingMessage", streams(working(""), chunk("done", false), status("COMPLETED", "")))
			run := executortest.NewRun("hello")
			run.Attempt, run.Try = 2, 2
			_, err := run.Memory.SetState(t.Context(), executor.OfContext, json.RawMessage(`{"context":"ctx-1"}`), 0)
			require.NoError(t, err)
			require.Equal(t, "done", completes(t, e, run).Text(t))
			require.Len(t, a.called("SendStreamingMessage"), c.sends)
			require.JSONEq(t, `{"contextId":"ctx-1","pageSize":50}`, string(a.called("ListTasks")[0].Params))
		})
	}
}

func TestAgentIsAway(t *testing.T) {
	t.Parallel()
	e, err := a2a.New(a2a.Options{CardURL: "http://" + nettest.Reserve(t)})
	require.NoError(t, err)
	_, err = execute(t, e, executortest.NewRun("hello"))
	var u *executor.Unavailable
	require.ErrorAs(t, err, &u)
	require.False(t, u.Answered)
	require.ErrorContains(t, err, "read the agent's card")

	for status, want := range map[int]string{
		503: "503 Service Unavailable; away for 7s", 429: "429 Too Many Requests; away for 7s", 502: "502 Bad Gateway; away for 7s; retry for 7s", 500: "500 Internal Server Error; retry for 7s",
	} {
		a, e := newAgent(t, a2a.Options{})
		a.on("SendStreamingMessage", func(w http.ResponseWriter, _ call) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		})
		_, err := execute(t, e, executortest.NewRun("hello"))
		require.Equal(t, "the agent answered "+want, executortest.Outcome(err))
	}
}

// endless repeats a text until the client is gone. It repeats nothing slowly.
func endless(code int, mediaType, text string) func(http.ResponseWriter, call) {
	return func(w http.ResponseWriter, c call) {
		if code != 0 {
			w.Header().Set("Content-Type", mediaType)
			w.WriteHeader(code)
		}
		_ = http.NewResponseController(w).Flush()
		if text == "" {
			<-c.ctx.Done()
		}
		for c.ctx.Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat(text, 1000)); err != nil {
				return
			}
		}
	}
}

func TestAnotherTaskInTheAnswerToAnAnswer(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{})
	run, out := asked(t, a, e, "INPUT_REQUIRED")
	a.on("GetTask", says(taskIn("INPUT_REQUIRED", "")))
	a.forget("SendStreamingMessage")
	a.on("SendStreamingMessage", streams(strings.ReplaceAll(working(""), "up-1", "up-2")))
	_, err := execute(t, e, nextTurn(run, out, "Oslo"))
	require.ErrorContains(t, err, "another task than the message names")
}

// A drip of bytes keeps no call beyond its timeout, and no run beyond its own.
func TestSlowDrips(t *testing.T) {
	t.Parallel()
	drip := func(mediaType, text string) func(http.ResponseWriter, call) {
		return func(w http.ResponseWriter, c call) {
			w.Header().Set("Content-Type", mediaType)
			for nettest.Pause(c.ctx, time.Second) == nil {
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		a, e := newAgent(t, a2a.Options{CallTimeout: 3 * time.Second})
		a.on("SendStreamingMessage", streams(working("")))
		a.on("GetTask", drip("application/json", " "))
		a.on("GetTask", says(taskIn("COMPLETED", "")))
		require.Equal(t, task.StateCompleted, completes(t, e, executortest.NewRun("hello")).Task(t).Status.State)
		require.Len(t, a.called("GetTask"), 2)
	})
	for name, answer := range map[string]func(http.ResponseWriter, call){
		"a stream of comments":    drip("text/event-stream", ":\n"),
		"a stream without an end": drip("text/event-stream", ":"),
		"a document":              drip("application/json", " "),
	} {
		synctest.Test(t, func(t *testing.T) {
			a, e := newAgent(t, a2a.Options{CancelTimeout: 5 * time.Second})
			a.on("SendStreamingMessage", answer)
			ctx, cancel := context.WithCancelCause(t.Context())
			done := executortest.Go(ctx, e, executortest.NewRun("hello"), executortest.NewRecorder())
			waittest.Advance(time.Minute)
			require.Len(t, a.called("SendStreamingMessage"), 1, name)
			cancel(executor.ErrTimeout)
			began := time.Now()
			require.ErrorIs(t, executortest.Wait(t, done), executor.ErrTimeout)
			require.Equal(t, 5*time.Second, waittest.Elapsed(began), name)
		})
	}
}

func TestHostileAgents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, call)
		want   string
	}{
		"no task in the first event": {streams(`{"statusUpdate":{"status":{"state":2}}}`), "names no task"},
		"an event of another task":   {streams(working(""), strings.ReplaceAll(chunk("x", false), "up-1", "up-2")), "an event of another task"},
		"a snapshot of another task": {streams(working(""), strings.ReplaceAll(working(""), "up-1", "up-2")), "an event of another task"},
		"an endless line":            {endless(200, "text/event-stream", ":"), "longer than"},
		"an endless event":           {endless(200, "text/event-stream", "data: 1\n"), "longer than"},
		"an endless document":        {endless(200, "application/json", "[1,"), "longer than"},
		"an endless error":           {endless(400, "application/json", "[1,"), "400 Bad Request"},
		"an endless crash":           {endless(500, "text/html", "x"), "500 Internal Server Error"},
		"a silent error":             {endless(400, "text/plain", ""), "400 Bad Request"},
		"a compressed answer":        {streams("\x1f\x8b\x08"), "is not A2A 1.0"},
		"no JSON":                    {streams(`{`), "is not A2A 1.0"},
		"too long":                   {streams(chunk(strings.Repeat("x", 5000), false)), "longer than"},
		"a long document":            {says(`"` + strings.Repeat("x", 5000) + `"`), "longer than"},
		"too deep":                   {streams(strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200)), "deep"},
		"an unknown state":           {streams(status("DREAMING", "")), "is not a state"},
		"a redirect":                 {func(w http.ResponseWriter, r call) { w.Header().Set("Location", "http://other"); w.WriteHeader(307) }, "redirects are not followed"},
		"an error":                   {fails(-32602, "message.parts: no\nimages"), "error -32602: message.parts: no images"},
		"a refusal":                  {func(w http.ResponseWriter, _ call) { w.WriteHeader(401) }, "refused the server's credential"},
		"a page":                     {func(w http.ResponseWriter, _ call) { _, _ = io.WriteString(w, "<html>") }, "is not A2A 1.0"},
		"events after the end":       {streams(working(""), status("COMPLETED", ""), `{"task":{}}`, `7`), ""},
		"an endless end": {func(w http.ResponseWriter, c call) {
			streams(working(""), status("COMPLETED", ""))(w, c)
			endless(0, "", "data: 1\n\n")(w, c)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, e := newAgent(t, a2a.Options{MaxEvent: 1000, Auth: a2a.Auth{Bearer: secrets.Text("s3cret")}})
			a.on("SendStreamingMessage", c.answer)
			a.on("SendMessage", c.answer)
			out, err := execute(t, e, executortest.NewRun("hello"))
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
				return
			}
			var f *executor.Failure
			require.ErrorAs(t, err, &f)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestCards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ card, want string }{
		"another host": {strings.ReplaceAll(streamingCard, "%s/rpc", "http://192.0.2.1/rpc"), "set a2a.url to it"},
		"no binding":   {strings.ReplaceAll(streamingCard, "JSONRPC", "SLIMRPC"), "the card offers SLIMRPC 1.0"},
		"no card":      {`[]`, "agent-card.json"},
		"too deep":     {strings.Replace(streamingCard, `"skills":[]`, `"x":`+strings.Repeat("[", 200)+strings.Repeat("]", 200), 1), "deep"},
		"a wrong type": {strings.Replace(streamingCard, `"skills":[]`, `"skills":[{"tags":[7]}]`, 1), "skills.tags: is a JSON number"},
		"no URL":       {`{"name":"n"}`, "it names no URL"},
		"too long":     {`{"name":"` + strings.Repeat("x", 2<<20) + `"}`, "the card is longer than"},
	} {
		a, e := newAgent(t, a2a.Options{})
		a.card = c.card
		_, err := execute(t, e, executortest.NewRun("hello"))
		require.ErrorContains(t, err, c.want, name)
	}
	for _, version := range []string{"", "1.0"} {
		t.Run("url overrides the card's, version "+version, func(t *testing.T) {
			t.Parallel()
			a, _ := newAgent(t, a2a.Options{})
			a.card = strings.ReplaceAll(streamingCard, "%s/rpc", "http://0.0.0.0:9999/")
			if version != "" { // so it needs no card
				a.status = 404
			}
			a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
			completes(t, a.front(a2a.Options{URL: a.url, Version: version}), executortest.NewRun("hello"))
		})
	}
}

// A card of 0.1 may look like one of 0.2. The agent then refuses the message, and gets it as one of 0.1.
func TestAgentsOf01(t *testing.T) {
	t.Parallel()
	const status = `{"id":"%s","status":{"state":"%s","timestamp":"2025-05-01T00:00:00"},"final":%v}`
	begin := func(opts a2a.Options) (*agent, *a2a.Front) {
		a, e := newAgent(t, opts)
		a.card = `{"name":"n","url":"%s/rpc","version":"1","capabilities":{"streaming":true},"skills":[]}`
		a.on("message/stream", fails(-32600, "Request payload validation error"))
		a.on("tasks/sendSubscribe", func(w http.ResponseWriter, c call) {
			var sent struct{ ID string }
			_ = json.Unmarshal(c.Params, &sent)
			streams(fmt.Sprintf(status, sent.ID, "working", false), fmt.Sprintf(status, sent.ID, "completed", true))(w, c)
		})
		return a, e
	}
	a, e := begin(a2a.Options{})
	run := executortest.NewRun("hello")
	completes(t, e, run)
	completes(t, e, executortest.NewRun("hello"))
	require.Len(t, a.called("message/stream"), 1, "it is known for the next task")
	a.on("tasks/cancel", fails(-32002, "Task cannot be canceled"))
	restarted := a.front(a2a.Options{})
	require.NoError(t, cancelRun(t, restarted, run, executor.ReasonCanceled))
	require.Len(t, a.called("tasks/cancel"), 1)

	a.forget("tasks/sendSubscribe")
	a.forget("message/stream")
	a.on("message/stream", streams(`{"kind":"task","id":"r-1","contextId":"c","status":{"state":"completed"}}`))
	completes(t, e, executortest.NewRun("hello"))
	completes(t, e, executortest.NewRun("hello"))
	require.Len(t, a.called("tasks/sendSubscribe"), 3, "the agent was upgraded, which the second of these knows")

	a, e = begin(a2a.Options{Version: "0.1"})
	completes(t, e, executortest.NewRun("hello"))
	require.Empty(t, a.called("message/stream"))

	a, e = begin(a2a.Options{})
	a.forget("tasks/sendSubscribe")
	_, err := execute(t, e, executortest.NewRun("hello"))
	require.ErrorContains(t, err, "-32600", "what the agent said first")
}

// Package outbound reads credentials, also from files. Other tests have a token.
func TestPasswords(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{Auth: a2a.Auth{Username: "ada", Password: secrets.Text("pw")}})
	a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
	completes(t, e, executortest.NewRun("hello"))
	require.Equal(t, "Basic YWRhOnB3", a.called("SendStreamingMessage")[0].Header.Get("Authorization"))
}

func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	a, e := newAgent(t, a2a.Options{Forward: []string{"authorization", "X-Tenant"}})
	run := executortest.NewRun("hello")
	run.Forwarded = task.Forwarded{"Authorization": "Bearer s3cret-token", "X-Old": "not configured any more"}
	a.on("SendStreamingMessage", streams(working("")))
	a.on("GetTask", fails(-32602, "not for s3cret-token"))
	_, err := execute(t, e, run)
	require.ErrorContains(t, err, "not for [redacted]")
	for _, method := range []string{"SendStreamingMessage", "GetTask"} {
		sent := a.called(method)[0].Header
		require.Equal(t, "Bearer s3cret-token", sent.Get("Authorization"), method)
		require.NotContains(t, sent, "X-Tenant", method)
		require.NotContains(t, sent, "X-Old", method)
	}
	sent := a.called("CancelTask")
	require.Len(t, sent, 1, "nobody wants the agent's task")
	require.Equal(t, "Bearer s3cret-token", sent[0].Header.Get("Authorization"))

	a.forget("SendStreamingMessage")
	a.on("SendStreamingMessage", func(w http.ResponseWriter, _ call) { w.WriteHeader(http.StatusUnauthorized) })
	run = executortest.NewRun("hello")
	run.Forwarded = task.Forwarded{"Authorization": "Bearer s3cret-token"}
	_, err = execute(t, e, run)
	require.ErrorContains(t, err, "the agent refused the credential of the server or of the client")
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]a2a.Options{
		"card_url: must begin with http":     {CardURL: "ftp://x"},
		"url: must not contain a password":   {URL: "http://a:b@h"},
		"version: \"2.0\" is not":            {CardURL: "http://h", Version: "2.0"},
		"binding: \"soap\" does not exist":   {CardURL: "http://h", Binding: "soap"},
		"headers.Host: is set by Holdfast":   {CardURL: "http://h", Headers: map[string]string{"Host": "x"}},
		"forward.headers[1]: Host is set":    {CardURL: "http://h", Forward: []string{"x-key", "Host"}},
		"a2a-Version is set by Holdfast":     {CardURL: "http://h", Forward: []string{"a2a-Version"}},
		"\"a b\" is not the name of an HTTP": {CardURL: "http://h", Forward: []string{"a b"}},
		"te is about one connection":         {CardURL: "http://h", Forward: []string{"te"}},
		"X-Key is given twice":               {CardURL: "http://h", Forward: []string{"x-key", "X-Key"}},
		"X-Key is in headers, too":           {CardURL: "http://h", Forward: []string{"X-Key"}, Headers: map[string]string{"x-key": "1"}},
		"auth: sets the header Authoriz":     {CardURL: "http://h", Forward: []string{"authorization"}, Auth: a2a.Auth{Bearer: secrets.Text("a")}},
		"card_keys: is neither a JSON Web":   {CardURL: "http://h", CardKeys: "x"},
		"card_keys: is given twice":          {CardURL: "http://h", CardKeys: "x", CardKeysFile: "y"},
		"card_keys: open /nowhere/keys":      {CardURL: "http://h", CardKeysFile: "/nowhere/keys"},
		"auth: has several credentials":      {CardURL: "http://h", Auth: a2a.Auth{Bearer: secrets.Text("a"), Username: "b"}},
		"auth.username: is required":         {CardURL: "http://h", Auth: a2a.Auth{Password: secrets.Text("a")}},
		"no such file":                       {CardURL: "http://h", Auth: a2a.Auth{Bearer: secrets.File("/nowhere/token")}},
		"url: has a path":                    {URL: "http://h/a2a", Version: "1.0", Binding: "grpc"},
		"url: has a path or":                 {URL: "http://h?k=v", Version: "1.0", Binding: "GRPC"},
		"version: is required":               {URL: "http://h", Binding: "grpc"},
		"binding: \"GRPC\"":                  {URL: "http://h", Version: "0.1", Binding: "GRPC"},
	} {
		_, err := a2a.New(o)
		require.ErrorContains(t, err, want)
	}
	f, err := a2a.New(a2a.Options{URL: "http://127.0.0.1:1", Version: "1.0", Binding: "grpc"})
	require.NoError(t, err)
	_, err = f.Cards(t.Context())
	require.ErrorContains(t, err, "set a2a.card_url")
}
