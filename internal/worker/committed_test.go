package worker_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// Committed returns when the events before it are in the log, and not earlier.
func TestCommittedWaitsForTheCommit(t *testing.T) {
	t.Parallel()
	slow := &held{}
	emitted, returned, read := make(chan struct{}), make(chan error, 1), make(chan []json.RawMessage, 1)
	first := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`1`)))
		_, err := out.Artifact(ctx, text("x")) // held back
		require.NoError(t, err)
		require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`2`)))
		gone, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, out.Committed(gone), context.Canceled)
		close(emitted)
		returned <- out.Committed(ctx)
		return waits(ctx)
	})
	p := start(t, setup{grace: time.Millisecond, wrap: func(s *store.Store) worker.Store { slow.Store = s; return slow }}, first)
	h := p.create("a", "x")
	await(t, emitted)
	select {
	case err := <-returned:
		require.Fail(t, "returned before the commit was answered", "%v", err)
	default:
	}
	eventually(t, "the commit", func() bool {
		slow.mu.Lock()
		defer slow.mu.Unlock()
		return len(slow.answers) == 1
	})
	slow.answers[0]()
	require.NoError(t, await(t, returned))
	stored := 0
	for _, e := range p.log(h) {
		if e.Kind == task.EventRun && e.Run.Outcome == task.RunCheckpoint {
			stored++
		}
	}
	require.Equal(t, 2, stored)
	p.shutdown()

	q := start(t, setup{url: p.url}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		all, err := run.Memory.Checkpoints(ctx)
		read <- all
		return err
	}))
	require.Equal(t, []json.RawMessage{json.RawMessage(`1`), json.RawMessage(`2`)}, await(t, read))
	q.become(h, task.StateCompleted)
}
