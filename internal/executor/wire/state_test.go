package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
)

func TestRunDocumentHasStates(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("hello")
	run.Attempt = 2
	for _, of := range []executor.Scope{executor.OfTask, executor.OfContext} {
		_, err := run.Memory.SetState(t.Context(), of, json.RawMessage(`{"of":"`+of.String()+`","n":1.0}`), 0)
		require.NoError(t, err)
	}
	raw, err := EncodeRun(t.Context(), run, History{None: true})
	require.NoError(t, err)
	require.Contains(t, string(raw), `"state":{"task":{"data":{"of":"task","n":1.0},"version":1},"context":{"data":{"of":"context","n":1.0},"version":2}}`)
	require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))

	run.Attempt = 1
	raw, err = EncodeRun(t.Context(), run, History{None: true})
	require.NoError(t, err)
	require.Contains(t, string(raw), `"state":{"context":`, "a first attempt has no state of its task")
}

func TestStateEvents(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("hello")
	out := executortest.NewRecorder()
	p := NewPlayer(run, out)
	stored := func(of executor.Scope) executor.State {
		s, err := run.Memory.State(t.Context(), of)
		require.NoError(t, err)
		return s
	}
	require.NoError(t, p.PlayLine(t.Context(), 1, []byte(`{"type":"state","data":{"n":1}}`)))
	require.NoError(t, p.PlayLine(t.Context(), 2, []byte(`{"type":"state","scope":"context","data":[1],"version":0}`)))
	require.JSONEq(t, `{"n":1}`, string(stored(executor.OfTask).Value))
	require.JSONEq(t, `[1]`, string(stored(executor.OfContext).Value))

	err := p.PlayLine(t.Context(), 3, []byte(`{"type":"state","scope":"context","data":[2],"version":0}`))
	require.ErrorContains(t, err, "state of the context, version 0: the state has changed")
	_, again := executor.IsRetryable(err)
	require.True(t, again, "another run changed it, so this one is retried with what is stored")
	require.JSONEq(t, `[1]`, string(stored(executor.OfContext).Value))

	require.NoError(t, p.PlayLine(t.Context(), 4, []byte(`{"type":"state","data":null}`)))
	require.Zero(t, stored(executor.OfTask))
	require.Empty(t, out.Events(), "clients see none of it")
}
