package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
)

// A read of the log ends early at a mebibyte, and the checkpoint may come later.
func TestCheckpointAfterLargeEventsReachesNextTry(t *testing.T) {
	t.Parallel()
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Try > 1 {
			stored, err := run.Memory.Checkpoint(ctx)
			require.NoError(t, err)
			require.JSONEq(t, `3`, string(stored))
			earlier, err := run.Memory.Earlier(ctx)
			require.NoError(t, err)
			require.Len(t, earlier, 1+3, "working, and the chunks")
			return nil
		}
		for range 3 {
			_, err := out.Artifact(ctx, text(strings.Repeat("x", 700<<10)))
			require.NoError(t, err)
		}
		require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`3`)))
		return executor.Retryable(errors.New("again"), time.Millisecond)
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	p.become(p.create("a", "hi"), task.StateCompleted)
}
