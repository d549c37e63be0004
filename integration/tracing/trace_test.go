package tracing

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/test/otlptest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientID = "00f067aa0ba902b7"
	parent   = "00-" + traceID + "-" + clientID + "-01"
	state    = "vendor=opaque"
)

// call is a request that an agent got.
type call struct {
	Header http.Header
	Doc    struct{ Traceparent, Tracestate string }
	answer chan string
}

// newAgent is an HTTP agent whose test answers its calls.
func newAgent(t *testing.T) (url string, calls chan *call) {
	t.Helper()
	calls = make(chan *call, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Header: r.Header, answer: make(chan string, 1)}
		if err := json.NewDecoder(r.Body).Decode(&c.Doc); err != nil {
			t.Error(err)
		}
		calls <- c
		select {
		case answer := <-c.answer:
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = io.WriteString(w, answer)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL, calls
}

func spanOf(traceparent string) string {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 {
		return parts[2]
	}
	return ""
}

// A client's trace has the request on one replica, the run on another one after the first was killed, the calls of the agent
// and the webhooks.
func TestOneTraceOverReplicasRescueAndWebhook(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	backend, receiver, db := otlptest.Start(t), receivertest.Start(t, 1), clustertest.NewDB(t)
	url, calls := newAgent(t)
	options := clustertest.Options{
		Name: "a", DB: db.URL, Env: backend.Env(),
		Config: fmt.Sprintf(clustertest.Settings+`
  - name: echo
    executor: {kind: http, http: {url: "%s/%s?key=%s", headers: {Authorization: "Bearer %[3]s"}}}
`+receivertest.Pushing(nil), url, secret, secret),
	}
	a := clustertest.Start(t, options)
	sent := a.Send(a2atest.V03, a2atest.Say("my "+secret).At("echo").With("traceparent", parent, "tracestate", state).
		Hooked(receiver.URL+"/"+secret, a2atest.Object{"token": secret}).Detached())
	lost := waittest.Within(t, "the first attempt", calls)
	require.Equal(t, traceID, strings.Split(lost.Doc.Traceparent, "-")[1])
	require.Equal(t, state, lost.Doc.Tracestate)
	request := backend.Below(clientID, "A2A send")
	send := backend.Below(request.ID, "send echo")
	require.NotEqual(t, spanOf(lost.Header.Get("Traceparent")), spanOf(lost.Doc.Traceparent), "the request has a span of its own")

	options.Name = "b"
	b := clustertest.Start(t, options)
	a.Kill()
	again := waittest.Within(t, "the second attempt", calls)
	again.answer <- `{"type":"text","text":"an answer"}` + "\n"
	require.Equal(t, "completed", b.Under("/agents/echo").Settled(sent.Task()).State())

	require.Equal(t, "SERVER", request.Kind)
	require.Equal(t, map[string]string{
		"holdfast.operation": "send", "holdfast.binding": "jsonrpc", "holdfast.version": "0.3", "holdfast.agent": "echo",
		"holdfast.task_id": sent.Task(), "holdfast.context_id": request.Attributes["holdfast.context_id"], "holdfast.outcome": "ok",
		"http.request.method": "POST", "http.response.status_code": "200", "http.route": "/agents/echo",
		"url.scheme": "http", "network.protocol.version": "1.1",
	}, request.Attributes)
	require.NotEmpty(t, request.Attributes["holdfast.context_id"])
	require.Equal(t, "holdfast", request.Resource["service.name"])
	require.NotEmpty(t, request.Resource["service.version"])

	require.Equal(t, "PRODUCER", send.Kind)
	require.Equal(t, "send", send.Attributes["messaging.operation.type"])
	require.Equal(t, "echo", send.Attributes["messaging.destination.name"])
	require.Equal(t, request.Resource["service.instance.id"], send.Resource["service.instance.id"])

	run := backend.Below(send.ID, "process echo")
	require.Equal(t, "CONSUMER", run.Kind)
	require.Equal(t, []string{send.ID}, run.Links, "to what created the task")
	require.Equal(t, run.ID, spanOf(again.Doc.Traceparent))
	require.Equal(t, state, again.Doc.Tracestate)
	require.Equal(t, "process", run.Attributes["messaging.operation.type"])
	require.Equal(t, clustertest.One[string](db, "SELECT max(attempt)::text FROM holdfast.v_tasks"), run.Attributes["holdfast.attempt"])
	require.Equal(t, "2", run.Attributes["holdfast.try"])
	require.Equal(t, "completed", run.Attributes["holdfast.outcome"])
	require.NotEqual(t, send.Resource["service.instance.id"], run.Resource["service.instance.id"], "it ran on the other replica")

	asked := backend.Below(run.ID, "POST")
	require.Equal(t, "CLIENT", asked.Kind)
	require.Equal(t, asked.ID, spanOf(again.Header.Get("Traceparent")))
	require.Equal(t, "200", asked.Attributes["http.response.status_code"])

	notifications, states := receiver.Until("completed")
	require.NotEmpty(t, states)
	for _, n := range notifications {
		posted := backend.Await("a notification", func(s *otlptest.Span) bool { return s.ID == spanOf(n.Header.Get("Traceparent")) })
		require.Equal(t, "POST", posted.Name)
		delivery := backend.Await("its delivery", func(s *otlptest.Span) bool { return s.ID == posted.Parent })
		require.Equal(t, "deliver echo", delivery.Name)
		require.Equal(t, send.ID, delivery.Parent)
		require.Equal(t, n.ID(), delivery.Attributes["holdfast.delivery_id"])
		require.Equal(t, "delivered", delivery.Attributes["holdfast.outcome"])
	}

	// A statement of a request has a span below it. The task has ended, and b has kept it since it sent the webhook.
	b.GetOver(a2atest.V03, a2atest.Say().To(sent.Task()).At("echo").With("traceparent", parent))
	get := backend.Below(clientID, "A2A get")
	read := backend.Below(get.ID, "TaskWitness")
	require.Equal(t, map[string]string{"db.system.name": "postgresql", "db.query.summary": "TaskWitness"}, read.Attributes)

	for _, s := range backend.Spans() {
		if s.Attributes["holdfast.task_id"] == sent.Task() && s.Name != "A2A get" {
			require.Equal(t, traceID, s.Trace, s.Name)
		}
		for key, value := range s.Attributes {
			require.NotContains(t, value, secret, "%s of %s", key, s.Name)
		}
	}
	require.Equal(t, traceID, clustertest.One[string](db, "SELECT trace_id FROM holdfast.v_tasks"))
	require.Contains(t, db.Operate("tasks", "get", sent.Task()), traceID)
}

// Without the variables, nobody gets a header that the client has not sent.
func TestTracingIsOff(t *testing.T) {
	t.Parallel()
	receiver, db := receivertest.Start(t, 1), clustertest.NewDB(t)
	url, calls := newAgent(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: fmt.Sprintf(clustertest.Settings+`
  - name: echo
    executor: {kind: http, http: {url: %q}}
`+receivertest.Pushing(nil), url)})
	say := func(header ...string) *call {
		t.Helper()
		a.Send(a2atest.V03, a2atest.Say("x").At("echo").With(header...).Hooked(receiver.URL+"/x", nil).Detached())
		c := waittest.Within(t, "the call", calls)
		c.answer <- `{"type":"text","text":"an answer"}` + "\n"
		all, _ := receiver.Until("completed")
		for _, n := range all {
			require.NotContains(t, n.Header, "Traceparent")
			require.NotContains(t, n.Header, "Tracestate")
		}
		return c
	}
	plain := say()
	require.NotContains(t, plain.Header, "Traceparent")
	require.NotContains(t, plain.Header, "Tracestate")
	require.Empty(t, plain.Doc)

	passed := say("traceparent", parent, "tracestate", state)
	require.Equal(t, []string{parent}, passed.Header["Traceparent"])
	require.Equal(t, []string{state}, passed.Header["Tracestate"])
	require.Equal(t, parent, passed.Doc.Traceparent)

	// The line of each request is in the log, with the ids that the client sent.
	say("traceparent", parent, "x-request-id", "r-1")
	say("x-request-id", "not an id")
	a.GetOver(a2atest.V03, a2atest.Say().To(clustertest.One[string](db, "SELECT max(task_id) FROM holdfast.v_tasks")).At("echo"))
	var ids []string
	for text := range strings.Lines(a.Log()) {
		var line struct {
			Msg       string
			TraceID   string `json:"trace_id"`
			RequestID string `json:"request_id"`
		}
		if json.Unmarshal([]byte(text), &line) == nil && line.Msg == "request" {
			ids = append(ids, line.TraceID+" "+line.RequestID)
		}
	}
	require.Equal(t, []string{" ", traceID + " ", traceID + " r-1", " "}, ids, "only those that change something")
	require.Equal(t, []string{"", traceID, traceID, ""}, clustertest.Column[string](db, "SELECT coalesce(trace_id, '') FROM holdfast.v_tasks ORDER BY created_at"))
}

// The trace goes on in agents of each kind: in the environment of a program, in the calls of a model, over gRPC to another
// server, and in the tasks of other agents.
func TestTraceInAgentsOfEachKind(t *testing.T) {
	t.Parallel()
	backend, db := otlptest.Start(t), clustertest.NewDB(t)
	model := modeltest.New(t, modeltest.Streams(modeltest.Role, modeltest.Text("42"), modeltest.Stop, modeltest.Spent, modeltest.Done))
	far := clustertest.Start(t, clustertest.Options{Name: "far", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings, Env: backend.Env()})
	a := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: db.URL,
		Env: append(backend.Env(), "OTEL_SEMCONV_STABILITY_OPT_IN=http,gen_ai_latest_experimental", "OTEL_SERVICE_NAME=travel", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"),
		Config: clustertest.Settings + fmt.Sprintf(`
  - name: shell
    executor: {kind: command, command: {argv: [sh, -c, 'printf "{\"type\":\"text\",\"text\":\"%%s %%s\"}\n" "$TRACEPARENT" "$TRACESTATE"']}}
  - name: model
    executor: {kind: openai, openai: {base_url: %q, model: %q, api_key: %q}}
  - name: far
    executor: {kind: a2a, a2a: {url: "http://%s", version: "1.0", binding: grpc}}
  - name: planner
    executor: {kind: command, command: {argv: [sh, -c, 'if grep -q "results"; then printf "{\"type\":\"text\",\"text\":\"done\"}\n"; else printf "{\"type\":\"call\",\"calls\":[{\"agent\":\"demo\",\"message\":\"echo:hi\"}]}\n"; fi']}}
`, model.Base(), modeltest.Model, modeltest.Key, far.GRPC),
	})
	// run sends a message to an agent, and returns its result and the span of its run.
	run := func(agent string) (*a2atest.Result, *otlptest.Span) {
		t.Helper()
		res := a.Send(a2atest.V03, a2atest.Say("echo:hi").At(agent).With("traceparent", parent, "tracestate", state))
		require.Equal(t, "completed", res.State(), "%s: %s", agent, res.Said())
		send := backend.Await("send "+agent, func(s *otlptest.Span) bool {
			return s.Name == "send "+agent && s.Attributes["holdfast.task_id"] == res.Task()
		})
		require.Equal(t, traceID, send.Trace)
		require.Equal(t, "travel", send.Resource["service.name"])
		require.Equal(t, "test", send.Resource["deployment.environment.name"])
		return res, backend.Below(send.ID, "process "+agent)
	}

	res, work := run("shell")
	invoked := backend.Below(work.ID, "invoke_agent shell")
	require.Equal(t, map[string]string{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "holdfast", "gen_ai.agent.name": "shell",
		"gen_ai.conversation.id": work.Attributes["holdfast.context_id"],
	}, invoked.Attributes)
	require.Equal(t, "00-"+traceID+"-"+invoked.ID+"-01 "+state, a2atest.Text(res.Artifacts[0].Parts))

	_, work = run("model")
	chat := backend.Below(backend.Below(work.ID, "invoke_agent model").ID, "chat "+modeltest.Model)
	require.Equal(t, "CLIENT", chat.Kind)
	require.Equal(t, "chat", chat.Attributes["gen_ai.operation.name"])
	require.Equal(t, modeltest.Model, chat.Attributes["gen_ai.request.model"])
	require.Equal(t, "stop", chat.Attributes["gen_ai.response.finish_reasons"])
	require.Regexp(t, `^[1-9]\d*$`, chat.Attributes["gen_ai.usage.input_tokens"])
	require.Regexp(t, `^[1-9]\d*$`, chat.Attributes["gen_ai.usage.output_tokens"])
	require.Equal(t, backend.Below(chat.ID, "POST").ID, spanOf(model.Calls()[0].Trace))

	_, work = run("far")
	called := backend.Await("the call of the other server", func(s *otlptest.Span) bool {
		return s.Parent == backend.Below(work.ID, "invoke_agent far").ID && s.Kind == "CLIENT" && s.Attributes["rpc.system.name"] == "grpc"
	})
	require.Contains(t, called.Name, "/Send")
	served := backend.Below(called.ID, called.Name)
	require.Equal(t, "SERVER", served.Kind)
	require.Equal(t, "grpc", served.Attributes["holdfast.binding"])
	require.Equal(t, "holdfast", served.Resource["service.name"])
	backend.Below(backend.Below(served.ID, "send demo").ID, "process demo")

	_, work = run("planner")
	require.Equal(t, "calls", work.Attributes["holdfast.outcome"])
	sent := backend.Below(backend.Await("the calling run", func(s *otlptest.Span) bool {
		return s.ID == work.ID
	}).ID, "send demo")
	require.Equal(t, traceID, backend.Below(sent.ID, "process demo").Trace)
}

// A stream has a span until it ends, and an export that fails delays nothing.
func TestStreamsAndExportsThatFail(t *testing.T) {
	t.Parallel()
	backend, db := otlptest.Start(t), clustertest.NewDB(t)
	backend.Refuse(true)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings, Env: append(backend.Env(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT="+backend.GRPC)})
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("echo:x")).State())
	waittest.Eventually(t, "the error is logged", func() error {
		return waittest.Unless(strings.Contains(a.Log(), "traces were not exported"), "not yet")
	})
	backend.Refuse(false)
	s := a.Stream(a2atest.V03, a2atest.Say("ask:more?").With("traceparent", parent))
	s.UntilState("input-required")
	backend.Below(backend.Below(backend.Below(clientID, "A2A stream").ID, "send demo").ID, "process demo")

	// The turn of a second message is in the trace of its request, with a link to the span that created the task.
	const other = "a3ce929d0e0e47364bf92f3577b34da6"
	a.Send(a2atest.V03, a2atest.Say("yes").To(s.Task).With("traceparent", "00-"+other+"-"+clientID+"-01"))
	again := backend.Await("the second turn", func(s *otlptest.Span) bool { return s.Trace == other && s.Name == "process demo" })
	created := backend.Await("the first", func(s *otlptest.Span) bool { return s.Trace == traceID && s.Name == "send demo" })
	require.Equal(t, []string{created.ID}, again.Links)

	// The last spans are exported before the process ends.
	a.Send(a2atest.V03, a2atest.Say("echo:last").With("traceparent", "00-"+strings.Repeat("ab", 16)+"-"+clientID+"-01"))
	a.Stop()
	backend.Await("the last run", func(s *otlptest.Span) bool { return s.Trace == strings.Repeat("ab", 16) && s.Name == "process demo" })
}
