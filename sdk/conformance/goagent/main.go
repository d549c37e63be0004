// Goagent is the agent under test for agent.Connect; README.md beside this folder says what it does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	err := agent.Connect(context.Background(), "", map[string]agent.Executor{os.Getenv("HOLDFAST_AGENT"): tested{os.Stdout}}, agent.ConnectOptions{
		Name: os.Getenv("CONFORMANCE_NAME"), Version: os.Getenv("CONFORMANCE_VERSION"), Concurrency: number(os.Getenv("CONFORMANCE_SLOTS")),
		Drain: time.Duration(number(os.Getenv("CONFORMANCE_DRAIN"))) * time.Second, Log: log,
	})
	if err != nil {
		log.Error("not connected", "error", err)
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("%q is not a number", text))
	}
	return n
}

// tested does what its messages say.
type tested struct{ out io.Writer }

// Execute answers one message.
func (x tested) Execute(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	if len(run.Message.Parts) == 0 {
		return text(ctx, out, input(run.Input))
	}
	command, rest, _ := strings.Cut(run.Text(), " ")
	words := strings.Fields(rest)
	switch command {
	case "hello":
		return text(ctx, out, "Hello, world!")
	case "echo":
		return text(ctx, out, rest)
	case "who":
		return text(ctx, out, run.TaskID)
	case "stream":
		return stream(ctx, out, number(words[0]), number(words[1]), 0)
	case "slow":
		return stream(ctx, out, number(words[0]), 8, time.Duration(number(words[1]))*time.Millisecond)
	case "block":
		time.Sleep(time.Duration(number(rest)) * time.Second)
		return text(ctx, out, "done")
	case "progress":
		return out.Working(ctx, agent.Say("Half way."))
	case "data":
		for _, p := range run.Message.Parts {
			if p.Kind == agent.KindData {
				return out.Artifact(ctx, agent.Data("data", p.Data))
			}
		}
		return errors.New("the message has no data")
	case "file":
		return out.Artifact(ctx, agent.File("f.txt", "text/plain", []byte("Hello")))
	case "complete":
		return out.Complete(ctx, agent.Say("Bye."))
	case "fail":
		return agent.Failure("Out of paper.", nil)
	case "crash":
		return errors.New("secret 42")
	case "retry":
		return agent.Retryable(errors.New("busy"), time.Duration(number(rest))*time.Second)
	case "reject":
		return out.Reject(ctx, agent.Say("Not me."))
	case "reply":
		return out.Reply(ctx, agent.Say("Hi."))
	case "ask":
		return out.AskInput(ctx, agent.Say("Name?"))
	case "auth":
		return out.Ask(ctx, agent.Ask{Message: agent.Say("Sign in."), Auth: true, Resume: &agent.Resume{For: time.Minute}})
	case "link":
		return text(ctx, out, run.ResumeURL)
	case "wait":
		return out.Wait(ctx, agent.Wait{For: time.Duration(number(rest)) * time.Second})
	case "call":
		return out.Call(ctx, agent.Call{ID: "c", Agent: rest, Message: agent.Say("hi")})
	case "sleep", "goodbye":
		if _, err := fmt.Fprintf(x.out, "begun %s\n", run.TaskID); err != nil {
			return err
		}
		<-ctx.Done()
		if command == "goodbye" {
			return text(context.WithoutCancel(ctx), out, "bye")
		}
		return context.Cause(ctx)
	}
	return remember(ctx, run, out, command)
}

// remember answers messages about what the run knows.
func remember(ctx context.Context, run *agent.Run, out agent.Emitter, command string) error {
	switch command {
	case "history":
		said, err := run.Dialogue(ctx, agent.DialogueOptions{})
		var lines []string
		for _, s := range said {
			lines = append(lines, string(s.Role)+" "+s.Text())
		}
		return errors.Join(err, text(ctx, out, strings.Join(lines, "\n")))
	case "reads":
		said, err := run.Dialogue(ctx, agent.DialogueOptions{Of: agent.OfContext})
		if err != nil {
			return err
		}
		return text(ctx, out, fmt.Sprintf("%d entries", len(said)))
	case "state":
		var s struct {
			N int `json:"n"`
		}
		version, err := run.State(ctx, agent.OfTask, &s)
		if err != nil {
			return err
		}
		s.N++
		if _, err := run.SetState(ctx, agent.OfTask, s, version); err != nil {
			return err
		}
		return text(ctx, out, fmt.Sprintf("n=%d", s.N))
	case "checkpoint":
		var c struct {
			N int `json:"n"`
		}
		found, err := run.Checkpoint(ctx, &c)
		switch {
		case err != nil:
			return err
		case found:
			return text(ctx, out, fmt.Sprintf("at %d", c.N))
		}
		c.N = 1
		if err := out.Checkpoint(ctx, c); err != nil {
			return err
		}
		return text(ctx, out, "begun")
	}
	return fmt.Errorf("unknown command %q", command)
}

// Cancel says on stdout why a run was stopped.
func (x tested) Cancel(_ context.Context, c *agent.Cancellation) error {
	reason := "stopped"
	if c.Reason == agent.ReasonCanceled {
		reason = "canceled"
	}
	var metadata struct {
		Why string `json:"why"`
	}
	if c.Metadata != nil {
		if err := json.Unmarshal(c.Metadata, &metadata); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(x.out, "stopped %s %s %s\n", c.TaskID, reason, metadata.Why)
	return err
}

func text(ctx context.Context, out agent.Emitter, s string) error {
	return out.Artifact(ctx, agent.Text("text", s))
}

func stream(ctx context.Context, out agent.Emitter, n, size int, pause time.Duration) error {
	for i := range n {
		number := fmt.Sprintf("%08d", i)
		piece := agent.Chunk{Artifact: agent.Text("text", number+strings.Repeat(".", size-len(number))), Append: i > 0, Last: i == n-1}
		piece.ID = "text"
		if err := out.Chunk(ctx, piece); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// input describes what began a turn without a message.
func input(in *agent.Input) string {
	switch in.Source {
	case agent.Calls:
		var lines []string
		for i := range in.Results {
			r := &in.Results[i]
			var said strings.Builder
			for _, a := range r.Artifacts {
				for _, p := range a.Parts {
					said.WriteString(p.Text)
				}
			}
			lines = append(lines, fmt.Sprintf("%s %s %s", r.ID, r.State, said.String()))
		}
		return strings.Join(lines, "\n")
	case agent.Callback:
		return "resume " + string(in.Resumed.Body)
	}
	return in.Source
}
