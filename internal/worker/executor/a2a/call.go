package a2a

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// A callError is a call without an answer of the agent: something was away, or in between.
type callError struct {
	err      error
	after    time.Duration // what the answer asks for
	unsent   bool          // the agent cannot have got the request
	busy     bool          // the agent, or something for it, says so
	answered bool
	crashed  bool // the agent had the request and failed
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// answer is an answer: one update, or a stream of them.
type answer struct {
	update *client.Update
	stream feed // nil without a stream
}

// feed is the stream of events that answers a send.
type feed interface {
	// Next returns the document of an event. At the end the error is io.EOF, and for an event that is too long a Failure.
	Next() (document []byte, err error)
	// closeAfter has a timer that starts again with each sign of life. It must be called before Next.
	closeAfter(timer *time.Timer)
	Close()
}

// call does an operation for a run, whose answer is one document.
func (r *run) call(ctx context.Context, op client.Op, p *client.Params) (*client.Update, error) {
	return r.Front.call(ctx, r.to, op, r.facts(p))
}

// open does an operation for a run. If the answer is a stream, the caller closes its body.
func (r *run) open(ctx context.Context, op client.Op, p *client.Params) (*answer, error) {
	return r.Front.open(ctx, r.to, op, r.facts(p))
}

// facts adds what the run's request said.
func (r *run) facts(p *client.Params) *client.Params {
	p.Extensions, p.Trace, p.Forwarded = r.extensions(r.to, r.Extensions), r.Trace(), r.forwards
	return p
}

// call does an operation whose answer is one document, within the call timeout.
func (f *Front) call(ctx context.Context, to *target, op client.Op, p *client.Params) (*client.Update, error) {
	ctx, cancel := context.WithTimeout(ctx, f.opts.CallTimeout)
	defer cancel()
	a, err := f.open(ctx, to, op, p)
	if err != nil {
		return nil, err
	}
	if a.stream != nil {
		a.stream.Close()
		return nil, &executor.Failure{Msg: "the agent answered with a stream where one document belongs"}
	}
	return a.update, nil
}

// document does an operation whose answer is a document, and returns that as it was written.
func (f *Front) document(ctx context.Context, to *target, op client.Op, p *client.Params) ([]byte, error) {
	body, err := f.body(ctx, to, op, p)
	if err != nil {
		return nil, err
	}
	document, err := to.wire.Document(op, body, wire.MaxDepth)
	if reported, ok := errors.AsType[*client.Error](err); ok {
		reported.Message = f.redact(reported.Message, p.Forwarded)
	}
	return document, err
}

func (f *Front) body(ctx context.Context, to *target, op client.Op, p *client.Params) ([]byte, error) {
	if to.wire.Binding == client.GRPC {
		return f.invoke(ctx, to, op, p)
	}
	response, err := f.ask(ctx, to, op, p)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return f.read(response.Body)
}

// ask does an operation over HTTP, and returns an answer with a 2xx status. The caller closes its body.
func (f *Front) ask(ctx context.Context, to *target, op client.Op, p *client.Params) (*http.Response, error) {
	p.Tenant = to.tenant
	request, err := to.wire.Request(to.url, op, p)
	if err != nil {
		return nil, err
	}
	response, err := f.do(ctx, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer response.Body.Close()
		return nil, f.refusal(to, op, p, response)
	}
	return response, nil
}

// open does an operation. If the answer is a stream, the caller closes its body.
func (f *Front) open(ctx context.Context, to *target, op client.Op, p *client.Params) (*answer, error) {
	if to.wire.Binding == client.GRPC {
		if op.Streams() {
			stream, err := f.listen(ctx, to, op, p)
			if err != nil {
				return nil, err
			}
			return &answer{stream: stream}, nil
		}
		message, err := f.invoke(ctx, to, op, p)
		if err != nil {
			return nil, err
		}
		return f.answer(to, op, message, p)
	}
	response, err := f.ask(ctx, to, op, p)
	if err != nil {
		return nil, err
	}
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if mediaType == "text/event-stream" {
		body := &heard{ReadCloser: response.Body}
		return &answer{stream: &sse{wire.ServerSentEvents(body, f.maxAnswer()), body}}, nil
	}
	defer response.Body.Close()
	body, err := f.read(response.Body)
	if err != nil {
		return nil, err
	}
	return f.answer(to, op, body, p)
}

func (f *Front) answer(to *target, op client.Op, body []byte, p *client.Params) (*answer, error) {
	update, err := f.parse(to, op, body, p.Forwarded)
	if err != nil {
		return nil, err
	}
	return &answer{update: update}, nil
}

// extensions returns which of a client's extensions go to the agent: those that its card declares. Holdfast serves its own
// ones itself.
func (f *Front) extensions(to *target, active []string) (theirs []string) {
	for _, uri := range active {
		declared := to.card == nil || slices.ContainsFunc(to.card.Capabilities.Extensions, func(e card.Extension) bool { return e.URI == uri })
		if declared && !slices.Contains(f.opts.OwnExtensions, uri) {
			theirs = append(theirs, uri)
		}
	}
	return theirs
}

// maxAnswer bounds a document: a whole task.
func (f *Front) maxAnswer() int { return 4 * f.opts.MaxEvent }

func (f *Front) read(from io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, int64(f.maxAnswer())+1))
	switch {
	case err != nil:
		return nil, &callError{err: fmt.Errorf("the connection to the agent broke: %w", err)}
	case len(body) > f.maxAnswer():
		return nil, f.tooLong()
	}
	return body, nil
}

func (f *Front) tooLong() error {
	return &executor.Failure{Msg: fmt.Sprintf("the agent's answer is longer than %d bytes, four times limits.max_event", f.maxAnswer())}
}

// parse reads a document. An error that the agent reports is a *client.Error; any other is a Failure.
func (f *Front) parse(to *target, op client.Op, document []byte, forwarded task.Forwarded) (*client.Update, error) {
	update, err := to.wire.Answer(op, document, wire.MaxDepth)
	var reported *client.Error
	if err != nil && !errors.As(err, &reported) {
		return nil, &executor.Failure{Msg: "the agent's answer is not A2A " + to.wire.Version + ": " + f.redact(err.Error(), forwarded)}
	}
	if reported != nil {
		reported.Message = f.redact(reported.Message, forwarded)
	}
	return update, err
}

// redact removes the front's secrets, and what it forwarded, from a text of the agent.
func (f *Front) redact(text string, forwarded task.Forwarded) string {
	o := &f.opts
	headers := map[string]string{}
	maps.Copy(headers, o.Headers)
	maps.Copy(headers, forwarded)
	return web.Redactor(headers, []string{o.CardURL, o.URL}, o.Auth.used()...)(text)
}

// sign adds the headers of the front.
func (f *Front) sign(ctx context.Context, header http.Header) error {
	for name, value := range f.opts.Headers {
		header.Set(name, value)
	}
	credential, err := f.opts.Auth.value(ctx)
	if err != nil {
		return &callError{err: err, unsent: true}
	}
	if credential != "" {
		header.Set("Authorization", credential)
	}
	return nil
}

// do sends a request with the headers of the front.
func (f *Front) do(ctx context.Context, r *client.Request) (*http.Response, error) {
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return nil, fmt.Errorf("build the request to the agent: %w", err)
	}
	maps.Copy(request.Header, r.Header)
	if err := f.sign(ctx, request.Header); err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", f.opts.agent())
	if r.Body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	var sent atomic.Bool
	request = request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	response, err := f.http.Do(request)
	if err != nil {
		// Drop the URL, whose query may contain a key: the error is logged, and stored with the task.
		var of *url.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		return nil, &callError{err: fmt.Errorf("call the agent: %w", err), unsent: !sent.Load()}
	}
	return response, nil
}

const maxRetryAfter = time.Hour

// refusal returns the error of an answer with a status other than 2xx.
func (f *Front) refusal(to *target, op client.Op, p *client.Params, response *http.Response) error {
	code := response.StatusCode
	text := fmt.Sprintf("the agent answered %d %s", code, http.StatusText(code))
	if code >= 300 && code < 400 {
		return &executor.Failure{Msg: text + "; redirects are not followed"}
	}
	after := web.RetryAfter(response.Header.Get("Retry-After"), time.Now(), maxRetryAfter)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { response.Body.Close() }) // in case the agent does not finish its answer
	defer stop()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	body = []byte(f.redact(string(body), p.Forwarded))
	switch class := web.StatusClass(code); {
	case class == web.Overloaded:
		return &callError{err: errors.New(text), after: after, busy: true, answered: true}
	case class == web.Gateway, code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		return &callError{err: errors.New(text), after: after, answered: true}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return refused(text, p.Forwarded)
	}
	if to.wire.Binding == client.JSONRPC {
		// Some servers choose a status for the error that the body has.
		var reported *client.Error
		if _, err := to.wire.Answer(op, body, wire.MaxDepth); errors.As(err, &reported) {
			return reported
		}
	} else if reported := to.wire.Failure(code, body, wire.MaxDepth); reported.Message != "" || code < 500 {
		return reported
	}
	if code >= 500 { // the text of a crash is for operators; it is often a stack trace
		return &callError{err: &executor.Failure{Msg: text, Cause: errors.New(web.Excerpt(body))}, after: after, answered: true, crashed: true}
	}
	return &client.Error{Status: code, Message: web.Excerpt(body)}
}

// refused returns the error of an agent that accepts no credential.
func refused(text string, forwarded task.Forwarded) error {
	if len(forwarded) > 0 {
		return &executor.Failure{Msg: "the agent refused the credential of the server or of the client", Cause: errors.New(text)}
	}
	return &executor.Failure{Msg: "the agent refused the server's credential", Cause: errors.New(text)}
}

// outcome turns the error of a call into the error of a run that has not begun.
func outcome(err error) error {
	var away *callError
	var reported *client.Error
	switch {
	case errors.As(err, &away):
		inner := away.err
		switch {
		case away.unsent:
			return &executor.Unavailable{Err: inner, RetryAfter: away.after}
		case away.busy:
			return &executor.Unavailable{Err: inner, RetryAfter: away.after, Answered: true}
		case away.answered && !away.crashed:
			return &executor.Unavailable{Err: executor.Retryable(inner, away.after), RetryAfter: away.after, Answered: true}
		}
		return executor.Retryable(inner, away.after)
	case errors.As(err, &reported):
		failure := &executor.Failure{Msg: "the agent answered with " + reported.Error()}
		if errors.Is(reported, task.Internal) { // its text is for operators
			failure = &executor.Failure{Msg: "the agent answered with an internal error", Cause: reported}
			return executor.Retryable(failure, 0)
		}
		return failure
	}
	return err
}

// sameOrigin reports whether two URLs have one scheme, host and port.
func sameOrigin(a, b string) bool {
	u, err := url.Parse(a)
	if err != nil {
		return false
	}
	v, err := url.Parse(b)
	if err != nil {
		return false
	}
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme == v.Scheme && strings.EqualFold(u.Hostname(), v.Hostname()) && port(u) == port(v)
}

// cardPaths are where servers have their cards, the newest first.
var cardPaths = []string{"/.well-known/agent-card.json", "/.well-known/agent.json"}

// cardURLs returns where a card may be.
func (o *Options) cardURLs() []string {
	from := o.CardURL
	if from == "" {
		from = o.URL
	}
	u, err := url.Parse(from)
	if err != nil {
		return nil
	}
	if o.CardURL != "" && (strings.HasSuffix(u.Path, ".json") || u.RawQuery != "") {
		return []string{from}
	}
	var all []string
	for _, base := range []string{strings.TrimSuffix(u.Path, "/"), ""} {
		for _, path := range cardPaths {
			at := *u
			at.Path, at.RawPath = base+path, ""
			if s := at.String(); !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
		if o.CardURL != "" && base != "" {
			return append(all, from) // an operator who names a path means that agent, and not the one of the host
		}
	}
	return all
}
