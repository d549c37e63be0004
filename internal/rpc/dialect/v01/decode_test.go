package v01_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestDecodeRefusals(t *testing.T) {
	t.Parallel()
	send := func(message string) string { return `{"id":"t","message":` + message + `}` }
	tests := []struct {
		name   string
		op     engine.Op
		params string
		want   string
	}{
		{"no params", engine.OpSend, ``, "id: is required"},
		{"params that are null", engine.OpSend, `null`, "params: must be an object"},
		{"params that are an array", engine.OpGet, `["t"]`, "params: must be an object"},
		{"no id", engine.OpSend, `{"message":{"role":"user","parts":[{"type":"text","text":"x"}]}}`, "id: is required"},
		{"an empty id", engine.OpGet, `{"id":""}`, "id: is required"},
		{"an id that is null", engine.OpCancel, `{"id":null}`, "id: is required"},
		{"an id that is a number", engine.OpSubscribe, `{"id":1}`, "id: must be a string"},
		{"an id with a line break", engine.OpSend, `{"id":"a\nb"}`, "id: must not contain control characters"},
		{"an id that is too long", engine.OpSend, `{"id":"` + strings.Repeat("é", 257) + `"}`, "id: must not be longer than 256 characters"},
		{"a session that is too long", engine.OpSend, `{"sessionId":"` + strings.Repeat("s", 257) + `"}`, "sessionId: must not be longer than 256 characters"},
		{"no message", engine.OpSend, `{"id":"t"}`, "message: is required"},
		{"a message that is null", engine.OpStream, `{"id":"t","message":null}`, "message: is required"},
		{"a message that is a string", engine.OpStream, send(`"hello"`), "message: must be an object"},
		{"no role", engine.OpSend, send(`{"parts":[{"type":"text","text":"x"}]}`), "message.role: is required"},
		{"an unknown role", engine.OpSend, send(`{"role":"system","parts":[]}`), `message.role: must be "user"`},
		{"a message as the agent", engine.OpSend, send(`{"role":"agent","parts":[{"text":"x"}]}`), `message.role: must be "user": only the agent speaks as the agent`},
		{"no parts", engine.OpSend, send(`{"role":"user"}`), "message.parts: is required"},
		{"empty parts", engine.OpSend, send(`{"role":"user","parts":[]}`), "message.parts: must hold at least one part"},
		{"parts that are an object", engine.OpSend, send(`{"role":"user","parts":{}}`), "message.parts: must be an array"},
		{"a part that is null", engine.OpSend, send(`{"role":"user","parts":[{"text":"x"},null]}`), "message.parts[1]: must be an object"},
		{"a part of unknown type", engine.OpSend, send(`{"role":"user","parts":[{"type":"form"}]}`), "message.parts[0]: is of an unknown kind; use text, file or data"},
		{"a part of no type", engine.OpSend, send(`{"role":"user","parts":[{"text":"x","data":{}}]}`), "message.parts[0]: must be a text, file or data part"},
		{"text that is a number", engine.OpSend, send(`{"role":"user","parts":[{"type":"text","text":7}]}`), "message.parts[0].text: must be a string"},
		{"text without text", engine.OpSend, send(`{"role":"user","parts":[{"type":"text"}]}`), "message.parts[0].text: is required"},
		{"a file without file", engine.OpSend, send(`{"role":"user","parts":[{"type":"file"}]}`), "message.parts[0].file: is required"},
		{"data that is null", engine.OpSend, send(`{"role":"user","parts":[{"type":"data","data":null}]}`), "message.parts[0].data: is required"},
		{"both bytes and uri", engine.OpSend, send(`{"role":"user","parts":[{"type":"file","file":{"bytes":"aGk=","uri":"http://x"}}]}`), "message.parts[0].file: must have only one of bytes and uri"},
		{"bytes that are not base64", engine.OpSend, send(`{"role":"user","parts":[{"type":"file","file":{"bytes":"<content>"}}]}`), "message.parts[0].file.bytes: is not base64"},
		{"bytes of both alphabets", engine.OpSend, send(`{"role":"user","parts":[{"type":"file","file":{"bytes":"_/8="}}]}`), "message.parts[0].file.bytes: is not base64"},
		{"metadata that is a string", engine.OpSend, send(`{"role":"user","metadata":"x","parts":[{"text":"x"}]}`), "message.metadata: must be an object"},
		{"a negative history", engine.OpGet, `{"id":"t","historyLength":-1}`, "historyLength: must be an integer that is not negative"},
		{"a history of one and a half", engine.OpGet, `{"id":"t","historyLength":1.5}`, "historyLength: must be an integer that is not negative"},
		{"a history in words", engine.OpSend, `{"id":"t","historyLength":"ten"}`, "historyLength: must be an integer that is not negative"},
		{"a push configuration", engine.OpSend, `{"id":"t","pushNotification":{"id":"x"},"message":{"role":"user","parts":[{"text":"x"}]}}`, "pushNotification.url: is required"},
		{"a bad member before a push configuration", engine.OpSend, `{"id":"t","pushNotification":{"url":"http://x"}}`, "message: is required"},
		{"setting a push configuration", engine.OpPushSet, `{}`, "id: is required"},
		{"setting none", engine.OpPushSet, `{"id":"t"}`, "pushNotificationConfig: is required; null clears the configuration"},
		{"setting a misspelt one", engine.OpPushSet, `{"id":"t","config":{"url":"http://x"}}`, "pushNotificationConfig: is required; null clears the configuration"},
		{"getting a push configuration", engine.OpPushGet, ``, "id: is required"},
		{"an operation of later versions", engine.OpList, `{}`, "this operation is not supported"},
		{"broken JSON", engine.OpGet, `{"id":`, "id: is not valid JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			call, err := v01.Codec{}.Decode(tt.op, []byte(tt.params))
			require.EqualError(t, err, tt.want)
			require.Nil(t, call)
		})
	}
}

// The documents ask only that an id is unique.
func TestDecodeTaskIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"urn:uuid:0af1c3e2-5d4b-4c1e-8f2a-1b2c3d4e5f60", "a/b", "a:cancel", "tasks/a/pushNotificationConfigs/b", "../x?y#z"} {
		call, err := v01.Codec{}.Decode(engine.OpSend, []byte(`{"id":"`+id+`","message":{"role":"user","parts":[{"text":"x"}]}}`))
		require.NoError(t, err)
		require.Equal(t, id, call.Send.TaskID)
	}
}

func TestDecodeClearedWebhook(t *testing.T) {
	t.Parallel()
	call, err := v01.Codec{}.Decode(engine.OpPushSet, []byte(`{"pushNotificationConfig":null,"id":"t"}`))
	require.NoError(t, err)
	require.Equal(t, &engine.PushRequest{TaskID: "t"}, call.Push)
}

func TestDecodeNullsAsAbsent(t *testing.T) {
	t.Parallel()
	call, err := v01.Codec{}.Decode(engine.OpSend, []byte(`{"id":"t","sessionId":null,"historyLength":null,
		"pushNotification":null,"metadata":null,"message":{"role":"user","metadata":null,"parts":[
		{"type":"text","text":"x","file":null,"data":null,"metadata":null},
		{"type":"file","text":null,"file":{"name":null,"mimeType":null,"bytes":"aGk","uri":null}}]}}`))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(&dialect.Call{
		Op: engine.OpSend,
		Send: &engine.SendRequest{
			Dialect: "0.1", TaskID: "t", MayCreate: true, Wait: true, WaitUnsaid: true,
			Message: &task.Message{Role: task.RoleUser, Parts: []task.Part{
				{Kind: task.PartText, Text: "x"},
				{Kind: task.PartRaw, Raw: []byte("hi")},
			}},
		},
	}, call))
}

func TestDecodeParts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, part string
		want       task.Part
	}{
		{"kind for type", `{"kind":"text","text":""}`, task.Part{Kind: task.PartText}},
		{"text of no type", `{"text":"x"}`, task.Part{Kind: task.PartText, Text: "x"}},
		{"data of no type", `{"data":[]}`, task.Part{Kind: task.PartData, Data: []byte(`[]`)}},
		{"members of other types are passed over", `{"text":"x","type":"data","data":{}}`, task.Part{Kind: task.PartData, Data: []byte(`{}`)}},
		{"unknown members are passed over", `{"type":"text","text":"x","lang":{"a":[1]}}`, task.Part{Kind: task.PartText, Text: "x"}},
		{"bytes under data", `{"type":"file","file":{"data":"aGk="}}`, task.Part{Kind: task.PartRaw, Raw: []byte("hi")}},
		{"the URL alphabet unpadded", `{"type":"file","file":{"bytes":"_-8"}}`, task.Part{Kind: task.PartRaw, Raw: []byte{0xff, 0xef}}},
		{"base64 with escaped slashes", `{"type":"file","file":{"bytes":"\/+8="}}`, task.Part{Kind: task.PartRaw, Raw: []byte{0xff, 0xef}}},
		{"empty bytes", `{"type":"file","file":{"bytes":""}}`, task.Part{Kind: task.PartRaw, Raw: []byte{}}},
		{"a uri beside empty bytes", `{"type":"file","file":{"bytes":"","uri":"http://x"}}`, task.Part{Kind: task.PartURL, URL: "http://x"}},
		{"a file that is only named", `{"type":"file","file":{"name":"a","mimeType":"b/c"}}`, task.Part{Kind: task.PartURL, Filename: "a", MediaType: "b/c"}},
		{"an array of data", `{"type":"data","data":[ 1.0 ]}`, task.Part{Kind: task.PartData, Data: []byte(`[1.0]`)}},
		{"a scalar", `{"type":"data","data":false}`, task.Part{Kind: task.PartData, Data: []byte(`false`)}},
		{"wrapped data", `{"type":"data","data":{"value":"x"},"metadata":{"data_part_compat":true}}`, task.Part{Kind: task.PartData, Data: []byte(`"x"`)}},
		{"wrapped null", `{"type":"data","data":{"value":null},"metadata":{"a":1,"data_part_compat":true,"b":null}}`, task.Part{Kind: task.PartData, Data: []byte(`null`), Metadata: []byte(`{"a":1,"b":null}`)}},
		{"an object that only looks wrapped", `{"type":"data","data":{"value":1}}`, task.Part{Kind: task.PartData, Data: []byte(`{"value":1}`)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			call, err := v01.Codec{}.Decode(engine.OpSend, []byte(`{"id":"t","message":{"role":"user","parts":[`+tt.part+`]}}`))
			require.NoError(t, err)
			require.Empty(t, cmp.Diff([]task.Part{tt.want}, call.Send.Message.Parts))
		})
	}
}

func TestDecodeCopiesRequest(t *testing.T) {
	t.Parallel()
	params := []byte(`{"id":"t","metadata":{"a":1},"message":{"role":"user","parts":[{"type":"text","text":"x"}]}}`)
	call, err := v01.Codec{}.Decode(engine.OpSend, params)
	require.NoError(t, err)
	clear(params)
	require.Equal(t, "t", call.Send.TaskID)
	require.JSONEq(t, `{"a":1}`, string(call.Send.Metadata))
	require.Equal(t, "x", call.Send.Message.FirstText())
}

func TestHistoryIsShownOnRequest(t *testing.T) {
	t.Parallel()
	sample := &task.Task{PublicID: "t", Status: task.Status{State: task.StateWorking}}
	for range 3 {
		sample.History = append(sample.History, task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text("x")}})
	}
	for length, want := range map[string]int{`null`: 0, `0`: 0, `2`: 2, `2.0`: 2, `10`: 3, `1e400`: 3} {
		call, err := v01.Codec{}.Decode(engine.OpGet, []byte(`{"id":"t","historyLength":`+length+`}`))
		require.NoError(t, err)
		result, err := v01.Codec{}.Result(call.Op, sample, call.View)
		require.NoError(t, err)
		require.Equal(t, want, strings.Count(string(result), `"role"`), "historyLength %s", length)
		require.Equal(t, want > 0, strings.Contains(string(result), `"history"`))
	}
}
