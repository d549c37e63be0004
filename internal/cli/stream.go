package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/cli/client"
)

func (c *command) stream() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stream [URL] TEXT",
		Short: "Send a message to an agent and print events as they come",
		Long: `Send a message by A2A 0.3 and print its events until the task ends or parks. When the
connection breaks, the verb resumes the stream after the last printed event, so the output
has every event once. Pauses between attempts to resume grow to 5 s; the default number
of attempts lasts about half a minute.

Chunks of a text are printed as one text, with the number of the first one. With -o json
every event is one line of JSON.

Exit codes: 0 the task completed, or the agent answered with a message; 1 the call failed,
or the stream could not be resumed; 3 the task failed, or was rejected or canceled; 4 the
task waits for input or authentication; 130 interrupted. A broken stream never exits with
0.`,
		Example: `  holdfast stream "chunks=20 size=64 delay=100ms"
  holdfast stream http://127.0.0.1:8080/agents/weather "Oslo?" -o json | jq .kind`,
		Args: argCount(0, 2),
	}
	var r remote
	var o outgoing
	o.register(cmd)
	attempts := cmd.Flags().Int("attempts", 10, "how many attempts to resume may fail in a row")
	r.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		url, params, err := c.message(&o, args)
		if err != nil {
			return err
		}
		agent, err := c.client(url, &r)
		if err != nil {
			return err
		}
		out := c.answers(cmd.Context(), agent, &params, *r.output)
		state, taskID := "", ""
		err = agent.Follow(cmd.Context(), params, client.FollowOptions{
			Attempts: *attempts,
			Wait:     200 * time.Millisecond,
			MaxWait:  5 * time.Second,
			Cut: func(err error, after string) {
				out.endText()
				c.reportCut(err, after)
			},
		}, func(e *client.Event) error {
			if s := e.State(); s != "" {
				state = s
			}
			if id := e.TaskID(); id != "" {
				taskID = id
			}
			if *r.output == outputJSON {
				return printLine(c.Out, e.Raw)
			}
			out.event(e)
			return out.err
		})
		out.endText()
		if err != nil && taskID != "" && cmd.Context().Err() != nil {
			return &exitError{exitInterrupted, fmt.Errorf("interrupted; the task continues. Follow it with: holdfast tasks tail %s", printable(taskID))}
		}
		var cut *client.CutError
		if errors.As(err, &cut) && cut.TaskID != "" {
			return fmt.Errorf("%w\nThe task continues. Follow it with: holdfast tasks tail %s", err, printable(cut.TaskID))
		}
		if err != nil {
			return explain(err, agent.URL)
		}
		return verdict(state)
	}
	return cmd
}

func (c *command) reportCut(err error, after string) {
	if after == "" {
		c.note("The stream broke (%v); subscribing again. This server does not number events, so some may be missing.", err)
		return
	}
	c.note("The stream broke (%v); resuming after event %s.", err, after)
}
