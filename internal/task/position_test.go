package task_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestPositionsAreIds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 3, 0, 0, 123456000, time.UTC)
	e := task.Event{Seq: 17, At: at}
	require.NotEqual(t, task.MarkAt(at), task.MarkAt(at.Add(time.Microsecond)))
	require.Equal(t, task.MarkAt(at), task.MarkAt(at.In(time.FixedZone("", 3600))))
	for _, p := range []task.Position{{}, {Seq: 17}, e.Position()} {
		read, err := task.ParsePosition(string(p.Append(nil)))
		require.NoError(t, err)
		require.Equal(t, p, read)
	}
	for _, id := range []string{"", "-", "17-", "-1", "+1", "17-123456789", "17-x", "17-1-1", " 17"} {
		_, err := task.ParsePosition(id)
		require.Error(t, err, id)
	}
}

func TestUnknownMarksFit(t *testing.T) {
	t.Parallel()
	require.True(t, task.Mark(0).Fits(7))
	require.True(t, task.Mark(7).Fits(0))
	require.True(t, task.Mark(7).Fits(7))
	require.False(t, task.Mark(7).Fits(9))
}
