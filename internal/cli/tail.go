package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func (c *command) tasksTail() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tail [ID]", Short: "Follow a task's log, or the events of all tasks",
		Long: `With an ID, print the task's log and follow it until the task ends or parks. Without one,
follow the new events of all tasks, or of those that the filters select. With --state, print
only changes to that state.

When the database or the server goes away, the verb waits, and continues after the last
printed event. A lost connection never exits with 0. With -o json every event is one line.`,
		Example: `  holdfast tasks tail 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f
  holdfast tasks tail 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f --after 40 -o json`,
	}
	var t tail
	flags := cmd.Flags()
	flags.Int64Var(&t.after, "after", 0, "with an ID: print only events after this number")
	flags.BoolVar(&t.parked, "follow-parked", false, "with an ID: continue while the task is parked")
	filterFlags(cmd, "only tasks %s")
	flags.DurationVar(&t.retryFor, "retry-for", 0, "how long the database may be away (default: forever)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f := given(cmd, filterNames...)
		switch {
		case len(args) == 1 && len(f) > 0:
			return usage("--agent, --state, --context, --tenant and --owner select among all tasks; remove them or the ID %s", args[0])
		case len(args) == 0 && (t.after != 0 || t.parked):
			return usage("--after and --follow-parked need the ID of a task")
		case t.after < 0:
			return usage("--after must not be negative")
		}
		t.c, t.outage = c, outage{c: c, limit: t.retryFor}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			t.op = op
			if len(args) == 1 {
				return t.one(ctx, args[0])
			}
			return t.all(ctx, f)
		})
	}
	return cmd
}

// tail is one call of the verb.
type tail struct {
	c        *command
	op       *operator
	after    int64
	parked   bool
	retryFor time.Duration
	outage   outage
}

// one follows one task. A state is certain only together with the length of its log; the header has both.
func (t *tail) one(ctx context.Context, id string) error {
	d, err := t.op.find(ctx, id)
	if err != nil {
		return naming(id, err)
	}
	h, seen := &d.Task, task.Seq(t.after)
	if seen > h.LastSeq {
		return usage("--after: %d is beyond the log of %s, which has %d events", seen, id, h.LastSeq)
	}
	err = t.follow(ctx, h, &seen)
	if errors.Is(err, context.Canceled) {
		return &exitError{exitInterrupted, fmt.Errorf("interrupted; continue with: holdfast tasks tail %s --after %d", printable(id), seen)}
	}
	return err
}

func (t *tail) follow(ctx context.Context, h *shown.Task, seen *task.Seq) error {
	for {
		for *seen < h.LastSeq {
			evs, err := t.op.events(ctx, h, *seen)
			if again, err := t.outage.over(ctx, err); err != nil {
				return err
			} else if again {
				continue
			}
			if len(evs) == 0 {
				return fmt.Errorf("the log of %s was deleted after event %d was printed", h.TaskID, *seen)
			}
			for _, e := range evs {
				if err := t.show(h, e, false); err != nil {
					return err
				}
				*seen = e.Seq
			}
		}
		// Events after the header mean that its state is old.
		if state := h.State; *seen == h.LastSeq && (state.Terminal() || state.Parked() && !t.parked) {
			return verdict(state)
		}
		if *seen == h.LastSeq {
			if err := sleep(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		fresh, err := t.op.find(ctx, h.ID.String())
		if again, err := t.outage.over(ctx, err); err != nil {
			return naming(h.TaskID, err)
		} else if again {
			continue
		}
		if fresh.LastSeq < *seen {
			return fmt.Errorf("the log of %s ends with event %d, but event %d was printed before; was the database restored from a backup?",
				fresh.TaskID, fresh.LastSeq, *seen)
		}
		h = &fresh.Task
	}
}

// all follows every task.
func (t *tail) all(ctx context.Context, f url.Values) error {
	w := newWatch(t.op, f)
	begun := false
	for {
		evs, err := w.next(ctx)
		if again, err := t.outage.over(ctx, err); err != nil {
			return err
		} else if again {
			continue
		}
		if !begun {
			begun = true
			t.c.note("Following the events of all tasks from now on.")
		}
		for _, e := range evs {
			if only := f["state"]; len(only) > 0 && (e.Kind != task.EventStatus || !slices.Contains(only, e.State.String())) {
				continue
			}
			if err := t.show(e.task, e.logged, true); err != nil {
				return err
			}
		}
	}
}

func (t *tail) show(h *shown.Task, e *logged, named bool) error {
	if t.c.json() {
		return printLine(t.c.Out, tailView{h.ID, h.TaskID, h.Agent, h.ContextID, e.stored})
	}
	p := &printer{w: t.c.Out}
	if named {
		p.line("%s %s", h.TaskID, h.Agent)
	}
	p.storedEvent(e.Event)
	return p.err
}

// await polls a task until done accepts its state, for at most timeout.
func (c *command) await(ctx context.Context, op *operator, h *shown.Task, timeout time.Duration, done func(task.State) bool) (*shown.Task, error) {
	o := outage{c: c, limit: timeout}
	say, stop := c.during("waiting for task " + h.TaskID)
	defer stop()
	for began := time.Now(); !done(h.State); {
		if time.Since(began) > timeout {
			return h, fmt.Errorf("the task is still %s after %s", h.State, timeout)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return h, err
		}
		fresh, err := op.find(ctx, h.ID.String())
		if again, err := o.over(ctx, err); err != nil {
			return h, err
		} else if again {
			continue
		}
		h = &fresh.Task
		say("task " + h.TaskID + ": " + lineText(h))
	}
	return h, nil
}

// naming adds the task's id to an error.
func naming(id string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("task %s: %w", id, err)
}
