// Package client calls A2A servers, in every version over every binding. The package internal/rpc/dialect/client writes and reads each
// version; a Transport carries that, and says in a CallError what came of it. Fronts use the Transport. A Client, for the command line
// and tests, also finds the server, and follows tasks to their end over broken connections: see Follow.
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
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	cards "github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// maxAnswer bounds a document and an event, in bytes.
	maxAnswer = 256 << 20
	// maxConnect bounds an attempt to connect over gRPC.
	maxConnect = 20 * time.Second
	resumeURI  = dispatch.ResumeURI
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
	transport Transport
	target    Target
	version   string
	card      *client.Card // nil if none was read
	header    http.Header
}

// Open finds out how to call the server. Close the client.
func Open(ctx context.Context, o Options) (*Client, error) {
	if client.Find(o.Version, "") == nil {
		return nil, &OptionError{"protocol", fmt.Sprintf("%q is not a version that Holdfast speaks; use 0.1, 0.2, 0.3 or 1.0", o.Version)}
	}
	if client.Find(o.Version, o.Binding) == nil {
		return nil, &OptionError{"binding", fmt.Sprintf("A2A %s has no binding %q; use jsonrpc, http or grpc, and jsonrpc for 0.1", o.Version, o.Binding)}
	}
	c := newClient(o)
	if err := c.aim(ctx, o); err != nil {
		return nil, err
	}
	return c, nil
}

func newClient(o Options) *Client {
	c := &Client{version: o.Version, header: o.Header}
	own := *cmp.Or(o.HTTP, http.DefaultClient)
	own.CheckRedirect = sameOriginRedirects
	c.transport = Transport{HTTP: &own, Connections: &Connections{Connect: maxConnect, Agent: "holdfast"}, MaxAnswer: maxAnswer, Sign: c.sign}
	return c
}

// sign adds the headers of the user. Two versions may share a wire.
func (c *Client) sign(_ context.Context, header http.Header) error {
	if header.Get("A2A-Version") != "" && c.version != "" {
		header.Set("A2A-Version", c.version)
	}
	maps.Copy(header, c.header)
	return nil
}

// OptionError says that an option is wrong.
type OptionError struct{ Option, Msg string }

func (e *OptionError) Error() string { return "--" + e.Option + ": " + e.Msg }

// aim chooses the wire and the address.
func (c *Client) aim(ctx context.Context, o Options) (err error) {
	if o.Endpoint != "" && o.Version != "" {
		c.target = Target{Wire: client.Find(o.Version, o.Binding), URL: o.Endpoint}
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
	c.target = Target{Wire: w, URL: at.URL, Tenant: at.Tenant}
	return c.place(o, card.At)
}

// place decides about the address, because a card may name another host than the one that the user trusts.
func (c *Client) place(o Options, cardAt string) (err error) {
	to := &c.target
	if o.Endpoint != "" {
		to.URL = o.Endpoint
		return nil
	}
	at, err := Place(to.Wire, to.URL, cardAt, "--endpoint")
	switch {
	case err == nil:
		to.URL = at
	case errors.As(err, new(*PlaceError)) && to.Wire.Binding != client.GRPC && !strings.HasSuffix(o.Server, ".json"):
		// A server behind a proxy names its public URL. The name that the user has given is the same agent.
		to.URL = o.Server
	default:
		return fmt.Errorf("%s %w", cardAt, err)
	}
	return nil
}

// Close ends the connections.
func (c *Client) Close() { c.transport.Connections.Close() }

// String names the server for people.
func (c *Client) String() string {
	return fmt.Sprintf("A2A %s, %s, at %s", c.target.Wire.Version, c.target.Wire.Binding, c.target.URL)
}

// URL returns the address that is called.
func (c *Client) URL() string { return c.target.URL }

// Version returns the version of A2A that the client speaks.
func (c *Client) Version() string { return c.target.Wire.Version }

// Document is a card, as it was found.
type Document struct {
	*client.Card
	At  string // URL
	Raw json.RawMessage
}

// ReadCard reads the card of a server.
func ReadCard(ctx context.Context, o Options) (*Document, error) {
	return newClient(o).readCard(ctx, o.Server)
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
	bare := *u
	bare.RawQuery = ""
	for _, at := range CardURLs(&bare) {
		var card *Document
		card, err = c.cardAt(ctx, at)
		var call *CallError
		switch {
		case errors.As(err, &call) && !call.Temporary() && !call.Unauthorized():
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
	body, err := c.transport.Get(ctx, at, maxAnswer)
	if err != nil {
		return nil, err
	}
	card, err := client.ReadCard(body, MaxDepth)
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
	if p.TaskID == "" && c.target.Wire.ChoosesIDs() {
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
	u, err := c.target.Wire.Notification(body, MaxDepth)
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

// open does an operation. The answer is a stream, perhaps of one event.
func (c *Client) open(ctx context.Context, op client.Op, p *client.Params) (*Stream, error) {
	if op.Streams() && (c.target.Wire.Binding == client.GRPC || c.target.Wire.ChoosesIDs()) {
		p.Extensions = []string{resumeURI} // the only way to ids over gRPC and in 0.1; a server that does not know it ignores it
	}
	a, err := c.transport.Open(ctx, &c.target, op, p)
	if err != nil {
		return nil, err
	}
	return &Stream{c, op, a}, nil
}

// unreadable says that an answer is not what the version has, unless the server reports an error, or gives no answer.
func (c *Client) unreadable(err error) error {
	if errors.As(err, new(*client.Error)) || errors.As(err, new(*CallError)) {
		return err
	}
	return fmt.Errorf("the server's answer is not A2A %s over %s: %w", c.target.Wire.Version, c.target.Wire.Binding, err)
}

// Stream is an open answer. Close it.
type Stream struct {
	client *Client
	op     client.Op
	answer *Answer
}

// Next waits for the next event. The error is io.EOF if the server closed the stream, a *client.Error if the server reports
// one, and otherwise the connection's error.
func (s *Stream) Next() (*Event, error) {
	id, document, err := s.answer.Next()
	if errors.Is(err, io.EOF) {
		return nil, err
	}
	if err != nil {
		return nil, s.client.unreadable(err)
	}
	e, err := s.client.read(s.op, bytes.Clone(document)) // events keep parts of it
	if err == nil && id != "" {
		e.ID = id
	}
	return e, err
}

// Close ends the stream.
func (s *Stream) Close() { s.answer.Close() }
