package v10_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

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
