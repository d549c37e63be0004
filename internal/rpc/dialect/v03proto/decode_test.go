package v03proto_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// With the names of the proto file, with those of JSON, and in the format of JSON-RPC.
func TestDecodeEveryMember(t *testing.T) {
	t.Parallel()
	for _, params := range []string{
		`{"metadata":{ "a": 1.0 },"unknown":[1],"configuration":{"blocking":false,"historyLength":2,"acceptedOutputModes":["text/plain"]},
		"message":{"messageId":"m","role":"ROLE_USER","taskId":"t","contextId":"c","metadata":{"b":1e400},"extensions":["https://e"],
		"content":[{"text":"x"},{"file":{"fileWithBytes":"_-8","mimeType":"a/b","name":"f"}},{"file":{"fileWithUri":"u"}},
		{"data":{"data":{"rows":2}},"metadata":{"c":null}},{"data":{"data":{"value":[1]}},"metadata":{"data_part_compat":true}}]}}`,
		`{"metadata":{"a":1.0},"configuration":{"blocking":false,"history_length":"2","accepted_output_modes":["text/plain"]},
		"request":{"message_id":"m","role":1,"task_id":"t","context_id":"c","metadata":{"b":1e400},"extensions":["https://e"],
		"content":[{"text":"x"},{"file":{"file_with_bytes":"/+8=","mime_type":"a/b","name":"f"}},{"file":{"file_with_uri":"u"}},
		{"data":{"rows":2},"metadata":{"c":null}},{"data":{"data":[1]}}]}}`,
		`{"metadata":{"a":1.0},"configuration":{"blocking":false,"historyLength":2.0,"acceptedOutputModes":["text/plain"]},
		"message":{"kind":"message","messageId":"m","role":"user","taskId":"t","contextId":"c","metadata":{"b":1e400},"extensions":["https://e"],
		"parts":[{"kind":"text","text":"x"},{"kind":"file","file":{"bytes":"/+8=","mimeType":"a/b","name":"f"}},{"kind":"file","file":{"uri":"u"}},
		{"kind":"data","data":{"rows":2},"metadata":{"c":null}},{"kind":"data","data":[1]}]}}`,
	} {
		call, err := v03proto.Codec{}.Decode(engine.OpStream, []byte(params))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(&dialect.Call{
			Op: engine.OpStream,
			Send: &engine.SendRequest{
				Dialect: "0.3", TaskID: "t", ContextID: "c", Metadata: []byte(`{"a":1.0}`), OutputModes: []string{"text/plain"},
				Message: &task.Message{
					ID: "m", Role: task.RoleUser, Metadata: []byte(`{"b":1e400}`), Extensions: []string{"https://e"},
					Parts: []task.Part{
						task.Text("x"),
						{Kind: task.PartRaw, Raw: []byte{0xff, 0xef}, MediaType: "a/b", Filename: "f"},
						{Kind: task.PartURL, URL: "u"},
						{Kind: task.PartData, Data: []byte(`{"rows":2}`), Metadata: []byte(`{"c":null}`)},
						{Kind: task.PartData, Data: []byte(`[1]`)},
					},
				},
			},
			View: dialect.View{History: 2},
		}, call))
	}
}

func TestDecodeWait(t *testing.T) {
	t.Parallel()
	for configuration, want := range map[string]struct{ wait, unsaid bool }{
		`null`: {true, true}, `{}`: {}, `{"historyLength":1}`: {}, `{"blocking":null}`: {}, `{"blocking":false}`: {},
		`{"blocking":true}`: {wait: true},
	} {
		call, err := v03proto.Codec{}.Decode(engine.OpSend,
			[]byte(`{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"x"}]},"configuration":`+configuration+`}`))
		require.NoError(t, err)
		require.Equal(t, want.wait, call.Send.Wait, configuration)
		require.Equal(t, want.unsaid, call.Send.WaitUnsaid, configuration)
	}
}

func TestIDOverridesName(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		`{"name":"tasks/a"}`: "a", `{"id":"b","name":"tasks/a"}`: "b", `{"name":"else","id":"b"}`: "b", `{"name":"tasks/a/b"}`: "a/b",
	} {
		call, err := v03proto.Codec{}.Decode(engine.OpGet, []byte(params))
		require.NoError(t, err)
		require.Equal(t, want, call.TaskID())
	}
}
