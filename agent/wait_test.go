package agent

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestWait(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		wait Wait
		want task.RunNote
	}{
		"for":   {Wait{For: time.Minute}, task.RunNote{Outcome: task.RunWaits, For: time.Minute}},
		"until": {Wait{Until: until, Interruptible: true}, task.RunNote{Outcome: task.RunWaits, Until: until, Interruptible: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := adapted(t, executortest.NewRun("hello"), func(ctx context.Context, _ *Run, out Emitter) error {
				require.NoError(t, out.Wait(ctx, c.wait))
				return out.Working(ctx, Message{})
			})
			require.ErrorIs(t, err, executortest.ErrSettled)
			require.Equal(t, &c.want, out.Events()[0].Run)
		})
	}
}

func TestWaitsOutOfBounds(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]Wait{
		"wait: needs one of until, for":                           {},
		"wait: takes only one of until, for":                      {Until: time.Now(), For: 1},
		"for: must be more than 0":                                {For: -1},
		"for: must be at most 315360000 seconds (10 years)":       {For: executor.MaxWait + 1},
		"until: 9999-01-01T00:00:00Z is more than 10 years ahead": {Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		"until: must not be before the year 1":                    {Until: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		out, err := adapted(t, executortest.NewRun("hello"), func(ctx context.Context, _ *Run, out Emitter) error {
			return out.Wait(ctx, w)
		})
		require.EqualError(t, err, want)
		require.Empty(t, out.Events())
	}
}

func TestRunAfterAWait(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("")
	run.Message = &task.Message{}
	run.Input = &executor.Input{Source: executor.SourceTimer, Until: time.Unix(1, 0), Interrupted: true}
	_, err := adapted(t, run, func(_ context.Context, run *Run, _ Emitter) error {
		require.Equal(t, &Input{Source: Timer, Until: time.Unix(1, 0), Interrupted: true}, run.Input)
		require.Empty(t, run.Text())
		return nil
	})
	require.NoError(t, err)
}
