package agents

import (
	"context"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Agents and clients of the official Go SDK, with Holdfast between them.

var sdkSettings = clustertest.Patient + `
  - name: scripted
    default: true
    executor: {kind: go}
    card: {streaming: true}
    limits: {backoff: 100ms, cancel_grace: 5s}
`

// sdkClient returns a client of the SDK that knows only the address.
func sdkClient(t *testing.T, r *clustertest.Replica) *a2aclient.Client {
	t.Helper()
	card, err := agentcard.DefaultResolver.Resolve(t.Context(), r.URL)
	require.NoError(t, err)
	c, err := a2aclient.NewFromCard(t.Context(), card)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Destroy() })
	return c
}

func sdkMessage(task *a2a.Task, text string) *a2a.SendMessageRequest {
	m := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
	if task != nil {
		m.TaskID, m.ContextID = task.ID, task.ContextID
	}
	return &a2a.SendMessageRequest{Message: m}
}

func sdkSend(t *testing.T, c *a2aclient.Client, task *a2a.Task, text string) *a2a.Task {
	t.Helper()
	result, err := c.SendMessage(t.Context(), sdkMessage(task, text))
	require.NoError(t, err)
	require.IsType(t, &a2a.Task{}, result)
	return result.(*a2a.Task)
}

// begin streams a message until an event satisfies the test, and returns the id of its task. The stream stays open.
func begin(t *testing.T, c *a2aclient.Client, text string, is func(a2a.Event) bool) a2a.TaskID {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for event, err := range c.SendStreamingMessage(ctx, sdkMessage(nil, text)) {
		require.NoError(t, err)
		if is(event) {
			return event.TaskInfo().TaskID
		}
	}
	t.Fatal("the stream ended before the event")
	return ""
}

func TestAgentsOfTheGoSDK(t *testing.T) { //nolint:tparallel // the last part kills a replica of the others
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{
		DB: db.URL, Config: sdkSettings, Binary: clustertest.Program(t, "./integration/agents/sdkagent"),
	})
	onA, onB := sdkClient(t, a), sdkClient(t, b)

	t.Run("second turn on another replica", func(t *testing.T) {
		task := sdkSend(t, onA, nil, "ask where to?")
		require.Equal(t, a2a.TaskStateInputRequired, task.Status.State)
		require.Equal(t, "where to?", task.Status.Message.Parts[0].Text())
		task = sdkSend(t, onB, task, "Oslo")
		require.Equal(t, a2a.TaskStateCompleted, task.Status.State)
		require.Equal(t, "where to?: Oslo", task.Status.Message.Parts[0].Text())
	})
	t.Run("cancel on another replica", func(t *testing.T) {
		id := begin(t, onA, "block", func(e a2a.Event) bool {
			v, ok := e.(*a2a.TaskStatusUpdateEvent)
			return ok && v.Status.Message != nil
		})
		task, err := onB.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: id})
		require.NoError(t, err)
		require.Equal(t, a2a.TaskStateCanceled, task.Status.State)
		task, err = onB.GetTask(t.Context(), &a2a.GetTaskRequest{ID: id})
		require.NoError(t, err)
		require.Equal(t, "stopped", task.History[len(task.History)-1].Parts[0].Text(), "what the executor's Cancel has said")
	})
	// The last one: a replica dies.
	t.Run("crash and retry", func(t *testing.T) {
		id := begin(t, onA, "crash one two three", func(e a2a.Event) bool {
			_, ok := e.(*a2a.TaskArtifactUpdateEvent)
			return ok
		})
		runner, onOther := a, onB
		if b.Is(clustertest.One[string](db, "SELECT worker_name FROM holdfast.v_runs WHERE task = $1 AND outcome = 'running'", string(id))) {
			runner, onOther = b, onA
		}
		runner.Kill()
		waittest.Eventually(t, "the task completes on the other replica", func() error {
			task, err := onOther.GetTask(t.Context(), &a2a.GetTaskRequest{ID: id})
			if err != nil {
				return err
			}
			return waittest.Unless(task.Status.State == a2a.TaskStateCompleted, "%s", task.Status.State)
		})
		task, err := onOther.GetTask(t.Context(), &a2a.GetTaskRequest{ID: id})
		require.NoError(t, err)
		require.Len(t, task.Artifacts, 1, "the retry replaces what the crash has cut off")
		require.Equal(t, "one two three", task.Artifacts[0].Parts[0].Text())
	})
	db.Sound()
}

// The program of the documentation.
func TestGoSDKProgram(t *testing.T) {
	t.Parallel()
	a := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: clustertest.NewDB(t).URL, Binary: clustertest.Program(t, "./examples/go/sdk"),
		Env: []string{
			"HOLDFAST_LISTEN=" + nettest.Reserve(t), "HOLDFAST_ADMIN_LISTEN=" + nettest.Reserve(t), "HOLDFAST_GRPC_LISTEN=127.0.0.1:0",
		},
	})
	c := sdkClient(t, a)
	task := sdkSend(t, c, nil, "Book a trip")
	require.Equal(t, a2a.TaskStateInputRequired, task.Status.State)
	task = sdkSend(t, c, task, "Oslo")
	require.Equal(t, a2a.TaskStateCompleted, task.Status.State)
	require.Equal(t, "A trip to Oslo", task.Artifacts[0].Parts[0].Text())
}
