// Command approver is holdfast with an agent that lets a request by resume URL, or its client, answer.
package main

import (
	"context"
	"fmt"

	"github.com/holdfast-a2a/holdfast/agent"
)

func approve(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	switch {
	case run.Input != nil:
		r := run.Input.Resumed
		if err := out.Working(ctx, agent.Say("Checking.")); err != nil {
			return err
		}
		return out.Complete(ctx, agent.Say(fmt.Sprintf("%s %s %s", r.Method, r.Query, r.Body)))
	case run.Turn > 1:
		return out.Complete(ctx, agent.Say("You said "+run.Text()))
	}
	return out.Ask(ctx, agent.Ask{Auth: true, Message: agent.Say("Please sign in."), Resume: &agent.Resume{Show: true}})
}

func main() { agent.Main(map[string]agent.Executor{"go": agent.Func(approve)}) }
