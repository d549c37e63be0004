package v03proto_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
)

var suite = dialecttest.Suite{
	Codec:    v03proto.Codec{},
	Examples: "v0.3.0",
	Proto:    "0.3.0",
	Later:    map[string]map[string]string{"Part": {"metadata": "google.protobuf.Struct"}},
	Nameless: true,
	Send:     func(message []byte) []byte { return []byte(`{"message":` + string(message) + `}`) },
	History:  map[string]int{`null`: 3, `0`: 0, `2`: 2, `10`: 3},
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }

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

// The formats in which official clients, the conformance kit and the specification set a configuration.
func TestPushConfigFormats(t *testing.T) {
	t.Parallel()
	const config = `"pushNotificationConfig":{"id":"c","url":"http://x","token":"k","authentication":{"schemes":["Bearer"],"credentials":"s"}}`
	const snake = `"push_notification_config":{"url":"http://x","token":"k","authentication":{"schemes":["Bearer"],"credentials":"s"}}`
	for name, params := range map[string]string{
		"the request":               `{"parent":"tasks/a/b","configId":"c","config":{"name":"tasks/a/b/pushNotificationConfigs/c",` + config + `}}`,
		"by the names of the proto": `{"parent":"tasks/a/b","config_id":"c","config":{"name":"",` + snake + `}}`,
		"with the collection":       `{"parent":"tasks/a/b/pushNotificationConfigs","config_id":"c","config":{` + snake + `}}`,
		"the configuration alone":   `{"name":"tasks/a/b/pushNotificationConfigs/c",` + snake + `}`,
		"with the task beside it":   `{"config":{"taskId":"a/b",` + config + `}}`,
		"as on JSON-RPC":            `{"taskId":"a/b",` + config + `}`,
		"without a parent":          `{"parent":"","configId":"","config":{"name":"tasks/a/b/pushNotificationConfigs/a/b",` + config + `}}`,
		"over HTTP, another parent": `{"parent":"tasks/x","config":{"name":"tasks/y/pushNotificationConfigs/c",` + config + `},"taskId":"a/b"}`,
	} {
		call, err := v03proto.Codec{}.Decode(engine.OpPushSet, []byte(params))
		require.NoError(t, err, name)
		p := call.Push
		require.Equal(t, "a/b", p.TaskID, name)
		require.Equal(t, "a/b", call.TaskID())
		require.Equal(t, "c", p.Set.ID, name)
		require.Equal(t, []string{"http://x", "k", "s", "Bearer"}, []string{p.Set.URL, p.Set.Token, p.Set.Credentials, p.Set.Schemes[0]}, name)
	}
	for params, want := range map[string][]string{
		`{"name":"tasks/a/b/pushNotificationConfigs/c/d"}`:                                         {"a/b", "c/d"},
		`{"taskId":"a/pushNotificationConfigs/b","pushNotificationConfigId":"c","name":"tasks/x"}`: {"a/pushNotificationConfigs/b", "c"},
		`{"id":"a","push_notification_config_id":"c"}`:                                             {"a", "c"},
	} {
		call, err := v03proto.Codec{}.Decode(engine.OpPushDelete, []byte(params))
		require.NoError(t, err, params)
		require.Equal(t, want, []string{call.Push.TaskID, call.Push.ConfigID})
	}
	for _, params := range []string{`{"parent":"tasks/a/b"}`, `{"name":"tasks/a/b"}`, `{"taskId":"a/b","pageSize":3,"pageToken":"x"}`} {
		call, err := v03proto.Codec{}.Decode(engine.OpPushList, []byte(params))
		require.NoError(t, err, params)
		require.Equal(t, "a/b", call.Push.TaskID)
	}
}
