// Package client speaks the part of A2A 0.3 over JSON-RPC that the command line needs. It resumes a broken stream with
// Last-Event-ID; see Follow.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// maxAnswer bounds an answer that is not a stream.
const maxAnswer = 256 << 20

// Client calls one agent.
type Client struct {
	// URL is the agent's endpoint, from its card.
	URL    string
	Header http.Header // sent with every request
	// HTTP must have no overall timeout, because streams are long. Nil means http.DefaultClient.
	HTTP *http.Client
}

// RPCError is an error in the server's answer.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// HTTPError is an answer that is not JSON-RPC.
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

// SendParams is a message to send.
type SendParams struct {
	Parts     []Part
	TaskID    string
	ContextID string
	Blocking  bool // Send only: wait until the task has settled
}

func (p SendParams) encode(stream bool) any {
	type configuration struct {
		AcceptedOutputModes []string `json:"acceptedOutputModes"`
		Blocking            bool     `json:"blocking"`
	}
	params := struct {
		Message       Message        `json:"message"`
		Configuration *configuration `json:"configuration,omitempty"`
	}{Message: Message{
		Kind: "message", MessageID: rand.Text(), Role: "user", Parts: p.Parts, TaskID: p.TaskID, ContextID: p.ContextID,
	}}
	if !stream {
		params.Configuration = &configuration{AcceptedOutputModes: []string{"*/*"}, Blocking: p.Blocking}
	}
	return params
}

// Send sends a message and returns the answer: a task or a bare message.
func (c *Client) Send(ctx context.Context, p SendParams) (*Event, error) {
	return c.call(ctx, "message/send", p.encode(false))
}

// Get reads a task.
func (c *Client) Get(ctx context.Context, taskID string) (*Event, error) {
	return c.call(ctx, "tasks/get", map[string]string{"id": taskID})
}

// Cancel asks the agent to stop a task.
func (c *Client) Cancel(ctx context.Context, taskID string) (*Event, error) {
	return c.call(ctx, "tasks/cancel", map[string]string{"id": taskID})
}

// Stream sends a message and returns the events that follow.
func (c *Client) Stream(ctx context.Context, p SendParams) (*Stream, error) {
	return c.open(ctx, "message/stream", p.encode(true), "")
}

// Resubscribe joins the stream of a task. If lastEventID is not empty, the stream resumes after that event.
func (c *Client) Resubscribe(ctx context.Context, taskID, lastEventID string) (*Stream, error) {
	return c.open(ctx, "tasks/resubscribe", map[string]string{"id": taskID}, lastEventID)
}

// Card reads the agent card, at its path of 0.3 or else at the older one. A URL that ends in .json is the URL of the
// card.
func (c *Client) Card(ctx context.Context) (*Card, error) {
	if strings.HasSuffix(c.URL, ".json") {
		return c.card(ctx, c.URL)
	}
	base := strings.TrimRight(c.URL, "/")
	card, err := c.card(ctx, base+"/.well-known/agent-card.json")
	var status *HTTPError
	if errors.As(err, &status) && status.Status == http.StatusNotFound {
		return c.card(ctx, base+"/.well-known/agent.json")
	}
	return card, err
}

func (c *Client) card(ctx context.Context, url string) (*Card, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the card: %w", err)
	}
	card := &Card{Raw: body}
	if err := json.Unmarshal(body, card); err != nil {
		return nil, fmt.Errorf("%s is not an agent card: %w", url, err)
	}
	return card, nil
}

func (c *Client) call(ctx context.Context, method string, params any) (*Event, error) {
	resp, err := c.post(ctx, method, params, "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer to %s: %w", method, err)
	}
	return parseAnswer("", body)
}

// open starts a stream. The server may answer with a plain JSON-RPC error instead.
func (c *Client) open(ctx context.Context, method string, params any, lastEventID string) (*Stream, error) {
	resp, err := c.post(ctx, method, params, lastEventID)
	if err != nil {
		return nil, err
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media == "text/event-stream" {
		return &Stream{body: resp.Body, frames: newFrames(resp.Body)}, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer to %s: %w", method, err)
	}
	if _, err := parseAnswer("", body); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("the server did not answer %s with a stream", method)
}

func (c *Client) post(ctx context.Context, method string, params any, lastEventID string) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("A2A-Version", "0.3")
	if lastEventID != "" {
		req.Header.Set("Last-Event-ID", lastEventID)
	}
	return c.do(req)
}

// do sends the request and turns every answer except 200 into an error. A JSON-RPC error in such an answer says more
// than the status, so it has priority, unless the status asks for a retry.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	for name, values := range c.Header {
		req.Header[name] = values
	}
	h := c.HTTP
	if h == nil {
		h = http.DefaultClient
	}
	own := *h
	own.CheckRedirect = sameHost
	resp, err := own.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
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
	var refused *RPCError
	if _, err := parseAnswer("", body); errors.As(err, &refused) {
		if !status.temporary() {
			return nil, refused
		}
		status.Body = refused.Error()
	}
	return nil, status
}

// sameHost is a http.Client's CheckRedirect. A redirect to another host, or to one without TLS, would carry the
// credentials and the message there.
func sameHost(to *http.Request, via []*http.Request) error {
	if from := via[0].URL; len(via) == 10 || to.URL.Host != from.Host || to.URL.Scheme != from.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// parseAnswer reads a JSON-RPC response.
func parseAnswer(id string, body []byte) (*Event, error) {
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *RPCError       `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("the server's answer is not JSON-RPC: %w", err)
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	return parseEvent(id, answer.Result)
}

// Stream is an open event stream. Close it.
type Stream struct {
	body   io.Closer
	frames *frames
}

// readError is a connection error in the middle of a stream.
type readError struct{ err error }

func (e *readError) Error() string { return "read the stream: " + e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// Next waits for the next event. The error is io.EOF if the server closed the stream, an *RPCError if the server sent
// one, and otherwise the connection's error.
func (s *Stream) Next() (*Event, error) {
	f, err := s.frames.next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errFrame):
		return nil, err
	case err != nil:
		return nil, &readError{err}
	}
	return parseAnswer(f.ID, f.Data)
}

// Close ends the stream.
func (s *Stream) Close() error { return s.body.Close() }
