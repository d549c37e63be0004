package protocol

import (
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

func TestStreamResumesOnAnotherReplicaOverGRPC(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := rarelyPolling(t, db)
	taskID := a.Send(a2atest.V03, a2atest.Say("chunks=60 size=64 delay=15ms").Detached()).Task()

	s := a.ResumeOver(a2atest.GRPC10, taskID, 0)
	seen := s.Take(10)
	s.Close() // in the middle
	s = b.ResumeOver(a2atest.GRPC10, taskID, s.Last)
	seen = append(seen, s.Take(15)...)
	s.Close()
	s = a.ResumeOver(a2atest.GRPC10, taskID, s.Last)
	seen = append(seen, s.Rest()...)
	require.Equal(t, "TASK_STATE_COMPLETED", a2atest.Last(seen).State())
	db.Holds(taskID, seen, 60)
	// After the end of the task, a resume from any event gives the rest, on every replica.
	for _, r := range []*clustertest.Replica{a, b} {
		tail := r.ResumeOver(a2atest.GRPC10, taskID, 31).Rest()
		require.Equal(t, a2atest.Seqs(seen)[len(seen)-len(tail):], a2atest.Seqs(tail))
		none, err := r.ResumeOver(a2atest.GRPC10, taskID, s.Last).UntilEnd()
		require.ErrorIs(t, err, io.EOF)
		require.Empty(t, none)
	}
	overHTTP := a2atest.Seqs(b.Resume(taskID, 31).Rest())
	require.Equal(t, overHTTP, a2atest.Seqs(seen)[len(seen)-len(overHTTP):])
	polledNothing(t, a, b)
}

// A killed replica breaks its streams off; a stopping one ends them with UNAVAILABLE. Clients resume them on another
// replica.
func TestStreamsOfLostReplicaOverGRPC(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(a *clustertest.Replica){
		"killed":  (*clustertest.Replica).Kill,
		"stopped": func(a *clustertest.Replica) { a.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := clustertest.NewDB(t)
			a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
			s := a.Stream(a2atest.GRPC10, a2atest.Say("chunks=150 size=32 delay=60ms"))
			taskID := s.Take(1)[0].ID
			seen := s.Take(10)
			leave(a)
			more, err := s.UntilEnd()
			require.Equal(t, codes.Unavailable, grpcstatus.Code(err), "%v", err)
			if name == "stopped" {
				require.Zero(t, a.Wait())
			}
			seen = append(append(seen, more...), b.ResumeOver(a2atest.GRPC10, taskID, s.Last).Rest()...)
			require.Equal(t, "TASK_STATE_COMPLETED", a2atest.Last(seen).State())
			db.Holds(taskID, seen, 150)
		})
	}
}

func TestBothVersionsOverGRPC(t *testing.T) {
	t.Parallel()
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings})
	sent := a.Send(a2atest.GRPC10, a2atest.Say("echo:hello"))
	require.Equal(t, "TASK_STATE_COMPLETED", sent.State())
	require.Equal(t, "hello", a2atest.Text(sent.Artifacts[0].Parts))
	require.Equal(t, "TASK_STATE_COMPLETED", a.GetOver(a2atest.GRPC03, a2atest.Say().To(sent.ID)).State())
	for _, w := range []*a2atest.Wire{a2atest.GRPC10, a2atest.GRPC03} {
		events := a.Stream(w, a2atest.Say("chunks=3 size=64 delay=1ms")).Rest()
		require.Len(t, events, 6, w)
		require.NotEmpty(t, events[0].ID, "the first event is the task")
		require.Equal(t, "TASK_STATE_COMPLETED", a2atest.Last(events).State())
	}
}
