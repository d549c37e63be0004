// Package demo is an executor that follows the script in its message. It shows, tests and measures every feature of A2A
// without a model.
//
// The first text part of a message is the script, one command:
//
//	echo:<payload>                one artifact with the payload
//	chunks=N size=B delay=Dms     N chunks of B bytes, D apart, appended to one artifact
//	sleep=Dms                     work that long, then complete
//	wait=Dms                      wait that long without a process, then complete
//	wait=Dms interruptible        the same, and the next message completes the task earlier
//	call=a,b <script>             call the agents a and b with the script, then complete with their results
//	relay=a,b <script>            the same, and show their progress
//	steps=N delay=Dms             N messages "step 1 of N" and so on, each D before the next, then complete
//	hold                          work until canceled
//	ask:<question>                ask; the next message completes the task, or asks again if it is ask:<question>
//	auth                          ask for authentication; the next message completes the task
//	file, data                    an artifact with a file, with structured data
//	message:<text>                a bare message and no task
//	fail:<reason>, reject:<reason>
//	crash                         panic
//
// For any other message it echoes all parts unchanged.
package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// The bounds of a script.
const (
	maxChunks    = 1_000_000
	maxChunkSize = 1 << 20        // bytes
	maxWait      = 24 * time.Hour // a sleep, or the pause between two chunks
)

// New makes the demo executor.
func New() executor.Executor { return executor.Func(execute) }

func execute(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	if run.Input != nil && run.Input.Source == executor.SourceCalls {
		return emit(ctx, out, "results", task.Text(results(run.Input.Results)))
	}
	if run.Input != nil {
		return emit(ctx, out, "wait", task.Text(waited(run)))
	}
	if run.Turn > 1 {
		script, err := previousScript(ctx, run)
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(script, "ask:"):
			return answered(ctx, run, out)
		case strings.TrimSpace(script) == "auth":
			return nil
		}
	}
	return perform(ctx, run, out)
}

// answered quotes an answer, and asks again if the answer is a question itself.
func answered(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	name, text := "answer", run.Message.FirstText()
	if run.Turn > 2 {
		name = fmt.Sprintf("answer-%d", run.Turn-1)
	}
	if err := emit(ctx, out, name, task.Text("You answered: "+text)); err != nil {
		return err
	}
	if question, asks := strings.CutPrefix(text, "ask:"); asks {
		return out.Status(ctx, task.StateInputRequired, says(question))
	}
	return nil
}

// previousScript returns the script of the user's message before this one. If that script was a question, this message
// is the answer.
func previousScript(ctx context.Context, run *executor.Run) (string, error) {
	history, err := run.Memory.History(ctx)
	if err != nil {
		return "", fmt.Errorf("read the history: %w", err)
	}
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].Role == task.RoleUser {
			return history[i].FirstText(), nil
		}
	}
	return "", nil
}

func perform(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	text := run.Message.FirstText()
	if verb, rest, ok := strings.Cut(text, ":"); ok {
		switch verb {
		case "echo":
			return emit(ctx, out, "echo", task.Text(rest))
		case "ask":
			return out.Status(ctx, task.StateInputRequired, says(rest))
		case "message":
			return out.Reply(ctx, says(rest))
		case "fail":
			return out.Status(ctx, task.StateFailed, says(rest))
		case "reject":
			return out.Status(ctx, task.StateRejected, says(rest))
		}
	}
	command := strings.TrimSpace(text)
	switch command {
	case "hold":
		if err := out.Status(ctx, task.StateWorking, nil); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	case "auth":
		return out.Status(ctx, task.StateAuthRequired, says("Authenticate, then send any message to go on."))
	case "file":
		return emit(ctx, out, "file", task.Part{
			Kind: task.PartRaw, Raw: []byte("Hello from Holdfast.\n"), Filename: "hello.txt", MediaType: "text/plain",
		})
	case "data":
		return emit(ctx, out, "data", task.Part{Kind: task.PartData, Data: []byte(sampleData)})
	case "crash":
		panic("demo: crash, as the script asked")
	}
	switch {
	case strings.HasPrefix(command, "chunks="):
		return chunks(ctx, run, out, command)
	case strings.HasPrefix(command, "sleep="):
		return sleep(ctx, out, command)
	case strings.HasPrefix(command, "wait="):
		return park(ctx, out, command)
	case strings.HasPrefix(command, "steps="):
		return steps(ctx, out, command)
	case strings.HasPrefix(command, "call="), strings.HasPrefix(command, "relay="):
		return call(ctx, out, command)
	}
	return emit(ctx, out, "echo", run.Message.Parts...)
}

// sampleData has details that careless JSON handling loses: the order of keys, an integer beyond 2^53, a fraction of
// zero.
const sampleData = `{"greeting":"hello","big":12345678901234567890,"float":1.0,"list":[1,"two",null,true],"a":{"z":1,"a":2}}`

// emit writes a whole artifact. Its id is its name, so that a retry after a crash replaces the artifact instead of
// adding another.
func emit(ctx context.Context, out executor.Emitter, name string, parts ...task.Part) error {
	err := out.Artifact(ctx, executor.Chunk{
		Artifact: task.Artifact{ID: name, Name: name, Parts: parts},
		Last:     true,
	})
	return err
}

func says(text string) *task.Message {
	return &task.Message{Parts: []task.Part{task.Text(text)}}
}

func sleep(ctx context.Context, out executor.Emitter, command string) error {
	wait, err := duration("sleep", strings.TrimPrefix(command, "sleep="))
	if err != nil {
		return err
	}
	if err := out.Status(ctx, task.StateWorking, nil); err != nil {
		return err
	}
	return pause(ctx, wait)
}

func steps(ctx context.Context, out executor.Emitter, command string) error {
	count, delay, delayed := strings.Cut(strings.TrimPrefix(command, "steps="), " delay=")
	n, err := number("steps", count, 1, maxChunks)
	if err != nil {
		return err
	}
	var wait time.Duration
	if delayed {
		if wait, err = duration("delay", delay); err != nil {
			return err
		}
	}
	for i := range n {
		if err := out.Status(ctx, task.StateWorking, says(fmt.Sprintf("step %d of %d", i+1, n))); err != nil {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

func park(ctx context.Context, out executor.Emitter, command string) error {
	command, interruptible := strings.CutSuffix(command, " interruptible")
	wait, err := duration("wait", strings.TrimPrefix(command, "wait="))
	if err != nil {
		return err
	}
	return out.Wait(ctx, executor.Wait{For: max(wait, 1), Interruptible: interruptible})
}

func waited(run *executor.Run) string {
	if run.Input.Interrupted {
		return "You ended the wait: " + run.Message.FirstText()
	}
	return "Waited."
}

func call(ctx context.Context, out executor.Emitter, command string) error {
	verb, args, _ := strings.Cut(command, "=")
	agents, script, scripted := strings.Cut(args, " ")
	var calls []executor.Call
	for agent := range strings.SplitSeq(agents, ",") {
		c := executor.Call{Agent: agent, Relay: verb == "relay"}
		if scripted {
			c.Message = says(script)
		}
		calls = append(calls, c)
	}
	if err := out.Call(ctx, calls); err != nil {
		return misused("%s: %v", command, err)
	}
	return nil
}

// results has a line for each result.
func results(all []executor.Result) string {
	var b strings.Builder
	for i := range all {
		r := &all[i]
		fmt.Fprintf(&b, "%s %s: %s\n", r.Agent, r.State, r.Error+r.Message.FirstText()+artifactText(r.Artifacts))
	}
	return b.String()
}

func artifactText(all []task.Artifact) (text string) {
	for i := range all {
		for j := range all[i].Parts {
			text += all[i].Parts[j].Text
		}
	}
	return text
}

func duration(name, value string) (time.Duration, error) {
	wait, err := time.ParseDuration(value)
	if err != nil || wait < 0 {
		return 0, misused("%s=%s: not a duration; write 20ms or 1.5s", name, value)
	}
	if wait > maxWait {
		return 0, misused("%s=%s: longer than the maximum of %v", name, value, maxWait)
	}
	return wait, nil
}

func misused(format string, args ...any) error {
	return &executor.Failure{Msg: fmt.Sprintf(format, args...)}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
