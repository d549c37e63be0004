package inmemory

import (
	"context"
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// stateKey names a state: by the task, or by the rest for a context.
type stateKey struct {
	task                         task.ID
	tenant, owner, agent, within string
}

// state keeps the version of a value that was removed (nil).
type state struct {
	value   json.RawMessage
	version int64
}

func keyOf(of store.StateOf) stateKey {
	if !of.Context {
		return stateKey{task: of.Task.ID}
	}
	return stateKey{tenant: of.Task.Tenant, owner: of.Task.Owner, agent: of.Task.Agent, within: of.Task.ContextID}
}

// AgentState implements worker.Store.
func (s *Store) AgentState(_ context.Context, of store.StateOf) (value json.RawMessage, version int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.states[keyOf(of)]
	if have.value == nil {
		return nil, 0, nil
	}
	return have.value, have.version, nil
}

// SetAgentState implements worker.Store, as TaskStateSet and ContextStateSet do.
func (s *Store) SetAgentState(_ context.Context, n store.NewState) (version int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[n.Task.ID]
	if r.fence != n.Fence || r.state >= task.StateInputRequired || r.worker.IsZero() {
		return 0, task.LeaseLost
	}
	key := keyOf(n.StateOf)
	have := s.states[key]
	current := have.version
	if have.value == nil {
		current = 0
	}
	if n.Version != current && n.Version != store.AnyVersion {
		return 0, store.ErrStateChanged
	}
	if n.Value == nil && have.version == 0 {
		return 0, nil
	}
	have.value, have.version = n.Value, have.version+1
	s.states[key] = have
	if n.Value == nil {
		return 0, nil
	}
	return have.version, nil
}
