package a2a

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

// Cards are the cards of an agent.
type Cards struct {
	Public   *client.Card
	Extended *client.Card // for callers with a credential; nil if the agent has none
}

// Cards reads the agent's cards, also where runs need none. Runs that begin later use them.
func (f *Front) Cards(ctx context.Context) (*Cards, error) {
	select {
	case f.aiming <- struct{}{}:
		defer func() { <-f.aiming }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	to, cards := f.opts.fixed(), new(Cards)
	var err error
	if to != nil {
		cards.Public, _, err = f.readCard(ctx)
	} else if to, err = f.discover(ctx); err == nil {
		cards.Public = to.card
	}
	if err != nil {
		return nil, err
	}
	cards.Extended = f.extendedCard(ctx, to, cards.Public)
	return cards, nil
}

// extendedCard returns the extended card, if the agent says that it has one and the front has a credential. If it cannot be
// read, the last one stays.
func (f *Front) extendedCard(ctx context.Context, to *target, public *client.Card) *client.Card {
	if !public.Capabilities.ExtendedCard || !to.Wire.Has(client.ExtendedCard) || !f.opts.hasCredential() {
		f.extended = nil
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.opts.CallTimeout)
	defer cancel()
	card, err := f.readExtendedCard(ctx, to)
	switch {
	case err == nil:
		f.extended, f.noExtended = card, false
	case !f.noExtended:
		f.noExtended = true
		f.opts.Log.Warn("could not read the agent's extended card", "error", err)
	}
	return f.extended
}

func (f *Front) readExtendedCard(ctx context.Context, to *target) (*client.Card, error) {
	card, err := f.askExtendedCard(ctx, to)
	var reported *client.Error
	if errors.As(err, &reported) { // 0.2 has no operation for it
		for _, at := range to.Wire.ExtendedCardURLs(to.URL) {
			if card, oldErr := f.readCardAt(ctx, at); oldErr == nil {
				return card, nil
			}
		}
	}
	return card, err
}

func (f *Front) askExtendedCard(ctx context.Context, to *target) (*client.Card, error) {
	document, err := f.document(ctx, to, client.ExtendedCard, new(client.Params))
	if err != nil {
		return nil, err
	}
	return f.parseCard(document)
}

// firstRetry is how long the front waits after the first of several failures to read the card.
const firstRetry = time.Second

// Watch reads the cards at each CardInterval, and sooner after a failure, until ctx ends. known are the cards that the
// caller has, or nil. Watch calls changed with each other ones. Cards that cannot be read or used change nothing, and are
// logged once.
func (f *Front) Watch(ctx context.Context, known *Cards, changed func(*Cards)) {
	failing, retry := known == nil, min(firstRetry, f.opts.CardInterval)
	for {
		pause := f.opts.CardInterval
		if failing {
			pause, retry = retry, min(2*retry, f.opts.CardInterval)
		}
		if !sleep(ctx, pause+rand.N(pause/8+1)) { // replicas do not ask all at once
			return
		}
		cards, err := f.Cards(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				f.opts.Log.Warn("could not read the agent's card again, so the old one stays in use", "error", err)
				failing, retry = true, min(firstRetry, f.opts.CardInterval)
			}
			continue
		case failing:
			f.opts.Log.Info("the agent's card was read")
			failing = false
		}
		if !reflect.DeepEqual(cards, known) {
			known = cards
			changed(cards)
		}
	}
}
