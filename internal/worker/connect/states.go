package connect

import (
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// states are the stored states as a run knew them last, for the time after it.
type states struct {
	mu sync.Mutex
	of map[executor.Scope]executor.State
}

func (s *states) from(doc *wire.Document) { s.of = doc.States }

func (s *states) get(of executor.Scope) executor.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[of]
}

func (s *states) set(of executor.Scope, v executor.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[executor.Scope]executor.State{}
	}
	s.of[of] = v
}
