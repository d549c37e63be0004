package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const defaultURL = "http://127.0.0.1:8080"

// remote has the flags that say which server to call, and how.
type remote struct {
	headers                                 []string
	url, agent, endpoint, protocol, binding string
}

func (r *remote) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.url, "url", "", "URL of the agent or the server, or of its card if it ends in .json (default $HOLDFAST_URL, else the server of this directory, else "+defaultURL+")")
	flags.StringVar(&r.agent, "agent", "", "name of an agent, which the server has at /agents/NAME below the URL (default: the agent at the URL)")
	flags.StringArrayVarP(&r.headers, "header", "H", nil, `header to send, as "Name: value"; @FILE has such lines, which other users do not see, and @- is standard input; may be repeated. HOLDFAST_API_KEY gives X-API-Key to the server of HOLDFAST_URL`)
}

// registerCall adds the flags of verbs that send messages.
func (r *remote) registerCall(cmd *cobra.Command) {
	r.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&r.endpoint, "endpoint", "", "URL of the endpoint to call, whatever the card says; with --protocol, no card is read")
	flags.StringVar(&r.protocol, "protocol", "", "version of A2A: 0.1, 0.2, 0.3 or 1.0 (default: the newest that the card offers)")
	flags.StringVar(&r.binding, "binding", "", "jsonrpc, http or grpc (default: the first of them that the card offers)")
}

// options returns what the flags say.
func (c *command) options(r *remote) (o client.Options, err error) {
	o = client.Options{Server: r.url, Endpoint: r.endpoint, Version: r.protocol, Binding: r.binding}
	if r.url == "" && r.endpoint == "" {
		o.Server = c.usualURL()
	}
	for _, u := range []string{o.Server, o.Endpoint} {
		if u != "" && !isURL(u) {
			return o, usage("%q is not a URL; write http://host:port or https://host", u)
		}
	}
	if r.agent != "" {
		switch {
		case r.endpoint != "":
			return o, usage("--agent and --endpoint both name the agent; remove one of them")
		case strings.ContainsAny(r.agent, "/?#"):
			return o, usage("--agent: %q is not the name of an agent; write it without /, ? and #", r.agent)
		}
		o.Server = strings.TrimRight(o.Server, "/") + "/agents/" + r.agent
	}
	if strings.EqualFold(o.Binding, "http") {
		o.Binding = client.HTTPJSON
	}
	if o.Header, err = client.ReadHeaders(c.In, r.headers); err != nil {
		return o, usage("--header: %w", err)
	}
	// The key is for the server that the environment names, and for no other: a directory may come from anybody.
	if key := c.env("HOLDFAST_API_KEY"); key != "" && c.env("HOLDFAST_URL") != "" && r.url == "" && r.endpoint == "" && o.Header.Get("X-API-Key") == "" && o.Header.Get("Authorization") == "" {
		o.Header.Set("X-API-Key", key)
	}
	return o, nil
}

// usualURL is that of HOLDFAST_URL, else of the server in this directory, else where a server listens by default.
func (c *command) usualURL() string {
	if at := c.env("HOLDFAST_URL"); at != "" {
		return at
	}
	dir := cmp.Or(c.env("HOLDFAST_DATA_DIR"), config.DefaultDataDir)
	if s := config.ReadServing(dir); s != nil && isURL(s.URL) {
		return s.URL
	}
	return defaultURL
}

// open makes the client for the agent that the flags name.
func (c *command) open(ctx context.Context, r *remote) (*client.Client, error) {
	o, err := c.options(r)
	if err != nil {
		return nil, err
	}
	agent, err := client.Open(ctx, o)
	var wrong *client.OptionError
	if errors.As(err, &wrong) {
		return nil, &exitError{exitUsage, err}
	}
	return agent, explain(err)
}

// again returns the arguments that lead to the same server, without headers, which may be secret.
func (r *remote) again() (args []string) {
	for _, f := range []struct{ name, value string }{
		{"url", r.url}, {"agent", r.agent}, {"endpoint", r.endpoint}, {"protocol", r.protocol}, {"binding", r.binding},
	} {
		if f.value != "" {
			args = append(args, "--"+f.name, f.value)
		}
	}
	return args
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// outgoing has the flags and arguments that make a message.
type outgoing struct {
	task, context, metadata string
	data, files, urls       []string
}

func (o *outgoing) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.task, "task", "", "id of the task to continue")
	flags.StringVar(&o.context, "context", "", "id of the context of the message")
	flags.StringArrayVar(&o.data, "data", nil, "JSON to send as a data part, or @FILE with it; may be repeated")
	flags.StringArrayVar(&o.files, "file", nil, "file to send; its name gives the media type; may be repeated")
	flags.StringArrayVar(&o.urls, "file-url", nil, "URL of a file to send by reference; may be repeated")
	flags.StringVar(&o.metadata, "metadata", "", "JSON object to send as metadata of the request, or @FILE with it")
}

// bare reports whether the flags give no content.
func (o *outgoing) bare() bool { return len(o.data)+len(o.files)+len(o.urls) == 0 }

// message reads TEXT. With other content the text is optional. "-" as the text reads standard input.
func (c *command) message(o *outgoing, args []string) (m *client.Message, err error) {
	m = &client.Message{TaskID: o.task, ContextID: o.context}
	if len(args) == 0 && o.bare() {
		return m, usage("the message is missing; give a text, --file, --file-url or --data")
	}
	if len(args) == 1 {
		text := args[0]
		if text == "-" {
			all, err := io.ReadAll(c.In)
			if err != nil {
				return m, fmt.Errorf("read standard input: %w", err)
			}
			text = string(all)
		}
		m.Parts = append(m.Parts, task.Text(text))
	}
	for _, path := range o.files {
		content, err := os.ReadFile(path)
		if err != nil {
			return m, usage("--file: %w", err)
		}
		m.Parts = append(m.Parts, task.Part{Kind: task.PartRaw, Raw: content, Filename: filepath.Base(path), MediaType: mediaType(path)})
	}
	for _, at := range o.urls {
		u, err := url.Parse(at)
		if err != nil || !u.IsAbs() {
			return m, usage("--file-url: %q is not a URL", at)
		}
		part := task.Part{Kind: task.PartURL, URL: at, MediaType: mediaType(u.Path)}
		if name := filepath.Base(u.Path); name != "." && name != "/" {
			part.Filename = name
		}
		m.Parts = append(m.Parts, part)
	}
	for _, text := range o.data {
		value, err := jsonOf("data", text)
		if err != nil {
			return m, err
		}
		m.Parts = append(m.Parts, task.Part{Kind: task.PartData, Data: value})
	}
	if o.metadata != "" {
		if m.Metadata, err = jsonOf("metadata", o.metadata); err != nil {
			return m, err
		}
		if !bytes.HasPrefix(m.Metadata, []byte("{")) {
			return m, usage("--metadata: must be a JSON object")
		}
	}
	return m, nil
}

// jsonOf reads the value of a flag: JSON, or @FILE.
func jsonOf(flag, text string) (json.RawMessage, error) {
	value := []byte(text)
	if path, ok := strings.CutPrefix(text, "@"); ok {
		var err error
		if value, err = os.ReadFile(path); err != nil {
			return nil, usage("--%s: %w", flag, err)
		}
	}
	if value = bytes.TrimSpace(value); !json.Valid(value) {
		if _, err := os.Stat(text); err == nil {
			return nil, usage("--%s: %q is not JSON; write @%s for the content of the file", flag, text, text)
		}
		return nil, usage("--%s: %q is not JSON", flag, text)
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, value) // it is valid
	return compact.Bytes(), nil
}

// mediaType returns that of a file by its name.
func mediaType(name string) string {
	if t := mime.TypeByExtension(filepath.Ext(name)); t != "" {
		if bare, _, err := mime.ParseMediaType(t); err == nil {
			return bare
		}
	}
	return "application/octet-stream"
}

// verdict turns the last state of a task into the exit code. The output has already shown the state, so the error has
// no text.
func verdict(state task.State) error {
	switch state {
	case task.StateFailed, task.StateRejected, task.StateCanceled:
		return &exitError{code: exitEnded}
	case task.StateInputRequired, task.StateAuthRequired:
		return &exitError{code: exitWaits}
	default:
		return nil
	}
}

// explain adds advice for the user to an error of a connection or of credentials.
func explain(err error) error {
	var call *client.CallError
	called := errors.As(err, &call)
	if called && (call.Status == http.StatusUnauthorized || call.Code == codes.Unauthenticated) {
		return fmt.Errorf("%w\nGive your credential with --header @FILE, where the file has a line such as X-API-Key: KEY", err)
	}
	var unreachable *url.Error
	if (errors.As(err, &unreachable) || called && call.Code != 0 && call.Temporary()) && !errors.Is(err, context.Canceled) {
		at := ""
		if unreachable != nil {
			at = " This used " + origin(unreachable.URL) + ";"
		}
		return fmt.Errorf("%w\nIs the server running?%s give another URL with --url or HOLDFAST_URL", err, at)
	}
	return err
}

// origin returns the beginning of a URL, up to its path.
func origin(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		return at
	}
	return u.Scheme + "://" + u.Host
}
