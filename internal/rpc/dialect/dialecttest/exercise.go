package dialecttest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
	rpcfault "github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Suite is the test suite that a codec must pass.
type Suite struct {
	Codec    dialect.Codec
	Examples string   // the published requests that it must understand, see Examples
	Schemas  []string // the versions whose schemas its documents satisfy
	Proto    string   // or the version whose proto file they satisfy
	// Later lists fields added to the proto file after publication: their types, by message and
	// JSON name.
	Later map[string]map[string]string
	// Nameless says that the documents show no names of files, although requests may have them.
	Nameless bool
	// Send makes the params of a send from a message as the codec renders it.
	Send func(message []byte) []byte
	// History is how many of three messages a task shows, by the historyLength of a request. ShowsEmpty says that a history
	// of no messages is shown, too.
	History    map[string]int
	ShowsEmpty bool
	// Live says that a subscription goes on while its task is parked.
	Live bool

	schemas []*Schemas
	proto   *Proto
}

// Exercise runs the suite. The golden files are in testdata of the package under test.
func (s Suite) Exercise(t *testing.T) {
	t.Helper()
	for _, version := range s.Schemas {
		s.schemas = append(s.schemas, NewSchemas(t, version))
	}
	if s.Proto != "" {
		s.proto = NewProto(t, s.Proto)
		for message, fields := range s.Later {
			for name, kind := range fields {
				s.proto.messages[message][name] = field{kind: kind}
			}
		}
	}
	t.Run("requests", s.requests)
	t.Run("refusals", s.refusals)
	t.Run("spellings", s.spellings)
	t.Run("histories", s.histories)
	t.Run("ends of streams", s.closes)
	t.Run("results", s.results)
	t.Run("pages", s.pages)
	t.Run("pushes", s.pushes)
	t.Run("openings", s.openings)
	t.Run("events", s.events)
	t.Run("faults", s.faults)
	t.Run("opaque JSON", s.opaque)
}

// check validates a document against every schema. Its members determine the definition. For a
// proto file, name does.
func (s Suite) check(t *testing.T, name string, document []byte) {
	t.Helper()
	require.NoError(t, rawjson.Check(document, 2*rawjson.MaxDepth))
	if s.proto != nil {
		s.proto.Check(t, name, document)
		return
	}
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(document, &members))
	definition := "Task"
	switch {
	case members["role"] != nil:
		definition = "Message"
	case members["artifact"] != nil:
		definition = "TaskArtifactUpdateEvent"
	case members["final"] != nil:
		definition = "TaskStatusUpdateEvent"
	}
	for _, schema := range s.schemas {
		schema.Check(t, definition, document)
	}
}

// requests decodes each published example, and compares the outcome with a golden file.
func (s Suite) requests(t *testing.T) {
	for _, example := range Examples(t, s.Examples) {
		op, ok := s.Codec.Traits().Operations[example.Method]
		require.True(t, ok, "%s: %s", example.Name, example.Method)
		call, err := s.Codec.Decode(op, example.Params)
		outcome := map[string]any{}
		if err != nil {
			outcome["error"] = err.Error()
		} else {
			outcome = meaning(call)
		}
		dump, err := json.Marshal(outcome)
		require.NoError(t, err)
		Golden(t, "requests/"+example.Name, dump)
	}
}

// operations are all of them, and none.
var operations = []engine.Op{
	engine.OpNone, engine.OpSend, engine.OpStream, engine.OpGet, engine.OpList, engine.OpCancel, engine.OpSubscribe,
	engine.OpPushSet, engine.OpPushGet, engine.OpPushList, engine.OpPushDelete, engine.OpExtendedCard,
}

// refusals decodes the requests of testdata/refusals.txt, and compares the errors. A case is a name, an operation with its
// params, and the error.
func (s Suite) refusals(t *testing.T) {
	cases := Cases(t, "refusals", 3)
	require.Greater(t, len(cases), 20)
	for _, c := range cases {
		name, params, _ := strings.Cut(c[1], " ")
		op := slices.IndexFunc(operations, func(op engine.Op) bool { return op.String() == name })
		require.GreaterOrEqual(t, op, 0, c)
		call, err := s.Codec.Decode(operations[op], []byte(params))
		require.EqualError(t, err, c[2], c)
		require.Nil(t, call, c)
	}
}

// spellings decodes sends that mean the same, from testdata/spellings.txt, and compares their meaning with a golden file.
func (s Suite) spellings(t *testing.T) {
	for _, c := range Cases(t, "spellings", 2) {
		call, err := s.Codec.Decode(engine.OpStream, []byte(c[1]))
		require.NoError(t, err, c)
		dump, err := json.Marshal(meaning(call))
		require.NoError(t, err)
		Golden(t, "requests/every-member", dump)
	}
}

// histories decodes requests for a task with a length of its history, and renders the task.
func (s Suite) histories(t *testing.T) {
	sample := &task.Task{PublicID: "t", Status: task.Status{State: task.StateWorking}}
	for range 3 {
		sample.History = append(sample.History, task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text("x")}})
	}
	require.GreaterOrEqual(t, len(s.History), 4)
	for length, want := range s.History {
		call, err := s.Codec.Decode(engine.OpGet, []byte(`{"id":"t","historyLength":`+length+`}`))
		require.NoError(t, err)
		result, err := s.Codec.Result(call.Op, sample, call.View)
		require.NoError(t, err)
		require.Equal(t, want, strings.Count(string(result), `"role"`), "historyLength %s", length)
		require.Equal(t, s.ShowsEmpty || want > 0, strings.Contains(string(result), `"history"`), "historyLength %s", length)
	}
	all := dialect.View{History: engine.AllHistory}
	empty, err := s.Codec.Result(engine.OpGet, &task.Task{}, all)
	require.NoError(t, err)
	require.NotContains(t, string(empty), `"history"`, "no history and no length")
}

func (s Suite) closes(t *testing.T) {
	for _, state := range task.States {
		require.Equal(t, state.Settled(), s.Codec.Closes(engine.OpStream, state), state)
		require.Equal(t, state.Terminal() || !s.Live && state.Parked(), s.Codec.Closes(engine.OpSubscribe, state), state)
	}
}

// meaning returns the decoded call for a golden file. It omits what the binding adds to a request
// later.
func meaning(call *dialect.Call) map[string]any {
	m := map[string]any{"task": call.TaskID(), "history": call.View.History, "show empty history": call.View.ShowEmpty}
	if call.Tenant != "" {
		m["tenant"] = call.Tenant
	}
	if l := call.List; l != nil {
		m["list"] = l
	}
	if s := call.Send; s != nil {
		m["context"], m["message"], m["metadata"] = s.ContextID, s.Message, s.Metadata
		m["dialect"], m["may create"], m["wait"], m["output modes"] = s.Dialect, s.MayCreate, s.Wait, s.OutputModes
		if s.Push != nil {
			m["push"] = s.Push
		}
	}
	if p := call.Push; p != nil {
		m["config"], m["set"], m["may lack"] = p.ConfigID, p.Set, p.MayLack
	}
	return m
}

func (s Suite) results(t *testing.T) {
	for name, sample := range Tasks() {
		result, err := s.Codec.Result(engine.OpGet, sample, dialect.View{History: engine.AllHistory})
		require.NoError(t, err)
		s.check(t, "Task", result)
		Golden(t, "results/"+name, result)
	}
	sent, err := s.Codec.Result(engine.OpSend, Tasks()["direct"], dialect.View{History: engine.AllHistory})
	require.NoError(t, err)
	s.check(t, "SendMessageResponse", sent)
	Golden(t, "results/direct-in-answer-to-send", sent)
}

// pages renders pages, for versions that can list.
func (s Suite) pages(t *testing.T) {
	if _, lists := s.Codec.Traits().Operations["ListTasks"]; !lists {
		_, err := s.Codec.Page(&engine.Page{}, dialect.View{})
		require.ErrorIs(t, err, task.Unsupported)
		return
	}
	tasks := Tasks()
	for name, page := range map[string]*engine.Page{
		"empty": {Size: 50},
		"first": {Tasks: []*task.Task{tasks["completed"], tasks["submitted"]}, Size: 2, Total: 7, NextToken: "more"},
	} {
		document, err := s.Codec.Page(page, dialect.View{History: 1, ShowArtifacts: true})
		require.NoError(t, err)
		if s.proto.Has("ListTasksResponse") {
			s.check(t, "ListTasksResponse", document)
		}
		Golden(t, "pages/"+name, document)
	}
}

// pushes renders configurations of webhooks, and reads them back.
func (s Suite) pushes(t *testing.T) {
	configs := []task.PushConfig{
		{ID: "t-1", URL: "https://hook.example/a?b=<c>", Token: "secret", Schemes: []string{"Bearer", "Basic"}, Credentials: "secret"},
		{ID: "c-\"2\"", URL: "http://other.example", DisabledFor: "secret", Artifacts: true},
	}
	for name, p := range map[string]struct {
		op      engine.Op
		configs []task.PushConfig
	}{
		"set": {engine.OpPushSet, configs[:1]}, "get": {engine.OpPushGet, configs[1:]}, "cleared": {engine.OpPushSet, nil},
		"list": {engine.OpPushList, configs}, "list-empty": {engine.OpPushList, nil}, "delete": {engine.OpPushDelete, nil},
	} {
		has := slices.ContainsFunc(PushMethods, func(method string) bool {
			op, ok := s.Codec.Traits().Operations[method]
			return ok && op == p.op
		})
		if !has || name == "cleared" && s.Codec.Traits().ID != dialect.V01 {
			continue
		}
		document, err := s.Codec.Pushes(p.op, &engine.Pushes{TaskID: "t-1", Configs: p.configs})
		require.NoError(t, err)
		require.NoError(t, rawjson.Check(document, rawjson.MaxDepth))
		require.NotContains(t, string(document), "secret")
		message := map[engine.Op]string{
			engine.OpPushSet: "TaskPushNotificationConfig", engine.OpPushGet: "TaskPushNotificationConfig",
		}[p.op]
		switch {
		case message == "" || len(p.configs) == 0:
		case s.proto != nil:
			s.proto.Check(t, message, document)
		default:
			for _, schema := range s.schemas {
				schema.Check(t, message, document)
			}
		}
		Golden(t, "pushes/"+name, document)
		if p.op != engine.OpPushSet {
			continue
		}
		call, err := s.Codec.Decode(p.op, document)
		require.NoError(t, err, "what is shown can be sent back")
		require.Equal(t, "t-1", call.TaskID())
		if len(p.configs) > 0 {
			require.Equal(t, p.configs[0].URL, call.Push.Set.URL)
		}
	}
}

// PushMethods are the push methods of all versions.
var PushMethods = []string{
	"tasks/pushNotification/set", "tasks/pushNotification/get", "tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/get",
	"tasks/pushNotificationConfig/list", "tasks/pushNotificationConfig/delete", "CreateTaskPushNotificationConfig",
	"GetTaskPushNotificationConfig", "ListTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig",
}

func (s Suite) openings(t *testing.T) {
	for _, op := range []engine.Op{engine.OpStream, engine.OpSubscribe} {
		for name, sample := range Tasks() {
			documents, err := s.Codec.Opening(op, sample)
			require.NoError(t, err)
			for i, document := range documents {
				s.check(t, "StreamResponse", document)
				opening := map[engine.Op]string{engine.OpStream: "stream", engine.OpSubscribe: "subscribe"}[op]
				Golden(t, fmt.Sprintf("openings/%s-%s-%d", opening, name, i+1), document)
			}
		}
	}
}

func (s Suite) events(t *testing.T) {
	identity := &task.Task{PublicID: "t-1", ContextID: "c-1"}
	for name, event := range Events() {
		document, err := s.Codec.Event(identity, event, false)
		require.NoError(t, err)
		s.check(t, "StreamResponse", document)
		Golden(t, "events/"+name, document)
	}
	direct := &task.Event{
		Seq: 2, Kind: task.EventStatus, At: At, State: task.StateCompleted, Direct: true, Message: agentSays("Hello yourself"),
	}
	document, err := s.Codec.Direct(identity, direct)
	require.NoError(t, err)
	s.check(t, "StreamResponse", document)
	Golden(t, "events/direct", document)
	question := &task.Event{Seq: 2, Kind: task.EventStatus, At: At, State: task.StateInputRequired, Message: agentSays("Which one?")}
	document, err = s.Codec.Event(identity, question, true)
	require.NoError(t, err)
	s.check(t, "StreamResponse", document)
	Golden(t, "events/passed", document)
	for _, kind := range []task.EventKind{task.EventMessage, task.EventRun} {
		document, err := s.Codec.Event(identity, &task.Event{Kind: kind, Message: agentSays("unseen"), Run: &task.RunNote{}}, false)
		require.NoError(t, err)
		require.Nil(t, document, "%s events are not shown", kind)
	}
}

// faults compares every kind of error with one golden file.
func (s Suite) faults(t *testing.T) {
	type fault struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	}
	all := map[string]fault{}
	incident := rpcfault.Incident{TaskID: "t \"1\""}
	for k := range task.Kind(task.KindCount) {
		err := task.Errorf(k, "the detail")
		code, message := s.Codec.Traits().Faults.Describe(err)
		require.Negative(t, code)
		all[k.Error()] = fault{code, message, s.Codec.Details(err, incident)}
	}
	named := task.InvalidField("message.parts[1]", "is \"odd\"")
	if data := s.Codec.Details(named, incident); data != nil {
		code, message := s.Codec.Traits().Faults.Describe(named)
		all["a member"] = fault{code, message, data}
	}
	ours := s.Codec.Details(&task.Error{}, rpcfault.Incident{ID: "e-1"})
	require.Contains(t, string(ours), `"errorId":"e-1"`)
	require.NoError(t, rawjson.Check(ours, rawjson.MaxDepth))
	dump, err := json.Marshal(all)
	require.NoError(t, err)
	Golden(t, "faults", dump)
}

// opaque sends JSON through the codec and back. The input contains line breaks.
func (s Suite) opaque(t *testing.T) {
	spread := "{ \"a\" :\n[ 1.0 ,\r\n\t1e400 ] }"
	compact := `{"a":[1.0,1e400]}`
	for in, want := range map[string]string{Opaque: Opaque, spread: compact} {
		m := Tasks()["completed"].History[0]
		m.Parts = []task.Part{{Kind: task.PartData, Data: raw(in), Metadata: raw(in)}}
		m.Metadata = raw(in)
		call := s.resend(t, &m)
		require.Equal(t, want, string(call.Send.Message.Metadata))
		require.Equal(t, want, string(call.Send.Message.Parts[0].Data))
		require.Equal(t, want, string(call.Send.Message.Parts[0].Metadata))
	}
}

// resend renders a message in the history of a task and decodes it as a send.
func (s Suite) resend(t *testing.T, m *task.Message) *dialect.Call {
	t.Helper()
	result, err := s.Codec.Result(engine.OpGet, &task.Task{PublicID: "t-1", ContextID: "c-1", History: []task.Message{*m}},
		dialect.View{History: engine.AllHistory})
	require.NoError(t, err)
	require.NotContains(t, string(result), "\n")
	require.NoError(t, rawjson.Check(result, 4*rawjson.MaxDepth), "%s", result)
	var members struct {
		History []json.RawMessage `json:"history"`
	}
	require.NoError(t, json.Unmarshal(result, &members))
	call, err := s.Codec.Decode(engine.OpSend, s.Send(members.History[0]))
	require.NoError(t, err, "%s", result)
	return call
}

// FuzzDecode feeds arbitrary params to every operation. If a send accepts a message, decoding its
// own rendering must return the same message.
func (s Suite) FuzzDecode(f *testing.F) {
	ops := []engine.Op{
		engine.OpSend, engine.OpStream, engine.OpGet, engine.OpCancel, engine.OpSubscribe,
		engine.OpPushSet, engine.OpPushGet, engine.OpPushList, engine.OpPushDelete, engine.OpExtendedCard, engine.OpList,
	}
	for _, example := range Examples(f, s.Examples) {
		op := s.Codec.Traits().Operations[example.Method]
		f.Add(uint8(slices.Index(ops, op)), example.Params)
	}
	for _, parts := range []string{
		`[{"type":"data","data":{"value":[1]},"metadata":{"data_part_compat":true,"a":null}}]`,
		`[{"kind":"data","data":{"value":1,"more":2},"metadata":{"data_part_compat":true}}]`,
		`[{"kind":"data","data":7,"metadata":{"data_part_compat":false}},{"text":"x"}]`,
		`[{"kind":"file","file":{"bytes":"_-8","uri":""}},{"file":{}},{"type":"file","file":{"data":"aGk"}}]`,
		`[{"kind":"text","text":"\u2028\ud83d\ude00","metadata":{"mediaType":null}}]`,
	} {
		f.Add(uint8(0), s.Send([]byte(`{"messageId":"m","role":"user","parts":`+parts+`}`)))
	}
	for _, parts := range []string{
		`[{"text":""},{"raw":"_-8","filename":"f"},{"url":"","media_type":"a/b"},{"data":null,"metadata":{"a":null}},{"data":[1e400]}]`,
		`[{"text":"x","data":null}]`, `[{"raw":null}]`, `[{"data":{"data_part_compat":1}}]`,
	} {
		f.Add(uint8(1), s.Send([]byte(`{"message_id":"m","role":1,"parts":`+parts+`}`)))
	}
	for _, parts := range []string{
		`[{"text":"x"},{"file":{"fileWithBytes":"aGk","mimeType":"a/b"}},{"file":{"file_with_uri":"u","name":"f"}},{"data":{"data":{"data":{}}}}]`,
		`[{"data":{"data":[1]}},{"data":{"rows":2}},{"kind":"data","data":{"data":{}}},{"data":{}},{"file":{}}]`,
	} {
		f.Add(uint8(0), []byte(`{"request":{"message_id":"m","role":"ROLE_USER","content":`+parts+`},"configuration":{"blocking":true}}`))
	}
	f.Add(uint8(slices.Index(ops, engine.OpGet)), []byte(`{"name":"tasks/t-1","history_length":"0"}`))
	for _, params := range []string{
		`{"status":3,"pageSize":"7","statusTimestampAfter":"2026-01-05T10:00:02.1+01:00","include_artifacts":true}`,
		`{"status":"canceled","historyLength":0,"statusTimestampAfter":"2026-01-05T10:00:02","tenant":"demo"}`,
	} {
		f.Add(uint8(slices.Index(ops, engine.OpList)), []byte(params))
	}
	f.Fuzz(func(t *testing.T, op uint8, params []byte) {
		if rawjson.Check(params, rawjson.MaxDepth) != nil {
			params = append([]byte(nil), params...) // must not panic; the result does not matter
			_, _ = s.Codec.Decode(ops[int(op)%len(ops)], params)
			return
		}
		call, err := s.Codec.Decode(ops[int(op)%len(ops)], params)
		if err != nil {
			var fault *task.Error
			require.ErrorAs(t, err, &fault)
			if fault.Kind == task.Invalid {
				require.NotEmpty(t, fault.Field)
			}
			return
		}
		if call.Push != nil && call.Push.Set != nil {
			s.reset(t, call.Push)
		}
		if call.Send == nil {
			require.True(t, call.List != nil || call.Op == engine.OpExtendedCard || call.TaskID() != "")
			return
		}
		again := s.resend(t, call.Send.Message)
		if s.Nameless {
			for i := range call.Send.Message.Parts {
				if p := &call.Send.Message.Parts[i]; p.Kind == task.PartRaw || p.Kind == task.PartURL {
					p.Filename = ""
				}
			}
		}
		require.Empty(t, cmp.Diff(unmarked(call.Send.Message), unmarked(again.Send.Message)))
	})
}

// reset renders a configuration that was set, and sets the result.
func (s Suite) reset(t *testing.T, p *engine.PushRequest) {
	t.Helper()
	want := p.Set.PushConfig
	document, err := s.Codec.Pushes(engine.OpPushSet, &engine.Pushes{TaskID: p.TaskID, Configs: []task.PushConfig{want}})
	require.NoError(t, err)
	call, err := s.Codec.Decode(engine.OpPushSet, document)
	require.NoError(t, err, "%s", document)
	want.Token, want.Credentials = "", ""
	require.Equal(t, p.TaskID, call.TaskID())
	require.Empty(t, cmp.Diff(want, call.Push.Set.PushConfig))
}

// unmarked drops the one metadata member that belongs to the codecs: the mark of wrapped data. This
// also drops the difference between absent and empty metadata.
func unmarked(m *task.Message) *task.Message {
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Kind == task.PartData && p.Data[0] != '{' {
			p.Metadata = rawjson.Without(p.Metadata, v0.Compat)
		}
	}
	return m
}

// Benchmark measures what the server does most: reading a small send, writing a chunk.
func (s Suite) Benchmark(b *testing.B) {
	params := s.Send([]byte(`{"kind":"message","messageId":"9229e770-767c-417b-a0b0-f0741243c589","role":"user","parts":[{"kind":"text","type":"text","text":"tell me a joke"}]}`))
	identity := &task.Task{PublicID: "363422be-b0f9-4692-a24d-278670e7c7f1", ContextID: "c295ea44-7543-4f78-b524-7a38915ad6e4"}
	events := Events()
	events["artifact-last"].Artifact.Parts[0].Text = fmt.Sprintf("%0256d", 7)
	b.Run("decode a small send", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Codec.Decode(engine.OpSend, params); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(events)) {
		b.Run("encode event "+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Codec.Event(identity, events[name], false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
