package v01_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var suite = dialecttest.Suite{
	Codec:    v01.Codec{},
	Examples: "v0.1",
	Schemas:  []string{"0.1.0"},
	Send:     func(message []byte) []byte { return []byte(`{"id":"t-1","message":` + string(message) + `}`) },
	History:  map[string]int{`null`: 0, `0`: 0, `2`: 2, `2.0`: 2, `10`: 3, `1e400`: 3},
}

func TestCodec(t *testing.T)      { t.Parallel(); suite.Exercise(t) }
func FuzzDecode(f *testing.F)     { suite.FuzzDecode(f) }
func BenchmarkCodec(b *testing.B) { suite.Benchmark(b) }

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

// testdata/parts.json has what the parts of testdata/parts.txt become.
func TestDecodeParts(t *testing.T) {
	t.Parallel()
	parts := map[string]task.Part{}
	for _, c := range dialecttest.Cases(t, "parts", 2) {
		call, err := v01.Codec{}.Decode(engine.OpSend, []byte(`{"id":"t","message":{"role":"user","parts":[`+c[1]+`]}}`))
		require.NoError(t, err, c)
		require.Len(t, call.Send.Message.Parts, 1)
		parts[c[0]] = call.Send.Message.Parts[0]
	}
	dump, err := json.Marshal(parts)
	require.NoError(t, err)
	dialecttest.Golden(t, "parts", dump)
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

func TestDataArraysAreUnchanged(t *testing.T) {
	t.Parallel()
	document, err := v01.Codec{}.Event(&task.Task{PublicID: "t"}, &task.Event{
		Kind:     task.EventArtifact,
		Artifact: &task.Artifact{Parts: []task.Part{{Kind: task.PartData, Data: []byte("[1,\n 2]")}, {Kind: task.PartURL}}},
	}, false)
	require.NoError(t, err)
	require.Equal(t, `{"id":"t","artifact":{"index":0,"parts":[{"type":"data","data":[1,2]},{"type":"file","file":{}}]}}`, string(document)) //nolint:testifylint // one line is the point
}

func TestClientStateMetadataIsKept(t *testing.T) {
	t.Parallel()
	document, err := v01.Codec{}.Event(&task.Task{PublicID: "t"}, &task.Event{
		Kind: task.EventStatus, State: task.StateRejected, Metadata: []byte(`{"a2a_state":"mine"}`),
	}, false)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"t","status":{"state":"failed"},"final":true,"metadata":{"a2a_state":"mine"}}`, string(document))
}
