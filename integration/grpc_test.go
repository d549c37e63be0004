package integration

import (
	"context"
	"errors"
	"io"
	"strconv"
	"syscall"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
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

// grpcStream is a stream of 1.0 with the ids that are in its messages.
type grpcStream struct {
	t      testing.TB
	s      grpc.ServerStreamingClient[pb10.StreamResponse]
	cancel context.CancelFunc
	last   string
}

// follow resumes the stream of a task on a replica; after "" it begins with the task.
func (r *replica) follow(taskID, after string) *grpcStream {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	ctx = metadata.AppendToOutgoingContext(ctx, "a2a-extensions", resumeURI)
	if after != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "a2a-last-event-id", after)
	}
	s, err := pb10.NewA2AServiceClient(r.connect(r.t)).SubscribeToTask(ctx, &pb10.SubscribeToTaskRequest{Id: taskID})
	require.NoError(r.t, err)
	return &grpcStream{r.t, s, cancel, after}
}

// next reads one event, and puts down its id and what it says.
func (f *grpcStream) next() (seen, error) {
	m, err := f.s.Recv()
	if err != nil {
		return seen{}, err
	}
	md := m.GetTask().GetMetadata()
	var e seen
	switch {
	case m.GetStatusUpdate() != nil:
		md, e.state = m.GetStatusUpdate().GetMetadata(), m.GetStatusUpdate().GetStatus().GetState()
	case m.GetArtifactUpdate() != nil:
		md, e.chunk = m.GetArtifactUpdate().GetMetadata(), m.GetArtifactUpdate().GetArtifact().GetParts()[0].GetText()
	}
	f.last = md.GetFields()[resumeURI].GetStructValue().GetFields()["eventId"].GetStringValue()
	e.seq, err = strconv.ParseInt(f.last, 10, 64)
	require.NoError(f.t, err, "%v", m)
	return e, nil
}

// seen is an event as these tests look at it.
type seen struct {
	seq   int64
	state pb10.TaskState
	chunk string
}

// take reads events.
func (f *grpcStream) take(n int) []seen {
	f.t.Helper()
	var out []seen
	for range n {
		e, err := f.next()
		require.NoError(f.t, err)
		out = append(out, e)
	}
	return out
}

// rest reads until the stream ends, and how.
func (f *grpcStream) rest() (out []seen, err error) {
	for {
		e, err := f.next()
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

// holds compares what was seen with what is stored.
func (l *ledger) holds(taskID string, all []seen, chunks int) {
	l.t.Helper()
	var seqs []int64
	var texts []string
	for _, e := range all {
		seqs = append(seqs, e.seq)
		if e.chunk != "" {
			texts = append(texts, e.chunk)
		}
	}
	stored := l.seqs(taskID)
	require.Equal(l.t, stored[len(stored)-len(seqs):], seqs, "every event that is stored was seen, once and in order")
	require.Equal(l.t, l.chunks(taskID), texts)
	require.Len(l.t, texts, chunks)
}

func TestAStreamIsResumedOnAnotherReplicaOverGRPC(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	// Nothing of this waits for the poll.
	rarely := replace(settings, "hub: {poll_interval: 500ms}", "hub: {poll_interval: 1m}")
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: rarely})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: rarely})
	sent := a.call(v03.send, object{"message": object{
		"kind": "message", "messageId": "m", "role": "user", "parts": []any{object{"kind": "text", "text": "chunks=60 size=64 delay=15ms"}},
	}, "configuration": object{"blocking": false}})
	taskID := sent.task()

	s := a.follow(taskID, "0")
	all := s.take(10)
	s.cancel() // in the middle
	s = b.follow(taskID, s.last)
	all = append(all, s.take(15)...)
	s.cancel()
	s = a.follow(taskID, s.last)
	rest, err := s.rest()
	require.ErrorIs(t, err, io.EOF)
	all = append(all, rest...)
	require.Equal(t, pb10.TaskState_TASK_STATE_COMPLETED, all[len(all)-1].state)
	db.holds(taskID, all, 60)
	// Now that the task has ended, any position still gives all that follows, and the others see the same.
	for _, r := range []*replica{a, b} {
		tail, err := r.follow(taskID, "31").rest()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, all[len(all)-len(tail):], tail)
		none, err := r.follow(taskID, s.last).rest()
		require.ErrorIs(t, err, io.EOF)
		require.Empty(t, none)
	}
	http := seqsOf(b.resume(taskID, 31).rest())
	require.Equal(t, http, seqs(all)[len(all)-len(http):])
	db.sound()
}

func seqs(all []seen) []int64 {
	out := make([]int64, len(all))
	for i, e := range all {
		out[i] = e.seq
	}
	return out
}

// A replica that is killed breaks its streams off, one that stops says so on them; on another they go on.
func TestReplicasThatGoAwayOverGRPC(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, a *replica){
		"killed": func(_ *testing.T, a *replica) { a.kill() },
		"stopped": func(t *testing.T, a *replica) {
			t.Helper()
			a.signal(syscall.SIGTERM)
			require.Zero(t, a.wait())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			replicas := cluster(t, db.url, "a", "b")
			a, b := replicas[0], replicas[1]
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			stream, err := pb10.NewA2AServiceClient(a.connect(t)).SendStreamingMessage(
				metadata.AppendToOutgoingContext(ctx, "a2a-extensions", resumeURI), said10("chunks=150 size=32 delay=20ms"))
			require.NoError(t, err)
			s := &grpcStream{t, stream, cancel, ""}
			first, err := stream.Recv()
			require.NoError(t, err)
			taskID := first.GetTask().GetId()
			all := s.take(10)
			left := make(chan struct{})
			go func() {
				defer close(left)
				leave(t, a)
			}()
			more, err := s.rest()
			require.Equal(t, codes.Unavailable, grpcstatus.Code(err), "%v", err)
			<-left
			all = append(all, more...)
			rest, err := b.follow(taskID, s.last).rest()
			require.ErrorIs(t, err, io.EOF)
			all = append(all, rest...)
			require.Equal(t, pb10.TaskState_TASK_STATE_COMPLETED, all[len(all)-1].state)
			db.holds(taskID, all, 150)
			db.sound()
		})
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
