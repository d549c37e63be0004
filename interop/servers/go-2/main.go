// Command go-2 is an agent on the server of the official Go SDK 2: go-2 PORT [PORT OF GRPC]. It prints a line for each execution.
package main

import (
	"context"
	"fmt"
	"iter"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
	"google.golang.org/grpc"
)

func main() {
	addr := "127.0.0.1:" + os.Args[1]
	handler := a2asrv.NewHandler(agent{}, a2asrv.WithPushNotifications(
		push.NewInMemoryStore(), push.NewHTTPPushSender(&push.HTTPSenderConfig{AllowPrivateNetworks: true})))
	interfaces := []*a2a.AgentInterface{a2a.NewAgentInterface("http://"+addr+"/", a2a.TransportProtocolJSONRPC)}
	if len(os.Args) > 2 {
		at := "127.0.0.1:" + os.Args[2]
		listener, err := net.Listen("tcp", at)
		if err != nil {
			log.Fatal(err)
		}
		server := grpc.NewServer()
		a2agrpc.NewHandler(handler).RegisterWith(server)
		go func() { log.Fatal(server.Serve(listener)) }()
		interfaces = append(interfaces, a2a.NewAgentInterface(at, a2a.TransportProtocolGRPC))
	}
	mux := http.NewServeMux()
	mux.Handle("/", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "demo", Description: "Follows the script in its message.", Version: "1",
		Capabilities:      a2a.AgentCapabilities{Streaming: true, PushNotifications: true},
		DefaultInputModes: []string{"*/*"}, DefaultOutputModes: []string{"*/*"},
		Skills:              []a2a.AgentSkill{{ID: "demo", Name: "Demo", Description: "Follows a script.", Tags: []string{"demo"}}},
		SupportedInterfaces: interfaces,
	}))
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// agent follows a part of the script of Holdfast's demo agent.
type agent struct{}

var sample = map[string]any{
	"greeting": "hello", "big": uint64(12345678901234567890), "float": 1.0, "list": []any{1, "two", nil, true}, "a": map[string]any{"z": 1, "a": 2},
}

func (agent) Execute(ctx context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		said := in.Message.Parts[0].Text()
		fmt.Println("executed", in.TaskID, said)
		emit := func(e a2a.Event) bool { return yield(e, nil) }
		status := func(s a2a.TaskState, parts ...*a2a.Part) bool {
			var m *a2a.Message
			if len(parts) > 0 {
				m = a2a.NewMessageForTask(a2a.MessageRoleAgent, in, parts...)
			}
			return emit(a2a.NewStatusUpdateEvent(in, s, m))
		}
		artifact := func(id a2a.ArtifactID, parts ...*a2a.Part) bool {
			e := a2a.NewArtifactUpdateEvent(in, id, parts...)
			e.Append = false
			return emit(e)
		}
		if in.StoredTask == nil && !emit(a2a.NewSubmittedTask(in, in.Message)) || !status(a2a.TaskStateWorking) {
			return
		}
		verb, rest, _ := strings.Cut(said, ":")
		var count, size, delay int
		switch {
		case in.StoredTask != nil:
			artifact("answer", a2a.NewTextPart("You answered: "+said))
		case verb == "echo":
			artifact("echo", a2a.NewTextPart(rest))
		case verb == "ask":
			status(a2a.TaskStateInputRequired, a2a.NewTextPart(rest))
			return
		case said == "hold":
			<-ctx.Done()
			return
		case scan(said, "sleep=%dms", &delay):
			time.Sleep(time.Duration(delay) * time.Millisecond)
		case scan(said, "chunks=%d size=%d delay=%dms", &count, &size, &delay):
			for i := range count {
				text := fmt.Sprintf("%08d ", i)
				e := a2a.NewArtifactUpdateEvent(in, "chunks", a2a.NewTextPart(text+strings.Repeat(".", size-len(text))))
				e.Append = i > 0
				if !emit(e) {
					return
				}
				time.Sleep(time.Duration(delay) * time.Millisecond)
			}
		case said == "file":
			part := a2a.NewRawPart([]byte("Hello from Holdfast.\n"))
			part.Filename, part.MediaType = "hello.txt", "text/plain"
			artifact("file", part)
		case said == "data":
			artifact("data", a2a.NewDataPart(sample))
		default:
			artifact("echo", in.Message.Parts...)
		}
		status(a2a.TaskStateCompleted)
	}
}

// scan reports whether a command has a form, and reads its numbers.
func scan(command, form string, numbers ...any) bool {
	n, _ := fmt.Sscanf(command, form, numbers...)
	return n == len(numbers)
}

func (agent) Cancel(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCanceled, nil), nil)
	}
}
