package v03_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const textMessage = `{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}`

func TestDecodeRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		op     engine.Op
		params string
		want   string
	}{
		{"no params", engine.OpSend, ``, "message: is required"},
		{"params that are a string", engine.OpSend, `"x"`, "params: must be an object"},
		{"no message", engine.OpStream, `{"configuration":{}}`, "message: is required"},
		{"no messageId", engine.OpSend, `{"message":{"role":"user","parts":[{"kind":"text","text":"x"}]}}`, "message.messageId: is required"},
		{"no role", engine.OpSend, `{"message":{"messageId":"m","parts":[{"kind":"text","text":"x"}]}}`, "message.role: is required"},
		{"no parts", engine.OpSend, `{"message":{"messageId":"m","role":"user"}}`, "message.parts: is required"},
		{"empty parts", engine.OpSend, `{"message":{"messageId":"m","role":"user","parts":[]}}`, "message.parts: must hold at least one part"},
		{"a message as the agent", engine.OpSend, `{"message":{"messageId":"m","role":"agent","parts":[{"kind":"text","text":"x"}]}}`, `message.role: must be "user": only the agent speaks as the agent`},
		{"a role of 1.0", engine.OpSend, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}`, `message.role: must be "user"`},
		{"a message of another kind", engine.OpSend, `{"message":{"kind":"task","messageId":"m"}}`, `message.kind: must be "message"`},
		{"a part of unknown kind", engine.OpSend, `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"},{"kind":"video"}]}}`, "message.parts[1]: is of an unknown kind; use text, file or data"},
		{"both bytes and uri", engine.OpSend, `{"message":{"parts":[{"kind":"file","file":{"uri":"http://x","bytes":"aGk="}}]}}`, "message.parts[0].file: must have only one of bytes and uri"},
		{"a task id that is a number", engine.OpSend, `{"message":{"taskId":1}}`, "message.taskId: must be a string"},
		{"a context id that is too long", engine.OpSend, `{"message":{"contextId":"` + strings.Repeat("c", 257) + `"}}`, "message.contextId: must not be longer than 256 characters"},
		{"references that are a string", engine.OpSend, `{"message":{"referenceTaskIds":"t"}}`, "message.referenceTaskIds: must be an array"},
		{"an extension that is a number", engine.OpSend, `{"message":{"extensions":["a",1]}}`, "message.extensions[1]: must be a string"},
		{"blocking that is a string", engine.OpSend, `{"message":` + textMessage + `,"configuration":{"blocking":"yes"}}`, "configuration.blocking: must be true or false"},
		{"a negative history", engine.OpSend, `{"message":` + textMessage + `,"configuration":{"historyLength":-3}}`, "configuration.historyLength: must be an integer that is not negative"},
		{"modes that are no array", engine.OpSend, `{"configuration":{"acceptedOutputModes":"text/plain"}}`, "configuration.acceptedOutputModes: must be an array"},
		{"a push configuration", engine.OpSend, `{"message":` + textMessage + `,"configuration":{"pushNotificationConfig":{"url":""}}}`, "configuration.pushNotificationConfig.url: is required"},
		{"a bad message beside a push configuration", engine.OpSend, `{"configuration":{"pushNotificationConfig":{"url":"http://x"}}}`, "message: is required"},
		{"no id", engine.OpGet, `{}`, "id: is required"},
		{"an id that is a number", engine.OpCancel, `{"id":7}`, "id: must be a string"},
		{"an empty id", engine.OpSubscribe, `{"id":""}`, "id: is required"},
		{"setting a push configuration", engine.OpPushSet, `{"taskId":"t","pushNotificationConfig":{"url":"http://x","authentication":{"schemes":"Bearer"}}}`, "pushNotificationConfig.authentication.schemes: must be an array"},
		{"getting one", engine.OpPushGet, `{}`, "id: is required"},
		{"listing them", engine.OpPushList, `{}`, "id: is required"},
		{"deleting one", engine.OpPushDelete, `{"id":"t"}`, "pushNotificationConfigId: is required"},
		{"an operation of later versions", engine.OpList, `{}`, "this operation is not supported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			call, err := v03.Codec{}.Decode(tt.op, []byte(tt.params))
			require.EqualError(t, err, tt.want)
			require.Nil(t, call)
		})
	}
}

func TestDecodeEveryMember(t *testing.T) {
	t.Parallel()
	call, err := v03.Codec{}.Decode(engine.OpStream, []byte(`{"metadata":{ "a": 1.0 },"unknown":[1],
		"configuration":{"blocking":false,"historyLength":2,"acceptedOutputModes":["text/plain"],"pushNotificationConfig":null,"x":1},
		"message":{"kind":"message","messageId":"m","role":"user","taskId":"t","contextId":"c","metadata":{"b":1e400},
		"extensions":["https://e"],"referenceTaskIds":["t-0"],"x":null,"parts":[{"type":"data","data":[1]}]}}`))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(&dialect.Call{
		Op: engine.OpStream,
		Send: &engine.SendRequest{
			Dialect: "0.3", TaskID: "t", ContextID: "c", Metadata: []byte(`{"a":1.0}`), OutputModes: []string{"text/plain"},
			Message: &task.Message{
				ID: "m", Role: task.RoleUser, Metadata: []byte(`{"b":1e400}`),
				Extensions: []string{"https://e"}, References: []string{"t-0"},
				Parts: []task.Part{{Kind: task.PartData, Data: []byte(`[1]`)}},
			},
		},
		View: dialect.View{History: 2, ShowEmpty: true},
	}, call))
}

func TestDecodeWaitsUnlessTold(t *testing.T) {
	t.Parallel()
	for configuration, want := range map[string]bool{`null`: true, `{}`: true, `{"blocking":null}`: true, `{"blocking":true}`: true, `{"blocking":false}`: false} {
		call, err := v03.Codec{}.Decode(engine.OpSend, []byte(`{"message":`+textMessage+`,"configuration":`+configuration+`}`))
		require.NoError(t, err)
		require.Equal(t, want, call.Send.Wait, configuration)
		require.False(t, call.Send.MayCreate)
	}
}

func TestHistoryIsShownByDefault(t *testing.T) {
	t.Parallel()
	sample := &task.Task{PublicID: "t", Status: task.Status{State: task.StateWorking}}
	for range 3 {
		sample.History = append(sample.History, task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text("x")}})
	}
	for length, want := range map[string]int{`null`: 3, `0`: 0, `2`: 2, `10`: 3} {
		call, err := v03.Codec{}.Decode(engine.OpGet, []byte(`{"id":"t","historyLength":`+length+`}`))
		require.NoError(t, err)
		result, err := v03.Codec{}.Result(call.Op, sample, call.View)
		require.NoError(t, err)
		require.Equal(t, want, strings.Count(string(result), `"role"`), "historyLength %s", length)
		require.Contains(t, string(result), `"history":[`)
	}
	empty, err := v03.Codec{}.Result(engine.OpGet, &task.Task{}, dialect.View{History: engine.AllHistory})
	require.NoError(t, err)
	require.NotContains(t, string(empty), "history", "no history and no length")
}

func TestStreamsCloseWhenTaskSettles(t *testing.T) {
	t.Parallel()
	for _, s := range task.States {
		require.Equal(t, s.Settled(), v03.Codec{}.Closes(engine.OpSubscribe, s))
	}
}
