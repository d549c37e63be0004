// Command connect is an agent that connects to a server as a worker: it needs no address and no database.
package main

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/holdfast-a2a/holdfast/agent"
)

func main() {
	shout := agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		return out.Artifact(ctx, agent.Text("shout", strings.ToUpper(run.Text())))
	})
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := agent.Connect(context.Background(), "", map[string]agent.Executor{"shout": shout}, agent.ConnectOptions{Concurrency: 20, Log: log})
	if err != nil {
		log.Error("not connected", "error", err)
		os.Exit(1)
	}
}
