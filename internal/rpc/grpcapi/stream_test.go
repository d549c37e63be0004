package grpcapi_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// shown describes a message of either version in short: its id, its kind, and whether it is final.
func shown(m any) string {
	var kind, state, text string
	var md *structpb.Struct
	final := false
	switch m := m.(type) {
	case *pb10.StreamResponse:
		switch p := m.GetPayload().(type) {
		case *pb10.StreamResponse_Task:
			kind, state, md = "task", p.Task.GetStatus().GetState().String(), p.Task.GetMetadata()
		case *pb10.StreamResponse_StatusUpdate:
			kind, state, md = "status", p.StatusUpdate.GetStatus().GetState().String(), p.StatusUpdate.GetMetadata()
		case *pb10.StreamResponse_ArtifactUpdate:
			kind, text, md = "artifact", p.ArtifactUpdate.GetArtifact().GetParts()[0].GetText(), p.ArtifactUpdate.GetMetadata()
		case *pb10.StreamResponse_Message:
			kind, text, md = "message", p.Message.GetParts()[0].GetText(), p.Message.GetMetadata()
		}
	case *pb03.StreamResponse:
		switch p := m.GetPayload().(type) {
		case *pb03.StreamResponse_Task:
			kind, state, md = "task", p.Task.GetStatus().GetState().String(), p.Task.GetMetadata()
		case *pb03.StreamResponse_StatusUpdate:
			kind, state, md = "status", p.StatusUpdate.GetStatus().GetState().String(), p.StatusUpdate.GetMetadata()
			final = p.StatusUpdate.GetFinal()
		case *pb03.StreamResponse_ArtifactUpdate:
			kind, text, md = "artifact", p.ArtifactUpdate.GetArtifact().GetParts()[0].GetText(), p.ArtifactUpdate.GetMetadata()
		case *pb03.StreamResponse_Msg:
			kind, text, md = "message", p.Msg.GetParts()[0].GetText(), p.Msg.GetMetadata()
		}
	}
	words := []string{kind}
	if id := md.GetFields()[dispatch.ResumeURI].GetStructValue().GetFields()["eventId"].GetStringValue(); id != "" {
		number, _, _ := strings.Cut(id, "-")
		words = []string{number, kind}
	}
	if text += strings.ToLower(strings.TrimPrefix(state, "TASK_STATE_")); text != "" {
		words = append(words, text)
	}
	if final {
		words = append(words, "final")
	}
	return strings.Join(words, " ")
}

// expect reads as many messages as wanted, and compares them.
func expect[M any](t testing.TB, s grpc.ServerStreamingClient[M], want ...string) {
	t.Helper()
	for _, w := range want {
		m, err := s.Recv()
		require.NoError(t, err, "instead of %s", w)
		require.Equal(t, w, shown(m))
	}
}

func (s *streams) subscribe10(t testing.TB, id task.ID, pairs ...string) grpc.ServerStreamingClient[pb10.StreamResponse] {
	t.Helper()
	c, err := s.young.SubscribeToTask(with(t, pairs...), &pb10.SubscribeToTaskRequest{Id: id.String()})
	require.NoError(t, err)
	return c
}

func (s *streams) subscribe03(t testing.TB, id task.ID, pairs ...string) grpc.ServerStreamingClient[pb03.StreamResponse] {
	t.Helper()
	c, err := s.old.TaskSubscription(with(t, pairs...), &pb03.TaskSubscriptionRequest{Name: "tasks/" + id.String()})
	require.NoError(t, err)
	return c
}

// idle waits until no stream is subscribed to anything.
func (s *streams) idle(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Hub.Topics() == 0 }, patience, time.Millisecond)
}

var status, chunk = rpctest.Status, rpctest.Chunk

func TestSendStream(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	young, err := s.young.SendStreamingMessage(with(t), send10("hi"))
	require.NoError(t, err)
	id := wait(t, s.Created)
	expect(t, young, "task submitted")
	s.Add(id, status(task.StateWorking), chunk("x"), status(task.StateAuthRequired))
	expect(t, young, "status working", "artifact x", "status auth_required")
	ends(t, young)

	old, err := s.old.SendStreamingMessage(with(t), send03("hi"))
	require.NoError(t, err)
	id = wait(t, s.Created)
	expect(t, old, "task submitted")
	s.Add(id, status(task.StateWorking), chunk("x"), status(task.StateCanceled))
	expect(t, old, "status working", "artifact x", "status cancelled final")
	ends(t, old)
	s.idle(t)
}

// TestStreamHoldsALargeEventUntilItIsSent shows that the memory of a large event is in use as long as the library has to
// send it, and that a client that leaves returns it, too.
func TestStreamHoldsALargeEventUntilItIsSent(t *testing.T) {
	t.Parallel()
	budget := memory.NewBudget(256 << 20)
	s := serveLog(t, rpctest.NewLogWithin(budget), grpcapi.Options{})
	id := s.Task("1.0", status(task.StateWorking))
	slow, leave := context.WithCancel(t.Context())
	defer leave()
	// The library buffers what the window of its connection allows, so each client has a small one.
	open := func(ctx context.Context) grpc.ServerStreamingClient[pb10.StreamResponse] {
		conn := dial(t, s.addr, grpc.WithInitialWindowSize(64<<10), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)))
		c, err := pb10.NewA2AServiceClient(conn).SubscribeToTask(ctx, &pb10.SubscribeToTaskRequest{Id: id.String()})
		require.NoError(t, err)
		expect(t, c, "task working")
		return c
	}
	c := open(with(t))
	open(slow)
	text := strings.Repeat("x", 16<<20)
	s.Add(id, chunk(text))
	expect(t, c, "artifact "+text)
	s.Add(id, status(task.StateCompleted))
	expect(t, c, "status completed")
	ends(t, c)
	waittest.Eventually(t, "the other client has not read the event", func() error {
		return waittest.Unless(budget.Stat().Used > 0, "its bytes are free")
	})
	leave()
	s.idle(t)
	require.Zero(t, budget.Stat().Used)
}

func TestStreamHeadersComeFirst(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	request := send10("hi")
	request.Tenant = "other" // it may answer directly, so the stream shows nothing earlier
	c, err := s.young.SendStreamingMessage(with(t), request)
	require.NoError(t, err)
	_, err = c.Header()
	require.NoError(t, err)
	s.Add(wait(t, s.Created), rpctest.Direct("hello"))
	expect(t, c, "message hello")
	ends(t, c)
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	id := s.Task("0.1", status(task.StateWorking))
	young, old := s.subscribe10(t, id), s.subscribe03(t, id)
	expect(t, young, "task working")
	expect(t, old, "task working")
	s.Add(id, status(task.StateCompleted))
	expect(t, young, "status completed")
	expect(t, old, "status completed final")
	ends(t, young)
	ends(t, old)

	_, err := s.subscribe10(t, id).Recv()
	f := faultOf(t, err)
	require.Equal(t, codes.FailedPrecondition, f.Code())
	require.Equal(t, "UNSUPPORTED_OPERATION", f.info.GetReason())
	old = s.subscribe03(t, id)
	expect(t, old, "task completed", "status completed final")
	ends(t, old)

	_, err = s.subscribe10(t, task.ID{}).Recv()
	require.Equal(t, codes.NotFound, faultOf(t, err).Code())
	_, err = s.subscribe03(t, task.ID{}).Recv()
	require.Equal(t, codes.NotFound, faultOf(t, err).Code())
}

// A client that names the extension finds in each message the id from which it can resume.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"a2a-extensions", "x-a2a-extensions"} {
		s := serveStreams(t, grpcapi.Options{})
		id := s.Task("0.3", status(task.StateWorking), task.Event{Kind: task.EventRun, Run: &task.RunNote{}})
		resuming := []string{agent, dispatch.ResumeURI}
		first := s.subscribe10(t, id, resuming...)
		header, err := first.Header()
		require.NoError(t, err)
		require.Equal(t, []string{dispatch.ResumeURI}, header.Get("a2a-extensions"))
		expect(t, first, "3 task working")
		s.Add(id, chunk("x"), task.Event{Kind: task.EventArtifact, Append: true, Metadata: []byte(`{"a":1}`), Artifact: &task.Artifact{
			ID: "a", Parts: []task.Part{task.Text("y")},
		}}, chunk("z"))
		expect(t, first, "4 artifact x", "5 artifact y")

		last := append(resuming, "a2a-last-event-id", "5")
		second, third := s.subscribe10(t, id, last...), s.subscribe03(t, id, last...)
		plain := s.subscribe10(t, id, "a2a-last-event-id", "5")
		expect(t, plain, "artifact z")
		s.Add(id, status(task.StateCompleted))
		expect(t, second, "6 artifact z", "7 status completed")
		ends(t, second)
		expect(t, third, "6 artifact z", "7 status completed final")
		ends(t, third)
		expect(t, plain, "status completed")
		ends(t, plain)

		// Also after the task has ended, up to its end, and beyond it.
		again := s.subscribe10(t, id, append(resuming, "a2a-last-event-id", "4")...)
		expect(t, again, "5 artifact y", "6 artifact z", "7 status completed")
		ends(t, again)
		ends(t, s.subscribe10(t, id, "a2a-last-event-id", "7"))
		ends(t, s.subscribe03(t, id, "a2a-last-event-id", "7"))
		void := s.subscribe03(t, id, append(resuming, "a2a-last-event-id", "99")...)
		expect(t, void, "7 task completed", "status completed final")
		ends(t, void)
		_, err = s.subscribe10(t, id, "a2a-last-event-id", "x").Recv()
		f := faultOf(t, err)
		require.Equal(t, codes.InvalidArgument, f.Code())
		require.Contains(t, f.members[0], "Last-Event-ID: must be an id")
		// The HTTP name of the header has no meaning here.
		_, err = s.subscribe10(t, id, "last-event-id", "4").Recv()
		require.Equal(t, codes.FailedPrecondition, codeOf(err))
	}
}

func TestAnsweredQuestionKeepsItsID(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	id := s.Task("0.3", status(task.StateInputRequired), rpctest.Says("Rome"), status(task.StateSubmitted))
	pairs := []string{"a2a-extensions", dispatch.ResumeURI, "a2a-last-event-id", "1"}
	young, old := s.subscribe10(t, id, pairs...), s.subscribe03(t, id, pairs...)
	s.Add(id, status(task.StateCompleted))
	expect(t, young, "2 status input_required", "4 status submitted", "5 status completed")
	expect(t, old, "2 status input_required", "4 status submitted", "5 status completed final")
}

func TestBareMessageHasID(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{}, func(o *dispatch.Options) {
		o.Agents[1].Extensions = o.Agents[0].Extensions
	})
	for range 2 { // the second time as the opening
		request := send10("hi")
		request.Tenant = "other"
		c, err := s.young.SendStreamingMessage(with(t, "a2a-extensions", dispatch.ResumeURI, "idempotency-key", "k"), request)
		require.NoError(t, err)
		select {
		case id := <-s.Created:
			s.Add(id, rpctest.Direct("hello"))
		case <-s.closed:
		case <-time.After(patience):
		}
		expect(t, c, "2 message hello")
		ends(t, c)
	}
}

func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{}, func(o *dispatch.Options) { o.MaxStreams = 1 })
	id := s.Task("0.3", status(task.StateWorking))
	first := s.subscribe10(t, id)
	expect(t, first, "task working")
	for _, err := range []error{
		func() error { _, err := s.subscribe10(t, id).Recv(); return err }(),
		func() error { _, err := s.subscribe03(t, id).Recv(); return err }(),
	} {
		f := faultOf(t, err)
		require.Equal(t, codes.ResourceExhausted, f.Code())
		require.Equal(t, "RATE_LIMITED", f.info.GetReason())
		require.Equal(t, 5*time.Second, f.retry)
	}
	s.Add(id, status(task.StateCompleted))
	expect(t, first, "status completed")
	ends(t, first)
}

func TestStreamEndsWhenClientLeaves(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	id := s.Task("0.3", status(task.StateWorking))
	ctx, cancel := context.WithCancel(with(t))
	c, err := s.young.SubscribeToTask(ctx, &pb10.SubscribeToTaskRequest{Id: id.String()})
	require.NoError(t, err)
	expect(t, c, "task working")
	cancel()
	wait(t, s.closed)
	s.idle(t)
	require.Empty(t, s.logs.String(), "a client that leaves is no error")
}

// The server drops a client that reads nothing. That client keeps what it has and delays no other.
func TestClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{WriteTimeout: 5 * time.Second})
	id := s.Task("0.3", status(task.StateWorking))
	// A flow-control window that does not grow.
	conn := dial(t, s.addr, grpc.WithStaticStreamWindowSize(64<<10))
	stuck, err := pb10.NewA2AServiceClient(conn).SubscribeToTask(with(t, "a2a-extensions", dispatch.ResumeURI), &pb10.SubscribeToTaskRequest{Id: id.String()})
	require.NoError(t, err)
	expect(t, stuck, "2 task working")
	quick := s.subscribe10(t, id)
	expect(t, quick, "task working")
	text := strings.Repeat("x", 16<<10)
	const chunks = 100
	go func() {
		for range chunks {
			s.Add(id, chunk(text))
		}
	}()
	for range chunks {
		expect(t, quick, "artifact "+text)
	}
	wait(t, s.closed) // the write deadline ends the stuck stream
	s.Add(id, status(task.StateCompleted))
	expect(t, quick, "status completed")
	ends(t, quick)

	// The client later reads complete events in order, and an error that says there is more.
	last := 2
	for {
		m, err := stuck.Recv()
		if err != nil {
			require.Equal(t, codes.Canceled, codeOf(err), "this is not the end of the task")
			break
		}
		last++
		require.Equal(t, fmt.Sprintf("%d artifact %s", last, text), shown(m))
	}
	require.Less(t, last, chunks)
	rest := s.subscribe10(t, id, "a2a-extensions", dispatch.ResumeURI, "a2a-last-event-id", strconv.Itoa(last))
	for last++; last <= chunks+2; last++ {
		expect(t, rest, fmt.Sprintf("%d artifact %s", last, text))
	}
	expect(t, rest, fmt.Sprintf("%d status completed", last))
	ends(t, rest)
	require.Empty(t, s.logs.String())
	s.idle(t)
}

// One event may be far larger than one send.
func TestLargeEvent(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	id := s.Task("0.3", status(task.StateWorking))
	conn := dial(t, s.addr, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)))
	c, err := pb10.NewA2AServiceClient(conn).SubscribeToTask(with(t), &pb10.SubscribeToTaskRequest{Id: id.String()})
	require.NoError(t, err)
	text := strings.Repeat("x", 8<<20)
	expect(t, c, "task working")
	s.Add(id, chunk(text), chunk(text), status(task.StateCompleted))
	expect(t, c, "artifact "+text, "artifact "+text, "status completed")
	ends(t, c)
}

func TestStreamsDuringStop(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	id := s.Task("0.3", status(task.StateWorking))
	young, old := s.subscribe10(t, id), s.subscribe03(t, id)
	expect(t, young, "task working")
	expect(t, old, "task working")
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	// The server refuses new calls while it serves those in progress.
	require.Eventually(t, func() bool {
		_, err := pb10.NewA2AServiceClient(dial(t, s.addr)).GetTask(with(t), &pb10.GetTaskRequest{Id: id.String()})
		return codeOf(err) == codes.Unavailable
	}, patience, time.Millisecond)
	s.Add(id, chunk("x"))
	expect(t, young, "artifact x")
	expect(t, old, "artifact x")
	s.Hub.Close()
	for _, err := range []error{
		func() error { _, err := young.Recv(); return err }(),
		func() error { _, err := old.Recv(); return err }(),
	} {
		require.Equal(t, codes.Unavailable, codeOf(err), "this is not the end of the task")
		require.Contains(t, err.Error(), "the server is stopping")
	}
	require.NoError(t, wait(t, stopped))
	require.Empty(t, s.logs.String())
}

func TestStopTimeout(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	c := s.subscribe10(t, s.Task("0.3", status(task.StateWorking)))
	expect(t, c, "task working")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
	_, err := c.Recv()
	require.Equal(t, codes.Unavailable, codeOf(err))
	wait(t, s.closed)
}

func TestPanicBecomesStreamStatus(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{}, func(o *dispatch.Options) { o.MaxStreams = 1 })
	id := s.Task("0.3", status(task.StateWorking))
	c := s.subscribe10(t, id)
	expect(t, c, "task working")
	s.Add(id, task.Event{Kind: task.EventArtifact}) // an artifact event without an artifact
	_, err := c.Recv()
	f := faultOf(t, err)
	require.Equal(t, codes.Internal, f.Code())
	require.Contains(t, s.logs.String(), "error_id="+f.info.GetMetadata()["errorId"])
	require.Contains(t, s.logs.String(), "panic")
	expect(t, s.subscribe10(t, s.Task("0.3", status(task.StateWorking))), "task working")
}

func TestRepeatedRequest(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{})
	ctx := metadata.AppendToOutgoingContext(with(t), "idempotency-key", "k")
	c, err := s.young.SendStreamingMessage(ctx, send10("hi"))
	require.NoError(t, err)
	s.Add(wait(t, s.Created), status(task.StateCompleted))
	expect(t, c, "task submitted", "status completed")
	ends(t, c)
	again, err := s.old.SendStreamingMessage(ctx, send03("hi"))
	require.NoError(t, err)
	expect(t, again, "task completed", "status completed final")
	ends(t, again)
	require.Empty(t, s.Created)
}
