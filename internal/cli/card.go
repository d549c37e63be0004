package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/cli/client"
)

func (c *command) card() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "card [URL]",
		Short: "Show an agent's card",
		Long: `Show the card in which an agent describes itself. URL is the agent's, or that of its card
if it ends in .json. The default is HOLDFAST_URL, else http://127.0.0.1:8080.`,
		Example: `  holdfast card
  holdfast card http://127.0.0.1:8080/agents/weather -o json`,
		Args: argCount(0, 1),
	}
	var r remote
	r.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		url := ""
		if len(args) == 1 {
			url = args[0]
		}
		o, err := c.options(url, &r)
		if err != nil {
			return err
		}
		card, err := client.ReadCard(cmd.Context(), o)
		if err != nil {
			return explain(err)
		}
		if *r.output == outputJSON {
			return printRaw(c.Out, card.Raw)
		}
		return printCard(&printer{w: c.Out}, card)
	}
	return cmd
}

func printCard(p *printer, card *client.Document) error {
	p.line("%s %s", card.Name, card.Version)
	if card.Description != "" {
		p.line("%s", card.Description)
	}
	p.line("")
	for _, i := range card.Interfaces {
		p.field("interface", fmt.Sprintf("A2A %s, %s: %s", i.Version, i.Binding, i.URL))
	}
	if card.Provider != nil {
		p.field("provider", strings.TrimSpace(card.Provider.Organization+" "+card.Provider.URL))
	}
	p.field("streaming", yesNo(card.Capabilities.Streaming))
	p.field("webhooks", yesNo(card.Capabilities.PushNotifications))
	p.field("reads", strings.Join(card.InputModes, ", "))
	p.field("writes", strings.Join(card.OutputModes, ", "))
	for _, s := range card.Skills {
		p.line("")
		p.line("skill %s: %s", s.ID, s.Name)
		if s.Description != "" {
			p.line("  %s", s.Description)
		}
		for _, e := range s.Examples {
			p.line("  such as %s", fmt.Sprintf("%q", e))
		}
	}
	return p.err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
