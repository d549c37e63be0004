package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Large events make the pages of a log short. A run reads on behind them.
func TestRunReadsALargeLog(t *testing.T) {
	t.Parallel()
	const pieces = 5
	text := strings.Repeat("x", 700<<10)
	type seen struct {
		earlier    int
		checkpoint string
		size       int
		said       string
	}
	got := make(chan seen, 1)
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Try == 1 {
			empty, err := run.Memory.Task(ctx)
			require.NoError(t, err)
			require.Empty(t, empty.Artifacts)
			require.NoError(t, out.Status(ctx, task.StateWorking, &task.Message{ID: "m-1", Parts: []task.Part{task.Text("at work")}}))
			for range pieces {
				_, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: "a", Parts: []task.Part{task.Text(text)}}, Append: true})
				require.NoError(t, err)
			}
			require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`7`)))
			return executor.Retryable(errors.New("again"), 1)
		}
		earlier, err := run.Memory.Earlier(ctx)
		require.NoError(t, err)
		checkpoint, err := run.Memory.Checkpoint(ctx)
		require.NoError(t, err)
		whole, err := run.Memory.Task(ctx)
		require.NoError(t, err)
		artifacts := 0
		for _, e := range earlier {
			if e.Artifact != nil {
				artifacts++
			}
		}
		got <- seen{artifacts, string(checkpoint), len(whole.Artifacts[0].Parts[0].Text), whole.Status.Message.ID}
		return nil
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	p.become(p.create("a", "x"), task.StateCompleted)
	require.Equal(t, seen{pieces, "7", pieces * len(text), "m-1"}, await(t, got))
}
