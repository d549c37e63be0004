// Command rebuilding is holdfast with an agent that is unavailable while the file AWAY exists.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/holdfast-a2a/holdfast/agent"
)

func answer(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	if _, err := os.Stat(os.Getenv("AWAY")); err == nil {
		return agent.Unavailable(errors.New("the index is being rebuilt"), 0)
	}
	return out.Complete(ctx, agent.Say(run.Text()))
}

func main() { agent.Main(map[string]agent.Executor{"go": agent.Func(answer)}) }
