package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func (c *command) tasks() *cobra.Command {
	return c.operators(&cobra.Command{
		Use: "tasks", Short: "Show, cancel, retry, hold and delete tasks",
		Long: `An ID is the id that clients use for the task, or its UUID. Without --server, no server needs
to run; running servers get a hint of each change.`,
		Example: `  holdfast tasks list --state failed
  holdfast tasks tail --agent weather`,
	}, true, c.tasksList(), c.tasksGet(), c.tasksEvents(), c.tasksTail(), c.tasksCancel(), c.tasksRetry(), c.tasksHold(), c.tasksRelease(), c.tasksPurge())
}

func (c *command) tasksList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List tasks, newest first",
		Long: `STATUS says what a task does or waits for. A terminal shows AGE and MESSAGE (what the client
said); otherwise SINCE is when the task reached its state, and EVENTS the length of its log.
-o wide has everything.`,
		Example: `  holdfast tasks list --state working
  holdfast tasks list --tenant acme --owner alice`,
	}
	flags := cmd.Flags()
	flags.String("reason", "", "only tasks that failed for this reason")
	storedFlags(cmd, "only tasks %s")
	limit := flags.Int("limit", 50, atMost)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		rows, err := op.tasks(ctx, given(cmd, append(storedNames, "reason")...), *limit)
		if err != nil {
			return err
		}
		return c.printTasks(rows)
	})
	return cmd
}

func (c *command) printTasks(rows []shown.Task) error {
	lines := [][]string{{"TASK", "AGENT", "STATE", "EVENTS", "SINCE", "TENANT", "OWNER", "CONTEXT", "STATUS"}}
	switch {
	case c.forPerson():
		lines[0] = []string{"TASK", "AGENT", "STATE", "AGE", "MESSAGE", "STATUS"}
	case c.output == outputWide:
		lines[0] = append(lines[0], "MESSAGE")
	}
	for i := range rows {
		r := &rows[i]
		line := []string{r.TaskID, r.Agent, r.State.String(), fmt.Sprint(r.LastSeq), stamp(r.StatusAt), r.Tenant, r.Owner, r.ContextID, lineText(r), oneLine(r.Said)}
		if c.forPerson() {
			line = []string{r.TaskID, r.Agent, r.State.String(), stamp(r.CreatedAt), r.Said, lineText(r)}
		}
		lines = append(lines, line[:len(lines[0])])
	}
	return c.print(rows, lines)
}

// lineText is what a task does or waits for.
func lineText(t *shown.Task) string {
	if t.Line == nil {
		return ""
	}
	return oneLine(t.Line.Text)
}

func (c *command) tasksGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show a task with its history and artifacts",
		Long: `Show a task: owner, state, what it does or waits for and whose turn it is, messages,
artifacts, calls, and the error of the newest run that failed. The JSON is Holdfast's own
format, not that of an A2A version.`,
		Example: `  holdfast tasks get 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f
  holdfast tasks get order-7 -o json`,
		RunE: c.operate(func(ctx context.Context, op *operator, args []string) error {
			d, err := op.find(ctx, args[0])
			if err != nil {
				return err
			}
			t, err := op.whole(ctx, &d.Task)
			if err != nil {
				return err
			}
			var calls shown.Lineage
			if err := op.api.Get(ctx, adminclient.OfTask(t.ID.String(), "lineage"), nil, &calls); err != nil {
				return err
			}
			failure, err := failureOf(ctx, op, &d.Task, t.Status.State)
			if err != nil {
				return err
			}
			if c.json() {
				v, err := viewTask(d, t, &calls, failure)
				if err != nil {
					return err
				}
				return printJSON(c.Out, v)
			}
			return printStoredTask(&printer{w: c.Out}, d, t, &calls, failure)
		}),
	}
}

// failureView is a run that failed.
type failureView struct {
	Seq     task.Seq     `json:"seq"`
	At      time.Time    `json:"at"`
	Attempt task.Attempt `json:"attempt"`
	Outcome string       `json:"outcome"` // as in view v_runs
	Error   string       `json:"error"`
}

// failureTail is how many of the newest events failureOf looks at.
const failureTail = 100

// failureOf returns the newest run of a task that failed; nil: the end of the log has no such run, or the task has ended well.
func failureOf(ctx context.Context, op *operator, t *shown.Task, state task.State) (*failureView, error) {
	if state == task.StateCompleted || state == task.StateCanceled {
		return nil, nil //nolint:nilnil // absence is an answer here and no failure
	}
	evs, err := op.events(ctx, t, max(0, t.LastSeq-failureTail))
	if err != nil {
		return nil, err
	}
	for _, e := range slices.Backward(evs) {
		v := &failureView{Seq: e.Seq, At: e.At.UTC(), Attempt: e.Attempt}
		switch {
		case e.Kind == task.EventStatus && (e.State == task.StateFailed || e.State == task.StateRejected):
			v.Outcome, v.Error = e.State.String(), cmp.Or(e.Cause, textOf(e.Message))
		case e.Run != nil && e.Run.Error != "":
			v.Outcome, v.Error = e.Run.Outcome, e.Run.Error
		}
		if v.Error != "" {
			return v, nil
		}
	}
	return nil, nil //nolint:nilnil // as above
}

// textOf returns the text of a message.
func textOf(m *task.Message) string {
	if m == nil {
		return ""
	}
	var texts []string
	for _, p := range m.Parts {
		if p.Kind == task.PartText {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func (c *command) tasksEvents() *cobra.Command {
	cmd := &cobra.Command{
		Use: "events ID", Short: "Show a task's log",
		Long: `Show a task's log, with the run notes that clients do not see: they record failed attempts,
checkpoints and steps. With -o json every event is one line, in the form of the admin API.`,
		Example: "  holdfast tasks events 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f --after 40",
	}
	after := cmd.Flags().Int64("after", 0, "print only events after this number")
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, args []string) error {
		t, err := op.find(ctx, args[0])
		if err != nil {
			return err
		}
		for from := task.Seq(*after); ; {
			events, err := op.events(ctx, &t.Task, from)
			if err != nil || len(events) == 0 {
				return err
			}
			if err := c.printEvents(events); err != nil {
				return err
			}
			from = events[len(events)-1].Seq
		}
	})
	return cmd
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
