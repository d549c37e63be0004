package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// An agent that answers by artifacts reads its own answers in the next turn, and in the next task of the context.
func TestRunReadsDialogue(t *testing.T) {
	t.Parallel()
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		of := executor.OfTask
		if run.Turn == 1 {
			of = executor.OfContext
		}
		said, err := run.Memory.Dialogue(ctx, of, executor.Bounds{Count: 10, Bytes: 10_000})
		if err != nil {
			return err
		}
		var heard []string
		for i := range said {
			heard = append(heard, said[i].Parts()[0].Text)
		}
		answer := "[" + strings.Join(heard, ",") + "]" + run.Message.FirstText()
		if _, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: answer, Parts: []task.Part{task.Text(answer)}}}); err != nil {
			return err
		}
		if run.Try == 1 {
			return executor.Retryable(errors.New("again"), time.Millisecond)
		}
		return out.Status(ctx, task.StateInputRequired, &task.Message{Parts: []task.Part{task.Text("?")}})
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	h := p.create("a", "one")
	p.become(h, task.StateInputRequired)
	p.say(h, "two")
	eventually(t, "the second turn has ended", func() bool {
		got, err := p.store.Snapshot(t.Context(), p.header(h), true)
		require.NoError(t, err)
		return len(got.Artifacts) == 2 && got.Status.State == task.StateInputRequired
	})
	other := p.become(p.create("a", "three"), task.StateInputRequired)
	require.Equal(t, "[one,[]one,?,two,[one,[]one,?]two,?]three", other.Artifacts[0].ID)
}

func (p *process) header(h *task.Task) *task.Task {
	p.t.Helper()
	now, err := p.store.Header(p.t.Context(), h.ID)
	require.NoError(p.t, err)
	return now
}
