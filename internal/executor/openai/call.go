package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	nethttp "net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/wire"
	"github.com/holdfast-a2a/holdfast/internal/outbound"
)

// sink takes what the model says while it says it.
type sink interface {
	// begin says that the model answers.
	begin()
	take(piece) error
	// due returns a channel that is ready when flush should be called, or nil.
	due() <-chan time.Time
	flush() error
}

// errIdle is the cause of a request that was closed because nothing came.
var errIdle = errors.New("silent for too long")

// complete calls the model once. The sink gets all text at once; the answer is complete when complete returns.
func (a *agent) complete(ctx context.Context, key string, body []byte, into sink) (*answer, error) {
	// The request has its own context, so that an answer that stalls ends it alone.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	token, redact, err := a.secrets()
	if err != nil {
		return nil, &executor.Unavailable{Err: err}
	}
	request, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("build the request to the model: %w", err)
	}
	for name, value := range a.opts.Headers {
		request.Header.Set(name, value)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", "Holdfast")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream, application/json")
	// With this header, the transport may also repeat a call whose idle connection was dead.
	request.Header.Set("Idempotency-Key", key)
	var sent atomic.Bool // the API may have got some of the request
	request = request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	response, err := a.client.Do(request)
	if err != nil {
		return nil, unreached(err, sent.Load())
	}
	defer response.Body.Close()
	stop := func() { cancel(nil) }
	if code := response.StatusCode; code < 200 || code > 299 {
		return nil, refused(response, outbound.ReadStart(response, maxErrorBody, stop), redact)
	}
	in := &reader{in: response.Body, idle: a.opts.IdleTimeout, cancel: cancel, ctx: ctx}
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		mediaType = response.Header.Get("Content-Type")
	}
	switch mediaType {
	case "text/event-stream":
		return a.stream(ctx, cancel, in, into, redact)
	case "application/json":
		return a.whole(in, into, redact)
	default:
		return nil, &executor.Failure{Msg: fmt.Sprintf(
			"the model's API answered with the content type %q instead of text/event-stream or application/json; is base_url right?",
			outbound.Excerpt([]byte(mediaType)))}
	}
}

// secrets returns the API key, and a function that removes all secrets of the configuration from a text: APIs repeat the
// key in errors.
func (a *agent) secrets() (token string, redact func(string) string, err error) {
	token = a.opts.APIKey
	if a.opts.APIKeyFile != "" {
		if token, err = outbound.ReadCredential(a.opts.APIKeyFile); err != nil {
			return "", nil, fmt.Errorf("read the API key: %w", err)
		}
	}
	return token, redactor(a.opts.Headers, token), nil
}

// redactor returns a function that removes secrets, and the values of headers, from a text.
func redactor(headers map[string]string, secrets ...string) func(string) string {
	for _, value := range headers {
		_, credential, _ := strings.Cut(value, " ") // behind Bearer or Basic
		secrets = append(secrets, value, credential)
	}
	var pairs []string
	for _, secret := range secrets {
		if len(secret) >= leastSecret {
			pairs = append(pairs, secret, "[redacted]")
		}
	}
	return strings.NewReplacer(pairs...).Replace
}

// leastSecret is the length of the shortest secret to redact. Shorter ones would match in every other text.
const leastSecret = 6

// unreached turns an error of the transport into that of the run.
func unreached(err error, sent bool) error {
	// Drop the URL, whose query may contain a key: the error is logged, and stored with the task.
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	err = fmt.Errorf("call the model: %w", err)
	var timeout net.Error
	switch {
	case !sent:
		return &executor.Unavailable{Err: err}
	case errors.As(err, &timeout) && timeout.Timeout(): // header_timeout
		return &executor.Unavailable{Err: executor.Retryable(err, 0), Answered: true}
	}
	return executor.Retryable(err, 0)
}

// reader is the body of an answer. It ends the request when nothing comes for too long. Time in which nobody reads, such
// as that of a slow database, does not count.
type reader struct {
	in     io.Reader
	idle   time.Duration
	cancel context.CancelCauseFunc
	ctx    context.Context
}

func (r *reader) Read(p []byte) (int, error) {
	timer := time.AfterFunc(r.idle, func() { r.cancel(errIdle) })
	n, err := r.in.Read(p)
	timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		if errors.Is(context.Cause(r.ctx), errIdle) {
			err = fmt.Errorf("nothing came for %s", r.idle)
		}
		err = broken(err)
	}
	return n, err
}

// broken is the error of an answer without an end. Another call may get a whole one.
func broken(err error) error {
	return executor.Retryable(&executor.Failure{Msg: "the model's answer broke off", Cause: err}, 0)
}

// whole reads an answer in one piece.
func (a *agent) whole(in io.Reader, into sink, redact func(string) string) (*answer, error) {
	doc, err := io.ReadAll(io.LimitReader(in, int64(a.opts.MaxEvent)+1))
	switch {
	case err != nil:
		return nil, err
	case len(doc) > a.opts.MaxEvent:
		return nil, &executor.Failure{Msg: fmt.Sprintf("the model's answer is longer than %d bytes", a.opts.MaxEvent)}
	}
	got := &answer{max: a.opts.MaxEvent}
	if err := a.hear(got, doc, 0, into, redact); err != nil {
		return nil, err
	}
	if got.finish == "" {
		got.finish = "stop" // the document is complete, whether it says so or not
	}
	return got, nil
}

// hear adds one event of a stream, or a whole answer.
func (a *agent) hear(to *answer, raw []byte, line int, into sink, redact func(string) string) error {
	c, err := decode(raw, line)
	if err != nil {
		return err
	}
	if reported := errorIn(c.Error); reported != nil {
		return reported.during(redact)
	}
	if line == 0 && len(c.Choices) == 0 {
		return &executor.Failure{Msg: "the model's answer is not understood: choices: is missing or empty"}
	}
	p, err := to.add(c)
	if err != nil {
		return err
	}
	into.begin()
	return into.take(p)
}

// decode reads a completion. Half of a document is as good as none: the call is repeated.
func decode(raw []byte, line int) (*completion, error) {
	if !json.Valid(raw) {
		return nil, broken(fmt.Errorf("not JSON: %s", outbound.Excerpt(raw[:min(len(raw), 80)])))
	}
	var c completion
	if bad := wire.Unmarshal(raw, &c); bad != nil {
		bad.Line = line
		return nil, &executor.Failure{Msg: "the model's answer is not understood: " + bad.Error()}
	}
	return &c, nil
}

// received is an event of a stream, or its end.
type received struct {
	raw  []byte
	line int
	err  error
}

var done = []byte("[DONE]")

// stream reads an answer in pieces, and flushes the sink when it is due.
func (a *agent) stream(
	ctx context.Context, cancel context.CancelCauseFunc, in io.Reader, into sink, redact func(string) string,
) (*answer, error) {
	events := make(chan received, 16)
	go receive(ctx, wire.ServerSentEvents(in, a.opts.MaxEvent), events)
	defer func() {
		cancel(nil)
		for range events {
			continue // the canceled request ends the reader
		}
	}()
	got := &answer{max: a.opts.MaxEvent}
	for {
		select {
		case e, open := <-events:
			switch {
			case !open && errors.Is(context.Cause(ctx), errIdle):
				return nil, broken(fmt.Errorf("nothing came for %s", a.opts.IdleTimeout))
			case !open:
				return nil, context.Cause(ctx)
			case e.err == nil && bytes.Equal(e.raw, done), errors.Is(e.err, wire.ErrCut) && bytes.Equal(e.raw, done):
				if got.finish == "" {
					got.finish = "stop" // some servers give no reason
				}
				return got, nil
			case e.err == nil:
				if err := a.hear(got, e.raw, e.line, into, redact); err != nil {
					return nil, err
				}
			case got.finish != "":
				return got, nil // only the count of tokens may be missing
			case errors.Is(e.err, io.EOF), errors.Is(e.err, wire.ErrCut):
				return nil, broken(errors.New("the stream ended without a finish_reason"))
			default:
				return nil, e.err
			}
		case <-into.due():
			if err := into.flush(); err != nil {
				return nil, err
			}
		}
	}
}

// receive reads events until the first error or the end of ctx, and closes the channel.
func receive(ctx context.Context, from *wire.Stream, to chan<- received) {
	defer close(to)
	for {
		raw, line, err := from.Next()
		select {
		case to <- received{raw: bytes.Clone(raw), line: line, err: err}:
		case <-ctx.Done():
			return
		}
		if err != nil || bytes.Equal(raw, done) {
			return
		}
	}
}
