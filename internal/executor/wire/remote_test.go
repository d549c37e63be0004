package wire

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The server reads the same event that a worker in Go has written.
func TestWrittenEventsAreReadTheSame(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/executors.md")
	require.NoError(t, err)
	lines := `{"type":"status","state":"input-required","metadata":{"n":1.0}}
		{"type":"auth","resume":{"for":0.5}}
		{"type":"ask","message":"sure?","resume":{"for":60,"show":true},"metadata":{"big":12345678901234567890}}
		{"type":"artifact","artifact":{"artifactId":"a","name":"n","description":"d","parts":[{"url":"http://x/","mediaType":"a/b"},{"data":null},{"text":""}],"metadata":{"k": [1,  2]},"extensions":["e"]},"append":true,"last":true,"metadata":{"m":1}}
		{"type":"reply","message":{"messageId":"m","parts":[{"text":"é\n"}],"metadata":{},"extensions":["e"],"referenceTaskIds":["t"]}}
		{"type":"call","calls":[{"task":"01945c3e-9a11-7d00-8c01-aa51b2c3d4e5","message":"x","metadata":{"k":1}},{"agent":"b","contextId":"c","message":"y","relay":true}]}
		{"type":"checkpoint","data":[1.0]}
		{"type":"wait","until":"2026-03-01T09:00:00.5+01:00"}`
	for _, block := range regexp.MustCompile("(?s)```ndjson\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		lines += "\n" + block[1]
	}
	n := 0
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		want, bad := Decode([]byte(line))
		if line == "" || bad == nil && (want.Action == Text || want.Action == Store) {
			continue
		}
		require.Nil(t, bad, line)
		written, err := Encode(want)
		require.NoError(t, err, line)
		require.NotContains(t, string(written), "\n")
		require.NoError(t, compile(t, "event").Validate(instance(t, string(written))), "%s", written)
		got, bad := Decode(written)
		require.Nil(t, bad, "%s", written)
		require.True(t, want.Wait.Until.Equal(got.Wait.Until))
		want.Wait.Until, got.Wait.Until = time.Time{}, time.Time{}
		require.Equal(t, want, got, "%s", written)
		n++
	}
	require.Greater(t, n, 15)
	broken, err := Encode(&Event{Action: Status, State: task.StateFailed, Message: &task.Message{Parts: []task.Part{task.Text("half\xff")}}})
	require.NoError(t, err)
	require.Contains(t, string(broken), "half\ufffd")
	_, err = Encode(&Event{Action: Checkpoint, Checkpoint: []byte(`{"a":`)})
	require.Error(t, err)
	_, err = Encode(&Event{Action: Status, State: task.StateInputRequired, Resume: &executor.Resume{}})
	require.ErrorContains(t, err, "message: is missing")
}

// A worker in Go reads what the server has written.
func TestWrittenRunsAreReadTheSame(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("hello")
	run.Turn, run.Try, run.Attempt = 2, 3, 4
	run.Metadata, run.TurnMetadata = []byte(`{"k":1.0}`), []byte(`{"t":12345678901234567890}`)
	run.AcceptedOutputModes, run.Extensions, run.Scopes = []string{"m"}, []string{"e"}, []string{"s"}
	run.ExtensionParams = map[string]json.RawMessage{"e": []byte(`{"p":1}`)}
	run.Traceparent, run.Deadline, run.ResumeURL = "parent", time.Unix(1, 0).UTC(), "https://x/resume/y"
	run.API = &executor.API{URL: "http://x/run/v1", Token: "token"}
	run.Message.References = []string{"task-0"}
	run.Input = &executor.Input{Source: executor.SourceCalls, Interrupted: true, Results: []executor.Result{{
		ID: "c", Agent: "b", TaskID: "t", State: task.StateCompleted, Omitted: 3,
		Message:   &task.Message{Role: task.RoleAgent, Parts: []task.Part{task.Text("done")}},
		Artifacts: []task.Artifact{{ID: "a", Parts: []task.Part{{Kind: task.PartRaw, Raw: []byte("x"), Filename: "f"}}}},
	}}}
	run.Memory = &executortest.Memory{
		Stored: []byte(`{"page":7}`),
		Refs: []executor.Reference{{TaskID: "task-0", ContextID: "c", State: task.StateFailed, Said: []executor.Said{
			{TaskID: "task-0", State: task.StateFailed, Message: &task.Message{ID: "m", Role: task.RoleAgent, Parts: []task.Part{task.Text("no")}}},
		}}},
		Said: []executor.Said{{TaskID: "task-1", Artifact: &task.Artifact{ID: "a", Name: "n", Parts: []task.Part{{Kind: task.PartURL}}}}, {TaskID: run.TaskID, Left: 5, Message: &task.Message{Role: task.RoleUser, Parts: []task.Part{}}}},
	}
	doc, err := EncodeRun(t.Context(), run, History{})
	require.NoError(t, err)
	got, err := DecodeRun(doc)
	require.NoError(t, err)
	require.Equal(t, run.IdempotencyKey(), got.Run.IdempotencyKey())
	require.JSONEq(t, `{"page":7}`, string(got.Checkpoint))
	refs := run.Memory.(*executortest.Memory).Refs
	require.Equal(t, refs, got.References)
	want := *run
	want.Memory, want.ID, want.Key = nil, got.Run.ID, got.Run.Key
	require.Equal(t, &want, got.Run)

	raw, err := Marshal(NewHistory(run.TaskID, run.Memory.(*executortest.Memory).Said, "older"))
	require.NoError(t, err)
	said, next, err := DecodeHistory(raw, run.TaskID)
	require.NoError(t, err)
	require.Equal(t, "older", next)
	require.Equal(t, run.Memory.(*executortest.Memory).Said, said)

	for text, in := range map[string]*executor.Resumed{
		"json":  {Method: "POST", Query: "a=1", ContentType: "application/json", Body: []byte(`{"ok":true}`)},
		"text":  {Method: "POST", ContentType: "text/plain", Body: []byte("yes")},
		"bytes": {Method: "POST", Body: []byte{0xff, 0}},
		"none":  {Method: "GET"},
	} {
		run.Input = &executor.Input{Source: executor.SourceResume, Resumed: in}
		doc, err := EncodeRun(t.Context(), run, History{})
		require.NoError(t, err, text)
		got, err := DecodeRun(doc)
		require.NoError(t, err, text)
		require.Equal(t, run.Input, got.Run.Input, text)
	}
	for want, doc := range map[string]string{
		"the version 2": `{"version":2}`, "not understood": `{"version":`, "parts[0]": `{"version":1,"message":{"role":"user","parts":[{"future":1}]}}`,
	} {
		_, err := DecodeRun([]byte(doc))
		require.ErrorContains(t, err, want)
	}
}
