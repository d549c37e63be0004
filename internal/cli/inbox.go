package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
)

func (c *command) inbox() *cobra.Command {
	cmd := c.operators(&cobra.Command{
		Use: "inbox [ID [ANSWER]]", Short: "Show what agents ask people, and answer",
		Long: `List the tasks that wait for input or authentication, the newest first. With an ID, show the
whole question and the schema of its form. With an ANSWER, send it in the client's name. If
somebody has answered already, or the task has ended, the verb fails.`,
		Example: `  holdfast inbox
  holdfast inbox 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f Oslo`,
	}, true)
	agent := cmd.Flags().String("agent", "", "list only tasks of this agent")
	data := cmd.Flags().StringArray("data", nil, "answer with this JSON, as the schema of the question wants it; may be repeated")
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, args []string) error {
		var parts []any
		if len(args) == 2 {
			parts = append(parts, map[string]any{"text": args[1]})
		}
		for _, one := range *data {
			if !json.Valid([]byte(one)) {
				return usage(`--data: %q is not JSON; write {"city": "Oslo"}`, one)
			}
			parts = append(parts, map[string]any{"data": json.RawMessage(one)})
		}
		switch {
		case len(args) == 0 && len(parts) > 0:
			return usage("--data answers a question: name the ID of its task")
		case len(args) == 0:
			return c.questions(ctx, op, *agent)
		case len(parts) == 0:
			return c.showQuestion(ctx, op, args[0])
		}
		view := outcome{TaskID: args[0]}
		view.of(op.act(ctx, args[0], map[string]any{"parts": parts}, "answer"))
		return c.printOutcomes(ctx, []outcome{view}, exitOK, "TASK", "OUTCOME", "STATE")
	})
	return cmd
}

// mostQuestions bounds the list of questions.
const mostQuestions = 500

func (o *operator) questions(ctx context.Context, agent string) ([]shown.TaskDetail, error) {
	return paged(ctx, o, "/inbox", query("agent", agent), mostQuestions, func(p *shown.Inbox) ([]shown.TaskDetail, string) { return p.Tasks, p.Next })
}

func (c *command) questions(ctx context.Context, op *operator, agent string) error {
	rows, err := op.questions(ctx, agent)
	if err != nil {
		return err
	}
	lines := [][]string{{"TASK", "AGENT", "STATE", "SINCE", "TENANT", "OWNER", "QUESTION"}}
	for i := range rows {
		r := &rows[i]
		text := []rune(oneLine(questionOf(r).text))
		lines = append(lines, []string{r.TaskID, r.Agent, r.State.String(), stamp(r.StatusAt), r.Tenant, r.Owner, string(text[:min(len(text), 80)])})
	}
	return c.print(rows, lines)
}

// question is what a status message says: its texts, and its data, such as the schema of a form.
type question struct {
	text string
	data []json.RawMessage
}

func questionOf(d *shown.TaskDetail) (out question) {
	var message struct {
		Parts []struct {
			Text string          `json:"text"`
			Data json.RawMessage `json:"data"`
		} `json:"parts"`
	}
	_ = json.Unmarshal(d.StatusMessage, &message) // it was stored by the server; without a message there is nothing to show
	for _, p := range message.Parts {
		if p.Data != nil {
			out.data = append(out.data, p.Data)
		} else {
			out.text += p.Text + "\n"
		}
	}
	return out
}

func (c *command) showQuestion(ctx context.Context, op *operator, id string) error {
	d, err := op.find(ctx, id)
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(c.Out, d)
	}
	p, said := &printer{w: c.Out}, questionOf(d)
	p.field("task", d.TaskID)
	p.field("agent", d.Agent)
	p.field("state", d.State.String())
	p.field("since", stamp(d.StatusAt))
	p.field("tenant", d.Tenant)
	p.field("owner", d.Owner)
	p.line("%s", indented(said.text))
	for _, data := range said.data {
		p.line("%s", indented(string(data)))
	}
	return p.err
}
