package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/command"
)

// ToolServer is an MCP server whose tools the model may call: a program, or an address.
type ToolServer struct {
	Name string // begins the names of its tools

	Argv    []string // a program that speaks MCP on stdin and stdout
	Dir     string
	Env     map[string]string
	Inherit []string

	URL     string // an endpoint of streamable HTTP
	Headers map[string]string

	Allow   []string // the tools that the model gets; empty means all
	Approve []string // the tools that the client must approve before each call; * means all
}

const (
	// maxTools bounds the tools of an agent.
	maxTools = 128
	// maxResult bounds the text of a result, in bytes. The model pays for each one again in every further call.
	maxResult = 256 << 10
	// maxName is the longest name of a function that the API allows.
	maxName = 64
	// toolGrace is how long a program may take to end after its stdin has ended.
	toolGrace = 2 * time.Second
)

// toolServer is a configured server.
type toolServer struct {
	opts    ToolServer
	program *command.Program // nil for an address
	client  *nethttp.Client  // nil for a program
	redact  func(string) string
	most    int // bytes of a message
}

func newToolServer(o ToolServer, agent *Options) (*toolServer, error) {
	s := &toolServer{opts: o, redact: web.Redactor(o.Headers, []string{o.URL}), most: agent.MaxEvent}
	if o.URL != "" {
		client := web.ToAgents(agent.ConnectTimeout, agent.ToolTimeout, agent.ObserveTools)
		client.Transport = &toolTransport{next: client.Transport, headers: o.Headers, most: int64(agent.MaxEvent)}
		s.client = client
		return s, nil
	}
	var err error
	s.program, err = command.NewProgram(command.Options{
		Argv: o.Argv, Dir: o.Dir, Env: o.Env, Inherit: o.Inherit, Grace: toolGrace, Log: agent.Log,
	})
	return s, err
}

// toolTransport adds the configured headers, and bounds the body of an answer.
type toolTransport struct {
	next    nethttp.RoundTripper
	headers map[string]string
	most    int64
}

func (t *toolTransport) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range t.headers {
		r.Header.Set(name, value)
	}
	response, err := t.next.RoundTrip(r)
	if err == nil {
		response.Body = &bounded{response.Body, t.most}
	}
	return response, err
}

// bounded fails a read beyond its bound.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// lines are the messages that a program writes, one a line. It skips others: programs print banners. A line that is too long fails
// the read.
type lines struct {
	io.Closer
	in    *bufio.Reader
	most  int
	noise func(line []byte)
	rest  []byte
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		var line []byte
		for more := true; more; {
			piece, err := l.in.ReadSlice('\n')
			if more = errors.Is(err, bufio.ErrBufferFull); err != nil && !more && len(line)+len(piece) == 0 {
				return 0, err
			}
			if line = append(line, piece...); len(line) > l.most {
				return 0, errors.New("the program wrote a line that is too long")
			}
		}
		switch text := bytes.TrimSpace(line); {
		case len(text) == 0:
		case text[0] == '{', text[0] == '[' && json.Valid(text):
			l.rest = line
		default:
			l.noise(text)
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// link is the connection of one run to a server. A run has its own, so that a session of the server, and all that it
// remembers, belongs to one task.
type link struct {
	server  *toolServer
	log     *slog.Logger
	session *mcp.ClientSession
	process *command.Conversation
	status  atomic.Int32 // of the newest answer over HTTP
}

// RoundTrip notes the status.
func (l *link) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	response, err := l.server.client.Transport.RoundTrip(r)
	if err == nil {
		l.status.Store(int32(response.StatusCode))
	}
	return response, err
}

// failed turns an error of a server that lists its tools into that of the run. A server that refuses does so again: the address or
// the credential is wrong, or it has no tools.
func (l *link) failed(err error, answered bool) error {
	no, ok := errors.AsType[*jsonrpc.Error](err)
	toolless := ok && no.Code == jsonrpc.CodeMethodNotFound
	err = fmt.Errorf("tools of %s: %s", l.server.opts.Name, l.server.redact(err.Error()))
	status := int(l.status.Load())
	switch {
	case toolless:
		return &executor.Failure{Msg: unlisted, Cause: err}
	case status >= 400 && status < 500 && status != nethttp.StatusRequestTimeout && status != nethttp.StatusTooManyRequests:
		return &executor.Failure{Msg: unlisted, Cause: fmt.Errorf("%w (HTTP status %d)", err, status)}
	}
	return &executor.Unavailable{Err: err, Answered: answered}
}

const unlisted = "the agent's tools could not be listed"

func (l *link) open(ctx context.Context) error {
	if l.session != nil {
		return nil
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "holdfast", Version: "1"}, &mcp.ClientOptions{
		// The model asks for calls; nothing here answers requests of the server.
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	var transport mcp.Transport
	if p := l.server.program; p != nil {
		process, err := p.Start(l.log)
		if err != nil {
			return err
		}
		l.process = process
		transport = &mcp.IOTransport{Reader: &lines{Closer: process.Out, in: bufio.NewReader(process.Out), most: l.server.most, noise: func(line []byte) {
			l.log.Warn("a program of tools wrote a line that is no message", slog.String("line", l.server.redact(web.Excerpt(line))))
		}}, Writer: process.In}
	} else {
		watched := *l.server.client
		watched.Transport = l
		transport = &mcp.StreamableClientTransport{
			Endpoint: l.server.opts.URL, HTTPClient: &watched, MaxRetries: -1, DisableStandaloneSSE: true,
		}
	}
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		l.close()
		return errors.New(l.server.redact(err.Error()))
	}
	l.session = session
	return nil
}

// close ends the session and its program. It blocks until the program has ended.
func (l *link) close() {
	if l.process != nil {
		defer l.process.Close()
	}
	if l.session != nil {
		_ = l.session.Close() // its errors are those of a server that is gone
	}
	l.session, l.process = nil, nil
}

// tool is a tool as the model knows it.
type tool struct {
	name    string // for the model
	own     string // for the server
	agent   string // that the tool is; it has no link then
	link    *link
	text    string // its description for the model
	schema  any    // of its arguments
	approve bool   // the client decides about each call
	relays  bool   // the client sees the progress of the agent
	repeats bool   // a call may be repeated: it changes nothing, or nothing more
}

// toolbox has the tools of a run.
type toolbox struct {
	links []*link
	tools []*tool
}

// tools connects to the servers and lists their tools. Close the toolbox also after an error.
func (a *agent) tools(ctx context.Context, run *executor.Run) (*toolbox, error) {
	box := &toolbox{}
	for _, server := range a.servers {
		log := a.opts.Log.With(slog.String("task_id", run.TaskID), slog.String("tools", server.opts.Name))
		l := &link{server: server, log: log}
		box.links = append(box.links, l)
		if err := box.list(ctx, l, a.listWithin); err != nil {
			return box, err
		}
	}
	return box, box.addAgents(a.opts.Agents)
}

func (b *toolbox) list(ctx context.Context, l *link, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := l.open(ctx); err != nil {
		return l.failed(err, false)
	}
	for t, err := range l.session.Tools(ctx, nil) {
		if err != nil {
			return l.failed(err, true)
		}
		if allow := l.server.opts.Allow; len(allow) > 0 && !slices.Contains(allow, t.Name) {
			continue
		}
		if err := b.add(l, t); err != nil {
			return err
		}
	}
	return nil
}

func (b *toolbox) add(l *link, t *mcp.Tool) error {
	o := &l.server.opts
	schema := t.InputSchema
	if schema == nil {
		schema = map[string]any{"type": "object"}
	}
	return b.put(&tool{
		name: functionName(o.Name + "__" + t.Name), own: t.Name, link: l,
		text: t.Description, schema: schema,
		approve: slices.Contains(o.Approve, "*") || slices.Contains(o.Approve, t.Name),
		repeats: t.Annotations != nil && (t.Annotations.ReadOnlyHint || t.Annotations.IdempotentHint),
	})
}

func (b *toolbox) put(t *tool) error {
	switch {
	case b.find(t.name) != nil:
		return &executor.Failure{Msg: unlisted, Cause: fmt.Errorf("two tools are %q for the model; leave one out with allow", t.name)}
	case len(b.tools) == maxTools:
		return &executor.Failure{Msg: unlisted, Cause: fmt.Errorf("more than %d; choose some with allow", maxTools)}
	}
	b.tools = append(b.tools, t)
	return nil
}

// functionName returns a name that the API allows for a function.
func functionName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), maxName)]
}

func (b *toolbox) find(name string) *tool {
	for _, t := range b.tools {
		if t.name == name {
			return t
		}
	}
	return nil
}

// about returns the tool's definition for the API.
func (t *tool) about() map[string]any {
	return map[string]any{"name": t.name, "description": t.text, "parameters": t.schema}
}

func (b *toolbox) close() {
	for _, l := range b.links {
		l.close()
	}
}

// result is the text that the model gets of a call.
type result struct {
	Text  string `json:"text"`
	Error bool   `json:"error,omitempty"`
}

// call calls a tool. A call that fails is a result, too: the model decides what to do.
func (t *tool) call(ctx context.Context, arguments, key string, timeout time.Duration) result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// The tool gets what the model wrote and the client approved, to the digit.
	object, ok := objectOf(arguments)
	if !ok {
		return result{"The arguments are not a JSON object.", true}
	}
	if err := t.link.open(ctx); err != nil {
		t.link.log.Warn("tool server not reached", slog.Any("error", err))
		return result{"The server of the tool cannot be reached. The tool was not called.", true}
	}
	params := &mcp.CallToolParams{Name: t.own, Arguments: json.RawMessage(object), Meta: mcp.Meta{"holdfast/idempotencyKey": key}}
	got, err := t.link.session.CallTool(ctx, params)
	if errors.Is(err, mcp.ErrSessionMissing) {
		t.link.close() // the server has forgotten the session, so it has not made the call
		if err = t.link.open(ctx); err == nil {
			got, err = t.link.session.CallTool(ctx, params)
		}
	}
	refused, answered := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil && got.NeedsInput():
		return result{"The tool asks for input, which this agent cannot give.", true}
	case err == nil:
		return result{cut(t.link.server.redact(textOf(got))), got.IsError}
	case answered:
		return result{cut(t.link.server.redact(refused.Message)), true}
	}
	t.link.log.Warn("tool call failed", slog.String("tool", t.own), slog.String("error", t.link.server.redact(err.Error())))
	if ctx.Err() == nil {
		t.link.close() // the next call connects again
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return result{fmt.Sprintf("The tool did not answer within %s. It is not known whether the call took effect.", timeout), true}
	}
	return result{unknown, true}
}

// unknown is the result of a call that was interrupted.
const unknown = "The call was interrupted. It is not known whether it took effect."

// textOf returns the content of a result as text.
func textOf(r *mcp.CallToolResult) string {
	var texts []string
	for _, c := range r.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			texts = append(texts, c.Text)
		case *mcp.ImageContent:
			texts = append(texts, fmt.Sprintf("[image, %s, %d bytes]", c.MIMEType, len(c.Data)))
		case *mcp.AudioContent:
			texts = append(texts, fmt.Sprintf("[audio, %s, %d bytes]", c.MIMEType, len(c.Data)))
		case *mcp.ResourceLink:
			texts = append(texts, c.URI)
		case *mcp.EmbeddedResource:
			if c.Resource != nil && c.Resource.Text != "" {
				texts = append(texts, c.Resource.Text)
			} else if c.Resource != nil {
				texts = append(texts, fmt.Sprintf("[%s, %d bytes]", c.Resource.URI, len(c.Resource.Blob)))
			}
		}
	}
	if len(texts) == 0 && r.StructuredContent != nil {
		if raw, err := json.Marshal(r.StructuredContent); err == nil {
			return string(raw)
		}
	}
	return strings.Join(texts, "\n")
}

func cut(text string) string {
	if len(text) <= maxResult {
		return text
	}
	return cutTo(text, maxResult)
}

const wasCut = "\n[The rest was cut off.]"

func cutTo(text string, size int) string { return strings.ToValidUTF8(text[:size], "") + wasCut }
