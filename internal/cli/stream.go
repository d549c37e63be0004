package cli

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
)

func (c *command) stream() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stream [TEXT]", Short: "Send a message to an agent and print events as they come",
		Long: `Send a message and print its events until the task ends or parks. Without a message, --task
follows a task that exists.

` + aboutServers + `

When the connection breaks, the verb resumes the stream after the last printed event, so the
output has every event once. If the server does not number events, it reads the task until it
settles. A broken stream never exits with 0. With -o json every event is one line, as the
server wrote it.`,
		Example: `  holdfast stream "chunks=20 size=64 delay=100ms"
  holdfast stream --task 0199a3c1-… --after 17-9f04a1c3`,
		Args: oneText,
	}
	var flags talking
	var o outgoing
	o.register(cmd)
	cmd.Flags().IntVar(&flags.attempts, "attempts", 10, "how many attempts to resume may fail in a row")
	after := cmd.Flags().String("after", "", "without a message: the id of the event after which to begin")
	cmd.Flags().BoolVarP(&flags.numbers, "verbose", "v", false, "print the ids of events, which --after takes")
	flags.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		joins := o.task != "" && o.bare() && len(args) == 0
		if *after != "" && !joins {
			return usage("--after needs --task, and no message")
		}
		var m *client.Message
		if !joins {
			var err error
			if m, err = c.message(&o, args); err != nil {
				return err
			}
		}
		if joins && flags.listen != "" {
			return usage("--listen needs a message: notifications are asked for with it")
		}
		t, err := c.talk(cmd.Context(), &flags)
		if err != nil {
			return err
		}
		defer t.close()
		t.streams = true
		if joins {
			return t.join(cmd.Context(), o.task, *after)
		}
		return t.run(cmd.Context(), m)
	}
	return cmd
}
