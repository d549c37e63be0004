package cli

import (
	"github.com/spf13/cobra"
)

// aboutServers is in the help of the verbs that send messages.
const aboutServers = `--url names the agent: its card says how to call it. Any A2A server will do, in versions 0.1
to 1.0, over JSON-RPC, HTTP+JSON and gRPC. Put credentials into a file of headers, and name it
with -H @FILE.

In a terminal, the verb asks for the answer to a question of the agent, and Ctrl-C asks
whether to cancel the task.`

// oneText accepts a text, or none.
func oneText(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("%q and %q are two texts; put quotes around a text of several words, and name the agent with --url", args[0], args[1])
	}
	return nil
}

func (c *command) send() *cobra.Command {
	cmd := &cobra.Command{
		Use: "send TEXT", Short: "Send a message to an agent and print the task",
		Long: `Send a message and wait until the task ends or parks. With "-" as the text, the verb reads
standard input. After an answer with --task it prints only artifacts that are new or have
changed.

` + aboutServers,
		Example: `  holdfast send "echo:hello"
  holdfast send --task 0199a3c1-… "Oslo"
  holdfast send "Read this" --file report.pdf --save answers
  holdfast send --url https://agents.example.com --agent weather --protocol 0.3 --binding http --data @city.json --no-wait -o json`,
		Args: oneText,
	}
	var flags talking
	var o outgoing
	o.register(cmd)
	noWait := cmd.Flags().Bool("no-wait", false, "print the task as soon as it is stored")
	flags.register(cmd)
	flags.attempts = 10
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := c.message(&o, args)
		if err != nil {
			return err
		}
		t, err := c.talk(cmd.Context(), &flags)
		if err != nil {
			return err
		}
		defer t.close()
		t.noWait = *noWait
		return t.run(cmd.Context(), m)
	}
	return cmd
}
