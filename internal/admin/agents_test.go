package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestFailuresAreGroupedByTypeAndPlace(t *testing.T) {
	t.Parallel()
	var failed []store.FailedTask
	for _, reason := range []string{
		"KeyError at shop.py:41: 'o-7'\n  in pay\n    o-7", "KeyError at shop.py:41: 'ada'\n  in pay\n    ada", "KeyError at book.py:3: 'ada'",
		"The order 17 is gone.\nTrace 1", "The order 18 is gone.\nanother trace", "The order is gone.",
	} {
		failed = append(failed, store.FailedTask{State: task.StateFailed, Reason: reason})
	}
	var sizes []int
	for _, g := range grouped(failed) {
		sizes = append(sizes, g.Tasks)
	}
	require.Equal(t, []int{2, 2, 1, 1}, sizes)
	require.True(t, sameReason(failed[0].Reason)(failed[1].Reason))
	require.False(t, sameReason(failed[0].Reason)(failed[2].Reason), "another place")
}
