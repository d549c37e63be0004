package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// document encodes a run, and checks it with the published schema.
func document(t *testing.T, run *executor.Run, h History) string {
	t.Helper()
	raw, err := EncodeRun(t.Context(), run, h)
	require.NoError(t, err)
	require.NoError(t, compile(t, "run").Validate(instance(t, string(raw))))
	return string(raw)
}

func TestFirstRunDocument(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("hello")
	memory := &executortest.Memory{}
	run.Memory = memory
	raw := document(t, run, History{})
	require.JSONEq(t, `{"version":1,"idempotencyKey":"01020304-0506-0708-0900-000000000000:1",`+
		`"task":{"id":"task-1","key":"task-key","contextId":"context-1","contextKey":"context-key","agent":"agent","tenant":"tenant","owner":"owner"},`+
		`"message":{"messageId":"message-1","role":"user","parts":[{"text":"hello"}]},`+
		`"turn":1,"try":1,"attempt":1}`, raw)
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
			{Seq: 9, Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunRecord, Checkpoint: json.RawMessage(`{"kind":"step","name":"pay","nth":1,"data":1.0}`)}},
		},
		Stored: json.RawMessage(`{"page":4}`),
	}
	raw := document(t, run, History{Bounds: executor.Bounds{Count: 3}})
	require.Contains(t, raw, `"metadata":{"z":12345678901234567890,"a":1.0,"u":"\u00e9\/"}`)
	require.Contains(t, raw, `"parts":[{"text":"go on"},`+
		`{"raw":"aGk=","filename":"hi.txt","mediaType":"text/plain"},{"url":"https://example.com"},`+
		`{"data":[1.0],"metadata":{"m":1}}]`)
	require.Contains(t, raw, `"turn":2,"try":3,"attempt":9,`+
		`"history":[{"role":"user","parts":[{"text":"start"}],"taskId":"task-0"},`+
		`{"role":"agent","parts":[{"text":"a plan"}],"artifactId":"plan-1","name":"plan","description":"d"},`+
		`{"role":"agent","parts":[{"text":"sure?"}],"state":"input-required"}],`+
		`"checkpoint":{"page":4},"earlier":[{"artifactId":"a","name":"one","chunks":2,"last":false},`+
		`{"artifactId":"b","name":"two","chunks":1,"last":false}],`+
		`"records":{"records":[{"kind":"step","name":"pay","nth":1,"data":1.0}]}`)
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
	raw := document(t, run, History{Of: executor.OfContext, Bounds: executor.Bounds{Bytes: 4000}})
	require.Contains(t, raw, `"history":[{"role":"user","parts":[{"text":"earlier"}],"taskId":"task-0"},`+
		`{"role":"user","parts":[],"taskId":"task-0","omitted":5512},{"role":"user","parts":[{"text":"later"}],"taskId":"task-0"}]`)
}

func TestRunDocumentHasFactsOfRequest(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("go on")
	run.Turn, run.Attempt = 2, 2
	run.Metadata, run.TurnMetadata = json.RawMessage(`{"of":"the task"}`), json.RawMessage(`{"n":1.0}`)
	run.AcceptedOutputModes, run.Extensions, run.Scopes = []string{"text/html"}, []string{"https://x.example"}, []string{"read"}
	run.Limits = executor.Limits{Event: 1 << 20, State: 1 << 10}
	run.ExtensionParams = map[string]json.RawMessage{"https://x.example": json.RawMessage(`{"unit":"km"}`)}
	run.Traceparent, run.Deadline = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	run.Message.References = []string{"task-0"}
	run.Memory = &executortest.Memory{Refs: []executor.Reference{{TaskID: "task-0", ContextID: "c", State: task.StateCompleted, Said: []executor.Said{
		{TaskID: "task-0", Artifact: &task.Artifact{ID: "plan", Parts: []task.Part{task.Text("a plan")}}},
	}}}}
	raw := document(t, run, History{})
	require.Contains(t, raw, `"turnMetadata":{"n":1.0},"acceptedOutputModes":["text/html"],"extensions":["https://x.example"],"extensionParams":{"https://x.example":{"unit":"km"}},"scopes":["read"],`+
		`"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","deadline":"2026-03-01T12:00:00Z",`+
		`"references":[{"id":"task-0","contextId":"c","state":"completed","history":[{"role":"agent","parts":[{"text":"a plan"}],"artifactId":"plan"}]}],"limits":{"event":1048576,"state":1024}`)
}

func TestRunDocumentHasStates(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("hello")
	run.Attempt = 2
	for _, of := range []executor.Scope{executor.OfTask, executor.OfContext} {
		_, err := run.Memory.SetState(t.Context(), of, json.RawMessage(`{"of":"`+of.String()+`","n":1.0}`), 0)
		require.NoError(t, err)
	}
	raw := document(t, run, History{None: true})
	require.Contains(t, raw, `"state":{"task":{"data":{"of":"task","n":1.0},"version":1},"context":{"data":{"of":"context","n":1.0},"version":2}}`)

	run.Attempt = 1
	require.Contains(t, document(t, run, History{None: true}), `"state":{"context":`, "a first attempt has no state of its task")
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

func TestPlayerEndsARunThatWaitsOrCalls(t *testing.T) {
	t.Parallel()
	play := func(line string) *task.RunNote {
		out := executortest.NewRecorder()
		p := NewPlayer(executortest.NewRun("x"), out)
		require.NoError(t, p.PlayLine(t.Context(), 1, []byte(line)))
		require.True(t, p.Settled())
		return out.Events()[0].Run
	}
	require.Equal(t, "hi", play(`{"type":"call","calls":[{"agent":"b","message":"hi"}]}`).Calls[0].Message.FirstText())
	require.Equal(t, &task.RunNote{Outcome: task.RunWaits, For: time.Minute, Interruptible: true}, play(`{"type":"wait","for":60,"interruptible":true}`))
}

func TestRunDocumentHasTheInput(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	resumed := func(method, contentType, query, body string) executor.Input {
		return executor.Input{Source: executor.SourceResume, Resumed: &task.Resumed{Method: method, ContentType: contentType, Query: query, Body: []byte(body)}}
	}
	asJSON := func(body string) executor.Input { return resumed("POST", "application/json", "", body) }
	for name, c := range map[string]struct {
		in   executor.Input
		want string
	}{
		"calls": {executor.Input{Source: executor.SourceCalls, Results: []executor.Result{
			{ID: "1", Agent: "b", TaskID: "t", State: task.StateCompleted, Message: spoken("ok"), Artifacts: []task.Artifact{
				{ID: "a", Name: "n", Parts: []task.Part{task.Text("x")}, Metadata: json.RawMessage(`{"k":1.0}`)},
			}, Omitted: 5},
			{ID: "2", Agent: "c", State: task.StateRejected, Error: "there is no agent"},
		}}, `{"source":"calls","results":[
			{"id":"1","agent":"b","task":"t","state":"completed","message":{"role":"agent","parts":[{"text":"ok"}]},
			 "artifacts":[{"artifactId":"a","name":"n","parts":[{"text":"x"}],"metadata":{"k":1.0}}],"omitted":5},
			{"id":"2","agent":"c","state":"rejected","error":"there is no agent"}]}`},
		"the timer fired":  {executor.Input{Source: executor.SourceTimer, Until: until}, `{"source":"timer","until":"2026-03-01T09:00:00Z"}`},
		"a message came":   {executor.Input{Source: executor.SourceTimer, Until: until, Interrupted: true}, `{"source":"timer","until":"2026-03-01T09:00:00Z","interrupted":true}`},
		"JSON":             {asJSON(`{"a": 1.0}`), `{"source":"resume","method":"POST","contentType":"application/json","data":{"a":1.0}}`},
		"a query":          {resumed("GET", "", "code=1&state=x", ""), `{"source":"resume","method":"GET","query":"code=1&state=x"}`},
		"a form":           {resumed("POST", "application/x-www-form-urlencoded", "", "code=1"), `{"source":"resume","method":"POST","contentType":"application/x-www-form-urlencoded","text":"code=1"}`},
		"bytes":            {resumed("POST", "", "", "\xff\x00"), `{"source":"resume","method":"POST","bytes":"/wA="}`},
		"not JSON":         {asJSON(`{`), `{"source":"resume","method":"POST","contentType":"application/json","text":"{"}`},
		"names twice":      {asJSON(`{"a":1,"a":2}`), `{"source":"resume","method":"POST","contentType":"application/json","text":"{\"a\":1,\"a\":2}"}`},
		"half a surrogate": {asJSON(`"\ud83d"`), `{"source":"resume","method":"POST","contentType":"application/json","text":"\"\\ud83d\""}`},
		"deep":             {asJSON(deep), `{"source":"resume","method":"POST","contentType":"application/json","text":"` + deep + `"}`},
	} {
		run := executortest.NewRun("")
		run.Turn, run.Message, run.Input = 2, &task.Message{}, &c.in
		if c.in.Interrupted {
			run.Message = spoken("now")
		}
		if c.in.Resumed != nil {
			run.ResumeURL = "https://example.com/resume/x"
		}
		var doc map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(document(t, run, History{})), &doc), name)
		require.JSONEq(t, c.want, string(doc["input"]), name)
		require.Equal(t, c.in.Interrupted, doc["message"] != nil, name)
		if c.in.Resumed != nil {
			require.JSONEq(t, `{"url":"https://example.com/resume/x"}`, string(doc["resume"]), name)
		}
	}
}

func TestPlayerAsksWithAResumeURL(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]struct {
		valid time.Duration
		texts []string
	}{
		`{"type":"ask","message":"ok?","resume":{"for":60,"show":true}}`: {time.Minute, []string{"ok?", "\n" + executortest.ResumeURL}},
		`{"type":"auth","resume":{"show":true}}`:                         {24 * time.Hour, []string{executortest.ResumeURL}},
		`{"type":"ask","message":"ok?","resume":{}}`:                     {24 * time.Hour, []string{"ok?"}},
		`{"type":"ask","message":"ok?","resume":null}`:                   {0, []string{"ok?"}},
	} {
		require.NoError(t, compile(t, "event").Validate(instance(t, event)), event)
		out := executortest.NewRecorder()
		p := NewPlayer(executortest.NewRun("x"), out)
		require.NoError(t, p.PlayLine(t.Context(), 1, []byte(event)))
		require.True(t, p.Settled())
		var texts []string
		for _, part := range out.Events()[0].Message.Parts {
			texts = append(texts, part.Text)
		}
		require.Equal(t, want.texts, texts, event)
		require.Equal(t, want.valid, out.Events()[0].Resumable, event)
	}
	for event, why := range map[string]string{
		`{"type":"ask","message":"?","resume":{"for":0}}`:   "resume.for: must be more than 0",
		`{"type":"ask","message":"?","resume":{"until":1}}`: "resume.until",
		`{"type":"complete","message":"?","resume":{}}`:     "resume",
		`{"type":"auth","resume":{"for":1e300}}`:            "resume.for",
	} {
		_, bad := Decode([]byte(event))
		require.ErrorContains(t, bad, why, event)
		require.Error(t, compile(t, "event").Validate(instance(t, event)), event)
	}
}
