package cli

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
)

// helpInstead helps a person who calls holdfast without anything, unless it is the first start: then the server starts. Programs, such
// as supervisors of services, have no terminal and always get the server.
func (c *command) helpInstead(root *cobra.Command) (helped bool, err error) {
	if root.Flags().NFlag() > 0 || !isTerminal(c.Out) || !readsTerminal(c) {
		return false, nil
	}
	cfg, err := c.load(nil)
	if err != nil {
		return false, err
	}
	next := "To start the server with the database of the configuration, write: holdfast serve"
	if cfg.DatabaseURL == "" {
		if !pgembed.Exists(cfg.DataDir) {
			return false, nil
		}
		next = "To start the server with the database in " + cfg.DataDir + ", write: holdfast serve"
		if used, err := pgembed.InUse(cfg.DataDir); err == nil && used {
			next = `A server uses the database in ` + cfg.DataDir + `. To talk to it, write: holdfast send "echo:hello"`
		}
	}
	if err := root.Help(); err != nil {
		return true, err
	}
	c.note("\n%s", next)
	return true, nil
}
