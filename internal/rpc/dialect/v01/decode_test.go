package v01_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

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
