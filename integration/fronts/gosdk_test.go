package fronts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// The server of the official Go SDK, with its own store, queues and subscriptions.

// counting is an agent of that SDK: it counts, asks, or answers with a bare message.
type counting struct{ executions atomic.Int64 }

const pieces = 40

func (c *counting) Execute(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		c.executions.Add(1)
		said := ""
		for _, p := range in.Message.Parts {
			said += p.Text()
		}
		emit := func(e a2a.Event) bool { return yield(e, nil) }
		if said == "bare" {
			emit(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("hi"), a2a.NewDataPart(map[string]any{"n": 1.0})))
			return
		}
		if in.StoredTask == nil && !emit(a2a.NewSubmittedTask(in, in.Message)) {
			return
		}
		if !emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateWorking, a2a.NewMessageForTask(a2a.MessageRoleAgent, in, a2a.NewTextPart("at work")))) {
			return
		}
		switch said {
		case "ask":
			emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateInputRequired, a2a.NewMessageForTask(a2a.MessageRoleAgent, in, a2a.NewTextPart("which?"))))
			return
		case "facts":
			seen := map[string]any{"metadata": in.Metadata, "references": in.Message.ReferenceTasks, "task": in.TaskID}
			for name, values := range in.ServiceParams.List() {
				seen[name] = values
			}
			text, err := json.Marshal(seen)
			if err != nil {
				yield(nil, err)
				return
			}
			report := a2a.NewMessageForTask(a2a.MessageRoleAgent, in, a2a.NewTextPart(string(text)))
			report.Metadata, report.Extensions = map[string]any{"of": "the message"}, []string{"urn:counter"}
			event := a2a.NewStatusUpdateEvent(in, a2a.TaskStateCompleted, report)
			event.Metadata = map[string]any{"of": "the status"}
			emit(event)
			return
		case "reject":
			emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateRejected, nil))
			return
		case "count":
			for i := range pieces {
				time.Sleep(20 * time.Millisecond) // a slow agent
				event := a2a.NewArtifactUpdateEvent(in, "numbers", a2a.NewTextPart(fmt.Sprintf("%08d ", i)))
				event.Append = i > 0
				if !emit(event) {
					return
				}
			}
		default:
			if !emit(a2a.NewArtifactEvent(in, a2a.NewTextPart("you said "+said))) {
				return
			}
		}
		emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCompleted, nil))
	}
}

func (c *counting) Cancel(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCanceled, nil), nil)
	}
}

// startSDK starts the server and shows it behind link.
func startSDK(t testing.TB) (agent *counting, link *clustertest.Proxy) {
	t.Helper()
	agent = &counting{}
	handler := a2asrv.NewHandler(agent)
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(handler)))
	server := httptest.NewUnstartedServer(mux)
	link = clustertest.NewProxy(t, server.Listener.Addr().(*net.TCPAddr).String())
	card := &a2a.AgentCard{
		Name: "Counter", Description: "Counts.", Version: "3.1",
		Capabilities:      a2a.AgentCapabilities{Streaming: true, Extensions: []a2a.AgentExtension{{URI: "urn:counter"}}},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain", "application/json"},
		Skills:              []a2a.AgentSkill{{ID: "count", Name: "Count", Description: "Counts up.", Tags: []string{"numbers"}}},
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface("http://"+link.Addr+"/rpc", a2a.TransportProtocolJSONRPC)},
	}
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(card))
	server.Start()
	t.Cleanup(server.Close)
	return agent, link
}

func TestFrontOfTheGoSDK(t *testing.T) {
	t.Parallel()
	agent, link := startSDK(t)
	base := "http://" + link.Addr
	config := clustertest.Settings +
		front("card", fmt.Sprintf("card_url: %q", base), "") +
		front("poll", fmt.Sprintf("card_url: %q, stream: false", base), "") +
		front("rest", fmt.Sprintf("url: %q, version: 1.0, binding: http+json", base+"/rest"), "")
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})
	t.Cleanup(func() { require.EqualValues(t, 3*5, agent.executions.Load()) }) // after the parallel subtests
	for _, name := range []string{"card", "poll", "rest"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := f.In(t)
			send := func(says, task string) *a2atest.Result {
				t.Helper()
				return f.Send(a2atest.V03, a2atest.Say(says).To(task).At(name))
			}
			res := send("hello", "")
			require.Equal(t, "completed", res.State(), res.Said())
			require.Equal(t, "you said hello", text(res))
			require.Equal(t, "at work", a2atest.Text(res.History[len(res.History)-1].Parts))

			res = send("ask", "")
			require.Equal(t, "input-required", res.State())
			require.Equal(t, "which?", res.Said())
			res = send("that one", res.Task())
			require.Equal(t, "completed", res.State(), res.Said())
			require.Equal(t, "you said that one", text(res))

			require.Equal(t, "rejected", send("reject", "").State())
			res = send("bare", "")
			require.Equal(t, "completed", res.State(), res.Said())
			require.Contains(t, res.Said(), "hi")
		})
	}
}

// Facts beside a message reach the agent, and facts beside its answer reach the client.
func TestFactsPassTheFront(t *testing.T) {
	t.Parallel()
	_, link := startSDK(t)
	config := clustertest.Settings + front("count", fmt.Sprintf("card_url: http://%s", link.Addr), "")
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})
	ask := func(references ...string) (task string, events string) {
		t.Helper()
		resp, err := a2atest.Post(t.Context(), f.URL+"/agents/count", a2atest.Request("SendStreamingMessage", a2atest.Object{
			"message": a2atest.Object{
				"messageId": "m", "role": "ROLE_USER", "parts": []any{a2atest.Object{"text": "facts"}}, "referenceTaskIds": references,
			},
			"metadata": a2atest.Object{"of": "the request"}, "configuration": a2atest.Object{"acceptedOutputModes": []string{"application/json"}},
		}), "A2A-Version", "1.0", "A2A-Extensions", "urn:counter, urn:unknown, "+a2atest.ResumeURI,
			"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Authorization", "Bearer of-the-client", "X-Private", "of-the-client")
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		events = strings.ReplaceAll(string(body), `\"`, `"`) // the report is JSON in a text
		id := regexp.MustCompile(`"taskId":"([^"]+)"`).FindStringSubmatch(events)
		require.NotNil(t, id, events)
		return id[1], events
	}
	first, events := ask()
	for _, want := range []string{
		`"metadata":{"of":"the request"}`, `"metadata":{"of":"the message"}`, `"of":"the status"`, `"extensions":["urn:counter"]`,
		`"a2a-extensions":["urn:counter"]`, `"traceparent":["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]`,
	} {
		require.Contains(t, events, want)
	}
	require.NotContains(t, events, "of-the-client", "headers of clients are not forwarded")
	theirs := regexp.MustCompile(`"task":"([^"]+)"`).FindStringSubmatch(events)
	require.NotNil(t, theirs, events)
	require.NotEqual(t, first, theirs[1])
	_, events = ask(first)
	require.Contains(t, events, `"references":["`+theirs[1]+`"]`, "the agent's own task")
}

func TestCutsBetweenFrontAndTheGoSDK(t *testing.T) {
	t.Parallel()
	agent, link := startSDK(t)
	db := clustertest.NewDB(t)
	config := clustertest.Settings + front("count", fmt.Sprintf("card_url: http://%s", link.Addr), "")
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: db.URL, Config: config})
	n := many(t)
	streams := make([]*a2atest.Reply, n)
	for i := range streams {
		streams[i] = f.Stream(a2atest.V03, a2atest.Say("count").At("count"))
		// From its first event on, the front knows the agent's task.
		streams[i].Until("the agent's first event", func(e *a2atest.Event) bool { return e.Said() == "at work" })
	}
	want := ""
	for i := range pieces {
		want += fmt.Sprintf("%08d ", i)
	}
	cuts := 0
	for i, s := range streams {
		got := ""
		for {
			e, err := s.Next()
			if err != nil {
				require.Fail(t, "a client's stream broke", "%v", err)
			}
			if e.Artifact != nil {
				require.Equal(t, got != "", e.Append, "no piece replaces the others")
				got += a2atest.Text(e.Artifact.Parts)
				if i == 0 && len(got)%3 == 0 {
					cuts++
					link.Cut()
				}
			}
			if e.State() == "completed" {
				break
			}
			require.NotContains(t, []string{"failed", "canceled"}, e.State())
		}
		require.Equal(t, want, got, "each piece once")
	}
	require.Positive(t, cuts)
	require.EqualValues(t, n, agent.executions.Load(), "each message was executed once")
	db.Sound()
}

// The page's example, with the address and the token of this test.
func TestTheExampleOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/agents/a2a.md")
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```yaml holdfast.yaml\n(.*?)```").FindStringSubmatch(string(page))
	require.NotNil(t, example)
	_, link := startSDK(t)
	without, _, _ := strings.Cut(clustertest.Settings, "agents:")
	f := clustertest.Start(t, clustertest.Options{
		Name: "front", DB: clustertest.NewDB(t).URL, Env: []string{"TRAVEL_TOKEN=s3cret"},
		Config: without + clustertest.Replace(example[1], "http://127.0.0.1:9999", "http://"+link.Addr),
	})
	res := f.Send(a2atest.V10, a2atest.Say("Book me a trip").At("travel"))
	require.Equal(t, "you said Book me a trip", text(res), res.Said())
	require.NotContains(t, f.Log(), "s3cret")
}
