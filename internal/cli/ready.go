package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (c *command) ready() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ready", Short: "Check that a server is ready for requests",
		Long: `Request /readyz from the admin address, and exit with 1 unless the server is ready. The verb
reads the address from the server's configuration, so the health check of a container needs no
flag.`,
		Example: `  holdfast ready
  holdfast ready --admin-listen 127.0.0.1:9090 -o json`,
	}
	cmd.Flags().String("admin-listen", "", "admin address of the server (default: the configured one)")
	timeout := cmd.Flags().Duration("timeout", 4*time.Second, "how long to wait for the answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := c.load(configFlags(cmd.Flags()))
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		ready, body, err := askReady(ctx, cfg.AdminURL(cfg.AdminListen)+"/readyz")
		if err != nil {
			return err
		}
		if err := c.printReadiness(body); err != nil {
			return err
		}
		if !ready {
			return &exitError{code: exitFailed}
		}
		return nil
	}
	return cmd
}

func askReady(ctx context.Context, url string) (ready bool, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, nil, err
	}
	// The certificate need not cover the listen address, and the request has no secrets.
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return false, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode == http.StatusOK, body, err
}

func (c *command) printReadiness(body []byte) error {
	var answer struct {
		Status string `json:"status"`
		Checks []struct {
			Name, Status, Detail, Error string
		} `json:"checks"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("the answer does not come from /readyz: %w", err)
	}
	if c.json() {
		return printRaw(c.Out, body)
	}
	rows := [][]string{{answer.Status}}
	for _, check := range answer.Checks {
		said := strings.TrimSpace(check.Detail + " " + check.Error)
		rows = append(rows, []string{check.Name, check.Status, said})
	}
	return table(c.Out, rows)
}
