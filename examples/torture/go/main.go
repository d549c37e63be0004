// Command go is an agent that obeys the contract of docs/torture.md, on the official Go SDK: go PORT. The name of the caller is the
// bearer token.
package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
)

func main() {
	addr := "127.0.0.1:" + os.Args[1]
	handler := a2asrv.NewHandler(agent{}, a2asrv.WithCallInterceptors(callers{}), a2asrv.WithPushNotifications(
		push.NewInMemoryStore(), push.NewHTTPPushSender(&push.HTTPSenderConfig{AllowPrivateNetworks: true})))
	old := a2a.NewAgentInterface("http://"+addr+"/v0", a2a.TransportProtocolJSONRPC)
	old.ProtocolVersion = "0.3"
	mux := http.NewServeMux()
	mux.Handle("/", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(handler)))
	mux.Handle("/v0", a2av0.NewJSONRPCHandler(handler))
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "torture", Description: "Obeys the contract of docs/torture.md.", Version: "1",
		Capabilities:      a2a.AgentCapabilities{Streaming: true, PushNotifications: true},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills: []a2a.AgentSkill{{ID: "torture", Name: "Torture", Description: "Follows a script.", Tags: []string{"test"}}},
		SupportedInterfaces: []*a2a.AgentInterface{
			a2a.NewAgentInterface("http://"+addr+"/", a2a.TransportProtocolJSONRPC),
			a2a.NewAgentInterface("http://"+addr+"/rest", a2a.TransportProtocolHTTPJSON), old,
		},
	}))
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

type agent struct{}

// Execute implements a2asrv.AgentExecutor.
func (agent) Execute(ctx context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		emit := func(e a2a.Event) bool { return yield(e, nil) }
		said, answers := in.Message.Parts[0].Text(), in.StoredTask != nil
		if !answers && !emit(a2a.NewSubmittedTask(in, in.Message)) || !emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateWorking, nil)) {
			return
		}
		if answers && !emit(chunk(in, in.Message.ID, "You said: "+said, true, true)) {
			return
		}
		if question, asks := strings.CutPrefix(said, "torture ask "); asks {
			emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateInputRequired, a2a.NewMessageForTask(a2a.MessageRoleAgent, in, a2a.NewTextPart(question))))
			return
		}
		if !answers && !perform(ctx, in, strings.TrimPrefix(said, "torture "), emit) {
			return
		}
		emit(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCompleted, nil))
	}
}

// perform does what a script says. It reports whether the task is to be completed.
func perform(ctx context.Context, in *a2asrv.ExecutorContext, script string, emit func(a2a.Event) bool) bool {
	verb, rest, _ := strings.Cut(script, " ")
	var count, size, pause int
	switch verb {
	case "echo":
		return emit(chunk(in, "echo", rest, true, true))
	case "chunks":
		if _, err := fmt.Sscan(rest, &count, &size, &pause); err != nil {
			return false
		}
		for i := range count {
			if i > 0 && !wait(ctx, pause) {
				return false
			}
			if text := fmt.Sprintf("%08d", i); !emit(chunk(in, "chunks", text+strings.Repeat(".", size-len(text)), i == 0, i == count-1)) {
				return false
			}
		}
	case "sleep":
		_, err := fmt.Sscan(rest, &pause)
		return err == nil && wait(ctx, pause)
	case "hold":
		<-ctx.Done()
		return false
	}
	return true
}

func chunk(in *a2asrv.ExecutorContext, id, text string, first, last bool) a2a.Event {
	e := a2a.NewArtifactUpdateEvent(in, a2a.ArtifactID(id), a2a.NewTextPart(text))
	e.Append, e.LastChunk = !first, last
	return e
}

func wait(ctx context.Context, milliseconds int) bool {
	select {
	case <-time.After(time.Duration(milliseconds) * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// Cancel implements a2asrv.AgentExecutor.
func (agent) Cancel(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCanceled, nil), nil)
	}
}

type callers struct {
	a2asrv.PassthroughCallInterceptor
}

// Before implements a2asrv.CallInterceptor.
func (callers) Before(ctx context.Context, call *a2asrv.CallContext, _ *a2asrv.Request) (context.Context, any, error) {
	if values, ok := call.ServiceParams().Get("Authorization"); ok && len(values) == 1 {
		call.User = a2asrv.NewAuthenticatedUser(strings.TrimPrefix(values[0], "Bearer "), nil)
	}
	return ctx, nil, nil
}
