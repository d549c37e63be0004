package checks

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
)

const (
	grown     = 200     // chunks of a task
	grownSize = 1 << 10 // bytes of each
	// steep is how many times as long the last quarter of the chunks may take as the first. Where each event costs what the task
	// has, the factor is 7. One slow moment of the machine must not count, so it is the least of three.
	steep, looks = 4, 3
	// notable is the least time of the first quarter that counts, so that no server fails for a few milliseconds.
	notable = 50 * time.Millisecond
)

// growth measures how fast chunks arrive while their task grows.
func growth(ctx context.Context, p *probe) {
	if !p.streaming() {
		return
	}
	least, id := math.Inf(1), ""
	for range looks {
		factor, of, err := p.quarters(ctx)
		if err != nil {
			p.failed(of, "read a stream of many chunks", err)
			return
		}
		p.count("chunks", grown)
		if least, id = min(least, factor), of; least < steep {
			return
		}
	}
	p.violation(id, "the last quarter of %d chunks of task %s took %.1f times as long as the first, as in other tasks", grown, id, least)
}

// quarters returns how many times as long the last quarter of the chunks of a task took as the first.
func (p *probe) quarters(ctx context.Context) (factor float64, id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*p.o.Patience)
	defer cancel()
	at := p.any()
	m, _ := message(p.o.Scripts.large(grown, grownSize), place{})
	s, err := at.c.Stream(ctx, m)
	if err != nil {
		return 0, "", err
	}
	defer s.Close()
	var arrived []time.Time
	for {
		var e *client.Event
		e, err = s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, id, err
		}
		id = e.TaskID
		if e.Event != nil && e.Event.Artifact != nil {
			arrived = append(arrived, time.Now())
		}
	}
	if len(arrived) < grown/2 { // the task at the beginning may have the first ones
		return 0, id, errFew
	}
	quarter := len(arrived) / 4
	first, last := took(arrived[:quarter]), took(arrived[len(arrived)-quarter:])
	return float64(last) / float64(max(first, notable)), id, nil
}

// took adds the pauses between arrivals, without the longest tenth: these may be stalls of the machine.
func took(arrived []time.Time) (sum time.Duration) {
	var pauses []time.Duration
	for i := 1; i < len(arrived); i++ {
		pauses = append(pauses, arrived[i].Sub(arrived[i-1]))
	}
	slices.Sort(pauses)
	for _, d := range pauses[:len(pauses)*9/10] {
		sum += d
	}
	return sum
}

var errFew = errors.New("the stream has few of the chunks")
