package a2a

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	transport "github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// target is where and how to call the agent.
type target struct {
	transport.Target

	streams bool
	pushes  bool
	card    *client.Card // nil if the configuration says everything
	guessed bool         // nobody names the version: the agent may speak 0.1
	newer   *target      // of a target for 0.1: the guessed one
}

// of01 returns the target for an agent of 0.1.
func (t *target) of01() *target {
	of := *t
	of.Wire, of.guessed, of.newer = client.Oldest(), false, t
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
	return &target{Target: transport.Target{Wire: client.Find(o.Version, o.Binding), URL: o.URL}, streams: !o.Poll, pushes: true}
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
		Target: transport.Target{Wire: w, URL: i.URL, Tenant: i.Tenant}, streams: card.Capabilities.Streaming && !f.opts.Poll,
		pushes: card.Capabilities.PushNotifications, card: card,
		guessed: f.opts.Version == "" && w.Binding == client.JSONRPC && card.Guessed(i),
	}
	switch {
	case f.opts.URL != "" && w.Binding == client.GRPC && !pathless(f.opts.URL):
		err = fmt.Errorf("offers only gRPC, and %w", errPath)
	case f.opts.URL != "":
		t.URL = f.opts.URL
	default:
		t.URL, err = transport.Place(w, i.URL, f.opts.CardURL, "a2a.url")
	}
	if err != nil {
		return nil, &executor.Failure{Msg: "the agent's card cannot be used", Cause: fmt.Errorf("%s %w", f.redact(at, nil), err)}
	}
	return t, nil
}

var errPath = errors.New("a2a.url has a path or a query, which gRPC has no place for; write only scheme, host and port")

// pathless reports whether gRPC can call a URL: it has no place for a path or a query.
func pathless(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
}

// maxCard bounds a card, in bytes.
const maxCard = 1 << 20

// readCard reads the first card that it finds.
func (f *Front) readCard(ctx context.Context) (*client.Card, string, error) {
	if to := f.opts.fixed(); to != nil && to.Wire.Binding == client.GRPC {
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
			return nil, at, &executor.Unavailable{Err: fmt.Errorf("read the agent's card: %w", away.Err), RetryAfter: away.After, Answered: !away.Broke}
		}
		missing = errors.Join(missing, fmt.Errorf("%s: %w", f.redact(at, nil), err))
	}
	return nil, "", &executor.Failure{Msg: "the agent's card cannot be read", Cause: missing}
}

func (f *Front) readCardAt(ctx context.Context, at string) (*client.Card, error) {
	raw, err := f.transport.Get(ctx, at, maxCard)
	var e *transport.CallError
	switch {
	case errors.Is(err, transport.ErrTooLong):
		return nil, errCardTooLong
	case errors.As(err, &e) && e.Status != 0 && e.Temporary():
		return nil, &callError{Err: errors.New("the agent answered " + e.Said())}
	case errors.As(err, &e) && e.Status != 0:
		return nil, errors.New(e.Said())
	case err != nil:
		return nil, f.failed(err, nil)
	}
	return f.parseCard(raw)
}

var errCardTooLong = fmt.Errorf("the card is longer than %d bytes", maxCard)

// parseCard reads a card. If the operator has keys for it, it reads only what one of them has signed.
func (f *Front) parseCard(document []byte) (*client.Card, error) {
	if len(document) > maxCard {
		return nil, errCardTooLong
	}
	keys, err := f.opts.cardKeys()
	if err != nil {
		return nil, fmt.Errorf("a2a.card_keys_file: %w", err)
	}
	if keys != nil {
		if document, err = keys.Verify(document, transport.MaxDepth); err != nil {
			err = fmt.Errorf("a2a.card_keys: %w", err)
		}
	}
	var card *client.Card
	if err == nil {
		card, err = client.ReadCard(document, transport.MaxDepth)
	}
	if err != nil {
		return nil, errors.New(f.redact(err.Error(), nil)) // it may repeat members of the card
	}
	return card, nil
}
