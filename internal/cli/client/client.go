// Package client calls A2A servers for the command line, in every version over every binding. The package
// internal/rpc/dialect/client writes and reads each version, for fronts too. This package finds the server, carries requests, and
// follows tasks to their end, also over broken connections: see Follow.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	cards "github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

const (
	// maxAnswer bounds an answer that is not a stream, in bytes.
	maxAnswer = 256 << 20
	resumeURI = dispatch.ResumeURI
)

// The bindings, by their names in cards.
const (
	JSONRPC  = client.JSONRPC
	HTTPJSON = client.HTTPJSON
	GRPC     = client.GRPC
)

// Push is where a server sends its notifications about a task.
type Push = client.Push

// Options say which server to call, and how.
type Options struct {
	// Server is the URL of a server or an agent, whose card says how to call it, or that of the card if it ends in .json.
	Server string
	// Endpoint is the URL to call, whatever the card says. With a Version, no card is read.
	Endpoint string
	Version  string // of A2A; "": the newest that the card offers
	Binding  string // as in cards; "": as the card offers

	Header http.Header // sent with every request
	// HTTP must have no overall timeout, because streams are long. Nil means http.DefaultClient.
	HTTP *http.Client
}

// Client calls one agent.
type Client struct {
	wire    *client.Wire
	url     string
	tenant  string
	version string
	card    *client.Card // nil if none was read
	header  http.Header
	http    *http.Client
	conn    *grpc.ClientConn // nil over HTTP
}

// HTTPError is an answer that is not one of A2A.
type HTTPError struct {
	Status     int
	Body       string // its beginning
	RetryAfter time.Duration
}

func (e *HTTPError) Error() string {
	text := fmt.Sprintf("HTTP %d %s", e.Status, http.StatusText(e.Status))
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// temporary reports whether the same request may succeed later.
func (e *HTTPError) temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// Open finds out how to call the server. Close the client.
func Open(ctx context.Context, o Options) (*Client, error) {
	c := &Client{version: o.Version, header: o.Header, http: o.HTTP}
	if c.http == nil {
		c.http = http.DefaultClient
	}
	if client.Find(o.Version, "") == nil {
		return nil, &OptionError{"protocol", fmt.Sprintf("%q is not a version that Holdfast speaks; use 0.1, 0.2, 0.3 or 1.0", o.Version)}
	}
	if client.Find(o.Version, o.Binding) == nil {
		return nil, &OptionError{"binding", fmt.Sprintf("A2A %s has no binding %q; use jsonrpc, http or grpc, and jsonrpc for 0.1", o.Version, o.Binding)}
	}
	if err := c.aim(ctx, o); err != nil {
		return nil, err
	}
	if c.wire.Binding == client.GRPC {
		return c, c.dial()
	}
	return c, nil
}

// OptionError says that an option is wrong.
type OptionError struct{ Option, Msg string }

func (e *OptionError) Error() string { return "--" + e.Option + ": " + e.Msg }

// aim chooses the wire and the address.
func (c *Client) aim(ctx context.Context, o Options) (err error) {
	if o.Endpoint != "" && o.Version != "" {
		c.wire, c.url = client.Find(o.Version, o.Binding), o.Endpoint
		return nil
	}
	if o.Endpoint != "" && strings.EqualFold(o.Binding, client.GRPC) {
		return &OptionError{"protocol", "is required with --endpoint and --binding grpc: a port of gRPC has no card"}
	}
	server := o.Server
	if server == "" {
		server = o.Endpoint
	}
	card, err := c.readCard(ctx, server)
	if err != nil {
		return err
	}
	c.card = card.Card
	w, at, err := card.Choose(o.Version, o.Binding)
	switch {
	case err == nil:
	case o.Version != "" && (o.Binding == "" || strings.EqualFold(o.Binding, client.JSONRPC)):
		// A card of one version cannot list the older ones that the server speaks at the same URL.
		w, at.URL = client.Find(o.Version, client.JSONRPC), server
		for _, i := range card.Interfaces {
			if strings.EqualFold(i.Binding, client.JSONRPC) {
				at.URL = i.URL
				break
			}
		}
	default:
		return fmt.Errorf("%s: %w", card.At, err)
	}
	c.wire, c.url, c.tenant = w, at.URL, at.Tenant
	return c.place(o, card.At)
}

// place decides about the address, because a card may name another host than the one that the user trusts.
func (c *Client) place(o Options, cardAt string) (err error) {
	switch {
	case o.Endpoint != "":
		c.url = o.Endpoint
	case c.wire.Binding == client.GRPC:
		c.url, err = rpcAddress(c.url, cardAt)
	case sameOrigin(c.url, cardAt):
	case strings.HasSuffix(o.Server, ".json"):
		return fmt.Errorf("%s names the URL %.200q of another host; give it with --endpoint if that is right", cardAt, c.url)
	default:
		// A server behind a proxy names its public URL. The name that the user has given is the same agent.
		c.url = o.Server
	}
	return err
}

// Close ends the connections.
func (c *Client) Close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// String names the server for people.
func (c *Client) String() string {
	return fmt.Sprintf("A2A %s, %s, at %s", c.wire.Version, c.wire.Binding, c.url)
}

// URL returns the address that is called.
func (c *Client) URL() string { return c.url }

// Version returns the version of A2A that the client speaks.
func (c *Client) Version() string { return c.wire.Version }

// Document is a card, as it was found.
type Document struct {
	*client.Card
	At  string // URL
	Raw json.RawMessage
}

// wellKnown are where servers have their cards, the newest first.
var wellKnown = []string{"/.well-known/agent-card.json", "/.well-known/agent.json"}

// ReadCard reads the card of a server.
func ReadCard(ctx context.Context, o Options) (*Document, error) {
	c := &Client{header: o.Header, http: o.HTTP}
	if c.http == nil {
		c.http = http.DefaultClient
	}
	return c.readCard(ctx, o.Server)
}

// readCard reads the card of a server: at a well-known path below its URL, else at one of its host, if that card names the URL. A
// URL that ends in .json is that of the card.
func (c *Client) readCard(ctx context.Context, server string) (*Document, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(u.Path, ".json") {
		return c.cardAt(ctx, server)
	}
	var all []string
	for _, base := range []string{strings.TrimRight(u.Path, "/"), ""} {
		for _, path := range wellKnown {
			at := *u
			at.Path, at.RawPath, at.RawQuery = base+path, "", ""
			if s := at.String(); !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	for _, at := range all {
		var card *Document
		card, err = c.cardAt(ctx, at)
		var status *HTTPError
		switch {
		case errors.As(err, &status) && !status.temporary() && status.Status != http.StatusUnauthorized && status.Status != http.StatusForbidden:
			continue
		case err == nil && !below(card, u):
			return nil, fmt.Errorf("%s has no agent card, and %s is that of another agent, %q", server, at, card.Name)
		}
		return card, err
	}
	return nil, fmt.Errorf("%s has no agent card: %w; without one, give it with --endpoint and its version with --protocol", server, err)
}

// below reports whether a card is that of a URL: it is below the URL, or it names it.
func below(card *Document, u *url.URL) bool {
	path := strings.TrimRight(u.Path, "/")
	if at, err := url.Parse(card.At); err != nil || strings.HasPrefix(at.Path, path+"/") {
		return err == nil
	}
	return slices.ContainsFunc(card.Interfaces, func(i cards.Interface) bool {
		named, err := url.Parse(i.URL)
		return err == nil && strings.TrimRight(named.Path, "/") == path
	})
}

func (c *Client) cardAt(ctx context.Context, at string) (*Document, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.do(req, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the card: %w", err)
	}
	card, err := client.ReadCard(body, wire.MaxDepth)
	if err != nil {
		return nil, fmt.Errorf("%s is not an agent card: %w", at, err)
	}
	return &Document{card, at, body}, nil
}

// Message is a message to send.
type Message struct {
	ID        string // "": a random one
	Key       string // Idempotency-Key; "": none
	Parts     []task.Part
	TaskID    string
	ContextID string
	Metadata  json.RawMessage // of the request
	Return    bool            // Send only: do not wait until the task has settled
	Push      Push            // without a URL: none
}

func (c *Client) params(m *Message) *client.Params {
	p := &client.Params{
		Metadata: m.Metadata, Return: m.Return, Push: m.Push, Modes: []string{"*/*"},
		Key:     m.Key,
		Message: &task.Message{ID: cmp.Or(m.ID, rand.Text()), Role: task.RoleUser, Parts: m.Parts, TaskID: m.TaskID, ContextID: m.ContextID},
		TaskID:  m.TaskID,
	}
	if p.TaskID == "" && c.wire.ChoosesIDs() {
		p.TaskID = "task-" + rand.Text()
	}
	return p
}

// Send sends a message and returns the answer: a task or a bare message.
func (c *Client) Send(ctx context.Context, m *Message) (*Event, error) {
	return c.call(ctx, client.Send, c.params(m))
}

// Get reads a task.
func (c *Client) Get(ctx context.Context, taskID string) (*Event, error) {
	return c.call(ctx, client.Get, &client.Params{TaskID: taskID})
}

// Cancel asks the agent to stop a task.
func (c *Client) Cancel(ctx context.Context, taskID string) (*Event, error) {
	return c.call(ctx, client.Cancel, &client.Params{TaskID: taskID})
}

// Notification reads the body of a push notification.
func (c *Client) Notification(body []byte) (*Event, error) {
	u, err := c.wire.Notification(body, wire.MaxDepth)
	if err != nil {
		return nil, c.unreadable(err)
	}
	return &Event{Update: u, Raw: body}, nil
}

func (c *Client) call(ctx context.Context, op client.Op, p *client.Params) (*Event, error) {
	s, err := c.open(ctx, op, p)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	e, err := s.Next()
	if errors.Is(err, io.EOF) {
		err = errors.New("the server answered nothing")
	}
	return e, err
}

// request writes a request.
func (c *Client) request(op client.Op, p *client.Params) (*client.Request, error) {
	p.Tenant = c.tenant
	if op.Streams() && (c.wire.Binding == client.GRPC || c.wire.ChoosesIDs()) {
		p.Extensions = []string{resumeURI} // the only way to ids over gRPC and in 0.1; a server that does not know it ignores it
	}
	r, err := c.wire.Request(c.url, op, p)
	if err != nil {
		return nil, err
	}
	if r.Header.Get("A2A-Version") != "" && c.version != "" {
		r.Header.Set("A2A-Version", c.version) // two versions may share a wire
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	return r, nil
}

// open does an operation. The answer is a stream, perhaps of one event.
func (c *Client) open(ctx context.Context, op client.Op, p *client.Params) (*Stream, error) {
	r, err := c.request(op, p)
	if err != nil {
		return nil, err
	}
	if c.conn != nil {
		return c.invoke(ctx, op, r)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.do(req, func(status int, body []byte) error { return c.refusal(op, status, body) }) //nolint:bodyclose // Stream.Close does
	if err != nil {
		return nil, err
	}
	s := &Stream{client: c, op: op, close: func() { resp.Body.Close() }}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media == "text/event-stream" {
		frames := newFrames(resp.Body)
		s.next = func() (string, []byte, error) {
			f, err := frames.next()
			return f.ID, f.Data, err
		}
		return s, nil
	}
	read := false
	s.next = func() (string, []byte, error) {
		if read {
			return "", nil, io.EOF
		}
		read = true
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return "", body, err
	}
	return s, nil
}

// refusal returns the error that the body of an answer reports, or nil.
func (c *Client) refusal(op client.Op, status int, body []byte) error {
	var reported *client.Error
	if c.wire.Binding == client.JSONRPC {
		if _, err := c.wire.Answer(op, body, wire.MaxDepth); errors.As(err, &reported) {
			return reported
		}
	} else if reported = c.wire.Failure(status, body, wire.MaxDepth); reported.Message != "" {
		return reported
	}
	return nil
}

// do sends the request and turns every answer without a 2xx status into an error. The report of the server in its body says
// more than the status, so it has priority, unless the status asks for a retry that may help.
func (c *Client) do(req *http.Request, refusal func(status int, body []byte) error) (*http.Response, error) {
	for name, values := range c.header {
		req.Header[name] = values
	}
	own := *c.http
	own.CheckRedirect = sameHost
	resp, err := own.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		body = nil // only the status is left
	}
	status := &HTTPError{Status: resp.StatusCode, Body: strings.TrimSpace(string(body[:min(len(body), 300)]))}
	if to, err := resp.Location(); err == nil {
		status.Body = "the server redirects to " + to.Redacted() + "; if you trust it, call it at that address"
	}
	if seconds, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s"); err == nil {
		status.RetryAfter = seconds
	}
	if refusal != nil {
		if refused := refusal(resp.StatusCode, body); refused != nil {
			if !status.temporary() || final(refused) {
				return nil, unauthenticated(resp.StatusCode, refused)
			}
			status.Body = refused.Error()
		}
	}
	return nil, unauthenticated(resp.StatusCode, status)
}

// CredentialError says that the server wants a credential, or another one.
type CredentialError struct{ error }

// Unwrap returns the answer of the server.
func (e *CredentialError) Unwrap() error { return e.error }

func unauthenticated(status int, err error) error {
	if status == http.StatusUnauthorized {
		return &CredentialError{err}
	}
	return err
}

// final reports whether a server says that the same request will never succeed. Some say that with a status of 500.
func final(refused error) bool {
	for _, kind := range []task.Kind{task.NotFound, task.NotCancelable, task.Unsupported, task.Invalid} {
		if errors.Is(refused, kind) {
			return true
		}
	}
	return false
}

// sameHost is a http.Client's CheckRedirect. A redirect to another host, or to one without TLS, would carry the
// credentials and the message there.
func sameHost(to *http.Request, via []*http.Request) error {
	if from := via[0].URL; len(via) == 10 || to.URL.Host != from.Host || to.URL.Scheme != from.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// sameOrigin reports whether two URLs have one scheme and host.
func sameOrigin(a, b string) bool {
	u, err := url.Parse(a)
	if err != nil {
		return false
	}
	v, err := url.Parse(b)
	return err == nil && u.Scheme == v.Scheme && strings.EqualFold(u.Host, v.Host)
}

// unreadable says that an answer is not what the version has, unless the server reports an error.
func (c *Client) unreadable(err error) error {
	if reported := new(client.Error); errors.As(err, &reported) {
		return reported
	}
	return fmt.Errorf("the server's answer is not A2A %s over %s: %w", c.wire.Version, c.wire.Binding, err)
}

// Stream is an open answer. Close it.
type Stream struct {
	client *Client
	op     client.Op
	next   func() (id string, document []byte, err error)
	close  func()
}

// readError is a connection error in the middle of an answer.
type readError struct{ err error }

func (e *readError) Error() string { return "read the stream: " + e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// Next waits for the next event. The error is io.EOF if the server closed the stream, a *client.Error if the server reports
// one, and otherwise the connection's error.
func (s *Stream) Next() (*Event, error) {
	id, document, err := s.next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errFrame):
		return nil, err
	case err != nil && s.client.conn != nil:
		return nil, err
	case err != nil:
		return nil, &readError{err}
	}
	e, err := s.client.read(s.op, document)
	if err == nil && id != "" {
		e.ID = id
	}
	return e, err
}

// Close ends the stream.
func (s *Stream) Close() { s.close() }
