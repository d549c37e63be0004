// Command trip serves an agent that asks, streams and continues after a crash.
package main

import (
	"context"
	"fmt"

	"github.com/holdfast-a2a/holdfast/agent"
)

// trip plans a trip, day by day.
type trip struct{}

// Execute answers one message.
func (trip) Execute(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	if run.Turn == 1 {
		return out.AskInput(ctx, agent.Say("Where to?"))
	}
	if run.Text() == "" {
		return out.AskInput(ctx, agent.Say("I need the name of a city. Where to?"))
	}
	var days int // that an earlier try has planned
	if _, err := run.Checkpoint(ctx, &days); err != nil {
		return err
	}
	for day := days + 1; day <= 3; day++ {
		if err := out.Text(ctx, "plan", fmt.Sprintf("Day %d in %s. ", day, run.Text())); err != nil {
			return err
		}
		if err := out.Checkpoint(ctx, day); err != nil {
			return err
		}
	}
	return out.Complete(ctx, agent.Sayf("Enjoy %s!", run.Text()))
}

func main() {
	agent.Main(map[string]agent.Executor{"trip": trip{}})
}
