package binary_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/binary"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// version is a codec, with the codec that makes its documents.
type version struct {
	binary   *binary.Codec
	json     dialect.Codec
	examples string
	// Constructors of the messages that documents become.
	task, sent, page, event func() proto.Message
}

var versions = map[string]*version{
	"0.3": {
		binary.New03(0),
		v03proto.Codec{Younger: true},
		"v0.3.0",
		func() proto.Message { return new(pb03.Task) }, func() proto.Message { return new(pb03.SendMessageResponse) },
		func() proto.Message { return new(pb03.ListTasksResponse) }, func() proto.Message { return new(pb03.StreamResponse) },
	},
	"1.0": {
		binary.New10(0),
		v10.Codec{},
		"v1.0",
		func() proto.Message { return new(pb10.Task) }, func() proto.Message { return new(pb10.SendMessageResponse) },
		func() proto.Message { return new(pb10.ListTasksResponse) }, func() proto.Message { return new(pb10.StreamResponse) },
	},
}

// same compares a message with the document that it was made from. Zero values may be missing in the message, and numbers are doubles.
func same(t *testing.T, document, message []byte, m proto.Message) {
	t.Helper()
	require.NoError(t, proto.Unmarshal(message, m))
	shown, err := protojson.Marshal(m)
	require.NoError(t, err)
	want, got := values(t, document), values(t, shown)
	require.Empty(t, cmp.Diff(got, prune(want, got)), "-message +document")
}

func values(t *testing.T, document []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v))
	return doubles(v)
}

func doubles(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = doubles(v[name])
		}
	case []any:
		for i := range v {
			v[i] = doubles(v[i])
		}
	case json.Number:
		if f, err := strconv.ParseFloat(string(v), 64); err == nil {
			return f
		}
		return string(v)
	}
	return v
}

// prune removes from a document the zero values that its message does not show.
func prune(document, message any) any {
	switch d := document.(type) {
	case map[string]any:
		m, _ := message.(map[string]any)
		for name, v := range d {
			switch _, shown := m[name]; {
			case shown:
				d[name] = prune(v, m[name])
			case v == false, v == "", v == 0.0, v == "ROLE_UNSPECIFIED", v == "TASK_STATE_UNSPECIFIED", reflect.DeepEqual(v, []any{}):
				delete(d, name)
			}
		}
	case []any:
		if m, ok := message.([]any); ok && len(m) == len(d) {
			for i := range d {
				d[i] = prune(d[i], m[i])
			}
		}
	}
	return document
}

// The binary format shows everything that the codec of a version shows.
func TestMessagesMatchDocuments(t *testing.T) {
	t.Parallel()
	for name, v := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := dialect.View{History: engine.AllHistory}
			for _, sample := range dialecttest.Tasks() {
				for op, message := range map[engine.Op]func() proto.Message{engine.OpGet: v.task, engine.OpCancel: v.task, engine.OpSend: v.sent} {
					document, err := v.json.Result(op, sample, all)
					require.NoError(t, err)
					encoded, err := v.binary.Result(op, sample, all)
					require.NoError(t, err)
					same(t, document, encoded, message())
				}
				for _, op := range []engine.Op{engine.OpStream, engine.OpSubscribe} {
					documents, err := v.json.Opening(op, sample)
					require.NoError(t, err)
					encoded, err := v.binary.Opening(op, sample)
					require.NoError(t, err)
					require.Len(t, encoded, len(documents))
					for i := range documents {
						same(t, documents[i], encoded[i], v.event())
					}
				}
			}
			identity := &task.Task{PublicID: "t-1", ContextID: "c-1"}
			for _, e := range dialecttest.Events() {
				for _, encode := range []func(dialect.Codec) ([]byte, error){
					func(c dialect.Codec) ([]byte, error) { return c.Event(identity, e, false) },
					func(c dialect.Codec) ([]byte, error) { return c.Event(identity, e, true) },
					func(c dialect.Codec) ([]byte, error) { return c.Direct(identity, e) },
				} {
					document, err := encode(v.json)
					require.NoError(t, err)
					encoded, err := encode(v.binary)
					require.NoError(t, err)
					same(t, document, encoded, v.event())
				}
			}
			page := &engine.Page{Tasks: []*task.Task{dialecttest.Tasks()["completed"]}, Size: 2, Total: 7, NextToken: "more"}
			document, err := v.json.Page(page, all)
			require.NoError(t, err)
			encoded, err := v.binary.Page(page, all)
			require.NoError(t, err)
			if name == "0.3" { // its page does not repeat the size
				document = bytes.Replace(document, []byte(`"pageSize":2,`), nil, 1)
			}
			same(t, document, encoded, v.page())

			// Libraries of protobuf read the deepest data that an agent may send, at the place with the most around it.
			deep := json.RawMessage(strings.Repeat(`{"a":`, task.MaxNesting) + "1" + strings.Repeat("}", task.MaxNesting))
			asks := &task.Task{Status: task.Status{State: task.StateInputRequired, Message: &task.Message{Parts: []task.Part{{Kind: task.PartData, Data: deep}}}}}
			encoded, err = v.binary.Page(&engine.Page{Tasks: []*task.Task{asks}}, all)
			require.NoError(t, err)
			require.NoError(t, proto.UnmarshalOptions{RecursionLimit: 100}.Unmarshal(encoded, v.page()))
			for _, kind := range []task.EventKind{task.EventMessage, task.EventRun} {
				none, err := v.binary.Event(identity, &task.Event{Kind: kind, Message: &task.Message{}, Run: &task.RunNote{}}, false)
				require.NoError(t, err)
				require.Nil(t, none, "%s events are not shown", kind)
			}
		})
	}
}

// request makes the message of an operation from a published example. ok is false for an example
// that is not ProtoJSON, which other bindings still read.
func (v *version) request(t testing.TB, op string, params []byte) (message []byte, ok bool) {
	t.Helper()
	file := pb10.File_a2av1_proto
	if v.binary.Traits().Version == "0.3" {
		file = pb03.File_a2a_proto
	}
	method := file.Services().Get(0).Methods().ByName(protoreflect.Name(op))
	require.NotNil(t, method, op)
	m := messageOf(t, method.Input())
	if len(params) == 0 {
		params = []byte("{}")
	}
	// Another edition's name of the same field.
	params = bytes.Replace(params, []byte(`"content":`), []byte(`"parts":`), 1)
	if protojson.Unmarshal(params, m) != nil {
		return nil, false
	}
	message, err := proto.Marshal(m)
	require.NoError(t, err)
	return message, true
}

// The binary form of a request says everything that the request says.
func TestDecodeRequests(t *testing.T) {
	t.Parallel()
	for name, v := range versions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := 0
			// Spaces and the order of members may change.
			opaque := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().Type() == reflect.TypeFor[json.RawMessage]() },
				cmp.Transformer("JSON", func(raw json.RawMessage) any {
					if len(raw) == 0 {
						return nil
					}
					return values(t, raw)
				}))
			for _, example := range dialecttest.Examples(t, v.examples) {
				op, known := v.binary.Traits().Operations[example.Method]
				if !known {
					continue
				}
				message, ok := v.request(t, example.Method, example.Params)
				if !ok {
					continue
				}
				want, wantErr := v.json.Decode(op, example.Params)
				got, err := v.binary.Decode(op, message)
				require.Equal(t, wantErr == nil, err == nil, "%s: %v, %v", example.Name, wantErr, err)
				if want != nil && name == "0.3" && want.View.History == 0 {
					want.View.History = engine.AllHistory // a length of 0 looks like a missing one
				}
				require.Empty(t, cmp.Diff(want, got, opaque), example.Name)
				read++
			}
			require.GreaterOrEqual(t, read, 5)
		})
	}
}

func TestFlagsWithoutPresence(t *testing.T) {
	t.Parallel()
	message := &pb03.Message{MessageId: "m", Role: pb03.Role_ROLE_USER, Parts: []*pb03.Part{{Part: &pb03.Part_Text{Text: "x"}}}}
	for _, tt := range []struct {
		configuration *pb03.SendMessageConfiguration
		waits         bool
		unsaid        bool
		history       int
	}{
		{nil, true, true, engine.AllHistory},
		{&pb03.SendMessageConfiguration{}, false, false, engine.AllHistory},
		{&pb03.SendMessageConfiguration{Blocking: true, HistoryLength: 3}, true, false, 3},
	} {
		b, err := proto.Marshal(&pb03.SendMessageRequest{Request: message, Configuration: tt.configuration})
		require.NoError(t, err)
		call, err := versions["0.3"].binary.Decode(engine.OpSend, b)
		require.NoError(t, err)
		require.Equal(t, tt.waits, call.Send.Wait)
		require.Equal(t, tt.unsaid, call.Send.WaitUnsaid)
		require.Equal(t, tt.history, call.View.History)
	}
	for _, length := range []*int32{nil, proto.Int32(0), proto.Int32(3)} {
		b, err := proto.Marshal(&pb10.GetTaskRequest{Id: "t", HistoryLength: length})
		require.NoError(t, err)
		call, err := versions["1.0"].binary.Decode(engine.OpGet, b)
		require.NoError(t, err)
		want := engine.AllHistory
		if length != nil {
			want = int(*length)
		}
		require.Equal(t, want, call.View.History)
	}
}

// A client that sets every field, whether its user chose a value or not, means the same as one that
// sets none. Only the length of a history has a meaning for 0.
func TestZeroValuesMeanUnset(t *testing.T) {
	t.Parallel()
	for name, v := range versions {
		for _, method := range v.binary.Methods() {
			m := v.message(t, method.Name)
			unset, err := proto.Marshal(m)
			require.NoError(t, err)
			setZeros(m.ProtoReflect())
			set, err := proto.Marshal(m)
			require.NoError(t, err)
			want, wantErr := v.binary.Decode(method.Op, unset)
			got, err := v.binary.Decode(method.Op, set)
			require.Equal(t, wantErr, err, "%s of %s", method.Name, name)
			require.Empty(t, cmp.Diff(want, got), "%s of %s", method.Name, name)
		}
	}
}

// message returns an empty request, apart from what a send requires.
func (v *version) message(t *testing.T, method string) proto.Message {
	t.Helper()
	params := `{}`
	if op := v.binary.Traits().Operations[method]; op == engine.OpSend || op == engine.OpStream {
		params = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`
	}
	b, ok := v.request(t, method, []byte(params))
	require.True(t, ok)
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(v.binary.Service() + "." + method))
	require.NoError(t, err)
	m := messageOf(t, d.(protoreflect.MethodDescriptor).Input())
	require.NoError(t, proto.Unmarshal(b, m))
	return m
}

// setZeros sets every unset scalar to its default.
func setZeros(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.IsList() || f.IsMap() || f.ContainingOneof() != nil && !f.ContainingOneof().IsSynthetic():
		case f.Message() != nil:
			if m.Has(f) && !f.IsMap() {
				setZeros(m.Mutable(f).Message())
			}
		case f.Name() != "history_length" && !m.Has(f):
			m.Set(f, f.Default())
		}
	}
}

func TestListsOf03(t *testing.T) {
	t.Parallel()
	message, ok := versions["0.3"].request(t, "ListTasks",
		[]byte(`{"contextId":"c","status":"TASK_STATE_WORKING","pageSize":7,"lastUpdatedTime":"2026-01-05T10:00:02Z","includeArtifacts":true}`))
	require.True(t, ok)
	call, err := versions["0.3"].binary.Decode(engine.OpList, message)
	require.NoError(t, err)
	require.Equal(t, &engine.ListRequest{
		ContextID: "c", State: task.StateWorking, PageSize: 7, Since: time.Date(2026, 1, 5, 10, 0, 2, 0, time.UTC),
		WithArtifacts: true, WithHistory: true,
	}, call.List)
}

func TestDecodeRefusals(t *testing.T) {
	t.Parallel()
	part := func(p *pb10.Part) proto.Message {
		return &pb10.SendMessageRequest{Message: &pb10.Message{MessageId: "m", Role: pb10.Role_ROLE_USER, Parts: []*pb10.Part{p}}}
	}
	data := func(v *structpb.Value) proto.Message { return part(&pb10.Part{Content: &pb10.Part_Data{Data: v}}) }
	deep := structpb.NewNullValue()
	for range 70 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for name, tt := range map[string]struct {
		message proto.Message
		want    string
	}{
		"nothing":                {&pb10.SendMessageRequest{}, "message: is required"},
		"NaN":                    {data(structpb.NewNumberValue(math.NaN())), "message.parts[0].data: is not finite"},
		"infinity":               {data(structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(math.Inf(-1))}})), "message.parts[0].data[0]: is not finite"},
		"a value without kind":   {data(&structpb.Value{}), "message.parts[0].data: is an empty Value"},
		"NUL":                    {part(&pb10.Part{Content: &pb10.Part_Text{Text: "a\x00b"}}), "message.parts[0].text: NUL"},
		"too deep":               {data(deep), "nested more than 32 deep"},
		"a negative history":     {&pb10.GetTaskRequest{Id: "t", HistoryLength: proto.Int32(-1)}, "historyLength: must be"},
		"a message as the agent": {&pb10.SendMessageRequest{Message: &pb10.Message{MessageId: "m", Role: pb10.Role_ROLE_AGENT}}, "message.role: must be ROLE_USER: only the agent speaks"},
		"a push configuration":   {&pb10.TaskPushNotificationConfig{TaskId: "t"}, "url: is required"},
		"an invalid time":        {&pb10.ListTasksRequest{StatusTimestampAfter: badTime()}, "statusTimestampAfter: is no time"},
		"an unknown state":       {&pb10.ListTasksRequest{Status: 99}, "status: must be a task state"},
		"a negative page":        {&pb10.ListTasksRequest{PageSize: proto.Int32(-1)}, "pageSize: must be an integer that is not negative"},
	} {
		op := map[string]engine.Op{
			"SendMessageRequest": engine.OpSend, "GetTaskRequest": engine.OpGet, "ListTasksRequest": engine.OpList,
			"CancelTaskRequest": engine.OpCancel, "SubscribeToTaskRequest": engine.OpSubscribe, "TaskPushNotificationConfig": engine.OpPushSet,
		}[string(tt.message.ProtoReflect().Descriptor().Name())]
		b, err := proto.Marshal(tt.message)
		require.NoError(t, err)
		_, err = versions["1.0"].binary.Decode(op, b)
		require.ErrorContains(t, err, tt.want, name)
	}
	for _, bytes := range []string{"\x0a\xff", "\x12\x04\x0a\x02\xff\xfe", strings.Repeat("\x0b", 20000)} { // truncated, not UTF-8, endless groups
		_, err := versions["1.0"].binary.Decode(engine.OpSend, []byte(bytes))
		require.ErrorIs(t, err, task.Invalid)
		require.ErrorContains(t, err, "cannot be parsed")
	}
	b, err := proto.Marshal(&pb03.GetTaskRequest{Name: "t-1"})
	require.NoError(t, err)
	_, err = versions["0.3"].binary.Decode(engine.OpGet, b)
	require.ErrorContains(t, err, "name: must have the form tasks/{id}")
}

// The document has a member without a field in its message, and a number that no double holds.
func TestMessageDropsUnknownMembers(t *testing.T) {
	t.Parallel()
	b, err := versions["1.0"].binary.Encode(engine.OpGet, []byte(`{"id":"t","unknown":{"a":1},"metadata":{"big":-1e400,"n":1e300,"s":"1e400"}}`))
	require.NoError(t, err)
	var got pb10.Task
	require.NoError(t, proto.Unmarshal(b, &got))
	require.Equal(t, map[string]any{"big": "-1e400", "n": 1e300, "s": "1e400"}, got.GetMetadata().AsMap())
	for _, broken := range []string{`{"id":1}`, `{"id":"t"`, `{"metadata":{"a":1e400},"id":1}`} {
		_, err = versions["1.0"].binary.Encode(engine.OpGet, []byte(broken))
		require.Error(t, err)
	}
}

// FuzzDecode decodes arbitrary bytes: each is refused with an error of the domain, or understood, and its re-encoding
// is understood in the same way.
func FuzzDecode(f *testing.F) {
	ops := []engine.Op{
		engine.OpSend, engine.OpStream, engine.OpGet, engine.OpList, engine.OpCancel, engine.OpSubscribe,
		engine.OpPushSet, engine.OpPushGet, engine.OpPushList, engine.OpPushDelete, engine.OpExtendedCard,
	}
	for name, v := range versions {
		for _, example := range dialecttest.Examples(f, v.examples) {
			op, known := v.binary.Traits().Operations[example.Method]
			if !known {
				continue
			}
			if message, ok := v.request(f, example.Method, example.Params); ok {
				for i := range ops {
					if ops[i] == op {
						f.Add(name == "1.0", uint8(i), message)
					}
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, current bool, op uint8, message []byte) {
		v := versions["0.3"]
		if current {
			v = versions["1.0"]
		}
		call, err := v.binary.Decode(ops[int(op)%len(ops)], message)
		if err != nil {
			var fault *task.Error
			require.ErrorAs(t, err, &fault)
			require.NotEqual(t, task.Internal, fault.Kind)
			return
		}
		if call.Send == nil {
			return
		}
		m := call.Send.Message
		_, err = v.binary.Result(engine.OpGet, &task.Task{PublicID: "t", ContextID: "c", History: []task.Message{*m}, Metadata: call.Send.Metadata},
			dialect.View{History: engine.AllHistory})
		require.NoError(t, err)
	})
}

func messageOf(t testing.TB, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	require.NoError(t, err)
	return m.New().Interface()
}

func badTime() *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: math.MaxInt64} }

// TestDecodeCountsBeforeItBuilds sends millions of empty parts and values, which have two bytes each.
func TestDecodeCountsBeforeItBuilds(t *testing.T) {
	t.Parallel()
	many := func(number protowire.Number, item []byte) []byte {
		return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), item), 1_000_000)
	}
	in := func(number protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), b)
	}
	parts := pb10.File_a2av1_proto.Messages().ByName("Message").Fields().ByName("parts").Number()
	extensions := pb10.File_a2av1_proto.Messages().ByName("Message").Fields().ByName("extensions").Number()
	message := pb10.File_a2av1_proto.Messages().ByName("SendMessageRequest").Fields().ByName("message").Number()
	for name, request := range map[string][]byte{
		"parts":      in(message, many(parts, nil)),
		"extensions": in(message, many(extensions, nil)),
		"messages":   many(message, nil),
	} {
		_, err := binary.New10(0).Decode(engine.OpSend, request)
		require.ErrorIs(t, err, task.TooLarge, name)
	}
}
