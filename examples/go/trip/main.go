// Command trip serves a durable agent: it asks, streams, and goes on after a crash.
package main

import (
	"context"
	"fmt"

	"github.com/holdfast-a2a/holdfast/agent"
)

// trip plans a trip, day by day.
func trip(ctx context.Context, run *agent.DurableRun) error {
	city, err := run.Ask(ctx, "city", agent.Say("Where to?"))
	if err != nil {
		return err
	}
	for day := 1; day <= 3; day++ {
		plan, err := agent.Step(ctx, run, "plan", func(ctx context.Context) (string, error) {
			return fmt.Sprintf("Day %d in %s. ", day, city.Text()), nil // or what a model says
		})
		if err != nil {
			return err
		}
		if err := run.Text(ctx, "plan", plan); err != nil {
			return err
		}
	}
	return run.Complete(ctx, agent.Sayf("Enjoy %s!", city.Text()))
}

func main() {
	agent.Main(map[string]agent.Executor{"trip": agent.Durable(trip)})
}
