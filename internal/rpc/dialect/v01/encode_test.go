package v01_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestDataArraysAreUnchanged(t *testing.T) {
	t.Parallel()
	document, err := v01.Codec{}.Event(&task.Task{PublicID: "t"}, &task.Event{
		Kind:     task.EventArtifact,
		Artifact: &task.Artifact{Parts: []task.Part{{Kind: task.PartData, Data: []byte("[1,\n 2]")}, {Kind: task.PartURL}}},
	})
	require.NoError(t, err)
	require.Equal(t, `{"id":"t","artifact":{"index":0,"parts":[{"type":"data","data":[1,2]},{"type":"file","file":{}}]}}`, string(document)) //nolint:testifylint // one line is the point
}

func TestClientStateMetadataIsKept(t *testing.T) {
	t.Parallel()
	document, err := v01.Codec{}.Event(&task.Task{PublicID: "t"}, &task.Event{
		Kind: task.EventStatus, State: task.StateRejected, Metadata: []byte(`{"a2a_state":"mine"}`),
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"t","status":{"state":"failed"},"final":true,"metadata":{"a2a_state":"mine"}}`, string(document))
}
