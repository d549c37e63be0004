package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/casetest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func text(s string) []task.Part { return []task.Part{task.Text(s)} }

func spoken(s string) *task.Message { return &task.Message{Role: task.RoleAgent, Parts: text(s)} }

var validEvents = map[string]Event{
	`{"type":"text","text":"hi"}`: {
		Action: Text, Chunk: executor.Chunk{Grows: true, Artifact: task.Artifact{Parts: text("hi")}},
	},
	`{"type":"text","text":"","name":"poem","artifactId":"p","append":true,"last":true}`: {
		Action: Text,
		Chunk:  executor.Chunk{Artifact: task.Artifact{ID: "p", Name: "poem", Parts: text("")}, Append: true, Last: true},
	},
	`{"type":"text","text":"a","name":null,"artifactId":null,"append":null,"last":null}`: {
		Action: Text, Chunk: executor.Chunk{Grows: true, Artifact: task.Artifact{Parts: text("a")}},
	},
	`{"type":"artifact","artifact":{"parts":[{"text":"a"}]}}`: {
		Action: Artifact, Chunk: executor.Chunk{Artifact: task.Artifact{Parts: text("a")}},
	},
	`{"type":"artifact","append":true,"last":true,"metadata":{"z":1,"a":1.0},"artifact":{"artifactId":"x","name":"n",
	  "description":"d","metadata":{"big":12345678901234567890},"extensions":["e"],"parts":[
	  {"raw":"aGk=","filename":"hi.txt","mediaType":"text/plain"},
	  {"url":"https://example.com/a","metadata":{"k":[]}},
	  {"data":{ "z": 1.0, "a": "\u00e9\/" }},
	  {"data":null},
	  {"text":"t","raw":null,"url":null,"filename":null}]}}`: {
		Action: Artifact,
		Chunk: executor.Chunk{
			Append: true, Last: true, Metadata: json.RawMessage(`{"z":1,"a":1.0}`),
			Artifact: task.Artifact{
				ID: "x", Name: "n", Description: "d", Metadata: json.RawMessage(`{"big":12345678901234567890}`),
				Extensions: []string{"e"},
				Parts: []task.Part{
					{Kind: task.PartRaw, Raw: []byte("hi"), Filename: "hi.txt", MediaType: "text/plain"},
					{Kind: task.PartURL, URL: "https://example.com/a", Metadata: json.RawMessage(`{"k":[]}`)},
					{Kind: task.PartData, Data: json.RawMessage(`{"z":1.0,"a":"\u00e9\/"}`)},
					{Kind: task.PartData, Data: json.RawMessage(`null`)},
					task.Text("t"),
				},
			},
		},
	},
	`{"type":"artifact","artifact":{"parts":[{"raw":""}]}}`: {
		Action: Artifact, Chunk: executor.Chunk{Artifact: task.Artifact{Parts: []task.Part{{Kind: task.PartRaw, Raw: []byte{}}}}},
	},
	`{"type":"text","text":"\ud83d"}`:                      {Action: Text, Chunk: executor.Chunk{Grows: true, Artifact: task.Artifact{Parts: text("\uFFFD")}}},
	`{"type":"checkpoint","data":{"\ude00":"\ud83d"}}`:     {Action: Checkpoint, Checkpoint: json.RawMessage(`{"\ufffd":"\ufffd"}`)},
	`{"type":"status"}`:                                    {Action: Status, State: task.StateWorking},
	`{"type":"status","state":null,"message":null}`:        {Action: Status, State: task.StateWorking},
	`{"type":"status","message":"half way"}`:               {Action: Status, State: task.StateWorking, Message: spoken("half way")},
	`{"type":"status","state":"completed","message":"ok"}`: {Action: Status, State: task.StateCompleted, Message: spoken("ok")},
	`{"type":"status","state":"input-required"}`:           {Action: Status, State: task.StateInputRequired},
	`{"type":"status","metadata":{"p": 1.0}}`:              {Action: Status, State: task.StateWorking, Metadata: json.RawMessage(`{"p":1.0}`)},
	`{"type":"ask","message":"?","metadata":{}}`:           {Action: Status, State: task.StateInputRequired, Message: spoken("?"), Metadata: json.RawMessage(`{}`)},
	`{"type":"complete","metadata":{"usage":{}}}`:          {Action: Status, State: task.StateCompleted, Metadata: json.RawMessage(`{"usage":{}}`)},
	`{"type":"ask","message":"Which city?"}`:               {Action: Status, State: task.StateInputRequired, Message: spoken("Which city?")},
	`{"type":"auth"}`:                                      {Action: Status, State: task.StateAuthRequired},
	`{"type":"complete"}`:                                  {Action: Status, State: task.StateCompleted},
	`{"type":"complete","message":"bye"}`:                  {Action: Status, State: task.StateCompleted, Message: spoken("bye")},
	`{"type":"fail","message":"no","error":{"type":"KeyError","place":"a.py:7","message":"x","trace":"t\n"}}`: {
		Action: Status, State: task.StateFailed, Message: spoken("no"), Error: &Error{Type: "KeyError", Place: "a.py:7", Message: "x", Trace: "t\n"},
	},
	`{"type":"fail","message":"no"}`:           {Action: Status, State: task.StateFailed, Message: spoken("no")},
	`{"type":"reject"}`:                        {Action: Status, State: task.StateRejected},
	`{"type":"checkpoint","data":{"page": 3}}`: {Action: Checkpoint, Checkpoint: json.RawMessage(`{"page":3}`)},
	`{"type":"checkpoint","data":null}`:        {Action: Checkpoint, Checkpoint: json.RawMessage(`null`)},
	`{"type":"record","kind":"step","name":"pay","nth":1,"data":{"id": 1.0},"emitted":{"b":2,"a":1},"open":["x"],"tries":2,"took":0.5}`: {
		Action: Record, Checkpoint: json.RawMessage(`{"kind":"step","name":"pay","nth":1,"data":{"id":1.0},"emitted":{"a":1,"b":2},"open":["x"],"tries":2,"took":0.5}`),
	},
	`{"type":"record","kind":"value","name":"v","nth":2,"data":null,"emitted":null,"open":null}`: {
		Action: Record, Checkpoint: json.RawMessage(`{"kind":"value","name":"v","nth":2,"data":null}`),
	},
	`{"type":"record","kind":"step","name":"pay","nth":1,"error":{"type":"KeyError","message":"x"}}`: {
		Action: Record, Checkpoint: json.RawMessage(`{"kind":"step","name":"pay","nth":1,"error":{"type":"KeyError","message":"x"}}`),
	},
	`{"type":"retry"}`:                                      {Action: Retry},
	`{"type":"state","data":{"a": 1.0}}`:                    {Action: Store, Stored: Stored{Scope: executor.OfTask, Value: json.RawMessage(`{"a":1.0}`), Version: executor.AnyVersion}},
	`{"type":"state","scope":null,"data":1,"version":null}`: {Action: Store, Stored: Stored{Scope: executor.OfTask, Value: json.RawMessage(`1`), Version: executor.AnyVersion}},
	`{"type":"state","scope":"context","data":null,"version":0}`: {
		Action: Store, Stored: Stored{Scope: executor.OfContext, Value: json.RawMessage(`null`)},
	},
	`{"type":"retry","reason":"model busy","after":1.5}`: {Action: Retry, Reason: "model busy", After: 1500 * time.Millisecond},
	`{"type":"wait","for":0.5}`:                          {Action: Wait, Wait: executor.Wait{For: 500 * time.Millisecond}},
	`{"type":"wait","until":null,"for":315360000}`:       {Action: Wait, Wait: executor.Wait{For: executor.MaxWait}},
	`{"type":"wait","until":"2026-03-01T09:00:00Z","interruptible":true}`: {
		Action: Wait, Wait: executor.Wait{Until: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), Interruptible: true},
	},
	`{"type":"call","calls":[{"agent":"b","message":"hi"},{"id":"x","task":"01945c3e-8f5a-7c3e-9d52-3c1f0f3b2a11","agent":null,"message":{"parts":[{"text":"so"}]}}]}`: {
		Action: Call, Calls: []executor.Call{
			{Agent: "b", Message: spoken("hi")},
			{ID: "x", TaskID: "01945c3e-8f5a-7c3e-9d52-3c1f0f3b2a11", Message: spoken("so")},
		},
	},
	`{"type":"call","calls":[{"agent":"b","message":"hi","relay":true},{"agent":"c","message":"hi","relay":null}]}`: {
		Action: Call, Calls: []executor.Call{{Agent: "b", Message: spoken("hi"), Relay: true}, {Agent: "c", Message: spoken("hi")}},
	},
	`{"type":"call","calls":[{"agent":"b","contextId":"c","message":"hi","metadata":{"k": 1.0}}]}`: {
		Action: Call, Calls: []executor.Call{{Agent: "b", ContextID: "c", Message: spoken("hi"), Metadata: json.RawMessage(`{"k":1.0}`)}},
	},
	`{"type":"wait","until":"0001-01-01T00:00:00.5Z"}`: {
		Action: Wait, Wait: executor.Wait{Until: time.Date(1, 1, 1, 0, 0, 0, 5e8, time.UTC)},
	},
	`{"type":"reply","message":{"parts":[{"text":"hey"}]}}`: {Action: Reply, Message: spoken("hey")},
	`{"type":"reply","message":{"messageId":"m","role":"agent","metadata":{"a":null},"extensions":["e"],
	  "referenceTaskIds":["t"],"parts":[{"text":"hey"}]}}`: {
		Action: Reply,
		Message: &task.Message{
			ID: "m", Role: task.RoleAgent, Parts: text("hey"), Metadata: json.RawMessage(`{"a":null}`),
			Extensions: []string{"e"}, References: []string{"t"},
		},
	},
}

// invalidEvents are events that are wrong, and what their authors read. TYPES are all types.
const invalidEvents = "testdata/invalid.txt"

// unparseableEvents are texts that are no JSON, or that a schema cannot judge.
var unparseableEvents = map[string]string{
	``:                                      "not JSON: unexpected EOF, at byte 1",
	`hello`:                                 "not JSON: invalid character 'h' at start of value, at byte 1",
	`{"type":"text","text":"a"`:             "not JSON: unexpected EOF, at byte 26",
	`{"type":"text"} {"type":"text"}`:       "not JSON: invalid character '{' after top-level value, at byte 17",
	`{'type':'text'}`:                       "not JSON: invalid character '\\'' at start of value, at byte 2",
	`{"type":"text","text":"a","text":"b"}`: "text: is given twice",
	`{"type":"call","calls":[{"agent":"b","message":"hi"},{"id":"1","agent":"b","message":"hi"}]}`: `calls[1].id: "1" is the id of an earlier call`,
	`{"type":"wait","until":"tomorrow"}`:               "until: must be a time such as 2026-03-01T09:00:00Z",
	`{"type":"wait","until":"9999-12-31T00:00:00Z"}`:   "until: must be within 10 years",
	`{"type":"checkpoint","data":{"a":{"b":1,"b":2}}}`: "data.a.b: is given twice",
	"{\"type\":\"text\",\"text\":\"\xff\"}":            "text: not JSON: invalid UTF-8, at byte 24",
}

// compiled are schemas by name: to compile one takes longer than most tests.
var compiled sync.Map

func compile(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	if known, ok := compiled.Load(name); ok {
		return known.(*jsonschema.Schema)
	}
	schema, err := jsonschema.NewCompiler().Compile("../../../../docs/executor.schema.json#/$defs/" + name)
	require.NoError(t, err)
	compiled.Store(name, schema)
	return schema
}

func instance(t testing.TB, raw string) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(raw))
	require.NoError(t, err)
	return value
}

func TestDecoderAndSchemaAcceptValidEvents(t *testing.T) {
	t.Parallel()
	schema := compile(t, "event")
	for raw, want := range validEvents {
		got, bad := Decode([]byte(raw))
		require.Nil(t, bad, raw)
		require.Empty(t, cmp.Diff(&want, got), raw)
		require.NoError(t, schema.Validate(instance(t, raw)), raw)
	}
}

func TestDecoderAndSchemaRejectInvalidEvents(t *testing.T) {
	t.Parallel()
	schema := compile(t, "event")
	for _, c := range casetest.Read(t, invalidEvents) {
		_, bad := Decode([]byte(c.In))
		require.EqualError(t, bad, strings.ReplaceAll(c.Want, "TYPES", knownTypes), c.In)
		require.Error(t, schema.Validate(instance(t, c.In)), c.In)
	}
	for raw, want := range unparseableEvents {
		_, bad := Decode([]byte(raw))
		require.EqualError(t, bad, want, raw)
	}
}

func TestErrorShortensLongNames(t *testing.T) {
	t.Parallel()
	_, bad := Decode([]byte(`{"type":"text","text":"a","` + strings.Repeat("é", 10_000) + `":1}`))
	require.EqualError(t, bad, strings.Repeat("é", maxQuote/2)+"…: is not a known member")
}

func TestSchemaHasEveryType(t *testing.T) {
	t.Parallel()
	for name := range eventTypes {
		compile(t, name)
		require.Contains(t, ", "+knownTypes+",", ", "+name+",")
	}
	events := map[string]bool{}
	for raw := range validEvents {
		var head struct{ Type string }
		require.NoError(t, json.Unmarshal([]byte(raw), &head))
		events[head.Type] = true
	}
	require.Len(t, events, len(eventTypes), "each type has an example")
}

func TestNestingIsLimited(t *testing.T) {
	t.Parallel()
	nested := func(n int) string {
		return `{"type":"checkpoint","data":` + strings.Repeat("[", n) + `"]}[{\""` + strings.Repeat("]", n) + `}`
	}
	_, bad := Decode([]byte(nested(MaxDepth - 1)))
	require.Nil(t, bad)
	_, bad = Decode([]byte(nested(MaxDepth)))
	require.EqualError(t, bad, "nests deeper than 100 levels")
	deep := strings.Repeat(`{"a":`, 31) + "1" + strings.Repeat("}", 31)
	for raw, member := range map[string]string{
		`{"type":"artifact","artifact":{"parts":[{"data":` + deep + `}]}}`: "artifact.parts[0].data",
		`{"type":"status","metadata":` + deep + `}`:                        "metadata",
	} {
		_, bad = Decode([]byte(raw))
		require.EqualError(t, bad, member+": nests deeper than the 30 levels that clients can read")
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	schema := compile(t, "answer")
	for raw, want := range map[string]int{
		`{"text":"hi"}`:                   1,
		`{"text":"hi","name":"greeting"}`: 1,
		`{"text":"\ud83d"}`:               1,
		`{"type":"complete"}`:             1,
		`{"events":[]}`:                   0,
		`{"events":[{"type":"text","text":"a"},{"type":"complete"}]}`:  2,
		"{\n  \"type\": \"checkpoint\",\n  \"data\": [\n    1\n  ]\n}": 1,
	} {
		events, bad := DecodeAnswer([]byte(raw))
		require.Nil(t, bad, raw)
		require.Len(t, events, want, raw)
		require.NoError(t, schema.Validate(instance(t, raw)), raw)
	}
	for raw, want := range map[string]string{
		`{}`:                         "needs one of type, events, text",
		`[]`:                         "must be an object, not an array",
		`{"output":"hi"}`:            "needs one of type, events, text",
		`{"text":"hi","extra":1}`:    "extra: is not a known member",
		`{"events":{}}`:              "events: must be an array, not an object",
		`{"events":[],"text":"a"}`:   "text: is not a known member",
		`{"events":[{"text":"hi"}]}`: "events[0].type: is missing; it is one of " + knownTypes,
		`{"events":[{"type":"artifact","artifact":{"parts":[{}]}}]}`: "events[0].artifact.parts[0]: needs one of text, raw, url, data",
	} {
		_, bad := DecodeAnswer([]byte(raw))
		require.EqualError(t, bad, want, raw)
		require.Error(t, schema.Validate(instance(t, raw)), raw)
	}
	for raw, want := range map[string]string{
		`{"events":[{"type":"complete"},{"type":"text","text":"a"}]}`:            "events[1]: follows the event that ended the run",
		`{"events":[{"type":"text","text":"a"},{"type":"reply","message":"b"}]}`: "events[1]: a reply must be the only event",
	} {
		_, bad := DecodeAnswer([]byte(raw))
		require.EqualError(t, bad, want, raw)
	}
}

// FuzzDecode looks for panics, for line breaks that reach the log, and for events that the decoder accepts and the
// published schema rejects.
func FuzzDecode(f *testing.F) {
	for raw := range validEvents {
		f.Add([]byte(raw))
	}
	for _, c := range casetest.Read(f, invalidEvents) {
		f.Add([]byte(c.In))
	}
	for raw := range unparseableEvents {
		f.Add([]byte(raw))
	}
	schema := compile(f, "event")
	f.Fuzz(func(t *testing.T, raw []byte) {
		given := bytes.Clone(raw)
		e, bad := Decode(raw)
		if !bytes.Equal(given, raw) {
			t.Fatal("the decoder changed its input")
		}
		if _, answerBad := DecodeAnswer(raw); bad == nil && answerBad != nil {
			t.Fatalf("an event is not an answer: %v", answerBad)
		}
		if bad != nil {
			return
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			return // encoding/json accepts a little less than the decoder, for example no numbers beyond float64
		}
		if err := schema.Validate(value); err != nil {
			t.Fatalf("the schema rejects what the decoder accepts: %v", err)
		}
		for _, opaque := range []json.RawMessage{e.Checkpoint, e.Chunk.Metadata, e.Chunk.Artifact.Metadata} {
			if bytes.ContainsAny(opaque, "\n\r") {
				t.Fatalf("a line break in %q", opaque)
			}
		}
	})
}
