package integration

import (
	"context"
	"errors"
	"io"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// connect opens a connection to the gRPC port of a replica.
func (r *replica) connect(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func said10(text string) *pb10.SendMessageRequest {
	return &pb10.SendMessageRequest{Message: &pb10.Message{
		MessageId: "m-" + text, Role: pb10.Role_ROLE_USER, Parts: []*pb10.Part{{Content: &pb10.Part_Text{Text: text}}},
	}}
}

func said03(text string) *pb03.SendMessageRequest {
	return &pb03.SendMessageRequest{Request: &pb03.Message{
		MessageId: "m-" + text, Role: pb03.Role_ROLE_USER, Parts: []*pb03.Part{{Part: &pb03.Part_Text{Text: text}}},
	}}
}

// all reads a stream to its end.
func all[M any](t testing.TB, s grpc.ServerStreamingClient[M]) []*M {
	t.Helper()
	var out []*M
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, m)
	}
}

func TestBothVersionsOverGRPC(t *testing.T) {
	t.Parallel()
	a := start(t, replicaOptions{Name: "a", DB: newDB(t).url, Config: settings})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := a.connect(t)

	young := pb10.NewA2AServiceClient(conn)
	sent, err := young.SendMessage(metadata.AppendToOutgoingContext(ctx, "a2a-version", "1.0"), said10("echo:hello"))
	require.NoError(t, err)
	require.Equal(t, pb10.TaskState_TASK_STATE_COMPLETED, sent.GetTask().GetStatus().GetState())
	require.Equal(t, "hello", sent.GetTask().GetArtifacts()[0].GetParts()[0].GetText())
	streamevents, err := young.SendStreamingMessage(ctx, said10("chunks=3 size=64 delay=1ms"))
	require.NoError(t, err)
	events := all(t, streamevents)
	require.NotNil(t, events[0].GetTask())
	require.Equal(t, pb10.TaskState_TASK_STATE_COMPLETED, events[len(events)-1].GetStatusUpdate().GetStatus().GetState())
	require.Len(t, events, 6)

	old := pb03.NewA2AServiceClient(conn)
	got, err := old.GetTask(ctx, &pb03.GetTaskRequest{Name: "tasks/" + sent.GetTask().GetId()})
	require.NoError(t, err)
	require.Equal(t, pb03.TaskState_TASK_STATE_COMPLETED, got.GetStatus().GetState())
	streampast, err := old.SendStreamingMessage(ctx, said03("chunks=3 size=64 delay=1ms"))
	require.NoError(t, err)
	past := all(t, streampast)
	require.Len(t, past, 6)
	require.True(t, past[5].GetStatusUpdate().GetFinal())
}
