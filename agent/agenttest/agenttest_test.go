package agenttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/agenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTurnsOfAConversation(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		if run.Turn == 1 {
			return out.AskInput(ctx, agent.Say("Where to?"))
		}
		history, err := run.History(ctx)
		if err != nil {
			return err
		}
		return out.Artifact(ctx, agent.Text("trip", fmt.Sprintf("%s: %s", history[0].Text(), run.Text())))
	}))
	first := task.Say("Book a trip").Want("working", `input-required: "Where to?"`)
	require.Equal(t, agent.InputRequired, task.State())
	require.Equal(t, "Where to?", first.Message().Text())
	second := task.Say("Oslo").Want("working", `artifact trip: "Book a trip: Oslo"`, "completed")
	require.Equal(t, agent.Completed, second.State())
	first.Want("working", `input-required: "Where to?"`)
	require.Equal(t, "Book a trip: Oslo", task.Text())
	var said []string
	for _, m := range task.Messages() {
		said = append(said, string(m.Role)+": "+m.Text())
	}
	require.Equal(t, []string{"user: Book a trip", "agent: Where to?", "user: Oslo"}, said)
}

func TestTextsOfANameAreOneArtifact(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		for _, piece := range []string{"Hello, ", run.Text(), "!"} {
			if err := out.Text(ctx, "", piece); err != nil {
				return err
			}
		}
		if err := out.Text(ctx, "notes", "polite"); err != nil {
			return err
		}
		if run.Try == 1 {
			return agent.Retryable(errors.New("once more"), 0)
		}
		return nil
	}))
	turn := task.Say("Ada")
	require.Equal(t, agent.Completed, turn.State())
	require.Equal(t, "Hello, Ada!polite", task.Text(), "another try replaces what the one before has left")
	found := map[string]string{}
	for _, a := range task.Artifacts() {
		found[a.ID] = a.Parts[0].Text
	}
	require.Equal(t, map[string]string{"text-1": "Hello, Ada!", "notes-1": "polite"}, found)
}

// Each agent gets one message. In a bubble no agent takes time. The rules are the worker's own; this only shows that they
// are there, and how failures read for clients.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	returns := func(err error) agent.Func {
		return func(context.Context, *agent.Run, agent.Emitter) error { return err }
	}
	for name, c := range map[string]struct {
		agent   agent.Func
		options agenttest.Options
		want    []string
		err     string
	}{
		"error":   {returns(errors.New("secret")), agenttest.Options{}, []string{"working", `failed: "The agent failed."`}, "secret"},
		"failure": {returns(agent.Failure("No text.", errors.New("secret"))), agenttest.Options{}, []string{"working", `failed: "No text."`}, "No text.: secret"},
		"panic": {
			func(context.Context, *agent.Run, agent.Emitter) error { panic("secret") },
			agenttest.Options{},
			[]string{"working", `failed: "The agent crashed."`},
			"The agent crashed.: panic: secret",
		},
		"tries": {
			returns(agent.Retryable(agent.Failure("Not now.", errors.New("busy")), 0)),
			agenttest.Options{MaxAttempts: 2},
			[]string{"working", "retry: Not now.: busy", `failed: "Not now."`},
			"Not now.: busy",
		},
		"run timeout": {
			block,
			agenttest.Options{RunTimeout: time.Hour},
			[]string{"working", `working: "busy"`, `failed: "The agent did not finish within 1h0m0s."`},
			agent.ErrTimeout.Error(),
		},
		"inactivity timeout": {
			block,
			agenttest.Options{InactivityTimeout: time.Hour},
			[]string{"working", `working: "busy"`, `failed: "The agent was silent for more than 1h0m0s."`},
			agent.ErrInactivity.Error(),
		},
		"reply": {
			func(ctx context.Context, _ *agent.Run, out agent.Emitter) error {
				return out.Reply(ctx, agent.Say("hi"))
			},
			agenttest.Options{DirectReplies: true},
			[]string{`reply: "hi"`},
			"",
		},
		"artifacts": {
			func(ctx context.Context, _ *agent.Run, out agent.Emitter) error {
				return out.Artifact(ctx, agent.Text("a", "12345"))
			},
			agenttest.Options{MaxArtifacts: 4},
			[]string{"working", `failed: "The agent's artifacts exceed the limit of 4 bytes for one task."`},
			"the artifacts of the task exceed max_artifacts",
		},
		// An agent that is away is tried again without end on a server; here until it is back.
		"away": {
			func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
				if run.Attempt < 3 {
					return agent.Unavailable(errors.New("no model"), 0)
				}
				return out.Complete(ctx, agent.Sayf("try %d", run.Try))
			}, agenttest.Options{}, []string{"working", "away: no model", `completed: "try 1"`}, "no model",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.options.Patience = 3 * time.Hour
				turn := agenttest.New(t, c.agent, c.options).Say("hi")
				turn.Want(c.want...)
				cause, _, _ := strings.Cut(turn.Err(), "\n") // the rest is a stack
				require.Equal(t, c.err, cause)
			})
		})
	}
}

// block emits working with a message, and waits until its context ends.
func block(ctx context.Context, run *agent.Run, out agent.Emitter) error {
	if run.Try > 1 || run.Attempt > 1 {
		return out.Complete(ctx, agent.Sayf("try %d", run.Try))
	}
	if err := out.Working(ctx, agent.Say("busy")); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	causes := make(chan error, 1)
	task := agenttest.New(t, agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		if run.Text() == "ask" {
			return out.AskAuth(ctx, agent.Say("Sign in."))
		}
		err := block(ctx, run, out)
		causes <- err
		return err
	}))
	turn := task.Start(agent.Say("hi")).Await(`working: "busy"`)
	task.Cancel()
	require.ErrorIs(t, <-causes, agent.ErrCanceled)
	turn.Wait().Want(`working`, `working: "busy"`, "canceled")
	require.Equal(t, agent.Canceled, task.State())

	question := task.Another()
	turn = question.Say("ask")
	question.Cancel()
	turn.Want("working", `auth-required: "Sign in."`, "canceled")
}

func TestLostLease(t *testing.T) {
	t.Parallel()
	late := make(chan error, 1)
	task := agenttest.New(t, agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		err := block(ctx, run, out)
		if run.Try == 1 {
			late <- out.Complete(context.WithoutCancel(ctx), agent.Say("too late"))
		}
		return err
	}))
	turn := task.Start(agent.Say("hi")).Await(`working: "busy"`)
	task.LoseLease()
	turn.Wait().Want("working", `working: "busy"`, "lost", `completed: "try 2"`)
	if err := <-late; err != nil {
		require.ErrorIs(t, err, agent.ErrLeaseLost)
	}
	turn.Want("working", `working: "busy"`, "lost", `completed: "try 2"`)
	require.Equal(t, 2, turn.Tries())
}

func TestRestart(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, agent.Func(block))
	turn := task.Start(agent.Say("hi")).Await(`working: "busy"`)
	task.Restart()
	turn.Wait().Want("working", `working: "busy"`, "returned", `completed: "try 1"`)
}

func TestWaits(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		switch {
		case run.Input == nil:
			return out.Wait(ctx, agent.Wait{For: time.Hour, Interruptible: true})
		case run.Input.Interrupted:
			return out.Wait(ctx, agent.Wait{For: time.Hour})
		}
		return out.Complete(ctx, agent.Sayf("turn %d", run.Turn))
	}))
	first := task.Say("hi").Want("working", "waits")
	require.True(t, time.Now().Before(first.Events()[1].Until))
	task.Say("hurry").Want("waits")
	task.Wake().Want(`completed: "turn 3"`)
}

func TestCalls(t *testing.T) {
	t.Parallel()
	task := agenttest.New(t, agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		if run.Input == nil {
			return out.Call(ctx, agent.Call{Agent: "flights", Message: agent.Say("Oslo")}, agent.Call{ID: "h", Agent: "hotels", Message: agent.Say("Oslo")})
		}
		require.Equal(t, agent.Calls, run.Input.Source)
		first, second := run.Input.Results[0], run.Input.Results[1]
		if second.State == agent.InputRequired {
			return out.Call(ctx, agent.Call{TaskID: second.TaskID, Message: agent.Say("center")}, agent.Call{Agent: "cars", Message: agent.Say("Oslo")})
		}
		return out.Complete(ctx, agent.Sayf("%s %s, %s", first.ID, first.Artifacts[0].Parts[0].Text, second.Error))
	}))
	called := task.Say("hi").Want("working", "calls flights, hotels").Events()[1].Calls
	require.Equal(t, "Oslo", called[1].Message.Text())
	flight := agent.Result{Artifacts: []agent.Artifact{agent.Text("f", "DY 1303")}}
	question := agent.Say("Which part?")
	again := task.Return(flight, agent.Result{State: agent.InputRequired, Message: &question})
	require.NotEmpty(t, again.Events()[0].Calls[0].TaskID)
	task.Return(flight, agent.Result{State: agent.Rejected, Error: "no such agent"}).Want(`completed: "1 DY 1303, no such agent"`)
}

// A durable function goes on where it was: after a lost lease, a restart, an answer, a time and a result.
func TestDurable(t *testing.T) {
	t.Parallel()
	looked, paid := make(chan int, 9), make(chan int, 9)
	tries := 0
	task := agenttest.New(t, agent.Durable(func(ctx context.Context, run *agent.DurableRun) error {
		order, err := agent.Step(ctx, run, "look up", func(ctx context.Context) (string, error) {
			if err := run.Text(ctx, "", "Looking. "); err != nil {
				return "", err
			}
			if tries++; tries == 1 {
				looked <- tries
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return run.Message.Text(), nil
		})
		if err != nil {
			return err
		}
		answer, err := run.Ask(ctx, "approve", agent.Say("Refund "+order+"?"))
		if err != nil {
			return err
		}
		if err := run.Text(ctx, "", answer.Text()+", paying. "); err != nil {
			return err
		}
		if _, err := agent.Step(ctx, run, "pay", func(context.Context) (string, error) { paid <- 1; return "r-7", nil }); err != nil {
			return err
		}
		if err := run.Sleep(ctx, "settle", time.Hour); err != nil {
			return err
		}
		feedback, err := run.Call(ctx, "feedback", agent.Call{Agent: "feedback", Message: agent.Say(order)})
		if err != nil {
			return err
		}
		return run.Text(ctx, "", feedback.Artifacts[0].Parts[0].Text)
	}))
	turn := task.Start(agent.Say("order 7"))
	<-looked
	task.LoseLease()
	turn.Wait().Want("working", `artifact text: "Looking. "...`, "lost", `artifact text: "Looking. "...`, `input-required: "Refund order 7?"`)
	task.Say("Yes").Want("working", `artifact text: "Yes, paying. "...`, "waits")
	task.Wake().Want("calls feedback")
	task.Return(agent.Result{Artifacts: []agent.Artifact{agent.Text("f", "Fine.")}}).Want(`artifact text: "Fine."...`, "completed")
	require.Equal(t, "Looking. Yes, paying. Fine.", task.Text())
	require.Len(t, paid, 1)
}

// failing records the failures of a test.
type failing struct {
	testing.TB
	errors []string
}

func (f *failing) Helper() {}
func (f *failing) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	panic(f)
}

func (f *failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

func (f *failing) run(test func()) (errs []string) {
	defer func() {
		if v := recover(); v != nil && v != f {
			panic(v)
		}
		errs = f.errors
	}()
	test()
	return f.errors
}

func TestFailuresShowTheLog(t *testing.T) {
	t.Parallel()
	echo := agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		if run.Text() == "block" {
			<-ctx.Done()
		}
		return out.Complete(ctx, run.Message)
	})
	new := func(f *failing) *agenttest.Task { return agenttest.New(f, echo) }

	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		require.Equal(t, []string{"waited 1m0s for the end of turn 1; the log of the task:\n\tmessage: \"block\"\n\tworking\n"},
			f.run(func() { new(f).Say("block") }))
	})
	after := func(do func(*agenttest.Task)) func(*agenttest.Task) {
		return func(task *agenttest.Task) {
			task.Say("hi")
			do(task)
		}
	}
	const log = "\n\tworking\n\tcompleted: \"hi\"\n"
	for want, do := range map[string]func(*agenttest.Task){
		"turn 1:" + log + "want:\n\tworking\n\tcompleted\n": func(task *agenttest.Task) { task.Say("hi").Want("working", "completed") },
		"turn 1 ended without the event completed:" + log:   func(task *agenttest.Task) { task.Say("hi").Await("completed") },
		"no message yet":                   (*agenttest.Task).Cancel,
		"message 2: the task is completed": after(func(task *agenttest.Task) { task.Say("again") }),
		"has no run":                       after((*agenttest.Task).LoseLease),
		"does not wait":                    after(func(task *agenttest.Task) { task.Wake() }),
	} {
		f := &failing{TB: t}
		errs := f.run(func() { do(new(f)) })
		require.Len(t, errs, 1, want)
		require.Contains(t, errs[0], want)
	}
}

// booking is an agent whose work goes on elsewhere: Cancel is told what to end.
type booking struct {
	agent.Func
	told chan string
}

func (b *booking) Cancel(ctx context.Context, c *agent.Cancellation) error {
	if c.Try == 1 {
		return agent.Retryable(errors.New("the office is closed"), time.Minute)
	}
	var job, page string
	if _, err := c.State(ctx, agent.OfTask, &job); err != nil {
		return err
	}
	if _, err := c.Checkpoint(&page); err != nil {
		return err
	}
	b.told <- fmt.Sprintln(c.Reason, c.Reason.Ended(), job, page, string(c.Metadata), c.Turn, c.IdempotencyKey() != "")
	return nil
}

func TestAgentIsToldOfCancel(t *testing.T) {
	t.Parallel()
	book := func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		if _, err := run.SetState(ctx, agent.OfTask, "job 7", agent.AnyVersion); err != nil {
			return err
		}
		if err := out.Checkpoint(ctx, "page 3"); err != nil {
			return err
		}
		if run.Text() == "block" {
			if err := out.Working(ctx, agent.Say("stored")); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return out.AskInput(ctx, agent.Say("Where to?"))
	}
	for _, text := range []string{"ask", "block"} {
		b := &booking{Func: book, told: make(chan string, 1)}
		task := agenttest.New(t, b)
		if text == "ask" {
			task.Say(text)
		} else {
			task.Start(agent.Say(text)).Await(`working: "stored"`)
		}
		task.CancelWith(json.RawMessage(`{"why":"x"}`))
		require.Equal(t, "canceled true job 7 page 3 {\"why\":\"x\"} 1 true\n", <-b.told, text)
		require.Equal(t, []time.Duration{time.Minute}, task.Delays(), text)
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	var urls []string
	k := agenttest.New(t, agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		urls = append(urls, run.ResumeURL)
		if run.Input == nil {
			return out.Ask(ctx, agent.Ask{Auth: true, Message: agent.Say("Sign in."), Resume: &agent.Resume{}})
		}
		require.Equal(t, agent.Callback, run.Input.Source)
		require.Empty(t, run.Message.Parts)
		return out.Complete(ctx, agent.Say(run.Input.Resumed.Method+" "+string(run.Input.Resumed.Body)))
	}))
	k.Say("hi").Want("working", `auth-required: "Sign in."`)
	k.Resume(agent.Resumed{Method: "POST", Body: []byte("yes")}).Want("working", `completed: "POST yes"`)
	require.Len(t, urls, 2)
	require.NotEqual(t, urls[0], urls[1])
}
