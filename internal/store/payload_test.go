package store

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// everyPart has one part of each kind, with and without optional members.
func everyPart() []task.Part {
	return []task.Part{
		task.Text("plain"),
		task.Text(""),
		{Kind: task.PartText, Text: "quotes \" \\ \u2028 \u00e9 \U0001F600 </script>", Metadata: json.RawMessage(`{"b":1,"a":[]}`)},
		{Kind: task.PartRaw, Raw: []byte{0, 1, 254, 255}, Filename: "f.bin", MediaType: "application/octet-stream"},
		{Kind: task.PartRaw},
		{Kind: task.PartURL, URL: "https://example.com/?a=1&b=2", Filename: "x", MediaType: "text/html"},
		{Kind: task.PartURL, Filename: "only named"},
		{Kind: task.PartData, Data: json.RawMessage(`{"z":1.0,"a":12345678901234567890123,"e":1E+2,"s":"\u00e9\/","nested":[ 1, {"y":null} ]}`)},
		{Kind: task.PartData, Data: json.RawMessage(`null`)},
		{Kind: task.PartData, Data: json.RawMessage(`[1.10, -0]`), MediaType: "application/json"},
	}
}

func samples() map[string]*task.Event {
	odd := json.RawMessage(`{"big":9007199254740993,"float":1.0,"order":{"z":1,"a":2},"escape":"\u0041"}`)
	return map[string]*task.Event{
		"message": {Kind: task.EventMessage, Message: &task.Message{
			ID: "m-1", Role: task.RoleUser, Parts: everyPart(), Metadata: odd,
			Extensions: []string{"https://example.com/ext"}, References: []string{"t-1", "t-2"},
		}},
		"message-request": {Kind: task.EventMessage, Message: user("x"), Request: &task.Request{
			Metadata: odd, OutputModes: []string{"text/html", "*/*"}, Extensions: []string{"https://example.com/ext"}, Scopes: []string{"read"},
			Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Tracestate: "a=1,b=2",
		}},
		"message-small":  {Kind: task.EventMessage, Message: &task.Message{ID: "m", Role: task.RoleAgent, Parts: []task.Part{task.Text("x")}}},
		"status-empty":   {Kind: task.EventStatus, State: task.StateWorking},
		"status-message": {Kind: task.EventStatus, State: task.StateInputRequired, Metadata: odd, Message: user("more?")},
		"status-parked":  {Kind: task.EventStatus, State: task.StateInputRequired, Artifacts: []string{"a", "b\"c"}},
		"status-direct":  {Kind: task.EventStatus, State: task.StateCompleted, Direct: true, Message: user("bare")},
		"status-cause":   {Kind: task.EventStatus, State: task.StateFailed, Cause: "exit status 1: \"no model\"", Message: user("failed")},
		"artifact": {Kind: task.EventArtifact, Metadata: odd, Artifact: &task.Artifact{
			ID: "a", Index: 3, Name: "n", Description: "d", Parts: everyPart(), Metadata: odd, Extensions: []string{"e"},
		}},
		"artifact-small": {Kind: task.EventArtifact, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text("chunk")}}},
		"run":            {Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunLost, Error: "e", Worker: "w"}},
		"run-checkpoint": {Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCheckpoint, Checkpoint: odd}},
		"run-waits": {Kind: task.EventRun, Run: &task.RunNote{
			Outcome: task.RunWaits, Until: time.Date(2026, 3, 1, 9, 0, 0, 5e6, time.UTC), For: 1500 * time.Millisecond, Interruptible: true,
		}},
		"run-calls": {Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCalls, Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Calls: []task.Call{
			{ID: "1", Agent: "b", Task: task.ID{1}, ContextID: "c", Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("hi")}}, Metadata: odd},
			{ID: "2", Task: task.ID{2}, Answers: true, RequestID: task.ID{3}, Message: &task.Message{ID: "n", Role: task.RoleUser, Parts: []task.Part{task.Text("so")}}, Relay: true},
		}}},
	}
}

func TestPayloadsMatchGoldenFiles(t *testing.T) {
	t.Parallel()
	for name, e := range samples() {
		got := EncodePayload(e)
		file := filepath.Join("testdata", "payload-"+name+".json")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got+"\n"), 0o600))
		}
		want := storetest.Must(os.ReadFile(file))(t)
		require.Equal(t, string(want), got+"\n", name)
		if got != "" {
			require.True(t, json.Valid([]byte(got)), name)
		}
	}
}

// decoded decodes a payload as from a row.
func decoded(t require.TestingT, e *task.Event, payload string) *task.Event {
	out := &task.Event{Kind: e.Kind, State: e.State}
	if e.Artifact != nil {
		out.Artifact = &task.Artifact{ID: e.Artifact.ID}
	}
	require.NoError(t, decodePayload(out, []byte(payload), nil))
	return out
}

func TestPayloadsRoundTrip(t *testing.T) {
	t.Parallel()
	for name, e := range samples() {
		got := decoded(t, e, EncodePayload(e))
		require.Empty(t, cmp.Diff(e, got, cmpopts.EquateEmpty()), name)
	}
}

// opaque draws JSON as clients may write it.
func opaque() *rapid.Generator[json.RawMessage] {
	scalar := rapid.SampledFrom([]string{
		"1.0", "1e400", "-0", "0.10", "123456789012345678901234567890", "null", "true", `"\u00e9\/\ud83d\ude00"`, `"é"`, `""`, "[]", "{}", "[ 1 ,2 ]",
	})
	return rapid.Custom(func(t *rapid.T) json.RawMessage {
		s := "{"
		for i := range rapid.IntRange(0, 4).Draw(t, "members") {
			if i > 0 {
				s += rapid.SampledFrom([]string{",", ", ", ",\n\t"}).Draw(t, "comma")
			}
			key := rapid.SampledFrom([]string{"z", "a", "id", "text", "parts", "\\u0061b"}).Draw(t, "key")
			s += `"` + key + `":` + scalar.Draw(t, "value")
		}
		return json.RawMessage(s + "}")
	})
}

func TestPayloadsRoundTripVerbatim(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		part := rapid.Custom(func(t *rapid.T) task.Part {
			p := task.Part{Filename: clean(text.Draw(t, "filename")), MediaType: clean(text.Draw(t, "media type"))}
			if rapid.Bool().Draw(t, "with metadata") {
				p.Metadata = opaque().Draw(t, "metadata")
			}
			switch p.Kind = task.PartKind(rapid.IntRange(1, 4).Draw(t, "kind")); p.Kind {
			case task.PartText:
				p.Text = clean(text.Draw(t, "text"))
			case task.PartRaw:
				p.Raw = rapid.SliceOf(rapid.Byte()).Draw(t, "raw")
			case task.PartURL:
				p.URL = clean(text.Draw(t, "url"))
			case task.PartData:
				p.Data = opaque().Draw(t, "data")
			}
			return p
		})
		parts := rapid.SliceOfN(part, 1, 4).Draw(t, "parts")
		for _, e := range []*task.Event{
			{Kind: task.EventMessage, Message: &task.Message{ID: clean(text.Draw(t, "id")), Role: task.RoleUser, Parts: parts, Metadata: opaque().Draw(t, "m")}},
			{Kind: task.EventStatus, State: task.StateWorking, Metadata: opaque().Draw(t, "m"), Message: &task.Message{Role: task.RoleAgent, Parts: parts}},
			{Kind: task.EventArtifact, Metadata: opaque().Draw(t, "m"), Artifact: &task.Artifact{ID: "a", Index: 1, Parts: parts, Metadata: opaque().Draw(t, "m")}},
		} {
			payload := EncodePayload(e)
			got := decoded(t, e, payload)
			if d := cmp.Diff(e, got, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("%s\n%s", payload, d)
			}
			if again := EncodePayload(got); again != payload {
				t.Fatalf("%s\nbecame\n%s", payload, again)
			}
		}
	})
}

// clean returns a string as a payload stores it.
func clean(s string) string { return cleanName(s) }

func TestInvalidCharactersAreReplaced(t *testing.T) {
	t.Parallel()
	e := &task.Event{Kind: task.EventMessage, Message: &task.Message{ID: "a\x00b\xff", Parts: []task.Part{task.Text("\x00")}}}
	got := decoded(t, e, EncodePayload(e))
	require.Equal(t, "a\uFFFDb\uFFFD", got.Message.ID)
	require.Equal(t, "\uFFFD", got.Message.Parts[0].Text)
}

func TestUnusualPayloadsAreRead(t *testing.T) {
	t.Parallel()
	e := &task.Event{Kind: task.EventMessage, Message: &task.Message{
		ID: "m", Role: task.RoleUser, Metadata: json.RawMessage(`{"a":1,"a":2}`),
		Parts: []task.Part{{Kind: task.PartData, Data: json.RawMessage(`{"x":1,"x":1}`)}},
	}}
	require.Empty(t, cmp.Diff(e, decoded(t, e, EncodePayload(e)), cmpopts.EquateEmpty()))
}

// FuzzPayload decodes any JSON that a row may contain: its encoding decodes to the same, however often.
func FuzzPayload(f *testing.F) {
	for _, e := range samples() {
		f.Add(uint8(e.Kind), EncodePayload(e))
	}
	for _, payload := range []string{
		`{"parts":[{"text":"a","url":"b","data":1,"raw":"AA=="},{},{"raw":null},{"data":null}],"role":"neither","unknown":[{}]}`,
		`{"id":"\u0000\ud800","parts":[{"text":"\ud800"}],"metadata":{"a":1,"a":2}}`,
		`{"index":-9223372036854775808,"parts":null,"extensions":["",null]}`,
		`{"message":null,"direct":true,"metadata":null}`, `{"message":{"parts":[{"raw":"!"}]}}`, `null`, `[]`, `{"PARTS":[1]}`,
		` { "outcome" : "checkpoint" , "checkpoint" : [ 1 , 2 ] } `,
	} {
		for kind := task.EventMessage; kind <= task.EventRun; kind++ {
			f.Add(uint8(kind), payload)
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, payload string) {
		// The column's type allows nothing else.
		if !utf8.ValidString(payload) || !json.Valid([]byte(payload)) {
			return
		}
		read := func(payload string) (*task.Event, error) {
			e := &task.Event{Kind: task.EventKind(1 + kind%4)}
			if e.Kind == task.EventArtifact {
				e.Artifact = &task.Artifact{ID: "a"}
			}
			return e, decodePayload(e, []byte(payload), &task.Task{PublicID: "t", ContextID: "c"})
		}
		e, err := read(payload)
		if err != nil || (e.Kind == task.EventMessage && e.Message == nil) || (e.Kind == task.EventRun && e.Run == nil) {
			return
		}
		written := EncodePayload(e)
		if written == "" {
			return
		}
		if !json.Valid([]byte(written)) {
			t.Fatalf("%s\nbecame %s", payload, written)
		}
		again := storetest.Must(read(written))(t)
		require.Equal(t, written, EncodePayload(again))
		if !strings.Contains(payload, `\u`) { // invalid characters are replaced
			require.Empty(t, cmp.Diff(e, again, cmpopts.EquateEmpty()))
		}
	})
}

// The short way to decode a chunk gives what the long way does, and leaves everything else to it.
func TestPlainChunksDecodeLikeOthers(t *testing.T) {
	t.Parallel()
	slowly := func(payload string) (*task.Event, error) {
		var a artifactJSON
		err := jsonv2.Unmarshal([]byte(payload), &a, lenient)
		return &task.Event{Metadata: raw(a.EventMetadata), Artifact: &task.Artifact{
			Index: a.Index, Name: a.Name, Description: a.Description, Parts: parts(a.Parts), Metadata: raw(a.Metadata), Extensions: a.Extensions,
		}}, err
	}
	for name, e := range samples() {
		if e.Kind == task.EventArtifact {
			got := &task.Event{Artifact: &task.Artifact{}}
			require.Equal(t, name == "artifact-small", plainChunk(got, []byte(EncodePayload(e))), name)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("a\"\\\n{}]:,\u00e9\u2028"))))
		payload := EncodePayload(&task.Event{Kind: task.EventArtifact, Artifact: &task.Artifact{
			Index: rapid.IntRange(0, 2000).Draw(r, "index"), Name: text.Draw(r, "name"), Parts: []task.Part{task.Text(text.Draw(r, "text"))},
		}})
		got := &task.Event{Artifact: &task.Artifact{}}
		require.True(r, plainChunk(got, []byte(payload)), payload)
		want := storetest.Must(slowly(payload))(r)
		require.Equal(r, want, got)

		// With one byte more, less, or another.
		at, with := rapid.IntRange(0, len(payload)-1).Draw(r, "at"), rapid.SampledFrom([]string{"", `"`, `\`, "}", "x", "1"}).Draw(r, "with")
		changed := payload[:at] + with + payload[at+rapid.IntRange(0, 1).Draw(r, "skip"):]
		got = &task.Event{Artifact: &task.Artifact{}}
		if want, err := slowly(changed); utf8.ValidString(changed) && plainChunk(got, []byte(changed)) && err == nil {
			require.Equal(r, want, got, changed)
		}
	})
}
