package runapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestTokensOfAReplacedKey(t *testing.T) {
	t.Parallel()
	old, fresh := []byte("old"), []byte("new")
	made := NewTokens([][]byte{old}).Make(task.ID{1, 15: 2}, 3)
	id, attempt, err := NewTokens([][]byte{fresh, old}).read(made)
	require.NoError(t, err)
	require.Equal(t, task.ID{1, 15: 2}, id)
	require.Equal(t, task.Attempt(3), attempt)
	require.NotEqual(t, made, NewTokens([][]byte{fresh, old}).Make(id, attempt))
	_, _, err = NewTokens([][]byte{fresh}).read(made)
	require.Error(t, err)
}
