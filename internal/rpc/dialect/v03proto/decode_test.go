package v03proto_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
)

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
