package fault_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

func TestEveryKindHasARow(t *testing.T) {
	t.Parallel()
	for k := range task.Kind(task.KindCount) {
		row := fault.Base.Row(k)
		require.Negative(t, row.Code, "code of %q", k)
		require.NotEmpty(t, row.Message, "message of %q", k)
		require.GreaterOrEqual(t, row.HTTP, 400, "status of %q", k)
		require.NotZero(t, row.GRPC, "gRPC status of %q", k)
		require.NotEmpty(t, row.Reason, "reason of %q", k)
	}
	require.Equal(t, fault.Base.Row(task.Internal), fault.Base.Row(task.Kind(200)))
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  *task.Error
		code int
		want string
	}{
		{"a bare kind has the schema's message", &task.Error{Kind: task.NotFound}, -32001, "Task not found"},
		{"a detail equal to the kind's text is not repeated", task.Errorf(task.NotFound, "task not found"), -32001, "Task not found"},
		{"a bare kind that borrows its row explains itself", &task.Error{Kind: task.Busy}, -32004, "This operation is not supported: the task is busy"},
		{"a detail follows", task.Errorf(task.Terminal, "the task has completed"), -32004, "This operation is not supported: the task has completed"},
		{"an invalid member is named", task.InvalidField("message.parts", "is required"), -32602, "Invalid parameters: message.parts: is required"},
		{"an internal error has no details", &task.Error{Kind: task.Internal, Msg: "pool", Cause: errors.New("dial 10.0.0.1")}, -32603, "Internal error"},
		{"nor does a lost lease", task.Errorf(task.LeaseLost, "attempt 4"), -32603, "Internal error"},
		{"a cause is never shown", &task.Error{Kind: task.Unavailable, Cause: errors.New("dial 10.0.0.1")}, -32603, "A required resource is unavailable"},
	}
	for _, tt := range tests {
		code, message := fault.Base.Describe(tt.err)
		require.Equal(t, tt.code, code, tt.name)
		require.Equal(t, tt.want, message, tt.name)
	}
}

func TestOverrideKeepsBase(t *testing.T) {
	t.Parallel()
	own := fault.Base.Override(map[task.Kind]fault.JSONRPC{
		task.Terminal: {Code: -32009, Message: "Invalid task state for operation"},
		task.Busy:     {Code: -32009},
	})
	require.Equal(t, -32009, own.Row(task.Terminal).Code)
	require.Equal(t, "Invalid task state for operation", own.Row(task.Terminal).Message)
	require.Equal(t, fault.Base.Row(task.Busy).Message, own.Row(task.Busy).Message)
	require.Equal(t, -32004, fault.Base.Row(task.Terminal).Code)
	require.Equal(t, fault.Base.Row(task.Terminal).HTTP, own.Row(task.Terminal).HTTP)
}
