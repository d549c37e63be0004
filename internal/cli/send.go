package cli

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/cli/client"
)

func (c *command) send() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send [URL] TEXT",
		Short: "Send a message to an agent and print the task",
		Long: `Send a message by A2A 0.3 and wait until the task ends or parks. URL is the agent's
endpoint; the default is HOLDFAST_URL, else http://127.0.0.1:8080. With "-" as the text,
the verb reads standard input.

Exit codes: 0 the task completed, or continues (with --no-wait, or because the server's
wait ended first); 1 the call failed; 3 the task failed, or was rejected or canceled; 4 the
task waits for input or authentication: answer with --task. The verb then leaves out the
artifacts of earlier turns, unless they have changed.`,
		Example: `  holdfast send "echo:hello"
  holdfast send "ask:which city?"
  holdfast send --task 0199a3c1-… "Oslo"
  holdfast send http://127.0.0.1:8080/agents/weather --data city.json --no-wait -o json`,
		Args: argCount(0, 2),
	}
	var r remote
	var o outgoing
	o.register(cmd)
	noWait := cmd.Flags().Bool("no-wait", false, "print the task as soon as it is stored")
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
		params.Blocking = !*noWait
		out := c.answers(cmd.Context(), agent, &params, *r.output)
		answer, err := agent.Send(cmd.Context(), params)
		if err != nil {
			return explain(err, agent.URL)
		}
		if *r.output == outputJSON {
			err = printRaw(c.Out, answer.Raw)
		} else {
			out.event(answer)
			err = out.err
		}
		if err != nil {
			return err
		}
		if answer.Task != nil && params.Blocking && !client.Settled(answer.State()) {
			c.note("The task continues; the server answered at the end of its wait. Show the task with: holdfast tasks get %s", answer.Task.ID)
		}
		return verdict(answer.State())
	}
	return cmd
}
