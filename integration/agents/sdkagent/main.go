// Command sdkagent is an agent of the official Go SDK that does what its messages say, for the tests of agent/a2asdk.
package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/a2asdk"
)

type scripted struct{}

func (scripted) Execute(ctx context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		text := exec.Message.Parts[0].Text()
		status := func(s a2a.TaskState, text string) bool {
			return yield(a2a.NewStatusUpdateEvent(exec, s, a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(text))), nil)
		}
		if exec.StoredTask != nil && exec.StoredTask.Status.State == a2a.TaskStateInputRequired {
			status(a2a.TaskStateCompleted, fmt.Sprintf("%s: %s", exec.StoredTask.Status.Message.Parts[0].Text(), text))
			return
		}
		switch verb, rest, _ := strings.Cut(text, " "); verb {
		case "ask":
			status(a2a.TaskStateInputRequired, rest)
		case "block":
			if status(a2a.TaskStateWorking, "busy") {
				<-ctx.Done()
			}
		case "crash":
			words(ctx, exec, strings.Fields(rest), yield)
		}
	}
}

// words streams words as one artifact. The first try blocks after the first word, until a test kills it.
func words(ctx context.Context, exec *a2asrv.ExecutorContext, all []string, yield func(a2a.Event, error) bool) {
	run, _ := a2asdk.RunFrom(ctx)
	event := a2a.NewArtifactEvent(exec, a2a.NewTextPart(all[0]))
	id := event.Artifact.ID
	for _, word := range all[1:] {
		if !yield(event, nil) {
			return
		}
		if run.Try == 1 {
			<-ctx.Done()
			yield(nil, context.Cause(ctx))
			return
		}
		event = a2a.NewArtifactUpdateEvent(exec, id, a2a.NewTextPart(" "+word))
	}
	event.LastChunk = true
	_ = yield(event, nil) && yield(a2a.NewStatusUpdateEvent(exec, a2a.TaskStateCompleted, nil), nil)
}

func (scripted) Cancel(ctx context.Context, exec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		message := a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("stopped"))
		yield(a2a.NewStatusUpdateEvent(exec, a2a.TaskStateCanceled, message), nil)
	}
}

func main() {
	agent.Main(map[string]agent.Executor{"scripted": a2asdk.Wrap(scripted{})})
}
