// Command sdk serves an agent that is written for the official Go SDK.
package main

import (
	"context"
	"iter"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/a2asdk"
)

// travel implements a2asrv.AgentExecutor. It knows nothing of Holdfast.
type travel struct{}

// Execute asks for a city, and plans a trip when it has one.
func (travel) Execute(_ context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if exec.StoredTask == nil {
			question := a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("Where to?"))
			_ = yield(a2a.NewSubmittedTask(exec, exec.Message), nil) &&
				yield(a2a.NewStatusUpdateEvent(exec, a2a.TaskStateInputRequired, question), nil)
			return
		}
		plan := a2a.NewArtifactEvent(exec, a2a.NewTextPart("A trip to "+exec.Message.Parts[0].Text()))
		_ = yield(plan, nil) && yield(a2a.NewStatusUpdateEvent(exec, a2a.TaskStateCompleted, nil), nil)
	}
}

// Cancel is called beside Execute when a client cancels the task.
func (travel) Cancel(_ context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(exec, a2a.TaskStateCanceled, nil), nil)
	}
}

func main() {
	agent.Main(map[string]agent.Executor{"travel": a2asdk.Wrap(travel{})})
}
