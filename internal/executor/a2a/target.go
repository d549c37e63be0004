package a2a

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/wire"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

// target is where and how to call the agent.
type target struct {
	wire    *client.Wire
	url     string
	tenant  string
	streams bool
	card    *client.Card // nil if the configuration says everything
	until   time.Time    // when the card should be read again
}

// cardLife is how long a card is used before it is read again.
const cardLife = 5 * time.Minute

// aim returns the target, and reads the card if it is not known or old. If an old card cannot be read again, it stays.
func (f *Front) aim(ctx context.Context) (*target, error) {
	if t := f.target.Load(); t != nil && time.Now().Before(t.until) {
		return t, nil
	}
	select {
	case f.aiming <- struct{}{}: // one reads
		defer func() { <-f.aiming }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	old := f.target.Load()
	if old != nil && time.Now().Before(old.until) {
		return old, nil
	}
	t, err := f.discover(ctx)
	if err != nil && old != nil && ctx.Err() == nil {
		f.opts.Log.Warn("could not read the agent's card again, so the old one is used", "error", err)
		t, err = new(target), nil
		*t = *old
	}
	if err != nil {
		return nil, err
	}
	t.until = time.Now().Add(cardLife)
	f.target.Store(t)
	return t, nil
}

// Card reads the agent's card, even where runs need none.
func (f *Front) Card(ctx context.Context) (*client.Card, error) {
	t, err := f.aim(ctx)
	if err != nil {
		return nil, err
	}
	if t.card != nil {
		return t.card, nil
	}
	card, _, err := f.readCard(ctx)
	return card, err
}

func (f *Front) discover(ctx context.Context) (*target, error) {
	if f.opts.URL != "" && f.opts.CardURL == "" && f.opts.Version != "" {
		return &target{wire: client.Find(f.opts.Version, f.opts.Binding), url: f.opts.URL, streams: !f.opts.Poll}, nil
	}
	card, at, err := f.readCard(ctx)
	if err != nil {
		return nil, err
	}
	w, i, err := card.Choose(f.opts.Version, f.opts.Binding)
	if err != nil {
		return nil, &executor.Failure{Msg: "the agent's card cannot be used", Cause: fmt.Errorf("%s: %w", f.redact(at), err)}
	}
	t := &target{wire: w, url: i.URL, tenant: i.Tenant, streams: card.Capabilities.Streaming && !f.opts.Poll, card: card}
	switch {
	case f.opts.URL != "":
		t.url = f.opts.URL
	case !sameOrigin(t.url, f.opts.CardURL):
		// The credential, and the conversation, go only where the operator sends them.
		return nil, &executor.Failure{Msg: "the agent's card cannot be used", Cause: fmt.Errorf(
			"%s names the URL %.200q of another host; set a2a.url to it if that is right", f.redact(at), t.url)}
	}
	return t, nil
}

// maxCard bounds a card, in bytes.
const maxCard = 1 << 20

// readCard reads the first card that it finds.
func (f *Front) readCard(ctx context.Context) (*client.Card, string, error) {
	ctx, cancel := context.WithTimeout(ctx, f.opts.CallTimeout)
	defer cancel()
	var missing error
	for _, at := range f.opts.cardURLs() {
		card, err := f.readCardAt(ctx, at)
		if err == nil {
			return card, at, nil
		}
		var away *callError
		if errors.As(err, &away) {
			return nil, at, &executor.Unavailable{Err: fmt.Errorf("read the agent's card: %w", away.err), RetryAfter: away.after, Answered: away.answered}
		}
		missing = errors.Join(missing, fmt.Errorf("%s: %w", f.redact(at), err))
	}
	return nil, "", &executor.Failure{Msg: "the agent's card cannot be read", Cause: missing}
}

func (f *Front) readCardAt(ctx context.Context, at string) (*client.Card, error) {
	response, err := f.do(ctx, &client.Request{Method: http.MethodGet, URL: at, Header: http.Header{"Accept": {"application/json"}}})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch code := response.StatusCode; {
	case code == http.StatusTooManyRequests, code >= 500:
		return nil, &callError{err: fmt.Errorf("the agent answered %d %s", code, http.StatusText(code)), answered: true}
	case code != http.StatusOK:
		return nil, fmt.Errorf("%d %s", code, http.StatusText(code))
	}
	raw, err := f.read(http.MaxBytesReader(nil, response.Body, maxCard))
	if err != nil {
		return nil, err
	}
	return client.ReadCard(raw, wire.MaxDepth)
}
