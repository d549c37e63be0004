package development

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/grpc"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// talker is an agent of the official Go SDK, on a server of that SDK: it counts, asks, or says what it got.
type talker struct{ more chan struct{} } // it waits for more after half of the pieces

const pieces = 20

func (k talker) Execute(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		emit := func(e a2a.Event) bool { return yield(e, nil) }
		if in.StoredTask == nil && !emit(a2a.NewSubmittedTask(in, in.Message)) {
			return
		}
		if !emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateWorking, nil)) {
			return
		}
		said := in.Message.Parts[0].Text()
		switch said {
		case "ask":
			emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateInputRequired, a2a.NewMessageForTask(a2a.MessageRoleAgent, in, a2a.NewTextPart("which?"))))
			return
		case "count":
			for i := range pieces {
				if i == pieces/2 {
					<-k.more
				}
				event := a2a.NewArtifactUpdateEvent(in, "numbers", a2a.NewTextPart(fmt.Sprintf("%08d ", i)))
				event.Append = i > 0
				if !emit(event) {
					return
				}
			}
		default:
			if !emit(a2a.NewArtifactEvent(in, a2a.NewTextPart(fmt.Sprintf("you said %s in %d parts", said, len(in.Message.Parts))))) {
				return
			}
		}
		emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCompleted, nil))
	}
}

func (talker) Cancel(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCanceled, nil), nil)
	}
}

// startSDK starts the server over every binding, and shows its HTTP behind link.
func startSDK(t testing.TB) (link *clustertest.Proxy, agent talker) {
	t.Helper()
	agent = talker{make(chan struct{}, 1)}
	handler := a2asrv.NewHandler(agent)
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(handler)))
	server := httptest.NewUnstartedServer(mux)
	link = clustertest.NewProxy(t, server.Listener.Addr().(*net.TCPAddr).String())

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rpc := grpc.NewServer()
	a2agrpc.NewHandler(handler).RegisterWith(rpc)
	go func() { _ = rpc.Serve(l) }()
	t.Cleanup(rpc.Stop)

	card := &a2a.AgentCard{
		Name: "Talker", Description: "Talks.", Version: "1",
		Capabilities:      a2a.AgentCapabilities{Streaming: true},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: "talk", Name: "Talk", Description: "Talks.", Tags: []string{"words"}}},
		SupportedInterfaces: []*a2a.AgentInterface{
			a2a.NewAgentInterface(l.Addr().String(), a2a.TransportProtocolGRPC),
			a2a.NewAgentInterface("http://"+link.Addr+"/rest", a2a.TransportProtocolHTTPJSON),
			a2a.NewAgentInterface("http://"+link.Addr+"/rpc", a2a.TransportProtocolJSONRPC),
		},
	}
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(card))
	server.Start()
	t.Cleanup(server.Close)
	return link, agent
}
