package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

// caller is a client that makes one request after another.
type caller interface {
	// send creates a task and waits for its end.
	send(text string) error
	// stream creates a task, follows its stream, and returns the number of chunks that arrived.
	stream(text string) (chunks int, err error)
}

// bindingCases are the bindings and versions to compare. Each request in flight has a caller of its own.
var bindingCases = []struct {
	name string
	make func(b *testing.B, r *replica) caller
}{
	{"jsonrpc-0.3", func(b *testing.B, r *replica) caller {
		b.Helper()
		return newWebCaller(b, r.URL, r.URL, "0.3", "artifact-update", "completed", func(t *load.Target, text string, stream bool) []byte {
			return t.Request(map[bool]string{false: "message/send", true: "message/stream"}[stream], load.Message("m-1", text, true), "")
		})
	}},
	{"jsonrpc-1.0", func(b *testing.B, r *replica) caller {
		b.Helper()
		return newWebCaller(b, r.URL, r.URL, "1.0", "artifactUpdate", "TASK_STATE_COMPLETED", func(t *load.Target, text string, stream bool) []byte {
			return t.Request(map[bool]string{false: "SendMessage", true: "SendStreamingMessage"}[stream], message10(text), "")
		})
	}},
	{"rest-1.0", func(b *testing.B, r *replica) caller {
		b.Helper()
		at := r.URL + "/message:"
		return newWebCaller(b, at+"send", at+"stream", "1.0", "artifactUpdate", "TASK_STATE_COMPLETED", func(t *load.Target, text string, _ bool) []byte {
			return t.Post(message10(text), "")
		})
	}},
	{"grpc-1.0", newGRPCCaller},
}

func message10(text string) []byte {
	return fmt.Appendf(nil, `{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":%q}]}}`, text)
}

// bindings compares the bindings, one after the other.
func bindings(b *testing.B) {
	b.Helper()
	c := newCluster(b, whole, whole)
	callers := func(b *testing.B, connect func(*testing.B, *replica) caller, n int) []caller {
		b.Helper()
		var all []caller
		for range n {
			all = append(all, connect(b, c.replicas[0]))
		}
		return all
	}
	for _, n := range []int{16, 64} {
		for _, w := range bindingCases {
			b.Run(fmt.Sprintf("%s/blocking/inflight=%d", w.name, n), func(b *testing.B) {
				elapsed, took := spread(b, b.N, callers(b, w.make, n), func(c caller) error { return c.send("echo:hello") })
				metric(b, float64(b.N)/elapsed.Seconds(), "tasks/s")
				quantiles(b, took)
			})
		}
		settle(b)
	}
	const streams, each = 64, 1000
	for _, w := range bindingCases {
		b.Run(fmt.Sprintf("%s/stream/streams=%d", w.name, streams), func(b *testing.B) {
			count := (b.N + streams - 1) / streams * streams
			elapsed, _ := spread(b, count, callers(b, w.make, streams), func(c caller) error {
				n, err := c.stream(chunks(each))
				if err == nil && n != each {
					err = fmt.Errorf("%d of %d chunks arrived", n, each)
				}
				return err
			})
			metric(b, float64(count*each)/elapsed.Seconds(), "chunks/s")
		})
		settle(b)
	}
}

// webCaller speaks A2A over HTTP.
type webCaller struct {
	sending, streaming *load.Target
	conn               *load.Conn
	request            func(t *load.Target, text string, stream bool) []byte
	chunk, completed   []byte // substrings of the documents
}

func newWebCaller(
	b *testing.B, sending, streaming, version, chunk, completed string, request func(*load.Target, string, bool) []byte,
) caller {
	b.Helper()
	target := func(url string) *load.Target {
		t, err := load.NewTarget(url, http.Header{"A2a-Version": {version}})
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	c := &webCaller{
		sending: target(sending), streaming: target(streaming), request: request,
		chunk: []byte(chunk), completed: []byte(`"` + completed + `"`),
	}
	c.conn = dial(b, c.sending)
	return c
}

var errUnfinished = errors.New("the task has not completed")

func (c *webCaller) send(text string) error {
	body, err := c.conn.Call(c.request(c.sending, text, false))
	if err == nil && !bytes.Contains(body, c.completed) {
		err = errUnfinished
	}
	return err
}

// stream uses a new connection, which the server closes at the end.
func (c *webCaller) stream(text string) (chunks int, err error) {
	conn, err := c.streaming.Dial(context.Background())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	done := false
	err = conn.Stream(c.request(c.streaming, text, true), func(data []byte) error {
		if bytes.Contains(data, c.chunk) {
			chunks++
		} else {
			done = bytes.Contains(data, c.completed)
		}
		return nil
	})
	if err == nil && !done {
		err = errUnfinished
	}
	return chunks, err
}

// grpcCaller speaks 1.0 over gRPC.
type grpcCaller struct {
	client pb.A2AServiceClient
	ctx    context.Context //nolint:containedctx // of the benchmark
}

func newGRPCCaller(b *testing.B, r *replica) caller {
	b.Helper()
	conn, err := grpc.NewClient(r.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	conn.Connect()
	return &grpcCaller{pb.NewA2AServiceClient(conn), metadata.AppendToOutgoingContext(b.Context(), "a2a-version", "1.0")}
}

func (c *grpcCaller) message(text string) *pb.SendMessageRequest {
	return &pb.SendMessageRequest{Message: &pb.Message{
		MessageId: "m-1", Role: pb.Role_ROLE_USER, Parts: []*pb.Part{{Content: &pb.Part_Text{Text: text}}},
	}}
}

func (c *grpcCaller) send(text string) error {
	r, err := c.client.SendMessage(c.ctx, c.message(text))
	if err == nil && r.GetTask().GetStatus().GetState() != pb.TaskState_TASK_STATE_COMPLETED {
		err = errUnfinished
	}
	return err
}

func (c *grpcCaller) stream(text string) (chunks int, err error) {
	s, err := c.client.SendStreamingMessage(c.ctx, c.message(text))
	if err != nil {
		return 0, err
	}
	state := pb.TaskState_TASK_STATE_UNSPECIFIED
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return chunks, err
		}
		if m.GetArtifactUpdate() != nil {
			chunks++
		} else {
			state = m.GetStatusUpdate().GetStatus().GetState()
		}
	}
	if state != pb.TaskState_TASK_STATE_COMPLETED {
		return chunks, errUnfinished
	}
	return chunks, nil
}
