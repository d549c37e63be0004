package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestRunDocumentOfATurnAfterCalls(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("")
	run.Turn, run.Message = 2, &task.Message{}
	run.Input = &executor.Input{Source: executor.SourceCalls, Results: []executor.Result{
		{ID: "1", Agent: "b", TaskID: "t", State: task.StateCompleted, Message: spoken("ok"), Artifacts: []task.Artifact{
			{ID: "a", Name: "n", Parts: []task.Part{task.Text("x")}, Metadata: json.RawMessage(`{"k":1.0}`)},
		}, Omitted: 5},
		{ID: "2", Agent: "c", State: task.StateRejected, Error: "there is no agent"},
	}}
	raw, err := EncodeRun(t.Context(), run, History{})
	require.NoError(t, err)
	require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))
	var doc map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &doc))
	require.JSONEq(t, `{"source":"calls","results":[
		{"id":"1","agent":"b","task":"t","state":"completed","message":{"role":"agent","parts":[{"text":"ok"}]},
		 "artifacts":[{"artifactId":"a","name":"n","parts":[{"text":"x"}],"metadata":{"k":1.0}}],"omitted":5},
		{"id":"2","agent":"c","state":"rejected","error":"there is no agent"}]}`, string(doc["input"]))
	require.NotContains(t, doc, "message")
}

func TestPlayerEndsARunThatCalls(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	p := NewPlayer(executortest.NewRun("x"), out)
	require.NoError(t, p.PlayLine(t.Context(), 1, []byte(`{"type":"call","calls":[{"agent":"b","message":"hi"}]}`)))
	require.True(t, p.Settled())
	require.Equal(t, "hi", out.Events()[0].Run.Calls[0].Message.FirstText())
}
