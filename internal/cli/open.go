package cli

import (
	"context"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func (c *command) openConsole() *cobra.Command {
	cmd := c.operators(&cobra.Command{
		Use: "open [ID]", Short: "Open the console, or a task in it",
		Long:    `Print the address of the console, or of the page of a task. In a terminal, also open it.`,
		Example: `  holdfast open 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f`,
	}, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at := c.serverURL()
		if at == "" {
			cfg, err := c.load(configFlags(cmd.Flags()))
			if err != nil {
				return err
			}
			at = cfg.AdminURL(cfg.AdminListen)
		}
		at = strings.TrimRight(at, "/") + "/console/"
		if len(args) == 1 {
			err := c.withOperator(cmd, func(ctx context.Context, op *operator) error {
				t, err := op.find(ctx, args[0])
				at += "tasks/" + t.ID.String()
				return err
			})
			if err != nil {
				return err
			}
		}
		if err := c.print(map[string]string{"url": at}, [][]string{{at}}); err != nil || !c.forPerson() {
			return err
		}
		c.browse(at)
		return nil
	}
	return cmd
}

// browse opens an address, which is on the screen besides, if there is a display: xdg-open takes a browser for terminals otherwise.
func (c *command) browse(at string) {
	opener := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		opener = "open"
	case c.env("DISPLAY") == "" && c.env("WAYLAND_DISPLAY") == "":
		return
	}
	cmd := exec.Command(opener, at)                       //nolint:noctx // a browser outlives this process
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // and its Ctrl-C
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}
