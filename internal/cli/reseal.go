package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
)

func (c *command) reseal() *cobra.Command {
	cmd := c.operators(&cobra.Command{
		Use: "reseal", Short: "Seal stored secrets with another key",
		Long: `Seal all secrets in the database with the first key of HOLDFAST_SECRET_KEYS
(push.secret_keys): tokens and credentials of webhooks, signing keys, and what open turns
need. Afterwards remove the older keys.

First give every replica the new key, behind the old one and then in front of it
(docs/security.md): a replica without it cannot read the newly sealed secrets. With
--server, the keys are those of the server. Secrets that cannot be opened do not change.`,
		Example: "  holdfast reseal",
	}, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.serverURL() == "" {
			cfg, err := c.load(configFlags(cmd.Flags()))
			if err != nil {
				return err
			}
			if len(cfg.Push.SecretKeys) == 0 {
				return usage("HOLDFAST_SECRET_KEYS has no key; make one with openssl rand -base64 32")
			}
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			var did shown.Resealed
			if err := op.post(ctx, "/secrets/reseal", nil, &did); err != nil {
				return err
			}
			var lost error
			if did.Error != "" {
				lost = errors.New(did.Error)
			}
			return errors.Join(c.print(map[string]int{"sealed": did.Sealed}, [][]string{{fmt.Sprintf("%d sealed", did.Sealed)}}), lost)
		})
	}
	return cmd
}
