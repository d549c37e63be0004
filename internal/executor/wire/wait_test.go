package wire

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestRunDocumentOfATurnAfterAWait(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		interrupted bool
		message     *task.Message
		want        string
	}{
		"the timer fired": {false, &task.Message{}, `{"source":"timer","until":"2026-03-01T09:00:00Z"}`},
		"a message came":  {true, spoken("now"), `{"source":"timer","until":"2026-03-01T09:00:00Z","interrupted":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := executortest.NewRun("")
			run.Turn, run.Message = 2, c.message
			run.Input = &executor.Input{Source: executor.SourceTimer, Until: until, Interrupted: c.interrupted}
			raw, err := EncodeRun(t.Context(), run, History{})
			require.NoError(t, err)
			require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))
			var doc map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(raw, &doc))
			require.JSONEq(t, c.want, string(doc["input"]))
			require.Equal(t, c.interrupted, doc["message"] != nil)
		})
	}
}

func TestPlayerEndsARunThatWaits(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	p := NewPlayer(executortest.NewRun("x"), out)
	require.NoError(t, p.PlayLine(t.Context(), 1, []byte(`{"type":"wait","for":60,"interruptible":true}`)))
	require.True(t, p.Settled())
	require.Equal(t, &task.RunNote{Outcome: task.RunWaits, For: time.Minute, Interruptible: true}, out.Events()[0].Run)
}
