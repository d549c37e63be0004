package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A cancel's metadata reaches the agent in every version that has it, also if no run is left.
func TestCancelMetadataReachesAgent(t *testing.T) {
	t.Parallel()
	agent := newAgent(t)
	agent.runs = func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"type":"state","data":{"job":7}}`+"\n"+`{"type":"ask","message":"Which?"}`+"\n")
	}
	config := clustertest.Replace(clustertest.Patient, "executor: {kind: demo}",
		fmt.Sprintf(`executor: {kind: http, http: {url: "http://%[1]s/", cancel_url: "http://%[1]s/cancel"}}`, agent.addr))
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: config})
	for _, w := range a2atest.Wires {
		id := a.Send(w, a2atest.Say("hi")).Task()
		params, want := object{"id": id, "metadata": object{"why": w.String()}}, any(map[string]any{"why": w.String()})
		if w == a2atest.GRPC03 { // its request has no metadata
			params, want = object{"name": "tasks/" + id}, nil
		}
		args := a2atest.Say().To(id)
		args.Params = params
		require.Contains(t, a2atest.Plain(a.CancelOver(w, args).State()), "cancel", w)
		raw, err := agent.awaitNotice(waittest.Context(t), id)
		require.NoError(t, err)
		var doc map[string]any
		require.NoError(t, json.Unmarshal(raw, &doc))
		require.Equal(t, "canceled", doc["reason"], w)
		require.Equal(t, want, doc["metadata"], w)
		require.Equal(t, map[string]any{"task": map[string]any{"data": map[string]any{"job": 7.0}, "version": 1.0}}, doc["state"], w)
	}
}
