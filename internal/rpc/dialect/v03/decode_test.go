package v03_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const textMessage = `{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}`

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
