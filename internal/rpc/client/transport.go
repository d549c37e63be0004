package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

const (
	// MaxDepth is how deeply arrays and objects of an answer may nest.
	MaxDepth = 100
	// maxError bounds what is read of an answer that says what is wrong, in bytes.
	maxError = 64 << 10
	// maxRetryAfter is the longest pause that an answer may ask for.
	maxRetryAfter = time.Hour
)

// Target is where and how to call an agent.
type Target struct {
	Wire   *client.Wire
	URL    string
	Tenant string
}

// Transport carries operations to agents over every binding, each of them once. Redirects are followed as its HTTP client says.
type Transport struct {
	HTTP        *http.Client
	Connections *Connections // for gRPC
	MaxAnswer   int          // bytes of a document, or of an event
	// Sign adds to the headers of each request. Its errors are passed on.
	Sign    func(ctx context.Context, header http.Header) error
	Observe web.Observer // of calls over gRPC: HTTP has its own; nil: nobody
}

// CallError is a call without an answer of the operation. Something was away or in between, or the agent refused.
type CallError struct {
	Err      error         // of the connection; nil with an answer
	Class    web.Class     // what came of the call
	Status   int           // of HTTP; 0 without an answer, and over gRPC
	Code     codes.Code    // of gRPC; OK over HTTP
	Broke    bool          // there is no whole answer
	Sent     bool          // the agent may have got the request
	Reported *client.Error // what the answer reports; nil over HTTP if it reports nothing
	Body     []byte        // over HTTP the beginning of the answer
	Location string        // where it redirects to
	After    time.Duration // how long it asks to wait
}

func (e *CallError) Error() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.Code != codes.OK, e.decided():
		return e.Reported.Error()
	}
	said := strings.TrimSpace(string(e.Body[:min(len(e.Body), 300)]))
	switch {
	case e.Location != "":
		said = "the server redirects to " + e.Location + "; if you trust it, call it at that address"
	case e.Reported != nil && e.Reported.Message != "":
		said = e.Reported.Error()
	}
	if said != "" {
		said = ": " + said
	}
	return "HTTP " + e.Said() + said
}

// Unwrap returns the error of the connection, or the one that the answer reports and that stays.
func (e *CallError) Unwrap() error {
	if e.Err == nil && e.decided() {
		return e.Reported
	}
	return e.Err
}

// decided reports whether the report of the agent says more than the status, because a repetition would get the same.
func (e *CallError) decided() bool {
	return e.Reported != nil && (e.Code != codes.OK || e.Reported.Message != "") && !e.Temporary()
}

// Said is the status of the answer.
func (e *CallError) Said() string {
	if e.Code != codes.OK {
		return e.Code.String()
	}
	return fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
}

// Unauthorized reports whether the agent accepts no credential.
func (e *CallError) Unauthorized() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden || e.Code == codes.Unauthenticated || e.Code == codes.PermissionDenied
}

// Temporary reports whether the same call may succeed later. Some agents say with a status of 500 that it never will.
func (e *CallError) Temporary() bool {
	for _, kind := range []task.Kind{task.NotFound, task.NotCancelable, task.Unsupported, task.Invalid} {
		if e.Reported != nil && errors.Is(e.Reported, kind) {
			return false
		}
	}
	away := []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted}
	return e.Broke || slices.Contains(away, e.Code) || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// ErrTooLong says that an answer is longer than the most that the caller takes.
var ErrTooLong = errors.New("the answer is too long")

// Answer is an open answer. Only one goroutine may read it. Close it.
type Answer struct {
	Streams bool   // its documents are events
	Alive   func() // is called after each sign of life of a stream, also after a comment; may be nil

	next   func() (id string, document []byte, err error)
	close  func()
	awaits bool // Await has something to wait for
}

// Next waits for the next document. It is valid until the next call. id is that of an event, if the stream has ids. At the end the
// error is io.EOF. Others are a CallError, ErrTooLong, or an web.LineError for what is no stream of events.
func (a *Answer) Next() (id string, document []byte, err error) {
	return a.next()
}

// Close ends the answer.
func (a *Answer) Close() { a.close() }

func (a *Answer) alive() {
	if a.Alive != nil {
		a.Alive()
	}
}

// Open does an operation.
func (t *Transport) Open(ctx context.Context, to *Target, op client.Op, p *client.Params) (*Answer, error) {
	p.Tenant = to.Tenant
	request, err := to.Wire.Request(to.URL, op, p)
	if err != nil {
		return nil, err
	}
	if to.Wire.Binding == client.GRPC {
		return t.invoke(ctx, to, op, request)
	}
	response, err := t.do(ctx, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, refusal(response, func(body []byte) *client.Error { return to.reported(op, response.StatusCode, body) })
	}
	a := &Answer{close: func() { response.Body.Close() }}
	if media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); media == "text/event-stream" {
		a.Streams = true
		events := web.ServerSentEvents(&watched{response.Body, a}, t.MaxAnswer)
		a.next = func() (string, []byte, error) {
			document, _, err := events.Next()
			if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, new(*web.LineError)) {
				err = interrupted(err)
			}
			return events.ID(), document, err
		}
		return a, nil
	}
	read := false
	a.next = func() (string, []byte, error) {
		if read {
			return "", nil, io.EOF
		}
		read = true
		document, err := readAll(response.Body, t.MaxAnswer)
		return "", document, err
	}
	return a, nil
}

// watched is the body of a stream.
type watched struct {
	io.Reader
	of *Answer
}

// Read implements io.Reader.
func (h *watched) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 {
		h.of.alive()
	}
	return n, err
}

// Get reads a document, such as a card.
func (t *Transport) Get(ctx context.Context, at string, most int) ([]byte, error) {
	response, err := t.do(ctx, &client.Request{Method: http.MethodGet, URL: at, Header: http.Header{"Accept": {"application/json"}}})
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, refusal(response, func([]byte) *client.Error { return nil })
	}
	defer response.Body.Close()
	return readAll(response.Body, most)
}

func readAll(from io.Reader, most int) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, int64(most)+1))
	switch {
	case err != nil:
		return nil, interrupted(err)
	case len(body) > most:
		return nil, ErrTooLong
	}
	return body, nil
}

// interrupted is the error of a connection that broke in an answer.
func interrupted(err error) error {
	return &CallError{Err: fmt.Errorf("read the answer: %w", err), Class: web.Broken, Broke: true, Sent: true}
}

// do sends a request.
func (t *Transport) do(ctx context.Context, r *client.Request) (*http.Response, error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, r.Header)
	if err := t.Sign(ctx, request.Header); err != nil {
		return nil, err
	}
	if r.Body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := t.HTTP.Do(request)
	if err != nil {
		return nil, &CallError{Err: err, Class: web.FailureClass(ctx, err, sent.Load()), Broke: true, Sent: sent.Load()}
	}
	return response, nil
}

// refusal returns the error of an answer with a status other than 2xx.
func refusal(response *http.Response, reported func(body []byte) *client.Error) *CallError {
	defer response.Body.Close()
	e := &CallError{
		Status: response.StatusCode, Class: web.StatusClass(response.StatusCode), Sent: true,
		After: web.RetryAfter(response.Header.Get("Retry-After"), time.Now(), maxRetryAfter),
		Body:  web.ReadStart(response, maxError, func() { response.Body.Close() }),
	}
	if to, err := response.Location(); err == nil {
		e.Location = to.Redacted()
	}
	e.Reported = reported(e.Body)
	return e
}

// reported returns the error that a body reports, or nil. Some servers choose a status for the error that the body has.
func (to *Target) reported(op client.Op, status int, body []byte) *client.Error {
	if to.Wire.Binding != client.JSONRPC {
		if e := to.Wire.Failure(status, body, MaxDepth); e.Message != "" || status < 500 {
			return e
		}
		return nil
	}
	_, err := to.Wire.Answer(op, body, MaxDepth)
	e, _ := errors.AsType[*client.Error](err)
	return e
}
