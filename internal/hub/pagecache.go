package hub

import (
	"context"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	replayLeast = 16 // events of a page that is worth keeping
	replayShare = 2  // the part of the budget that a page may take
)

// replays has pages of the logs of ended tasks, with their encodings, for further readers. A reader gets a page only after
// Options.Unchanged has asked the database. A nil replays has none.
type replays = limit.Kept[place, *replay]

// place is where a page begins. The encodings of its events have the public id of their task, which may change.
type place struct {
	task     task.ID
	publicID string
	after    task.Seq
}

type replay struct {
	entries   []*Entry
	bytes     int
	witnesses []*task.Event // see Store.Unchanged
}

// newReplays returns a cache that holds at most a budget, in which nothing else is.
func newReplays(bytes *limit.Budget) *replays {
	return limit.NewKept[place](bytes, replayShare, func(p *replay) int64 { return int64(p.bytes) * entryFactor })
}

// keep keeps a page, unless it is small, or one that may not be shared: of large events, or of a task that has not ended.
func (s *Subscription) keep(entries []*Entry, bytes int) {
	owner := s.topic.owner
	if s.hub.replays == nil || !owner.Status.State.Terminal() || len(entries) < replayLeast || slices.ContainsFunc(entries, (*Entry).large) {
		return
	}
	// Deletions begin with the newest events, or drop all artifacts or the whole log. So if these two are there, all are.
	p := &replay{slices.Clip(entries), bytes, []*task.Event{entries[len(entries)-1].Event}}
	for _, e := range slices.Backward(entries) {
		if e.Kind == task.EventArtifact {
			if e.Event != p.witnesses[0] {
				p.witnesses = append(p.witnesses, e.Event)
			}
			break
		}
	}
	s.hub.replays.Put(s.place(), p)
}

// place is where the subscription's next page begins.
func (s *Subscription) place() place {
	return place{s.topic.owner.ID, s.topic.owner.PublicID, s.after.Seq}
}

// replayed returns the subscription's next page if it is kept, and the database still has its events.
func (s *Subscription) replayed(ctx context.Context) (*replay, error) {
	if !s.topic.owner.Status.State.Terminal() {
		return nil, nil
	}
	at := s.place()
	p, ok := s.hub.replays.Get(at)
	if !ok {
		return nil, nil
	}
	same, err := s.hub.opt.Store.Unchanged(ctx, at.task, s.after, p.witnesses)
	if err != nil {
		return nil, err
	}
	if !same {
		s.hub.replays.Delete(at)
		return nil, nil
	}
	return p, nil
}
