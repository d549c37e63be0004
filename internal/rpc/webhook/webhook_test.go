package webhook_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/webhook"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func body(t *testing.T, n webhook.Encoder, version string, of *task.Task, e *task.Event) (document []byte, contentType string) {
	t.Helper()
	document, contentType, err := n.Body(&task.PushConfig{Dialect: version}, of, e)
	require.NoError(t, err)
	return document, contentType
}

func TestWholeTasks(t *testing.T) {
	t.Parallel()
	for version, schema := range map[string]*dialecttest.Schemas{"0.1": nil, "0.3": dialecttest.NewSchemas(t, "0.3.0")} {
		require.True(t, webhook.Encoder{}.Whole(version))
		for name, of := range dialecttest.Tasks() {
			event := &task.Event{Kind: task.EventStatus, State: of.Status.State, Message: of.Status.Message, Direct: of.Direct}
			document, contentType := body(t, webhook.Encoder{}, version, of, event)
			snapshot, _ := body(t, webhook.Encoder{}, version, of, nil)
			require.Equal(t, document, snapshot)
			if of.Direct {
				require.Nil(t, document, "a bare message has no words")
				continue
			}
			require.Equal(t, "application/json", contentType)
			dialecttest.Golden(t, version+"/"+name, document)
			if schema != nil {
				schema.Check(t, "Task", document)
			}
		}
	}
}

func TestEventsOf10(t *testing.T) {
	t.Parallel()
	require.False(t, webhook.Encoder{}.Whole("1.0"))
	header := &task.Task{PublicID: "t-1", ContextID: "c-1"}
	proto := dialecttest.NewProto(t, "1.0.1")
	for name, e := range dialecttest.Events() {
		document, contentType := body(t, webhook.Encoder{}, "1.0", header, e)
		require.Equal(t, "application/a2a+json", contentType)
		dialecttest.Golden(t, "1.0/"+name, document)
		proto.Check(t, "StreamResponse", document)
		plain, contentType := body(t, webhook.Encoder{PlainJSON: true}, "1.0", header, e)
		require.Equal(t, "application/json", contentType)
		require.Equal(t, document, plain)
	}
	direct := dialecttest.Tasks()["direct"]
	said := &task.Event{Kind: task.EventStatus, State: task.StateCompleted, Direct: true, Message: direct.Status.Message}
	document, _ := body(t, webhook.Encoder{}, "1.0", header, said)
	dialecttest.Golden(t, "1.0/direct", document)
	proto.Check(t, "StreamResponse", document)
	document, _ = body(t, webhook.Encoder{}, "1.0", direct, nil)
	require.Contains(t, string(document), `{"message":`)
	document, _ = body(t, webhook.Encoder{}, "1.0", dialecttest.Tasks()["completed"], nil)
	dialecttest.Golden(t, "1.0/task", document)
	proto.Check(t, "StreamResponse", document)
}

func TestAVersionThatIsNotServed(t *testing.T) {
	t.Parallel()
	_, _, err := webhook.Encoder{}.Body(&task.PushConfig{Dialect: "7.0"}, &task.Task{}, nil)
	require.ErrorContains(t, err, "A2A 7.0")
}
