package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// The artifacts of a task may grow to their limit, over all its runs and attempts, and not a byte more.
func TestTaskFailsWhenArtifactsExceedLimit(t *testing.T) {
	t.Parallel()
	kib := text(strings.Repeat("x", 1000))
	kib.Artifact.Metadata = []byte(`{"of":"metadata, 24 B"}`)
	require.EqualValues(t, 1023, kib.Artifact.Size())
	emit := func(n int) fn { return steps(slices.Repeat([]fn{chunk(kib)}, n)...) }
	ignores := func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if err := emit(1000)(ctx, run, out); err == nil {
			return errors.New("the emitter returned no error")
		}
		for _, more := range []fn{chunk(kib), status(task.StateCompleted, ""), checkpoint("1"), reply("bare")} {
			if more(ctx, run, out) == nil {
				return errors.New("the emitter accepts more")
			}
		}
		return nil
	}
	again := returns(executor.Retryable(errors.New("again"), time.Millisecond))
	agents := []worker.Agent{
		does(emit(1000)), does(ignores), does(steps(emit(4), again)), does(steps(emit(5), status(task.StateInputRequired, ""))), does(emit(10)), does(emit(100)),
	}
	for i := range agents {
		agents[i].MaxAttempts, agents[i].DirectReplies = 10, i == 1
		if i < 5 {
			agents[i].MaxArtifacts = 10 * 1023
		}
	}
	p := start(t, setup{}, agents...)
	for _, agent := range []string{"a", "b", "c"} {
		got := p.become(p.create(agent, "x"), task.StateFailed)
		require.Equal(t, "The agent's artifacts exceed the limit of 10230 bytes for one task.",
			got.Status.Message.FirstText(), agent)
		require.Len(t, got.Artifacts[0].Parts[0].Text, 10*1000, "events within the limit are stored: %s", agent)
	}
	h := p.create("d", "first")
	p.become(h, task.StateInputRequired)
	p.say(h, "second")
	require.Len(t, p.become(h, task.StateInputRequired).Artifacts[0].Parts[0].Text, 10*1000, "exactly the limit")
	p.say(h, "third")
	require.Len(t, p.become(h, task.StateFailed).Artifacts[0].Parts[0].Text, 10*1000)
	for agent, chunks := range map[string]int{"e": 10, "f": 100} {
		require.Len(t, p.become(p.create(agent, "x"), task.StateCompleted).Artifacts[0].Parts[0].Text, chunks*1000)
	}
}
