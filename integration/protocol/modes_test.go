package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// An agent without modes takes everything, in every version. One with modes refuses other parts and outputs.
func TestMediaTypesInEveryVersion(t *testing.T) {
	t.Parallel()
	config := clustertest.Settings + "  - {name: plain, executor: {kind: demo}, card: {default_input_modes: [text/plain], default_output_modes: [text/plain]}}\n"
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: config})
	file := object{"mimeType": "image/png", "bytes": "eA=="}
	kinds := []object{{"kind": "text", "text": "echo:x"}, {"kind": "file", "file": file}}
	modes := object{"acceptedOutputModes": []string{"text/markdown"}}
	for name, c := range map[string]struct {
		method string
		params object
		header []string
		says   string
	}{
		"0.1, a file": {
			"tasks/send",
			object{"id": "of 0.1", "message": object{"role": "user", "parts": []object{{"type": "text", "text": "echo:x"}, {"type": "file", "file": file}}}},
			nil, `parts[1]: the agent reads text/plain, not "image/png"`,
		},
		"0.3, a file": {
			"message/send",
			object{"message": object{"messageId": "m", "role": "user", "parts": kinds}},
			nil, `message.parts[1]: the agent reads text/plain, not "image/png"`,
		},
		"0.3, an output": {
			"message/send",
			object{"message": object{"messageId": "m", "role": "user", "parts": kinds[:1]}, "configuration": modes},
			nil, `the agent writes text/plain, not "text/markdown"`,
		},
		"1.0, data": {
			"SendMessage",
			object{"message": object{"messageId": "m", "role": "ROLE_USER", "parts": []object{{"text": "echo:x"}, {"data": object{"a": 1}}}}},
			[]string{"A2A-Version", "1.0"},
			`message.parts[1]: the agent reads text/plain, not "application/json"`,
		},
		"1.0, an output": {
			"SendMessage",
			object{"message": object{"messageId": "m", "role": "ROLE_USER", "parts": []object{{"text": "echo:x"}}}, "configuration": modes},
			[]string{"A2A-Version", "1.0"},
			`the agent writes text/plain, not "text/markdown"`,
		},
	} {
		a := r.Ask(c.method, c.params, c.header...)
		require.Nil(t, a.Error, "%s: %s", name, a.Body)
		a = r.Under("/agents/plain").Ask(c.method, c.params, c.header...)
		require.NotNil(t, a.Error, "%s: %s", name, a.Body)
		require.Equal(t, -32005, a.Error.Code, name)
		require.Contains(t, a.Error.Message, c.says, name)
	}
}
