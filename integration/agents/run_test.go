package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// An http agent is told each request's own facts, what it said before as artifacts, what it stored, and the tasks that a
// message refers to; and the client gets the metadata of its statuses.
func TestRunDocumentOfRequests(t *testing.T) {
	t.Parallel()
	type document struct {
		Task                   struct{ ID, ContextID string }
		Metadata, TurnMetadata json.RawMessage
		AcceptedOutputModes    []string
		Extensions             []string
		ExtensionParams        map[string]json.RawMessage
		Traceparent            string
		Deadline               string
		History                []struct {
			Role, ArtifactID, State string
			Parts                   []struct{ Text string }
		}
		State struct {
			Context struct {
				Data    json.RawMessage
				Version int
			}
		}
		References []struct{ ID, State string }
	}
	docs := make(chan document, 10)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var d document
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			t.Error(err)
		}
		if r.Header.Get("Traceparent") != d.Traceparent {
			t.Errorf("the header has the trace %q", r.Header.Get("Traceparent"))
		}
		docs <- d
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"type":"text","text":"an "}
{"type":"text","text":"answer"}
{"type":"status","message":"progress","metadata":{"step":1}}
{"type":"state","scope":"context","data":{"seen":true}}
{"type":"ask","message":"more?","metadata":{"why":"curious"}}
`)
	}))
	t.Cleanup(agent.Close)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: fmt.Sprintf(clustertest.Patient+`
  - name: echo
    card: {extensions: [{uri: "https://ext.example/one", description: one, params: {unit: km, limits: [1, 9007199254740993]}}, {uri: "urn:two", params: {}}]}
    executor: {kind: http, http: {url: %q}}
`, agent.URL)})
	send := func(method, params string, headers ...string) (answer string) {
		t.Helper()
		_, answer, _ = r.Exchange(http.MethodPost, "/agents/echo", a2atest.Request(method, json.RawMessage(params)), headers...)
		return answer
	}
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	send("message/send", `{"metadata":{"n":1.0},"configuration":{"blocking":true,"acceptedOutputModes":["text/plain"]},"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"one"}]}}`,
		"traceparent", trace, "X-A2A-Extensions", "https://ext.example/one, https://ext.example/other")
	first := <-docs
	require.Equal(t, `{"n":1.0}`, string(first.Metadata))
	require.Equal(t, []string{"text/plain"}, first.AcceptedOutputModes)
	require.Equal(t, []string{"https://ext.example/one"}, first.Extensions)
	require.Equal(t, map[string]json.RawMessage{"https://ext.example/one": json.RawMessage(`{"limits":[1,9007199254740993],"unit":"km"}`)}, first.ExtensionParams)
	require.Equal(t, trace, first.Traceparent)
	require.NotEmpty(t, first.Deadline)
	require.Empty(t, first.History)
	require.Nil(t, first.State.Context.Data)

	answer := send("message/send", fmt.Sprintf(`{"metadata":{"n":2},"configuration":{"blocking":true},"message":{"kind":"message","messageId":"m2","role":"user","taskId":%q,"contextId":%q,"parts":[{"kind":"text","text":"two"}]}}`,
		first.Task.ID, first.Task.ContextID), "traceparent", "not a trace")
	require.Contains(t, answer, `"input-required"`)
	second := <-docs
	require.Equal(t, `{"n":1.0}`, string(second.Metadata), "the task's")
	require.Equal(t, `{"n":2}`, string(second.TurnMetadata))
	require.Empty(t, second.AcceptedOutputModes)
	require.Empty(t, second.Extensions)
	require.Empty(t, second.ExtensionParams)
	require.Empty(t, second.Traceparent)
	var said []string
	for _, e := range second.History {
		said = append(said, e.Role+" "+e.ArtifactID+" "+e.State+": "+e.Parts[0].Text)
	}
	require.Equal(t, []string{"user  : one", "agent text-1 : an answer", "agent  input-required: more?"}, said)
	require.JSONEq(t, `{"seen":true}`, string(second.State.Context.Data))
	require.Equal(t, 1, second.State.Context.Version)

	send("message/send", fmt.Sprintf(`{"configuration":{"blocking":true},"message":{"kind":"message","messageId":"m3","role":"user","contextId":%q,"referenceTaskIds":[%q,"nobody"],"parts":[{"kind":"text","text":"three"}]}}`,
		first.Task.ContextID, first.Task.ID))
	third := <-docs
	require.NotEqual(t, first.Task.ID, third.Task.ID)
	require.Empty(t, third.History, "by default of the task alone")
	require.Len(t, third.References, 1)
	require.Equal(t, first.Task.ID, third.References[0].ID)
	require.Equal(t, 2, third.State.Context.Version)

	stream := send("message/stream", `{"message":{"kind":"message","messageId":"m4","role":"user","parts":[{"kind":"text","text":"four"}]}}`)
	require.Contains(t, stream, `"metadata":{"step":1}`)
	require.Contains(t, stream, `"metadata":{"why":"curious"}`)
}
