// Command go is an agent in Go: holdfast with the agent in it.
package main

import (
	"context"
	"strings"

	"github.com/holdfast-a2a/holdfast/agent"
)

type shout struct{}

// Execute answers a message with its text in capitals.
func (shout) Execute(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	return out.Artifact(ctx, agent.Text("shout", strings.ToUpper(run.Text())))
}

func main() {
	agent.Main(map[string]agent.Executor{"shout": shout{}})
}
