package hub

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jellydator/ttlcache/v3"

	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	replayFor   = 5 * time.Minute
	replayLeast = 16 // events of a page that is worth keeping
)

// replays has pages of the logs of ended tasks, with their encodings, for further readers. A reader gets a page only after
// Options.Unchanged has asked the database. A nil replays has none.
type replays struct {
	pages *ttlcache.Cache[place, *replay]
	bytes *memory.Budget
	puts  sync.Mutex
}

// place is where a page begins. The encodings of its events have the public id of their task, which may change.
type place struct {
	task     task.ID
	publicID string
	after    task.Seq
}

type replay struct {
	entries []*Entry
	bytes   int
}

// newReplays returns a cache that holds at most a budget, in which nothing else is.
func newReplays(bytes *memory.Budget) *replays {
	if bytes == nil {
		return nil
	}
	r := &replays{
		bytes: bytes,
		pages: ttlcache.New(
			ttlcache.WithTTL[place, *replay](replayFor),
			ttlcache.WithDisableTouchOnHit[place, *replay](), // what was deleted must not stay
			ttlcache.WithMaxCost(uint64(bytes.Stat().Size), func(i ttlcache.CostItem[place, *replay]) uint64 { return uint64(i.Value.cost()) }),
		),
	}
	r.pages.OnEviction(func(_ context.Context, _ ttlcache.EvictionReason, i *ttlcache.Item[place, *replay]) {
		bytes.Give("", i.Value().cost())
	})
	return r
}

// cost is the memory of a page, in bytes.
func (p *replay) cost() int64 { return int64(p.bytes) * entryFactor }

// expire drops what was read too long ago, until ctx ends.
func (r *replays) expire(ctx context.Context) error {
	tick := time.NewTicker(replayFor / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.pages.DeleteExpired()
		case <-ctx.Done():
			return nil
		}
	}
}

// put keeps a page, unless it is small, or one that may not be shared: of large events, or of a task that has not ended.
func (r *replays) put(owner *task.Task, after task.Seq, entries []*Entry, bytes int) {
	if r == nil || !owner.Status.State.Terminal() || len(entries) < replayLeast {
		return
	}
	for _, e := range entries {
		if e.large() {
			return
		}
	}
	p := &replay{slices.Clip(entries), bytes}
	if p.cost() > r.bytes.Stat().Size/2 {
		return
	}
	at := place{owner.ID, owner.PublicID, after}
	r.puts.Lock()
	defer r.puts.Unlock()
	r.pages.Delete(at) // an update would not be told as the end of the old one
	r.bytes.Add("", p.cost())
	r.pages.Set(at, p, ttlcache.DefaultTTL)
}

// replayed returns the subscription's next page if it is kept, and the database still has its events.
func (s *Subscription) replayed(ctx context.Context) (*replay, error) {
	r := s.hub.replays
	if r == nil || !s.topic.owner.Status.State.Terminal() {
		return nil, nil
	}
	owner := s.topic.owner
	at := place{owner.ID, owner.PublicID, s.after.Seq}
	item := r.pages.Get(at)
	if item == nil {
		return nil, nil
	}
	p := item.Value()
	// Deletions begin with the newest events, or drop all artifacts or the whole log. So if these two are there, all are.
	witnesses := []*task.Event{p.entries[len(p.entries)-1].Event}
	for i := len(p.entries) - 1; i >= 0; i-- {
		if e := p.entries[i].Event; e.Kind == task.EventArtifact {
			witnesses = append(witnesses, e)
			break
		}
	}
	same, err := s.hub.opt.Store.Unchanged(ctx, at.task, s.after, witnesses)
	if err != nil {
		return nil, err
	}
	if !same {
		r.pages.Delete(at)
		return nil, nil
	}
	return p, nil
}
