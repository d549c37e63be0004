package inmemory

import (
	"context"
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// notice is a row of cancel_notices, with the metadata that the log would have.
type notice struct {
	metadata json.RawMessage
	tries    int
	claimed  bool
	ended    bool
}

// Told reports whether nobody has to tell the agent of the task's cancel any more.
func (s *Store) Told(id task.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.notices[id]
	return n == nil || n.ended
}

// ClaimNotices implements worker.Store.
func (s *Store) ClaimNotices(_ context.Context, _ task.ID, want []store.NoticeDemand) ([]store.Notice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Notice
	for id, n := range s.notices {
		r := s.rows[id]
		if r.state.Terminal() && r.state != task.StateCanceled {
			delete(s.notices, id)
			continue
		}
		for i := range want {
			if d := &want[i]; d.Agent == r.head.Agent && d.Slots > 0 && r.state == task.StateCanceled && !n.claimed && !n.ended {
				d.Slots--
				n.tries++
				n.claimed = true
				out = append(out, store.Notice{Task: id, Agent: d.Agent, Reason: store.NoticeCanceled, Try: n.tries})
			}
		}
	}
	return out, nil
}

// RecordNotice implements worker.Store. Another try is due at once.
func (s *Store) RecordNotice(_ context.Context, r store.NoticeResult) error {
	s.mu.Lock()
	n := s.notices[r.Task]
	n.claimed, n.ended = false, r.Delivered || r.Failed
	retry := !n.ended
	s.mu.Unlock()
	if retry && s.listener.Delayed != nil {
		s.listener.Delayed(r.Delay)
	}
	s.changed("")
	return nil
}

// DropNotice implements worker.Store.
func (s *Store) DropNotice(_ context.Context, id task.ID) error {
	s.mu.Lock()
	delete(s.notices, id)
	s.mu.Unlock()
	s.changed("")
	return nil
}

// NoticeFacts implements worker.Store.
func (s *Store) NoticeFacts(_ context.Context, id task.ID) (f store.NoticeFacts, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[id]
	for _, e := range r.log {
		if e.Attempt > 0 && e.Attempt >= f.Attempt {
			f.Attempt, f.Turn = e.Attempt, r.turnOf[e.Attempt]
		}
		if e.Kind == task.EventRun && e.Run.Outcome == task.RunCheckpoint {
			f.Checkpoint = e.Run.Checkpoint
		}
	}
	if n := s.notices[id]; n != nil {
		f.Metadata = n.metadata
	}
	return f, nil
}
