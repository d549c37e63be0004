package grpcapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// shown describes a message of either version in short: its id, its kind, and whether it is final.
func shown(t testing.TB, m proto.Message) string {
	t.Helper()
	document, err := protojson.Marshal(m)
	require.NoError(t, err)
	type parts []struct{ Text string }
	var payload map[string]struct {
		Status         struct{ State string }
		Artifact       struct{ Parts parts }
		Parts, Content parts
		Metadata       map[string]json.RawMessage
		Final          bool
	}
	require.NoError(t, json.Unmarshal(document, &payload))
	var words []string
	for kind, p := range payload {
		var resume struct{ EventID string }
		if raw := p.Metadata[dispatch.ResumeURI]; raw != nil {
			require.NoError(t, json.Unmarshal(raw, &resume))
			number, _, _ := strings.Cut(resume.EventID, "-")
			words = append(words, number)
		}
		words = append(words, strings.TrimSuffix(kind, "Update"))
		for _, part := range slices.Concat(p.Artifact.Parts, p.Parts, p.Content) {
			words = append(words, part.Text)
		}
		if p.Status.State != "" {
			words = append(words, strings.ToLower(strings.TrimPrefix(p.Status.State, "TASK_STATE_")))
		}
		if p.Final {
			words = append(words, "final")
		}
	}
	return strings.Join(words, " ")
}

// expect reads as many messages as wanted, and compares them.
func expect[M any](t testing.TB, s grpc.ServerStreamingClient[M], want ...string) {
	t.Helper()
	for _, w := range want {
		m, err := s.Recv()
		require.NoError(t, err, "instead of %s", w)
		require.Equal(t, w, shown(t, any(m).(proto.Message)))
	}
}

// failed reads the error with which a stream ends.
func failed[M any](t testing.TB, s grpc.ServerStreamingClient[M]) *fault {
	t.Helper()
	_, err := s.Recv()
	return faultOf(t, err)
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
	waittest.Eventually(t, "no topics are left", func() error { return waittest.Unless(s.Hub.Topics() == 0, "%d are left", s.Hub.Topics()) })
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
	budget := limit.NewBudget(256 << 20)
	s := serveLog(t, rpctest.NewLogWithin(budget), grpcapi.Options{})
	id := s.Task("1.0", status(task.StateWorking))
	slow, leave := context.WithCancel(t.Context())
	defer leave()
	// The library buffers what the window of its connection allows, so each client has a small one.
	open := func(ctx context.Context) grpc.ServerStreamingClient[pb10.StreamResponse] {
		conn := s.dial(t, grpc.WithInitialWindowSize(64<<10), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)))
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
		f := failed(t, s.subscribe10(t, id, "a2a-last-event-id", "x"))
		require.Equal(t, codes.InvalidArgument, f.Code())
		require.Contains(t, f.members[0], "Last-Event-ID: must be an id")
		// The HTTP name of the header has no meaning here: without an id, a stream of 1.0 needs a task that has not ended.
		f = failed(t, s.subscribe10(t, id, "last-event-id", "4"))
		require.Equal(t, codes.FailedPrecondition, f.Code())
		require.Equal(t, "UNSUPPORTED_OPERATION", f.info.GetReason())
		require.Equal(t, codes.NotFound, failed(t, s.subscribe10(t, task.ID{})).Code())
		require.Equal(t, codes.NotFound, failed(t, s.subscribe03(t, task.ID{})).Code())
	}
}

// The headers come before the first event. A repetition of the request shows the message as its opening.
func TestBareMessageHasID(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{}, func(o *dispatch.Options) {
		o.Agents[1].Extensions = o.Agents[0].Extensions
	})
	for _, repeated := range []bool{false, true} {
		request := send10("hi")
		request.Tenant = "other" // it may answer directly
		c, err := s.young.SendStreamingMessage(with(t, "a2a-extensions", dispatch.ResumeURI, "idempotency-key", "k"), request)
		require.NoError(t, err)
		_, err = c.Header()
		require.NoError(t, err)
		if !repeated {
			s.Add(wait(t, s.Created), rpctest.Direct("hello"))
		}
		expect(t, c, "2 message hello")
		ends(t, c)
	}
}

func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	s := serveStreams(t, grpcapi.Options{}, func(o *dispatch.Options) { o.Streams = limit.NewPlaces[task.Owner](1, 0) })
	id := s.Task("0.3", status(task.StateWorking))
	first := s.subscribe10(t, id)
	expect(t, first, "task working")
	for _, f := range []*fault{failed(t, s.subscribe10(t, id)), failed(t, s.subscribe03(t, id))} {
		require.Equal(t, codes.ResourceExhausted, f.Code())
		require.Equal(t, "RATE_LIMITED", f.info.GetReason())
		require.Equal(t, 5*time.Second, f.retry)
	}
	s.Add(id, status(task.StateCompleted))
	expect(t, first, "status completed")
	ends(t, first)
}

// The server drops a client that reads nothing. That client keeps what it has and delays no other.
func TestClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 5 * time.Second
		s := serveStreams(t, grpcapi.Options{WriteTimeout: timeout, HeaderTimeout: piped})
		id := s.Task("0.3", status(task.StateWorking))
		resumable := []string{"a2a-extensions", dispatch.ResumeURI}
		// A flow-control window that does not grow.
		young := pb10.NewA2AServiceClient(s.dial(t, grpc.WithStaticStreamWindowSize(64<<10)))
		stuck, err := young.SubscribeToTask(with(t, resumable...), &pb10.SubscribeToTaskRequest{Id: id.String()})
		require.NoError(t, err)
		expect(t, stuck, "2 task working")
		quick := s.subscribe10(t, id)
		expect(t, quick, "task working")
		text := strings.Repeat("x", 16<<10)
		const chunks = 20
		began := time.Now()
		for range chunks {
			s.Add(id, chunk(text))
			expect(t, quick, "artifact "+text)
		}
		require.Zero(t, waittest.Elapsed(began))
		<-s.closed // the write deadline ends the stuck stream
		require.Equal(t, timeout, waittest.Elapsed(began))
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
			require.Equal(t, fmt.Sprintf("%d artifact %s", last, text), shown(t, m))
		}
		require.Less(t, last, chunks)
		rest := s.subscribe10(t, id, append(resumable, "a2a-last-event-id", strconv.Itoa(last))...)
		for last++; last <= chunks+2; last++ {
			expect(t, rest, fmt.Sprintf("%d artifact %s", last, text))
		}
		expect(t, rest, fmt.Sprintf("%d status completed", last))
		ends(t, rest)
		require.Empty(t, s.logs.String())
		s.idle(t)
	})
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
	waittest.Eventually(t, "it refuses new calls", func() error {
		_, err := pb10.NewA2AServiceClient(s.dial(t)).GetTask(with(t), &pb10.GetTaskRequest{Id: id.String()})
		return waittest.Unless(codeOf(err) == codes.Unavailable, "it answers with %v", err)
	})
	s.Add(id, chunk("x"))
	expect(t, young, "artifact x")
	expect(t, old, "artifact x")
	s.Hub.Close()
	_, stop10 := young.Recv()
	_, stop03 := old.Recv()
	for _, err := range []error{stop10, stop03} {
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
