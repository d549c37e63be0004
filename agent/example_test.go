package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/holdfast-a2a/holdfast/agent"
)

// printer replaces the server: it prints what an agent emits. Because it embeds the interface, a test
// implements only the methods that it expects.
type printer struct{ agent.Emitter }

func (printer) Artifact(_ context.Context, a agent.Artifact) error {
	_, err := fmt.Fprintf(os.Stdout, "artifact %s: %s\n", a.Name, a.Parts[0].Text)
	return err
}

func (printer) Chunk(_ context.Context, c agent.Chunk) error {
	_, err := fmt.Fprintf(os.Stdout, "chunk of %s: %q append=%v last=%v\n", c.ID, c.Parts[0].Text, c.Append, c.Last)
	return err
}

func (printer) AskInput(_ context.Context, question agent.Message) error {
	_, err := fmt.Fprintln(os.Stdout, "ask:", question.Text())
	return err
}

type counter struct{}

// Execute counts the words of the message.
func (counter) Execute(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	words := len(strings.Fields(run.Text()))
	return out.Artifact(ctx, agent.Text("count", fmt.Sprintf("%d words", words)))
}

func ExampleExecutor() {
	run := &agent.Run{Message: agent.Say("to be or not to be")}
	if err := (counter{}).Execute(context.Background(), run, printer{}); err != nil {
		fmt.Println(err)
	}
	// Output: artifact count: 6 words
}

// A stream is one artifact that grows. Its id is fixed, so that a second try
// replaces what the first one left.
func ExampleEmitter_chunk() {
	shout := agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		words := strings.Fields(run.Text())
		for i, word := range words {
			piece := agent.Chunk{Artifact: agent.Text("shout", strings.ToUpper(word)+" "), Append: i > 0, Last: i == len(words)-1}
			piece.ID = "shout"
			if err := out.Chunk(ctx, piece); err != nil {
				return err
			}
		}
		return nil
	})
	run := &agent.Run{Message: agent.Say("so it goes")}
	if err := shout.Execute(context.Background(), run, printer{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// chunk of shout: "SO " append=false last=false
	// chunk of shout: "IT " append=true last=false
	// chunk of shout: "GOES " append=true last=true
}

// A question ends the run; the answer arrives as the next turn.
func ExampleEmitter_askInput() {
	greet := agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		if run.Turn == 1 {
			return out.AskInput(ctx, agent.Say("What is your name?"))
		}
		return out.Artifact(ctx, agent.Text("greeting", "Hello, "+run.Text()+"!"))
	})
	for turn, text := range []string{"hi", "Ada"} {
		run := &agent.Run{Turn: turn + 1, Message: agent.Say(text)}
		if err := greet.Execute(context.Background(), run, printer{}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// ask: What is your name?
	// artifact greeting: Hello, Ada!
}

func ExampleRetryable() {
	errBusy := errors.New("model is busy")
	call := agent.Func(func(context.Context, *agent.Run, agent.Emitter) error {
		return agent.Retryable(fmt.Errorf("ask the model: %w", errBusy), 0)
	})
	err := call.Execute(context.Background(), &agent.Run{}, printer{})
	fmt.Println(err, errors.Is(err, errBusy))
	// Output: ask the model: model is busy true
}

func ExampleFailure() {
	err := agent.Failure("the document has no text", errors.New("page 3: image only"))
	fmt.Println(err)
	// Output: the document has no text: page 3: image only
}

// remember counts the tasks of a context.
func remember(ctx context.Context, run *agent.Run) (tasks int, err error) {
	for {
		version, err := run.State(ctx, agent.OfContext, &tasks) // 0: nothing is stored
		if err != nil {
			return 0, err
		}
		tasks++
		_, err = run.SetState(ctx, agent.OfContext, tasks, version)
		if !errors.Is(err, agent.ErrStateChanged) {
			return tasks, err
		}
	}
}

var _ = remember // it compiles
