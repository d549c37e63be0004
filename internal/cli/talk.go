package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// talking has the flags of a conversation with an agent.
type talking struct {
	remote
	noInput  bool
	cancel   bool
	save     string
	listen   string
	listenAs string
	attempts int
	numbers  bool
}

func (f *talking) register(cmd *cobra.Command) {
	f.registerCall(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.noInput, "no-input", false, "ask nothing in the terminal: a question of the agent exits with 4")
	flags.BoolVar(&f.cancel, "cancel-on-interrupt", false, "Ctrl-C also cancels the task (default: ask in a terminal, else leave it)")
	flags.StringVar(&f.save, "save", "", "directory to save the artifacts in")
	flags.StringVar(&f.listen, "listen", "", "receive the task's push notifications at this address and print them (without a value: at a free port of 127.0.0.1)")
	flags.Lookup("listen").NoOptDefVal = "127.0.0.1:0"
	flags.StringVar(&f.listenAs, "listen-url", "", "URL that leads the agent to --listen (default: its address)")
}

// follow returns how to follow tasks.
func (t *talk) follow() client.FollowOptions {
	return client.FollowOptions{Attempts: t.flags.attempts, Wait: 200 * time.Millisecond, MaxWait: 5 * time.Second, Cut: t.cut}
}

// talk is a conversation with an agent about one task.
type talk struct {
	*command
	flags    *talking
	agent    *client.Client
	streams  bool // print events instead of answers
	noWait   bool
	receiver *receiver // nil without --listen

	mu     sync.Mutex // guards what follows; notifications come at any time
	out    answers
	state  task.State
	taskID string
	lastID string

	input chan string // lines of the terminal; nil before the first question
}

// talk prepares a conversation. The caller calls close.
func (c *command) talk(ctx context.Context, flags *talking) (*talk, error) {
	agent, err := c.open(ctx, &flags.remote)
	if err != nil {
		return nil, err
	}
	t := &talk{command: c, flags: flags, agent: agent, out: answers{printer: printer{w: c.Out}, numbers: flags.numbers, fresh: map[string]bool{}}}
	if flags.listen != "" {
		if t.receiver, err = t.receive(ctx, flags.listen, flags.listenAs); err != nil {
			agent.Close()
			return nil, err
		}
	}
	return t, nil
}

func (t *talk) close() {
	if t.receiver != nil {
		t.receiver.close()
	}
	t.agent.Close()
}

// run sends a message, and the answers to the questions that come back.
func (t *talk) run(ctx context.Context, m *client.Message) error {
	t.taskID = m.TaskID
	if t.receiver != nil {
		m.Push = t.receiver.push
	}
	for {
		if !t.json() || t.flags.save != "" {
			t.out.begin(ctx, t.agent, m.TaskID)
		}
		err := t.turn(ctx, m)
		t.mu.Lock()
		t.out.endText()
		state, id := t.state, t.taskID
		t.mu.Unlock()
		if err != nil {
			return t.explained(ctx, err)
		}
		if state != task.StateInputRequired || !t.asks() {
			return t.end(ctx)
		}
		text, err := t.prompt(ctx)
		switch {
		case err != nil:
			return t.explained(ctx, err)
		case text == "":
			return t.end(ctx)
		}
		m = &client.Message{Parts: []task.Part{task.Text(text)}, TaskID: id, ContextID: m.ContextID, Push: m.Push}
	}
}

// turn sends a message and prints what comes back.
func (t *talk) turn(ctx context.Context, m *client.Message) error {
	if t.streams {
		return t.agent.Follow(ctx, m, t.follow(), t.event)
	}
	m.Return = t.noWait || t.receiver != nil
	answer, err := t.agent.Send(ctx, m)
	if err != nil {
		return err
	}
	if t.receiver != nil && !t.noWait {
		return t.agent.Await(ctx, answer, t.follow(), t.event)
	}
	if err := t.event(answer); err != nil {
		return err
	}
	if answer.Task != nil && !m.Return && !answer.State().Settled() {
		t.note("The task continues; the server answered at the end of its wait. Follow it with: %s", t.again())
	}
	return nil
}

// join follows a task without a message.
func (t *talk) join(ctx context.Context, taskID, after string) error {
	t.taskID = taskID
	if after == "" && t.agent.Resumes() {
		after = "0"
	}
	err := t.agent.Join(ctx, taskID, after, t.follow(), t.event)
	t.out.endText()
	if err != nil {
		return t.explained(ctx, err)
	}
	if t.state == task.StateInputRequired && t.asks() {
		text, err := t.prompt(ctx)
		if err != nil {
			return t.explained(ctx, err)
		}
		if text != "" {
			return t.run(ctx, &client.Message{Parts: []task.Part{task.Text(text)}, TaskID: taskID})
		}
	}
	return t.end(ctx)
}

// event prints an answer, or an event of a stream.
func (t *talk) event(e *client.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := e.State(); s != task.StateUnspecified {
		t.state = s
	}
	if e.TaskID != "" {
		t.taskID = e.TaskID
	}
	if e.ID != "" {
		t.lastID = e.ID
	}
	switch {
	case !t.json():
		t.out.event(e)
		return t.out.err
	case t.streams || t.receiver != nil:
		t.out.keep(e)
		return printLine(t.Out, e.Raw)
	}
	t.out.keep(e)
	return printRaw(t.Out, e.Raw)
}

func (t *talk) cut(err error, after string) {
	t.mu.Lock()
	t.out.endText()
	t.mu.Unlock()
	if after == "" {
		t.note("The stream broke (%s). This server does not number events, so the task itself is read until it settles.", plain(err))
		return
	}
	t.note("The stream broke (%s); resuming after event %s.", plain(err), printable(after))
}

// end saves the artifacts, waits for the last notification, and returns what the state means.
func (t *talk) end(ctx context.Context) error {
	if t.flags.save != "" {
		if err := t.saveArtifacts(t.flags.save); err != nil {
			return err
		}
	}
	if t.receiver != nil && !t.noWait && t.taskID != "" {
		if err := t.receiver.await(ctx, t.state); err != nil {
			return t.explained(ctx, err)
		}
	}
	return verdict(t.state)
}

// explained says what the user can do about an error.
func (t *talk) explained(ctx context.Context, err error) error {
	var cut *client.CutError
	switch {
	case ctx.Err() != nil && t.taskID != "":
		return t.interrupted(ctx)
	case ctx.Err() != nil:
		return &exitError{exitInterrupted, errors.New("interrupted before the server named a task; it may have one all the same")}
	case errors.As(err, &cut) && cut.TaskID != "":
		return fmt.Errorf("%w\nThe task continues. Follow it with: %s", err, t.again())
	case errors.Is(err, task.NotFound) && t.taskID != "":
		return fmt.Errorf("task %s: %w", printable(t.taskID), err)
	}
	return explain(err)
}

// again returns the command that follows the task from here on.
func (t *talk) again() string {
	words := append([]string{"holdfast", "stream"}, t.flags.again()...)
	words = append(words, "--task", t.taskID)
	if t.lastID != "" {
		words = append(words, "--after", t.lastID)
	}
	return printable(strings.Join(words, " "))
}

// cancelPatience is how long the cancel of an interrupted command may take.
const cancelPatience = 30 * time.Second

// interrupted ends a command after a signal. The task continues, unless the user wants it canceled.
func (t *talk) interrupted(ctx context.Context) error {
	cancel := t.flags.cancel
	if !cancel {
		t.note("\nInterrupted; the task continues. Follow it with: %s", t.again())
		if byInterrupt(ctx) && t.asks() {
			// The next Ctrl-C ends the process.
			t.note("Cancel the task? [y/N]")
			answer := strings.ToLower(strings.TrimSpace(<-t.lines()))
			cancel = answer == "y" || answer == "yes"
		}
	}
	if cancel {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
		defer stop()
		e, err := t.agent.Cancel(ctx, t.taskID)
		if err != nil {
			return &exitError{exitInterrupted, fmt.Errorf("the task could not be canceled: %w", err)}
		}
		t.note("Task %s is %s.", printable(t.taskID), stateName(e.State()))
	}
	return &exitError{code: exitInterrupted}
}

// byInterrupt reports whether Ctrl-C has ended the context.
func byInterrupt(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && strings.HasPrefix(cause.Error(), os.Interrupt.String())
}

// asks reports whether the user can answer questions: the command runs in a terminal.
func (t *talk) asks() bool {
	return !t.flags.noInput && !t.json() && isTerminal(t.Err) && readsTerminal(t.command)
}

func readsTerminal(c *command) bool {
	f, ok := c.In.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// lines reads the terminal. Only this conversation reads it from now on.
func (t *talk) lines() <-chan string {
	if t.input == nil {
		t.input = make(chan string)
		go func() {
			defer close(t.input)
			for s := bufio.NewScanner(t.In); s.Scan(); {
				t.input <- s.Text()
			}
		}()
	}
	return t.input
}

// prompt asks for the answer to a question. It returns "" at the end of the input.
func (t *talk) prompt(ctx context.Context) (string, error) {
	for {
		if _, err := fmt.Fprint(t.Err, "> "); err != nil {
			return "", err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case line, open := <-t.lines():
			if text := strings.TrimSpace(line); text != "" || !open {
				return text, nil
			}
		}
	}
}
