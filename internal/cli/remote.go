package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/cli/client"
)

const defaultURL = "http://127.0.0.1:8080"

// remote is what card, send and stream share: which agent, and with which headers.
type remote struct {
	headers []string
	output  *output
}

func (r *remote) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&r.headers, "header", "H", nil, `header to send along, as "Name: value"; may be repeated`)
	r.output = outputFlag(cmd)
}

// client makes the client of the agent at endpoint, which "" leaves to the environment.
func (c *command) client(endpoint string, r *remote) (*client.Client, error) {
	if endpoint == "" {
		endpoint = c.env("HOLDFAST_URL")
	}
	if endpoint == "" {
		endpoint = defaultURL
	}
	if !isURL(endpoint) {
		return nil, usage("%q is not a URL; it begins with http:// or https://", endpoint)
	}
	header := http.Header{}
	for _, h := range r.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, usage("--header %q: want \"Name: value\"", h)
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return &client.Client{URL: endpoint, Header: header}, nil
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// outgoing are the flags and arguments that make a message.
type outgoing struct {
	task, context, data string
}

func (o *outgoing) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.task, "task", "", "continue this task")
	cmd.Flags().StringVar(&o.context, "context", "", "belong to this context")
	cmd.Flags().StringVar(&o.data, "data", "", "add a data part with the JSON object in this file")
}

// message reads [URL] TEXT. With --data the text may be missing, and "-" as the text
// reads standard input.
func (c *command) message(o *outgoing, args []string) (endpoint string, p client.SendParams, err error) {
	p = client.SendParams{TaskID: o.task, ContextID: o.context}
	if len(args) == 2 || (len(args) == 1 && o.data != "" && isURL(args[0])) {
		endpoint, args = args[0], args[1:]
		if !isURL(endpoint) {
			return "", p, usage("%q is not a URL; a text of several words needs quotes", endpoint)
		}
	}
	if len(args) == 0 && o.data == "" {
		return "", p, usage("what to send is missing: a text, or --data FILE.json")
	}
	if len(args) == 1 {
		text := args[0]
		if text == "-" {
			all, err := io.ReadAll(c.In)
			if err != nil {
				return "", p, fmt.Errorf("read standard input: %w", err)
			}
			text = string(all)
		}
		p.Parts = append(p.Parts, client.Part{Kind: "text", Text: text})
	}
	if o.data != "" {
		data, err := os.ReadFile(o.data)
		if err != nil {
			return "", p, usage("--data: %w", err)
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(data, &object); err != nil || object == nil {
			return "", p, usage("--data %s: is not a JSON object", o.data)
		}
		p.Parts = append(p.Parts, client.Part{Kind: "data", Data: data})
	}
	return endpoint, p, nil
}

// verdict turns the state that a task was left in into the exit code. The output has
// already told it, so the error has no text.
func verdict(state string) error {
	switch state {
	case "failed", "rejected", "canceled":
		return &exitError{code: exitEnded}
	case "input-required", "auth-required":
		return &exitError{code: exitWaits}
	}
	return nil
}

// explain adds to an error of the connection what the user can do about it.
func explain(err error, endpoint string) error {
	var unreachable *url.Error
	if errors.As(err, &unreachable) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w\nIs the server running? The agent's URL is an argument or HOLDFAST_URL, now %s", err, endpoint)
	}
	return err
}
