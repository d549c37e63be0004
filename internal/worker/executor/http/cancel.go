package http

import (
	"bytes"
	"context"
	"fmt"
	nethttp "net/http"
	"strconv"

	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// cancelable is a backend with a cancel_url.
type cancelable struct{ *backend }

// Cancel implements executor.Canceler: it POSTs the cancel document to the cancel_url.
func (b cancelable) Cancel(ctx context.Context, c *executor.Cancellation) error {
	doc, err := wire.EncodeCancellation(ctx, c)
	if err != nil {
		return err
	}
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := nethttp.NewRequestWithContext(callCtx, nethttp.MethodPost, b.opts.CancelURL, bytes.NewReader(doc))
	if err != nil {
		return fmt.Errorf("build the request to the agent's cancel_url: %w", err)
	}
	// Not the key of the run: to whatever remembers keys, this is another request.
	b.setHeaders(request.Header, c.IdempotencyKey()+":"+string(c.Reason), c.ID, tracing.Context{})
	request.Header.Set("Holdfast-Attempt", strconv.Itoa(int(c.Attempt)))
	response, err := executor.Send(b.client, request, "the agent's cancel_url")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if err := refusal(response, cancel, b.redact); err != nil {
		return fmt.Errorf("call the agent's cancel_url: %w", err)
	}
	web.Drain(response.Body, cancel)
	return nil
}
