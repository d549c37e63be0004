package a2a

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc"

	transport "github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

const (
	streamWindow     = 64 << 10 // bytes that an agent may send ahead of its reader over gRPC, on a stream and on a connection
	connectionWindow = 1 << 20
	maxMetadata      = 1 << 20 // of an answer over gRPC, in bytes
)

// carrier returns the transport to the agent. Connections are direct, over gRPC as over HTTP.
func (f *Front) carrier() transport.Transport {
	o := &f.opts
	return transport.Transport{
		HTTP: web.ToAgents(o.ConnectTimeout, 0, o.Observe), MaxAnswer: f.maxAnswer(), Sign: f.sign, Observe: o.Observe,
		Connections: &transport.Connections{Connect: o.ConnectTimeout, Agent: o.agent(), Options: []grpc.DialOption{
			grpc.WithContextDialer(web.Dial(o.ConnectTimeout)),
			grpc.WithNoProxy(),
			grpc.WithStaticStreamWindowSize(streamWindow),
			grpc.WithStaticConnWindowSize(connectionWindow),
			grpc.WithMaxHeaderListSize(maxMetadata),
		}},
	}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// callError is a call without an answer of the agent: something was away, or in between. Its Err is for the run's log and task.
type callError = transport.CallError

// call does an operation for a run, whose answer is one document.
func (r *run) call(ctx context.Context, op client.Op, p *client.Params) (*client.Update, error) {
	return r.Front.call(ctx, r.to, op, r.facts(p))
}

// open does an operation for a run. The answer is an update, or a stream that the caller closes.
func (r *run) open(ctx context.Context, op client.Op, p *client.Params) (*client.Update, *transport.Answer, error) {
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
	update, stream, err := f.open(ctx, to, op, p)
	if stream != nil {
		stream.Close()
		return nil, &executor.Failure{Msg: "the agent answered with a stream where one document belongs"}
	}
	return update, err
}

// document does an operation whose answer is a document, and returns that as it was written.
func (f *Front) document(ctx context.Context, to *target, op client.Op, p *client.Params) ([]byte, error) {
	a, err := f.transport.Open(ctx, &to.Target, op, p)
	if err != nil {
		return nil, f.failed(err, p.Forwarded)
	}
	defer a.Close()
	_, body, err := a.Next()
	if err != nil {
		return nil, f.failed(err, p.Forwarded)
	}
	document, err := to.Wire.Document(op, body, transport.MaxDepth)
	if reported, ok := errors.AsType[*client.Error](err); ok {
		reported.Message = f.redact(reported.Message, p.Forwarded)
	}
	return document, err
}

// open does an operation. The answer is an update, or a stream that the caller closes.
func (f *Front) open(ctx context.Context, to *target, op client.Op, p *client.Params) (*client.Update, *transport.Answer, error) {
	a, err := f.transport.Open(ctx, &to.Target, op, p)
	if err != nil {
		return nil, nil, f.failed(err, p.Forwarded)
	}
	var document []byte
	if a.Streams {
		if err = a.Await(); err == nil {
			return nil, a, nil
		}
	} else {
		_, document, err = a.Next()
	}
	a.Close()
	if err != nil {
		return nil, nil, f.failed(err, p.Forwarded)
	}
	update, err := f.parse(to, op, document, p.Forwarded)
	return update, nil, err
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

// parse reads a document. An error that the agent reports is a *client.Error; any other is a Failure.
func (f *Front) parse(to *target, op client.Op, document []byte, forwarded task.Forwarded) (*client.Update, error) {
	update, err := to.Wire.Answer(op, document, transport.MaxDepth)
	var reported *client.Error
	if err != nil && !errors.As(err, &reported) {
		return nil, &executor.Failure{Msg: "the agent's answer is not A2A " + to.Wire.Version + ": " + f.redact(err.Error(), forwarded)}
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
		return &callError{Err: err, Broke: true}
	}
	if credential != "" {
		header.Set("Authorization", credential)
	}
	header.Set("User-Agent", f.opts.agent())
	return nil
}

// failed returns the error of a call as a run sees it, whatever the binding: a *callError, a *client.Error that the agent reports, or a
// Failure.
func (f *Front) failed(err error, forwarded task.Forwarded) error {
	if errors.Is(err, transport.ErrTooLong) {
		return &executor.Failure{Msg: fmt.Sprintf("the agent's answer is longer than %d bytes, four times limits.max_event", f.maxAnswer())}
	}
	if errors.As(err, new(*transport.MetadataError)) {
		return &executor.Failure{Msg: err.Error()}
	}
	e, ok := errors.AsType[*transport.CallError](err)
	if !ok {
		return wire.Unread(err)
	}
	if e.Reported != nil {
		e.Reported.Message = f.redact(e.Reported.Message, forwarded)
	}
	said, text := web.Excerpt([]byte(f.redact(string(e.Body), forwarded))), "the agent answered "+e.Said()
	away := &callError{Err: errors.New(text), Class: e.Class, Broke: e.Broke, Sent: e.Sent, After: e.After}
	switch {
	case e.Broke && e.Err == nil:
		away.Err = errors.New("call the agent: " + web.Excerpt([]byte(e.Reported.Message)))
		return away
	case e.Broke:
		// Drop the URL, whose query may contain a key: the error is logged, and stored with the task.
		cause := e.Err
		if of, ok := errors.AsType[*url.Error](cause); ok {
			cause = of.Err
		}
		away.Err = fmt.Errorf("call the agent: %w", cause)
		return away
	case e.Class == web.Redirected:
		return &executor.Failure{Msg: text + "; redirects are not followed"}
	case e.Class == web.Overloaded, e.Class == web.Gateway, e.Status == http.StatusRequestTimeout, e.Status == http.StatusTooEarly:
		return away
	case e.Unauthorized() && len(forwarded) > 0:
		return &executor.Failure{Msg: "the agent refused the credential of the server or of the client", Cause: errors.New(text)}
	case e.Unauthorized():
		return &executor.Failure{Msg: "the agent refused the server's credential", Cause: errors.New(text)}
	case e.Reported != nil:
		return e.Reported
	case e.Status >= 500: // the text of a crash is for operators; it is often a stack trace
		away.Err = &executor.Failure{Msg: text, Cause: errors.New(said)}
		return away
	}
	return &client.Error{Status: e.Status, Message: said}
}

// outcome turns the error of a call into the error of a run that has not begun.
func outcome(err error) error {
	var away *callError
	var reported *client.Error
	switch {
	case errors.As(err, &away):
		answered := &executor.Unavailable{Err: executor.Retryable(away.Err, away.After), RetryAfter: away.After, Answered: true}
		switch {
		case away.Broke && !away.Sent:
			return &executor.Unavailable{Err: away.Err, RetryAfter: away.After}
		case away.Broke, away.Class == web.Failed: // the agent had the message
			return answered.Err
		case away.Class == web.Overloaded:
			answered.Err = away.Err
		}
		return answered
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
	all := transport.CardURLs(u)
	if o.CardURL != "" && strings.Trim(u.Path, "/") != "" {
		return append(all[:len(all)/2], from) // an operator who names a path means that agent, and not the one of the host
	}
	return all
}
