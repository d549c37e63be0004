// Command durableworker is a worker with durable programs for the faults. Each step appends a line to the file EFFECTS when it has its
// effect: the task, the attempt and the step.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	file, err := os.OpenFile(os.Getenv("EFFECTS"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		log.Error("no effects", "error", err)
		os.Exit(1)
	}
	e := effects{file}
	agents := map[string]agent.Executor{}
	for _, name := range []string{"programs", "below-0", "below-1", "below-2"} { // no agent may call itself
		agents[name] = agent.Durable(e.run)
	}
	err = agent.Connect(context.Background(), "", agents, agent.ConnectOptions{Concurrency: 20, Log: log})
	if err != nil {
		log.Error("not connected", "error", err)
		os.Exit(1)
	}
}

type effects struct{ file *os.File }

// step records a result after its effect.
func step[T any](ctx context.Context, e effects, run *agent.DurableRun, name string, f func(ctx context.Context) (T, error), o ...agent.StepOptions) (T, error) {
	return agent.Step(ctx, run, name, func(ctx context.Context) (T, error) {
		_, at, _ := strings.Cut(run.IdempotencyKey(ctx), "/")
		if _, err := fmt.Fprintln(e.file, run.TaskID, run.Attempt, at); err != nil { // one write
			var none T
			return none, err
		}
		return f(ctx)
	}, o...)
}

func (e effects) run(ctx context.Context, run *agent.DurableRun) error {
	name, rest, _ := strings.Cut(run.Message.Text(), " ")
	n, _ := strconv.Atoi(rest) // 0 without a number
	text, err := map[string]func(context.Context, *agent.DurableRun, int) (string, error){
		"refund": e.refund, "loop": e.loop, "nest": e.nest, "asks": e.asks, "streams": e.streams, "undo": e.undo, "sleep": e.sleep, "large": e.large,
	}[name](ctx, run, n)
	if err != nil {
		return err
	}
	return run.Text(ctx, "end", text)
}

func (e effects) refund(ctx context.Context, run *agent.DurableRun, _ int) (string, error) {
	order, err := step(ctx, e, run, "look up", func(ctx context.Context) (string, error) {
		return "order", errors.Join(run.Text(ctx, "", "Looking "), run.Text(ctx, "", "it up. "))
	})
	if err != nil {
		return "", err
	}
	answer, err := run.Ask(ctx, "approve", agent.Say("Refund?"))
	if err != nil {
		return "", err
	}
	if err := run.Text(ctx, "", answer.Text()+". "); err != nil {
		return "", err
	}
	tries := 0
	receipt, err := step(ctx, e, run, "refund", func(context.Context) (string, error) {
		if tries++; tries == 1 {
			return "", errors.New("busy")
		}
		return "receipt", nil
	}, agent.StepOptions{Retries: 5, Backoff: time.Millisecond})
	if err != nil {
		return "", err
	}
	if err := run.Sleep(ctx, "settle", 100*time.Millisecond); err != nil {
		return "", err
	}
	var feedback, survey agent.Result
	err = run.All(ctx, func(ctx context.Context) (err error) {
		feedback, err = run.Call(ctx, "feedback", agent.Call{Agent: "below-0", Message: agent.Say("loop 3")})
		return err
	}, func(ctx context.Context) (err error) {
		survey, err = run.Call(ctx, "survey", agent.Call{Agent: "below-1", Message: agent.Say("loop 4")})
		return err
	})
	if err != nil {
		return "", err
	}
	return order + " " + receipt + " " + said(&feedback) + " " + said(&survey), nil
}

// said is the last text of a called task.
func said(r *agent.Result) string {
	if len(r.Artifacts) == 0 {
		return string(r.State) + r.Error
	}
	last := r.Artifacts[len(r.Artifacts)-1]
	return last.Parts[0].Text
}

func (e effects) loop(ctx context.Context, run *agent.DurableRun, n int) (string, error) {
	sum := 0
	for i := range n {
		v, err := step(ctx, e, run, "add", func(context.Context) (int, error) { return i + 1, nil })
		if err != nil {
			return "", err
		}
		sum += v
	}
	return strconv.Itoa(sum), nil
}

func (e effects) nest(ctx context.Context, run *agent.DurableRun, n int) (string, error) {
	if n == 0 {
		return "0", nil
	}
	below, err := run.Call(ctx, "below", agent.Call{Agent: fmt.Sprint("below-", n-1), Message: agent.Sayf("nest %d", n-1)})
	if err != nil {
		return "", err
	}
	return step(ctx, e, run, "above", func(context.Context) (string, error) { return said(&below) + strconv.Itoa(n), nil })
}

func (e effects) asks(ctx context.Context, run *agent.DurableRun, _ int) (string, error) {
	var answers [3]string
	ask := func(i int) func(context.Context) error {
		return func(ctx context.Context) error {
			name := string(rune('a' + i))
			got, err := run.Ask(ctx, name, agent.Say(name+"?"))
			if err != nil {
				return err
			}
			answers[i], err = step(ctx, e, run, "hear "+name, func(context.Context) (string, error) { return name + got.Text(), nil })
			return err
		}
	}
	if err := run.All(ctx, ask(0), ask(1), ask(2)); err != nil {
		return "", err
	}
	last, err := run.Ask(ctx, "a", agent.Say("Sure?"))
	return strings.Join(answers[:], " ") + " " + last.Text(), err
}

func (e effects) streams(ctx context.Context, run *agent.DurableRun, n int) (string, error) {
	stream := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := step(ctx, e, run, name, func(ctx context.Context) (string, error) {
				for i := range n {
					if err := run.Text(ctx, "", fmt.Sprint(name, i, " ")); err != nil {
						return "", err
					}
				}
				return "", nil
			})
			return err
		}
	}
	if err := errors.Join(stream("first")(ctx), run.Text(ctx, "", "between ")); err != nil {
		return "", err
	}
	return "streamed", errors.Join(run.All(ctx, stream("left"), stream("right")), stream("last")(ctx))
}

func (e effects) undo(ctx context.Context, run *agent.DurableRun, _ int) (string, error) {
	_, err := step(ctx, e, run, "pay", func(context.Context) (int, error) { return 0, errors.New("no money") })
	var failed *agent.StepError
	if !errors.As(err, &failed) {
		return "", err
	}
	undone, err := step(ctx, e, run, "undo", func(context.Context) (string, error) { return "undone after ", nil })
	return undone + failed.Message, err
}

func (e effects) sleep(ctx context.Context, run *agent.DurableRun, n int) (string, error) {
	for i := range n {
		if err := run.Sleep(ctx, "nap", 50*time.Millisecond); err != nil {
			return "", err
		}
		if _, err := step(ctx, e, run, "wake", func(context.Context) (int, error) { return i, nil }); err != nil {
			return "", err
		}
	}
	return "awake", nil
}

func (e effects) large(ctx context.Context, run *agent.DurableRun, n int) (string, error) {
	size := 0
	for range n {
		text, err := step(ctx, e, run, "read", func(context.Context) (string, error) { return strings.Repeat("x", 250_000), nil })
		if err != nil {
			return "", err
		}
		size += len(text)
	}
	return strconv.Itoa(size), nil
}
