package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	nethttp "net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// errIdle is the cause of a request that was closed because nothing came.
var errIdle = errors.New("silent for too long")

// complete asks the model. The writer gets all text at once; the answer is complete when complete returns. key is the one for
// idempotency.
func (a *agent) complete(ctx context.Context, body []byte, key string, got *answer, into *writer) (err error) {
	ctx, span := tracing.Chat(ctx, "openai", a.opts.Model)
	if span != nil {
		defer func() {
			span.Answered(tracing.Answered{Model: got.model, Finish: got.finish, Input: int(got.usage.Input), Output: int(got.usage.Output)})
			if err != nil {
				span.FailWith(err)
			}
			span.End()
		}()
	}
	// The request has its own context, so that an answer that stalls ends it alone.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	response, redact, err := a.send(ctx, body, key)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if code := response.StatusCode; code < 200 || code > 299 {
		return refused(response, web.ReadStart(response, maxErrorBody, func() { cancel(nil) }), redact)
	}
	in := bufio.NewReader(&reader{in: response.Body, idle: a.opts.IdleTimeout, cancel: cancel, ctx: ctx})
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		mediaType = response.Header.Get("Content-Type")
	}
	switch form(in, mediaType) {
	case typeEvents:
		return a.stream(ctx, cancel, in, got, into, redact)
	case typeJSON:
		return a.whole(in, got, into, redact)
	default:
		return &executor.Failure{Msg: fmt.Sprintf(
			"the model's API answered with the content type %q instead of text/event-stream or application/json; is base_url right?",
			web.Excerpt([]byte(redact(mediaType))))}
	}
}

const (
	typeEvents = "text/event-stream"
	typeJSON   = "application/json"
)

// form returns the media type of an answer: what it looks like, since gateways send streams without a type or as JSON, and errors
// as streams; else what it is said to be.
func form(in *bufio.Reader, mediaType string) string {
	for skip := 0; ; skip++ {
		start, err := in.Peek(skip + 1)
		if err != nil {
			return mediaType // the next read has the error, too
		}
		switch start[skip] {
		case ' ', '\t', '\r', '\n':
			continue
		case '{':
			return typeJSON
		case ':':
			return typeEvents
		}
		if mediaType == typeEvents {
			return typeEvents
		}
		start, _ = in.Peek(skip + len("retry:"))
		for _, field := range []string{"data:", "event:", "id:", "retry:"} {
			if bytes.HasPrefix(start[skip:], []byte(field)) {
				return typeEvents
			}
		}
		return mediaType
	}
}

// send sends a request. The caller closes the body of the response.
func (a *agent) send(ctx context.Context, body []byte, key string) (*nethttp.Response, func(string) string, error) {
	token, redact, err := a.secrets(ctx)
	if err != nil {
		return nil, nil, &executor.Unavailable{Err: err}
	}
	request, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodPost, a.url.JoinPath(a.format.method()...).String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("build the request to the model: %w", err)
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
	response, err := executor.Send(a.client, request, "the model")
	if err != nil {
		if _, away := errors.AsType[*executor.Unavailable](err); !away {
			err = broken(err)
		}
		return nil, nil, err
	}
	return response, redact, nil
}

// secrets returns the API key, and a function that removes all secrets of the configuration from a text: APIs repeat the
// key in errors.
func (a *agent) secrets(ctx context.Context) (token string, redact func(string) string, err error) {
	if token, err = web.Credential(ctx, a.opts.APIKey); err != nil {
		return "", nil, fmt.Errorf("read the API key: %w", err)
	}
	return token, web.Redactor(a.opts.Headers, []string{a.opts.BaseURL}, token), nil
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
func (a *agent) whole(in io.Reader, got *answer, into *writer, redact func(string) string) error {
	doc, err := io.ReadAll(io.LimitReader(in, int64(a.opts.MaxEvent)+1))
	switch {
	case err != nil:
		return err
	case len(doc) > a.opts.MaxEvent:
		return &executor.Failure{Msg: fmt.Sprintf("the model's answer is longer than %d bytes", a.opts.MaxEvent)}
	}
	if err := a.add(got, doc, 0, into, redact); err != nil {
		return err
	}
	return a.conclude(got)
}

// conclude is called at the end that the server marks.
func (a *agent) conclude(got *answer) error {
	if a.format.ended(got); got.finish == "" {
		return errNoEnd
	}
	return nil
}

var errNoEnd = broken(errors.New("it ended before it was complete"))

// add adds one event of a stream, or a whole answer.
func (a *agent) add(to *answer, raw []byte, line int, into *writer, redact func(string) string) error {
	if line > 0 {
		raw = to.joined(raw)
	}
	p, err := a.format.read(to, raw, line, redact)
	if err != nil {
		return err
	}
	into.run.Began()
	return into.take(p)
}

// decode reads an answer or an event of one. Half of a document is as good as none: the call is repeated.
func decode(raw []byte, line int, into any, redact func(string) string) error {
	if !json.Valid(raw) {
		return broken(fmt.Errorf("not JSON: %s", web.Excerpt([]byte(redact(string(raw[:min(len(raw), maxErrorBody)]))))))
	}
	if bad := wire.Unmarshal(raw, into); bad != nil {
		bad.Line = line
		return &executor.Failure{Msg: "the model's answer is not understood: " + bad.Error()}
	}
	return nil
}

// received is an event of a stream, or its end.
type received struct {
	raw  []byte
	line int
	err  error
}

var done = []byte("[DONE]")

// stream reads an answer in pieces, and flushes the writer when it is due.
func (a *agent) stream(
	ctx context.Context, cancel context.CancelCauseFunc, in io.Reader, got *answer, into *writer, redact func(string) string,
) error {
	events := make(chan received, 16)
	go receive(ctx, web.ServerSentEvents(in, a.opts.MaxEvent), events)
	defer func() {
		cancel(nil)
		for range events {
			continue // the canceled request ends the reader
		}
	}()
	for {
		select {
		case e, open := <-events:
			switch {
			case !open && errors.Is(context.Cause(ctx), errIdle):
				return broken(fmt.Errorf("nothing came for %s", a.opts.IdleTimeout))
			case !open:
				return context.Cause(ctx)
			case e.err == nil && bytes.Equal(e.raw, done), errors.Is(e.err, web.ErrCut) && bytes.Equal(e.raw, done):
				return a.conclude(got)
			case e.err == nil:
				if err := a.add(got, e.raw, e.line, into, redact); err != nil || got.last {
					return err
				}
			case got.finish != "":
				return nil // only the count of tokens may be missing
			case errors.Is(e.err, io.EOF), errors.Is(e.err, web.ErrCut):
				return errNoEnd
			default:
				return wire.Unread(e.err)
			}
		case <-into.timer:
			if err := into.flush(); err != nil {
				return err
			}
		}
	}
}

// receive reads events until the first error or the end of ctx, and closes the channel.
func receive(ctx context.Context, from *web.Stream, to chan<- received) {
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
