package a2a

import (
	"context"
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
	if f.opts.fixed() != nil {
		card, _, err := f.readCard(ctx)
		if err != nil {
			return nil, err
		}
		return &Cards{Public: card}, nil
	}
	t, err := f.discover(ctx)
	if err != nil {
		return nil, err
	}
	return &Cards{Public: t.card}, nil
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
