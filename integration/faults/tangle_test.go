package faults

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
)

// tangled are scripts of messages for one task. Some leave it parked, so the next message goes on; some never end. None leads to a
// state that 0.1 lacks.
var tangled = []string{
	"ask:what?", "ask:and?", "echo:hello", "chunks=30 size=40 delay=5ms", "chunks=60 size=200 delay=15ms", "sleep=100ms", "wait=300ms",
	"hold", "hold", "data", "fail:x", "crash",
}

// tangling has several clients act on one task at once, in two versions, until one of them cancels it. The judge compares what each
// was told with the log, so every interleaving is right that the log explains.
func (c *client) tangling(ctx context.Context) error {
	first := c.modern().message("", c.tangle()).without("blocking")
	taskID, _, err := c.modern().send(ctx, first)
	if err != nil {
		return err
	}
	var acts errgroup.Group
	for i := range 3 + c.rng.IntN(5) {
		other := *c
		other.d, other.rng = a2atest.Old[c.rng.IntN(2)], mathrand.New(mathrand.NewPCG(c.rng.Uint64(), 0))
		acts.Go(func() error {
			for range other.rng.IntN(3) { // some begin later
				if err := other.breathe(ctx); err != nil {
					return err
				}
			}
			if i == 0 {
				return other.cancel(ctx, taskID)
			}
			return other.act(ctx, taskID, first)
		})
	}
	if err := acts.Wait(); err != nil {
		return fmt.Errorf("task %s: %w", taskID, err)
	}
	r, err := c.get(ctx, taskID, c.ledger.Follow(taskID))
	if err == nil && !slices.Contains([]string{"completed", "failed", "canceled", "rejected"}, r.State()) {
		err = fmt.Errorf("task %s is %s after a cancel", taskID, r.State())
	}
	return err
}

func (c *client) tangle() string { return tangled[c.rng.IntN(len(tangled))] }

// act does one thing to a task that others act on, too. first is the message that made the task.
func (c *client) act(ctx context.Context, taskID string, first *outgoing) error {
	switch c.rng.IntN(8) {
	case 0, 1:
		_, _, err := c.send(ctx, c.message(taskID, c.tangle()))
		return c.unlessEnded(err)
	case 2, 3:
		_, _, err := c.stream(ctx, c.message(taskID, c.tangle()), nil)
		return c.unlessEnded(err)
	case 4, 5:
		r := c.ledger.Follow(taskID)
		r.From(1)
		_, err := (&subscriber{client: c, reading: r, task: taskID, last: 1, id: "1"}).follow(ctx)
		return err
	case 6: // also after the end of the task, the same message has the same answer
		again, _, err := c.modern().send(ctx, first)
		if err == nil && again != taskID {
			err = fmt.Errorf("its message, repeated, made task %s", again)
		}
		return err
	default: // another message with its key
		m := c.modern().message(taskID, c.tangle()).without("blocking")
		c.ledger.Sending(m.mark)
		_, err := c.ask(ctx, a2atest.Request(a2atest.V03.Method(a2atest.Send), m.params), "Idempotency-Key", first.mark)
		if !errors.As(err, new(*refusal)) {
			return errors.Join(errors.New("another message with the key of its first one was not refused"), err)
		}
		c.ledger.Refused(m.mark)
		return nil
	}
}

// unlessEnded drops the refusal of a message to a task that has ended.
func (c *client) unlessEnded(err error) error {
	code := map[*a2atest.Wire]int{a2atest.V01: -32009, a2atest.V03: -32602}[c.d]
	if r := new(refusal); errors.As(err, &r) && r.Code == code {
		return nil
	}
	return err
}
