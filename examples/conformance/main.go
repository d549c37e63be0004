// Command conformance is the agent that the public conformance kit of A2A needs, on a Holdfast server. The ids of the
// kit's messages tell it what to do. The file in HOLDFAST_CONFIG sets the server up for an edition of the kit.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := agent.Serve(ctx, log, map[string]agent.Executor{"kit": agent.Func(answer)}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A turn of an unscripted message lasts long enough for a test to read it over all bindings, cancel it, or send more.
// It is still running after the one-second sleep of another test. The resubscription lasts as long as the kit wants
// to follow a task: twice its streaming timeout of two seconds.
const (
	untilWorking   = 500 * time.Millisecond
	working        = 700 * time.Millisecond
	resubscription = 4 * time.Second
)

// scripts are the scenarios of the kit's edition for 1.0, by a prefix of the message id. The longest matching prefix
// wins.
var scripts = map[string]func(ctx context.Context, out agent.Emitter) error{
	"tck-complete-task": func(ctx context.Context, out agent.Emitter) error {
		return out.Complete(ctx, agent.Say("Hello from TCK"))
	},
	"tck-artifact-text": emit(agent.Text("", "Generated text content")),
	"tck-artifact-file": emit(agent.File("output.txt", "text/plain", []byte("tck"))),
	"tck-artifact-file-url": emit(agent.Artifact{Parts: []agent.Part{
		{Kind: agent.KindURL, URL: "https://example.com/output.txt", Filename: "output.txt", MediaType: "text/plain"},
	}}),
	"tck-artifact-data": emit(agent.Data("", json.RawMessage(`{"key": "value", "count": 42}`))),
	"tck-message-response": func(ctx context.Context, out agent.Emitter) error {
		return out.Reply(ctx, agent.Say("Direct message response"))
	},
	"tck-input-required": func(ctx context.Context, out agent.Emitter) error {
		return out.AskInput(ctx, agent.Message{})
	},
	"tck-reject-task": func(ctx context.Context, out agent.Emitter) error {
		return out.Reject(ctx, agent.Say("rejected"))
	},
	"tck-stream-001":           work(agent.Text("", "Stream hello from TCK")),
	"tck-stream-002":           emit(),
	"tck-stream-003":           work(agent.Text("", "Stream task lifecycle")),
	"tck-stream-ordering-001":  work(agent.Text("", "Ordered output")),
	"tck-stream-artifact-text": work(agent.Text("", "Streamed text content")),
	"tck-stream-artifact-file": work(agent.File("output.txt", "text/plain", []byte("tck"))),
	"tck-stream-artifact-chunked": func(ctx context.Context, out agent.Emitter) error {
		if err := out.Working(ctx, agent.Message{}); err != nil {
			return err
		}
		first, second := agent.Text("", "chunk-1 "), agent.Text("", "chunk-2")
		first.ID, second.ID = "chunks", "chunks"
		if err := out.Chunk(ctx, agent.Chunk{Artifact: first}); err != nil {
			return err
		}
		return out.Chunk(ctx, agent.Chunk{Artifact: second, Append: true, Last: true})
	},
	"test-resubscribe-message-id": func(ctx context.Context, out agent.Emitter) error {
		if err := out.Working(ctx, agent.Message{}); err != nil {
			return err
		}
		return wait(ctx, resubscription)
	},
}

// answer plays the script of the message. Without a script it holds a conversation: it works for a moment, repeats
// the message and asks for more. The editions for 0.x script only the resubscription, and continue, follow and cancel
// any task.
func answer(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	longest := ""
	for prefix := range scripts {
		if strings.HasPrefix(run.Message.ID, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	if longest != "" {
		return scripts[longest](ctx, out)
	}
	if err := wait(ctx, untilWorking); err != nil {
		return err
	}
	if err := out.Working(ctx, agent.Message{}); err != nil {
		return err
	}
	if err := wait(ctx, working); err != nil {
		return err
	}
	if err := out.Artifact(ctx, agent.Text("response", "You said: "+run.Text())); err != nil {
		return err
	}
	return out.AskInput(ctx, agent.Say("Anything else?"))
}

// emit emits artifacts and completes.
func emit(artifacts ...agent.Artifact) func(context.Context, agent.Emitter) error {
	return func(ctx context.Context, out agent.Emitter) error {
		for _, a := range artifacts {
			if err := out.Artifact(ctx, a); err != nil {
				return err
			}
		}
		return nil
	}
}

// work emits working before the artifacts, then completes.
func work(artifacts ...agent.Artifact) func(context.Context, agent.Emitter) error {
	return func(ctx context.Context, out agent.Emitter) error {
		if err := out.Working(ctx, agent.Message{}); err != nil {
			return err
		}
		return emit(artifacts...)(ctx, out)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
