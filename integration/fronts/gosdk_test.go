package fronts

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// The server of the official Go SDK, with its own store, queues and subscriptions.

// echoing is an agent of that SDK: it says what it got.
type echoing struct{}

func (echoing) Execute(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		_ = yield(a2a.NewSubmittedTask(in, in.Message), nil) &&
			yield(a2a.NewArtifactEvent(in, a2a.NewTextPart("you said "+in.Message.Parts[0].Text())), nil) &&
			yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCompleted, nil), nil)
	}
}

func (echoing) Cancel(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCanceled, nil), nil)
	}
}

// startSDK starts the server.
func startSDK(t testing.TB) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(echoing{})))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "Echo", Description: "Echoes.", Version: "1", Capabilities: a2a.AgentCapabilities{Streaming: true},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills:              []a2a.AgentSkill{{ID: "echo", Name: "Echo", Description: "Echoes.", Tags: []string{"words"}}},
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(server.URL+"/rpc", a2a.TransportProtocolJSONRPC)},
	}))
	return server.URL
}

// The page's example, with the address and the token of this test.
func TestTheExampleOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/agents/a2a.md")
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```yaml holdfast.yaml\n(.*?)```").FindStringSubmatch(string(page))
	require.NotNil(t, example)
	url := startSDK(t)
	without, _, _ := strings.Cut(clustertest.Steady, "agents:")
	f := clustertest.Start(t, clustertest.Options{
		Name: "front", DB: clustertest.NewDB(t).URL, Env: []string{"TRAVEL_TOKEN=s3cret"},
		Config: without + clustertest.Replace(example[1], "http://127.0.0.1:9999", url),
	})
	res := f.Send(a2atest.V10, a2atest.Say("Book me a trip").At("travel"))
	require.Equal(t, "you said Book me a trip", text(res), res.Said())
	require.NotContains(t, f.Log(), "s3cret")
}
