package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	wire "github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

func (c *command) card() *cobra.Command {
	cmd := &cobra.Command{
		Use: "card", Short: "Show an agent's card",
		Long: `--url is the URL of the agent, or that of its card if it ends in .json.

With --signing-keys, a key in the file must have signed the card. The verb fetches no keys
from where the card says that they are: get them from a server that you trust.`,
		Example: `  holdfast card
  curl -s https://agents.example.com/.well-known/jwks.json > keys.json
  holdfast card --url https://agents.example.com --signing-keys keys.json`,
	}
	var r remote
	r.register(cmd)
	keysFile := cmd.Flags().String("signing-keys", "", "file of a JSON Web Key Set, or of public keys in PEM, one of which must have signed the card")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := c.options(&r)
		if err != nil {
			return err
		}
		card, err := client.ReadCard(cmd.Context(), o)
		if err != nil {
			return explain(err)
		}
		if *keysFile != "" {
			if err := verifyCard(card.Raw, *keysFile); err != nil {
				return err
			}
		}
		if c.json() {
			return printRaw(c.Out, card.Raw)
		}
		p := &printer{w: c.Out}
		if *keysFile != "" {
			p.line("signed by a key in %s", *keysFile)
		}
		return printCard(p, card)
	}
	return cmd
}

// verifyCard returns an error unless a key in a file has signed a card.
func verifyCard(document []byte, keysFile string) error {
	text, err := os.ReadFile(keysFile)
	if err != nil {
		return usage("--signing-keys: %v", err)
	}
	keys, err := wire.ParseKeys(text)
	if err != nil {
		return usage("--signing-keys: %s: %v", keysFile, err)
	}
	if _, err := keys.Verify(document, maxCardDepth); err != nil {
		return fmt.Errorf("the card is not signed by a key in %s: %w", keysFile, err)
	}
	return nil
}

// maxCardDepth bounds the nesting of a card that is verified.
const maxCardDepth = 64

func printCard(p *printer, card *client.Document) error {
	p.line("%s %s", card.Name, card.Version)
	if card.Description != "" {
		p.line("%s", card.Description)
	}
	p.line("")
	var before []string
	for _, i := range card.Interfaces {
		numbers := strings.SplitN(i.Version+".", ".", 3) // 0.3 and 0.3.0 are one version
		text := fmt.Sprintf("A2A %s.%s, %s: %s", numbers[0], numbers[1], i.Binding, i.URL)
		if !slices.Contains(before, text) {
			p.field("interface", text)
		}
		before = append(before, text)
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
