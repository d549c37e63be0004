// Command serve runs an agent in a program with a main function of its own.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"

	"github.com/holdfast-a2a/holdfast/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	shout := agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		return out.Artifact(ctx, agent.Text("shout", strings.ToUpper(run.Text())))
	})
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := agent.Serve(ctx, log, map[string]agent.Executor{"shout": shout}); err != nil {
		log.Error("not served", "error", err)
		os.Exit(1)
	}
}
