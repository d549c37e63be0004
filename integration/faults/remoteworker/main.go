// Command remoteworker is a worker for the faults: its agent streams numbered chunks, as the demo agent does, or holds a task until
// it is canceled.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := agent.Connect(context.Background(), "", map[string]agent.Executor{os.Getenv("HOLDFAST_AGENT"): agent.Func(answer)}, agent.ConnectOptions{
		Concurrency: 20, Drain: 2 * time.Second, Log: log,
	})
	if err != nil {
		log.Error("not connected", "error", err)
		os.Exit(1)
	}
}

func answer(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	var count, size, delay int
	if _, err := fmt.Sscanf(run.Text(), "chunks=%d size=%d delay=%dms", &count, &size, &delay); err != nil {
		<-ctx.Done() // "hold"
		return context.Cause(ctx)
	}
	next, err := begun(ctx, run, size)
	if err != nil {
		return err
	}
	for i := next; i < count; i++ {
		number := fmt.Sprintf("%08d ", i)
		piece := agent.Chunk{Artifact: agent.Text("chunks", number+strings.Repeat(".", size-len(number))), Append: i > 0, Last: i == count-1}
		piece.ID = "chunks"
		if err := out.Chunk(ctx, piece); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(delay) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// begun returns how many chunks earlier tries have stored.
func begun(ctx context.Context, run *agent.Run, size int) (int, error) {
	stored, err := run.Task(ctx)
	if err != nil || stored == nil {
		return 0, err
	}
	n := 0
	for _, a := range stored.Earlier {
		for _, p := range a.Parts {
			n += len(p.Text)
		}
	}
	return n / size, nil
}
