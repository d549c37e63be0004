package integration

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// gRPC in the matrix: messages are made of and shown as the ProtoJSON of the versions, whose numbers are doubles.

var overGRPC = &carrier{
	name:   "gRPC",
	speaks: func(v *version, op string) bool { return v.service != nil && op != "list" },
	call:   callGRPC, follow: followGRPC,
}

// resumeURI is the extension by which messages have their ids in them.
const resumeURI = "https://github.com/holdfast-a2a/holdfast/blob/main/docs/extensions/resume.md"

// service is how the operations of the matrix are called.
type service struct {
	name    string
	methods map[string]method
}

// method makes the messages of a method: what is sent, and what comes back.
type method struct {
	name    string
	in, out func() proto.Message
}

func exchanged[In, Out any, PI interface {
	*In
	proto.Message
}, PO interface {
	*Out
	proto.Message
}](name string) method {
	return method{name, func() proto.Message { return PI(new(In)) }, func() proto.Message { return PO(new(Out)) }}
}

var (
	grpcV03 = doubled(wordsP03{parts: "parts", references: true}.version(), &service{"a2a.v1.A2AService", map[string]method{
		"send":      exchanged[pb03.SendMessageRequest, pb03.SendMessageResponse]("SendMessage"),
		"get":       exchanged[pb03.GetTaskRequest, pb03.Task]("GetTask"),
		"subscribe": exchanged[pb03.TaskSubscriptionRequest, pb03.StreamResponse]("TaskSubscription"),
	}})
	grpcV10 = doubled(versionV10(), &service{"lf.a2a.v1.A2AService", map[string]method{
		"send":      exchanged[pb10.SendMessageRequest, pb10.SendMessageResponse]("SendMessage"),
		"get":       exchanged[pb10.GetTaskRequest, pb10.Task]("GetTask"),
		"subscribe": exchanged[pb10.SubscribeToTaskRequest, pb10.StreamResponse]("SubscribeToTask"),
	}})
)

// doubled is a version where it is carried by gRPC alone.
func doubled(v *version, s *service) *version {
	task, event, unsaid, get := v.task, v.event, v.unsaid, v.get
	v.methods, v.paths, v.service = nil, "", s
	v.task = func(k *told, sent bool) object { return asMessage(task(k, sent)) }
	v.event = func(k *told, e *happened) object { return asMessage(event(k, e)) }
	v.unsaid = func(m *said) {
		unsaid(m)
		m.metadata = doubles(m.metadata)
		for i := range m.parts {
			p := &m.parts[i]
			p.data, p.meta = doubles(p.data), doubles(p.meta)
		}
	}
	v.get = func(taskID string) object {
		if v.name == "0.3" {
			return object{"name": "tasks/" + taskID}
		}
		return get(taskID)
	}
	return v
}

// doubles is JSON whose numbers went through a double, or were too large for one.
func doubles(raw string) string {
	if raw == "" {
		return ""
	}
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return string(mustMarshal(throughDoubles(v)))
}

func throughDoubles(v any) any {
	switch v := v.(type) {
	case object:
		for name := range v {
			v[name] = throughDoubles(v[name])
		}
	case []any:
		for i := range v {
			v[i] = throughDoubles(v[i])
		}
	case json.Number:
		if f, err := v.Float64(); err == nil {
			return f
		}
		return string(v)
	}
	return v
}

// asMessage is what is left of a document: false is not shown.
func asMessage(o object) object {
	var out object
	if err := json.Unmarshal([]byte(doubles(string(mustMarshal(o)))), &out); err != nil {
		panic(err)
	}
	if update, is := out["statusUpdate"].(object); is && update["final"] == false {
		delete(update, "final")
	}
	return out
}

func callGRPC(t *testing.T, at place, v *version, op string, params object) any {
	t.Helper()
	m := v.service.methods[op]
	in, out := m.in(), m.out()
	require.NoError(t, protojson.Unmarshal(mustMarshal(ofAgent(at, v, params)), in))
	ctx := metadata.AppendToOutgoingContext(short(t, patience), "a2a-version", v.name)
	require.NoError(t, at.grpc.Invoke(ctx, "/"+v.service.name+"/"+m.name, in, out))
	return document(t, out)
}

func followGRPC(t *testing.T, at place, v *version, op string, params object, after string) (ids []int64, results []any) {
	t.Helper()
	m := v.service.methods[op]
	in := m.in()
	require.NoError(t, protojson.Unmarshal(mustMarshal(ofAgent(at, v, params)), in))
	ctx := metadata.AppendToOutgoingContext(short(t, patience), "a2a-version", v.name, "a2a-extensions", resumeURI, "a2a-last-event-id", after)
	s, err := at.grpc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+v.service.name+"/"+m.name)
	require.NoError(t, err)
	require.NoError(t, s.SendMsg(in))
	require.NoError(t, s.CloseSend())
	for {
		out := m.out()
		err := s.RecvMsg(out)
		if errors.Is(err, io.EOF) {
			return ids, results
		}
		require.NoError(t, err)
		shown, _ := document(t, out).(object)
		for _, payload := range shown {
			o, _ := payload.(object)
			ids = append(ids, unmark(t, o))
		}
		results = append(results, shown)
	}
}

// ofAgent names the agent, where the version has a place for it.
func ofAgent(at place, v *version, params object) object {
	if v.name != "0.3" {
		params["tenant"] = at.url[strings.LastIndexByte(at.url, '/')+1:]
	}
	return params
}

// unmark takes the id out of what a stream shows.
func unmark(t *testing.T, o object) int64 {
	t.Helper()
	all, _ := o["metadata"].(object)
	mark, _ := all[resumeURI].(object)
	id, _ := mark["eventId"].(string)
	n, err := strconv.ParseInt(id, 10, 64)
	require.NoError(t, err, "%v", o)
	if delete(all, resumeURI); len(all) == 0 {
		delete(o, "metadata")
	}
	return n
}

// document shows a message. Its times have no fraction that is zero.
func document(t *testing.T, m proto.Message) any {
	t.Helper()
	b, err := protojson.Marshal(m)
	require.NoError(t, err)
	return withMillis(exactly(t, b))
}

func withMillis(v any) any {
	switch v := v.(type) {
	case object:
		for name := range v {
			if at, is := v[name].(string); is && name == "timestamp" && !strings.Contains(at, ".") {
				v[name] = strings.Replace(at, "Z", ".000Z", 1)
			}
			v[name] = withMillis(v[name])
		}
	case []any:
		for i := range v {
			v[i] = withMillis(v[i])
		}
	}
	return v
}
