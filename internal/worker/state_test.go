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
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// Turns and tries of a task see what earlier ones stored, and the other tasks of the context see what was stored for it.
func TestStateOutlivesRuns(t *testing.T) {
	t.Parallel()
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		for _, of := range []executor.Scope{executor.OfTask, executor.OfContext} {
			s, err := run.Memory.State(ctx, of)
			if err != nil {
				return err
			}
			if s.Value == nil {
				s.Value = json.RawMessage(`""`)
			}
			var seen string
			if err := json.Unmarshal(s.Value, &seen); err != nil {
				return err
			}
			next, err := json.Marshal(seen + "\x00" + run.Message.FirstText())
			if err != nil {
				return err
			}
			if v, err := run.Memory.SetState(ctx, of, next, s.Version); err != nil || v != s.Version+1 {
				return errors.Join(err, errors.New("another version"))
			}
			if _, err := run.Memory.SetState(ctx, of, next, s.Version); !errors.Is(err, executor.ErrStateChanged) {
				return errors.New("an old version was replaced")
			}
		}
		if run.Try == 1 {
			return executor.Retryable(errors.New("again"), time.Millisecond)
		}
		return out.Status(ctx, task.StateInputRequired, nil)
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	state := func(h *task.Task, inContext bool) string {
		value, _, err := p.store.AgentState(t.Context(), store.StateOf{Task: h, Context: inContext})
		require.NoError(t, err)
		var s string
		require.NoError(t, json.Unmarshal(value, &s))
		return s
	}
	one := p.create("a", "1")
	p.become(one, task.StateInputRequired)
	require.Equal(t, "\ufffd1\ufffd1", state(one, false))
	p.say(one, "2")
	eventually(t, "the second turn has ended", func() bool { return state(one, false) == "\ufffd1\ufffd1\ufffd2\ufffd2" })
	p.become(one, task.StateInputRequired)
	two := p.create("a", "3")
	p.become(two, task.StateInputRequired)
	require.Equal(t, "\ufffd3\ufffd3", state(two, false))
	require.Equal(t, "\ufffd1\ufffd1\ufffd2\ufffd2\ufffd3\ufffd3", state(two, true))
}

func TestStateIsBounded(t *testing.T) {
	t.Parallel()
	big := json.RawMessage(`"` + strings.Repeat("x", 98) + `"`)
	store := func(value json.RawMessage) worker.Agent {
		a := does(func(ctx context.Context, run *executor.Run, _ executor.Emitter) error {
			_, err := run.Memory.SetState(ctx, executor.OfContext, value, executor.AnyVersion)
			return err
		})
		a.MaxState = 100
		return a
	}
	p := start(t, setup{}, store(big), store(append(big[:len(big)-1:len(big)-1], `x"`...)), store(json.RawMessage(`{"a":`)))
	p.become(p.create("a", "x"), task.StateCompleted)
	failed := p.become(p.create("b", "x"), task.StateFailed)
	require.Equal(t, "The agent's state for the context has 101 bytes; the limit is 100 (limits.max_state).", failed.Status.Message.FirstText())
	failed = p.become(p.create("c", "x"), task.StateFailed)
	require.Equal(t, "The agent's state is not valid JSON.", failed.Status.Message.FirstText())
}

// A run whose lease was lost, or that has settled, stores nothing.
func TestStateAfterTheRun(t *testing.T) {
	t.Parallel()
	lost := make(chan struct{})
	a := does(func(ctx context.Context, run *executor.Run, _ executor.Emitter) error {
		if run.Attempt > 1 {
			return nil
		}
		<-lost
		_, err := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage(`1`), 0)
		if !errors.Is(err, task.LeaseLost) && !errors.Is(err, executor.ErrLeaseLost) {
			t.Errorf("stored without the lease: %v", err)
		}
		return err
	})
	a.MaxAttempts = 3
	b := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if err := out.Status(ctx, task.StateInputRequired, nil); err != nil {
			return err
		}
		if _, err := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage(`1`), 0); err == nil {
			t.Error("stored after the end")
		}
		return nil
	})
	p := start(t, setup{}, a, b)
	h := p.create("a", "x")
	p.become(h, task.StateWorking)
	require.NoError(t, p.store.Unregister(t.Context(), *p.id.Load()))
	_, runs, err := p.store.Rescue(t.Context(), 0, true)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	p.register()
	close(lost)
	p.become(h, task.StateCompleted)
	settled := p.create("b", "x")
	p.become(settled, task.StateInputRequired)
	for _, h := range []*task.Task{h, settled} {
		value, _, err := p.store.AgentState(t.Context(), store.StateOf{Task: h})
		require.NoError(t, err)
		require.Nil(t, value)
	}
}
