package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestFirstRunDocument(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("hello")
	memory := &executortest.Memory{}
	run.Memory = memory
	raw, err := EncodeRun(t.Context(), run, History{})
	require.NoError(t, err)
	require.JSONEq(t, `{"version":1,"idempotencyKey":"01020304-0506-0708-0900-000000000000:1",`+
		`"task":{"id":"task-1","contextId":"context-1","agent":"agent","tenant":"tenant","owner":"owner"},`+
		`"message":{"messageId":"message-1","role":"user","parts":[{"text":"hello"}]},`+
		`"turn":1,"try":1,"attempt":1}`, string(raw))
	require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))
	require.Equal(t, 1, memory.Reads, "the first try of a first turn reads only the state of the context")
}

func TestLaterRunDocumentHasHistory(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("go on")
	run.Turn, run.Try, run.Attempt = 2, 3, 9
	run.Metadata = json.RawMessage(`{"z":12345678901234567890,"a":1.0,"u":"\u00e9\/"}`)
	run.Message.Parts = append(run.Message.Parts,
		task.Part{Kind: task.PartRaw, Raw: []byte("hi"), Filename: "hi.txt", MediaType: "text/plain"},
		task.Part{Kind: task.PartURL, URL: "https://example.com"},
		task.Part{Kind: task.PartData, Data: json.RawMessage(`[1.0]`), Metadata: json.RawMessage(`{"m":1}`)})
	chunk := func(id, name string, appends, last bool) task.Event {
		return task.Event{
			Kind: task.EventArtifact, Append: appends, Last: last,
			Artifact: &task.Artifact{ID: id, Name: name, Parts: []task.Part{task.Text("x")}},
		}
	}
	run.Memory = &executortest.Memory{
		Said: []executor.Said{
			{TaskID: "task-1", Message: &task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text("dropped")}}},
			{TaskID: "task-0", Message: &task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text("start")}}},
			{TaskID: "task-1", Artifact: &task.Artifact{ID: "plan-1", Name: "plan", Description: "d", Parts: []task.Part{task.Text("a plan")}}},
			{TaskID: "task-1", State: task.StateInputRequired, Message: &task.Message{Role: task.RoleAgent, Parts: []task.Part{task.Text("sure?")}}},
		},
		Events: []task.Event{
			{Kind: task.EventStatus, State: task.StateWorking},
			chunk("a", "one", false, false), chunk("b", "", false, true), chunk("a", "", true, false),
			chunk("b", "two", false, false),
		},
		Stored: json.RawMessage(`{"page":4}`),
	}
	raw, err := EncodeRun(t.Context(), run, History{Bounds: executor.Bounds{Count: 3}})
	require.NoError(t, err)
	require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))
	require.Contains(t, string(raw), `"metadata":{"z":12345678901234567890,"a":1.0,"u":"\u00e9\/"}`)
	require.Contains(t, string(raw), `"parts":[{"text":"go on"},`+
		`{"raw":"aGk=","filename":"hi.txt","mediaType":"text/plain"},{"url":"https://example.com"},`+
		`{"data":[1.0],"metadata":{"m":1}}]`)
	require.Contains(t, string(raw), `"turn":2,"try":3,"attempt":9,`+
		`"history":[{"role":"user","parts":[{"text":"start"}],"taskId":"task-0"},`+
		`{"role":"agent","parts":[{"text":"a plan"}],"artifactId":"plan-1","name":"plan","description":"d"},`+
		`{"role":"agent","parts":[{"text":"sure?"}],"state":"input-required"}],`+
		`"checkpoint":{"page":4},"earlier":[{"artifactId":"a","name":"one","chunks":2,"last":false},`+
		`{"artifactId":"b","name":"two","chunks":1,"last":false}]`)
}

func TestHistoryCanBeOmitted(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("go on")
	run.Turn = 2
	memory := &executortest.Memory{}
	run.Memory = memory
	_, err := EncodeRun(t.Context(), run, History{None: true})
	require.NoError(t, err)
	require.Equal(t, 1, memory.Reads, "the state of the context")
}

func TestHistoryOfContext(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("go on")
	said := func(id, text string) executor.Said {
		return executor.Said{TaskID: id, Message: &task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text(text)}}}
	}
	run.Memory = &executortest.Memory{Before: []executor.Said{said("task-0", "earlier"), said("task-0", strings.Repeat("x", 5000)), said("task-0", "later")}}
	raw, err := EncodeRun(t.Context(), run, History{Of: executor.OfContext, Bounds: executor.Bounds{Bytes: 4000}})
	require.NoError(t, err)
	require.Contains(t, string(raw), `"history":[{"role":"user","parts":[{"text":"earlier"}],"taskId":"task-0"},`+
		`{"role":"user","parts":[],"taskId":"task-0","omitted":5512},{"role":"user","parts":[{"text":"later"}],"taskId":"task-0"}]`)
	require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))
}

func TestRunDocumentHasFactsOfRequest(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("go on")
	run.Turn, run.Attempt = 2, 2
	run.Metadata, run.TurnMetadata = json.RawMessage(`{"of":"the task"}`), json.RawMessage(`{"n":1.0}`)
	run.AcceptedOutputModes, run.Extensions, run.Scopes = []string{"text/html"}, []string{"https://x.example"}, []string{"read"}
	run.ExtensionParams = map[string]json.RawMessage{"https://x.example": json.RawMessage(`{"unit":"km"}`)}
	run.Traceparent, run.Deadline = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	run.Message.References = []string{"task-0"}
	run.Memory = &executortest.Memory{Refs: []executor.Reference{{TaskID: "task-0", ContextID: "c", State: task.StateCompleted, Said: []executor.Said{
		{TaskID: "task-0", Artifact: &task.Artifact{ID: "plan", Parts: []task.Part{task.Text("a plan")}}},
	}}}}
	raw, err := EncodeRun(t.Context(), run, History{})
	require.NoError(t, err)
	require.Contains(t, string(raw), `"turnMetadata":{"n":1.0},"acceptedOutputModes":["text/html"],"extensions":["https://x.example"],"extensionParams":{"https://x.example":{"unit":"km"}},"scopes":["read"],`+
		`"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","deadline":"2026-03-01T12:00:00Z",`+
		`"references":[{"id":"task-0","contextId":"c","state":"completed","history":[{"role":"agent","parts":[{"text":"a plan"}],"artifactId":"plan"}]}]`)
	require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))
}
