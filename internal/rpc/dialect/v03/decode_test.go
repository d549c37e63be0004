package v03_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
)

const textMessage = `{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}`

func TestDecodeWaitsUnlessTold(t *testing.T) {
	t.Parallel()
	for configuration, want := range map[string]bool{`null`: true, `{}`: true, `{"blocking":null}`: true, `{"blocking":true}`: true, `{"blocking":false}`: false} {
		call, err := v03.Codec{}.Decode(engine.OpSend, []byte(`{"message":`+textMessage+`,"configuration":`+configuration+`}`))
		require.NoError(t, err)
		require.Equal(t, want, call.Send.Wait, configuration)
		require.False(t, call.Send.MayCreate)
	}
}
