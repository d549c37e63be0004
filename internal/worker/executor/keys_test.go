package executor_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func TestKeysHaveOneCaller(t *testing.T) {
	t.Parallel()
	ring := executor.NewKeyring([]byte("secret"))
	seen := map[string]task.Task{}
	for n, of := range []task.Task{
		{Agent: "a", ContextID: "c"},
		{Agent: "a", ContextID: "d"},
		{Agent: "b", ContextID: "c"},
		{Owner: "o", Agent: "a", ContextID: "c"},
		{Tenant: "t", Owner: "o", Agent: "a", ContextID: "c"},
		{Tenant: "to", Agent: "a", ContextID: "c"},
		{Tenant: "t", Owner: "oa", ContextID: "c"},
		{Tenant: "t", Owner: "o", ContextID: "ac"},
	} {
		of.ID, of.PublicID = task.ID{byte(n + 1)}, "trip-9"
		keys := ring.Of(&of)
		require.Equal(t, keys, ring.Of(&of), "always the same")
		require.NotEqual(t, keys.Context, executor.NewKeyring([]byte("other")).Of(&of).Context, "nobody without the secret can make it")
		for _, key := range []string{keys.Task, keys.Context} {
			require.NoError(t, uuid.Validate(key))
			require.NotContains(t, seen, key)
			seen[key] = of
		}
		of.ID = task.ID{0xff}
		require.Equal(t, keys.Context, ring.Of(&of).Context, "that of all tasks of the context")
	}
}
