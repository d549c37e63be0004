package v10_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const textMessage = `{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}`

func TestDecodeRefusals(t *testing.T) {
	t.Parallel()
	parts := func(parts string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER","parts":` + parts + `}}`
	}
	tests := []struct {
		name   string
		op     engine.Op
		params string
		want   string
	}{
		{"no params", engine.OpSend, ``, "message: is required"},
		{"params that are a string", engine.OpSend, `"x"`, "params: must be an object"},
		{"no messageId", engine.OpStream, `{"message":{"role":"ROLE_USER","parts":[{"text":"x"}]}}`, "message.messageId: is required"},
		{"no role", engine.OpSend, `{"message":{"messageId":"m","parts":[{"text":"x"}]}}`, "message.role: is required"},
		{"an unspecified role", engine.OpSend, `{"message":{"messageId":"m","role":"ROLE_UNSPECIFIED","parts":[{"text":"x"}]}}`, "message.role: is required"},
		{"a role of 0.3", engine.OpSend, `{"message":{"role":"user"}}`, "message.role: must be ROLE_USER"},
		{"a role of no number", engine.OpSend, `{"message":{"role":3}}`, "message.role: must be ROLE_USER"},
		{"a message as the agent", engine.OpSend, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`, "message.role: must be ROLE_USER: only the agent speaks as the agent"},
		{"the same by number", engine.OpSend, `{"message":{"role":2}}`, "message.role: must be ROLE_USER: only the agent speaks as the agent"},
		{"a member in two spellings", engine.OpCancel, `{"id":"t","tenant":"a","metadata":{},"unknown_one":1,"meta_data":1,"metaData":2}`, "metaData: is given in two spellings"},
		{"a task in two spellings", engine.OpSend, `{"message":{"messageId":"m","taskId":"a","task_Id":"b"}}`, "message.taskId: is given in two spellings"},
		{"a later pair", engine.OpSend, `{"message":{"message_id":"m","contextId":"a","context_id":"b"}}`, "message.contextId: is given in two spellings"},
		{"in a part", engine.OpSend, parts(`[{"text":"x"},{"media_type":"a/b","text":"x","mediaType":"c/d"}]`), "message.parts[1].mediaType: is given in two spellings"},
		{"in a list", engine.OpList, `{"page_size":1,"pageSize":2}`, "pageSize: is given in two spellings"},
		{"in a webhook", engine.OpPushSet, `{"task_id":"a","taskId":"b","url":"http://x"}`, "taskId: is given in two spellings"},
		{"no parts", engine.OpSend, `{"message":{"messageId":"m","role":"ROLE_USER"}}`, "message.parts: is required"},
		{"empty parts", engine.OpSend, parts(`[]`), "message.parts: must hold at least one part"},
		{"a part without content", engine.OpSend, parts(`[{"text":"x"},{"filename":"f"}]`), "message.parts[1]: must have one of text, raw, url and data"},
		{"a part with null for content", engine.OpSend, parts(`[{"text":null}]`), "message.parts[0]: must have one of text, raw, url and data"},
		{"a part with two contents", engine.OpSend, parts(`[{"text":"x","data":null}]`), "message.parts[0]: must have only one of text, raw, url and data"},
		{"a part of 0.3", engine.OpSend, parts(`[{"kind":"file","file":{"uri":"http://x"}}]`), "message.parts[0]: must have one of text, raw, url and data"},
		{"invalid bytes", engine.OpSend, parts(`[{"raw":"!"}]`), "message.parts[0].raw: is not base64"},
		{"a context id that is too long", engine.OpSend, `{"message":{"contextId":"` + strings.Repeat("c", 257) + `"}}`, "message.contextId: must not be longer than 256 characters"},
		{"a flag that is a string", engine.OpSend, `{"configuration":{"returnImmediately":"yes"}}`, "configuration.returnImmediately: must be true or false"},
		{"a negative history", engine.OpSend, `{"configuration":{"historyLength":-3}}`, "configuration.historyLength: must be an integer that is not negative"},
		{"a negative history in quotes", engine.OpGet, `{"id":"t","historyLength":"-3"}`, "historyLength: must be an integer that is not negative"},
		{"a push configuration", engine.OpSend, `{"message":` + textMessage + `,"configuration":{"taskPushNotificationConfig":{"id":"x"}}}`, "configuration.taskPushNotificationConfig.url: is required"},
		{"a tenant that is a number", engine.OpGet, `{"tenant":1}`, "tenant: must be a string"},
		{"no id", engine.OpGet, `{}`, "id: is required"},
		{"an id that is a number", engine.OpCancel, `{"id":7}`, "id: must be a string"},
		{"an empty id", engine.OpSubscribe, `{"id":""}`, "id: is required"},
		{"an invalid page", engine.OpList, `{"pageSize":0}`, "pageSize: must be a number from 1 to 100"},
		{"a page of too many", engine.OpList, `{"pageSize":101}`, "pageSize: must be a number from 1 to 100"},
		{"a negative history in lists", engine.OpList, `{"historyLength":-5}`, "historyLength: must be an integer that is not negative"},
		{"an unknown state", engine.OpList, `{"status":"TASK_STATE_RUNNING"}`, "status: must be a task state such as TASK_STATE_WORKING"},
		{"a state of no number", engine.OpList, `{"status":9}`, "status: must be a task state such as TASK_STATE_WORKING"},
		{"an invalid time", engine.OpList, `{"statusTimestampAfter":"yesterday"}`, "statusTimestampAfter: must be a timestamp such as 2026-01-31T09:00:00Z"},
		{"creating a push configuration", engine.OpPushSet, `{"url":"http://x"}`, "taskId: is required"},
		{"getting one", engine.OpPushGet, `{"taskId":"t"}`, "id: is required"},
		{"listing them", engine.OpPushList, `{}`, "taskId: is required"},
		{"deleting one", engine.OpPushDelete, `{"id":"c"}`, "taskId: is required"},
		{"no operation", engine.OpNone, `{}`, "this operation is not supported"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			call, err := v10.Codec{}.Decode(tt.op, []byte(tt.params))
			require.EqualError(t, err, tt.want)
			require.Nil(t, call)
		})
	}
}

// Also with the names of the proto file.
func TestDecodeEveryMember(t *testing.T) {
	t.Parallel()
	for _, params := range []string{
		`{"tenant":"demo","metadata":{ "a": 1.0 },"unknown":[1],
		"configuration":{"returnImmediately":true,"historyLength":2,"acceptedOutputModes":["text/plain"],"taskPushNotificationConfig":null},
		"message":{"messageId":"m","role":"ROLE_USER","taskId":"t","contextId":"c","metadata":{"b":1e400},
		"extensions":["https://e"],"referenceTaskIds":["t-0"],"kind":"message",
		"parts":[{"data":null,"mediaType":"a/b","filename":"f","metadata":{"c":null}},{"raw":"_-8"},{"url":""}]}}`,
		`{"tenant":"demo","metadata":{"a":1.0},
		"configuration":{"return_immediately":true,"history_length":"2","accepted_output_modes":["text/plain"]},
		"message":{"message_id":"m","role":1,"task_id":"t","context_id":"c","metadata":{"b":1e400},
		"extensions":["https://e"],"reference_task_ids":["t-0"],"trailing_":1,"_":2,"opaque":{"a_b":1,"aB":2},
		"parts":[{"data":null,"media_type":"a/b","filename":"f","metadata":{"c":null}},{"raw":"/+8="},{"url":""}]}}`,
	} {
		call, err := v10.Codec{}.Decode(engine.OpStream, []byte(params))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(&dialect.Call{
			Op: engine.OpStream, Tenant: "demo",
			Send: &engine.SendRequest{
				Dialect: "1.0", TaskID: "t", ContextID: "c", Metadata: []byte(`{"a":1.0}`),
				OutputModes: []string{"text/plain"},
				Message: &task.Message{
					ID: "m", Role: task.RoleUser, Metadata: []byte(`{"b":1e400}`),
					Extensions: []string{"https://e"}, References: []string{"t-0"},
					Parts: []task.Part{
						{Kind: task.PartData, Data: []byte(`null`), MediaType: "a/b", Filename: "f", Metadata: []byte(`{"c":null}`)},
						{Kind: task.PartRaw, Raw: []byte{0xff, 0xef}},
						{Kind: task.PartURL},
					},
				},
			},
			View: dialect.View{History: 2},
		}, call))
	}
}

func TestDecodeList(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 5, 10, 0, 2, 120_000_000, time.UTC)
	for params, want := range map[string]*engine.ListRequest{
		``:                                    {PageSize: 50, WithHistory: true},
		`{"status":"TASK_STATE_UNSPECIFIED"}`: {PageSize: 50, WithHistory: true},
		`{"status":null,"pageSize":"7"}`:      {PageSize: 7, WithHistory: true},
		`{"contextId":"c","status":"TASK_STATE_AUTH_REQUIRED","pageSize":100,"pageToken":"p","historyLength":0,
			"statusTimestampAfter":"2026-01-05T11:00:02.12+01:00","includeArtifacts":true}`: {
			ContextID: "c", State: task.StateAuthRequired, PageSize: 100, PageToken: "p", Since: at, WithArtifacts: true,
		},
		`{"status":"working","statusTimestampAfter":"2026-01-05T10:00:02.120"}`: {State: task.StateWorking, PageSize: 50, Since: at, WithHistory: true},
		`{"status":"input-required"}`:                                           {State: task.StateInputRequired, PageSize: 50, WithHistory: true},
		`{"status":"TASK_STATE_CANCELLED"}`:                                     {State: task.StateCanceled, PageSize: 50, WithHistory: true},
		`{"status":8,"page_token":"p"}`:                                         {State: task.StateAuthRequired, PageSize: 50, PageToken: "p", WithHistory: true},
	} {
		call, err := v10.Codec{}.Decode(engine.OpList, []byte(params))
		require.NoError(t, err, params)
		require.True(t, want.Since.Equal(call.List.Since), params)
		call.List.Since = want.Since
		require.Empty(t, cmp.Diff(want, call.List), params)
	}
}

func TestHistoryLength(t *testing.T) {
	t.Parallel()
	sample := &task.Task{PublicID: "t", Status: task.Status{State: task.StateWorking}}
	for range 3 {
		sample.History = append(sample.History, task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text("x")}})
	}
	for length, want := range map[string]int{`null`: 3, `0`: 0, `2`: 2, `10`: 3} {
		call, err := v10.Codec{}.Decode(engine.OpGet, []byte(`{"id":"t","historyLength":`+length+`}`))
		require.NoError(t, err)
		result, err := v10.Codec{}.Result(call.Op, sample, call.View)
		require.NoError(t, err)
		require.Equal(t, want, strings.Count(string(result), `"role"`), "historyLength %s", length)
		require.Equal(t, want > 0, strings.Contains(string(result), `"history"`), "historyLength %s", length)
	}
}

func TestWhenStreamsClose(t *testing.T) {
	t.Parallel()
	for _, s := range task.States {
		require.Equal(t, s.Settled(), v10.Codec{}.Closes(engine.OpStream, s), s.String())
		require.Equal(t, s.Terminal(), v10.Codec{}.Closes(engine.OpSubscribe, s), s.String())
	}
}
