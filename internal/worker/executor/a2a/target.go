package a2a

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// target is where and how to call the agent.
type target struct {
	wire    *client.Wire
	url     string
	tenant  string
	streams bool
	pushes  bool
	card    *client.Card // nil if the configuration says everything
	guessed bool         // nobody names the version: the agent may speak 0.1
	newer   *target      // of a target for 0.1: the guessed one
}

// of01 returns the target for an agent of 0.1.
func (t *target) of01() *target {
	of := *t
	of.wire, of.guessed, of.newer = client.Oldest(), false, t
	return &of
}

// known returns the target for 0.1 if the agent has shown that it speaks that, although nobody says so.
func (t *target) known(older bool) *target {
	if older && t.guessed {
		return t.of01()
	}
	return t
}

// refusedVersion reports whether an agent may have refused a request because of its version: it does not know the method, or
// finds the request invalid, as the official server of 0.1 does.
func refusedVersion(err error) bool {
	var reported *client.Error
	return errors.As(err, &reported) && (reported.Code == methodNotFound || reported.Code == invalidRequest)
}

// Errors of JSON-RPC.
const (
	invalidRequest = -32600
	methodNotFound = -32601
)

// fixed returns the target if runs need no card, otherwise nil.
func (o *Options) fixed() *target {
	if o.URL == "" || o.CardURL != "" || o.Version == "" {
		return nil
	}
	return &target{wire: client.Find(o.Version, o.Binding), url: o.URL, streams: !o.Poll, pushes: true}
}

// aim returns the target, and reads the card if it is not known.
func (f *Front) aim(ctx context.Context) (*target, error) {
	t := f.target.Load()
	if t == nil {
		var err error
		if t, err = f.find(ctx); err != nil {
			return nil, err
		}
	}
	return t.known(f.older.Load()), nil
}

func (f *Front) find(ctx context.Context) (*target, error) {
	select {
	case f.aiming <- struct{}{}: // one reads
		defer func() { <-f.aiming }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if t := f.target.Load(); t != nil {
		return t, nil
	}
	return f.discover(ctx)
}

// discover reads the card, and aims at the interface that it names. If it cannot be used, the front aims as before.
func (f *Front) discover(ctx context.Context) (*target, error) {
	card, at, err := f.readCard(ctx)
	if err != nil {
		return nil, err
	}
	t, err := f.targetOf(card, at)
	if err != nil {
		return nil, err
	}
	f.target.Store(t)
	return t, nil
}

func (f *Front) targetOf(card *client.Card, at string) (*target, error) {
	w, i, err := card.Choose(f.opts.Version, f.opts.Binding)
	if err != nil {
		return nil, &executor.Failure{Msg: "the agent's card cannot be used", Cause: fmt.Errorf("%s: %w", f.redact(at, nil), err)}
	}
	t := &target{
		wire: w, url: i.URL, tenant: i.Tenant, streams: card.Capabilities.Streaming && !f.opts.Poll,
		pushes: card.Capabilities.PushNotifications, card: card,
		guessed: f.opts.Version == "" && w.Binding == client.JSONRPC && card.Guessed(i),
	}
	rpc := w.Binding == client.GRPC
	switch {
	case f.opts.URL != "" && rpc && !pathless(f.opts.URL):
		return nil, &executor.Failure{Msg: "the agent's card cannot be used", Cause: fmt.Errorf("%s offers only gRPC, and %w", f.redact(at, nil), errPath)}
	case f.opts.URL != "":
		t.url = f.opts.URL
	case rpc:
		if t.url, err = web.RPCAddress(i.URL, f.opts.CardURL, "a2a.url"); err != nil {
			return nil, &executor.Failure{Msg: "the agent's card cannot be used", Cause: fmt.Errorf("%s %w", f.redact(at, nil), err)}
		}
	case !sameOrigin(t.url, f.opts.CardURL):
		// The credential, and the conversation, go only where the operator sends them.
		return nil, &executor.Failure{Msg: "the agent's card cannot be used", Cause: fmt.Errorf(
			"%s names the URL %.200q of another host; set a2a.url to it if that is right", f.redact(at, nil), t.url)}
	}
	return t, nil
}

// maxCard bounds a card, in bytes.
const maxCard = 1 << 20

// readCard reads the first card that it finds.
func (f *Front) readCard(ctx context.Context) (*client.Card, string, error) {
	if to := f.opts.fixed(); to != nil && to.wire.Binding == client.GRPC {
		return nil, "", &executor.Failure{Msg: "the agent's card cannot be read", Cause: errors.New("a port of gRPC has none; set a2a.card_url")}
	}
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
		missing = errors.Join(missing, fmt.Errorf("%s: %w", f.redact(at, nil), err))
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
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxCard+1))
	if err != nil {
		return nil, &callError{err: fmt.Errorf("the connection to the agent broke: %w", err)}
	}
	return f.parseCard(raw)
}

// parseCard reads a card. If the operator has keys for it, it reads only what one of them has signed.
func (f *Front) parseCard(document []byte) (*client.Card, error) {
	if len(document) > maxCard {
		return nil, fmt.Errorf("the card is longer than %d bytes", maxCard)
	}
	keys, err := f.opts.cardKeys()
	if err != nil {
		return nil, fmt.Errorf("a2a.card_keys_file: %w", err)
	}
	if keys != nil {
		if document, err = keys.Verify(document, wire.MaxDepth); err != nil {
			err = fmt.Errorf("a2a.card_keys: %w", err)
		}
	}
	var card *client.Card
	if err == nil {
		card, err = client.ReadCard(document, wire.MaxDepth)
	}
	if err != nil {
		return nil, errors.New(f.redact(err.Error(), nil)) // it may repeat members of the card
	}
	return card, nil
}
