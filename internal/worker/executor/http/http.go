// Package http is the executor for agents behind an HTTP endpoint, in any language. It POSTs the run document and reads
// events from the answer: one JSON document, NDJSON or server-sent events. docs/agents/http.md has the author's side.
//
// Connections are direct. Redirects are not followed: they would carry the conversation and the configured credentials
// to a host that nobody configured. The proxy variables of the environment are not read: an agent whose answers depend
// on the server's shell is hard to debug.
package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	nethttp "net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

type backend struct {
	opts   Options
	client *nethttp.Client
	redact func(string) string
}

// New makes an executor that calls the agent at opts.URL.
func New(opts Options) (executor.Executor, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	b := &backend{
		opts: opts, client: web.ToAgents(opts.ConnectTimeout, opts.HeaderTimeout, opts.Observe),
		redact: web.Redactor(opts.Headers, []string{opts.URL, opts.CancelURL}),
	}
	if opts.CancelURL != "" {
		return cancelable{b}, nil
	}
	return b, nil
}

// Execute implements executor.Executor. When ctx ends, it closes the request; that is how the agent learns of it.
func (b *backend) Execute(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	doc, err := wire.EncodeRun(ctx, run, b.opts.History)
	if err != nil {
		return err
	}
	// The request has its own context, so that drain can end it alone.
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = b.call(callCtx, cancel, run, out, doc)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (b *backend) call(
	ctx context.Context, cancel context.CancelFunc, run *executor.Run, out executor.Emitter, doc []byte,
) error {
	request, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodPost, b.opts.URL, bytes.NewReader(doc))
	if err != nil {
		return fmt.Errorf("build the request to the agent: %w", err)
	}
	b.setHeaders(request.Header, run.IdempotencyKey(), run.ID, run.Trace())
	request.Header.Set("Accept", "application/x-ndjson, text/event-stream, application/json")
	request.Header.Set("Holdfast-Attempt", strconv.Itoa(int(run.Attempt)))
	response, err := executor.Send(b.client, request, "the agent")
	if err != nil {
		return err
	}
	defer response.Body.Close()

	if err := refusal(response, cancel, b.redact); err != nil {
		return err
	}
	run.Began()
	if response.StatusCode == nethttp.StatusAccepted {
		return accepted(ctx, run, &body{in: response.Body, framed: true})
	}
	player := wire.NewPlayer(run, out)
	if err := b.play(ctx, run, player, response); err != nil {
		return err
	}
	web.Drain(response.Body, cancel)
	return nil
}

// accepted waits for the end of a run whose agent has answered 202: it posts all events to the run API.
func accepted(ctx context.Context, run *executor.Run, body io.Reader) error {
	n, err := io.ReadFull(body, make([]byte, 1))
	switch {
	case n > 0:
		return &executor.Failure{Msg: "the agent answered 202 Accepted with a body: answer 202 without one and post all events to the run API, " +
			"or answer 200 with them"}
	case !errors.Is(err, io.EOF):
		return err
	case run.API == nil:
		return &executor.Failure{Msg: "the agent answered 202 Accepted, but this server has no run API through which its events could come"}
	}
	return run.API.HandOver(ctx)
}

func (b *backend) setHeaders(h nethttp.Header, key string, id task.ID, trace tracing.Context) {
	for name, value := range b.opts.Headers {
		h.Set(name, value)
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "Holdfast")
	}
	h.Set("Content-Type", "application/json")
	// With this header, the transport may also repeat a call whose idle connection was dead.
	h.Set("Idempotency-Key", key)
	// Send the internal id: a client of A2A 0.1 may choose a public id that no header can carry. The document has the
	// public id.
	h.Set("Holdfast-Task-Id", id.String())
	trace.Headers(h) // a request with a span of its own replaces it
}

// play reads the answer in the form of its content type.
func (b *backend) play(ctx context.Context, run *executor.Run, player *wire.Player, response *nethttp.Response) error {
	if response.StatusCode == nethttp.StatusNoContent || response.ContentLength == 0 {
		return nil
	}
	body := &body{in: response.Body, framed: framed(response)}
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		mediaType = response.Header.Get("Content-Type")
	}
	switch mediaType {
	case "application/x-ndjson", "application/ndjson", "application/jsonl":
		err = player.PlayStream(ctx, web.Lines(body, b.opts.MaxEvent), body.unfinished)
	case "text/event-stream":
		err = player.PlayStream(ctx, web.ServerSentEvents(body, b.opts.MaxEvent), body.unfinished)
	case "application/json":
		defer run.Drop()
		return b.playDocument(ctx, player, body)
	default:
		if mediaType == "" && empty(body) {
			return body.unfinished()
		}
		return &executor.Failure{Msg: fmt.Sprintf(
			"the agent answered with the content type %q; send application/json, application/x-ndjson or text/event-stream",
			web.Excerpt([]byte(b.redact(mediaType))))}
	}
	if err == nil && !player.Settled() {
		// No event ended the run, so only the end of the connection shows whether the answer is complete.
		return body.unfinished()
	}
	return err
}

func (b *backend) playDocument(ctx context.Context, player *wire.Player, body *body) error {
	doc, err := player.ReadAnswer(ctx, body, b.opts.MaxEvent)
	switch {
	case err != nil:
		return err
	case len(doc) > b.opts.MaxEvent:
		return &executor.Failure{Msg: fmt.Sprintf(
			"the agent's answer is longer than the %d bytes that a JSON document may have; send a stream instead", b.opts.MaxEvent)}
	case len(doc) == 0:
		return body.unfinished()
	}
	if !jsontext.Value(doc).IsValid() {
		if err := body.unfinished(); err != nil {
			return err
		}
	}
	return recognized(player.PlayAnswer(ctx, doc), doc)
}
