package fronts

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// The server of the official Go SDK, with its own store, queues and subscriptions.

// counting is an agent of that SDK: it counts, asks, or answers with a bare message.
type counting struct {
	executions atomic.Int64
	more       chan struct{} // lets it count on
}

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
		case "reject":
			emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateRejected, nil))
			return
		case "count":
			for i := range pieces {
				if c.more != nil {
					<-c.more
				}
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
	agent = &counting{more: make(chan struct{})}
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
	config := clustertest.Steady +
		inFront("card", fmt.Sprintf("card_url: %q", base), "") +
		inFront("poll", fmt.Sprintf("card_url: %q, stream: false", base), "") +
		inFront("rest", fmt.Sprintf("url: %q, version: 1.0, binding: http+json", base+"/rest"), "")
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

func TestCutsBetweenFrontAndTheGoSDK(t *testing.T) {
	t.Parallel()
	agent, link := startSDK(t)
	db := clustertest.NewDB(t)
	config := clustertest.Steady + inFront("count", fmt.Sprintf("card_url: http://%s", link.Addr), "")
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: db.URL, Config: config})
	const n = 10
	streams := make([]*a2atest.Reply, n)
	for i := range streams {
		streams[i] = f.Stream(a2atest.V03, a2atest.Say("count").At("count"))
		// From its first event on, the front knows the agent's task.
		streams[i].Until("the agent's first event", func(e *a2atest.Event) bool { return e.Said() == "at work" })
	}
	go func() {
		for i := range n * pieces {
			if i%(pieces/2) == 0 {
				link.Cut()
			}
			select {
			case agent.more <- struct{}{}:
			case <-t.Context().Done():
				return
			}
		}
	}()
	want := ""
	for i := range pieces {
		want += fmt.Sprintf("%08d ", i)
	}
	for _, s := range streams {
		got := ""
		end := s.Until("the end", func(e *a2atest.Event) bool {
			if e.Artifact != nil {
				require.Equal(t, got != "", e.Append, "no piece replaces the others")
				got += a2atest.Text(e.Artifact.Parts)
			}
			return e.Final
		})
		require.Equal(t, "completed", end.State())
		require.Equal(t, want, got, "each piece once")
	}
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
	without, _, _ := strings.Cut(clustertest.Steady, "agents:")
	f := clustertest.Start(t, clustertest.Options{
		Name: "front", DB: clustertest.NewDB(t).URL, Env: []string{"TRAVEL_TOKEN=s3cret"},
		Config: without + clustertest.Replace(example[1], "http://127.0.0.1:9999", "http://"+link.Addr),
	})
	res := f.Send(a2atest.V10, a2atest.Say("Book me a trip").At("travel"))
	require.Equal(t, "you said Book me a trip", text(res), res.Said())
	require.NotContains(t, f.Log(), "s3cret")
}
