package v10_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var suite = dialecttest.Suite{
	Codec:    v10.Codec{},
	Examples: "v1.0",
	Proto:    "1.0.1",
	Send:     func(message []byte) []byte { return []byte(`{"message":` + string(message) + `}`) },
	History:  map[string]int{`null`: 3, `0`: 0, `2`: 2, `10`: 3},
	Live:     true,
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }

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
