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

// remote has the flags that card, send and stream share: the agent and the headers.
type remote struct {
	headers []string
	output  *output
}

func (r *remote) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&r.headers, "header", "H", nil, `header to send, as "Name: value"; may be repeated`)
	r.output = outputFlag(cmd)
}

// client makes the client for the agent at endpoint. If endpoint is "", the environment names the agent.
func (c *command) client(endpoint string, r *remote) (*client.Client, error) {
	if endpoint == "" {
		endpoint = c.env("HOLDFAST_URL")
	}
	if endpoint == "" {
		endpoint = defaultURL
	}
	if !isURL(endpoint) {
		return nil, usage("%q is not a URL; write http://host:port or https://host", endpoint)
	}
	header := http.Header{}
	for _, h := range r.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, usage("--header: %q is not a header; write \"Name: value\"", h)
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return &client.Client{URL: endpoint, Header: header}, nil
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// outgoing has the flags and arguments that make a message.
type outgoing struct {
	task, context, data string
}

func (o *outgoing) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.task, "task", "", "id of the task to continue")
	cmd.Flags().StringVar(&o.context, "context", "", "id of the context of the message")
	cmd.Flags().StringVar(&o.data, "data", "", "file with a JSON object to send as a data part")
}

// message reads [URL] TEXT. With --data the text is optional. "-" as the text reads standard input.
func (c *command) message(o *outgoing, args []string) (endpoint string, p client.SendParams, err error) {
	p = client.SendParams{TaskID: o.task, ContextID: o.context}
	if len(args) == 2 || (len(args) == 1 && o.data != "" && isURL(args[0])) {
		endpoint, args = args[0], args[1:]
		if !isURL(endpoint) {
			return "", p, usage("%q is not a URL; put quotes around a text of several words", endpoint)
		}
	}
	if len(args) == 0 && o.data == "" {
		return "", p, usage("the message is missing; give a text or --data FILE.json")
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
			return "", p, usage("--data: %s is not a JSON object", o.data)
		}
		p.Parts = append(p.Parts, client.Part{Kind: "data", Data: data})
	}
	return endpoint, p, nil
}

// verdict turns the last state of a task into the exit code. The output has already shown the state, so the error has
// no text.
func verdict(state string) error {
	switch state {
	case "failed", "rejected", "canceled":
		return &exitError{code: exitEnded}
	case "input-required", "auth-required":
		return &exitError{code: exitWaits}
	}
	return nil
}

// explain adds advice for the user to a connection error.
func explain(err error, endpoint string) error {
	var unreachable *url.Error
	if errors.As(err, &unreachable) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w\nIs the server running? This used %s; give another URL as the argument or in HOLDFAST_URL", err, endpoint)
	}
	return err
}
