package v03proto_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestDecodeRefusals(t *testing.T) {
	t.Parallel()
	content := func(parts string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","content":` + parts + `}}`
	}
	tests := []struct {
		name   string
		op     engine.Op
		params string
		want   string
	}{
		{"no body", engine.OpSend, ``, "message: is required"},
		{"no messageId", engine.OpStream, `{"message":{"role":"ROLE_USER","content":[{"text":"x"}]}}`, "message.messageId: is required"},
		{"no role", engine.OpSend, `{"message":{"messageId":"m","content":[{"text":"x"}]}}`, "message.role: is required"},
		{"an unknown role", engine.OpSend, `{"message":{"role":"USER"}}`, "message.role: must be ROLE_USER"},
		{"a message as the agent", engine.OpSend, `{"message":{"role":"ROLE_AGENT"}}`, "message.role: must be ROLE_USER: only the agent speaks as the agent"},
		{"the same as in JSON-RPC", engine.OpSend, `{"message":{"role":"agent"}}`, "message.role: must be ROLE_USER: only the agent speaks as the agent"},
		{"a member in two spellings", engine.OpSend, `{"message":{"message_id":"m","taskId":"a","task_id":"b"}}`, "message.taskId: is given in two spellings"},
		{"in a webhook", engine.OpPushSet, `{"task_id":"t","config":{"pushNotificationConfig":{"url":"http://x"},"push_notification_config":{"url":"http://y"}}}`, "config.pushNotificationConfig: is given in two spellings"},
		{"in its name", engine.OpPushGet, `{"taskId":"t","task_Id":"u"}`, "taskId: is given in two spellings"},
		{"no content", engine.OpSend, `{"message":{"messageId":"m","role":"ROLE_USER"}}`, "message.content: is required"},
		{"empty content", engine.OpSend, content(`[]`), "message.content: must hold at least one part"},
		{"a part without content", engine.OpSend, content(`[{"text":"x"},{"kind":"text"}]`), "message.content[1]: must have one of text, file and data"},
		{"a part with two contents", engine.OpSend, content(`[{"text":"x","data":{}}]`), "message.content[0]: must have only one of text, file and data"},
		{"both bytes and uri", engine.OpSend, content(`[{"file":{"fileWithBytes":"aGk=","fileWithUri":"u"}}]`), "message.content[0].file: must have only one of fileWithBytes and fileWithUri"},
		{"invalid bytes", engine.OpSend, content(`[{"file":{"fileWithBytes":"!"}}]`), "message.content[0].file.fileWithBytes: is not base64"},
		{"a context id that is too long", engine.OpSend, `{"message":{"contextId":"` + strings.Repeat("c", 257) + `"}}`, "message.contextId: must not be longer than 256 characters"},
		{"a push configuration", engine.OpSend, `{"message":{"messageId":"m","role":1,"content":[{"text":"x"}]},"configuration":{"push_notification":{"token":"u"}}}`, "configuration.push_notification.url: is required"},
		{"a negative history", engine.OpGet, `{"id":"t","historyLength":"-3"}`, "historyLength: must be an integer that is not negative"},
		{"no name", engine.OpGet, `{}`, "name: is required"},
		{"a name of something else", engine.OpCancel, `{"name":"contexts/c-1"}`, "name: must have the form tasks/{id}"},
		{"a name without an id", engine.OpSubscribe, `{"name":"tasks/"}`, "name: is required"},
		{"an invalid page", engine.OpList, `{"pageSize":0}`, "pageSize: must be a number from 1 to 100"},
		{"setting a push configuration", engine.OpPushSet, `{}`, "config: is required"},
		{"setting one of no task", engine.OpPushSet, `{"config":{"pushNotificationConfig":{"url":"http://x"}}}`, "parent: is required"},
		{"deleting one without its name", engine.OpPushDelete, `{"name":"tasks/x"}`, "name: must have the form tasks/{id}/pushNotificationConfigs/{id}"},
		{"listing those of no task", engine.OpPushList, `{}`, "parent: is required"},
		{"no operation", engine.OpNone, `{}`, "this operation is not supported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			call, err := v03proto.Codec{}.Decode(tt.op, []byte(tt.params))
			require.EqualError(t, err, tt.want)
			require.Nil(t, call)
		})
	}
}

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
